"""Replies as they go over the wire: one body, or server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compaction.gateway.usage import completion_usage, scripted_usage
from compaction.gateway.validate import Refusal
from compaction.messages import Message

_PIECE_CHARACTERS = 16
"""Characters of a text or of a call's arguments that one event of a stream carries."""

JSON = {"Content-Type": "application/json"}
EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


@dataclass(frozen=True)
class Answer:
    """What goes back over the wire: one body, or server-sent events.

    ``whole_after`` is the number of events that hold all of the reply; usage and the end mark
    come after them, and some clients do not stay for these.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    events: tuple[bytes, ...] = ()
    whole_after: int = 1
    delay_s: float = 0.0
    cut: bool = False


def error_answer(refusal: Refusal) -> Answer:
    return Answer(refusal.status, JSON | refusal.headers, json.dumps(refusal.body).encode())


def html_answer(status: int, text: str) -> Answer:
    """Return a web page, as a proxy in front of a gateway gives it."""
    page = f"<!doctype html><html><head><title>{text}</title></head><body>{text}</body></html>"
    return Answer(status, {"Content-Type": "text/html; charset=utf-8"}, page.encode())


def _finish_reason(message: Message) -> str:
    named = message.get("finish_reason")
    return str(named) if named else "tool_calls" if message.get("tool_calls") else "stop"


def _on_the_wire(message: Message) -> Message:
    """Return a message without what a script says about the reply around it."""
    wire = {key: value for key, value in message.items() if key != "finish_reason"}
    if "tool_calls" in wire:
        wire["tool_calls"] = [
            {key: value for key, value in call.items() if key != "index"}
            for call in wire["tool_calls"]
        ]
    return wire


def carries_usage(body: dict[str, Any]) -> bool:
    """Say whether the reply to a request carries usage: always, or in a stream if asked for."""
    if not body.get("stream"):
        return True
    return bool((body.get("stream_options") or {}).get("include_usage"))


def usage_field(body: dict[str, Any], message: Message, faults: Sequence[str]) -> dict[str, Any]:
    """Return the reply's ``usage`` field, or nothing where it carries none."""
    if "usage-missing" in faults or not carries_usage(body):
        return {}
    if "usage-null" in faults:
        return {"usage": None}
    prompt_tokens = scripted_usage(body["messages"], body.get("tools"))
    completion_tokens = completion_usage(message)
    return {
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
    }


def whole_body(shared: dict[str, Any], message: Message, usage: dict[str, Any]) -> bytes:
    choice = {
        "index": 0,
        "message": {"refusal": None, **_on_the_wire(message)},
        "logprobs": None,
        "finish_reason": _finish_reason(message),
    }
    body = {**shared, "object": "chat.completion", "choices": [choice], **usage}
    return json.dumps(body).encode()


def stream_events(
    shared: dict[str, Any], message: Message, usage: dict[str, Any], asked: bool
) -> Iterator[bytes]:
    """Yield the events of a streamed reply; ``asked`` says whether the client wants usage."""
    shared = {**shared, "object": "chat.completion.chunk"}
    if asked:
        # As in the real protocol: null in every chunk, and the figures in one more, the last.
        shared["usage"] = None

    def event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return b"data: " + json.dumps({**shared, "choices": [choice]}).encode() + b"\n\n"

    content, calls = message["content"], message.get("tool_calls") or []
    yield event({"role": "assistant", "content": None if content is None else ""})
    for key, value in message.items():
        if key not in ("role", "content", "tool_calls", "finish_reason"):
            for piece in _pieces(value) if isinstance(value, str) else [value]:
                yield event({key: piece})
    for piece in content if isinstance(content, list) else _pieces(content or ""):
        yield event({"content": [piece] if isinstance(content, list) else piece})
    for position, call in enumerate(calls):
        # A script may name the index: some gateways give all calls the same.
        index = call.get("index", position)
        head = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        yield event({"tool_calls": [head]})
        for piece in _pieces(call["function"]["arguments"]):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, _finish_reason(message))
    if usage:
        yield b"data: " + json.dumps({**shared, "choices": [], **usage}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE_CHARACTERS):
        yield text[start : start + _PIECE_CHARACTERS]
