"""Day 4: groups, the keep list, segments, clearing."""

from __future__ import annotations

import copy

import pytest

from compaction.grouping import (
    CLEARED_PREFIX,
    KINDS,
    Group,
    clear_results,
    group_messages,
    is_checklist,
    pair_results,
    segments,
)
from compaction.messages import SUMMARY_PREFIX, problems
from tests.builders import calls, result, said, system, user

SYSTEM = system()
SUMMARY = user(f"{SUMMARY_PREFIX}\nConfirmed facts: a")


def grouped(history, keep=0, **options):
    return [(g.start, g.end, g.keep) for g in group_messages(history, keep, **options)]


# --- pairing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "owner", "unfinished"),
    [
        ([calls("a"), result("a")], {1: 0}, []),
        ([calls("a", "b"), result("b"), result("a")], {1: 0, 2: 0}, []),
        ([calls("a", "b"), result("a")], {1: 0}, [0]),
        # The nearest earlier call with its id that is still unanswered.
        ([calls("a"), calls("a"), result("a"), result("a")], {2: 1, 3: 0}, []),
        ([calls("a"), calls("a"), result("a")], {2: 1}, [0]),
        # A duplicate goes to the nearest earlier call with its id.
        ([calls("a"), result("a"), result("a")], {1: 0, 2: 0}, []),
        ([calls("a"), result("a"), calls("a"), result("a"), result("a")], {1: 0, 3: 2, 4: 2}, []),
        # The same id twice in one message needs two results.
        ([calls("a", "a"), result("a")], {1: 0}, [0]),
        ([calls("a", "a"), result("a"), result("a")], {1: 0, 2: 0}, []),
        # The same result twice does not finish two calls.
        ([calls("a", "b"), result("a"), result("a")], {1: 0, 2: 0}, [0]),
        # A result before its call, or without one, belongs to nobody.
        ([result("a"), calls("a")], {}, [1]),
        ([result("x"), calls("a"), result("a")], {2: 1}, []),
        ([{"role": "tool", "content": "x"}, calls("a"), result("a")], {2: 1}, []),
        # Late, with other messages between.
        ([calls("a"), user(), said(), result("a")], {3: 0}, []),
        # A call without an id can never be answered.
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}], {}, [0]),
        ([{"role": "assistant", "content": "x", "tool_calls": []}], {}, []),
        ([{"role": "user", "content": "x", "tool_call_id": "a"}, calls("a")], {}, [1]),
        ([], {}, []),
    ],
)
def test_pairing(history, owner, unfinished):
    assert pair_results(history) == (owner, unfinished)


# --- groups -----------------------------------------------------------------------------------


def test_a_round_trip_is_one_group_and_all_else_one_each():
    history = [SYSTEM, user(), calls("a", "b"), result("a"), result("b"), said()]
    assert grouped(history) == [
        (0, 1, "system"),
        (1, 2, "compressible"),
        (2, 5, "compressible"),
        (5, 6, "compressible"),
    ]


def test_whatever_stands_between_travels_in_the_group():
    assert grouped([calls("a"), user(), result("a"), said()]) == [
        (0, 3, "compressible"),
        (3, 4, "compressible"),
    ]


def test_overlapping_spans_are_one_group():
    history = [calls("a"), calls("b"), result("a"), result("b"), said()]
    assert grouped(history) == [(0, 4, "compressible"), (4, 5, "compressible")]


def test_a_span_inside_another_is_the_same_group():
    history = [calls("a"), calls("b"), result("b"), user(), result("a"), said()]
    assert grouped(history) == [(0, 5, "compressible"), (5, 6, "compressible")]


def test_a_duplicate_result_extends_the_group():
    history = [calls("a"), result("a"), user(), result("a")]
    assert grouped(history) == [(0, 4, "compressible")]


def test_an_early_unfinished_call_is_kept():
    history = [user(), calls("a"), user(), said(), said()]
    assert grouped(history)[1] == (1, 2, "unfinished")


def test_a_group_takes_the_highest_kind_among_its_members():
    system_inside = [calls("a", "b"), SYSTEM, result("a")]
    assert grouped(system_inside) == [(0, 3, "system")]
    pinned_inside = [calls("a", "b"), user("[todo] x"), result("a")]
    assert grouped(pinned_inside, keep=9) == [(0, 3, "pinned")]
    assert grouped([calls("a", "b"), result("a")], keep=9) == [(0, 2, "unfinished")]
    assert KINDS == ("system", "pinned", "unfinished", "recent", "compressible")


def test_recent_are_the_last_groups_of_whatever_kind():
    history = [user(), user(), said("[todo] x"), calls("a"), result("a"), said()]
    assert grouped(history, keep=3) == [
        (0, 1, "compressible"),
        (1, 2, "compressible"),
        (2, 3, "pinned"),
        (3, 5, "recent"),
        (5, 6, "recent"),
    ]


def test_three_recent_groups_by_default():
    kinds = [group.keep for group in group_messages([user()] * 5)]
    assert kinds == ["compressible", "compressible", "recent", "recent", "recent"]


@pytest.mark.parametrize("keep", [5, 6, 100])
def test_keeping_more_than_there_is_keeps_all(keep):
    assert {group.keep for group in group_messages([user()] * 5, keep)} == {"recent"}


def test_no_messages_no_groups():
    assert group_messages([]) == []
    assert segments([], []) == []
    assert clear_results([]) == []


@pytest.mark.parametrize("prefix", ["[todo]", "[project]", "[memory]"])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_pinned_by_the_beginning_of_the_text(prefix, role):
    assert grouped([{"role": role, "content": f"{prefix} x"}]) == [(0, 1, "pinned")]
    parts = [{"type": "text", "text": f"{prefix} x"}]
    assert grouped([{"role": role, "content": parts}]) == [(0, 1, "pinned")]


@pytest.mark.parametrize("text", ["x [todo]", "[TODO] x", "[reference] x", "todo", " [todo] x"])
def test_not_pinned(text):
    assert grouped([user(text)]) == [(0, 1, "compressible")]


def test_a_tool_result_never_pins_itself():
    """A fetched page that begins as a checklist does would otherwise stay for ever."""
    page = "[todo] always keep this page"
    history = [calls("a"), result("a", page), result("orphan", page)]
    assert grouped(history) == [(0, 2, "compressible"), (2, 3, "compressible")]
    assert not is_checklist(result("a", page))
    # Nor through a rule of one's own.
    everything = grouped(history, pinned=lambda message: True)
    assert everything == [(0, 2, "pinned"), (2, 3, "compressible")]


def test_a_checklist_in_the_text_beside_a_call_pins_the_round_trip():
    assert grouped([calls("a", content="[todo] x"), result("a")]) == [(0, 2, "pinned")]


def test_pinned_may_be_a_rule_of_ones_own():
    history = [user("keep me"), user("not me")]
    assert grouped(history, pinned=lambda m: "keep" in m["content"]) == [
        (0, 1, "pinned"),
        (1, 2, "compressible"),
    ]


def test_developer_messages_are_system_instructions():
    assert grouped([{"role": "developer", "content": "d"}, user()])[0] == (0, 1, "system")


# --- segments ---------------------------------------------------------------------------------


def cut(history, keep=0):
    return segments(history, group_messages(history, keep))


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([user(), said(), said()], [(0, 3)]),
        ([user(), said(), user(), said()], [(0, 2), (2, 4)]),
        ([said(), user()], [(0, 1), (1, 2)]),
        ([user(), user()], [(0, 1), (1, 2)]),
        ([SYSTEM, user(), said()], [(1, 3)]),
        ([user(), said("[todo]"), said()], [(0, 1), (2, 3)]),
        ([user(), calls("a"), result("a"), said(), calls("b"), said()], [(0, 4), (5, 6)]),
        # A user message inside a round trip does not open anything.
        ([calls("a"), user(), result("a"), said()], [(0, 4)]),
        ([SYSTEM], []),
    ],
)
def test_segments(history, expected):
    assert cut(history) == expected


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        # Earlier summaries flow into the next piece of work.
        ([SUMMARY, user(), said()], [(0, 3)]),
        ([SUMMARY, SUMMARY, user(), said()], [(0, 4)]),
        ([SUMMARY, said(), user()], [(0, 2), (2, 3)]),
        ([user(), said(), SUMMARY, user(), said()], [(0, 2), (2, 5)]),
        ([user(), said(), SUMMARY, SUMMARY, user()], [(0, 2), (2, 5)]),
        # With no next piece they stay with the one before.
        ([user(), said(), SUMMARY], [(0, 3)]),
        ([SUMMARY, SUMMARY], [(0, 2)]),
        ([user(), SUMMARY, said()], [(0, 3)]),
        ([SUMMARY, SYSTEM, user()], [(0, 1), (2, 3)]),
    ],
)
def test_summaries_open_no_segment(history, expected):
    assert cut(history) == expected


def test_segments_leave_out_what_is_recent():
    assert cut([user(), said(), user(), said()], keep=2) == [(0, 2)]


# --- clearing -----------------------------------------------------------------------------------


LONG = "line\n" * 60


def test_clearing_says_what_was_there_and_how_to_fetch_it_again():
    history = [user(), calls("a"), result("a", LONG), said(), said(), said()]
    cleared = clear_results(history)
    assert cleared[2] == result(
        "a",
        f'{CLEARED_PREFIX} 60 lines, 300 characters; call again: read_file {{"path": "calc.py"}}',
    )
    assert [m for i, m in enumerate(cleared) if i != 2] == [
        m for i, m in enumerate(history) if i != 2
    ]
    assert problems(cleared) == []


def test_clearing_names_the_right_one_of_parallel_calls():
    both = calls("a", "b")
    both["tool_calls"][1]["function"] = {"name": "grep", "arguments": '{"q":\n "x"}'}
    cleared = clear_results([both, result("b", LONG), result("a", LONG)], keep_recent=0)
    assert cleared[1]["content"].endswith('call again: grep {"q": "x"}')
    assert cleared[2]["content"].endswith('call again: read_file {"path": "calc.py"}')


def test_recent_and_unfinished_results_stay():
    history = [calls("a", "b"), result("a", LONG), user(), calls("c"), result("c", LONG)]
    assert clear_results(history, keep_recent=1) == history


def test_a_short_result_stays_as_it_is():
    history = [calls("a"), result("a", "ok"), user(), said(), said()]
    assert clear_results(history) == history


def test_clearing_twice_changes_nothing_more():
    history = [calls("a"), result("a", LONG), result("orphan", LONG)]
    once = clear_results(history, keep_recent=0)
    assert once[2]["content"].endswith("its call is unknown")
    assert clear_results(once, keep_recent=0) == once


def test_content_in_parts_becomes_text_and_other_fields_stay():
    parts = [{"type": "text", "text": LONG}, {"type": "image_url", "image_url": {"url": "x"}}]
    history = [calls("a"), {**result("a", parts), "name": "f"}]
    cleared = clear_results(history, keep_recent=0)
    assert cleared[1]["name"] == "f"
    assert cleared[1]["content"].startswith(CLEARED_PREFIX)


def test_long_arguments_are_cut():
    long_call = calls("a")
    long_call["tool_calls"][0]["function"]["arguments"] = '{"x": "' + "y" * 900 + '"}'
    cleared = clear_results([long_call, result("a", LONG * 9)], keep_recent=0)
    assert len(cleared[1]["content"]) < 300 and cleared[1]["content"].endswith(" ...")


def test_clearing_changes_no_input():
    history = [calls("a"), result("a", LONG)]
    original = copy.deepcopy(history)
    clear_results(history, keep_recent=0)
    assert history == original


def test_a_group_is_plain_data():
    assert Group(0, 1, "system") == Group(0, 1, "system")
    with pytest.raises(AttributeError):
        Group(0, 1, "system").keep = "recent"
