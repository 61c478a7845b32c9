"""Day 3: when to compact, and who fills the window.

What the statements promise, and which cases look at it (every one under every seed):

| property of ``should_compact`` | fixed | drawn |
|---|---|---|
| the share decides: not turns, not messages, not one | long, short, MANY, FEW, LARGE | both |
| every message counts, whoever wrote it, and whichever is last | SYSTEM alone | each ending |
| strictly above; exactly at the line is served, at every border | 63 of 90 | hairs of floats |
| a line between two whole numbers stays where it is | 701 of 1001 | windows of all kinds |
| threshold, counter and tools are those that are handed in | 97 of 100 | each, to the token |

| property of ``budget_table`` | fixed | drawn |
|---|---|---|
| seven rows in their order, the empty ones too | long, no message at all | all paths |
| they add up to the counter's total | long | each table |
| largest remainder of unrounded estimates, by the counter's prices | SHARED | dear, seen, without |
| the messages' part is never more than the total | | a counter that takes off for tools |
| what no message holds goes to the system instructions | tools, FRAMED | tools, an odd counter |
| the allowance is rounded by ``round``; above it is over | HALVES, 10 | up, down, just it |
| the first rule that matches decides the path | CONTESTED | all paths |
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
from grader.checks.borders import HIGH, LOW, window_with_hair
from grader.checks.check import check
from grader.checks.histories import calls, of_tokens, piece_of_work, result, talk, tokens_of
from grader.checks.spell import Named, bare
from grader.checks.trial import Given, Known, Trial, given
from grader.checks.values import same
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
class _Odd:
    """A counter of its own, without prices: so much more, a frame, and so much off for tools."""

    times: float = 1
    frame: int = 0
    with_tools: int = 0

    def count(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the tokens."""
        usual = int(TokenMeter().count(messages, tools) * self.times)
        return max(0, usual + self.frame + (self.with_tools if tools else 0))


@dataclass(frozen=True)
class _Flat:
    """A counter that makes little work of a long history: every message costs the same."""

    def count(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the tokens."""
        return 5 * len(messages)


_FLAT = Named(_Flat(), "a counter of 5 tokens a message")
_PRICEY = Named(_Odd(times=4 / 3), "a counter that counts a third more")
_TAKES_OFF = Named(_Odd(with_tools=-400), "a counter that counts less where there are tools")
_FRAMED = Named(_Odd(frame=7), "a counter that adds 7 tokens for the frame")


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
_MANY = [{"role": role, "content": "ok"} for _ in range(200) for role in ("user", "assistant")]
_FEW = [{"role": "user", "content": "log " * 2000}, {"role": "assistant", "content": "Read."}]
_LARGE = [{"role": "tool", "tool_call_id": "a", "content": "a line of output\n" * 6000}]
_SYSTEM = [{"role": "system", "content": "Be brief. " * 40}, {"role": "user", "content": "And?"}]
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
        given(_MANY, 1_000_000, meter=_FLAT),
        given(_FEW, 2_000, meter=_fresh()),
        # At the line, and no float misses it; below it, and above it.
        given(of_tokens(Random(1), 70, 2), 100, meter=_fresh()),
        given(of_tokens(Random(2), 41, 2), 100, meter=_fresh()),
        given(of_tokens(Random(3), 87, 2), 100, meter=_fresh()),
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
    trial(_MANY, 1_000_000, meter=_FLAT)
    trial(_FEW, 2_000, meter=_fresh())
    trial(_FEW, 1_000_000, meter=_fresh())
    trial([], 100, meter=_fresh())
    # Half of the window is far from the line, and the whole of it is above; in one message, in
    # a result alone, in the system message, and with each kind of message at the end.
    output = [calls(rng, "a"), result(rng, "a", lines=rng.randint(60, 90))]
    for history in (
        _LARGE,
        _SYSTEM,
        of_tokens(rng, rng.randint(2_000, 9_000), 1),
        output,
        [*output, calls(rng, "b")],
        [*output, *talk(rng, rng.choice((1, 2)))],
    ):
        tokens = tokens_of(history)
        trial(history, 2 * tokens, meter=_fresh())
        trial(history, tokens, meter=_fresh())


def _on_both_sides(trial: Trial, rng: Random) -> None:
    def at(tokens: int, window: int, **options: Any) -> None:
        trial(of_tokens(rng, tokens, rng.randint(1, 4)), window, **options, meter=_fresh())

    window = 400 * rng.randint(3, 20)
    line = round(0.70 * window)
    at(line - rng.randint(1, line // 3), window)
    at(line + rng.randint(2, line // 3), window)
    # Where the product of two floats misses the whole number on the line.
    for threshold in (0.70, rng.choice(LOW), rng.choice(HIGH)):
        missed = window_with_hair(rng, threshold)
        options = {} if threshold == 0.70 else {"threshold": threshold}
        for beside in (0, 1):
            at(round(line_tokens(missed, threshold)) + beside, missed, **options)
    # Lines between two whole numbers: a little above the lower one, and below the upper one.
    for odd in (rng.randrange(1001, 6000, 10), rng.randrange(1002, 6000, 10)):
        for beside in (0, 1):
            at(math.floor(line_tokens(odd, 0.70)) + beside, odd)


def _what_is_handed_in(trial: Trial, rng: Random) -> None:
    for threshold, tokens in ((0.97, 960), (0.97, 980), (0.5, 510), (0.3, 299)):
        trial(of_tokens(rng, tokens, 2), 1000, threshold=threshold, meter=_fresh())
    seen, history = TokenMeter(), of_tokens(rng, rng.randint(300, 900), 4)
    seen.observe(history, round(tokens_of(history) * rng.uniform(1.5, 1.9)))
    # Exactly at the line by the right count, and a token above it.
    for options in (
        {"meter": TokenMeter(Coefficients(1.0, 0.5))},
        {"meter": _PRICEY},
        {"meter": Named(seen, "<one that saw real usage>")},
        {"meter": _fresh(), "tools": _WITH_TOOLS},
        {"meter": _PRICEY, "tools": _WITH_TOOLS},
    ):
        tokens = bare(options["meter"]).count(history, bare(options.get("tools")))
        for window in (2 * tokens, 2 * tokens - 1):
            trial(history, window, threshold=0.5, **options)


# --- budget_table -----------------------------------------------------------------------


def _ties(given: Given) -> frozenset[str]:
    """Return the paths whose last token is a tie that may fall either way."""
    messages, meter = given.args[0], given.kwargs["meter"]
    prices = getattr(meter, "coefficients", DEFAULT)
    weights = {name: size.tokens(prices) for name, size in sizes_by_path(messages).items()}
    whole = sum(map(Fraction, weights.values()))
    if not whole:
        return frozenset()
    shared = min(meter.count(messages, given.kwargs.get("tools")), meter.count(messages))
    exact = {name: shared * Fraction(weight) / whole for name, weight in weights.items()}
    lost = {name: value - math.floor(value) for name, value in exact.items()}
    spare = round(sum(lost.values()))
    if not 0 < spare < len(lost):
        return frozenset()
    last_in, first_out = sorted(lost.values(), reverse=True)[spare - 1 : spare + 1]
    # A hair apart is a tie, too: it depends on the order in which floats are added.
    if last_in - first_out > 1e-9:
        return frozenset()
    return frozenset(name for name, value in lost.items() if abs(value - last_in) < 1e-9)


def _rows_agree(given: Given, due: list[Row], rows: list[Row]) -> bool:
    if same(due, rows):
        return True
    return (
        len(due) == len(rows)
        and sum(row.tokens for row in due) == sum(row.tokens for row in rows)
        and not _first_difference(given, due, rows)
    )


def _first_difference(given: Given, due: list[Row], rows: list[Row]) -> tuple[Row, Row] | None:
    ties = _ties(given)
    for right, seen in zip(due, rows, strict=True):
        named = (right.path, right.allowance) == (seen.path, seen.allowance)
        near = abs(right.tokens - seen.tokens) <= (right.path in ties)
        if not (named and near and seen.over == (seen.tokens > seen.allowance)):
            return right, seen
    return None


def _tell_rows(given: Given, due: list[Row], rows: list[Row]) -> tuple[str, str]:
    if len(due) != len(rows):
        names = ", ".join(row.path for row in rows)
        return (
            f"{len(due)} rows, one for each path, empty ones too",
            f"{len(rows)} rows: {names or 'none'}",
        )
    if [row.path for row in due] != [row.path for row in rows]:
        return _paths(due), _paths(rows)
    totals = [sum(row.tokens for row in table) for table in (due, rows)]
    parted = _first_difference(given, due, rows)
    if parted is None:
        return f"rows that add up to {totals[0]} tokens", f"rows that add up to {totals[1]}"
    added = f" (the rows add up to {totals[1]} tokens, not to {totals[0]})"
    return _row(parted[0]), _row(parted[1]) + (added if totals[0] != totals[1] else "")


def _paths(rows: list[Row]) -> str:
    return ", ".join(row.path for row in rows)


def _row(row: Row) -> str:
    return f"{row.path}: {row.tokens} tokens of {row.allowance}, {'' if row.over else 'not '}over"


def _say_rows(given: Given, rows: list[Row]) -> str:
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


def _allowing(allowance: Callable[[int, float], int]) -> Callable[..., list[Row]]:
    """Return a table with other allowances."""

    def change(row: Row, call: Mapping[str, Any]) -> Row:
        share = next(path.share for path in PATHS if path.name == row.path)
        allowed = allowance(call["window"], share)
        return dataclasses.replace(row, allowance=allowed, over=row.tokens > allowed)

    return _each_row(change)


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
        _allowing(lambda window, share: int(line_tokens(window, share))),
        "the allowance was cut off: it is rounded to the nearest whole token",
    ),
    Known(
        _allowing(lambda window, share: round(window * share)),
        "window * share may be a hair beside a half: line_tokens is not",
    ),
    Known(
        _allowing(lambda window, share: int(line_tokens(window, share) + 0.5)),
        "a half was rounded up: Python's round takes the even neighbour",
    ),
    Known(
        _each_row(lambda row, call: dataclasses.replace(row, over=row.tokens > _share(row, call))),
        "over is what is above the allowance that the row shows, rounded as it is",
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
    agree=_rows_agree,
    say=_say_rows,
    tell=_tell_rows,
)
def budget_rows(trial: Trial, rng: Random) -> str:
    """The table has 7 paths, empty ones too, and adds up to the counter's total."""
    long = load("long")
    rows = trial(Named(long.messages, 'load("long").messages'), long.window, meter=_fresh())
    trial([], 1000, meter=_fresh())
    for tools in (None, _WITH_TOOLS):
        trial([], 1000, meter=_FRAMED, tools=tools)
    for shared in (_SHARED, _contested(rng), _all_paths(rng)):
        trial(shared, rng.randint(300, 900), meter=_fresh())
    # Windows whose allowances lie at a half or do not come out even.
    for window in (*_HALVES, rng.randrange(103, 900, 10), rng.randrange(106, 900, 10)):
        trial(talk(rng, 1), window, meter=_fresh())
    # No room at all for some paths, and one of them has tokens.
    trial([{"role": "system", "content": "You are a careful agent."}], 10, meter=_fresh())
    # Exactly the allowance of the conversation is not over it, one token more is; also where
    # the allowance was rounded up, and where it was rounded down.
    ten = 10 * rng.randint(5, 9)
    for window in (ten, ten + 4, ten + 1):
        allowance = round(line_tokens(window, 0.40))
        for beside in (0, 1):
            trial(of_tokens(rng, allowance + beside, 2), window, meter=_fresh())
    _counted_in_other_ways(trial, rng)
    empty = sum(row.tokens == 0 for row in rows)
    over = ", ".join(f"{row.path} {row.tokens} of {row.allowance}" for row in rows if row.over)
    return (
        f"✓ {len(rows)} paths, {empty} of them empty, add up to "
        f"{sum(row.tokens for row in rows)} tokens; over: {over or 'none'}"
    )


# At 7 %, a half: 10.5, which the product of floats misses, and at 5 %, 2.5.
_HALVES = (150, 50)
# No two ways to come from fractions to whole tokens share this out alike.
_SHARED: list[Message] = [
    {"role": "system", "content": "x" * 38},
    {"role": "user", "content": PROJECT_PREFIX + "x" * 24},
    {"role": "user", "content": MEMORY_PREFIX + "x" * 11},
    {"role": "user", "content": REFERENCE_PREFIX + "x" * 24},
    {"role": "user", "content": "好好好" + "x" * 12},
    {"role": "tool", "tool_call_id": "a", "content": "x" * 21},
]


def _counted_in_other_ways(trial: Trial, rng: Random) -> None:
    # The counter's own prices weigh the paths: Chinese text is dearer or cheaper by them.
    for prices in (Coefficients(2.0, 0.125), Coefficients(0.5, 0.5)):
        trial(_all_paths(rng), 2000, meter=TokenMeter(prices))
    trial(_all_paths(rng), 4000, meter=_fresh(), tools=_WITH_TOOLS)
    for counter in (_PRICEY, _TAKES_OFF):
        trial(_all_paths(rng), 2000, meter=counter, tools=_WITH_TOOLS)
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
    history += talk(rng, rng.randint(1, 3))
    # A tool result is never anything else, whatever its text says.
    *trip, conclusion = piece_of_work(rng, "b", trips=1, lines=rng.randint(1, 9))
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
