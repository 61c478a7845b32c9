"""Gather what a summary may say of some stretches: lines, changes and the index of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from compaction.messages import SUMMARY_PREFIX, Message, content_of, is_summary
from compaction.probes import PIN, fold
from compaction.summary.attachments import attachments_of
from compaction.summary.changes import CallResult, call_results, changes_of, merged
from compaction.summary.format import (
    CHANGES,
    FACTS,
    NOTHING,
    PATHS,
    UNFINISHED,
    SummaryError,
    can_be_copied,
    language_of,
    parse_summary,
)
from compaction.summary.prose import (
    ASSISTANT,
    CHANGED,
    CONCLUDED,
    LONGEST_LINE,
    OPENING,
    PINNED,
    REPORTED,
    SAID,
    TASK,
    Line,
    assistant_lines,
    error_lines,
    is_assistants,
    is_done,
    is_rule,
    user_lines,
    without_mark,
)
from compaction.summary.records import (
    Index,
    Record,
    command_of,
    origin_in,
    origin_of,
    read_line,
    record_of,
)
from compaction.summary.values import values_in


@dataclass
class Material:
    """Candidates of some stretches; ``languages`` is that of each stretch."""

    languages: list[str]
    lines: list[Line] = field(default_factory=list)
    index: Index = field(default_factory=Index)


def gather(stretches: Sequence[Sequence[Message]]) -> Material:
    """Return all candidates of some stretches, in the order of the history."""
    material = Material([language_of(messages) for messages in stretches])
    flat = [message for messages in stretches for message in messages]
    stretch_of = [n for n, messages in enumerate(stretches) for _ in messages]
    pairs = list(call_results(flat))
    calls: dict[int, list[CallResult]] = {}
    results: dict[int, CallResult] = {}
    for pair in pairs:
        calls.setdefault(pair.position, []).append(pair)
        if pair.result is not None:
            results[pair.result_position] = pair
    for position, message in enumerate(flat):
        stretch = stretch_of[position]
        if is_summary(message):
            _add_earlier(material, message, stretch, position)
        else:
            _add_message(material, message, stretch, position, results.get(position))
            for pair in calls.get(position, ()):
                _add_call(material, pair, stretch)
    _add_changes(material, pairs, stretch_of)
    return material


def _add_message(
    material: Material, message: Message, stretch: int, position: int, pair: CallResult | None
) -> None:
    role, text = message.get("role"), content_of(message)
    language = material.languages[stretch]
    if role == "user":
        material.lines += user_lines(message, stretch, position)
        record = Record(stretch, position, "the user")
        material.index.add_text(record, text, is_written=True)
    elif role == "assistant":
        material.lines += assistant_lines(message, stretch, position, ASSISTANT[language])
        record = Record(stretch, position, "the assistant")
        material.index.add_text(record, text, is_written=True)
    else:
        record = record_of(stretch, pair) if pair else Record(stretch, position, "a tool")
        record.position = position
        origin = origin_of(record, language)
        material.lines += error_lines(text, origin, stretch, position)
        material.index.add_result(record, text)
    # What is no text leaves its name or kind, and how it can be fetched again.
    for name in attachments_of(message):
        whose = {"user": "", "assistant": ASSISTANT[language]}.get(str(role))
        mark = f"{origin_of(record, language)} " if whose is None else whose
        material.lines.append(Line(PATHS, TASK, f"{mark}{name}"[:LONGEST_LINE], stretch, position))


def _add_call(material: Material, pair: CallResult, stretch: int) -> None:
    record = record_of(stretch, pair)
    material.index.add_command(record, command_of(pair))
    material.index.add_call(record, pair)


def _add_changes(
    material: Material, pairs: Sequence[CallResult], stretch_of: Sequence[int]
) -> None:
    """Add the changes as lines; an earlier line gives way where its object changed again."""
    changes = merged(changes_of(pairs))
    objects = {name for change in changes for name in change.objects}
    for number, line in enumerate(material.lines):
        if line.key == CHANGES and line.earlier and objects.intersection(values_in(line.text)):
            material.lines[number] = replace(line, rank=REPORTED)
    for change in changes:
        stretch = stretch_of[change.position]
        line = Line(CHANGES, CHANGED, change.text, stretch, change.position, short=change.short)
        material.lines.append(line)
    if not changes:  # a claim without a change that took place is none
        for number, line in enumerate(material.lines):
            if line.key == CHANGES and line.rank == CONCLUDED and not line.earlier:
                material.lines[number] = replace(line, key=FACTS)


# --- earlier summaries ------------------------------------------------------------------


def _add_earlier(material: Material, message: Message, stretch: int, position: int) -> None:
    """Read an earlier summary back: records as records, each line as whose it is."""
    text = content_of(message).removeprefix(SUMMARY_PREFIX)
    try:
        sections = parse_summary(text)
    except SummaryError:  # somebody else's summary: its sentences are facts
        sections = {FACTS: text}
    for number, (key, line) in enumerate(_lines_of(sections)):
        read = read_line(line)
        if read is not None and key in (FACTS, PATHS):
            origin, values = read
            name, _, about = origin.partition(" ")
            if origin in ("the user", "the assistant"):
                name, about = origin, ""
            record = Record(stretch, position, name, about, is_earlier=True)
            material.index.add_earlier(record, values, origin.startswith("the "))
        elif key == PATHS and not origin_in(line)[0]:
            name, _, about = line.partition(" ")
            record = Record(stretch, position, name, about, is_earlier=True)
            material.index.add_command(record, line)
        else:
            rank = _rank_of(key, line, number == 0)
            material.lines.append(Line(key, rank, line, stretch, position, earlier=True))


def _lines_of(sections: dict[str, str]) -> Iterator[tuple[str, str]]:
    for key, body in sections.items():
        for line in body.splitlines():
            copied = fold(line.strip().removeprefix("- "))
            if copied.rstrip(".。").lower() not in NOTHING.values() and can_be_copied(copied):
                yield key, copied


def _rank_of(key: str, line: str, is_first: bool) -> int:
    if is_assistants(line):
        return OPENING if key == UNFINISHED else CONCLUDED
    if key == CHANGES:
        return CONCLUDED if is_done(without_mark(line)) else CHANGED
    if origin_in(line)[0]:
        return REPORTED
    if PIN.search(line):
        return PINNED
    if key == UNFINISHED:
        return OPENING
    return TASK if is_first or is_rule(line) else SAID
