"""The engine: decisions on numbers, and the driver that measures and acts on them."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import count as count_from
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction import calibration, session
from compaction.budget import Row
from compaction.calibration import TokenMeter
from compaction.engine import (
    NO_RESULT,
    BreakEven,
    ContextExceeded,
    Decision,
    Engine,
    Event,
    Lines,
    Pass,
    Prices,
    Reply,
    ReplyError,
    Room,
    break_even,
    call_functions,
    close_calls,
    make_room,
    next_step,
    pending_calls,
    read_reply,
    reply_with,
    trace,
)
from compaction.gateway import Gateway
from compaction.messages import Call, Message, problems, text_of, transcript
from compaction.probes import Probe, truncate
from compaction.summary import Compaction, is_summary
from compaction.tokens import count_chars
from tests.builders import call, calls, result, said, system, user

SEND, THRESHOLD, EMERGENCY = (
    Decision.SEND,
    Decision.COMPACT_THRESHOLD,
    Decision.COMPACT_EMERGENCY,
)

# --- a world of numbers: a message's text is its size in tokens ----------------------------


class Sizes:
    """A counter for messages whose text is a number: their tokens are the sum."""

    def count(self, messages: Sequence[Message], tools: Any = None) -> int:
        texts = (message["content"] for message in messages)
        return sum(int(text) for text in texts if text not in (None, NO_RESULT))


def asked(tokens: int) -> Message:
    return user(str(tokens))


def reply(tokens: int, calls: int = 0, first: int = 0) -> Message:
    message: Message = said(str(tokens))
    if calls:
        message["tool_calls"] = [call(f"c{first + n}") for n in range(calls)]
    return message


def scripted(*replies: Any) -> Callable[..., Any]:
    """Return a call_model that gives these replies in turn; one that is an exception is raised."""
    waiting = iter(replies)

    def call_model(messages: list[Message], tools: Any) -> Any:
        call_model.seen.append((copy.deepcopy(messages), tools))  # type: ignore[attr-defined]
        given_reply = next(waiting)
        if isinstance(given_reply, BaseException):
            raise given_reply
        return given_reply

    call_model.seen = []  # type: ignore[attr-defined]
    return call_model


def tool_results(*sizes: int) -> Callable[[Call], str]:
    waiting = iter(sizes)
    return lambda call: str(next(waiting))


def shrink_to(tokens: int, keep: int = 0) -> Callable[[list[Message]], list[Message]]:
    """Return a compactor: one message in the place of all but the last ``keep``."""

    def compact(messages: list[Message]) -> list[Message]:
        kept = messages[len(messages) - keep :]
        return [asked(tokens - Sizes().count(kept)), *kept]

    return compact


# --- the decision ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conversation", "estimate", "decision"),
    [
        (4000, 4700, SEND),
        (5700, 6400, SEND),  # at the line
        (5701, 6401, THRESHOLD),
        (7200, 7900, EMERGENCY),
    ],
)
def test_worked_examples(conversation, estimate, decision):
    assert 700 + conversation == estimate
    assert Lines(8000).decide(estimate) is decision


def test_the_emergency_line_fires_at_it_even_with_automatic_compaction_off():
    off = Lines(8000, auto_compact=False)
    assert off.decide(7599) is SEND
    assert off.decide(7600) is off.decide(7900) is EMERGENCY
    assert Lines(8000).decide(7599) is THRESHOLD


def test_lines_do_not_move_by_rounding():
    # 0.7 * 90 is 62.99999999999999 in floating point.
    assert Lines(90, threshold=0.7).decide(63) is SEND
    assert Lines(90, threshold=0.7).decide(64) is THRESHOLD
    # 0.07 * 100 is 7.000000000000001: without care 7 would miss the emergency line.
    assert Lines(100, threshold=0.01, emergency=0.07).decide(7) is EMERGENCY


@given(
    window=st.integers(1, 10**7),
    threshold=st.integers(1, 100),
    emergency=st.integers(1, 100),
    on=st.booleans(),
    data=st.data(),
)
def test_the_lines_are_those_of_exact_arithmetic(window, threshold, emergency, on, data):
    lines = Lines(window, threshold / 100, emergency / 100, on)
    near = st.sampled_from([window * threshold // 100, window * emergency // 100])
    estimate = max(0, data.draw(near | st.integers(0, 2 * window)) + data.draw(st.integers(-2, 2)))
    if estimate >= Fraction(window * emergency, 100):
        expected = EMERGENCY
    elif on and estimate > Fraction(window * threshold, 100):
        expected = THRESHOLD
    else:
        expected = SEND
    assert lines.decide(estimate) is expected
    assert next_step(estimate, window, threshold / 100, emergency / 100, on) is expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 0},
        {"window": -1},
        {"window": 8000.5},
        {"window": "8000"},
        {"window": True},
        {"window": 8000, "threshold": 0},
        {"window": 8000, "threshold": 1.2},
        {"window": 8000, "threshold": math.nan},
        {"window": 8000, "emergency": -0.1},
        {"window": 8000, "emergency": 95},
        {"window": 8000, "emergency": None},
    ],
)
def test_lines_that_are_none_are_refused_in_one_line(wrong):
    with pytest.raises(ValueError) as caught:
        Lines(**wrong)
    assert "\n" not in str(caught.value)
    assert list(wrong)[-1] in str(caught.value)


@pytest.mark.parametrize("wrong", [-1, math.nan])
def test_an_estimate_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="0 tokens or more"):
        Lines(8000).decide(wrong)


# --- passes ------------------------------------------------------------------------------


def test_no_room_is_made_where_none_is_needed():
    def compact(messages):
        raise AssertionError("nothing is over a line")

    room = make_room([asked(6400)], Sizes().count, compact, Lines(8000).decide)
    assert room == Room([asked(6400)], [6400], stuck=False)


def test_the_report_of_the_compactor_is_not_believed():
    """It claims 3,000 each time; what it left is 7,000, then 5,100."""
    left = iter([7000, 5100])

    def compact(messages):
        return Compaction([asked(next(left))], 7900, 3000, [], None, [])

    room = make_room([asked(7900)], Sizes().count, compact, Lines(8000).decide)
    assert room == Room([asked(5100)], [7900, 7000, 5100], stuck=False)


def test_a_pass_that_saves_nothing_ends_the_loop():
    left = iter([7000, 7000, 100])

    def compact(messages):
        return Compaction([asked(next(left))], 0, 0, [], None, [])

    room = make_room([asked(7900)], Sizes().count, compact, Lines(8000).decide)
    assert room == Room([asked(7000)], [7900, 7000, 7000], stuck=True)


@given(
    start=st.integers(0, 1200),
    left=st.lists(st.integers(0, 1200), min_size=1, max_size=8),
    threshold=st.sampled_from([0.3, 0.7, 0.8]),
)
def test_making_room_ends_below_the_lines_or_stuck(start, left, threshold):
    decide = Lines(1000, threshold).decide
    rounds = iter(left)

    def compact(messages):
        return Compaction([asked(next(rounds, 1200))], 0, 0, [], None, [])

    room = make_room([asked(start)], Sizes().count, compact, decide)
    progress = room.estimates[:-1] if room.stuck else room.estimates
    assert progress[0] == start
    assert all(later < earlier for earlier, later in pairwise(progress))
    assert Sizes().count(room.messages) == progress[-1]
    if room.stuck:
        assert room.estimates[-1] >= progress[-1] and decide(progress[-1]) is not SEND
    else:
        assert decide(progress[-1]) is SEND


# --- break-even ---------------------------------------------------------------------------

PRICES = Prices(input=3.0, cached_input=0.3, output=15.0)


def test_break_even_by_hand():
    found = break_even(
        request_tokens=3500,
        summary_tokens=300,
        resent_tokens=3800,
        saved_tokens=2800,
        turns=30,
        prices=PRICES,
    )
    # 3,500 x 3 + 300 x 15 + 3,800 x 2.7 = 25,260 millionths; 2,800 x 0.3 = 840 a turn.
    assert found.cost == pytest.approx(0.02526)
    assert found.saving_per_turn == pytest.approx(0.00084)
    assert found.turns_to_break_even == 31  # 25,260 / 840 = 30.07
    assert found.gain == pytest.approx(30 * 0.00084 - 0.02526)
    assert not found.worth_it


def test_without_a_prompt_cache_a_compaction_pays_sooner():
    figures = {
        "request_tokens": 3500,
        "summary_tokens": 300,
        "resent_tokens": 3800,
        "saved_tokens": 2800,
        "turns": 10,
    }
    cached = break_even(**figures, prices=PRICES)
    uncached = break_even(**figures, prices=Prices(3.0, 3.0, 15.0))
    assert uncached.turns_to_break_even == 2  # (10,500 + 4,500) / 8,400
    assert uncached.worth_it and not cached.worth_it


def test_what_saves_nothing_never_breaks_even_and_what_costs_nothing_does_at_once():
    nothing = {"summary_tokens": 10, "resent_tokens": 0, "saved_tokens": 0, "turns": 10**6}
    found = break_even(request_tokens=100, prices=PRICES, **nothing)
    assert (found.turns_to_break_even, found.worth_it) == (None, False)
    free = break_even(request_tokens=100, prices=Prices(0, 0, 0), **nothing)
    assert free == BreakEven(0, 0, 0, 10**6, 0, True)


TOKENS = st.integers(0, 10**6)
PRICE = st.integers(0, 2000).map(lambda cents: cents / 100)


@given(TOKENS, TOKENS, TOKENS, TOKENS, st.integers(0, 5000), PRICE, PRICE, PRICE)
def test_break_even_is_the_first_turn_without_a_loss(
    request, summary, resent, saved, turns, price, other_price, output
):
    prices = Prices(max(price, other_price), min(price, other_price), output)
    found = break_even(
        request_tokens=request,
        summary_tokens=summary,
        resent_tokens=resent,
        saved_tokens=saved,
        turns=turns,
        prices=prices,
    )
    needed = found.turns_to_break_even
    tolerance = 1e-9 * (1 + found.cost)
    if needed is None:
        assert found.saving_per_turn == 0 < found.cost
        return
    assert needed * found.saving_per_turn >= found.cost - tolerance
    if needed:
        assert (needed - 1) * found.saving_per_turn < found.cost + tolerance
    assert found.worth_it == (turns >= needed)
    assert found.gain == pytest.approx(turns * found.saving_per_turn - found.cost, abs=1e-9)


@pytest.mark.parametrize(
    "wrong", [{"saved_tokens": -1}, {"turns": -1}, {"turns": 1.5}, {"request_tokens": 0.5}]
)
def test_break_even_refuses_what_is_no_count(wrong):
    figures = {"request_tokens": 1, "summary_tokens": 1, "resent_tokens": 1, "saved_tokens": 1}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        break_even(**({**figures, "turns": 1, "prices": PRICES} | wrong))


@pytest.mark.parametrize("wrong", [(-1, 0, 0), (1, 2, 0), (1, 1, math.nan), ("1", 0, 0)])
def test_prices_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError):
        Prices(*wrong)


# --- the trace ------------------------------------------------------------------------------


def worked_engine(**options: Any) -> Engine:
    """The engine of the worked trace: a window of 8,000, threshold 80 %, overhead 700."""
    model = scripted(reply(300, calls=1), reply(400, calls=2, first=1), reply(50))
    defaults: dict[str, Any] = {
        "counter": Sizes(),
        "overhead": 700,
        "call_tool": tool_results(1200, 1000, 900),
        "compact": shrink_to(3100, keep=3),
    }
    return Engine(model, Lines(8000), **(defaults | options))


def test_the_worked_trace_to_the_digit():
    engine = worked_engine()
    engine.run(asked(2100))
    *events, last = engine.events
    assert [
        (event.kind, event.added, event.estimate, f"{event.share:.0%}", event.then)
        for event in events
    ] == [
        ("run start", 2100, 2800, "35%", "call the model"),
        ("reply", 300, 3100, "39%", "call the tools"),
        ("tool results", 1200, 4300, "54%", "call the model"),
        ("reply", 400, 4700, "59%", "call the tools"),
        ("tool results", 1900, 6600, "82%", "compact (threshold)"),
        ("pass", -2800, 3800, "48%", "call the model"),
    ]
    assert events[4].share == 0.825
    assert [event.note for event in events[:5]] == [
        "input",
        "1 tool call",
        "1 result",
        "2 tool calls",
        "2 results",
    ]
    assert (last.kind, last.estimate, last.then) == ("reply", 3850, "end the run")


def test_the_trace_prints_as_a_table():
    engine = worked_engine()
    engine.run(asked(2100))
    lines = trace(engine.events).splitlines()
    assert lines[0].split() == ["event", "added", "estimate", "of", "window", "then"]
    assert lines[5].split() == [
        *("tool", "results", "1,900", "6,600", "82", "%", "compact", "(threshold)"),
    ]
    assert len(lines) == 1 + len(engine.events)
    assert str(engine.events[5]) == (
        "pass (compacted 6 -> 4 messages, 6600 -> 3800 tokens): "
        "3,800 tokens, 48 % of the window: call the model"
    )


def test_the_trace_follows_from_the_numbers_alone():
    """The same decisions without any engine: the machine is told numbers."""
    decide = Lines(8000).decide
    total, decisions = 700, []
    for added in (2100, 300, 1200, 400, 1900, -2800):
        total += added
        decisions.append((total, decide(total)))
    assert decisions == [
        (2800, SEND),
        (3100, SEND),
        (4300, SEND),
        (4700, SEND),
        (6600, THRESHOLD),
        (3800, SEND),
    ]


# --- the driver: growth points --------------------------------------------------------------


def test_a_turn_without_tools():
    engine = Engine(scripted("Hello."), Lines(8000), counter=TokenMeter())
    assert engine.run("hi") == "Hello."
    assert engine.history == [
        user("hi"),
        said("Hello."),
    ]
    assert [event.kind for event in engine.events] == ["run start", "reply"]


def test_the_model_is_sent_exactly_what_was_counted():
    counted: list[list[Message]] = []

    class Spy(Sizes):
        def count(self, messages, tools=None):
            counted.append(copy.deepcopy(list(messages)))
            return super().count(messages)

    extras = [asked(10)]
    engine = worked_engine(counter=Spy())
    model = engine.call_model
    sent: list[list[Message]] = []

    def call_model(messages, tools):
        assert counted[-1] == messages  # the measurement before the call is of this payload
        sent.append(messages)
        return model(messages, tools)

    engine.call_model = call_model
    engine.run(asked(2100), extras)
    assert len(sent) == 3 and all(messages[-1:] == extras for messages in sent)
    assert not any(message == extras[0] for message in engine.history)


def test_extras_over_the_line_wait_for_a_pass_and_are_counted_again():
    sizes = iter([4000])
    engine = Engine(
        scripted(reply(10)),
        Lines(8000),
        counter=Sizes(),
        overhead=700,
        compact=lambda messages: [asked(next(sizes))],
    )
    engine.run(asked(5000), [asked(1000)])
    assert [(event.kind, event.estimate, event.added, event.then) for event in engine.events] == [
        ("run start", 5700, 5000, "call the model"),
        ("extras", 6700, 1000, "compact (threshold)"),
        ("pass", 5700, -1000, "call the model"),
        ("reply", 4710, 10, "end the run"),
    ]
    ((sent, _),) = engine.call_model.seen
    assert sent == [asked(4000), asked(1000)]


def test_extras_that_do_not_fit_after_a_pass_lead_to_another():
    sizes = iter([4800, 3000])
    engine = Engine(
        scripted(reply(10)),
        Lines(8000),
        counter=Sizes(),
        overhead=700,
        compact=lambda messages: [asked(next(sizes))],
    )
    engine.run(asked(5600), [asked(1000)])
    assert [event.estimate for event in engine.events] == [6300, 7300, 6500, 4700, 3710]


def test_several_passes_as_long_as_each_makes_progress():
    sizes = iter([7700, 7000, 5000])
    engine = Engine(
        scripted(reply(10)),
        Lines(8000),
        counter=Sizes(),
        compact=lambda messages: [asked(next(sizes))],
    )
    engine.run(asked(7900))
    assert [(event.kind, event.estimate) for event in engine.events] == [
        ("run start", 7900),
        ("pass", 7700),
        ("pass", 7000),
        ("pass", 5000),
        ("reply", 5010),
    ]
    assert engine.events[0].decision is engine.events[1].decision is EMERGENCY
    assert engine.events[2].decision is THRESHOLD


def test_a_compactor_that_lies_is_counted():
    def compact(messages: list[Message]) -> Compaction:
        return Compaction([asked(7700)], 7900, 1000, ["s"], None, [])

    engine = Engine(scripted(reply(1)), Lines(8000), counter=Sizes(), compact=compact)
    with pytest.raises(ContextExceeded) as caught:
        engine.run(asked(7900))
    assert caught.value.estimate == 7700
    done = engine.events[1].passed
    assert done is not None
    assert (done.before, done.after, done.reported) == (7900, 7700, 1000)


# --- the guard ------------------------------------------------------------------------------


def test_no_progress_ends_the_run_with_the_budget_table():
    meter = TokenMeter()
    history = [system("You are a coding agent. " * 40)]
    tools = [{"type": "function", "function": {"name": "read_file", "description": "d" * 80}}]
    engine = Engine(scripted("never sent"), Lines(1000), history, tools=tools, counter=meter)
    with pytest.raises(ContextExceeded) as caught:
        engine.run("Look at this: " + "x" * 4000)
    error = caught.value
    assert error.decision is EMERGENCY
    assert error.window == 1000
    assert "nothing to compress" in error.reason
    assert [row.path for row in error.rows if row.over] == ["system instructions", "conversation"]
    assert sum(row.tokens for row in error.rows) == error.estimate == engine.estimate()
    assert "\n" not in str(error)
    for part in ("of 1,000 tokens", "emergency line (950)", "conversation 1,0", "system instr"):
        assert part in str(error)
    # Nothing was sent and nothing is lost.
    assert engine.call_model.seen == []
    assert [message["role"] for message in engine.history] == ["system", "user"]
    assert engine.events[-1].then == "give up"


def test_the_guard_names_why_the_pass_failed():
    history = [user("Read the log. " * 60) for _ in range(5)]
    engine = Engine(
        scripted(), Lines(1000), history, counter=TokenMeter(), summarize=lambda messages: "short"
    )
    with pytest.raises(ContextExceeded, match="the summary lacks the heading") as caught:
        engine.run("go on")
    assert caught.value.decision is EMERGENCY
    assert engine.history[:5] == history


def test_a_session_that_was_stuck_goes_on_when_room_is_made():
    engine = Engine(scripted(reply(5)), Lines(1000), counter=Sizes(), compact=list)
    with pytest.raises(ContextExceeded):
        engine.run(asked(900))
    engine.lines = Lines(2000)
    assert engine.run() == "5"
    assert engine.history == [asked(900), reply(5)]


def test_emergency_fires_with_automatic_compaction_off_and_threshold_does_not():
    off = Lines(8000, auto_compact=False)
    engine = Engine(scripted(reply(1)), off, counter=Sizes(), compact=shrink_to(100))
    engine.run(asked(7000))
    assert [event.kind for event in engine.events] == ["run start", "reply"]
    engine = Engine(scripted(reply(1)), off, counter=Sizes(), compact=shrink_to(100))
    engine.run(asked(7600))
    assert [event.estimate for event in engine.events] == [7600, 100, 101]


def test_a_last_reply_over_the_line_is_returned_and_room_is_made_at_the_next_start():
    engine = Engine(
        scripted(reply(700), reply(1)), Lines(1000), counter=Sizes(), compact=shrink_to(300)
    )
    assert engine.run(asked(200)) == "700"
    last = engine.events[-1]
    assert last.decision is THRESHOLD
    assert last.then == "end the run; compact (threshold) at the next start"
    assert engine.run(asked(10)) == "1"
    assert [event.estimate for event in engine.events[2:]] == [910, 300, 301]


def test_a_reply_with_calls_over_the_line_makes_room_before_the_tools_run():
    order: list[str] = []

    def compact(messages: list[Message]) -> list[Message]:
        order.append("compact")
        return [asked(10), messages[-1]]

    def call_tool(call: Call) -> str:
        order.append("tool")
        return "5"

    engine = Engine(
        scripted(reply(700, calls=1), reply(1)),
        Lines(1000),
        counter=Sizes(),
        compact=compact,
        call_tool=call_tool,
    )
    engine.run(asked(200))
    assert order == ["compact", "tool"]
    assert engine.events[2].kind == "pass" and engine.events[2].then == "call the tools"
    assert problems(engine.history) == []


@pytest.mark.parametrize(
    ("compact", "reason"),
    [
        (lambda messages: messages[1:], "would break the history: tool result 'c0' does not"),
        (lambda messages: None, "the compactor returned NoneType, not messages"),
        (lambda messages: messages[0]["no such key"], "the compactor failed: KeyError"),
        (list, "the pass saved nothing: 1,000 -> 1,000 tokens"),
        (lambda messages: [asked(1050)], "the pass saved nothing: 1,000 -> 1,050 tokens"),
        (lambda messages: messages.clear() or [], "would break the history: the list of messages"),
    ],
)
def test_a_compactor_that_fails_changes_nothing(compact, reason):
    history = [reply(100, calls=1), result("c0", "300")]
    before = copy.deepcopy(history)
    engine = Engine(scripted(), Lines(1000), history, counter=Sizes(), compact=compact)
    with pytest.raises(ContextExceeded) as caught:
        engine.run(asked(600))
    assert reason in caught.value.reason
    assert engine.history == [*before, asked(600)]
    assert history == before


def test_a_compactor_cannot_change_the_history_in_place():
    def compact(messages: list[Message]) -> Compaction:
        for message in messages:
            message["content"] = "0"
        return Compaction(messages, 0, 0, [], "I gave up", [])

    engine = Engine(scripted(), Lines(1000), counter=Sizes(), compact=compact)
    with pytest.raises(ContextExceeded, match="I gave up"):
        engine.run(asked(960))
    assert engine.history == [asked(960)]


# --- one unit ---------------------------------------------------------------------------------


def test_one_counter_does_not_flap_where_two_do():
    """A compactor that stops below the line by its own counter leaves too much by the other.

    Its counter sees 3,800 where the engine's sees 5,100, the line is 5,000: asked again, it
    finds nothing to do. A driver that believes it compacts before every request, for ever.
    """

    def theirs(messages: Sequence[Message]) -> int:
        return round(Sizes().count(messages) * 3800 / 5100)

    def compact(messages: list[Message]) -> Compaction:
        before = theirs(messages)
        after = [asked(5100)] if before > 4000 else messages
        return Compaction(after, before, theirs(after), [], None, [])

    lines = Lines(6250, threshold=0.80)
    assert lines.line_of(THRESHOLD) == 5000

    # Two counters: ours asks whether it is too much, theirs whether the pass helped.
    history, passes = [asked(6000)], 0
    for _ in range(20):
        if lines.decide(Sizes().count(history)) is SEND:
            break
        history = compact(history).messages
        assert lines.decide(theirs(history)) is SEND  # "it fits now"
        passes += 1
    assert passes == 20

    engine = Engine(scripted(reply(1)), lines, counter=Sizes(), compact=compact)
    with pytest.raises(ContextExceeded) as caught:
        engine.run(asked(6000))
    assert [event.estimate for event in engine.events] == [6000, 5100, 5100]
    assert caught.value.estimate == 5100


def test_the_compactor_of_the_engine_uses_the_engines_counter():
    history = [user("Read the log. " * 60) for _ in range(5)]
    engine = Engine(scripted("Done."), Lines(1100), history, counter=TokenMeter())
    engine.run("go on")
    done = next(event.passed for event in engine.events if event.passed)
    assert done.after == done.reported
    assert is_summary(engine.history[1])


def test_numbers_before_and_after_a_pass_are_in_one_unit():
    """Real usage is twice the estimate; what is left after a pass is counted at that rate."""
    meter = TokenMeter()

    def call_model(messages: list[Message], tools: Any) -> Reply:
        chars = len(transcript(messages))
        return Reply(said("Done."), {"prompt_tokens": chars // 2})

    history = [user("Read the log. " * 60) for _ in range(5)]
    engine = Engine(call_model, Lines(3000, threshold=0.7), history, counter=meter)
    plain = TokenMeter().count([*history, user("go on")])
    engine.run("go on")
    assert engine.events[0].estimate == plain
    engine.run("go on")
    start = next(event for event in engine.events[2:] if event.kind == "run start")
    assert start.estimate == pytest.approx(2 * plain, rel=0.02)
    after = next(event for event in engine.events if event.kind == "pass")
    assert after.estimate == pytest.approx(len(transcript(engine.history[:-1])) / 2, rel=0.02)


# --- interruptions ----------------------------------------------------------------------------


def interrupted_at(step: int) -> tuple[Engine, bool]:
    """Run the worked session with Ctrl-C at the step-th thing that the outside world does."""
    clock = iter(range(10**6))

    def tick() -> None:
        if next(clock) == step:
            raise KeyboardInterrupt

    engine = worked_engine()
    model, tool = engine.call_model, engine.call_tool
    assert tool is not None

    def call_model(messages: list[Message], tools: Any) -> Any:
        tick()
        return model(messages, tools)

    def call_tool(call: Call) -> str:
        tick()
        return tool(call)

    def compact(messages: list[Message]) -> list[Message]:
        tick()
        return shrink_to(3100, keep=3)(messages)

    engine = worked_engine(compact=compact, on_change=lambda history: tick())
    engine.call_model, engine.call_tool = call_model, call_tool
    try:
        engine.run(asked(2100))
    except KeyboardInterrupt:
        return engine, True
    return engine, False


def test_ctrl_c_anywhere_leaves_a_session_that_goes_on():
    whole, _ = interrupted_at(10**6)
    step = 0
    while True:
        engine, interrupted = interrupted_at(step)
        if not interrupted:
            break
        step += 1
        # What an API would refuse is at most that calls wait for results, and that can be sent.
        assert all("no result right after it" in text for text in problems(engine.history))
        assert problems(close_calls([*engine.history, asked(1)])) == []
        before = list(engine.history)
        waiting = [call.id for call in pending_calls(before)]
        assert engine.can_go_on == (before[-1] != whole.history[-1])
        if not engine.can_go_on:
            with pytest.raises(ValueError, match="nothing to go on with"):
                engine.run()
        else:
            assert engine.run() == "50"
            assert problems(engine.history) == []
            if not any(event.passed for event in engine.events):
                assert engine.history[: len(before)] == before
                answered = engine.history[len(before) : len(before) + len(waiting)]
                assert [message["tool_call_id"] for message in answered] == waiting
        assert engine.history[-1] == whole.history[-1]
    # Three calls of the model, three of tools, one pass, and eight changes of the history.
    assert step == 15


def test_a_new_input_after_ctrl_c_tells_the_model_that_no_result_will_come():
    def call_tool(call: Call) -> str:
        if call.id == "c1":
            raise KeyboardInterrupt
        return "10"

    engine = Engine(
        scripted(reply(1, calls=3), reply(2), reply(3)),
        Lines(8000),
        counter=TokenMeter(),
        call_tool=call_tool,
    )
    with pytest.raises(KeyboardInterrupt):
        engine.run("first")
    assert engine.run("second") == "2"
    assert engine.run("third") == "3"
    # In the history the calls stay unfinished; what is sent is whole.
    assert [m["tool_call_id"] for m in engine.history if m["role"] == "tool"] == ["c0"]
    assert len(problems(engine.history)) == 2
    for sent, _ in engine.call_model.seen:
        assert problems(sent) == []
    sent, _ = engine.call_model.seen[-1]
    stand_ins = [m["tool_call_id"] for m in sent if m.get("content") == NO_RESULT]
    assert stand_ins == ["c1", "c2"]
    # And what is sent is what is counted.
    assert engine.estimate() == TokenMeter().count([*sent, reply(3)])
    assert sum(row.tokens for row in engine.budget()) == engine.estimate()


def test_unfinished_calls_survive_a_pass():
    history = [
        *(user("Read the log. " * 60) for _ in range(5)),
        {**reply(0, calls=1), "content": None},
        *(user(f"and {n}") for n in range(6)),
    ]
    engine = Engine(scripted("Done."), Lines(1150), history, counter=TokenMeter())
    engine.run("go on")
    assert any(event.kind == "pass" for event in engine.events)
    assert history[5] in engine.history
    ((sent, _),) = engine.call_model.seen
    assert problems(sent) == []


def test_an_error_of_the_model_leaves_the_turn_to_be_gone_on_with():
    engine = Engine(scripted(ConnectionError("cut"), "Hello."), Lines(100), counter=TokenMeter())
    with pytest.raises(ConnectionError):
        engine.run("hi")
    assert engine.history == [user("hi")]
    assert engine.run() == "Hello."


def test_there_is_nothing_to_go_on_with_at_first():
    engine = Engine(scripted(), Lines(100), counter=TokenMeter())
    with pytest.raises(ValueError, match="nothing to go on with"):
        engine.run()
    assert engine.events == []


def test_the_session_can_be_saved_after_every_message():
    saved: list[int] = []
    engine = worked_engine(on_change=lambda history: saved.append(len(history)))
    engine.run(asked(2100))
    # input, reply, result, reply, two results, the pass, the last reply
    assert saved == [1, 2, 3, 4, 5, 6, 4, 5]


@given(st.data())
@settings(max_examples=60)
def test_closing_calls_makes_any_interrupted_history_valid(data):
    history: list[Message] = [user("start")]
    fresh = iter(range(1000))
    for _ in range(data.draw(st.integers(1, 6))):
        names = [f"c{next(fresh)}" for _ in range(data.draw(st.integers(0, 3)))]
        message: Message = said("text")
        if names:
            message["tool_calls"] = [call(name) for name in names]
        history.append(message)
        history += [result(name) for name in names[: data.draw(st.integers(0, len(names)))]]
        history += [user("next")] * data.draw(st.integers(0, 1))
    waiting = len(pending_calls(history))
    assert len([t for t in problems(close_calls(history)) if "no result" in t]) == waiting
    closed = close_calls([*history, user("end")])
    assert problems(closed) == []
    assert [m for m in closed if m.get("content") != NO_RESULT] == [*history, user("end")]
    assert close_calls(closed) == closed


def test_a_call_listed_twice_needs_two_results():
    twice = calls(call("c1"), call("c1"))
    assert [call.id for call in pending_calls([twice, result("c1")])] == ["c1"]
    assert pending_calls([twice, result("c1"), result("c1")]) == []
    assert pending_calls([]) == pending_calls([result("c1")]) == []


# --- probes, budget, manual passes --------------------------------------------------------------


def test_the_fourteen_messages_go_through_the_engine():
    data = session.load("long")
    replies = iter(data.replies)
    engine = Engine(
        scripted("Ready."),
        Lines(data.window, threshold=0.70),
        data.messages,
        counter=TokenMeter(),
        summarize=lambda messages: next(replies),
        probes=data.probes,
    )
    assert engine.estimate() == 1368
    done = engine.compact_now()
    assert done.line == "compacted 14 -> 7 messages, 1368 -> 571 tokens, 2 probes kept"
    assert problems(engine.history) == []
    assert [probe.fact for probe in done.kept] == [probe.fact for probe in data.probes]


def test_the_long_session_is_compacted_at_the_next_input_and_the_short_one_is_not():
    kinds = {}
    for form in ("long", "short"):
        data = session.load(form)
        replies = iter(data.replies)
        engine = Engine(
            scripted("Ready."),
            Lines(data.window, threshold=0.70),
            data.messages,
            counter=TokenMeter(),
            summarize=lambda messages, replies=replies: next(replies),
        )
        engine.run("Go on.")
        kinds[form] = [event.kind for event in engine.events]
    assert kinds == {"long": ["run start", "pass", "reply"], "short": ["run start", "reply"]}


def test_pinned_facts_are_kept_across_passes_and_in_a_loaded_session():
    engine = Engine(
        scripted(*["Noted."] * 40),
        Lines(700),
        counter=TokenMeter(),
        # It forgets everything; the facts are carried over word for word.
        summarize=lambda messages: (
            "Confirmed facts:\n- some\nChanges already made:\n- some\n"
            "Unfinished items:\nnone\nKey paths and commands:\nnone"
        ),
    )
    engine.run("Remember: the build command is `pnpm build:calc`. " + "Look around. " * 40)
    for turn in range(12):
        engine.run(f"Step {turn}. " + "Read the next file. " * 20)
    passes = [event.passed for event in engine.events if event.passed]
    assert len(passes) >= 2
    fact = [Probe("pnpm build:calc", "Fill the gap: the build command is ___")]
    assert all(done.kept == tuple(fact) for done in passes)
    assert passes[0].line.endswith(", 1 probe kept")
    assert engine.probes == engine.verify_probes().kept == fact
    # The user's own message is gone, so a loaded session must be told the facts.
    assert not any(text_of(m).startswith("Remember: the build") for m in engine.history)
    loaded = Engine(scripted(), Lines(700), engine.history, probes=engine.probes)
    assert loaded.verify_probes().kept == fact
    assert Engine(scripted(), Lines(700), engine.history).probes == []


def test_a_pass_that_loses_a_pinned_fact_says_so():
    history = [user("Remember: build with `make all`. " + "Read. " * 100)]
    engine = Engine(
        scripted("Hello."),
        Lines(400, threshold=0.3),
        [*history, *(user("x") for _ in range(3))],
        counter=TokenMeter(),
        compact=truncate,
    )
    engine.run("go on")
    done = next(event.passed for event in engine.events if event.passed)
    assert done.lost == (Probe("make all", "Fill the gap: build with ___"),)
    assert done.line.endswith("1 probe lost: make all")


def test_a_manual_pass_needs_no_line_and_never_raises():
    history = [user("Read the log. " * 60) for _ in range(5)]
    engine = Engine(scripted(), Lines(100_000), history, counter=TokenMeter())
    done = engine.compact_now()
    assert done.after < done.before
    assert done.line.startswith("compacted 5 -> ")
    assert engine.estimate() == done.after
    again = engine.compact_now()
    assert again.abandoned is not None and again.line == f"not compacted: {again.abandoned}"
    assert replace(again, abandoned="a\n  b").line == "not compacted: a b"
    assert again.before == again.after == done.after
    assert [(event.kind, event.added) for event in engine.events] == [
        ("manual pass", done.after - done.before),
        ("manual pass", 0),
    ]


def test_the_tokens_lost_to_the_prompt_cache_begin_at_the_first_change():
    history = [asked(100), asked(200), asked(300), asked(50)]
    engine = Engine(
        scripted(),
        Lines(8000),
        history,
        counter=Sizes(),
        overhead=700,
        compact=lambda messages: [*messages[:2], asked(30), messages[3]],
    )
    done = engine.compact_now()
    assert (done.before, done.after, done.resent_tokens) == (1350, 1080, 80)
    engine.history = history
    engine._compact = lambda messages: [asked(5), *messages[2:]]
    assert engine.compact_now().resent_tokens == 700 + 5 + 300 + 50


def test_the_break_even_of_a_pass():
    def compact(messages: list[Message]) -> Compaction:
        return Compaction([messages[0], asked(400)], 0, 0, ["400"], None, [])

    engine = Engine(
        scripted(), Lines(8000), [asked(100), asked(3000)], counter=Sizes(), compact=compact
    )
    found = engine.break_even(engine.compact_now(), turns=20, prices=PRICES)
    assert found == break_even(
        request_tokens=3000,
        summary_tokens=400,
        resent_tokens=400,
        saved_tokens=2600,
        turns=20,
        prices=PRICES,
    )


def test_the_budget_adds_up_with_a_known_overhead():
    engine = Engine(scripted(), Lines(1000), [asked(300)], counter=Sizes(), overhead=50)
    rows = engine.budget()
    assert {row.path: row.tokens for row in rows if row.tokens} == {
        "system instructions": 50,
        "conversation": 300,
    }
    assert rows[0] == Row("system instructions", 50, 30, True)
    assert sum(row.tokens for row in rows) == engine.estimate() == 350
    assert engine.overhead == 50


def test_your_own_table_and_loop_can_take_their_places():
    def no_table(messages, window, *, meter, tools):
        return []

    def never(messages, count, compact, decide):
        decide(count(messages))
        return Room(messages, [count(messages)], stuck=True)

    engine = Engine(
        scripted(),
        Lines(1000),
        counter=Sizes(),
        budget_table=no_table,
        make_room=never,
    )
    assert engine.budget() == []
    with pytest.raises(ContextExceeded) as caught:
        engine.run(asked(10))
    assert caught.value.rows == []


def test_replacing_the_history_starts_afresh():
    engine = Engine(scripted("Hello."), Lines(1000), counter=TokenMeter())
    engine.history = [user("Remember: `one`."), said("ok")]
    assert [probe.fact for probe in engine.probes] == ["one"]
    engine.run("hi")
    assert len(engine.history) == 4


# --- overhead and usage ---------------------------------------------------------------------


class Recorder(TokenMeter):
    """A meter that remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.observed: list[tuple[int, Any, Any]] = []

    def observe(self, messages, usage, tools=None):
        self.observed.append((len(messages), usage, tools))
        super().observe(messages, usage, tools)


def test_usage_is_observed_in_passing_with_all_that_was_sent():
    tools = [{"type": "function", "function": {"name": "read_file"}}]
    counter = Recorder()
    usage = SimpleNamespace(prompt_tokens=123)
    model = scripted(Reply(reply(1, calls=1), usage), Reply(reply(2), {"prompt_tokens": 150}))
    engine = Engine(model, Lines(8000), tools=tools, call_tool=lambda call: "ok", counter=counter)
    engine.run("hi", [user("It is noon.")])
    assert counter.observed == [(2, usage, tools), (4, {"prompt_tokens": 150}, tools)]
    assert [sample.tokens for sample in counter.samples] == [123, 150]


def test_a_reply_without_usage_is_no_sample():
    counter = Recorder()
    engine = Engine(scripted(Reply(reply(1)), reply(2), "3"), Lines(8000), counter=counter)
    for _ in range(3):
        engine.run("hi")
    assert counter.observed == [] and counter.samples == []


@pytest.mark.parametrize(
    "usage", [1000, {"prompt_tokens": 1000}, SimpleNamespace(prompt_tokens=1000)]
)
def test_a_known_overhead_is_taken_off_the_usage_and_not_counted_twice(usage):
    counter = Recorder()
    engine = Engine(scripted(Reply(reply(1), usage)), Lines(8000), counter=counter, overhead=700)
    engine.run("hi")
    assert counter.observed == [(1, 300, None)]
    assert engine.estimate() == 1000 + math.ceil(len("assistant: 1\n") / 4)


def test_the_overhead_is_measured_once(monkeypatch):
    tools = [{"type": "function", "function": {"name": "read_file", "description": "d" * 400}}]
    system = {"role": "system", "content": "s" * 400}
    measured: list[str] = []

    def count(text: str) -> Any:
        measured.append(text)
        return count_chars(text)

    monkeypatch.setattr(calibration, "count_chars", count)
    engine = Engine(
        scripted(*["Hello."] * 20), Lines(8000), [system], tools=tools, counter=TokenMeter()
    )
    for _ in range(20):
        engine.run("hi")
    monkeypatch.undo()
    assert sum("d" * 400 in text for text in measured) == 1
    assert sum("s" * 400 in text for text in measured) == 1
    # It is part of every estimate.
    assert engine.overhead == TokenMeter().count([system], tools)
    assert engine.events[0].estimate == TokenMeter().count([system, user("hi")], tools)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "700"])
def test_an_overhead_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="overhead"):
        Engine(scripted(), Lines(8000), overhead=wrong)


def test_without_a_counter_the_process_has_one():
    assert Engine(scripted(), Lines(8000)).counter is calibration.meter


# --- counting is incremental ------------------------------------------------------------------


def long_session(turns: int, window: int, extras: Sequence[Message] = ()) -> tuple[Engine, int]:
    """Run many turns with tool calls; return the engine and the characters that went by."""
    spoken = 0

    def say(text: str) -> str:
        nonlocal spoken
        spoken += len(text)
        return text

    requests = count_from()

    def call_model(messages: list[Message], tools: Any) -> Reply:
        message: Message = said(say("divide has no guard. " * 4))
        if next(requests) % 5 == 0:  # one turn in four calls a tool
            message = calls(call(f"c{spoken}", arguments=say('{"path": "calc.py"}')))
        return Reply(message, {"prompt_tokens": len(messages) * 40})

    engine = Engine(
        call_model,
        Lines(window),
        [system(say("You are a coding agent. " * 20))],
        tools=[{"type": "function", "function": {"name": "read_file", "description": "d" * 300}}],
        call_tool=lambda call: say(f"line of calc.py after {call.id}\n" * 30),
        counter=TokenMeter(),
    )
    for turn in range(turns):
        engine.run(say(f"Step {turn}: go on with calc.py."), extras)
    return engine, spoken


def characters_measured(monkeypatch, *args: Any) -> tuple[Engine, int, int]:
    measured = 0

    def count(text: str) -> Any:
        nonlocal measured
        measured += len(text)
        return count_chars(text)

    monkeypatch.setattr(calibration, "count_chars", count)
    engine, spoken = long_session(*args)
    monkeypatch.undo()
    return engine, spoken, measured


def test_a_turn_costs_the_new_messages_only(monkeypatch):
    engine, spoken, measured = characters_measured(monkeypatch, 2000, 10**9)
    assert len(engine.history) == 1 + 2 * 2000 + 2 * 500
    assert not any(event.passed for event in engine.events)
    # Each character once; on top, the role marks and the name of the tool.
    assert spoken < measured < 1.1 * spoken + 60 * len(engine.history)
    text = len(transcript(engine.history, engine.tools))
    assert measured == text


def test_extras_cost_themselves_at_every_request_and_nothing_else(monkeypatch):
    extra = user("It is noon. " * 5)
    _, _, plain = characters_measured(monkeypatch, 100, 10**9)
    engine, _, measured = characters_measured(monkeypatch, 100, 10**9, [extra])
    requests = 100 + 25
    assert measured - plain == requests * len(transcript([extra]))
    assert len(engine.history) == 1 + 2 * 100 + 2 * 25


def test_passes_keep_counting_linear(monkeypatch):
    short = characters_measured(monkeypatch, 400, 6000)
    long = characters_measured(monkeypatch, 1200, 6000)
    for engine, spoken, measured in (short, long):
        assert sum(event.passed is not None for event in engine.events) > 10
        # A pass counts the stretches and the new history once more, and one that is given up the
        # old one as well; the window bounds all of it, and how much must come in between passes.
        assert measured < 15 * spoken
    # Linear: three times as long a session, about three times the work (quadratic: nine times).
    assert long[2] / short[2] == pytest.approx(long[1] / short[1], rel=0.25)


# --- random sessions ---------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=80)
def test_nothing_over_a_line_is_ever_sent_and_nothing_said_is_lost(data):
    """Whatever grows and whatever the compactor does: each request is below the emergency line,
    and below the threshold but for a routine pass that gained too little."""
    size = st.integers(0, 400)
    window = data.draw(st.integers(300, 2000))
    lines = Lines(
        window, data.draw(st.sampled_from([0.5, 0.8])), auto_compact=data.draw(st.booleans())
    )
    overhead = data.draw(st.integers(0, 200))
    said: list[Message] = []
    fresh = iter(range(10**6))

    def call_model(messages: list[Message], tools: Any) -> Any:
        assert problems(messages) == []
        decision = lines.decide(overhead + Sizes().count(messages))
        if decision is not SEND:  # only after a routine pass that was given up
            assert decision is THRESHOLD
            assert any(event.passed and event.passed.abandoned for event in engine.events)
        if data.draw(st.integers(0, 9)) == 0:
            raise KeyboardInterrupt
        calls = data.draw(st.integers(0, 2))
        message = reply(data.draw(size), calls, first=next(fresh) * 10)
        said.append(message)
        return copy.deepcopy(message)

    def call_tool(call: Call) -> str:
        if data.draw(st.integers(0, 9)) == 0:
            raise KeyboardInterrupt
        text = str(data.draw(size))
        said.append(result(call.id or "", text))
        return text

    def compact(messages: list[Message]) -> list[Message]:
        if data.draw(st.integers(0, 4)) == 0:
            return messages
        # Everything before the last round, in one message.
        keep = 1
        while messages[-keep]["role"] == "tool":
            keep += 1
        return [asked(data.draw(size)), *messages[len(messages) - keep :]]

    engine = Engine(
        call_model,
        lines,
        counter=Sizes(),
        overhead=overhead,
        call_tool=call_tool,
        compact=compact,
    )
    for _ in range(data.draw(st.integers(1, 6))):
        said.append(asked(data.draw(size)))
        extras = [asked(data.draw(size))] * data.draw(st.integers(0, 1))
        try:
            engine.run(said[-1], extras)
        except KeyboardInterrupt:
            pass
        except ContextExceeded as error:
            assert lines.decide(error.estimate) is error.decision is not SEND
        assert problems(close_calls([*engine.history, asked(0)])) == []
    if not any(event.passed and not event.passed.abandoned for event in engine.events):
        assert engine.history == said
    for event, following in pairwise(engine.events):
        if following.passed and not following.passed.abandoned:
            assert following.estimate < event.estimate


# --- replies ------------------------------------------------------------------------------------


def test_a_reply_may_be_a_message_a_text_or_a_reply():
    message = said("Hello.")
    assert (
        read_reply("Hello.") == read_reply(message) == read_reply(Reply(message)) == Reply(message)
    )
    assert read_reply({"content": None}).message == said("")
    assert read_reply({"role": "assistant", "content": "x", "tool_calls": []}).message == said("x")


def test_calls_without_an_id_get_one():
    bare = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}, call("")]
    message = read_reply({"tool_calls": bare}, "call_7").message
    assert [call["id"] for call in message["tool_calls"]] == ["call_7_0", "call_7_1"]
    assert "id" not in bare[0]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        7,
        user("hi"),
        said(7),
        {"role": "assistant", "tool_calls": "read_file"},
        {"role": "assistant", "tool_calls": ["read_file"]},
        {"role": "assistant", "tool_calls": [{"id": "c1"}]},
    ],
)
def test_what_is_no_reply_is_refused_and_never_enters_the_history(wrong):
    engine = Engine(scripted(wrong), Lines(8000), counter=TokenMeter())
    with pytest.raises(ReplyError) as caught:
        engine.run("hi")
    assert "\n" not in str(caught.value)
    assert engine.history == [user("hi")]


def test_tools_answer_even_when_they_fail():
    def read_file(path: str) -> object:
        if path == "gone.py":
            raise FileNotFoundError("gone.py is not there")
        return {"lines": 3, "text": "é"}

    call_tool = call_functions({"read_file": read_file})
    assert call_tool(Call("c", "read_file", '{"path": "a.py"}')) == '{"lines": 3, "text": "é"}'
    assert call_tool(Call("c", "read_file", "{")).startswith("error: the arguments of read_file")
    assert call_tool(Call("c", "read_file", "[1]")).endswith("are not a JSON object")
    assert "there is no tool 'rm'; there are: read_file" in call_tool(Call("c", "rm", ""))

    calls = [call("a", arguments='{"path": "gone.py"}'), call("b", arguments='{"x": 1}')]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    engine = Engine(
        scripted(message, "Done."), Lines(8000), call_tool=call_tool, counter=TokenMeter()
    )
    engine.run("hi")
    texts = [m["content"] for m in engine.history if m["role"] == "tool"]
    assert texts[0] == "error: FileNotFoundError: gone.py is not there"
    assert texts[1].startswith("error: TypeError: ")


@pytest.mark.parametrize(
    ("call_tool", "text"),
    [
        (None, "error: there are no tools here"),
        (lambda call: 7, "error: the tool read_file returned int, not text"),
    ],
)
def test_a_call_is_always_answered_with_text(call_tool, text):
    engine = Engine(
        scripted(reply(1, calls=1), "Done."), Lines(8000), call_tool=call_tool, counter=TokenMeter()
    )
    engine.run("hi")
    assert engine.history[2]["content"] == text


# --- a real client --------------------------------------------------------------------------------

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
]


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running


def client_of(gateway: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.base_url, api_key="unused", max_retries=0)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_turn_through_the_openai_client(gateway, streamed):
    gateway.add_replies(
        {
            "content": "I look.",
            "tool_calls": [
                {"name": "read_file", "arguments": {"path": "src/计算.py"}},
                {"name": "read_file", "arguments": {"path": "b.py"}},
            ],
        },
        "divide has no guard: 1 / 0 raises ZeroDivisionError.",
    )
    pieces: list[str] = []
    on_text = pieces.append if streamed else None
    meter = TokenMeter()
    engine = Engine(
        reply_with(client_of(gateway), "scripted", on_text=on_text),
        Lines(8000),
        [system("You are a coding agent.")],
        tools=TOOLS,
        call_tool=call_functions({"read_file": lambda path: f"contents of {path}"}),
        counter=meter,
    )
    answer = engine.run("Read two files.")
    assert answer == "divide has no guard: 1 / 0 raises ZeroDivisionError."
    assert problems(engine.history) == []
    texts = [m["content"] for m in engine.history if m["role"] == "tool"]
    assert texts == ["contents of src/计算.py", "contents of b.py"]
    if streamed:
        assert "".join(pieces) == "I look." + answer and len(pieces) > 2
    # Usage came back both times, streamed or not, and anchors the count.
    used = [request.usage["prompt_tokens"] for request in gateway.requests if request.usage]
    assert [sample.tokens for sample in meter.samples] == used and len(used) == 2
    assert engine.estimate() > used[-1]


def test_both_ways_give_the_same_history(gateway):
    histories = []
    for on_text in (None, lambda text: None):
        gateway.add_replies({"tool_calls": [{"name": "read_file", "arguments": {}}]}, "Done.")
        engine = Engine(
            reply_with(client_of(gateway), "scripted", on_text=on_text),
            Lines(8000),
            tools=TOOLS,
            call_tool=lambda call: "ok",
            counter=TokenMeter(),
        )
        engine.run("Go.")
        text = json.dumps(engine.history)
        for made in engine.history[1]["tool_calls"]:
            text = text.replace(made["id"], "ID")
        histories.append(text)
    assert histories[0] == histories[1]


def test_a_stream_that_is_cut_loses_only_the_reply(gateway):
    gateway.add_faults("cut-stream")
    gateway.add_replies("A long enough reply to be cut in its middle. " * 5, "Hello.")
    engine = Engine(
        reply_with(client_of(gateway), "scripted", on_text=lambda text: None),
        Lines(8000),
        counter=TokenMeter(),
    )
    with pytest.raises(Exception) as caught:
        engine.run("hi")
    assert not isinstance(caught.value, AssertionError)
    assert engine.history == [user("hi")]
    assert engine.run()


def chunk(**parts: Any) -> SimpleNamespace:
    delta = SimpleNamespace(content=parts.get("content"), tool_calls=parts.get("calls"))
    choice = SimpleNamespace(delta=delta, finish_reason=parts.get("finish"))
    return SimpleNamespace(choices=[choice], usage=None)


class Stream:
    """A stream as the client gives it: chunks, and a connection to close."""

    def __init__(self, *chunks: Any) -> None:
        self.chunks, self.closed = chunks, False

    def __iter__(self) -> Iterator[Any]:
        for item in self.chunks:
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        self.closed = True


def client_with(answer: Any) -> Any:
    create = SimpleNamespace(create=lambda **request: answer)
    return SimpleNamespace(chat=SimpleNamespace(completions=create))


def test_a_stream_without_an_end_is_no_reply():
    stream = Stream(chunk(content="Hel"))
    ask = reply_with(client_with(stream), "m", on_text=lambda text: None)
    with pytest.raises(ReplyError, match="before the reply was complete"):
        ask([user("hi")], None)
    assert stream.closed


def test_ctrl_c_closes_the_stream():
    stream = Stream(chunk(content="Hel"), KeyboardInterrupt())
    ask = reply_with(client_with(stream), "m", on_text=lambda text: None)
    with pytest.raises(KeyboardInterrupt):
        ask([user("hi")], None)
    assert stream.closed


def test_a_stream_that_gives_whole_calls_without_an_index():
    def part(name: str) -> SimpleNamespace:
        function = SimpleNamespace(name=name, arguments="{}")
        return SimpleNamespace(index=None, id=None, function=function)

    stream = [chunk(calls=[part("a"), part("b")], finish="tool_calls")]
    ask = reply_with(client_with(stream), "m", on_text=lambda text: None)
    message = read_reply(ask([user("hi")], None)).message
    assert [(call["id"], call["function"]["name"]) for call in message["tool_calls"]] == [
        ("call_0", "a"),
        ("call_1", "b"),
    ]


def test_custom_tool_calls_pass_through():
    custom = SimpleNamespace(id="c1", custom=SimpleNamespace(name="shell", input="ls"))
    message = SimpleNamespace(content=None, tool_calls=[custom])
    answer = SimpleNamespace(choices=[SimpleNamespace(message=message)], usage=None)
    given_reply = reply_with(client_with(answer), "m")([user("hi")], None)
    assert pending_calls([read_reply(given_reply).message]) == [Call("c1", "shell", "ls")]


def test_no_choice_is_no_reply():
    ask = reply_with(client_with(SimpleNamespace(choices=[], usage=None)), "m")
    with pytest.raises(ReplyError, match="no reply"):
        ask([user("hi")], None)


def test_records_are_frozen():
    event = Event("reply", 1, 0.1, SEND, "end the run", 1)
    done = Pass(1, 1, 1, 1, None, 0, (), (), (), ())
    for record in (event, done, Lines(10), PRICES, Reply({}), Room([], [], False)):
        with pytest.raises(AttributeError):
            record.new_field = 1  # type: ignore[attr-defined]
