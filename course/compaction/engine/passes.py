"""Passes: let a compactor try, judge what it made, and say what a pass did.

In goes a history and a compactor; out comes what is to take the history's place, or the reason why
it stays as it is. Nothing here changes a history.
"""

from __future__ import annotations

import copy
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compaction.engine.decide import Aim
from compaction.engine.events import Pass
from compaction.messages import Message, problems
from compaction.probes import Probe, verify
from compaction.summary import Compaction

Compactor = Callable[[list[Message]], Compaction | list[Message]]
"""Makes a history shorter; returns a Compaction, or the new messages alone."""


@dataclass(frozen=True)
class Tried:
    """A pass that was tried, its tokens by the plain count, and why it is not adopted, if so."""

    attempt: Compaction
    before: int
    after: int
    failed: Pass | None = None


def attempt(
    compact: Compactor, messages: list[Message], history: Callable[[], list[Message]]
) -> Compaction:
    """Let the compactor try on a copy; whatever goes wrong leaves the messages as they are.

    ``history`` returns what must be the same before and after, whoever holds it.
    """

    def give_up(reason: str) -> Compaction:
        return Compaction(messages, 0, 0, [], reason, [])

    seen = copy.deepcopy(history())
    try:
        outcome = compact(copy.deepcopy(messages))
    except (Exception, SystemExit) as error:
        return give_up(f"the compactor failed: {type(error).__name__}: {error}")
    if history() != seen:
        return give_up("the history changed while it was summarised")
    if not isinstance(outcome, Compaction):
        if not isinstance(outcome, list):
            return give_up(f"the compactor returned {type(outcome).__name__}, not messages")
        outcome = Compaction(outcome, 0, -1, [], None, [])
    if outcome.abandoned is not None:
        return give_up(outcome.abandoned)
    broken = Tally(problems(outcome.messages)) - Tally(problems(messages))
    if broken:
        return give_up(f"the pass would break the history: {next(iter(broken))}")
    return outcome


def why_not(
    attempt: Compaction, before: int, after: int, aim: Aim, count: Callable[[list[Message]], int]
) -> str | None:
    """Return why a pass misses its aim; None where it does not."""
    gain = (before - after) / before if before else 0.0
    if gain < aim.min_gain:
        return f"it would save {100 * gain:.1f} %, less than {100 * aim.min_gain:.0f} %"
    if aim.must_reach and aim.target_tokens is not None:
        reached = count(attempt.messages)
        if reached > aim.target_tokens:
            return f"{aim.target_tokens:,} tokens cannot be reached: {reached:,} would remain"
    return None


def made_pass(
    tried: Tried,
    old: Sequence[Message],
    probes: Sequence[Probe],
    count: Callable[[list[Message]], int],
) -> Pass:
    """Return what is said of a pass that takes the place of the history ``old``."""
    new = list(tried.attempt.messages)
    at_stake = verify(probes, old).kept
    report = verify(at_stake, new)
    unchanged = 0
    for left, right in zip(old, new, strict=False):
        if left != right:
            break
        unchanged += 1
    # Only a beginning that stayed the same can still be in the provider's cache.
    cached = count(new[:unchanged]) if unchanged else 0
    reported = tried.attempt.after
    return Pass(
        messages_before=len(old),
        messages_after=len(new),
        before=tried.before,
        after=tried.after,
        reported=reported if reported >= 0 else None,
        resent_tokens=max(0, tried.after - cached),
        summaries=tuple(tried.attempt.summaries),
        kept=tuple(report.kept),
        lost=tuple(report.lost),
        carried=tuple(tried.attempt.carried),
    )


def failed_pass(
    reason: str | None, before: int, after: int, history: Sequence[Message], probes: Sequence[Probe]
) -> Pass:
    """Return what is said of a pass that was given up; without a reason it saved nothing."""
    return Pass(
        messages_before=len(history),
        messages_after=len(history),
        before=before,
        after=before,
        reported=None,
        resent_tokens=0,
        summaries=(),
        kept=tuple(verify(probes, history).kept),
        lost=(),
        carried=(),
        abandoned=reason or f"the pass saved nothing: {before:,} -> {after:,} tokens",
        saved_nothing=reason is None,
    )
