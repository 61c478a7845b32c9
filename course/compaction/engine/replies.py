"""Replies: ask a model through the ``openai`` client, and adopt what it answered.

A reply is adopted whole: fields that the course knows nothing of stay on the message, because
gateways of thinking models want them back. What no API would take back is mended: broken arguments
become ``{}``, missing and repeated ids get new ones, and the reply says which calls were broken.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from compaction.engine.overflow import read_overflow
from compaction.engine.provenance import as_sent, marked
from compaction.engine.streams import Pieces, plain
from compaction.engine.thoughts import Visible, without_thoughts
from compaction.messages import Message, content_of, problems

Tools = Sequence[Mapping[str, Any]]
"""Tool schemas in Chat Completions form."""


class ReplyError(RuntimeError):
    """A model's reply that cannot be used.

    ``may_pass`` says whether asking again may help: the reply broke off, or was no reply at all.
    ``body`` is what the gateway sent instead, where it sent something.
    """

    def __init__(self, text: str, *, may_pass: bool = False, body: Any = None) -> None:
        super().__init__(text)
        self.may_pass = may_pass
        self.body = body


@dataclass(frozen=True)
class Reply:
    """A model's whole reply: an assistant message, and the usage that came with it.

    ``finish_reason`` is the gateway's word for the end ("length": cut off at the reply's limit).
    ``broken`` says of calls, by id, what was wrong with them: these must not be run.
    """

    message: Message
    usage: Any = None
    finish_reason: str | None = None
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What the reply says to a person: its text, or why the model refuses."""
        said = content_of({**self.message, "content": _without_thinking(self.message)})
        return said or str(self.message.get("refusal") or "")

    @property
    def is_empty(self) -> bool:
        """Whether the reply neither says nor asks for anything, whatever was thought."""
        if self.message.get("tool_calls") or self.message.get("function_call"):
            return False
        parts = _without_thinking(self.message)
        other = isinstance(parts, list) and any(part.get("type") != "text" for part in parts)
        return not (other or self.text.strip())


def _without_thinking(message: Mapping[str, Any]) -> Any:
    content = message.get("content")
    if not isinstance(content, list):
        return content
    return [
        part
        for part in content
        if isinstance(part, Mapping) and part.get("type") not in ("thinking", "reasoning")
    ]


CallModel = Callable[[list[Message], Tools | None], Reply | Mapping[str, Any] | str]
"""Sends messages and tool schemas; returns the reply, its message alone, or its text alone."""


def reply_with(
    client: Any, model: str, *, on_text: Callable[[str], object] | None = None, **options: Any
) -> CallModel:
    """Return a ``call_model`` for the engine that asks a model through the ``openai`` client.

    With ``on_text`` the reply is streamed, and each piece of the answer is passed on as it comes,
    thoughts left out. ``options`` go into every request, such as ``temperature`` or ``timeout``.
    Fields that another model made are not sent to this one. The client's errors pass through;
    ReplyError is raised when there is no reply, or when a stream ends before the reply does.

    >>> from types import SimpleNamespace as Object
    >>> message = Object(content="Hello.", tool_calls=None)
    >>> answer = Object(choices=[Object(message=message)], usage=Object(prompt_tokens=9))
    >>> completions = Object(create=lambda **request: answer)
    >>> ask = reply_with(Object(chat=Object(completions=completions)), "a-model")
    >>> ask([{"role": "user", "content": "hi"}], None).message
    {'role': 'assistant', 'content': 'Hello.'}
    """

    def call_model(messages: list[Message], tools: Tools | None) -> Reply:
        sent = [as_sent(message, model) for message in messages]
        request: dict[str, Any] = {"model": model, "messages": sent, **options}
        if tools:
            request["tools"] = list(tools)
        if on_text is not None:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        answer = client.chat.completions.create(**request)
        if on_text is None or not hasattr(answer, "__iter__") or hasattr(answer, "choices"):
            reply = _read_whole(answer, on_text)
        else:
            reply = _read_stream(answer, on_text)
        return replace(reply, message=marked(reply.message, model))

    return call_model


def _read_whole(answer: Any, on_text: Callable[[str], object] | None) -> Reply:
    choices = getattr(answer, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        raise _no_reply(answer)
    choice = choices[0]
    message = {"role": "assistant", "content": None, **plain(choice.message)}
    reply = _adopted(message, getattr(answer, "usage", None), _finish_reason(choice))
    if on_text is not None and reply.text:  # a gateway that does not stream
        on_text(reply.text)
    return reply


def _no_reply(answer: Any) -> ReplyError:
    """Say what came in the place of a reply: an error object, a web page, or nothing."""
    body = answer if isinstance(answer, str) else plain(answer)
    if isinstance(body, Mapping) and body.get("error"):
        error = body["error"]
        said = error.get("message", error) if isinstance(error, Mapping) else error
        too_long = read_overflow(body) is not None
        return ReplyError(f"the gateway reports: {said}", may_pass=not too_long, body=body)
    if isinstance(body, str) and body.strip():
        what = "a web page" if "<html" in body.lower() else "text that is not JSON"
        return ReplyError(f"the gateway sent {what} instead of a reply", may_pass=True, body=body)
    return ReplyError("the model gave no reply", may_pass=True)


def _read_stream(stream: Any, on_text: Callable[[str], object]) -> Reply:
    pieces, visible = Pieces(), Visible()
    usage = finish_reason = None

    def show(text: str) -> None:
        if text:
            on_text(text)

    try:
        for chunk in _unbroken(stream):
            # The last chunk carries the usage and no choice.
            usage = getattr(chunk, "usage", None) or usage
            for choice in (chunk.choices or ())[:1]:
                finish_reason = _finish_reason(choice) or finish_reason
                delta = getattr(choice, "delta", None) or getattr(choice, "message", None)
                for text in pieces.add(plain(delta) or {}):
                    show(visible.feed(text))
    finally:
        # Ctrl-C too ends here: an open stream would hold its connection.
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    if finish_reason is None:
        raise ReplyError("the stream ended before the reply was complete", may_pass=True)
    show(visible.finish())
    return _adopted(pieces.message, usage, finish_reason)


def _unbroken(stream: Any) -> Iterator[Any]:
    """Yield the chunks of a stream; a stream that breaks off raises ReplyError.

    Once a stream runs, the client lets the errors of the line below it pass as they are.
    """
    try:
        yield from stream
    except ValueError as error:  # half an event: the JSON in it does not end
        raise ReplyError("the stream broke off within an event", may_pass=True) from error
    except Exception as error:
        # The client is built on httpx2, earlier ones on httpx; only a loaded one can have raised.
        loaded = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]
        if not any(isinstance(error, httpx.TransportError) for httpx in loaded):
            raise
        timed_out = any(isinstance(error, httpx.TimeoutException) for httpx in loaded)
        what = "the gateway fell silent" if timed_out else "the connection broke off"
        raise ReplyError(f"{what} in the middle of the reply", may_pass=True) from error


def _finish_reason(choice: Any) -> str | None:
    reason = getattr(choice, "finish_reason", None)
    return reason if isinstance(reason, str) else None


def _adopted(message: dict[str, Any], usage: Any, finish_reason: str | None) -> Reply:
    """Return a reply without the fields that say nothing."""
    kept = {
        key: value
        for key, value in message.items()
        if key in ("role", "content") or value not in (None, [], {})
    }
    calls = [
        {key: value for key, value in call.items() if key != "index"}
        for call in kept.pop("tool_calls", [])
    ]
    content = _without_tags(kept.pop("content", None))
    return Reply({**kept, **_assistant_message(content, calls)}, usage, finish_reason)


# --- mending --------------------------------------------------------------------------------

CUT_OFF = "its arguments were cut off"
EMPTY = "it came without arguments"


def read_reply(value: object, fresh_id: str = "call") -> Reply:
    """Return what ``call_model`` gave as a Reply whose message an API takes back.

    Thoughts between ``<think>`` tags are no part of the answer and are cut out. A call without an
    id of its own gets one that begins with ``fresh_id``, so that it can be answered; arguments
    that are not a JSON object become ``{}``, and ``broken`` says so. Raises ReplyError for
    anything that is not an assistant message.

    >>> read_reply("Hello.").message
    {'role': 'assistant', 'content': 'Hello.'}
    """
    reply = value if isinstance(value, Reply) else Reply(value)  # type: ignore[arg-type]
    message = reply.message
    if isinstance(message, str):
        return _mended(replace(reply, message=_assistant_message(message, [])), fresh_id)
    if not isinstance(message, Mapping) or message.get("role", "assistant") != "assistant":
        raise ReplyError(
            "call_model must return an assistant message, its text or a Reply, "
            f"not {type(message).__name__}"
        )
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise ReplyError("the tool calls of a reply must be a list of objects")
    mended = _mended(reply, fresh_id)
    # Its calls cannot have results yet; all else must be as an API takes it back.
    found = [text for text in problems([mended.message]) if "no result right after" not in text]
    if found:
        raise ReplyError(f"the reply is not a valid message: {found[0]}")
    return mended


def _assistant_message(content: Any, calls: list[dict[str, Any]]) -> Message:
    message: Message = {"role": "assistant", "content": content or ("" if not calls else None)}
    return {**message, "tool_calls": calls} if calls else message


def _mended(reply: Reply, fresh_id: str) -> Reply:
    message = reply.message
    calls, broken = [], dict(reply.broken)
    given = message.get("tool_calls") or []
    taken: set[str] = set()
    for position, call in enumerate(given):
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in taken:
            call_id = _fresh(f"{fresh_id}_{position}", taken | {str(c.get("id")) for c in given})
        taken.add(call_id)
        mended, fault = _mended_call({"type": "function", **call, "id": call_id})
        calls.append(mended)
        if fault == EMPTY and reply.finish_reason == "length" and position == len(given) - 1:
            fault = CUT_OFF
        if fault:
            broken.setdefault(call_id, fault)
    rest = {key: value for key, value in message.items() if key not in ("content", "tool_calls")}
    content = _without_tags(message.get("content"))
    whole = {**rest, **_assistant_message(content, calls)}
    return replace(reply, message=whole, broken=broken)


def _fresh(wanted: str, taken: set[str]) -> str:
    found, number = wanted, 1
    while found in taken:
        number += 1
        found = f"{wanted}_{number}"
    return found


def _mended_call(call: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a call as an API takes it back, and what was wrong with it."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return call, ""  # a custom call: its input is free text
    name = function.get("name")
    # An API takes back no other characters; a name that no tool has is answered with the names.
    sound_name = re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:64] if isinstance(name, str) else ""
    arguments, fault = sound_arguments(function.get("arguments"))
    mended = {**function, "name": sound_name or "unnamed", "arguments": arguments}
    return {**call, "function": mended}, fault


def sound_arguments(arguments: Any) -> tuple[str, str]:
    """Return a call's arguments as the text of a JSON object, and what was wrong with them.

    >>> sound_arguments({"a": 1}), sound_arguments(""), sound_arguments('{"a": ')
    (('{"a": 1}', ''), ('{}', 'it came without arguments'), ('{}', 'its arguments were cut off'))
    """
    if isinstance(arguments, Mapping):
        return json.dumps(arguments, ensure_ascii=False), ""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return "{}", EMPTY
    if not isinstance(arguments, str):
        return "{}", "its arguments were not a JSON object"
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return "{}", CUT_OFF
    if isinstance(value, dict):
        return arguments, ""
    return ("{}", EMPTY) if value is None else ("{}", "its arguments were not a JSON object")


def _without_tags(content: Any) -> Any:
    if isinstance(content, str):
        return without_thoughts(content)
    if not isinstance(content, list):
        return content
    return [
        {**part, "text": without_thoughts(part["text"])}
        if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        else part
        for part in content
    ]
