"""Anthropic's Messages API: blocks in place of calls and results.

The body of a request, or its list of messages alone::

    {"system": "...", "tools": [{"name": ..., "input_schema": {...}}], "messages": [
      {"role": "user", "content": "..." or [{"type": "image", "source": {...}}, ...]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "..."},
        {"type": "text", "text": "..."},
        {"type": "tool_use", "id": ..., "name": ..., "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ..., "content": ...}]}]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compaction.history.formats.building import (
    Builder,
    Part,
    content_from,
    file_part,
    function_tool,
    image_part,
    items,
    mapping,
    media_part,
    text_part,
    text_parts,
)
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import Message

NAME = "Anthropic Messages"

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_OWN_BLOCKS = _CALLS | {
    "document",
    "redacted_thinking",
    "search_result",
    "thinking",
    "tool_result",
}


def matches(traits: Traits) -> bool:
    """Say whether blocks of this API, or a system prompt beside the messages, are there."""
    has_blocks = bool(traits.parts & _OWN_BLOCKS) or {"image", "source"} <= (
        traits.parts | traits.part_fields
    )
    has_system = {"system", "messages"} <= traits.outer and not traits.roles & {"system", "tool"}
    return has_blocks or has_system


def read(data: Any) -> list[Message]:
    """Turn blocks into messages, calls and results."""
    builder = Builder()
    system = data.get("system") if isinstance(data, Mapping) else None
    builder.say("system", parts_of(system))
    for record in records_of(data):
        add_message(builder, record)
    return builder.messages()


def tools(data: Any) -> list[dict[str, Any]]:
    """Return the tool schemas of a request's body."""
    found = map(mapping, items(mapping(data).get("tools")))
    return [
        function_tool(tool.get("name"), tool.get("description"), tool.get("input_schema"))
        for tool in found
        if "name" in tool
    ]


def add_message(builder: Builder, message: Mapping[str, Any], key: object = None) -> None:
    """Add one message; those of the assistant with one ``key`` are one."""
    role = str(message.get("role"))
    content = message.get("content")
    if role == "assistant":
        _add_answer(builder, content, key)
        return
    said = []
    for block in blocks_of(content):
        if is_result(block):
            add_result(builder, block)
        else:
            said += parts_of([block])
    builder.say(role, said)


def _add_answer(builder: Builder, content: Any, key: object) -> None:
    # Server tools answer in the assistant's own message; what follows is a message of its own.
    step = 0
    for block in blocks_of(content):
        kind = block.get("type")
        within = (key, step) if step else key
        if kind == "thinking":
            builder.think(str(block.get("thinking") or ""), within)
        elif kind in _CALLS:
            builder.call(block.get("id"), block.get("name"), block.get("input"), within)
        elif is_result(block):
            add_result(builder, block)
            step += 1
        else:
            builder.answer(parts_of([block]), within)


def is_result(block: Mapping[str, Any]) -> bool:
    """Say whether a block is the result of a tool, the caller's or the server's."""
    return "tool_use_id" in block


def add_result(builder: Builder, block: Mapping[str, Any]) -> None:
    """Add a block that answers a call."""
    content = content_from(parts_of(block.get("content")))
    builder.result(block.get("tool_use_id"), content, failed=block.get("is_error") is True)


def blocks_of(content: Any) -> Iterable[Mapping[str, Any]]:
    """Return content as blocks: a text is one, and a lone block is a list of one."""
    if isinstance(content, str):
        return [text_part(content)]
    if isinstance(content, Mapping):
        return [content]
    return [text_part(item) if isinstance(item, str) else mapping(item) for item in items(content)]


def parts_of(content: Any) -> list[Part]:
    """Return the blocks that Chat Completions has parts for."""
    return [part for block in blocks_of(content) for part in _parts(block)]


def _parts(block: Mapping[str, Any]) -> list[Part]:
    kind = block.get("type")
    source = mapping(block.get("source"))
    if kind == "image":
        if source.get("type") == "file":
            return [file_part(source.get("file_id"))]
        address = source.get("url") or source.get("data")
        return media_part(address, source.get("media_type") or "image/png")
    if kind == "image_url":  # of a gateway that takes both
        url = block.get("image_url")
        return [image_part(str(mapping(url).get("url") if isinstance(url, Mapping) else url))]
    if kind == "document":
        return _document(block, source)
    if kind in ("search_result", "web_search_result"):
        head = " ".join(str(block[name]) for name in ("title", "source", "url") if block.get(name))
        return [*text_parts(head), *parts_of(block.get("content"))]
    return text_parts(block.get("text"))


def _document(block: Mapping[str, Any], source: Mapping[str, Any]) -> list[Part]:
    title = block.get("title")
    if source.get("type") == "text":  # the model reads it as text
        return [*text_parts(title), *text_parts(source.get("data"))]
    if source.get("type") == "content":
        return [*text_parts(title), *parts_of(source.get("content"))]
    data = source.get("data") or source.get("url") or source.get("file_id")
    mime = source.get("media_type") or "application/pdf"
    if source.get("type") == "file":
        return [file_part(title or data)]
    return media_part(data, mime, title) or [file_part(title)]
