"""Day 5: summaries take the place of old stretches, or nothing is touched."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from compaction.calibration import TokenMeter
from compaction.messages import Message
from compaction.session import load
from compaction.summary import (
    HEADINGS,
    Compaction,
    Summarizer,
    SummaryError,
    parse_summary,
    replace_stretches,
)
from compaction.summary import compact as library_compact
from grader.checks import histories as h
from grader.checks.check import Check, Function
from grader.checks.show import difference
from grader.checks.trial import Given, Known, Trial, given
from grader.starters import day5 as starter


def _call(
    messages: list[Message],
    replies: Sequence[str],
    keep_recent: int = 3,
    name: str = "",
    said: str = "",
) -> Given:
    shown = name or h.outline(messages, 8)
    options = "" if keep_recent == 3 else f", keep_recent={keep_recent}"
    call = f"compact({shown}, summarize{options}){f', where {said}' if said else ''}"
    summarize = h.scripted(messages, replies, keep_recent)
    return given(call, messages, summarize, keep_recent=keep_recent, meter=TokenMeter())


def _outcome(given: Given, done: Compaction) -> dict[str, Any]:
    return {
        "abandoned": done.abandoned is not None,
        "messages": done.messages,
        "before": done.before,
        "after": done.after,
        # What an abandoned compaction says of summaries nobody uses is not the point.
        "summaries": None if done.abandoned is not None else done.summaries,
        "carried": done.carried,
    }


def _tell(given: Given, right: dict[str, Any], seen: dict[str, Any]) -> tuple[str, str]:
    told = _in_words(right), _in_words(seen)
    if told[0] != told[1]:
        return told
    part = next(part for part in right if right[part] != seen[part])
    return difference(right[part], seen[part], f".{part}")


def _in_words(outcome: dict[str, Any]) -> str:
    return (
        f"{'abandoned, ' if outcome['abandoned'] else ''}{len(outcome['messages'])} messages, "
        f"estimate {outcome['before']} -> {outcome['after']} tokens"
    )


def _nameless(given: Given, done: Compaction) -> tuple[str, str] | None:
    if done.abandoned is not None and not done.abandoned.strip():
        return "a Compaction whose .abandoned is the reason", "an empty text"
    return None


def compact_summaries(compact: Function, rng: Random) -> str:
    """Each old stretch is replaced by one summary with its four headings."""
    trial = Trial(compact, library_compact, Compaction, fault=_nameless, view=_outcome, tell=_tell)
    session = load("long")
    done = trial.on(_call(session.messages, session.replies, name='load("long").messages'))
    for _ in range(4):
        history, keep_recent = _history(rng), rng.randint(1, 4)
        replies = [h.summary(rng) for _ in h.stretches_of(history, keep_recent)]
        trial.on(_call(history, replies, keep_recent))
    complete = sum(_has_all_headings(summary) for summary in done.summaries)
    which = "both summaries carry" if complete == len(done.summaries) == 2 else f"{complete} carry"
    return (
        f"✓ compaction: {len(session.messages)} messages -> {len(done.messages)}, estimate "
        f"{done.before} -> {done.after} tokens, {which} all four headings"
    )


def _history(rng: Random) -> list[Message]:
    """Return a history of two or three pieces of work, long enough to be worth a compaction."""
    history: list[Message] = []
    if rng.random() < 0.7:
        role = rng.choice(("system", "developer"))
        history.append({"role": role, "content": "You are a careful agent."})
    for name in "abc"[: rng.randint(2, 3)]:
        history += h.piece_of_work(rng, name, trips=rng.randint(1, 3))
    if rng.random() < 0.5:
        history.append({"role": "assistant", "content": "[todo]\n[x] read\n[ ] fix\n[ ] test"})
    return [*history, *h.round_trip(rng, "t"), *h.talk(rng, rng.randint(1, 3))]


def _has_all_headings(summary: str) -> bool:
    try:
        return len(parse_summary(summary)) == len(HEADINGS)
    except SummaryError:
        return False


# --- compact-abandons -------------------------------------------------------------------


def _in_part(
    messages: list[Message],
    summarize: Summarizer,
    *,
    keep_recent: int = 3,
    meter: TokenMeter,
) -> Compaction:
    """Leave out the stretch whose summary lacks a heading, and compact the others."""
    good, summaries = [], []
    for start, end in h.stretches_of(messages, keep_recent):
        reply = summarize(messages[start:end])
        if _has_all_headings(reply):
            good.append((start, end))
            summaries.append(reply)
    result = replace_stretches(messages, good, summaries)
    before, after = meter.count(messages), meter.count(result)
    return Compaction(result, before, after, summaries, None, [])


def compact_abandons(compact: Function, rng: Random) -> str:
    """One missing heading abandons the whole compaction, and not one byte is touched."""
    trial = Trial(
        compact,
        library_compact,
        Compaction,
        known=[
            Known(
                starter.compact,
                "the summary was used as it arrived: what stood under the missing heading is lost",
            ),
            Known(
                _in_part,
                "half a compaction: one missing heading abandons all of it, and nothing is touched",
            ),
        ],
        fault=_nameless,
        view=_outcome,
        tell=_tell,
    )
    session = load("long")
    heading = HEADINGS[2]
    replies = [session.replies[0], _drop(session.replies[1], heading)]
    done = trial.on(
        _call(
            session.messages,
            replies,
            name='load("long").messages',
            said=f'the second summary lacks "{heading}"',
        )
    )
    for _ in range(4):
        history, keep_recent = _history(rng), rng.randint(1, 4)
        replies = [h.summary(rng) for _ in h.stretches_of(history, keep_recent)]
        wrong, lacking = rng.randrange(len(replies)), rng.choice(HEADINGS)
        replies[wrong] = h.summary(rng, without=lacking)
        said = f'summary {wrong + 1} of {len(replies)} lacks "{lacking}"'
        trial.on(_call(history, replies, keep_recent, said=said))
    # Abandoning everything, always, is no safeguard.
    name, said = 'load("long").messages', "both summaries are complete"
    trial.on(_call(session.messages, session.replies, name=name, said=said))
    return (
        f'✓ one missing heading ("{heading.rstrip(":")}") abandons everything: '
        f"{len(session.messages)} messages -> {len(done.messages)}, estimate "
        f"{done.before} -> {done.after} tokens"
    )


def _drop(summary: str, heading: str) -> str:
    """Return a summary without one heading and what stands under it."""
    kept, inside = [], False
    for line in summary.splitlines():
        if line in HEADINGS:
            inside = line == heading
        if not inside:
            kept.append(line)
    return "\n".join(kept)


CHECKS = (
    Check(
        "compact-summaries",
        5,
        "compact",
        "Each old stretch is replaced by one summary with its four headings.",
        compact_summaries,
    ),
    Check(
        "compact-abandons",
        5,
        "compact",
        "One missing heading abandons the whole compaction, and not one byte is touched.",
        compact_abandons,
    ),
)
