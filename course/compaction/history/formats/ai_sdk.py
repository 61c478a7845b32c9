"""Vercel's AI SDK: messages of the user interface, and messages for the model.

::

    {"id": "m1", "role": "assistant", "parts": [{"type": "step-start"},
      {"type": "reasoning", "text": "..."}, {"type": "text", "text": "..."},
      {"type": "tool-weather", "toolCallId": "c1", "state": "output-available",
       "input": {}, "output": {}}]}

    {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": ..., "toolName": ...,
      "input": {}}]}
    {"role": "tool", "content": [{"type": "tool-result", "toolCallId": ...,
      "output": {"type": "text", "value": "..."}}]}

One message of the interface may hold several steps, and one tool message several results. Names
of earlier versions (``args``, ``result``, ``toolInvocations``) are read too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compaction.history.formats.building import (
    Builder,
    Part,
    content_from,
    image_part,
    items,
    mapping,
    media_part,
    text_parts,
    value_text,
)
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import Message

NAME = "Vercel AI SDK"

Record = Mapping[str, Any]

_OWN_PARTS = {"step-start", "tool-call", "tool-result", "dynamic-tool", "tool-invocation"}
_DENIED = "Tool execution denied."


def matches(traits: Traits) -> bool:
    """Say whether parts have this kit's types or fields."""
    has_own = bool(traits.parts & _OWN_PARTS) or bool(
        traits.part_fields & {"toolCallId", "mediaType", "mimeType", "toolInvocation"}
    )
    is_interface = bool(traits.fields & {"parts", "toolInvocations", "experimental_attachments"})
    return has_own or is_interface or "reasoning" in traits.parts


def read(data: Any) -> list[Message]:
    """Turn each step of a message into a message, followed by its results."""
    builder = Builder()
    builder.say("system", text_parts(mapping(data).get("system")))
    for number, record in enumerate(records_of(data)):
        role = str(record.get("role"))
        content = record.get("content")
        parts = record.get("parts") or content
        if role == "assistant":
            _add_answer(builder, parts, number)
            for invocation in map(mapping, items(record.get("toolInvocations"))):
                if "parts" not in record:
                    _add_tool(builder, invocation, (number, -1))
        elif role == "tool":
            for part in map(mapping, items(parts)):
                _add_result(builder, part)
        else:
            builder.say("system" if role == "data" else role, [*_said(parts), *_attached(record)])
    return builder.messages()


def _add_answer(builder: Builder, parts: Any, number: int) -> None:
    if isinstance(parts, str):
        builder.answer(text_parts(parts), (number, -1))
        return
    step = 0
    for part in map(mapping, items(parts)):
        kind = str(part.get("type"))
        step += kind == "step-start"
        key = (number, step)
        if kind == "reasoning":
            builder.think(str(part.get("text") or part.get("reasoning") or ""), key)
        elif kind == "tool-call":
            _add_call(builder, part, key)
        elif kind == "tool-result":
            _add_result(builder, part)
            step += 1
        elif kind == "tool-invocation":
            _add_tool(builder, mapping(part.get("toolInvocation")), key)
        elif "toolCallId" in part:
            _add_tool(builder, part, key)
        else:
            builder.answer(_said([part]), key)


def _add_call(builder: Builder, part: Record, key: object) -> None:
    name = part.get("toolName") or str(part.get("type")).removeprefix("tool-")
    given = part.get("input", part.get("rawInput", part.get("args")))
    builder.call(part.get("toolCallId"), name, given, key)


def _add_tool(builder: Builder, part: Record, key: object) -> None:
    """Add a part of the interface: a call, and its result when there is one."""
    state = part.get("state")
    if state in ("input-streaming", "partial-call"):
        return  # the model had not finished asking
    _add_call(builder, part, key)
    call_id = part.get("toolCallId")
    if state == "output-error":
        builder.result(call_id, str(part.get("errorText") or ""), failed=True)
    elif state == "output-denied":
        builder.result(call_id, _denied(mapping(part.get("approval"))), failed=True)
    elif state in ("output-available", "result"):
        builder.result(call_id, value_text(part.get("output", part.get("result"))))


def _denied(why: Record) -> str:
    return str(why.get("reason") or _DENIED)


def _add_result(builder: Builder, part: Record) -> None:
    if "toolCallId" not in part:
        return
    output = part.get("output", part.get("result"))
    failed = part.get("isError") is True
    content: str | list[Part] = value_text(output)
    if isinstance(output, Mapping) and isinstance(output.get("type"), str):
        kind = output["type"]
        failed = failed or kind.startswith("error")
        if kind == "content":
            content = content_from(_said(output.get("value")))
        elif kind == "execution-denied":
            content, failed = _denied(output), True
        elif "value" in output:
            content = value_text(output["value"])
    builder.result(part.get("toolCallId"), content, failed)


def _said(parts: Any) -> list[Part]:
    if isinstance(parts, str):
        return text_parts(parts)
    found: list[Part] = []
    for part in map(mapping, items(parts)):
        kind = str(part.get("type"))
        mime = part.get("mediaType") or part.get("mimeType")
        data = part.get("url") or part.get("data") or part.get("image")
        if kind == "text":
            found += text_parts(part.get("text"))
        elif kind == "image_url":
            found.append(image_part(str(mapping(part.get("image_url")).get("url"))))
        elif kind.startswith(("image", "file", "media")):
            mime = mime or ("image/png" if kind.startswith("image") else None)
            found += media_part(data, mime, part.get("filename"))
    return found


def _attached(record: Record) -> list[Part]:
    found: list[Part] = []
    for file in map(mapping, items(record.get("experimental_attachments"))):
        found += media_part(file.get("url"), file.get("contentType"), file.get("name"))
    return found
