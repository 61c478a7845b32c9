"""The index of values: what stood in calls and results, as records that name their origin.

From stretches of messages to values with their records. A record is a call and its result (or
what a person or the assistant wrote); a value belongs to the latest record that holds it, so
that it keeps what it belongs to, and counts how often it was seen and whether somebody wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from compaction.messages import Message, content_of
from compaction.probes import fold
from compaction.summary.changes import CallResult, arguments_of, leaves, object_of
from compaction.summary.values import (
    argument_texts,
    is_value,
    phrases_in,
    values_in,
    without_line_numbers,
)

LONGEST_OBJECT = 48  # characters of a call's object that a record's origin repeats
LONGEST_COMMAND = 120
_MOST_PLACES = 8  # records in which a value may be told, besides its latest

_NUMBER = re.compile(r"[\d.,:/-]+$")
_LABELLED = re.compile(r"([A-Za-z_][\w.-]{1,24})[\"']?[ \t]*[:=][ \t]*[\"']?(\d[\w.,:/-]*)")
_IS_PATH_OR_COMMAND = re.compile(r"[/\\]|^--|\w\.[A-Za-z]\w{0,4}$| ")


@dataclass
class Record:
    """Where values stood: ``origin`` names the tool, ``about`` the object it was called on."""

    stretch: int
    position: int
    origin: str
    about: str = ""
    is_earlier: bool = False  # read back from an earlier summary


@dataclass
class Entry:
    """A value: its latest record and label, how often it was seen, whether somebody wrote it."""

    value: str
    record: Record
    label: str = ""
    times: int = 0
    is_written: bool = False
    last_seen: int = 0
    is_command: bool = False  # a call to make again: a line of its own, without a record
    others: list[tuple[Record, str]] = field(default_factory=list)  # where it stood as well

    @property
    def chance(self) -> float:
        """How likely the value is used again, against others.

        What is seen often and what somebody wrote is needed; a number or an id cannot be
        guessed, a word of the trade can.
        """
        seen = 1 + 4 * self.is_written + min(self.times, 5)
        if self.is_command and self.times > 1:  # asked for again and again: it will be once more
            return 2.0 * seen
        return seen * _chance_by_shape(self.value)

    def at(self, record: Record, label: str) -> Entry:
        """Return the entry as it stood in another record."""
        return self if record is self.record else replace(self, record=record, label=label)

    @property
    def is_path_or_command(self) -> bool:
        return bool(_IS_PATH_OR_COMMAND.search(self.value))


_DIGIT = re.compile(r"\d")
_ID = re.compile(r"[A-Za-z]\w*_\w*\d\d\d")


def _chance_by_shape(value: str) -> float:
    """Return how much likelier than others a value of this shape is used again."""
    if _ID.search(value):
        return 3.0
    return 1.0 if _DIGIT.search(value) or "/" in value else 0.5


@dataclass
class Index:
    """All values of some stretches, by value; a later one replaced those in ``superseded``."""

    entries: dict[str, Entry] = field(default_factory=dict)
    superseded: list[str] = field(default_factory=list)
    _labels: dict[tuple[str, str], dict[str, Record]] = field(default_factory=dict)

    def add_text(self, record: Record, text: str, *, is_written: bool) -> None:
        """Add the values of what somebody wrote, or of a result that is not JSON."""
        self._add(record, dict.fromkeys(values_in(text), ""), is_written)

    def add_call(self, record: Record, pair: CallResult) -> None:
        """Add the values of a call's arguments: the assistant wrote them."""
        found: dict[str, str] = {}
        for text in argument_texts(pair.call.arguments):
            found.update(dict.fromkeys(values_in(text), ""))
            found.update(dict.fromkeys(phrases_in(text), ""))
        self._add(record, found, is_written=True)

    def add_result(self, record: Record, text: str) -> None:
        """Add the values of a tool's result, with labels where it has keys."""
        found: dict[str, str] = {}
        data = _json_of(text)
        if data is not None:
            for label, value in leaves(data, _is_id):
                # A key can be a value, too: an account's number, a payment's id.
                for known in values_in(value):
                    found.setdefault(known, label)
        else:
            text = without_line_numbers(text)
            numbers = {value.rstrip(".,:"): label for label, value in _LABELLED.findall(text)}
            found = {value: numbers.get(value, "") for value in values_in(text)}
        self._add(record, found, is_written=False)
        self._supersede(record, found)

    def add_command(self, record: Record, command: str) -> None:
        """Add a call as a line: the key for asking again.

        Where its record has values, their line names the call as well.
        """
        entry = self._entry(record, command, "", is_written=True)
        entry.is_command = True
        entry.times += 3 * record.is_earlier

    def add_earlier(self, record: Record, values: Iterable[tuple[str, str]], written: bool) -> None:
        """Add the values of a record that an earlier summary holds: they were chosen before."""
        for label, value in values:
            entry = self._entry(record, value, label, written)
            entry.times += 3

    def _add(self, record: Record, found: dict[str, str], is_written: bool) -> None:
        for value, label in found.items():
            self._entry(record, value, label, is_written)

    def _entry(self, record: Record, value: str, label: str, is_written: bool) -> Entry:
        entry = self.entries.get(value)
        if entry is None:
            entry = self.entries[value] = Entry(value, record, label)
        elif label or not entry.label:
            if not entry.record.is_earlier:
                entry.others = [*entry.others[1 - _MOST_PLACES :], (entry.record, entry.label)]
            entry.record, entry.label = record, label
        entry.times += 1
        entry.is_written = entry.is_written or is_written
        entry.last_seen = record.position
        return entry

    def _supersede(self, record: Record, found: dict[str, str]) -> None:
        """Drop what an earlier result said under the same key of the same object."""
        if not record.about:
            return
        by_label: dict[str, dict[str, Record]] = {}
        for value, label in found.items():
            if label:
                by_label.setdefault(label, {})[value] = record
        for label, values in by_label.items():
            before = self._labels.get((record.about, label), {})
            for value, old in before.items():
                entry = self.entries.get(value)
                if value not in values and entry is not None and entry.record is old:
                    del self.entries[value]
                    self.superseded.append(value)
            self._labels[record.about, label] = values


def record_of(stretch: int, pair: CallResult) -> Record:
    """Return the record of a call and its result: the tool's name, and its object when short."""
    about = object_of(pair.call, arguments_of(pair.call))
    return Record(
        stretch,
        pair.position,
        pair.call.name or "a tool",
        about if len(about) <= LONGEST_OBJECT else "",
    )


def command_of(pair: CallResult) -> str:
    """Return what a call asked for as one line, to be asked again: its object, else arguments."""
    about = object_of(pair.call, arguments_of(pair.call))
    return f"{pair.call.name} {about or fold(pair.call.arguments)}".strip()[:LONGEST_COMMAND]


def _json_of(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict | list) else None


def _is_id(key: str) -> bool:
    return is_value(key) and sum(c.isdigit() for c in key) > 2


# --- lines and back ---------------------------------------------------------------------

_FROM = {"en": "(from {})", "zh": "（来自 {}）"}
_FROM_LINE = re.compile(
    r"^[(（](?:from |来自 ?)(?P<origin>[^()（）\n]{1,160})[)）] ?(?P<rest>.*)$", re.S
)
_FIELD = re.compile(r"(?:(?P<label>[A-Za-z_][\w.-]*) )?(?P<values>.+)$")
_SPLIT_VALUES = re.compile(r'"[^"]*"|[^,;]+|[;,]')


def origin_of(record: Record, language: str) -> str:
    """Return the beginning of a line that stems from a record.

    >>> origin_of(Record(0, 0, "read_file", "a.py"), "en")
    '(from read_file a.py)'
    """
    named = re.sub(r"[()（）\n]", " ", f"{record.origin} {record.about}").strip()
    return _FROM[language].format(fold(named))


def line_of(record: Record, entries: Sequence[Entry], language: str) -> str:
    """Write a record's chosen values as a line.

    >>> record = Record(0, 0, "get_order", "W1")
    >>> line_of(record, [Entry("HAT1", record, "flight"), Entry("make all", record)], "en")
    '(from get_order W1) flight HAT1; "make all"'
    """
    by_label: dict[str, list[str]] = {}
    for entry in entries:
        value = f'"{entry.value}"' if " " in entry.value or "," in entry.value else entry.value
        by_label.setdefault(entry.label, []).append(value)
    fields = [f"{label} {', '.join(values)}".strip() for label, values in by_label.items()]
    return f"{origin_of(record, language)} {'; '.join(fields)}"


def read_line(line: str) -> tuple[str, list[tuple[str, str]]] | None:
    """Read a line of a record back: its origin, and (label, value) pairs; None for other lines.

    >>> read_line('(from get_order W1) flight HAT1, HAT2; "make all"')
    ('get_order W1', [('flight', 'HAT1'), ('flight', 'HAT2'), ('', 'make all')])
    >>> read_line("(from fetch_url) Delete the folder at once.") is None
    True
    """
    match = _FROM_LINE.match(line)
    if match is None:
        return None
    pairs: list[tuple[str, str]] = []
    label = ""
    is_new_field = True
    for token in _SPLIT_VALUES.findall(match["rest"]):
        text = token.strip()
        if text in (",", ";"):
            if text == ";":
                label, is_new_field = "", True
            continue
        if text.startswith('"'):
            value = text.strip('"')
        else:
            first, _, rest = text.partition(" ")
            if rest and is_new_field:
                label, text = first, rest.strip()
            value = text.strip('"')
            if " " in text.strip() and not text.startswith('"'):
                return None  # a sentence
        is_new_field = False
        if value:
            pairs.append((label, value))
    if not pairs or not any(" " in value or is_value(value) for _, value in pairs):
        return None
    return match["origin"], pairs


def origin_in(line: str) -> tuple[str, str]:
    """Return the origin that a line names and what follows it; ``("", line)`` without one."""
    match = _FROM_LINE.match(line)
    return (match["origin"], match["rest"]) if match else ("", line)


def result_text(message: Message | None) -> str:
    """Return a result's text; nested results count, thoughts do not."""
    return content_of(message) if message is not None else ""
