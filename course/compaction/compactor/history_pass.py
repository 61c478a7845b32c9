"""One pass over anybody's history: a target, a least gain, a mask, alternating roles.

The promises are those of ``compact``: everything or nothing, one counter, the input untouched,
probes carried. A history flows through a view (joined messages apart, superseded checklists
gone), a plan of pieces, their summaries, and a last check of the whole result.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compaction.budget import Counter
from compaction.calibration import meter
from compaction.compactor.alternate import alternating
from compaction.compactor.masking import Mask, masked
from compaction.compactor.plan import Piece, View, pieces_for_room, pieces_of, view_of
from compaction.grouping import Group, group_messages
from compaction.messages import SUMMARY_PREFIX, Message, text_of, transcript
from compaction.probes import Probe, fold, verify
from compaction.summary import (
    Compaction,
    Stretch,
    Summarizer,
    SummaryError,
    extract,
    tidy_summary,
    with_notice,
)
from compaction.summary.choice import Choice, Room, choose, parts_of, weight, weight_of_tokens
from compaction.summary.extractive import (
    TARGET_PROSE,
    bare_summary,
    own_room,
    render,
)
from compaction.summary.format import takes_max_tokens
from compaction.summary.gather import gather
from compaction.summary.one_pass import carry_fact

_ATTEMPTS = 3
_EARLIER_SHARE = 0.1  # of the history, for what earlier summaries hold


class _Abandoned(Exception):
    """The pass is given up; its text says why."""


def compact_history(
    messages: list[Message],
    summarize: Summarizer = extract,
    *,
    target_tokens: int | None = None,
    min_gain: float = 0.0,
    alternate: bool = False,
    mask: Mask | None = None,
    keep_recent: int = 3,
    group: Callable[..., list[Group]] = group_messages,
    min_segment_tokens: int = 100,
    meter: Counter = meter,
    probes: Iterable[Probe] | None = None,
) -> Compaction:
    """Compact a history of any kind, or abandon everything with the reason.

    With ``target_tokens`` the result has at most so many, counted by ``meter`` and without
    tools, or the pass is abandoned. A pass that gains less than ``min_gain`` (a share of the
    tokens before) is abandoned. ``alternate`` gives alternating roles, for chat templates that
    insist on them. What ``mask`` hides enters no summary and no request for one. A summariser
    with the keyword ``max_tokens`` is told its share of a target.

    >>> from compaction.calibration import TokenMeter
    >>> history = [{"role": "user", "content": f"Read log {n}. " * 60} for n in range(9)]
    >>> done = compact_history(history, target_tokens=900, meter=TokenMeter())
    >>> done.abandoned, done.after <= 900
    (None, True)
    """
    before = meter.count(messages)
    run = _Pass(messages, summarize, mask, meter, list(probes or []), alternate, before)
    try:
        view = view_of(messages, group, keep_recent)
        if target_tokens is None or before <= target_tokens:
            done = run.freely(view, min_segment_tokens)
        else:
            done = run.towards(target_tokens, view, min_segment_tokens)
        if done.after >= before:
            raise _Abandoned(f"the result would not be smaller: {before} -> {done.after} tokens")
        gain = (before - done.after) / before
        if gain < min_gain:
            raise _Abandoned(
                f"the gain is too small: {before} -> {done.after} tokens are {gain:.1%}, "
                f"and {min_gain:.0%} are asked for"
            )
    except _Abandoned as reason:
        return Compaction(messages, before, before, [], str(reason), [])
    return done


@dataclass
class _Pass:
    """What all steps of a pass need."""

    messages: list[Message]
    summarize: Summarizer
    mask: Mask | None
    meter: Counter
    probes: list[Probe]
    alternate: bool
    before: int

    def freely(self, view: View, min_segment_tokens: int) -> Compaction:
        """Compact to the size that summaries take by themselves."""
        pieces = pieces_of(view, min_segment_tokens, self.meter)
        if not pieces:
            raise _Abandoned(
                "nothing to compress: all that is old is kept, or too short to be worth it"
            )
        work = _Work(view, pieces, self)
        rooms = [own_room(stretch) for stretch in work.stretches]
        earlier = _EARLIER_SHARE * weight(transcript(self.messages))
        rooms = [Room(room.size, max(room.earlier, earlier)) for room in rooms]
        return work.finish(work.summaries(rooms, None))

    def towards(self, target: int, view: View, min_segment_tokens: int) -> Compaction:
        """Compact to a target: one room, shared by need."""
        bare = self.bare_tokens()
        kept = _kept(view, pieces_for_room(view, 0, bare, 0, self.meter))
        base = self.meter.count(with_notice(kept))
        room = target - base
        pieces = pieces_for_room(view, max(0, room), bare, min_segment_tokens, self.meter)
        if not pieces:
            raise _Abandoned("nothing to compress: all that is old is kept")
        work = _Work(view, pieces, self)
        least = self.meter.count(work.replaced([bare_summary("en")] * len(pieces)))
        if least > target:
            raise _Abandoned(
                f"{target} tokens cannot be reached: {least} would remain, "
                f"{base} of them in messages that are kept ({_kinds(view, self.meter)})"
            )
        # Tokens of this meter for a token of the two-term default, on this history.
        ratio = max(0.1, 4 * self.before / max(1.0, weight(transcript(self.messages))))
        size = weight_of_tokens(target - least) / ratio
        for _ in range(_ATTEMPTS):
            room_for_all = Room(
                size, size / 2, beside=False, prose=TARGET_PROSE, users=TARGET_PROSE
            )
            done = work.finish(work.summaries([room_for_all] * len(pieces), ratio))
            if done.after <= target:
                return done
            size *= 0.97 * (target - least) / max(1, done.after - least)
        raise _Abandoned(
            f"{target} tokens cannot be reached: the summaries came to {done.after} in all, "
            f"{base} of them in messages that are kept ({_kinds(view, self.meter)})"
        )

    def bare_tokens(self) -> int:
        """Return what four headings with nothing below take, by this meter."""
        one = {"role": "user", "content": f"{SUMMARY_PREFIX}\n{bare_summary('en')}"}
        return self.meter.count([one])


class _Work:
    """The pieces of a pass with what their summaries are made of."""

    def __init__(self, view: View, pieces: Sequence[Piece], run: _Pass) -> None:
        self.view, self.pieces, self.run = view, list(pieces), run
        self.originals = [piece.messages(view.messages) for piece in pieces]
        self.stretches = self.originals
        if run.mask is not None:
            self.stretches = [[masked(m, run.mask) for m in each] for each in self.originals]
        self.kept = _kept(view, pieces)
        self.known = {part for m in self.kept for part in parts_of(text_of(m))}
        self.material = gather(self.stretches)
        self.choice: Choice | None = None

    def summaries(self, rooms: Sequence[Room], ratio: float | None) -> list[str]:
        """Write a summary for each piece, or ask for it; ``ratio`` only under a target."""
        self.choice = choose(self.material, rooms, self.known)
        if self.run.summarize is extract:
            return [render(self.choice, n) for n in range(len(self.pieces))]
        takes_share = ratio is not None and takes_max_tokens(self.run.summarize)
        replies = []
        for number, stretch in enumerate(self.stretches):
            share = {}
            if takes_share:
                text = render(self.choice, number)
                share = {"max_tokens": max(40, int(weight(text) / 4 * (ratio or 1)))}
            replies.append(_asked(self.run.summarize, stretch, share))
        return replies

    def finish(self, summaries: list[str]) -> Compaction:
        """Put the summaries in their places, carry probes, and count the whole."""
        run, meter = self.run, self.run.meter
        dropped = list(self.choice.dropped) if self.choice and run.summarize is extract else []
        at_stake = verify(run.probes, run.messages).kept
        hidden = verify(at_stake, [*self.kept, *(m for s in self.stretches for m in s)]).lost
        dropped += [f"{probe.fact} (masked)" for probe in hidden]
        at_stake = [probe for probe in at_stake if probe not in hidden]
        result = self.replaced(summaries)
        carried = verify(at_stake, result).lost
        if carried:
            summaries = self.carry(carried, summaries)
            result = self.replaced(summaries)
            lost = verify(at_stake, result).lost
            if lost:
                raise _Abandoned(
                    "pinned facts would be lost: " + ", ".join(probe.fact for probe in lost)
                )
        return Compaction(
            messages=result,
            before=run.before,
            after=meter.count(result),
            summaries=summaries,
            abandoned=None,
            carried=carried,
            stretches=tuple(self.reports(summaries)),
            dropped=tuple(dict.fromkeys(dropped)),
        )

    def carry(self, probes: Sequence[Probe], summaries: Sequence[str]) -> list[str]:
        carried = list(summaries)
        for probe in probes:
            for number, stretch in enumerate(self.stretches):
                if verify([probe], stretch).kept:
                    carried[number] = carry_fact(probe, stretch, carried[number])
                    break
        return carried

    def replaced(self, summaries: Sequence[str]) -> list[Message]:
        """Return the history with a summary in the place of each piece, and the notice."""
        first = {
            piece.spans[0][0]: text for piece, text in zip(self.pieces, summaries, strict=True)
        }
        gone = {n for piece in self.pieces for start, end in piece.spans for n in range(start, end)}
        result: list[Message] = []
        for position, message in enumerate(self.view.messages):
            if position in first:
                text = f"{SUMMARY_PREFIX}\n{first[position]}"
                result.append({"role": "user", "content": text})
            if position not in gone:
                result.append(message)
        result = with_notice(result)
        return alternating(result) if self.run.alternate else result

    def reports(self, summaries: Sequence[str]) -> list[Stretch]:
        """Say what became of each piece: tokens, and which values its summary holds."""
        values: list[list[str]] = [[] for _ in self.pieces]
        for entry in self.material.index.entries.values():
            values[entry.record.stretch].append(entry.value)
        origins, reports = self.view.origins, []
        for number, (piece, text) in enumerate(zip(self.pieces, summaries, strict=True)):
            held = parts_of(text)
            summary = [{"role": "user", "content": f"{SUMMARY_PREFIX}\n{text}"}]
            reports.append(
                Stretch(
                    start=origins[piece.spans[0][0]],
                    end=origins[piece.spans[-1][1] - 1] + 1,
                    before=self.run.meter.count(self.originals[number]),
                    after=self.run.meter.count(summary),
                    kept=tuple(v for v in values[number] if v in held or fold(v) in text),
                    left=tuple(v for v in values[number] if v not in held),
                )
            )
        return reports


def _kept(view: View, pieces: Sequence[Piece]) -> list[Message]:
    gone = {n for piece in pieces for start, end in piece.spans for n in range(start, end)}
    return [message for n, message in enumerate(view.messages) if n not in gone]


def _kinds(view: View, meter: Counter) -> str:
    """Name what the kept messages are, with their tokens, the largest first."""
    of_kind: dict[str, list[Message]] = {}
    for group in view.groups:
        if group.keep != "compressible":
            of_kind.setdefault(group.keep, []).extend(view.messages[group.start : group.end])
    counted = sorted(((meter.count(held), kind) for kind, held in of_kind.items()), reverse=True)
    return ", ".join(f"{kind} {tokens}" for tokens, kind in counted) or "none"


def _asked(summarize: Callable[..., str], stretch: list[Message], share: dict[str, int]) -> str:
    """Ask a summariser, and return its reply as a tidy summary."""
    try:
        # A copy, so that a summariser which edits its input cannot change the history.
        reply = summarize(copy.deepcopy(stretch), **share)
    except Exception as error:
        raise _Abandoned(f"the summariser failed: {type(error).__name__}: {error}") from error
    if not isinstance(reply, str) or not reply.strip():
        raise _Abandoned("the summariser answered without text")
    try:
        return tidy_summary(reply)
    except SummaryError as error:
        raise _Abandoned(str(error)) from error
