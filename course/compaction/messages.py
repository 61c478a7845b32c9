"""Read chat messages: their text, their tool calls, and what an API would refuse.

A message is a plain dict in OpenAI Chat Completions form, so a history from your own
agent goes in as it is. Nothing in this module changes a message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")

# Agreed beginnings of a message's text. They let a program recognise a message that must be
# treated in a special way, without a field that an API might refuse.
PROJECT_PREFIX = "[project]"
MEMORY_PREFIX = "[memory]"
REFERENCE_PREFIX = "[reference]"
CHECKLIST_PREFIX = "[todo]"
SUMMARY_PREFIX = "[compacted history]"

_ANTHROPIC, _RESPONSES, _AI_SDK = "Anthropic's API", "the Responses API", "Vercel's AI SDK"

_FOREIGN_BLOCKS = {
    **dict.fromkeys(
        (
            "tool_use",
            "tool_result",
            "thinking",
            "redacted_thinking",
            "server_tool_use",
            "web_search_tool_result",
            "mcp_tool_use",
            "mcp_tool_result",
            "document",
            "search_result",
        ),
        _ANTHROPIC,
    ),
    **dict.fromkeys(
        (
            "input_text",
            "output_text",
            "input_file",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
            "reasoning",
        ),
        _RESPONSES,
    ),
    **dict.fromkeys(("tool-call", "tool-result", "tool-invocation", "step-start"), _AI_SDK),
    "toolCall": "pi",
}
"""Blocks in which other APIs keep what Chat Completions has elsewhere, and whose they are."""

_IMAGE_PARTS = frozenset({"image_url", "input_image", "image"})
_FILE_PARTS = frozenset({"file", "input_file", "document"})
_AUDIO_PARTS = frozenset({"input_audio", "audio"})
_THOUGHT_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
_CALL_PARTS = frozenset({"tool_use", "function_call"})
_RESULT_PARTS = frozenset({"tool_result", "function_call_output"})


@dataclass(frozen=True)
class Call:
    """One tool call of an assistant message; ``arguments`` is the raw JSON text."""

    id: str | None
    name: str
    arguments: str


def content_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message's content alone, without its tool calls.

    >>> content_of({"role": "user", "content": [{"type": "text", "text": "look"}]})
    'look'
    >>> content_of({"role": "assistant", "content": None})
    ''
    """
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    return "\n".join(text for text in map(_part_text, content) if text)


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and _kind_of(part) not in _IMAGE_PARTS | _THOUGHT_PARTS:
        text = part.get("text", part.get("refusal"))
        return text if isinstance(text, str) else ""
    return ""


def _kind_of(part: object) -> str:
    # A type may be anything in a file, even what no set can be asked for.
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _parts(content: object) -> list[Mapping[str, Any]]:
    """Return the parts of a content, those inside results too, in order."""
    if isinstance(content, Mapping):
        content = [content]
    if isinstance(content, str) or not isinstance(content, Sequence):
        return []
    found: list[Mapping[str, Any]] = []
    for part in content:
        if isinstance(part, Mapping):
            found.append(part)
            if _kind_of(part) in _RESULT_PARTS:
                found += _parts(part.get("content", part.get("output")))
    return found


def calls_of(message: Mapping[str, Any]) -> list[Call]:
    """Return the tool calls of an assistant message, in order; ``[]`` for all others.

    >>> function = {"name": "read_file", "arguments": '{"path": "calc.py"}'}
    >>> calls_of({"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]})
    [Call(id='c1', name='read_file', arguments='{"path": "calc.py"}')]
    """
    calls = message.get("tool_calls")
    if message.get("role") != "assistant" or not isinstance(calls, Sequence):
        return []
    return [_call(call) for call in calls if isinstance(call, Mapping)]


def _call(call: Mapping[str, Any]) -> Call:
    # A "custom" tool call carries free text as `input` where a function carries `arguments`.
    function = call.get("function") or call.get("custom") or {}
    if not isinstance(function, Mapping):
        function = {}
    arguments = function.get("arguments", function.get("input", ""))
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    call_id = call.get("id")
    return Call(
        id=call_id if isinstance(call_id, str) else None,
        name=str(function.get("name") or ""),
        arguments=arguments,
    )


def text_of(message: Mapping[str, Any]) -> str:
    """Return all the text that a message carries: content, then its tool calls, one a line.

    What lies deeper counts as well: results inside a content, calls of other forms, names of
    files, the words of a recording. Thoughts were not said: :func:`marked_text` has them. Images,
    files and recordings carry no text: their base64 is never counted as if it were written.

    >>> text_of({"role": "user", "content": "hello"})
    'hello'
    >>> function = {"name": "read_file", "arguments": "{}"}
    >>> text_of({"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]})
    'read_file {}'
    """
    content = content_of(message)
    calls = [f"{call.name} {call.arguments}" for call in calls_of(message)]
    deeper = _deeper_text(message)
    if not calls and not deeper:
        return content
    return "\n".join([content, *deeper, *calls] if content else [*deeper, *calls])


def _deeper_text(message: Mapping[str, Any]) -> list[str]:
    """Return the texts of a message that are neither plain content nor tool calls."""
    texts: list[str] = []
    content = message.get("content")
    for part in [] if content is None or isinstance(content, str) else _parts(content):
        if (kind := _kind_of(part)) in _CALL_PARTS:
            texts.append(_call_text(part))
        elif kind in _RESULT_PARTS:
            inside = content_of({"content": part.get("content", part.get("output"))})
            texts.append(inside)
        elif kind in _FILE_PARTS:
            texts.append(_attachment(part).name)
            source = part.get("source")
            if isinstance(source, Mapping) and source.get("type") == "text":
                texts.append(str(source.get("data") or ""))
    if isinstance(older := message.get("function_call"), Mapping):
        texts.append(_call_text(older))
    if isinstance(spoken := message.get("audio"), Mapping):
        texts.append(str(spoken.get("transcript") or ""))
    return [text for text in texts if text]


def _call_text(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments", call.get("input", ""))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, default=str)
    return f"{call.get('name') or ''} {arguments}"


def thoughts_of(message: Mapping[str, Any]) -> str:
    """Return the reasoning that a message carries back to the model; it was never said.

    >>> thoughts_of({"role": "assistant", "content": "4", "reasoning_content": "2 and 2"})
    '2 and 2'
    """
    # Gateways that send a text and its details send the same thought twice: one of them counts.
    for field in ("reasoning_content", "reasoning"):
        if isinstance(text := message.get(field), str) and text:
            return text
    content, details = message.get("content"), message.get("reasoning_details")
    if isinstance(content, str) and not details:  # the common case: no parts to look into
        return ""
    thoughts = [part for part in _parts(content) if _kind_of(part) in _THOUGHT_PARTS]
    return "\n".join(filter(None, map(_thought, [*thoughts, *_parts(details)])))


def _thought(part: Mapping[str, Any]) -> str:
    for field in ("thinking", "text", "summary", "data", "reasoning"):
        value = part.get(field)
        if isinstance(value, Sequence) and value:
            return value if isinstance(value, str) else content_of({"content": value})
    return ""


class Attachment(NamedTuple):
    """A part other than text: ``kind`` image, file or audio; ``data`` is base64 or "".

    ``form`` is an image's detail, a file's media type, a recording's format; each may be "".
    """

    kind: str
    name: str
    form: str
    data: str


def attachments_of(message: Mapping[str, Any]) -> list[Attachment]:
    """Return the images, files and recordings of a message, those inside results too.

    >>> image = {"type": "image_url", "image_url": {"url": "a.png", "detail": "low"}}
    >>> attachments_of({"role": "user", "content": [image]})
    [Attachment(kind='image', name='', form='low', data='')]
    """
    content = message.get("content")
    if content is None or isinstance(content, str):
        return []
    kinds = _IMAGE_PARTS | _FILE_PARTS | _AUDIO_PARTS
    return [_attachment(part) for part in _parts(content) if _kind_of(part) in kinds]


def _attachment(part: Mapping[str, Any]) -> Attachment:
    kind = _kind_of(part)
    # The payload lies in a field of the part's own name, in Anthropic's `source`, or in the part.
    inner = next(
        (part[key] for key in (kind, "source") if isinstance(part.get(key), Mapping)), part
    )

    def first(*fields: str) -> str:
        values = [holder.get(field) for holder in (inner, part) for field in fields]
        return next((value for value in values if isinstance(value, str)), "")

    address, data = first("url", "image_url"), first("file_data", "data")
    if not data and address.startswith("data:"):
        data = address
    media = first("media_type")
    if data.startswith("data:"):
        head, _, data = data.removeprefix("data:").partition(",")
        media = head.partition(";")[0] or media
    if inner.get("type") == "text":
        media, data = "text/plain", ""  # written out: it counts as text
    name = first("filename", "title", "name")
    if kind in _IMAGE_PARTS:
        return Attachment("image", name, first("detail"), data)
    if kind in _AUDIO_PARTS:
        return Attachment("audio", name, first("format"), data)
    return Attachment("file", name, media, data)


def marked_text(message: Mapping[str, Any]) -> str:
    """Return a message's share of the transcript: ``"role: text"`` and a line break.

    Reasoning that goes back with the message is part of the request, marked as what it is.

    >>> marked_text({"role": "user", "content": "hello"})
    'user: hello\\n'
    >>> marked_text({"role": "assistant", "content": "4", "reasoning_content": "2 and 2"})
    'assistant: (thinking) 2 and 2\\n4\\n'
    """
    thoughts = thoughts_of(message)
    thinking = f"(thinking) {thoughts}\n" if thoughts else ""
    return f"{message.get('role')}: {thinking}{text_of(message)}\n"


def tools_text(tools: Sequence[Mapping[str, Any]] | None) -> str:
    """Return the text of the tool schemas as they ride along on every request.

    >>> tools_text([{"type": "function"}])
    'tools: [{"type":"function"}]\\n'
    >>> tools_text(None)
    ''
    """
    if not tools:
        return ""
    return f"tools: {json.dumps(tools, ensure_ascii=False, separators=(',', ':'))}\n"


def transcript(
    messages: Iterable[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """Return the role-marked text that a request carries: tool schemas first, then messages.

    The transcript of a history is the concatenation of its messages' own texts, so a count
    of its characters can be kept up message by message.

    >>> transcript([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])
    'user: hi\\nassistant: hello\\n'
    """
    return tools_text(tools) + "".join(map(marked_text, messages))


def image_count(messages: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of image parts in the messages, those inside results too.

    >>> image_count([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])
    1
    """
    return sum(found.kind == "image" for message in messages for found in attachments_of(message))


def is_summary(message: Mapping[str, Any]) -> bool:
    """Say whether a message is the summary that an earlier compaction left.

    Only a user message can be one: a tool result that imitates the phrase stays a result.

    >>> is_summary({"role": "user", "content": "[compacted history] ..."})
    True
    >>> is_summary({"role": "tool", "content": "[compacted history] ..."})
    False
    """
    return message.get("role") == "user" and content_of(message).startswith(SUMMARY_PREFIX)


def problems(messages: Sequence[Any], alternate: bool = False) -> list[str]:
    """List what an OpenAI-compatible API would refuse in a history; ``[]`` when it is valid.

    With ``alternate`` also what a strict chat template would: user and assistant take turns, the
    first is the user's, and a system message stands only at the beginning. The sentences name
    ids and kinds, never positions, so that the same fault reads the same before and after
    compaction.

    >>> problems([{"role": "user", "content": "hi"}])
    []
    >>> problems([{"role": "tool", "tool_call_id": "c9", "content": "ok"}])
    ["tool result 'c9' does not follow an assistant message that calls it"]
    """
    found: list[str] = [] if messages else ["the list of messages is empty"]
    # The calls of the latest assistant message, and those still unanswered; a message other
    # than a tool result closes the round.
    called: set[str] = set()
    open_calls: list[str] = []

    def close_round() -> None:
        found.extend(
            f"tool call '{call_id}' has no result right after it" for call_id in open_calls
        )
        called.clear()
        open_calls.clear()

    for message in messages:
        if not isinstance(message, Mapping):
            found.append(f"a message is {kind_of(message)}, not an object")
            continue
        role = message.get("role")
        if role == "tool":
            result_id = message.get("tool_call_id")
            if not isinstance(result_id, str):
                found.append("a tool result has no tool_call_id")
            elif result_id not in called:
                found.append(
                    f"tool result '{result_id}' does not follow an assistant message that calls it"
                )
            elif result_id in open_calls:
                open_calls.remove(result_id)
        else:
            close_round()
        if role not in ROLES:
            found.append(f"a message has the unknown role {role!r}")
            continue
        found.extend(_content_problems(message, role))
        found.extend(_call_problems(message, role))
        for call in calls_of(message):
            if call.id is not None:
                called.add(call.id)
                open_calls.append(call.id)
    close_round()
    return found + (_turn_problems(messages) if alternate else [])


def _turn_problems(messages: Sequence[Any]) -> list[str]:
    """List where user and assistant do not take turns, each kind of fault once."""
    found: dict[str, None] = {}
    last = None  # the role of the message before, system messages left out
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        if role in ("system", "developer"):
            if last is not None:
                found[f"{_article(role)} message stands after the beginning"] = None
            continue
        if last is None and role == "assistant":
            found["the first message is the assistant's, not the user's"] = None
        if last == role and role in ("user", "assistant"):
            found[f"two {role} messages stand in a row"] = None
        last = role
    return list(found)


def _content_problems(message: Mapping[str, Any], role: str) -> list[str]:
    content = message.get("content")
    if content is None:
        may_be_absent = role == "assistant" and bool(
            message.get("tool_calls") or message.get("refusal") or message.get("function_call")
        )
        return [] if may_be_absent else [f"{_article(role)} message has no content"]
    if isinstance(content, str):
        return []
    if not isinstance(content, Sequence):
        return [f"{_article(role)} message has {kind_of(content)} as content, not text or parts"]
    if not all(isinstance(part, Mapping) and isinstance(part.get("type"), str) for part in content):
        return [f"{_article(role)} message has a content part without a type"]
    foreign = {part["type"]: api for part in content if (api := _foreign_api(part))}
    return [
        f"{_article(role)} message has a block '{kind}' of {api}, which Chat Completions has not"
        for kind, api in foreign.items()
    ]


def _foreign_api(part: Mapping[str, Any]) -> str | None:
    """Return whose block a content part is, when it is another API's."""
    kind = part["type"]
    # Some gateways of Chat Completions send thoughts as a list of parts, and want them back.
    if kind == "thinking" and isinstance(part.get("thinking"), list):
        return None
    if kind in _FOREIGN_BLOCKS:
        return _FOREIGN_BLOCKS[kind]
    # These types are known here too, but with other fields.
    if kind in ("image", "document") and "source" in part:
        return _ANTHROPIC
    if kind == "file" and "file" not in part and {"data", "mediaType", "url"} & part.keys():
        return _AI_SDK
    return None


def _call_problems(message: Mapping[str, Any], role: str) -> list[str]:
    calls = message.get("tool_calls")
    if calls is None:
        return []
    if role != "assistant":
        return [f"{_article(role)} message has tool calls; only an assistant message may"]
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return [f"an assistant message has {kind_of(calls)} as tool_calls, not a list"]
    if not calls:
        return ["an assistant message has an empty list of tool calls"]
    found = []
    for call in calls:
        if not isinstance(call, Mapping):
            found.append(f"a tool call is {kind_of(call)}, not an object")
            continue
        read = _call(call)
        if read.id is None:
            found.append(f"a tool call to '{read.name}' has no id")
        if not read.name:
            found.append(f"tool call '{read.id}' names no function")
    return found


def _article(role: str) -> str:
    return f"an {role}" if role == "assistant" else f"a {role}"


def kind_of(value: object) -> str:
    """Name a value's type in JSON's words."""
    names = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        type(None): "null",
    }
    return names.get(type(value), "a number" if isinstance(value, int | float) else "a value")
