"""Day 5: replace old stretches by structured summaries, or leave every byte as it is.

A free summary turns an action into a topic, and the model does the work again. So the prompt
fixes four headings, and a reply that lacks one abandons the whole compaction.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compaction.budget import Counter
from compaction.calibration import meter
from compaction.grouping import Group, group_messages, segments
from compaction.messages import SUMMARY_PREFIX, Message, content_of
from compaction.probes import Probe, fold, verify
from compaction.summary.extractive import extract, sentence_with
from compaction.summary.format import (
    FACTS,
    NOTHING,
    SummaryError,
    changes_form,
    language_of_headings,
    parse_summary,
    render_summary,
    tidy_summary,
)

COMPACTION_NOTICE = (
    "Earlier parts of this history may have been compacted: "
    f'a message that begins with "{SUMMARY_PREFIX}" is a summary of them.'
)
"""The one sentence that the system prompt gains, once."""

Summarizer = Callable[[list[Message]], str]


@dataclass(frozen=True)
class Stretch:
    """What became of messages ``start`` to ``end`` (exclusive) of the input, in tokens.

    Stretches that share a summary have one entry. ``kept`` are the values of the index that
    the summary holds, ``left`` those that it does not.
    """

    start: int
    end: int
    before: int
    after: int
    kept: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compaction:
    """The outcome of a pass; ``before`` and ``after`` are tokens by one counter.

    When ``abandoned`` holds a reason, ``messages`` is the input, untouched. ``carried`` lists
    the probes whose fact the summaries lost and which were put back word for word.
    ``compact_history`` also says what became of each stretch, and in ``dropped`` which lines
    and facts gave way.
    """

    messages: list[Message]
    before: int
    after: int
    summaries: list[str]
    abandoned: str | None
    carried: list[Probe]
    stretches: tuple[Stretch, ...] = ()
    dropped: tuple[str, ...] = ()


def compact(
    messages: list[Message],
    summarize: Summarizer = extract,
    *,
    keep_recent: int = 3,
    group: Callable[..., list[Group]] = group_messages,
    min_segment_tokens: int = 100,
    meter: Counter = meter,
    probes: Iterable[Probe] | None = None,
) -> Compaction:
    """Replace each compressible stretch by one structured summary, or abandon everything.

    A summariser that raises, answers nothing or lacks a heading, a result that is not smaller
    by the same counter, a probe that cannot be kept: each of them returns the input untouched
    with the reason in ``abandoned``. With ``probes``, a fact that stood in the history and is
    missing from the summaries is carried over word for word.

    >>> from compaction.calibration import TokenMeter
    >>> history = [{"role": "user", "content": "Read the log. " * 60}] * 5
    >>> done = compact(history, meter=TokenMeter())
    >>> done.abandoned, done.after < done.before
    (None, True)
    """
    before = meter.count(messages)

    def abandon(reason: str) -> Compaction:
        return Compaction(messages, before, before, [], reason, [])

    stretches = [
        (start, end)
        for start, end in segments(messages, group(messages, keep_recent))
        if meter.count(messages[start:end]) >= min_segment_tokens
    ]
    if not stretches:
        return abandon("nothing to compress: all that is old is kept, or too short to be worth it")

    summaries = []
    for start, end in stretches:
        try:
            # A copy, so that a summariser which edits its input cannot change the history.
            reply = summarize(copy.deepcopy(messages[start:end]))
        except Exception as error:
            return abandon(f"the summariser failed: {type(error).__name__}: {error}")
        if not isinstance(reply, str) or not reply.strip():
            return abandon("the summariser answered without text")
        try:
            summaries.append(tidy_summary(reply))
        except SummaryError as error:
            return abandon(str(error))

    result = replace_stretches(messages, stretches, summaries)
    at_stake = verify(probes or [], messages).kept
    carried = verify(at_stake, result).lost
    if carried:
        summaries = carry_facts(carried, messages, stretches, summaries)
        result = replace_stretches(messages, stretches, summaries)
        lost = verify(at_stake, result).lost
        if lost:
            return abandon("pinned facts would be lost: " + ", ".join(p.fact for p in lost))

    after = meter.count(result)
    if after >= before:
        return abandon(f"the result would not be smaller: {before} -> {after} tokens")
    return Compaction(result, before, after, summaries, None, carried)


def carry_facts(
    probes: Sequence[Probe],
    messages: Sequence[Message],
    stretches: Sequence[tuple[int, int]],
    summaries: Sequence[str],
) -> list[str]:
    """Return the summaries with each probe's fact under the facts of the stretch that held it."""
    carried = list(summaries)
    for probe in probes:
        for index, (start, end) in enumerate(stretches):
            if verify([probe], messages[start:end]).kept:
                carried[index] = carry_fact(probe, messages[start:end], carried[index])
                break
    return carried


def carry_fact(probe: Probe, messages: Sequence[Message], summary: str) -> str:
    """Return a summary with a fact, in the sentence that it stood in, first under the facts.

    A sentence that stems from a tool says so; a fact without its sentence says nothing.
    """
    sections = parse_summary(summary)
    line = sentence_with(fold(probe.fact), messages)
    if changes_form(line):
        line = f'"{line}"'  # must not read as a heading or open a code fence
    body = sections[FACTS]
    is_empty = body.strip("-*. 。").lower() in NOTHING.values()
    sections[FACTS] = f"- {line}" if is_empty else f"- {line}\n{body}"
    return render_summary(sections, language_of_headings(summary))


def replace_stretches(
    messages: Sequence[Message],
    stretches: Sequence[tuple[int, int]],
    summaries: Sequence[str],
) -> list[Message]:
    """Return the history with one user message in the place of each stretch, and the notice."""
    result: list[Message] = []
    position = 0
    for (start, end), summary in zip(stretches, summaries, strict=True):
        result += messages[position:start]
        result.append({"role": "user", "content": f"{SUMMARY_PREFIX}\n{summary}"})
        position = end
    return with_notice(result + list(messages[position:]))


def with_notice(messages: list[Message]) -> list[Message]:
    """Return the history whose first system message says, once, that summaries may follow.

    >>> with_notice([])[0]["content"] == COMPACTION_NOTICE
    True
    """
    instructions = [i for i, m in enumerate(messages) if m.get("role") in ("system", "developer")]
    if any(COMPACTION_NOTICE in content_of(messages[i]) for i in instructions):
        return messages
    if not instructions:
        return [{"role": "system", "content": COMPACTION_NOTICE}, *messages]
    first = instructions[0]
    content = messages[first].get("content")
    noted: object
    if isinstance(content, list):
        noted = [*content, {"type": "text", "text": COMPACTION_NOTICE}]
    else:
        noted = f"{content}\n\n{COMPACTION_NOTICE}" if content else COMPACTION_NOTICE
    return [*messages[:first], {**messages[first], "content": noted}, *messages[first + 1 :]]
