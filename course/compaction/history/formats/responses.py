"""OpenAI's Responses API: items in place of messages.

The body of a request, a stored response, or the list of items alone::

    {"instructions": "...", "input": [
      {"role": "user", "content": "..." or [{"type": "input_text", "text": "..."}]},
      {"type": "reasoning", "summary": [{"type": "summary_text", "text": "..."}]},
      {"type": "function_call", "call_id": "call_1", "name": ..., "arguments": "{...}"},
      {"type": "function_call_output", "call_id": "call_1", "output": "..."},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", ...}]}]}

A call is matched by ``call_id``, not by ``id``; reasoning belongs to what follows it. Tools that
the API runs itself (searches, a code interpreter, MCP) carry their result in the call's item.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    value_text,
)
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import Message

NAME = "Responses"

_CALLS_BY_CLIENT = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "computer_call": "action",
    "apply_patch_call": "operation",
    "tool_search_call": "arguments",
}
"""Items that the client answers, and the field that holds what is asked for."""

_CALLS_BY_SERVER = {
    "mcp_call": "arguments",
    "web_search_call": "action",
    "file_search_call": "queries",
    "code_interpreter_call": "code",
    "image_generation_call": "revised_prompt",
}
"""Items that carry their own outcome."""

_OWN_TYPES = {"reasoning", *_CALLS_BY_CLIENT, *_CALLS_BY_SERVER} | {
    f"{name}_output" for name in _CALLS_BY_CLIENT
}
_OWN_PARTS = {"input_text", "output_text", "input_image", "input_file"}


def matches(traits: Traits) -> bool:
    """Say whether there are items, or parts that only items have."""
    is_body = "input" in traits.outer and bool(
        traits.outer & {"instructions", "model", "previous_response_id", "tools", "store"}
    )
    is_reply = {"output", "object"} <= traits.outer
    has_own = bool(traits.types & _OWN_TYPES or traits.parts & _OWN_PARTS)
    return (has_own or is_body or is_reply) and "messages" not in traits.outer


def read(data: Any) -> list[Message]:
    """Turn items into messages, calls and results."""
    builder = Builder()
    outer = mapping(data)
    instructions = outer.get("instructions")
    if isinstance(instructions, list):
        for item in map(mapping, instructions):
            add_item(builder, item)
    builder.say("system", text_parts(instructions))
    builder.say("user", text_parts(outer.get("input")))
    for record in records_of(data):
        add_item(builder, record)
    for item in map(mapping, items(outer.get("output"))):
        add_item(builder, item)
    return builder.messages()


def tools(data: Any) -> list[dict[str, Any]]:
    """Return the function schemas of a request's body."""
    found = map(mapping, items(mapping(data).get("tools")))
    return [
        function_tool(tool.get("name"), tool.get("description"), tool.get("parameters"))
        for tool in found
        if tool.get("type") == "function" and "name" in tool
    ]


def add_item(builder: Builder, item: Mapping[str, Any]) -> None:
    """Add one item; what is neither said, thought, called nor returned adds nothing."""
    kind = str(item.get("type") or "message")
    if kind == "message":
        _add_message(builder, item)
    elif kind == "reasoning":
        builder.think(_reasoning(item))
    elif kind in _CALLS_BY_CLIENT:
        name = item.get("name") or kind.removesuffix("_call")
        builder.call(item.get("call_id") or item.get("id"), name, item.get(_CALLS_BY_CLIENT[kind]))
    elif kind.endswith("_output") and kind.removesuffix("_output") in _CALLS_BY_CLIENT:
        failed = (
            item.get("status") == "failed" or mapping(item.get("output")).get("success") is False
        )
        builder.result(item.get("call_id") or item.get("id"), _output(item.get("output")), failed)
    elif kind in _CALLS_BY_SERVER:
        _add_server_call(builder, item, kind)


def _add_message(builder: Builder, item: Mapping[str, Any]) -> None:
    role = str(item.get("role") or "user")
    said = parts_of(item.get("content"))
    if role == "assistant":
        builder.answer(said)
    else:
        builder.say(role, said)


def _add_server_call(builder: Builder, item: Mapping[str, Any], kind: str) -> None:
    asked = item.get(_CALLS_BY_SERVER[kind])
    name = item.get("name") or kind.removesuffix("_call")
    arguments = {"queries": asked} if isinstance(asked, list) else asked
    builder.call(item.get("id"), name, arguments)
    error = item.get("error")
    held = next(
        (item[field] for field in ("output", "results", "outputs") if item.get(field)),
        item.get("status"),
    )
    builder.result(item.get("id"), value_text(error or held), failed=bool(error))


def _reasoning(item: Mapping[str, Any]) -> str:
    """Return what is readable: the reasoning itself, else its summary; never what is encrypted."""
    for field in ("content", "summary"):
        texts = [mapping(part).get("text") for part in items(item.get(field))]
        if said := [text for text in texts if isinstance(text, str) and text]:
            return "\n".join(said)
    return ""


def _output(output: Any) -> str | list[Part]:
    if isinstance(output, Mapping):
        if output.get("type") == "computer_screenshot" or "image_url" in output:
            return content_from(parts_of([{**output, "type": "input_image"}]))
        if "content" in output:  # Codex: text with a note on success
            return _output(output["content"])
        return value_text(output)
    if isinstance(output, list):
        if any("type" in mapping(part) for part in output):
            return content_from(parts_of(output))
        return json.dumps(output, ensure_ascii=False)
    return value_text(output)


def parts_of(content: Any) -> list[Part]:
    """Return an item's content as parts of Chat Completions."""
    if isinstance(content, str):
        return [text_part(content)]
    return [part for block in map(mapping, items(content)) for part in _parts(block)]


def _parts(block: Mapping[str, Any]) -> list[Part]:
    kind = block.get("type")
    if kind in ("input_image", "image_url"):
        url = block.get("image_url")
        url = url.get("url") if isinstance(url, Mapping) else url
        return [image_part(url)] if isinstance(url, str) else [file_part(block.get("file_id"))]
    if kind == "input_file":
        data = block.get("file_data") or block.get("file_url")
        named = block.get("filename") or block.get("file_id")
        return media_part(data, "application/pdf", named) or [file_part(named)]
    if kind == "input_audio":
        return [dict(block)]
    return text_parts(block.get("text") or block.get("refusal"))
