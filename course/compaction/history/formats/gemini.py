"""Gemini's contents: parts without a type, and ``model`` for the assistant.

The body of a request, or its list of contents alone::

    {"systemInstruction": {"parts": [{"text": "..."}]}, "contents": [
      {"role": "user", "parts": [{"text": "..."}, {"inlineData": {"mimeType": ..., "data": ...}}]},
      {"role": "model", "parts": [{"text": "...", "thought": true},
        {"functionCall": {"name": ..., "args": {}}}]},
      {"role": "user", "parts": [{"functionResponse": {"name": ..., "response": {}}}]}]}

Names are also written with underscores. Calls often have no id: the reader makes one, and gives
it to the first open response of that name. Gemini CLI's sessions (``type`` ``user`` and
``gemini``, calls with their results) are read too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compaction.history.formats.building import (
    Builder,
    Part,
    content_from,
    function_tool,
    items,
    mapping,
    media_part,
    text_parts,
    value_text,
)
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import Message

NAME = "Gemini"

Record = Mapping[str, Any]


def matches(traits: Traits) -> bool:
    """Say whether there are contents, or parts without a type."""
    has_parts = "parts" in traits.fields and not traits.parts
    return "contents" in traits.outer or has_parts or "gemini" in traits.types


def read(data: Any) -> list[Message]:
    """Turn contents into messages, calls and results."""
    builder = Builder()
    outer = mapping(data)
    system = _field(outer, "systemInstruction") or _field(
        mapping(outer.get("config")), "systemInstruction"
    )
    builder.say("system", _said(_parts_of(system)))
    builder.say("user", text_parts(outer.get("contents")))
    for record in records_of(data):
        if "type" in record:
            _add_of_cli(builder, record)
        else:
            _add(builder, record)
    return builder.messages()


def tools(data: Any) -> list[dict[str, Any]]:
    """Return the function declarations of a request's body."""
    return [
        function_tool(
            one.get("name"),
            one.get("description"),
            one.get("parameters") or _field(one, "parametersJsonSchema"),
        )
        for tool in map(mapping, items(mapping(data).get("tools")))
        for one in map(mapping, items(_field(tool, "functionDeclarations")))
        if "name" in one
    ]


def _add(builder: Builder, content: Record) -> None:
    parts = _parts_of(content)
    if content.get("role") in ("model", "assistant"):
        for part in parts:
            _add_answer(builder, part)
        return
    said = []
    for part in parts:
        if response := mapping(_field(part, "functionResponse")):
            _add_response(builder, response)
        else:
            said.append(part)
    role = content.get("role")
    builder.say("system" if role == "system" else "user", _said(said))


def _add_answer(builder: Builder, part: Record) -> None:
    call = mapping(_field(part, "functionCall"))
    if call:
        builder.call(call.get("id"), call.get("name"), call.get("args") or {})
    elif part.get("thought") is True:
        builder.think(str(part.get("text") or ""))
    elif response := mapping(_field(part, "functionResponse")):
        _add_response(builder, response)
    else:
        builder.answer(_said([part]))


def _add_response(builder: Builder, response: Record) -> None:
    name = response.get("name")
    call_id = response.get("id")
    if not builder.has_call(call_id):
        call_id = builder.oldest_open(name) if isinstance(name, str) else None
    held = response.get("response")
    media = _said(map(mapping, items(response.get("parts"))))
    content = content_from([*text_parts(value_text(held)), *media])
    builder.result(call_id, content, failed=set(mapping(held)) == {"error"})


def _parts_of(content: Any) -> list[Record]:
    if isinstance(content, str):
        return [{"text": content}]
    held = content if isinstance(content, list) else mapping(content).get("parts")
    if isinstance(held, Mapping):
        held = [held]
    return [{"text": part} if isinstance(part, str) else mapping(part) for part in items(held)]


def _said(parts: Iterable[Record]) -> list[Part]:
    found: list[Part] = []
    for part in parts:
        inline = mapping(_field(part, "inlineData"))
        stored = mapping(_field(part, "fileData"))
        code = mapping(_field(part, "executableCode"))
        ran = mapping(_field(part, "codeExecutionResult"))
        if media := inline or stored:
            data = media.get("data") or _field(media, "fileUri")
            name = _field(media, "displayName")
            found += media_part(data, _field(media, "mimeType"), name)
        elif code:
            found += text_parts(
                f"```{str(code.get('language') or '').lower()}\n{code.get('code')}\n```"
            )
        elif ran:
            found += text_parts(ran.get("output") or ran.get("outcome"))
        else:
            found += text_parts(part.get("text"))
    return found


def _field(record: Record, name: str) -> Any:
    """Return a field under its name, or the name with underscores.

    >>> _field({"inline_data": 1}, "inlineData")
    1
    """
    other = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return record.get(name, record.get(other))


# --- Gemini CLI's own record --------------------------------------------------------------


def _add_of_cli(builder: Builder, record: Record) -> None:
    parts = _parts_of(record.get("content"))
    if record.get("type") == "user":
        builder.say("user", _said(parts))
    elif record.get("type") == "gemini":
        key = object()
        for thought in map(mapping, items(record.get("thoughts"))):
            told = (thought.get("subject"), thought.get("description"))
            builder.think(": ".join(str(text) for text in told if text), key)
        builder.answer(_said(parts), key)
        calls = [mapping(call) for call in items(record.get("toolCalls"))]
        for call in calls:
            builder.call(call.get("id"), call.get("name"), call.get("args") or {}, key)
        for call in calls:
            for part in map(mapping, items(call.get("result"))):
                response = mapping(_field(part, "functionResponse"))
                _add_response(builder, {**response, "id": call.get("id")})
