"""Day 3: decide by proportion, and see which of seven paths fills the window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from compaction.calibration import Size, meter, size_of
from compaction.messages import (
    CHECKLIST_PREFIX,
    MEMORY_PREFIX,
    PROJECT_PREFIX,
    REFERENCE_PREFIX,
    SUMMARY_PREFIX,
    Message,
    content_of,
)
from compaction.tokens import DEFAULT, Coefficients, about

__all__ = [
    "CHECKLIST_PREFIX",
    "MEMORY_PREFIX",
    "PATHS",
    "PROJECT_PREFIX",
    "REFERENCE_PREFIX",
    "Counter",
    "Path",
    "Row",
    "at_most",
    "budget_table",
    "in_words",
    "line_tokens",
    "path_of",
    "should_compact",
    "sizes_by_path",
]


class Counter(Protocol):
    """Anything that counts a history's tokens; ``TokenMeter`` is the usual one."""

    def count(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the prompt tokens of the messages and tool schemas."""
        ...


def at_most(
    meter: Counter,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> int:
    """Return the count to decide with: the meter's upper bound, or its count where it has none.

    >>> from compaction.calibration import FeatureMeter, TokenMeter
    >>> history = [{"role": "user", "content": "Please read calc.py"}]
    >>> at_most(TokenMeter(), history), at_most(FeatureMeter(), history)
    (7, 13)
    """
    bound = getattr(meter, "at_most", None)
    return meter.count(messages, tools) if bound is None else bound(messages, tools)


def in_words(
    meter: Counter,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Say a count the way it is shown to a person: with its bound, where the meter has one.

    >>> from compaction.calibration import FeatureMeter, TokenMeter
    >>> history = [{"role": "user", "content": "Please read calc.py"}]
    >>> in_words(TokenMeter(), history)
    'about 7 tokens'
    >>> in_words(FeatureMeter(), history)
    'about 9 tokens, at most 13'
    """
    return about(meter.count(messages, tools), at_most(meter, messages, tools))


@dataclass(frozen=True)
class Path:
    """One way in which tokens enter the window; ``share`` is its allowance, a fraction."""

    name: str
    nature: str
    share: float


PATHS = (
    Path("system instructions", "permanent, constant", 0.03),
    Path("project instruction file", "permanent, constant", 0.10),
    Path("memory", "permanent, grows slowly", 0.05),
    Path("injected references", "one-off, controllable", 0.20),
    Path("compaction summaries", "accumulate, must be limited", 0.07),
    Path("conversation", "grows every turn", 0.40),
    Path("tool results", "grow fastest", 0.15),
)
"""The seven paths; their shares add up to the whole window."""


@dataclass(frozen=True)
class Row:
    """One line of the budget table, all in tokens."""

    path: str
    tokens: int
    allowance: int
    over: bool

    @property
    def used(self) -> float:
        """Return the share of the allowance in use; 1.0 is all of it."""
        if self.allowance == 0:  # a share of a tiny window
            return math.inf if self.tokens else 0.0
        return self.tokens / self.allowance


def line_tokens(window: int, share: float) -> float:
    """Return the tokens at which a share of the window is reached.

    Rounded to a millionth, because 0.7 * 90 is a hair under 63 in floating point and a history
    of exactly 63 tokens must still be served.

    >>> line_tokens(90, 0.7)
    63.0
    """
    if window <= 0:
        raise ValueError(f"window must be a positive number of tokens, not {window}")
    if share <= 0:
        raise ValueError(f"a share of the window must be above 0, not {share}")
    return round(window * share, 6)


def should_compact(
    messages: Sequence[Message],
    window: int,
    threshold: float = 0.70,
    meter: Counter = meter,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> bool:
    """Say whether a history exceeds its share of the window; exactly at the line it does not.

    Not 0.90: compaction itself takes room. The summary request sends the stretch once more,
    and the summary takes space too.

    >>> from compaction.calibration import TokenMeter
    >>> should_compact([{"role": "user", "content": "a" * 400}], 100, meter=TokenMeter())
    True
    """
    return meter.count(messages, tools) > line_tokens(window, threshold)


def path_of(message: Mapping[str, Any]) -> str:
    """Name the path that a message's content belongs to. The first rule that matches wins.

    >>> path_of({"role": "user", "content": "[memory] likes short answers"})
    'memory'
    >>> path_of({"role": "tool", "content": "[memory] likes short answers"})
    'tool results'
    """
    role, text = message.get("role"), content_of(message)
    if role in ("system", "developer"):
        return "system instructions"
    if role == "tool":
        return "tool results"
    if text.startswith(PROJECT_PREFIX):
        return "project instruction file"
    if text.startswith(MEMORY_PREFIX):
        return "memory"
    if text.startswith(REFERENCE_PREFIX):
        return "injected references"
    if text.startswith(SUMMARY_PREFIX):
        return "compaction summaries"
    return "conversation"


def sizes_by_path(messages: Sequence[Message]) -> dict[str, Size]:
    """Measure each path's characters and images; the tool calls of a message are tool results.

    >>> sizes_by_path([{"role": "user", "content": "hi"}])["conversation"]
    Size(cjk=0, other=9, images=0, file_tokens=0)
    """
    sizes = {path.name: Size() for path in PATHS}
    for message in messages:
        whole, path = size_of(message), path_of(message)
        if message.get("role") != "assistant" or not message.get("tool_calls"):
            sizes[path] = sizes[path].plus(whole)
            continue
        said = Size()
        if content_of(message) or whole.images:
            said = size_of({**message, "tool_calls": None})
        sizes[path] = sizes[path].plus(said)
        sizes["tool results"] = sizes["tool results"].plus(whole.minus(said))
    return sizes


def budget_table(
    messages: Sequence[Message],
    window: int,
    meter: Counter = meter,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> list[Row]:
    """Return one row a path, the empty ones too; the rows add up to the counter's total.

    The messages' total is shared out in proportion to the paths' estimates, by largest
    remainder. What the counter holds beyond the messages, such as tool schemas, belongs to
    the system instructions.

    >>> from compaction.calibration import TokenMeter
    >>> rows = budget_table([{"role": "user", "content": "a" * 394}], 1000, TokenMeter())
    >>> [(row.path, row.tokens, row.allowance) for row in rows if row.tokens]
    [('conversation', 101, 400)]
    """
    table: Coefficients = getattr(meter, "coefficients", DEFAULT)
    weights = {name: size.tokens(table) for name, size in sizes_by_path(messages).items()}
    total = meter.count(messages, tools)
    of_messages = min(total, meter.count(messages)) if sum(weights.values()) else 0
    tokens = share_out(of_messages, weights)
    tokens["system instructions"] += total - of_messages
    return [
        Row(path.name, tokens[path.name], allowance, tokens[path.name] > allowance)
        for path in PATHS
        for allowance in [round(line_tokens(window, path.share))]
    ]


def share_out(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Split a whole number by weights so that the parts add up to it (largest remainder).

    >>> share_out(10, {"a": 1.0, "b": 1.0, "c": 1.0})
    {'a': 4, 'b': 3, 'c': 3}
    """
    # Fractions, because a float rounds a large total and the parts would miss it.
    whole = sum(map(Fraction, weights.values()))
    exact = {
        name: total * Fraction(weight) / whole if whole else 0 for name, weight in weights.items()
    }
    parts = {name: math.floor(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: parts[name] - exact[name])
    for name in by_remainder[: total - sum(parts.values()) if whole else 0]:
        parts[name] += 1
    return parts
