"""Day 3: when to compact, and who fills the window.

What the statements promise, and which cases look at it (every one under every seed):

| property of ``should_compact`` | fixed | drawn |
|---|---|---|
| the share decides: not turns, not messages, not the size of one | long, short, MANY, FEW | both |
| strictly above; exactly at the line is served, at every border | 63 of 90 | hairs of floats |
| a line between two whole numbers stays where it is | 701 of 1001 | windows of all kinds |
| threshold, counter and tools are those that are handed in | the tools of MANY | each |

| property of ``budget_table`` | fixed | drawn |
|---|---|---|
| seven rows in their order, the empty ones too | long, no message at all | all paths |
| they add up to the counter's total | long | each table |
| largest remainder of unrounded estimates, by the counter's prices | long | dear, seen, without |
| what no message holds goes to the system instructions | tools | tools, an odd counter |
| the allowance is rounded, a row is over when it is above it | | windows, the allowance itself |
| the first rule that matches decides the path | RULES | all paths |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

from compaction.budget import (
    MEMORY_PREFIX,
    PATHS,
    PROJECT_PREFIX,
    REFERENCE_PREFIX,
    Row,
    budget_table,
    line_tokens,
    should_compact,
    sizes_by_path,
)
from compaction.calibration import TokenMeter
from compaction.messages import SUMMARY_PREFIX, Message
from compaction.session import load
from compaction.tokens import DEFAULT, Coefficients
from grader.checks.borders import window_with_hair
from grader.checks.check import check
from grader.checks.histories import calls, of_tokens, piece_of_work, result, talk, tokens_of
from grader.checks.spell import Named
from grader.checks.trial import Given, Known, Trial, given
from grader.starters import day3 as starter

_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "run_command",
            "description": "Run a command in the project's folder and return what it printed. " * 4,
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    }
]
_WITH_TOOLS = Named(_TOOLS, "[1 tool schema]")


@dataclass(frozen=True)
class _Pricey:
    """A counter of its own: it has no prices, and counts a third more than the usual one."""

    def count(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the tokens."""
        return TokenMeter().count(messages, tools) * 4 // 3


def _fresh() -> Named:
    return Named(TokenMeter())


# --- should_compact ---------------------------------------------------------------------


def _say_share(given: Given, view: bool) -> str:
    right = should_compact(*given.args, **given.kwargs)
    if view is not right:
        return str(view)
    messages, window = given.args
    tokens = given.kwargs["meter"].count(messages, given.kwargs.get("tools"))
    threshold = given.kwargs.get("threshold", 0.70)
    line = line_tokens(window, threshold)
    side = "above" if tokens > line else "exactly at" if tokens == line else "below"
    return f"{view} ({tokens} of {window} tokens, {side} the line of {line:g} ({threshold:.0%}))"


Asked = Callable[[Sequence[Message], int, float, Any, Any], bool]


def _asking(rule: Asked) -> Callable[..., bool]:
    def wrong(
        messages: Sequence[Message],
        window: int,
        threshold: float = 0.70,
        meter: Any = None,
        tools: Any = None,
    ) -> bool:
        return bool(rule(messages, window, threshold, meter, tools))

    return wrong


_COUNTED = (
    "counted turns, not tokens: one tool result can fill half a window in one turn, "
    "and ten turns may not fill a tenth"
)
_MANY = [{"role": role, "content": "ok"} for _ in range(100) for role in ("user", "assistant")]
_FEW = [{"role": "user", "content": "log " * 2000}, {"role": "assistant", "content": "Read."}]
_SHARE = [
    Known(starter.should_compact, _COUNTED),
    Known(_asking(lambda m, w, t, c, x: len(m) > 10), _COUNTED),
    Known(
        _asking(lambda m, w, t, c, x: c.count(m) > line_tokens(w, t)),
        "the tool schemas were not counted: they ride along each time",
    ),
    Known(
        _asking(lambda m, w, t, c, x: c.count(m, x) >= line_tokens(w, t)),
        "exactly at the line a request is still served",
    ),
    Known(
        _asking(lambda m, w, t, c, x: c.count(m, x) > w * t),
        "exactly at the line a request is still served, and window * threshold may lie a hair "
        "beside it: line_tokens does not",
    ),
    Known(
        _asking(lambda m, w, t, c, x: c.count(m, x) > round(line_tokens(w, t))),
        "the line was rounded: between two whole numbers it stays where it is",
    ),
    Known(
        _asking(lambda m, w, t, c, x: c.count(m, x) > math.ceil(line_tokens(w, t))),
        "the line was rounded: between two whole numbers it stays where it is",
    ),
    Known(
        _asking(lambda m, w, t, c, x: c.count(m, x) > line_tokens(w, 0.70)),
        "the threshold that is handed in was not used",
    ),
    Known(
        _asking(lambda m, w, t, c, x: TokenMeter().count(m, x) > line_tokens(w, t)),
        "the meter that is handed in was not asked: its count decides",
    ),
]


@check(
    "trigger-proportion",
    day=3,
    of=should_compact,
    returns=bool,
    known=_SHARE,
    evidence=[
        # Every way to count turns says yes to the first and no to the second.
        given(_MANY, 1_000_000, meter=_fresh()),
        given(_FEW, 2_000, meter=_fresh()),
        # At the line, and no float misses it.
        given(of_tokens(Random(1), 70, 2), 100, meter=_fresh()),
    ],
    say=_say_share,
)
def trigger_proportion(trial: Trial, rng: Random) -> str:
    """Compaction is triggered by the share of the window in use, not by the number of turns."""
    long, short = load("long"), load("short")
    trial(Named(long.messages, 'load("long").messages'), long.window, meter=_fresh())
    trial(Named(short.messages, 'load("short").messages'), short.window, meter=_fresh())
    # 0.7 * 90 is a hair under 63, and 0.7 * 1001 lies between two whole numbers.
    trial(of_tokens(rng, 63, 2), 90, meter=_fresh())
    trial(of_tokens(rng, 64, 2), 90, meter=_fresh())
    for tokens in (700, 701):
        trial(of_tokens(rng, tokens, 4), 1001, meter=_fresh())
    _neither_turns_nor_size(trial, rng)
    _on_both_sides(trial, rng)
    _what_is_handed_in(trial, rng)
    return (
        f"✓ same {len(long.messages)} messages, same turns: the long one triggers at "
        f"{tokens_of(long.messages)} tokens, the short one does not at {tokens_of(short.messages)}"
    )


def _neither_turns_nor_size(trial: Trial, rng: Random) -> None:
    trial(_MANY, 1_000_000, meter=_fresh())
    trial(_FEW, 2_000, meter=_fresh())
    trial(_FEW, 1_000_000, meter=_fresh())
    trial([], 100, meter=_fresh())
    # Long, and far below its line; one message, and above it.
    turns = 2 * rng.randint(25, 80)
    trial(of_tokens(rng, turns * 8, turns), 100 * turns, meter=_fresh())
    size = rng.randint(2_000, 9_000)
    for role in ("user", "assistant"):
        trial([{**of_tokens(rng, size, 1)[0], "role": role}], size, meter=_fresh())
        trial([{**of_tokens(rng, size, 1)[0], "role": role}], 2 * size, meter=_fresh())
    output = [calls(rng, "a"), result(rng, "a", lines=rng.randint(400, 900))]
    trial(output, 20 * tokens_of(output), meter=_fresh())
    trial(output, tokens_of(output), meter=_fresh())


def _on_both_sides(trial: Trial, rng: Random) -> None:
    def at(tokens: int, window: int, **options: Any) -> None:
        messages = of_tokens(rng, tokens, rng.randint(2, 12))
        trial(messages, window, **options, meter=_fresh())

    window = 400 * rng.randint(3, 20)
    line = round(0.70 * window)
    at(line - rng.randint(1, line // 3), window)
    at(line + rng.randint(2, line // 3), window)
    # Where the product of two floats misses the whole number on the line, to either side.
    for threshold in (0.70, rng.choice((0.55, 0.60, 0.90)), rng.choice((0.35, 0.85, 0.95))):
        for missed in (
            window_with_hair(rng, threshold, low=True),
            window_with_hair(rng, threshold, low=False),
        ):
            options = {} if threshold == 0.70 else {"threshold": threshold}
            for beside in (0, 1):
                at(round(line_tokens(missed, threshold)) + beside, missed, **options)
    # Lines between two whole numbers.
    for _ in range(4):
        odd = rng.randrange(1001, 6000, 10) + rng.choice((0, 2, 4, 6))
        at(math.floor(line_tokens(odd, 0.70)), odd)
        at(math.floor(line_tokens(odd, 0.70)) + 1, odd)


def _what_is_handed_in(trial: Trial, rng: Random) -> None:
    window = 400 * rng.randint(3, 20)
    line = round(0.70 * window)

    def at(tokens: int, **options: Any) -> None:
        trial(of_tokens(rng, tokens, rng.randint(2, 8)), window, **{"meter": _fresh(), **options})

    for threshold in (0.5, 0.9):
        at(round(window * rng.uniform(0.55, 0.68)), threshold=threshold)
        at(round(window * rng.uniform(0.72, 0.88)), threshold=threshold)
    half = TokenMeter(Coefficients(1.0, 0.5))
    at(round(0.45 * window), meter=half)
    at(round(0.60 * window), meter=Named(_Pricey(), "a counter that counts a third more"))
    seen, history = TokenMeter(), of_tokens(rng, round(0.45 * window), 4)
    seen.observe(history, round(0.80 * window))
    trial(history, window, meter=Named(seen, "<one that saw real usage>"))
    at(line - 40, tools=_WITH_TOOLS)
    at(line - 300, tools=_WITH_TOOLS)


# --- budget_table -----------------------------------------------------------------------

View = tuple[list[Row], frozenset[str]]


def _rows(given: Given, rows: list[Row]) -> View:
    """Return the rows, and the paths whose last token is a tie that may fall either way."""
    messages, _window, meter = given.args[0], given.args[1], given.kwargs["meter"]
    prices = getattr(meter, "coefficients", DEFAULT)
    weights = {name: size.tokens(prices) for name, size in sizes_by_path(messages).items()}
    whole = sum(map(Fraction, weights.values()))
    if not whole:
        return rows, frozenset()
    shared = min(meter.count(messages, given.kwargs.get("tools")), meter.count(messages))
    exact = {name: shared * Fraction(weight) / whole for name, weight in weights.items()}
    lost = {name: value - math.floor(value) for name, value in exact.items()}
    spare = round(sum(lost.values()))
    if not 0 < spare < len(lost):
        return rows, frozenset()
    last_in, first_out = sorted(lost.values(), reverse=True)[spare - 1 : spare + 1]
    # A hair apart is a tie, too: it depends on the order in which floats are added.
    if last_in - first_out > 1e-9:
        return rows, frozenset()
    return rows, frozenset(name for name, value in lost.items() if abs(value - last_in) < 1e-9)


def _rows_agree(right: View, seen: View) -> bool:
    (due, ties), rows = right, seen[0]
    return (
        len(due) == len(rows)
        and sum(row.tokens for row in due) == sum(row.tokens for row in rows)
        and all(_row_agrees(*pair, ties) for pair in zip(due, rows, strict=True))
    )


def _row_agrees(right: Row, seen: Row, ties: frozenset[str]) -> bool:
    return (
        (right.path, right.allowance) == (seen.path, seen.allowance)
        and abs(right.tokens - seen.tokens) <= (right.path in ties)
        and seen.over == (seen.tokens > seen.allowance)
    )


def _tell_rows(given: Given, right: View, seen: View) -> tuple[str, str]:
    (due, ties), rows = right, seen[0]
    if len(due) != len(rows):
        names = ", ".join(row.path for row in rows)
        return (
            f"{len(due)} rows, one a path, empty ones too",
            f"{len(rows)} rows: {names or 'none'}",
        )
    if [row.path for row in due] != [row.path for row in rows]:
        return _paths(due), _paths(rows)
    totals = [sum(row.tokens for row in table) for table in (due, rows)]
    added = f" (the rows add up to {totals[1]} tokens, not to {totals[0]})"
    for pair in zip(due, rows, strict=True):
        if not _row_agrees(*pair, ties):
            return _row(pair[0]), _row(pair[1]) + (added if totals[0] != totals[1] else "")
    return f"rows that add up to {totals[0]} tokens", f"rows that add up to {totals[1]}"


def _paths(rows: list[Row]) -> str:
    return ", ".join(row.path for row in rows)


def _row(row: Row) -> str:
    return f"{row.path}: {row.tokens} tokens of {row.allowance}, {'' if row.over else 'not '}over"


def _say_rows(given: Given, view: View) -> str:
    rows = view[0]
    return f"{len(rows)} rows that add up to {sum(row.tokens for row in rows)} tokens"


Rebuilt = Callable[[Row, Mapping[str, Any]], Row]


def _each_row(change: Rebuilt) -> Callable[..., list[Row]]:
    """Return a table whose rows are changed: ``change(row, the call)``."""

    def wrong(
        messages: Sequence[Message], window: int, meter: Any = None, tools: Any = None
    ) -> list[Row]:
        call = {"messages": messages, "window": window, "meter": meter, "tools": tools}
        return [change(row, call) for row in budget_table(messages, window, meter, tools)]

    return wrong


def _tokens_are(row: Row, tokens: int) -> Row:
    return dataclasses.replace(row, tokens=tokens, over=tokens > row.allowance)


def _own_estimate(row: Row, call: Mapping[str, Any]) -> Row:
    prices = getattr(call["meter"], "coefficients", DEFAULT)
    return _tokens_are(row, math.ceil(sizes_by_path(call["messages"])[row.path].tokens(prices)))


def _without_tools(messages: Any, window: int, meter: Any = None, tools: Any = None) -> list[Row]:
    return budget_table(messages, window, meter)


def _by_default_prices(
    messages: Any, window: int, meter: Any = None, tools: Any = None
) -> list[Row]:
    class Bare:
        count = meter.count

    return budget_table(messages, window, Bare(), tools)


def _leftover_in_front(
    messages: Any, window: int, meter: Any = None, tools: Any = None
) -> list[Row]:
    """Round down, and give what is left over to the first paths."""
    rows = budget_table(messages, window, meter, tools)
    prices = getattr(meter, "coefficients", DEFAULT)
    weights = {name: size.tokens(prices) for name, size in sizes_by_path(messages).items()}
    whole = sum(weights.values())
    if not whole:
        return rows
    shared = min(meter.count(messages, tools), meter.count(messages))
    parts = {name: int(shared * weight / whole) for name, weight in weights.items()}
    for name in list(parts)[: shared - sum(parts.values())]:
        parts[name] += 1
    parts["system instructions"] += meter.count(messages, tools) - shared
    return [_tokens_are(row, parts[row.path]) for row in rows]


_TABLE = [
    Known(
        lambda *a, **k: [row for row in budget_table(*a, **k) if row.tokens],
        "empty paths are left out: a row of nothing shows where there is room",
    ),
    Known(
        _each_row(_own_estimate),
        "each path was rounded up by itself: seven roundings are more than the counter's one",
    ),
    Known(
        _each_row(lambda row, call: dataclasses.replace(row, over=row.tokens >= row.allowance)),
        "exactly the allowance is not over it",
    ),
    Known(
        _each_row(
            lambda row, call: dataclasses.replace(
                row,
                allowance=int(_share(row, call)),
                over=row.tokens > int(_share(row, call)),
            )
        ),
        "the allowance was cut off: it is rounded to the nearest whole token",
    ),
    Known(
        _leftover_in_front,
        "what is left over goes to the paths that lost the largest fractions, not to the first",
    ),
    Known(_without_tools, "the tool schemas are in the total, too: meter.count(messages, tools)"),
    Known(_by_default_prices, "the counter's own prices weigh the paths: meter.coefficients"),
]


def _share(row: Row, call: Mapping[str, Any]) -> float:
    share = next(path.share for path in PATHS if path.name == row.path)
    return line_tokens(call["window"], share)


@check(
    "budget-table",
    day=3,
    of=budget_table,
    returns=[Row],
    known=_TABLE,
    view=_rows,
    agree=_rows_agree,
    say=_say_rows,
    tell=_tell_rows,
)
def budget_rows(trial: Trial, rng: Random) -> str:
    """The table has 7 paths, empty ones too, and adds up to the counter's total."""
    long = load("long")
    rows = trial(Named(long.messages, 'load("long").messages'), long.window, meter=_fresh())
    trial([], 1000, meter=_fresh())
    trial([], 1000, meter=_fresh(), tools=_WITH_TOOLS)
    trial(talk(rng, 4), 1000, meter=_fresh())
    for _ in range(4):
        trial(_all_paths(rng), rng.randint(300, 9000), meter=_fresh())
    trial(_contested(rng), 900, meter=_fresh())
    # Windows whose allowances do not come out even, on either side of a half.
    for window in (rng.randrange(101, 900, 10) + part for part in (0, 3, 6)):
        trial(_all_paths(rng), window, meter=_fresh())
    # Exactly the allowance of the conversation is not over it, one token more is.
    full = rng.randint(2, 9)
    trial(of_tokens(rng, 40 * full, 4), 100 * full, meter=_fresh())
    trial(of_tokens(rng, 40 * full + 1, 4), 100 * full, meter=_fresh())
    _counted_in_other_ways(trial, rng)
    empty = sum(row.tokens == 0 for row in rows)
    over = ", ".join(f"{row.path} {row.tokens} of {row.allowance}" for row in rows if row.over)
    return (
        f"✓ {len(rows)} paths, {empty} of them empty, add up to "
        f"{sum(row.tokens for row in rows)} tokens; over: {over or 'none'}"
    )


def _counted_in_other_ways(trial: Trial, rng: Random) -> None:
    # The counter's own prices weigh the paths: Chinese text is dearer or cheaper by them.
    for prices in (Coefficients(2.0, 0.125), Coefficients(0.5, 0.5)):
        trial(_all_paths(rng), 2000, meter=TokenMeter(prices))
    trial(_all_paths(rng), 2000, meter=Named(_Pricey(), "a counter without prices"))
    trial(_all_paths(rng), 4000, meter=_fresh(), tools=_WITH_TOOLS)
    seen, history = TokenMeter(), _all_paths(rng)
    seen.observe(history[:5], round(tokens_of(history[:5]) * rng.uniform(1.1, 1.6)))
    trial(history, 2000, meter=Named(seen, "<one that saw real usage>"))


def _all_paths(rng: Random) -> list[Message]:
    """Return a history that uses most of the paths, and leaves some empty."""
    role = rng.choice(("system", "developer"))
    history: list[Message] = [{"role": role, "content": "You are a careful agent. " * 3}]
    for prefix in (PROJECT_PREFIX, MEMORY_PREFIX, REFERENCE_PREFIX, SUMMARY_PREFIX):
        if rng.random() < 0.6:
            text = f"{prefix}\n{'Build with make. 用中文回答。' * rng.randint(1, 9)}"
            history.append({"role": "user", "content": text})
    history += piece_of_work(rng, "a", lines=rng.randint(1, 9)) + talk(rng, rng.randint(1, 3))
    # A tool result is never anything else, whatever its text says.
    *trip, conclusion = piece_of_work(rng, "b", trips=1)
    trip[-1]["content"] = f"{MEMORY_PREFIX} remember me"
    return [*history, *trip, conclusion]


def _contested(rng: Random) -> list[Message]:
    """Return a history in which every rule has a message that a later rule would claim, too."""
    prefixes = (PROJECT_PREFIX, MEMORY_PREFIX, REFERENCE_PREFIX, SUMMARY_PREFIX)
    history: list[Message] = []
    for role in ("system", "developer"):
        history.append({"role": role, "content": f"{rng.choice(prefixes)} obey. " * 4})
    for first, second in zip(prefixes, prefixes[1:] + prefixes[:1], strict=True):
        history.append({"role": "user", "content": f"{first} {second} 好 " * rng.randint(2, 6)})
        history.append({"role": "user", "content": f"see {first}: " * rng.randint(2, 6)})
        ids = f"c{len(history)}"
        said = {**calls(rng, ids), "content": f"I look at {second} now. " * 2}
        answer = {**result(rng, ids, lines=rng.randint(1, 6))}
        answer["content"] = f"{first} {answer['content']}"
        history += [said, answer]
    parts = [{"type": "text", "text": "Look."}, {"type": "text", "text": f"{prefixes[1]} no"}]
    return [*history, {"role": "user", "content": parts}]
