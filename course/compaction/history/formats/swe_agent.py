"""SWE-agent's trajectories: the ``history`` is what the model was shown.

::

    {"trajectory": [{"action": ..., "observation": ..., "response": ..., "thought": ...}],
     "history": [{"role": "system", "content": "...", "agent": "main"},
       {"role": "assistant", "content": "...", "tool_calls": [...], "thinking_blocks": []},
       {"role": "tool", "content": [{"type": "text", ...}], "tool_call_ids": ["call_1"]}],
     "info": {"exit_status": "submitted"}}

Older ones know no tool calls: actions are in the text, and observations are the user's. Those
of mini-swe-agent have ``messages`` and ``trajectory_format``.
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
    text_part,
    text_parts,
)
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import Message

NAME = "SWE-agent"


def matches(traits: Traits) -> bool:
    """Say whether there is a trajectory, or records name their agent and kind."""
    return (
        "trajectory" in traits.outer
        or "trajectory_format" in traits.outer
        or {"role", "agent", "message_type"} <= traits.fields
    )


def read(data: Any) -> list[Message]:
    """Return the messages that the model was shown."""
    builder = Builder()
    records = list(records_of(data))
    for record in records or _steps(data):
        role = record.get("role")
        parts = _parts(record.get("content"))
        if role == "assistant":
            key = object()
            for block in map(mapping, items(record.get("thinking_blocks"))):
                builder.think(str(block.get("thinking") or ""), key)
            builder.think(str(record.get("reasoning_content") or ""), key)
            builder.answer(parts, key)
            for call in map(mapping, items(record.get("tool_calls"))):
                function = mapping(call.get("function"))
                builder.call(call.get("id"), function.get("name"), function.get("arguments"), key)
        elif role == "tool":
            ids = record.get("tool_call_ids") or [record.get("tool_call_id")]
            for call_id in items(ids):
                builder.result(call_id, content_from(parts))
        elif role in ("system", "developer", "user"):  # "exit" is mini-swe-agent's own note
            builder.say(str(role), parts)
    return builder.messages()


def _steps(data: Any) -> list[Mapping[str, Any]]:
    """Return the steps of a trajectory without a history as messages."""
    found: list[Mapping[str, Any]] = []
    for step in map(mapping, items(mapping(data).get("trajectory"))):
        said = step.get("response") or step.get("thought")
        found.append({"role": "assistant", "content": said})
        found.append({"role": "user", "content": step.get("observation")})
    return found


def _parts(content: Any) -> list[Part]:
    if isinstance(content, str):
        return text_parts(content)
    found: list[Part] = []
    for part in items(content):
        if isinstance(part, str):
            found.append(text_part(part))
        elif mapping(part).get("type") == "image_url":
            found.append(image_part(str(mapping(part.get("image_url")).get("url"))))
        else:
            found += text_parts(mapping(part).get("text"))
    return found
