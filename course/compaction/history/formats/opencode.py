"""opencode's exported sessions: messages with ``info`` and ``parts``.

::

    {"info": {"id": "ses_1", "title": "..."}, "messages": [
      {"info": {"id": "msg_1", "role": "user"}, "parts": [{"type": "text", "text": "..."}]},
      {"info": {"id": "msg_2", "role": "assistant"}, "parts": [
        {"type": "step-start"}, {"type": "reasoning", "text": "..."},
        {"type": "tool", "callID": "call_1", "tool": "read",
         "state": {"status": "completed", "input": {}, "output": "..."}}]}]}

A tool part holds the call and its output. A reply that broke off before it said anything, and
what the user took back (``revert``), are not sent again.
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

NAME = "opencode"

Record = Mapping[str, Any]

# What opencode itself puts in the place of a result that never came, and of one it cleared.
_INTERRUPTED = "[Tool execution was interrupted]"
_CLEARED = "[Old tool result content cleared]"


def matches(traits: Traits) -> bool:
    """Say whether messages consist of info and parts."""
    return {"info", "parts"} <= traits.fields


def read(data: Any) -> list[Message]:
    """Return the messages of the session's last context."""
    builder = Builder()
    messages = _not_reverted(list(records_of(data)), mapping(mapping(data).get("info")))
    for number, record in enumerate(_last_context(messages)):
        info = mapping(record.get("info"))
        parts = [mapping(part) for part in items(record.get("parts"))]
        if info.get("role") == "user":
            builder.say("user", [part for held in parts for part in _said(held)])
        elif info.get("summary") is True:
            builder.summary(_text(parts))
        elif not _broke_off(info, parts):
            _add_answer(builder, parts, number)
    return builder.messages()


def _not_reverted(messages: list[Record], info: Record) -> list[Record]:
    revert = mapping(info.get("revert"))
    ids = [mapping(message.get("info")).get("id") for message in messages]
    target = revert.get("messageID")
    if target not in ids:
        return messages
    at = ids.index(target)
    kept: list[Record] = messages[:at]
    parts = [mapping(part) for part in items(messages[at].get("parts"))]
    part_ids = [part.get("id") for part in parts]
    if revert.get("partID") in part_ids:
        kept = [*kept, {**messages[at], "parts": parts[: part_ids.index(revert["partID"])]}]
    return kept


def _last_context(messages: list[Record]) -> list[Record]:
    """Return the last summary, the messages that its compaction kept, and what followed it."""
    infos = [mapping(message.get("info")) for message in messages]
    done = [
        number
        for number, info in enumerate(infos)
        if info.get("summary") is True and not info.get("error")
    ]
    if not done:
        return messages
    last = done[-1]
    asked = next((n for n in range(last - 1, -1, -1) if _compaction(messages[n])), last)
    tail = _compaction(messages[asked]).get("tail_start_id") if asked < last else None
    starts = [number for number in range(asked) if tail and infos[number].get("id") == tail]
    kept = messages[starts[0] : asked] if starts else []
    return [messages[last], *kept, *messages[last + 1 :]]


def _compaction(message: Record) -> Record:
    parts = map(mapping, items(message.get("parts")))
    return next((part for part in parts if part.get("type") == "compaction"), {})


def _broke_off(info: Record, parts: list[Record]) -> bool:
    error = mapping(info.get("error"))
    said = any(part.get("type") not in ("step-start", "reasoning") for part in parts)
    return bool(error) and not (error.get("name") == "MessageAbortedError" and said)


def _said(part: Record) -> list[Part]:
    """Return a user's part as the model is shown it."""
    kind = part.get("type")
    if kind == "text" and not part.get("ignored"):
        return text_parts(part.get("text"))
    if kind == "file" and part.get("mime") not in ("text/plain", "application/x-directory"):
        # A text file or a folder is shown as text, in a part of its own.
        return media_part(part.get("url"), part.get("mime"), part.get("filename"))
    if kind == "subtask":
        return [text_part("The following tool was executed by the user")]
    return []


def _add_answer(builder: Builder, parts: list[Record], number: int) -> None:
    step = 0
    for part in parts:
        kind = part.get("type")
        step += kind == "step-start"
        key = (number, step)
        if kind == "reasoning":
            builder.think(str(part.get("text") or ""), key)
        elif kind == "text":
            builder.answer(text_parts(part.get("text")), key)
        elif kind == "tool":
            state = mapping(part.get("state"))
            builder.call(part.get("callID"), part.get("tool"), state.get("input"), key)
            content, failed = _result(state)
            builder.result(part.get("callID"), content, failed)


def _result(state: Record) -> tuple[str | list[Part], bool]:
    status = state.get("status")
    if status == "error":
        return str(state.get("error") or ""), True
    if status != "completed":
        return _INTERRUPTED, True
    if mapping(state.get("time")).get("compacted"):
        return _CLEARED, False
    parts = text_parts(state.get("output"))
    for attached in map(mapping, items(state.get("attachments"))):
        parts += media_part(attached.get("url"), attached.get("mime"), attached.get("filename"))
    return content_from(parts), False


def _text(parts: list[Record]) -> str:
    return "\n".join(str(part.get("text")) for part in parts if part.get("type") == "text")
