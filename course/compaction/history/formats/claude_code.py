"""Claude Code's sessions: JSON lines that form a tree, one content block a line.

::

    {"type": "user", "uuid": "u1", "parentUuid": null, "isSidechain": false,
     "message": {"role": "user", "content": "..."}}
    {"type": "assistant", "uuid": "u2", "parentUuid": "u1",
     "message": {"id": "msg_1", "role": "assistant", "content": [{"type": "tool_use", ...}]}}

The messages are Anthropic's. The conversation is the path that ends in the last line; lines of
one ``message.id`` are one message. Summaries of titles, snapshots, progress and side chains (the
conversations of subagents) are not part of it. ``claude -p --output-format stream-json`` writes
the same lines without a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compaction.history.formats import anthropic
from compaction.history.formats.building import Builder, content_from, items, mapping, text_parts
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import Message

NAME = "Claude Code"

Record = Mapping[str, Any]


def matches(traits: Traits) -> bool:
    """Say whether records carry whole messages under ``message``, and say whose they are."""
    return "message" in traits.fields and bool(traits.types & {"user", "assistant"})


def read(data: Any) -> list[Message]:
    """Return the messages of the session's last context."""
    builder = Builder()
    for record in _last_context(_path(_unique(records_of(data)))):
        message = mapping(record.get("message"))
        if record.get("isCompactSummary"):
            builder.summary(_text(anthropic.parts_of(message.get("content"))))
        elif record.get("type") == "attachment":
            builder.say("user", _queued(mapping(record.get("attachment"))))
        elif _is_shown(record):
            key = message.get("id") if message.get("role") == "assistant" else None
            anthropic.add_message(builder, message, key)
    return builder.messages()


def _unique(records: Iterable[Record]) -> list[Record]:
    """Leave out the lines that a resumed session repeats."""
    seen: dict[object, Record] = {}
    for number, record in enumerate(records):
        seen.setdefault(record.get("uuid") or number, record)
    found = list(seen.values())
    # A file of a subagent consists of nothing but its side chain.
    main = [record for record in found if not _is_side(record)]
    return main if any(mapping(record.get("message")) for record in main) else found


def _is_side(record: Record) -> bool:
    return record.get("isSidechain") is True or isinstance(record.get("parent_tool_use_id"), str)


def _path(records: list[Record]) -> list[Record]:
    """Return the lines of the path that ends in the last one, in the file's order."""
    by_id = {record["uuid"]: record for record in records if isinstance(record.get("uuid"), str)}
    if not any("parentUuid" in record for record in by_id.values()):
        return records
    on_path: set[str] = set()
    step: Any = next(reversed(by_id))
    while isinstance(step, str) and step in by_id and step not in on_path:
        on_path.add(step)
        record = by_id[step]
        step = record.get("parentUuid") or record.get("logicalParentUuid")
    # Blocks of one message, and results of calls on the path, may hang beside it.
    ids = {_message_id(by_id[step]) for step in on_path} - {None}
    chosen = [r for r in records if r.get("uuid") in on_path or _message_id(r) in ids]
    calls = {call for record in chosen for call in _names(record, "id")}
    return [
        record
        for record in records
        if record.get("uuid") in on_path
        or _message_id(record) in ids
        or calls & _names(record, "tool_use_id")
    ]


def _message_id(record: Record) -> str | None:
    message = mapping(record.get("message"))
    found = message.get("id") if record.get("type") == "assistant" else None
    return found if isinstance(found, str) else None


def _names(record: Record, field: str) -> set[str]:
    blocks = map(mapping, items(mapping(record.get("message")).get("content")))
    return {block[field] for block in blocks if isinstance(block.get(field), str)}


def _last_context(records: list[Record]) -> list[Record]:
    """Return what follows the last compaction, its summary included."""
    starts = [number for number, record in enumerate(records) if record.get("isCompactSummary")]
    return records[starts[-1] :] if starts else records


def _is_shown(record: Record) -> bool:
    """Say whether the model gets to see this line."""
    return (
        record.get("type") in ("user", "assistant")
        and not record.get("isApiErrorMessage")
        and not record.get("isVisibleInTranscriptOnly")
    )


def _queued(attachment: Record) -> Any:
    """Return what the user typed while the agent was working."""
    prompt = attachment.get("prompt") if attachment.get("type") == "queued_command" else None
    return text_parts(prompt) or anthropic.parts_of(prompt)


def _text(parts: Any) -> str:
    content = content_from(parts)
    return content if isinstance(content, str) else ""
