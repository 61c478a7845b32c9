"""Day 3: when to compact, and who fills the window."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from random import Random
from typing import Any

from compaction.budget import (
    MEMORY_PREFIX,
    PATHS,
    PROJECT_PREFIX,
    REFERENCE_PREFIX,
    Row,
    line_tokens,
    sizes_by_path,
)
from compaction.budget import budget_table as library_budget_table
from compaction.budget import should_compact as library_should_compact
from compaction.calibration import TokenMeter
from compaction.messages import SUMMARY_PREFIX, Message
from compaction.session import load
from compaction.tokens import Coefficients
from grader.checks.check import Check, Function
from grader.checks.histories import of_tokens, outline, piece_of_work, talk, tokens_of
from grader.checks.trial import Given, Known, Trial, given
from grader.starters import day3 as starter

# --- should_compact ---------------------------------------------------------------------

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


def _question(messages: list[Message], window: int, name: str = "", **options: Any) -> Given:
    shown = name or f"[{len(messages)} messages]"
    words = "".join(f", {key}={_option(value)}" for key, value in options.items())
    options.setdefault("meter", TokenMeter())
    return given(f"should_compact({shown}, {window}{words})", messages, window, **options)


def _option(value: object) -> str:
    if isinstance(value, TokenMeter):
        return f"TokenMeter(Coefficients({value.coefficients.cjk}, {value.coefficients.other}))"
    return f"[{len(value)} tool schema]" if isinstance(value, list) else str(value)


def _share_in_words(given: Given, right: bool, seen: bool) -> tuple[str, str]:
    messages, window = given.args
    tokens = given.kwargs["meter"].count(messages, given.kwargs.get("tools"))
    threshold = given.kwargs.get("threshold", 0.70)
    line = line_tokens(window, threshold)
    side = "above" if tokens > line else "exactly at" if tokens == line else "below"
    reason = f"{tokens} of {window} tokens, {side} the line of {line:g} ({threshold:.0%})"
    return f"{right} ({reason})", str(seen)


def _by_messages(messages: Sequence[Message], *_: object, **__: object) -> bool:
    return len(messages) > 10


def _without_tools(
    messages: Sequence[Message],
    window: int,
    threshold: float = 0.70,
    meter: Any = None,
    tools: object = None,
) -> bool:
    return library_should_compact(messages, window, threshold, meter)


def trigger_proportion(should_compact: Function, rng: Random) -> str:
    """Compaction is triggered by the share of the window in use, not by the number of turns."""
    counted = (
        "counted turns, not tokens: one tool result can fill half a window in one turn, "
        "and ten turns may not fill a tenth"
    )
    many = [{"role": role, "content": "ok"} for _ in range(100) for role in ("user", "assistant")]
    few = [{"role": "user", "content": "log " * 2000}, {"role": "assistant", "content": "Read."}]
    trial = Trial(
        should_compact,
        library_should_compact,
        bool,
        known=[
            Known(starter.should_compact, counted),
            Known(_by_messages, counted),
            Known(_without_tools, "the tool schemas were not counted: they ride along each time"),
        ],
        # Every way to count turns says yes to the first and no to the second.
        evidence=[_question(many, 1_000_000), _question(few, 2_000)],
        tell=_share_in_words,
    )
    long, short = load("long"), load("short")
    trial.on(_question(long.messages, long.window, 'load("long").messages'))
    trial.on(_question(short.messages, short.window, 'load("short").messages'))
    _drawn_questions(trial, rng)
    return (
        f"✓ same {len(long.messages)} messages, same turns: the long one triggers at "
        f"{tokens_of(long.messages)} tokens, the short one does not at {tokens_of(short.messages)}"
    )


def _drawn_questions(trial: Trial, rng: Random) -> None:
    def at(tokens: int) -> list[Message]:
        return of_tokens(rng, tokens, rng.randint(2, 12))

    window = 400 * rng.randint(3, 20)
    line = round(0.70 * window)
    turns = 2 * rng.randint(25, 40)
    trial.on(_question(of_tokens(rng, turns * 8, turns), 100 * turns))
    trial.on(_question(at(line - rng.randint(1, line // 3)), window))
    trial.on(_question(at(line + rng.randint(2, line // 3)), window))
    # Exactly at the line still serves. Windows of 400 keep both 0.7 and 0.5 of them whole.
    exact = next(w for w in range(window, 2 * window + 4000, 400) if _is_exact(w))
    trial.on(_question(at(round(0.70 * exact)), exact))
    trial.on(_question(at(round(0.70 * exact) + 1), exact))
    for threshold in (0.5, 0.9):
        between = round(window * rng.uniform(0.55, 0.68))
        trial.on(_question(at(between), window, threshold=threshold))
    # The counter that is handed in counts, and so do the tools that ride along.
    half = TokenMeter(Coefficients(1.0, 0.5))
    trial.on(_question(at(round(0.45 * window)), window, meter=half))
    trial.on(_question(at(line - 40), window, tools=_TOOLS))


def _is_exact(window: int) -> bool:
    """Say whether 70 % of a window is the same in every way of working it out."""
    line = round(0.70 * window)
    return 0.70 * window == line and line / window <= 0.70 and line * 10 == 7 * window


# --- budget_table -----------------------------------------------------------------------


def _table(
    messages: list[Message], window: int, meter: TokenMeter | None = None, **options: Any
) -> Given:
    shown = options.pop("name", "") or outline(messages, 8)
    words = "".join(f", {key}={_option(value)}" for key, value in options.items())
    if meter:
        words += f", meter={_option(meter) if not meter.samples else '<one that saw real usage>'}"
    options["meter"] = meter or TokenMeter()
    return given(f"budget_table({shown}, {window}{words})", messages, window, **options)


def _rows_agree(right: list[Row], seen: list[Row]) -> bool:
    """Ties of the largest remainder may fall either way: a row may be one token off."""
    return (
        [(row.path, row.allowance) for row in right] == [(row.path, row.allowance) for row in seen]
        and sum(row.tokens for row in right) == sum(row.tokens for row in seen)
        and all(_row_agrees(*pair) for pair in zip(right, seen, strict=True))
    )


def _row_agrees(right: Row, seen: Row) -> bool:
    return (
        (right.path, right.allowance) == (seen.path, seen.allowance)
        and abs(right.tokens - seen.tokens) <= 1
        and seen.over == (seen.tokens > seen.allowance)
    )


def _tell_rows(given: Given, right: list[Row], seen: list[Row]) -> tuple[str, str]:
    if len(right) != len(seen):
        names = ", ".join(row.path for row in seen)
        return f"{len(right)} rows, one a path", f"{len(seen)} rows: {names or 'none'}"
    for pair in zip(right, seen, strict=True):
        if not _row_agrees(*pair):
            return _row(pair[0]), _row(pair[1])
    totals = [sum(row.tokens for row in rows) for rows in (right, seen)]
    return f"rows that add up to {totals[0]} tokens", f"rows that add up to {totals[1]}"


def _row(row: Row) -> str:
    return f"{row.path}: {row.tokens} tokens of {row.allowance}, {'' if row.over else 'not '}over"


def _without_empty_rows(*args: Any, **kwargs: Any) -> list[Row]:
    return [row for row in library_budget_table(*args, **kwargs) if row.tokens]


def _each_path_alone(
    messages: list[Message], window: int, meter: TokenMeter, tools: object = None
) -> list[Row]:
    sizes = sizes_by_path(messages)
    counted = {name: math.ceil(size.tokens(meter.coefficients)) for name, size in sizes.items()}
    return [
        dataclasses.replace(row, tokens=counted[row.path], over=counted[row.path] > row.allowance)
        for row in library_budget_table(messages, window, meter)
    ]


def budget_rows(budget_table: Function, rng: Random) -> str:
    """Seven rows, one a path, the empty ones too; they add up to the counter's total."""
    known = [
        Known(
            _without_empty_rows,
            "empty paths are left out: a row of nothing shows where there is room",
        ),
        Known(
            _each_path_alone,
            "each path was rounded up by itself: seven roundings are more than the counter's one",
        ),
    ]
    trial = Trial(
        budget_table,
        library_budget_table,
        [Row],
        known=known,
        agree=_rows_agree,
        tell=_tell_rows,
    )
    long = load("long")
    rows = trial.on(_table(long.messages, long.window, name='load("long").messages'))
    for _ in range(4):
        trial.on(_table(_all_paths(rng), 100 * rng.randint(6, 90)))
    trial.on(_table(talk(rng, 4), 1000))
    # Exactly the allowance of the conversation is not over it.
    full = rng.randint(2, 9)
    trial.on(_table(of_tokens(rng, 40 * full, 4), 100 * full))
    # The counter's own prices weigh the paths: Chinese text is dearer or cheaper by them.
    dear = TokenMeter(Coefficients(2.0, 0.125))
    trial.on(_table(_all_paths(rng), 2000, meter=dear))
    trial.on(_table(_all_paths(rng), 4000, tools=_TOOLS))
    seen, history = TokenMeter(), _all_paths(rng)
    seen.observe(history[:5], round(tokens_of(history[:5]) * rng.uniform(1.1, 1.6)))
    trial.on(_table(history, 2000, meter=seen))
    empty = sum(row.tokens == 0 for row in rows)
    over = ", ".join(f"{row.path} {row.tokens} of {row.allowance}" for row in rows if row.over)
    return (
        f"✓ {len(rows)} paths, {empty} of them empty, add up to "
        f"{sum(row.tokens for row in rows)} tokens; over: {over or 'none'}"
    )


def _all_paths(rng: Random) -> list[Message]:
    """Return a history that uses most of the paths, and leaves some empty."""
    history: list[Message] = [{"role": "system", "content": "You are a careful agent. " * 3}]
    for prefix in (PROJECT_PREFIX, MEMORY_PREFIX, REFERENCE_PREFIX, SUMMARY_PREFIX):
        if rng.random() < 0.6:
            text = f"{prefix}\n{'Build with make. 用中文回答。' * rng.randint(1, 9)}"
            history.append({"role": "user", "content": text})
    history += piece_of_work(rng, "a", lines=rng.randint(1, 9)) + talk(rng, rng.randint(1, 3))
    # A tool result is never anything else, whatever its text says.
    *trip, conclusion = piece_of_work(rng, "b", trips=1)
    trip[-1]["content"] = f"{MEMORY_PREFIX} remember me"
    return [*history, *trip, conclusion]


CHECKS = (
    Check(
        "trigger-proportion",
        3,
        "should_compact",
        "Compaction is triggered by the share of the window in use, not by the number of turns.",
        trigger_proportion,
    ),
    Check(
        "budget-table",
        3,
        "budget_table",
        f"The table has {len(PATHS)} paths, empty ones too, and adds up to the counter's total.",
        budget_rows,
    ),
)
