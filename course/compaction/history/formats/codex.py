"""Codex's sessions: JSON lines, of which only the ``response_item`` ones are the conversation.

::

    {"timestamp": ..., "type": "session_meta", "payload": {"id": ..., "cwd": ...}}
    {"timestamp": ..., "type": "response_item", "payload": {"type": "message", ...}}
    {"timestamp": ..., "type": "event_msg", "payload": {"type": "agent_message", ...}}
    {"timestamp": ..., "type": "compacted",
     "payload": {"message": "...", "replacement_history": [...]}}

The payloads of the items are those of the Responses API; the events repeat them for the screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compaction.history.formats import responses
from compaction.history.formats.building import Builder, content_from, items, mapping, text_parts
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import SUMMARY_PREFIX, Message

NAME = "Codex"

_INTERRUPTED = "aborted"
"""What Codex itself sends as the result of a call that was broken off."""


def matches(traits: Traits) -> bool:
    """Say whether records carry a payload of Codex's types."""
    own = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
    return "payload" in traits.fields and bool(traits.types & own)


def read(data: Any) -> list[Message]:
    """Return the messages of the session's last context."""
    kept: list[Mapping[str, Any]] = []
    for record in records_of(data):
        payload = mapping(record.get("payload"))
        if record.get("type") == "response_item":
            kept.append(payload)
        elif record.get("type") == "compacted":
            kept = _compacted(payload)
        elif payload.get("type") == "thread_rolled_back":
            kept = _without_last_turns(kept, payload.get("num_turns"))
    builder = Builder()
    for item in kept:
        responses.add_item(builder, item)
    builder.answer_open_calls(_INTERRUPTED)
    return builder.messages()


def _compacted(payload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the items that stand for everything before: the summary reads as an earlier one."""
    told = str(payload.get("message") or "")
    replacement = [dict(mapping(item)) for item in items(payload.get("replacement_history"))]
    # Codex puts its summary last, as the user's, after the user's own messages.
    for item in reversed(replacement):
        if told and told in _text(item):
            item["content"] = f"{SUMMARY_PREFIX}\n{_text(item)}"
            return list(replacement)
    summary = text_parts(told and f"{SUMMARY_PREFIX}\n{told}")
    said = {"type": "message", "role": "user", "content": summary}
    return [*replacement, said] if summary else list(replacement)


def _text(item: Mapping[str, Any]) -> str:
    content = content_from(responses.parts_of(item.get("content")))
    return content if isinstance(content, str) else ""


def _without_last_turns(kept: list[Mapping[str, Any]], turns: Any) -> list[Mapping[str, Any]]:
    """Return the items without the last turns, which the user took back."""
    starts = [
        number
        for number, item in enumerate(kept)
        if item.get("role") == "user" and not _text(item).lstrip().startswith("<")
    ]
    count = turns if isinstance(turns, int) and turns > 0 else 0
    return kept[: starts[-min(count, len(starts))]] if count and starts else kept
