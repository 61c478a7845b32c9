"""Day 5: summaries take the place of old stretches, or nothing is touched.

What parts 1 and 2 of the statement promise, and which cases look at it (every one under every
seed). No check looks at parts 3 and 4.

| property | fixed | drawn |
|---|---|---|
| one summary for each stretch, from the first to the last, in its place | long | two |
| the stretches are those of ``group`` and ``keep_recent`` | 0, 1, 3, many | its own grouping |
| a stretch of fewer than ``min_segment_tokens`` stays, no other does | 99, 100 | borders |
| ``before`` and ``after`` by the meter that is handed in | long | other prices |
| the tidy text goes into the history, not the reply | | four manners |
| a heading that is missing, empty or there twice abandons everything | long | each, anywhere |
| a compaction that gains a little is done | 260 tokens | |
| abandoned: as it came in, ``after`` is ``before``, no summaries, a reason | long | each |
| the messages stay as they are | all | all |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from compaction.calibration import TokenMeter
from compaction.grouping import Group, group_messages
from compaction.messages import Message, content_of
from compaction.session import load
from compaction.summary import (
    HEADINGS,
    Compaction,
    Summarizer,
    SummaryError,
    compact,
    parse_summary,
    replace_stretches,
    tidy_summary,
)
from compaction.tokens import Coefficients
from grader.checks import histories as h
from grader.checks.check import check
from grader.checks.show import difference
from grader.checks.spell import Named
from grader.checks.trial import Function, Given, Known, Trial
from grader.starters import day5 as starter


def _try(
    trial: Trial,
    messages: list[Message],
    replies: Callable[[int], Sequence[str]],
    name: str = "",
    said: str = "",
    **options: Any,
) -> Compaction:
    """Try a history whose stretches get ``replies(how many)``."""
    stretches = h.stretches_of(messages, **options)
    script = h.scripted(messages, stretches, replies(len(stretches)))
    summarize = Named(script, f"summarize <{said}>" if said else "summarize")
    meter = {} if "meter" in options else {"meter": Named(TokenMeter())}
    shown = Named(messages, name) if name else messages
    done: Compaction = trial(shown, summarize, **options, **meter)
    return done


def _outcome(given: Given, done: Compaction) -> dict[str, Any]:
    return {
        "abandoned": done.abandoned is not None,
        "messages": done.messages,
        "before": done.before,
        "after": done.after,
        "summaries": done.summaries,
        "carried": done.carried,
    }


def _tell(given: Given, right: dict[str, Any], seen: dict[str, Any]) -> tuple[str, str]:
    told = _in_words(right), _in_words(seen)
    if told[0] != told[1]:
        return told
    part = next(part for part in right if right[part] != seen[part])
    return difference(right[part], seen[part], f".{part}")


def _say(given: Given, view: dict[str, Any]) -> str:
    return _in_words(view)


def _in_words(outcome: dict[str, Any]) -> str:
    texts = len(outcome["summaries"])
    return (
        f"{'abandoned, ' if outcome['abandoned'] else ''}{len(outcome['messages'])} messages, "
        f"estimate {outcome['before']} -> {outcome['after']} tokens, "
        f"{texts} {'summary' if texts == 1 else 'summaries'}"
    )


def _nameless(given: Given, done: Compaction) -> tuple[str, str] | None:
    if done.abandoned is not None and not done.abandoned.strip():
        return "a Compaction whose .abandoned is the reason", "an empty text"
    return None


# --- known mistakes ---------------------------------------------------------------------


def _with(**changed: Callable[[Any], Any]) -> Function:
    """Return the right compaction, of other parameters: ``changed`` makes them out of the given."""

    def wrong(messages: list[Message], summarize: Summarizer, **options: Any) -> Compaction:
        usual = {"keep_recent": 3, "group": group_messages, "min_segment_tokens": 100, **options}
        other = {name: change(usual[name]) for name, change in changed.items()}
        return compact(messages, summarize, **{**usual, **other})

    return wrong


def _putting_in(text: Callable[[str], str], *, partly: bool = False) -> Function:
    """Return a compaction that makes another text of a reply, or leaves out what has none."""

    def wrong(
        messages: list[Message],
        summarize: Summarizer,
        *,
        keep_recent: int = 3,
        meter: TokenMeter,
        **options: Any,
    ) -> Compaction:
        before = meter.count(messages)
        stretches, summaries = [], []
        for start, end in h.stretches_of(messages, keep_recent, meter=meter, **options):
            try:
                tidy = text(summarize(messages[start:end]))
            except SummaryError as error:
                if partly:
                    continue
                return Compaction(messages, before, before, [], str(error), [])
            stretches.append((start, end))
            summaries.append(tidy)
        result = replace_stretches(messages, stretches, summaries)
        return Compaction(result, before, meter.count(result), summaries, None, [])

    return wrong


def _raw(reply: str) -> str:
    parse_summary(reply)
    return reply


def _filled(reply: str) -> str:
    """Put "none" under each heading that is missing."""
    missing = [heading for heading in HEADINGS if heading not in reply]
    return tidy_summary(reply + "".join(f"\n{heading}\n- none" for heading in missing))


_STEPS = [
    Known(
        _with(keep_recent=lambda keep_recent: 3),
        "keep_recent was not handed on: the groups are group(messages, keep_recent)",
    ),
    Known(
        _with(group=lambda group: group_messages),
        "the group that is handed in was not asked: it decides what belongs together",
    ),
    Known(
        _with(min_segment_tokens=lambda least: 1),
        "min_segment_tokens was not looked at: a shorter stretch stays as it is",
    ),
    Known(
        _with(min_segment_tokens=lambda least: 100),
        "min_segment_tokens was not looked at: a shorter stretch stays as it is",
    ),
    Known(
        _with(min_segment_tokens=lambda least: least + 1),
        "a stretch of exactly min_segment_tokens is summarised, only a shorter one stays",
    ),
]
_ABANDONS = [
    Known(
        starter.compact,
        "the summary was used as it arrived: what stood under the missing heading is lost",
    ),
    Known(
        _putting_in(tidy_summary, partly=True),
        "half a compaction: one missing heading abandons all of it, and nothing is touched",
    ),
    Known(
        _putting_in(_filled),
        "something was put under the missing heading: that is invented; abandon instead",
    ),
]
_RAW = Known(
    _putting_in(_raw),
    "the reply went in as it came: the text that tidy_summary returns is what is put in",
)
_AS_IT_ARRIVED = Known(starter.compact, _RAW.why)

# --- compact-summaries ------------------------------------------------------------------


def _whatever_is_long(messages: Sequence[Message], keep_recent: int = 3) -> list[Group]:
    """Group by the library, and keep whatever speaks of ticket a."""
    return [
        Group(g.start, g.end, "pinned")
        if any("Ticket a" in content_of(m) for m in messages[g.start : g.end])
        else g
        for g in group_messages(messages, keep_recent)
    ]


_OWN_GROUP = Named(_whatever_is_long, "<a grouping that also keeps ticket a>")


@check(
    "compact-summaries",
    day=5,
    of=compact,
    returns=Compaction,
    known=_STEPS,
    fault=_nameless,
    view=_outcome,
    say=_say,
    tell=_tell,
)
def compact_summaries(trial: Trial, rng: Random) -> str:
    """Each old stretch is replaced by one summary with its four headings."""
    session = load("long")

    def replies(number: int) -> list[str]:
        return [h.summary(rng) for _ in range(number)]

    done = _try(trial, session.messages, lambda n: session.replies, 'load("long").messages')
    for keep_recent in (1, rng.randint(2, 4)):
        _try(trial, _history(rng), replies, keep_recent=keep_recent)
    # Whole pieces of work to the very end, so that the number of recent groups decides.
    for keep_recent in (0, rng.randint(5, 7)):
        _try(trial, _work(rng, "abc"), replies, keep_recent=keep_recent)
    _try(trial, _history(rng), replies, meter=TokenMeter(Coefficients(0.5, 0.5)))
    # By default three groups are recent: not the request before them, and no less than them.
    request, trip = h.of_tokens(rng, 150, 1), h.round_trip(rng, "t", lines=12)
    _try(trial, [*_work(rng, "a"), *request, *trip, h.answer(rng), h.answer(rng)], replies)
    # A little is gained, and that is no reason to give it up.
    kept = h.piece_of_work(rng, "a", trips=1, lines=300)
    _try(trial, [*h.of_tokens(rng, 260, 2), *kept], replies)
    _try_group(trial, _work(rng, "abc"), replies)
    _try_borders(trial, rng, replies)
    complete = sum(_has_all_headings(summary) for summary in done.summaries)
    which = "both summaries carry" if complete == len(done.summaries) == 2 else f"{complete} carry"
    return (
        f"✓ compaction: {len(session.messages)} messages -> {len(done.messages)}, estimate "
        f"{done.before} -> {done.after} tokens, {which} all four headings"
    )


def _try_group(trial: Trial, messages: list[Message], replies: Any) -> None:
    stretches = h.stretches_of(messages, group=_whatever_is_long)
    script = h.scripted(messages, stretches, replies(len(stretches)))
    trial(messages, Named(script, "summarize"), group=_OWN_GROUP, meter=Named(TokenMeter()))


def _try_borders(trial: Trial, rng: Random, replies: Any) -> None:
    """Try a stretch of exactly as many tokens as are wanted, and one of a token less."""
    for tokens in (99, 100):
        _try(trial, [*h.of_tokens(rng, tokens, 2), *_work(rng, "ab")], replies)
    messages = _work(rng, "abc")
    sizes = sorted(
        h.tokens_of(messages[start:end])
        for start, end in h.stretches_of(messages, min_segment_tokens=1)
    )
    # Something is left in each case: that nothing is left is the matter of part 3.
    for least in {sizes[0], min(sizes[0] + 1, sizes[-1])}:
        _try(trial, messages, replies, min_segment_tokens=least)


def _work(rng: Random, names: str) -> list[Message]:
    """Return pieces of work one after another, and nothing behind them."""
    return [m for name in names for m in h.piece_of_work(rng, name, trips=1)]


def _history(rng: Random) -> list[Message]:
    """Return a history of two or three pieces of work, long enough to be worth a compaction."""
    history: list[Message] = []
    if rng.random() < 0.7:
        role = rng.choice(("system", "developer"))
        history.append({"role": role, "content": "You are a careful agent."})
    for name in "ab":
        history += h.piece_of_work(rng, name, trips=1)
    if rng.random() < 0.5:
        history.append({"role": "assistant", "content": "[todo]\n[x] read\n[ ] fix\n[ ] test"})
    return [*history, *h.round_trip(rng, "t"), *h.talk(rng, rng.randint(1, 2))]


def _has_all_headings(summary: str) -> bool:
    try:
        return len(parse_summary(summary)) == len(HEADINGS)
    except SummaryError:
        return False


# --- compact-abandons -------------------------------------------------------------------


@check(
    "compact-abandons",
    day=5,
    of=compact,
    returns=Compaction,
    known=[*_ABANDONS, *_STEPS],
    fault=_nameless,
    view=_outcome,
    say=_say,
    tell=_tell,
)
def compact_abandons(trial: Trial, rng: Random) -> str:
    """One missing heading abandons the whole compaction, and not one byte is touched."""
    session, name = load("long"), 'load("long").messages'
    heading = HEADINGS[2]
    replies = [session.replies[0], _drop(session.replies[1], heading)]
    said = f'the second summary lacks "{heading}"'
    done = _try(trial, session.messages, lambda n: replies, name, said)
    for number, spoil in enumerate(_SPOILT.values()):
        _try_spoilt(trial, rng, spoil, number)
    # Abandoning everything, always, is no safeguard; and a manner of speaking is no fault.
    complete = "both summaries are complete"
    _try(trial, session.messages, lambda n: session.replies, name, complete)
    tidied = trial.but(known=[_RAW, _AS_IT_ARRIVED])
    for manner, in_a_manner in _MANNERS.items():
        _try(
            tidied,
            _work(rng, "ab"),
            lambda n, way=in_a_manner: [way(h.summary(rng)) for _ in range(n)],  # type: ignore[misc]
            said=manner,
            keep_recent=rng.randint(0, 1),
        )
    return (
        f'✓ one missing heading ("{heading.rstrip(":")}") abandons everything: '
        f"{len(session.messages)} messages -> {len(done.messages)}, estimate "
        f"{done.before} -> {done.after} tokens"
    )


def _try_spoilt(
    trial: Trial, rng: Random, spoil: Callable[[str, str], tuple[str, str]], number: int
) -> None:
    """Try a history whose ``number``-th summary, or the last, has a fault."""
    history, keep_recent = _history(rng), rng.randint(1, 4)
    lacking, told = rng.choice(HEADINGS), []

    def replies(count: int) -> list[str]:
        made = [h.summary(rng) for _ in range(count)]
        wrong = min(number, count - 1)
        made[wrong], fault = spoil(made[wrong], lacking)
        told.append(f"summary {wrong + 1} of {count} {fault}")
        return made

    stretches = h.stretches_of(history, keep_recent)
    script = h.scripted(history, stretches, replies(len(stretches)))
    summarize = Named(script, f"summarize <{told[0]}>")
    trial(history, summarize, keep_recent=keep_recent, meter=Named(TokenMeter()))


_SPOILT: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "missing": lambda s, heading: (_drop(s, heading), f'lacks "{heading}"'),
    "empty": lambda s, heading: (_emptied(s, heading), f'has nothing under "{heading}"'),
    "twice": lambda s, heading: (f"{s}\n{heading}\n- more", f'has "{heading}" twice'),
    "all": lambda s, heading: ("We looked at the export and found its fault.", "has no heading"),
}

_MANNERS: dict[str, Callable[[str], str]] = {
    "its headings are bold": lambda s: _each_heading(s, lambda n, h: f"**{h}**"),
    "its headings are numbered": lambda s: _each_heading(s, lambda n, h: f"## {n}. {h}"),
    "it has an introduction": lambda s: "Sure! Here is the summary.\n\n" + s,
    "it has another order": lambda s: _last_first(s),
}


def _each_heading(summary: str, change: Callable[[int, str], str]) -> str:
    lines = summary.split("\n")
    return "\n".join(
        change(HEADINGS.index(line) + 1, line) if line in HEADINGS else line for line in lines
    )


def _last_first(summary: str) -> str:
    first, last = summary.split(f"\n{HEADINGS[3]}\n")
    return f"{HEADINGS[3]}\n{last}\n{first}"


def _drop(summary: str, heading: str) -> str:
    """Return a summary without one heading and what is listed under it."""
    kept, inside = [], False
    for line in summary.splitlines():
        if line in HEADINGS:
            inside = line == heading
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def _emptied(summary: str, heading: str) -> str:
    """Return a summary with a heading that has nothing under it."""
    return f"{_drop(summary, heading)}\n{heading}"
