"""What the engine reports: passes, measurements, and the end of all room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compaction.budget import Row
from compaction.engine.decide import Decision, Lines
from compaction.probes import Probe, fold


@dataclass(frozen=True)
class Pass:
    """One compaction pass, in the engine's own figures (tokens by its one counter).

    ``reported`` is what the compactor said about itself, None when it said nothing.
    ``resent_tokens`` is what follows the first changed message: the next request pays it
    without the prompt cache. ``kept`` and ``lost`` are the pinned facts that stood in the
    history before the pass. When ``abandoned`` holds a reason, the history did not change;
    ``saved_nothing`` then says that the compactor did its work, and nothing became smaller.
    """

    messages_before: int
    messages_after: int
    before: int
    after: int
    reported: int | None
    resent_tokens: int
    summaries: tuple[str, ...]
    kept: tuple[Probe, ...]
    lost: tuple[Probe, ...]
    carried: tuple[Probe, ...]
    abandoned: str | None = None
    saved_nothing: bool = False

    @property
    def line(self) -> str:
        """Return the pass in one line for a person.

        >>> Pass(14, 7, 1368, 571, 571, 571, (), (Probe("a"), Probe("b")), (), ()).line
        'compacted 14 -> 7 messages, 1368 -> 571 tokens, 2 probes kept'
        """
        if self.abandoned is not None:
            return f"not compacted: {fold(self.abandoned)}"  # an exception may have many lines
        line = (
            f"compacted {self.messages_before} -> {self.messages_after} messages, "
            f"{self.before} -> {self.after} tokens"
        )
        if self.kept:
            line += f", {number_of(len(self.kept), 'probe')} kept"
        if self.lost:
            names = ", ".join(probe.fact for probe in self.lost)
            line += f", {number_of(len(self.lost), 'probe')} lost: {names}"
        return line


@dataclass(frozen=True)
class Event:
    """One measurement: what was measured, what came out, what was decided.

    ``kind`` is "run start", "reply", "tool results", "extras", "pass", "manual pass" or
    "shortened" (a large result was cut down to head and tail).
    ``estimate`` are tokens, ``share`` is their part of the window, ``added`` are the tokens
    since the measurement before. ``then`` says what the engine does next; ``note`` adds what a
    person wants to know; ``passed`` is the pass that led here, if one did.
    """

    kind: str
    estimate: int
    share: float
    decision: Decision
    then: str
    added: int
    note: str = ""
    passed: Pass | None = None

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        share = f"{100 * self.share:.0f} %"
        return f"{self.kind}{note}: {self.estimate:,} tokens, {share} of the window: {self.then}"


def trace(events: Iterable[Event]) -> str:
    """Return events as a table of text: event, tokens added, estimate, share, what follows.

    >>> event = Event("run start", 2800, 0.35, Decision.SEND, "call the model", 2100)
    >>> print(trace([event]))
    event             added  estimate  of window  then
    run start         2,100     2,800       35 %  call the model
    """
    lines = ["event             added  estimate  of window  then"]
    lines += [
        f"{event.kind:<14} {event.added:>8,} {event.estimate:>9,} "
        f"{100 * event.share:>8.0f} %  {event.then}"
        for event in events
    ]
    return "\n".join(lines)


def number_of(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class ContextExceeded(Exception):
    """A request stands over a line and the last pass saved nothing.

    ``rows`` is the budget table of that request: it shows which path is over. ``reason`` says
    why the pass saved nothing, ``decision`` names the line, ``estimate`` and ``window`` are
    tokens. The history is whole: nothing that was said is lost.
    """

    def __init__(
        self, reason: str, estimate: int, lines: Lines, decision: Decision, rows: Sequence[Row]
    ) -> None:
        self.reason = reason
        self.estimate = estimate
        self.window = lines.window
        self.decision = decision
        self.rows = list(rows)
        emergency = decision == Decision.COMPACT_EMERGENCY
        place = "at or above the emergency line" if emergency else "above the threshold"
        over = [f"{row.path} {row.tokens:,} of {row.allowance:,}" for row in self.rows if row.over]
        super().__init__(
            f"the context is full and no pass frees more of it: {estimate:,} of "
            f"{lines.window:,} tokens, {place} ({lines.line_of(decision):,.0f}); {reason}; "
            f"over their allowance: {', '.join(over) or 'no single path'}"
        )
