"""LangChain's messages: ``human`` and ``ai``, as dictionaries or as serialised constructors.

::

    {"type": "human", "data": {"content": "..."}}                    (messages_to_dict)
    {"lc": 1, "type": "constructor", "id": [..., "AIMessage"],       (dumpd)
     "kwargs": {"content": "...", "tool_calls": [{"name": ..., "args": {}, "id": ...}]}}
    {"type": "tool", "content": "...", "tool_call_id": "..."}        (a graph's state)

alone, as a list, or under ``messages``. Content may have blocks of the provider's form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compaction.history.formats import anthropic
from compaction.history.formats.building import (
    Builder,
    Part,
    content_from,
    items,
    mapping,
    media_part,
    text_parts,
)
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import Message

NAME = "LangChain"

Record = Mapping[str, Any]

_TYPES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
}


def matches(traits: Traits) -> bool:
    """Say whether messages have LangChain's types in the place of a role."""
    typed = bool(traits.types & {"human", "ai", "AIMessageChunk", "HumanMessageChunk"})
    return "lc" in traits.fields or (typed and bool(traits.fields & {"data", "content"}))


def read(data: Any) -> list[Message]:
    """Turn messages of any of the three kinds into those of Chat Completions."""
    builder = Builder()
    for record in records_of(data):
        name, fields = _unwrapped(record)
        role = _TYPES.get(name, name)
        if role == "chat":
            role = _TYPES.get(str(fields.get("role")), str(fields.get("role")))
        if role == "assistant":
            _add_answer(builder, fields)
        elif role == "tool":
            _add_result(builder, fields)
        elif role in ("user", "system", "developer"):
            builder.say(role, _parts(fields.get("content")))
    return builder.messages()


def _unwrapped(record: Record) -> tuple[str, Record]:
    """Return a message's kind in lower case, and its fields."""
    if "kwargs" in record:  # the last part of the id is the name of the class
        path = items(record.get("id"))
        name = str(path[-1]) if path else str(mapping(record["kwargs"]).get("type"))
        fields = mapping(record["kwargs"])
    else:
        name = str(record.get("type"))
        fields = mapping(record["data"]) if isinstance(record.get("data"), Mapping) else record
    return name.removesuffix("Chunk").removesuffix("Message").lower(), fields


def _add_answer(builder: Builder, fields: Record) -> None:
    key = object()
    extra = mapping(fields.get("additional_kwargs"))
    content = fields.get("content")
    builder.think(str(extra.get("reasoning_content") or ""), key)
    for block in map(mapping, items(content)):
        thought = block.get("thinking") or block.get("reasoning")
        builder.think(thought if isinstance(thought, str) else _summary(block), key)
    builder.answer(_parts(content), key)
    calls = [mapping(call) for call in items(fields.get("tool_calls"))]
    calls += [mapping(call) for call in items(fields.get("invalid_tool_calls"))]
    for call in calls:
        builder.call(call.get("id"), call.get("name"), call.get("args"), key)
    if calls:
        return
    raw = [mapping(call) for call in items(extra.get("tool_calls"))]
    if isinstance(extra.get("function_call"), Mapping):
        raw.append({"function": extra["function_call"]})
    for call in raw:
        function = mapping(call.get("function"))
        builder.call(call.get("id"), function.get("name"), function.get("arguments"), key)


def _add_result(builder: Builder, fields: Record) -> None:
    content = content_from(_parts(fields.get("content")))
    name = fields.get("name")
    call_id = fields.get("tool_call_id")
    if not call_id and isinstance(name, str):
        call_id = builder.oldest_open(name)
    builder.result(call_id, content, failed=fields.get("status") == "error")


def _summary(block: Record) -> str:
    """Return a summary of reasoning, as the Responses API gives it."""
    if block.get("type") != "reasoning":
        return ""
    texts = [mapping(part).get("text") for part in items(block.get("summary"))]
    return "\n".join(text for text in texts if isinstance(text, str))


def _parts(content: Any) -> list[Part]:
    if isinstance(content, str):
        return text_parts(content)
    found: list[Part] = []
    for block in items(content):
        if isinstance(block, str):
            found += text_parts(block)
            continue
        fields = mapping(block)
        kind = str(fields.get("type"))
        mime = fields.get("mime_type")
        data = fields.get("data") or fields.get("base64") or fields.get("url")
        if kind in ("image", "audio", "file", "video") and "source" not in fields and data:
            named = fields.get("filename") or mapping(fields.get("metadata")).get("filename")
            guess = {"image": "image/png", "audio": "audio/wav"}.get(kind)
            found += media_part(data, mime or guess, named)
        elif kind in ("input_audio", "file") and "source" not in fields:
            found.append(dict(fields))
        elif kind not in ("tool_use", "tool_call", "function_call", "reasoning", "thinking"):
            found += anthropic.parts_of([fields])
    return found
