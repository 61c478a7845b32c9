"""Day 4: group messages so that a call and its results never part, and say what to keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compaction.messages import (
    CHECKLIST_PREFIX,
    MEMORY_PREFIX,
    PROJECT_PREFIX,
    Call,
    Message,
    calls_of,
    content_of,
    is_summary,
    text_of,
)

KINDS = ("system", "pinned", "unfinished", "recent", "compressible")
"""Why a group is kept, highest first; only the last kind may be compressed."""

PINNED_PREFIXES = (CHECKLIST_PREFIX, PROJECT_PREFIX, MEMORY_PREFIX)

CLEARED_PREFIX = "[cleared tool result]"


@dataclass(frozen=True)
class Group:
    """A stretch of messages that stays or goes as one; ``end`` is exclusive."""

    start: int
    end: int
    keep: str


def is_checklist(message: Mapping[str, Any]) -> bool:
    """Say whether a message is pinned by its beginning: checklist, project file or memory.

    A tool result never is, whatever it says: a fetched page could pin itself for ever.

    >>> is_checklist({"role": "assistant", "content": "[todo] 1. fix divide"})
    True
    >>> is_checklist({"role": "tool", "content": "[todo] 1. fix divide"})
    False
    """
    return message.get("role") != "tool" and content_of(message).startswith(PINNED_PREFIXES)


def pair_results(messages: Sequence[Message]) -> tuple[dict[int, int], list[int]]:
    """Match tool results with calls by id and occurrence.

    Returns ``owner``, from the position of each matched result to the position of the
    assistant message it answers, and ``unfinished``, the positions of assistant messages with
    a call that nobody answered. A result belongs to the nearest earlier call with its id that
    is still unanswered, else to the nearest earlier call with its id, else to nobody.

    >>> call = {"id": "c1", "function": {"name": "read_file", "arguments": "{}"}}
    >>> pair_results([
    ...     {"role": "assistant", "tool_calls": [call]},
    ...     {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ... ])
    ({1: 0}, [])
    """
    owner: dict[int, int] = {}
    waiting: dict[str, list[int]] = {}  # id -> assistant positions with that call unanswered
    latest: dict[str, int] = {}  # id -> position of the latest assistant message calling it
    nameless: list[int] = []  # calls without an id can never be answered
    for position, message in enumerate(messages):
        # A call waits from here on. Ids come again, so each has a stack of those who wait.
        for call in calls_of(message):
            if call.id is None:
                nameless.append(position)
            else:
                waiting.setdefault(call.id, []).append(position)
                latest[call.id] = position
        # A result answers the top of its stack, the nearest. Where nobody waits it is a duplicate,
        # and stays with whoever called last, so that compaction never leaves it without a call.
        result_id = message.get("tool_call_id")
        if message.get("role") == "tool" and isinstance(result_id, str) and result_id in latest:
            owner[position] = waiting[result_id].pop() if waiting[result_id] else latest[result_id]
    unanswered = {position for positions in waiting.values() for position in positions}
    return owner, sorted(unanswered.union(nameless))


def group_messages(
    messages: Sequence[Message],
    keep_recent: int = 3,
    pinned: Callable[[Message], bool] = is_checklist,
) -> list[Group]:
    """Split a history into groups, in order, each with the kind that says whether it stays.

    An assistant message with tool calls and all its results are one group, with whatever
    comes between them; every other message is a group of its own. A group takes the highest
    kind among its members; the last ``keep_recent`` groups that are not kept for another
    reason are ``recent``.

    >>> group_messages([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], 0)
    [Group(start=0, end=1, keep='system'), Group(start=1, end=2, keep='compressible')]
    """
    owner, unfinished = pair_results(messages)

    # The last message that each assistant message drags along; a group ends where no earlier
    # message reaches any further, so overlapping spans become one group.
    reach = list(range(len(messages)))
    for result, assistant in owner.items():
        reach[assistant] = max(reach[assistant], result)
    spans, start, end = [], 0, 0
    for position, last in enumerate(reach):
        end = max(end, last)
        if position == end:
            spans.append((start, end + 1))
            start = end = end + 1

    groups = []
    for index, (start, end) in enumerate(spans):
        members = messages[start:end]
        if any(m.get("role") in ("system", "developer") for m in members):
            keep = "system"
        elif any(m.get("role") != "tool" and pinned(m) for m in members):
            keep = "pinned"
        elif any(start <= position < end for position in unfinished):
            keep = "unfinished"
        elif index >= len(spans) - keep_recent:
            keep = "recent"
        else:
            keep = "compressible"
        groups.append(Group(start, end, keep))
    return groups


def segments(messages: Sequence[Message], groups: Sequence[Group]) -> list[tuple[int, int]]:
    """Return the stretches to summarise, ``end`` exclusive: one summary a piece of work.

    Neighbouring compressible groups form a run. A user message opens a new piece of work and
    splits the run before it. Earlier summaries open nothing: they flow into the next piece,
    so that repeated compaction stays bounded.

    >>> history = [{"role": "user", "content": text} for text in ("one", "two")]
    >>> segments(history, group_messages(history, keep_recent=0))
    [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    start: int | None = None  # of the piece that is open
    carried: int | None = None  # start of the summaries at the end of the open piece
    for group in groups:
        first = messages[group.start]
        if group.keep != "compressible":
            if start is not None:
                found.append((start, group.start))
            start = carried = None
        elif start is None:
            start = group.start
            carried = group.start if is_summary(first) else None
        elif is_summary(first):
            carried = group.start if carried is None else carried
        else:
            border = group.start if carried is None else carried
            if first.get("role") == "user" and border > start:
                found.append((start, border))
                start = border
            carried = None
    if start is not None:
        found.append((start, groups[-1].end))
    return found


def clear_results(messages: Sequence[Message], keep_recent: int = 3) -> list[Message]:
    """Replace old tool results by one line each that says how to fetch them again.

    The cheapest answer to "can it be fetched again?". Call and result stay a pair; what only
    the result said is gone. A result that is shorter than its line stays as it is.

    >>> call = {"id": "c1", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}
    >>> cleared = clear_results([
    ...     {"role": "assistant", "tool_calls": [call]},
    ...     {"role": "tool", "tool_call_id": "c1", "content": "line\\n" * 90},
    ... ], keep_recent=0)
    >>> cleared[1]["content"]
    '[cleared tool result] 90 lines, 450 characters; call again: read_file {"path": "a.py"}'
    """
    owner, _ = pair_results(messages)
    result = list(messages)
    for group in group_messages(messages, keep_recent):
        if group.keep != "compressible":
            continue
        for position in range(group.start, group.end):
            message = messages[position]
            if message.get("role") != "tool" or _is_cleared(message):
                continue
            caller = messages[owner[position]] if position in owner else {}
            line = _cleared_line(message, calls_of(caller))
            if len(line) < len(text_of(message)) or not isinstance(message.get("content"), str):
                result[position] = {**message, "content": line}
    return result


def _is_cleared(message: Message) -> bool:
    text = content_of(message)
    # Only a short one: a long result that imitates the line is cleared like any other.
    return text.startswith(CLEARED_PREFIX) and len(text) < 320


def _cleared_line(message: Message, calls: Sequence[Call]) -> str:
    text = text_of(message)
    size = f"{len(text.splitlines())} lines, {len(text)} characters"
    call = next((call for call in calls if call.id == message.get("tool_call_id")), None)
    if call is None:
        return f"{CLEARED_PREFIX} {size}; its call is unknown"
    arguments = " ".join(call.arguments.split())
    if len(arguments) > 160:
        arguments = arguments[:160] + " ..."
    return f"{CLEARED_PREFIX} {size}; call again: {call.name} {arguments}"
