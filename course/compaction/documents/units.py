"""A unit: a piece of a source that stays whole, and what binds it to its words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from compaction.probes import fold

BINDING_KINDS = ("instructions", "pinned", "unfinished", "constraint", "decision")
"""Verbatim kinds that are never paraphrased: kept word for word, or named as dropped."""

TURN_KINDS = ("turn", "tool round")
"""Kinds of a conversation's own pieces; the last ones are verbatim, as recent turns."""

_LABEL_CHARACTERS = 60


@dataclass(frozen=True)
class Unit:
    """A piece of a source that stays whole; ``verbatim`` forbids to paraphrase it.

    ``kind`` is one of BINDING_KINDS or TURN_KINDS, or "section", "function", "class", "code",
    "comment", "text", "summary", or a word of your own.

    >>> Unit("Never push to main.\\nThe rest waits.", "constraint", True).label
    'constraint: Never push to main.'
    """

    text: str
    kind: str
    verbatim: bool = False
    name: str = ""

    @property
    def label(self) -> str:
        """Return what a person calls the unit: its name, else its kind and first words."""
        return self.name or f"{self.kind}: {first_words(self.text)}"


def first_words(text: str, characters: int = _LABEL_CHARACTERS) -> str:
    """Return the first line that says something, cut to a number of characters."""
    line = next((fold(line) for line in text.splitlines() if line.strip()), "(empty)")
    return line if len(line) <= characters else line[: max(0, characters - 3)] + "..."


DECISION = re.compile(
    r"\bdecisions?\s*[:：]|\b(?:we|i)(?: have|'ve)? decided\b|\bdecided (?:to|on|against)\b"
    r"|\bagreed\b|\bapproved\b|\baccepted\s*[:：]|\bgo(?:ing)? with\b"
    r"|\blet's (?:use|keep|go|drop)\b|决定|同意|就用",
    re.IGNORECASE,
)
# A document says "must" in passing; there only what is marked as a rule counts as one.
MARKED_RULE = re.compile(
    r"\b(?:MUST|SHALL|NEVER|REQUIRED)\b|(?i:\b(?:constraints?|requirements?|rules?)\s*[:：])"
    r"|(?i:\bmust (?:not|never)\b)|必须|禁止|不得"
)
MARKED_DECISION = re.compile(
    r"\bdecisions?\s*[:：]|\bwe(?: have|'ve)? decided\b|\bstatus\s*[:：]\s*accepted\b|决定",
    re.IGNORECASE,
)
RULE_TITLE = re.compile(
    r"\b(?:constraints?|requirements?|rules?|decisions?)\b|约束|要求|规则|决定", re.IGNORECASE
)


def full_name(prefix: str, name: str) -> str:
    return f"{prefix}: {name}" if prefix else name


# Text with lines: a line ends where an editor and Python's parser see an end, nowhere else.
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def cut(lines: Sequence[str], starts: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) of the pieces that begin at the given lines and at 0."""
    borders = sorted({0, *starts})
    for start, end in zip(borders, [*borders[1:], len(lines)], strict=True):
        if start < end:
            yield start, "".join(lines[start:end])
