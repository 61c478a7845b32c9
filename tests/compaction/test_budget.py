"""Day 3: the trigger by proportion, and the seven paths."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction import budget, messages
from compaction.budget import (
    PATHS,
    Row,
    budget_table,
    line_tokens,
    path_of,
    share_out,
    should_compact,
    sizes_by_path,
)
from compaction.calibration import TokenMeter, size_of
from compaction.messages import SUMMARY_PREFIX
from compaction.session import load
from tests.builders import call, calls, result, user

TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "d" * 400}}]


class Fixed:
    """A counter that answers one number, whatever it is shown."""

    def __init__(self, tokens, with_tools=None):
        self.tokens, self.with_tools = tokens, with_tools if with_tools is not None else tokens

    def count(self, messages, tools=None):
        return self.with_tools if tools else self.tokens


# --- the trigger ----------------------------------------------------------------------------


def test_the_long_session_triggers_and_the_short_one_does_not():
    long, short = load("long"), load("short")
    assert len(long.messages) == len(short.messages) == 14
    assert should_compact(long.messages, long.window, meter=TokenMeter())
    assert not should_compact(short.messages, short.window, meter=TokenMeter())


@pytest.mark.parametrize(
    ("tokens", "window", "threshold", "expected"),
    [
        (700, 1000, 0.70, False),
        (701, 1000, 0.70, True),
        (699, 1000, 0.70, False),
        # In floating point these products lie a hair beside the line.
        (63, 90, 0.7, False),
        (64, 90, 0.7, True),
        (77, 110, 0.7, False),
        (87, 300, 0.29, False),
        (57, 100, 0.57, False),
        (58, 100, 0.57, True),
        (100, 100, 1.0, False),
        (101, 100, 1.0, True),
        (0, 1, 0.7, False),
        (1, 1, 0.7, True),
    ],
)
def test_exactly_at_the_line_still_serves(tokens, window, threshold, expected):
    assert should_compact([], window, threshold, Fixed(tokens)) is expected


@given(st.integers(1, 10**6), st.integers(1, 100))
def test_whole_percents_meet_their_line_exactly(window, percent):
    line = window * percent // 100
    assert should_compact([], window, percent / 100, Fixed(line)) is False
    assert should_compact([], window, percent / 100, Fixed(line + 1)) is True


def test_the_default_threshold_is_seventy_percent():
    assert not should_compact([], 1000, meter=Fixed(700))
    assert should_compact([], 1000, meter=Fixed(701))


def test_it_is_proportion_and_not_turn_count():
    short_turns = [user("ok")] * 60
    one_grep = [user("match " * 600)]
    assert not should_compact(short_turns, 1200, meter=TokenMeter())
    assert should_compact(one_grep, 1200, meter=TokenMeter())


def test_tool_schemas_count_towards_the_line():
    counter = Fixed(600, with_tools=800)
    assert not should_compact([], 1000, meter=counter)
    assert should_compact([], 1000, meter=counter, tools=TOOLS)


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_must_be_positive(window):
    with pytest.raises(ValueError, match="window must be a positive"):
        should_compact([], window, meter=Fixed(1))
    with pytest.raises(ValueError, match="window must be a positive"):
        budget_table([user("x")], window, TokenMeter())


def test_a_share_must_be_positive():
    with pytest.raises(ValueError, match="share of the window"):
        line_tokens(100, 0)


# --- the paths --------------------------------------------------------------------------------


def test_the_seven_paths_and_their_allowances():
    assert [(path.name, path.share) for path in PATHS] == [
        ("system instructions", 0.03),
        ("project instruction file", 0.10),
        ("memory", 0.05),
        ("injected references", 0.20),
        ("compaction summaries", 0.07),
        ("conversation", 0.40),
        ("tool results", 0.15),
    ]
    assert math.fsum(path.share for path in PATHS) == pytest.approx(1.0)
    assert all(path.nature for path in PATHS)


def test_the_agreed_beginnings_are_one_thing():
    for name in ("PROJECT_PREFIX", "MEMORY_PREFIX", "REFERENCE_PREFIX", "CHECKLIST_PREFIX"):
        assert getattr(budget, name) is getattr(messages, name)
    assert (budget.PROJECT_PREFIX, budget.MEMORY_PREFIX) == ("[project]", "[memory]")
    assert (budget.REFERENCE_PREFIX, budget.CHECKLIST_PREFIX) == ("[reference]", "[todo]")


@pytest.mark.parametrize(
    ("role", "text", "expected"),
    [
        ("system", "s", "system instructions"),
        ("developer", "s", "system instructions"),
        # The first rule that matches wins.
        ("system", "[memory] x", "system instructions"),
        ("developer", "[project] x", "system instructions"),
        ("tool", "[memory] x", "tool results"),
        ("tool", "[project] x", "tool results"),
        ("tool", "[reference] x", "tool results"),
        ("tool", f"{SUMMARY_PREFIX} x", "tool results"),
        ("user", "[project] x", "project instruction file"),
        ("assistant", "[project] x", "project instruction file"),
        ("user", "[memory] x", "memory"),
        ("user", "[reference] x", "injected references"),
        ("user", f"{SUMMARY_PREFIX}\nx", "compaction summaries"),
        ("assistant", f"{SUMMARY_PREFIX}\nx", "compaction summaries"),
        ("user", "[todo] x", "conversation"),
        ("assistant", "[todo] x", "conversation"),
        ("user", " [memory] not at the beginning", "conversation"),
        ("user", "see [memory]", "conversation"),
        ("user", "", "conversation"),
        ("assistant", "hello", "conversation"),
    ],
)
def test_path_of(role, text, expected):
    assert path_of({"role": role, "content": text}) == expected
    assert path_of({"role": role, "content": [{"type": "text", "text": text}]}) == expected


def test_a_message_with_calls_is_shared_between_conversation_and_tool_results():
    message = calls(call(), content="I look.")
    sizes = sizes_by_path([message])
    said = size_of({"role": "assistant", "content": "I look."})
    assert sizes["conversation"] == said
    assert sizes["tool results"] == size_of(message).minus(said)


def test_calls_alone_are_tool_results():
    message = calls(call())
    sizes = sizes_by_path([message])
    assert sizes["conversation"].other == 0
    assert sizes["tool results"] == size_of(message)


def test_an_image_belongs_to_the_path_of_its_message():
    part = {"type": "image_url", "image_url": {"url": "data:"}}
    history = [
        user([part]),
        calls(call(), content=[part]),
        result("c1", [part]),
    ]
    sizes = sizes_by_path(history)
    assert (sizes["conversation"].images, sizes["tool results"].images) == (2, 1)


# --- the table --------------------------------------------------------------------------------


def test_the_table_of_the_long_session():
    session = load("long")
    meter = TokenMeter()
    rows = budget_table(session.messages, session.window, meter)
    assert [row.path for row in rows] == [path.name for path in PATHS]
    assert [row.allowance for row in rows] == [54, 180, 90, 360, 126, 720, 270]
    assert sum(row.tokens for row in rows) == meter.count(session.messages) == 1368
    assert [row.path for row in rows if row.over] == ["tool results"]


def test_empty_paths_are_listed():
    rows = budget_table([user("hi")], 1000, TokenMeter())
    assert len(rows) == 7
    assert [row.tokens for row in rows].count(0) == 6


def test_over_means_above_the_allowance():
    message = [user("x")]
    at_the_line = budget_table(message, 1000, Fixed(400))[5]
    above = budget_table(message, 1000, Fixed(401))[5]
    assert (at_the_line.tokens, at_the_line.allowance, at_the_line.over) == (400, 400, False)
    assert (above.tokens, above.over) == (401, True)


def test_schemas_belong_to_the_system_instructions():
    history = [user("hi " * 40)]
    plain = budget_table(history, 1000, TokenMeter())
    with_tools = budget_table(history, 1000, TokenMeter(), TOOLS)
    meter = TokenMeter()
    schemas = meter.count(history, TOOLS) - meter.count(history)
    assert with_tools[0].tokens == plain[0].tokens + schemas > 0
    assert with_tools[1:] == plain[1:]


def test_rows_add_up_to_an_anchored_total():
    session = load("long")
    meter = TokenMeter()
    meter.observe(session.messages, 2001, TOOLS)
    rows = budget_table(session.messages, session.window, meter, TOOLS)
    assert sum(row.tokens for row in rows) == 2001


def test_the_rows_of_a_counter_without_a_table():
    rows = budget_table([user("x")], 1000, Fixed(17))
    assert rows[5].tokens == 17


def test_an_empty_history_is_seven_empty_rows():
    assert [row.tokens for row in budget_table([], 1000, TokenMeter())] == [0] * 7


def test_used_is_the_share_of_the_allowance():
    assert Row("memory", 45, 90, False).used == 0.5
    assert Row("memory", 0, 0, False).used == 0
    assert Row("memory", 3, 0, True).used == math.inf


# --- largest remainder --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [
        (10, (1, 1, 1), (4, 3, 3)),
        (11, (1, 1, 1), (4, 4, 3)),
        (0, (1, 2), (0, 0)),
        (7, (0, 5, 0), (0, 7, 0)),
        (5, (0.1, 0.1, 9.8), (0, 0, 5)),
        # 3.5, 2.25, 1.25: the largest remainder takes the one that is left.
        (7, (14, 9, 5), (4, 2, 1)),
        (100, (2, 3, 5), (20, 30, 50)),
        # More than a float can hold.
        (10**18 + 7, (1.0, 2.5), (285714285714285716, 714285714285714291)),
    ],
)
def test_share_out(total, weights, expected):
    named = dict(zip("abcdefg", weights, strict=False))
    assert tuple(share_out(total, named).values()) == expected


@given(
    st.integers(0, 10**7),
    st.lists(st.floats(0, 1e9, allow_subnormal=False), min_size=1, max_size=7),
)
def test_shares_add_up_and_differ_by_less_than_one(total, weights):
    named = {str(index): weight for index, weight in enumerate(weights)}
    parts = share_out(total, named)
    whole = sum(weights)
    assert sum(parts.values()) == (total if whole > 0 else 0)
    for name, weight in named.items():
        assert parts[name] >= 0
        if whole > 0:
            assert abs(parts[name] - total * weight / whole) < 1 + 1e-6
        if weight == 0:
            assert parts[name] == 0
