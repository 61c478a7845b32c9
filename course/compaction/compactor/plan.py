"""Plan: which stretches get a summary, which share one, and how much room there is for all.

From a history and its groups to pieces. Every piece becomes one summary, in the place of its
first message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compaction.budget import Counter
from compaction.compactor.alternate import separated
from compaction.grouping import Group, segments
from compaction.messages import CHECKLIST_PREFIX, Message, calls_of, content_of, is_summary

Span = tuple[int, int]


@dataclass(frozen=True)
class View:
    """A history as a pass works on it: joined messages apart, superseded checklists gone.

    ``origins`` holds the position in the input of each message.
    """

    messages: list[Message]
    origins: list[int]
    groups: list[Group]


@dataclass(frozen=True)
class Piece:
    """The spans that one summary stands for; nearly always one."""

    spans: tuple[Span, ...]

    def messages(self, history: Sequence[Message]) -> list[Message]:
        return [m for start, end in self.spans for m in history[start:end]]


def view_of(
    messages: Sequence[Message], group: Callable[..., list[Group]], keep_recent: int
) -> View:
    """Return the history as a pass works on it."""
    work: list[Message] = []
    origins: list[int] = []
    for position, message in enumerate(messages):
        parts = separated([message])
        work += parts
        origins += [position] * len(parts)
    groups = group(work, keep_recent)
    gone = _superseded(work, groups)
    if not gone:
        return View(work, origins, groups)
    kept = [n for n in range(len(work)) if n not in gone]
    shifted: list[Group] = []
    for piece in groups:
        if piece.start not in gone:
            start = shifted[-1].end if shifted else 0
            shifted.append(Group(start, start + piece.end - piece.start, piece.keep))
    return View([work[n] for n in kept], [origins[n] for n in kept], shifted)


def _superseded(messages: Sequence[Message], groups: Sequence[Group]) -> set[int]:
    """Return the positions of checklists that a later one replaces."""
    lists = [
        group.start
        for group in groups
        if group.keep == "pinned"
        and group.end == group.start + 1
        and content_of(messages[group.start]).startswith(CHECKLIST_PREFIX)
        and not calls_of(messages[group.start])
    ]
    return set(lists[:-1])


def pieces_of(view: View, min_segment_tokens: int, meter: Counter) -> list[Piece]:
    """Return the segments that are worth a summary of their own.

    A short segment is not, and neither is one that holds nothing but earlier summaries.
    """
    return [
        Piece(((start, end),))
        for start, end in segments(view.messages, view.groups)
        if _new_tokens(view.messages[start:end], meter) >= min_segment_tokens
    ]


def _new_tokens(messages: Sequence[Message], meter: Counter) -> int:
    new = [message for message in messages if not is_summary(message)]
    return meter.count(new) if new else -1


def pieces_for_room(
    view: View, room: int, bare: int, min_segment_tokens: int, meter: Counter
) -> list[Piece]:
    """Return the pieces that summaries stand for when they have ``room`` tokens together.

    While bare summaries, of ``bare`` tokens each, would take more than half of the room, the
    oldest neighbours share one; where even so they do not fit, also those that a kept message
    parts.
    """
    spans = [Piece((span,)) for span in segments(view.messages, view.groups)]
    pieces = _with_neighbours(spans, view.messages, max(bare, min_segment_tokens), meter)
    most = max(1, room // (2 * bare))
    pieces = _shared(pieces, len(pieces) - most, only_neighbours=True)
    return _shared(pieces, len(pieces) - max(1, room // (bare + bare // 2)), only_neighbours=False)


def _with_neighbours(
    pieces: Sequence[Piece], messages: Sequence[Message], least: int, meter: Counter
) -> list[Piece]:
    """Join what is too short for a summary of its own to the neighbour before or after it."""
    joined: list[Piece] = []
    short_before = False
    for piece in pieces:
        is_short = meter.count(piece.messages(messages)) < least
        if joined and (is_short or short_before) and _touch(joined[-1], piece):
            joined[-1] = _together(joined[-1], piece)
            short_before = is_short and short_before
        else:
            joined.append(piece)
            short_before = is_short
    return joined


def _shared(pieces: Sequence[Piece], times: int, only_neighbours: bool) -> list[Piece]:
    """Join the oldest pieces that may share a summary, so many times."""
    result: list[Piece] = []
    for piece in pieces:
        if times > 0 and result and (not only_neighbours or _touch(result[-1], piece)):
            result[-1] = _together(result[-1], piece)
            times -= 1
        else:
            result.append(piece)
    return result


def _touch(first: Piece, second: Piece) -> bool:
    return first.spans[-1][1] == second.spans[0][0]


def _together(first: Piece, second: Piece) -> Piece:
    if _touch(first, second):
        *before, (start, _) = first.spans
        (_, end), *after = second.spans
        return Piece((*before, (start, end), *after))
    return Piece((*first.spans, *second.spans))
