"""pi's sessions: JSON lines that form a tree.

::

    {"type": "session", "version": 3, "id": "...", "cwd": "..."}
    {"type": "message", "id": "e1", "parentId": null, "message": {"role": "user", "content": ...}}
    {"type": "message", "id": "e2", "parentId": "e1", "message": {"role": "assistant", "content":
      [{"type": "thinking", ...}, {"type": "toolCall", "id": ..., "name": ..., "arguments": {}}]}}
    {"type": "compaction", "id": "e9", "parentId": "e8", "summary": "...", "firstKeptEntryId": "e5"}

The conversation is the path that ends in the last entry. Results are messages of the role
``toolResult``; what the user ran in the shell, ``bashExecution``. Changes of the model or of its
level of thinking, labels and extensions' own entries are no messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compaction.history.formats.building import (
    Builder,
    Part,
    content_from,
    items,
    mapping,
    media_part,
    text_part,
    text_parts,
)
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import Message

NAME = "pi"

Record = Mapping[str, Any]


def matches(traits: Traits) -> bool:
    """Say whether entries carry messages, or messages have pi's role for results."""
    is_session = "message" in traits.fields and "message" in traits.types
    return is_session or "toolResult" in traits.roles


def read(data: Any) -> list[Message]:
    """Return the messages of the session's last context."""
    builder = Builder()
    records = list(records_of(data))
    if not any("message" in record for record in records):
        records = [{"type": "message", "message": record} for record in records]
    for record in _last_context(_path(records)):
        kind = record.get("type")
        if kind == "message":
            _add_message(builder, mapping(record.get("message")))
        elif kind == "compaction":
            builder.summary(str(record.get("summary") or ""))
        elif kind == "branch_summary":
            builder.say("user", _of_branch(record))
        elif kind == "custom_message":
            builder.say("user", parts_of(record.get("content")))
    return builder.messages()


def _path(records: list[Record]) -> list[Record]:
    """Return the entries from the root to the last one; old files are a plain list."""
    by_id = {record["id"]: record for record in records if isinstance(record.get("id"), str)}
    entries = {key: record for key, record in by_id.items() if record.get("type") != "session"}
    if not any("parentId" in record for record in entries.values()):
        return records
    path: dict[str, Record] = {}
    step: Any = next(reversed(entries))
    while isinstance(step, str) and step in entries and step not in path:
        path[step] = entries[step]
        step = entries[step].get("parentId")
    # A result that hangs beside the path still answers a call on it.
    calls = {call for record in path.values() for call in _calls(record)}
    return [
        record
        for key, record in entries.items()
        if key in path or mapping(record.get("message")).get("toolCallId") in calls
    ]


def _calls(record: Record) -> set[str]:
    blocks = map(mapping, items(mapping(record.get("message")).get("content")))
    return {str(block.get("id")) for block in blocks if block.get("type") == "toolCall"}


def _last_context(path: list[Record]) -> list[Record]:
    """Return the last compaction, the entries that it kept, and what followed it."""
    places = [number for number, record in enumerate(path) if record.get("type") == "compaction"]
    if not places:
        return path
    last = places[-1]
    first_kept = path[last].get("firstKeptEntryId")
    kept = [number for number, record in enumerate(path[:last]) if record.get("id") == first_kept]
    before = path[kept[0] : last] if kept and first_kept else []
    return [
        path[last],
        *(record for record in before if record.get("type") != "compaction"),
        *path[last + 1 :],
    ]


def _add_message(builder: Builder, message: Record) -> None:
    role = message.get("role")
    if role == "assistant":
        # A reply that broke off is not sent again.
        if message.get("stopReason") not in ("error", "aborted"):
            _add_answer(builder, message)
    elif role == "toolResult":
        content = content_from(parts_of(message.get("content")))
        builder.result(message.get("toolCallId"), content, message.get("isError") is True)
    elif role == "bashExecution":
        if not message.get("excludeFromContext"):
            builder.say("user", _of_shell(message))
    elif role == "compactionSummary":
        builder.summary(str(message.get("summary") or ""))
    elif role == "branchSummary":
        builder.say("user", _of_branch(message))
    elif role == "system":
        builder.say("system", parts_of(message.get("content")))
    else:  # the user's, or an extension's that reads as the user's
        builder.say("user", parts_of(message.get("content")))


def _add_answer(builder: Builder, message: Record) -> None:
    # One message is one object here: whatever follows is a new one.
    key = object()
    content = message.get("content")
    if isinstance(content, str):
        builder.answer(text_parts(content), key)
    for block in map(mapping, items(content)):
        if block.get("type") == "thinking":
            builder.think(str(block.get("thinking") or ""), key)
        elif block.get("type") == "toolCall":
            builder.call(block.get("id"), block.get("name"), block.get("arguments"), key)
        else:
            builder.answer(parts_of([block]), key)


def _of_shell(message: Record) -> list[Part]:
    text = f"Ran `{message.get('command')}`\n```\n{message.get('output') or '(no output)'}\n```"
    code = message.get("exitCode")
    return [text_part(f"{text}\nCommand exited with code {code}" if code else text)]


def _of_branch(record: Record) -> list[Part]:
    return [text_part(f"Summary of a branch that was left:\n{record.get('summary') or ''}")]


def parts_of(content: Any) -> list[Part]:
    """Return text and images as parts of Chat Completions."""
    if isinstance(content, str):
        return text_parts(content)
    found: list[Part] = []
    for block in map(mapping, items(content)):
        if block.get("type") == "image":
            found += media_part(block.get("data"), block.get("mimeType") or "image/png")
        else:
            found += text_parts(block.get("text"))
    return found
