"""Replies: ask a model through the ``openai`` client, and adopt what it answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compaction.messages import Message, problems

Tools = Sequence[Mapping[str, Any]]
"""Tool schemas in Chat Completions form."""


class ReplyError(RuntimeError):
    """A model's reply that is none: nothing came, or it broke off."""


@dataclass(frozen=True)
class Reply:
    """A model's whole reply: an assistant message, and the usage that came with it."""

    message: Message
    usage: Any = None


CallModel = Callable[[list[Message], Tools | None], Reply | Mapping[str, Any] | str]
"""Sends messages and tool schemas; returns the reply, its message alone, or its text alone."""


def reply_with(
    client: Any, model: str, *, on_text: Callable[[str], object] | None = None, **options: Any
) -> CallModel:
    """Return a ``call_model`` for the engine that asks a model through the ``openai`` client.

    With ``on_text`` the reply is streamed, and each piece of text is passed on as it comes.
    ``options`` go into every request, such as ``temperature`` or ``timeout``. The client's
    errors pass through; ReplyError is raised when there is no reply, or when a stream ends
    before the reply does.

    >>> from types import SimpleNamespace as Object
    >>> message = Object(content="Hello.", tool_calls=None)
    >>> answer = Object(choices=[Object(message=message)], usage=Object(prompt_tokens=9))
    >>> completions = Object(create=lambda **request: answer)
    >>> ask = reply_with(Object(chat=Object(completions=completions)), "a-model")
    >>> ask([{"role": "user", "content": "hi"}], None).message
    {'role': 'assistant', 'content': 'Hello.'}
    """

    def call_model(messages: list[Message], tools: Tools | None) -> Reply:
        request: dict[str, Any] = {"model": model, "messages": messages, **options}
        if tools:
            request["tools"] = list(tools)
        if on_text is not None:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        answer = client.chat.completions.create(**request)
        if on_text is not None:
            return _read_stream(answer, on_text)
        if not answer.choices or answer.choices[0].message is None:
            raise ReplyError("the model gave no reply")
        message = answer.choices[0].message
        calls = [_wire_call(call) for call in message.tool_calls or []]
        return Reply(_assistant_message(message.content, calls), answer.usage)

    return call_model


def _read_stream(stream: Any, on_text: Callable[[str], object]) -> Reply:
    pieces: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    usage = finish_reason = None
    try:
        for chunk in stream:
            # The last chunk carries the usage and no choice.
            usage = getattr(chunk, "usage", None) or usage
            for choice in chunk.choices[:1]:
                finish_reason = choice.finish_reason or finish_reason
                if choice.delta.content:
                    pieces.append(choice.delta.content)
                    on_text(choice.delta.content)
                for part in choice.delta.tool_calls or []:
                    _add_to_call(calls, part)
    finally:
        # Ctrl-C too ends here: an open stream would hold its connection.
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    if finish_reason is None:
        raise ReplyError("the stream ended before the reply was complete")
    return Reply(_assistant_message("".join(pieces), list(calls.values())), usage)


def _add_to_call(calls: dict[int, dict[str, Any]], part: Any) -> None:
    """Add a piece of a tool call to the call that it belongs to."""
    index = len(calls) if part.index is None else part.index
    call = calls.setdefault(
        index, {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
    )
    call["id"] = call["id"] or part.id
    if part.function is not None:
        call["function"]["name"] += part.function.name or ""
        call["function"]["arguments"] += part.function.arguments or ""


def _wire_call(call: Any) -> dict[str, Any]:
    """Return a client's tool call as the plain dict that goes back over the wire."""
    custom = getattr(call, "custom", None)
    if custom is not None:
        inner = {"name": custom.name, "input": custom.input}
        return {"id": call.id, "type": "custom", "custom": inner}
    inner = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": inner}


def _assistant_message(content: Any, calls: list[dict[str, Any]]) -> Message:
    message: Message = {"role": "assistant", "content": content or ("" if not calls else None)}
    return {**message, "tool_calls": calls} if calls else message


def read_reply(value: object, fresh_id: str = "call") -> Reply:
    """Return what ``call_model`` gave as a Reply whose message an API takes back.

    A call without an id gets one that begins with ``fresh_id``, so that it can be answered.
    Raises ReplyError for anything that is no assistant message.

    >>> read_reply("Hello.")
    Reply(message={'role': 'assistant', 'content': 'Hello.'}, usage=None)
    """
    reply = value if isinstance(value, Reply) else Reply(value)  # type: ignore[arg-type]
    message = reply.message
    if isinstance(message, str):
        return replace(reply, message=_assistant_message(message, []))
    if not isinstance(message, Mapping) or message.get("role", "assistant") != "assistant":
        raise ReplyError(
            "call_model must return an assistant message, its text or a Reply, "
            f"not {type(message).__name__}"
        )
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise ReplyError("the tool calls of a reply must be a list of objects")
    named = [
        {**call, "id": call.get("id") or f"{fresh_id}_{position}"}
        for position, call in enumerate(calls)
    ]
    rest = {key: value for key, value in message.items() if key not in ("content", "tool_calls")}
    whole = {**rest, **_assistant_message(message.get("content"), named)}
    # Its calls cannot have results yet; all else must be as an API takes it back.
    found = [text for text in problems([whole]) if "no result right after it" not in text]
    if found:
        raise ReplyError(f"the reply is not a valid message: {found[0]}")
    return replace(reply, message=whole)
