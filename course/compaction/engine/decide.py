"""Decide: an estimate and two lines in, a decision out; passes until the history may be sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from compaction.budget import line_tokens
from compaction.messages import Message
from compaction.summary import Compaction


class Decision(StrEnum):
    """What to do with a request of a certain size."""

    SEND = "send"
    COMPACT_THRESHOLD = "compact (threshold)"
    COMPACT_EMERGENCY = "compact (emergency)"


def next_step(
    estimate: float,
    window: int,
    threshold: float = 0.80,
    emergency: float = 0.95,
    auto_compact: bool = True,
) -> Decision:
    """Decide what to do with a request of ``estimate`` tokens in a window of ``window`` tokens.

    The threshold is the routine line: exactly at it the request is still sent, and it is only
    watched while automatic compaction is on. The emergency line fires at it or above, always,
    because the alternative is a refused request. Both lines are shares of the window.

    Raises ValueError for an estimate below 0 and for lines that are none.

    >>> next_step(6400, 8000)
    <Decision.SEND: 'send'>
    >>> next_step(6401, 8000)
    <Decision.COMPACT_THRESHOLD: 'compact (threshold)'>
    >>> next_step(7900, 8000, auto_compact=False)
    <Decision.COMPACT_EMERGENCY: 'compact (emergency)'>
    """
    if not estimate >= 0:  # "not >=" also refuses a NaN, which would pass under every line
        raise ValueError(f"an estimate must be 0 tokens or more, not {estimate}")
    if estimate >= line_tokens(window, emergency):
        return Decision.COMPACT_EMERGENCY
    if auto_compact and estimate > line_tokens(window, threshold):
        return Decision.COMPACT_THRESHOLD
    return Decision.SEND


@dataclass(frozen=True)
class Lines:
    """The two lines of a window of ``window`` tokens; ``threshold`` and ``emergency`` are shares.

    ``reserve`` tokens stay free for the reply: both lines are at most what is left of the window.
    Raises ValueError for a window that is not a whole number above 0, for a share outside 0 to 1
    and for a reserve that leaves nothing of the window.

    >>> lines = Lines(window=8000)
    >>> lines.decide(6600), lines.decide(3800)
    (<Decision.COMPACT_THRESHOLD: 'compact (threshold)'>, <Decision.SEND: 'send'>)
    >>> Lines(window=8000, reserve=2000).decide(6000)
    <Decision.COMPACT_EMERGENCY: 'compact (emergency)'>
    """

    window: int
    threshold: float = 0.80
    emergency: float = 0.95
    auto_compact: bool = True
    reserve: int = 0

    def __post_init__(self) -> None:
        check_whole("window", self.window, least=1)
        for name in ("threshold", "emergency"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
                raise ValueError(f"{name} must be a share above 0 and up to 1, not {share!r}")
        if check_whole("reserve", self.reserve, least=0) >= self.window:
            raise ValueError(f"a reserve of {self.reserve} leaves nothing of {self.window} tokens")

    @property
    def room(self) -> int:
        """The tokens that a request may have: the window without the reserve."""
        return self.window - self.reserve

    @property
    def shares(self) -> tuple[float, float]:
        """Threshold and emergency line as shares of the window, the reserve kept free."""
        most = self.room / self.window
        return min(self.threshold, most), min(self.emergency, most)

    def decide(self, estimate: float) -> Decision:
        """Return what :func:`next_step` says about ``estimate`` tokens under these lines."""
        return next_step(estimate, self.window, *self.shares, bool(self.auto_compact))

    def line_of(self, decision: Decision) -> float:
        """Return the tokens of the line that leads to a decision; 0.0 for SEND.

        >>> Lines(8000).line_of(Decision.COMPACT_EMERGENCY)
        7600.0
        """
        if decision == Decision.SEND:
            return 0.0
        threshold, emergency = self.shares
        routine = decision == Decision.COMPACT_THRESHOLD
        return line_tokens(self.window, threshold if routine else emergency)


def check_whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of tokens from {least} on, not {value!r}")
    return value


# --- what a pass is for -----------------------------------------------------------------------


@dataclass(frozen=True)
class Aim:
    """What a pass is for: a size of the messages (tokens), and the share that it has to save.

    A target that the pass ``must_reach`` is a person's; any other is what the engine wishes for.

    >>> Aim(target_tokens=2000, min_gain=0.1).without_target
    Aim(target_tokens=None, min_gain=0.1, must_reach=False)
    """

    target_tokens: int | None = None
    min_gain: float = 0.0
    must_reach: bool = False

    @property
    def without_target(self) -> Aim:
        """The same without a size."""
        return Aim(min_gain=self.min_gain)

    def is_out_of_reach(self, attempt: Compaction) -> bool:
        """Return True if ``compact_history`` gave up because of the target."""
        return self.target_tokens is not None and "cannot be reached" in (attempt.abandoned or "")


# --- making room: passes, counted by the counter that asked for them ------------------------


@dataclass(frozen=True)
class Room:
    """The outcome of :func:`make_room`.

    ``estimates`` are the tokens counted: at the start, then after each pass. When ``stuck``, the
    last pass saved nothing; ``messages`` is then what stood before that pass.
    """

    messages: list[Message]
    estimates: list[int]
    stuck: bool


def make_room(
    messages: list[Message],
    count: Callable[[list[Message]], int],
    compact: Callable[[list[Message]], Compaction],
    decide: Callable[[int], Decision],
) -> Room:
    """Compact until the history may be sent, as long as each pass makes progress.

    After each pass the new history is counted here. The number in the compactor's own report
    (``Compaction.after``) is never believed: it may come from another counter, or leave out what
    rides along on the request. One counter answers both questions, "is it too much?" and "did
    the pass help?": with a second one for the second question, a history is under the line by
    one and over it by the other, for ever. A pass that saves nothing ends the loop.

    >>> sizes = lambda messages: sum(message["tokens"] for message in messages)
    >>> def halve(messages):  # it reports 0 tokens, whatever it did
    ...     return Compaction(messages[: len(messages) // 2], 0, 0, [], None, [])
    >>> make_room([{"tokens": 100}] * 8, sizes, halve, Lines(250).decide)
    Room(messages=[{'tokens': 100}, {'tokens': 100}], estimates=[800, 400, 200], stuck=False)
    """
    estimates = [count(messages)]
    while decide(estimates[-1]) != Decision.SEND:
        shorter = compact(messages).messages
        estimates.append(count(shorter))
        if estimates[-1] >= estimates[-2]:
            return Room(messages, estimates, stuck=True)
        messages = shorter
    return Room(messages, estimates, stuck=False)
