"""Conversations: one unit per turn, round of tool calls, rule or decision of the user."""

from __future__ import annotations

from compaction.documents.units import (
    BINDING_KINDS,
    DECISION,
    MARKED_DECISION,
    TURN_KINDS,
    Unit,
    first_words,
    full_name,
)
from compaction.grouping import group_messages
from compaction.messages import Message, calls_of, content_of, is_summary, transcript
from compaction.probes import PIN
from compaction.summary.prose import RULE


def chat_units(messages: list[Message], recent: int, prefix: str) -> list[Unit]:
    pieces: list[tuple[str, list[Message]]] = []
    is_open = False  # whether the last piece takes in the answers that follow it
    for group in group_messages(messages, keep_recent=0):
        members = messages[group.start : group.end]
        kind = _chat_kind(members, group.keep)
        if kind == "answer":
            if is_open:
                pieces[-1][1].extend(members)
                continue
            kind = "turn"
        pieces.append((kind, members))
        is_open = kind in TURN_KINDS
    turns = [position for position, (kind, _) in enumerate(pieces) if kind in TURN_KINDS]
    latest = set(turns[max(0, len(turns) - recent) :])
    return [
        Unit(
            text=transcript(members),
            kind=kind,
            verbatim=kind in BINDING_KINDS or position in latest,
            name=full_name(prefix, f"{kind} {position + 1}: {_chat_title(members)}"),
        )
        for position, (kind, members) in enumerate(pieces)
    ]


def _chat_kind(members: list[Message], keep: str) -> str:
    if keep == "system":
        return "instructions"
    if keep in ("pinned", "unfinished"):
        return keep
    first = members[0]
    if calls_of(first):
        return "tool round"
    text = content_of(first)
    if first.get("role") == "user":
        if is_summary(first):
            return "summary"
        if RULE.search(text) or PIN.search(text):
            return "constraint"
        return "decision" if DECISION.search(text) else "turn"
    if first.get("role") == "assistant" and MARKED_DECISION.search(text):
        return "decision"
    return "answer"


def _chat_title(members: list[Message]) -> str:
    calls = [f"{call.name} {call.arguments}" for message in members for call in calls_of(message)]
    return first_words(", ".join(calls) or content_of(members[0]))
