"""The window as gateways draw it: refusals for length, room for the reply, results too large."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

from compaction.calibration import FeatureMeter, TokenMeter
from compaction.engine import (
    ContextExceeded,
    Decision,
    Engine,
    Lines,
    Overflow,
    Reply,
    ReplyError,
    call_functions,
    read_overflow,
    reply_with,
)
from compaction.engine.driver import CUT_OFF_NOTE
from compaction.engine.measuring import Measuring
from compaction.engine.results import Results, excerpt
from compaction.gateway import Gateway, summarize_with
from compaction.gateway.too_long import WORDINGS, too_long
from compaction.messages import Message, content_of, problems
from compaction.summary import parse_summary
from tests.builders import call, calls, said, system, user

SUMMARY = (
    "Confirmed facts:\n- some\nChanges already made:\nnone\n"
    "Unfinished items:\nnone\nKey paths and commands:\n- calc.py"
)


def long_history(turns: int = 12) -> list[Message]:
    history: list[Message] = [system("You are an agent.")]
    for turn in range(turns):
        history.append(user(f"Step {turn}. " + "Look at the next file. " * 30))
        history.append(said(f"File {turn} is fine. " * 20))
    return history


def client_of(gateway: Gateway) -> Any:
    return openai.OpenAI(base_url=gateway.base_url, api_key="unused", max_retries=0)


# --- recognising it -----------------------------------------------------------------------

SAID = [
    ("maximum context length is 8,192 tokens. However, you requested 9000 tokens", 8192),
    ("Your input exceeds the context window of this model.", None),
    ("Requested token count exceeds the model's maximum context length of 131072 tokens", 131072),
    ("Input length (265330) exceeds model's maximum context length (262144).", 262144),
    ("prompt is too long: 213462 tokens > 200000 maximum", 200000),
    ("The input token count (9000) exceeds the maximum number of tokens allowed (8192)", 8192),
    ("This model's maximum prompt length is 131072 but the request contains 537812", 131072),
    ("Please reduce the length of the messages or completion", None),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", 8192),
    ("the request exceeds the available context size, try increasing it", None),
    ("prompt token count of 9000 exceeds the limit of 8000", 8000),
    ("Your request exceeded model token limit: 262144 (requested: 300000)", 262144),
    ("Prompt contains 9000 tokens, too large for model with 8000 maximum context length", 8000),
]
OTHER = [
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "Rate limit reached on tokens per min (TPM): Limit 30000, Requested 42000.",
    "Invalid value for max_tokens: expected at most 16384.",
    "The server had an error while processing your request.",
    "",
]


@pytest.mark.parametrize(("said", "window"), SAID)
def test_too_long_is_recognised_in_many_words(said: str, window: int | None) -> None:
    for form in (said, {"error": {"message": said}}, ReplyError(said)):
        found = read_overflow(form)
        assert found is not None and found.window == window


@pytest.mark.parametrize("said", OTHER)
def test_other_faults_are_not_taken_for_it(said: str) -> None:
    assert read_overflow(said) is None


def test_only_the_excess_or_the_reply_may_be_named() -> None:
    found = read_overflow("prompt too long; exceeded max context length by 1,234 tokens")
    assert found is not None and (found.window, found.excess) == (None, 1234)
    assert found.target(10_000) == 8766
    found = read_overflow(
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens "
        "(7000 in the messages, 2000 in the completion)."
    )
    assert found is not None and (found.window, found.reply) == (8192, 2000)
    assert found.target(9000) == 6192


def test_a_refusal_shrinks_the_target_by_how_much_more_the_gateway_counts() -> None:
    found = Overflow(window=8000, said="you sent 10000 tokens, and 8000 is the maximum")
    assert found.target(5000) == 4000
    assert Overflow(window=8000).target(5000) == 4999  # it was refused: less, at any rate


# --- acting on it -------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wording", WORDINGS)
def test_a_refused_request_is_compacted_to_the_window_and_sent_once_more(wording, stream) -> None:
    notes: list[str] = []
    with Gateway(script=["Done."], window=2500, too_long=wording) as gateway:
        on_text = (lambda piece: None) if stream else None
        ask = reply_with(client_of(gateway), "m", on_text=on_text)
        lines = Lines(1_000_000)
        engine = Engine(ask, lines, long_history(), counter=TokenMeter(), on_note=notes.append)
        assert engine.run("Remember: the port is `8471`. Go on.") == "Done."
        statuses = [request.status for request in gateway.requests]
    assert statuses in ([400, 200], [413, 200])
    assert any("too long" in note for note in notes)
    assert problems(engine.history) == []
    assert [probe.fact for probe in engine.verify_probes().kept] == ["8471"]
    named = {"openai": 2500, "vllm": 2500, "llama.cpp": 2500, "anthropic": 2500, "gemini": 2500}
    if wording in named:
        assert engine.lines.window == 2500


def test_an_error_event_inside_a_stream_is_read_too() -> None:
    body = {"error": {"message": "prompt is too long: 9000 tokens > 2500 maximum"}}
    answers: list[Any] = [ReplyError("the gateway reports: no", body=body), "Done."]

    def call_model(messages: Any, tools: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    engine = Engine(call_model, Lines(100_000), long_history(), counter=TokenMeter())
    assert engine.run("Go on.") == "Done."
    assert engine.lines.window == 2500


def test_a_second_refusal_ends_the_turn_with_the_budget_table() -> None:
    def refuse(messages: Any, tools: Any) -> Any:
        raise ReplyError("Your input exceeds the context window of this model.")

    engine = Engine(refuse, Lines(100_000), long_history(), counter=TokenMeter())
    with pytest.raises(ContextExceeded, match="once more") as caught:
        engine.run("Go on.")
    assert len(caught.value.rows) == 7
    assert problems(engine.history) == [] and engine.can_go_on


def test_a_prompt_that_was_cut_to_fill_the_window_is_a_refusal() -> None:
    answers = [Reply(said(""), None, "length"), "Done."]
    ask = lambda messages, tools: answers.pop(0)  # noqa: E731
    engine = Engine(ask, Lines(100_000), long_history(), counter=TokenMeter())
    assert engine.run("Go on.") == "Done."
    assert any(event.kind == "pass" for event in engine.events)


# --- room for the reply -------------------------------------------------------------------


def test_a_reserve_counts_in_both_lines() -> None:
    lines = Lines(8000, reserve=2000)
    assert lines.room == 6000 and lines.decide(5999) is Decision.SEND
    assert lines.decide(6000) is Decision.COMPACT_EMERGENCY
    assert Lines(8000, auto_compact=False, reserve=2000).decide(6000) is not Decision.SEND
    assert Lines(8000, reserve=400).decide(6401) is Decision.COMPACT_THRESHOLD
    assert Lines(8000, reserve=1000).line_of(Decision.COMPACT_EMERGENCY) == 7000
    for wrong in (-1, 8000, 1.5, True):
        with pytest.raises(ValueError, match="reserve"):
            Lines(8000, reserve=wrong)  # type: ignore[arg-type]


# --- a pass must gain ---------------------------------------------------------------------


def test_small_turns_near_the_line_cost_few_summary_requests() -> None:
    asked = 0

    def summarize(messages: list[Message]) -> str:
        nonlocal asked
        asked += 1
        return SUMMARY

    history = [*long_history(4), user("Read it all. " + "word " * 2400)]
    engine = Engine(
        lambda messages, tools: "Noted.",
        Lines(6000, threshold=0.7),
        history,
        counter=TokenMeter(),
        summarize=summarize,
        keep_recent=1,
    )
    for turn in range(30):
        engine.run(f"Small turn {turn}. " + "One more word. " * 10)
    assert asked <= 10
    assert engine.estimate() < 5700


def test_a_routine_pass_that_gains_too_little_is_not_tried_again_at_once() -> None:
    tries: list[int] = []

    def compact(messages: list[Message]) -> list[Message]:
        tries.append(len(messages))
        return messages[:1] + messages[2:]  # one small message of many

    small = [user("word " * 20) for _ in range(40)]
    lines = Lines(round(TokenMeter().count(small) / 0.81))
    engine = Engine(
        lambda messages, tools: "ok", lines, small, counter=TokenMeter(), compact=compact
    )
    for _ in range(6):
        engine.run("hi")
    assert len(tries) == 1
    assert [event.then for event in engine.events if event.passed] == ["call the model"]
    engine.run("word " * 80)  # more than 5 % of the window
    assert len(tries) == 2


# --- results ------------------------------------------------------------------------------


def calling(*names: str) -> Message:
    return calls(*(call(f"c{n}", name, "{}") for n, name in enumerate(names)))


BIG = "".join(f"line {number}: the quick brown fox\n" for number in range(1, 6001))


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("text", [BIG, "x" * 200_000], ids=["lines", "one line"])
def test_a_big_result_is_kept_on_disk_and_never_ends_the_run(tmp_path, at_once, text) -> None:
    answers = [calling(*["read"] * at_once), calling("read"), calling("read"), "Done."]
    engine = Engine(
        lambda messages, tools: answers.pop(0),
        Lines(8000),
        counter=TokenMeter(),
        call_tool=call_functions({"read": lambda: text}),
        results=tmp_path / "results",
    )
    assert engine.run("Read it.") == "Done."
    results = [content_of(m) for m in engine.history if m["role"] == "tool"]
    assert all(len(found) < 20_000 and "left out here" in found for found in results)
    kept = sorted((tmp_path / "results").iterdir())
    assert kept and all(path.read_text() == text for path in kept)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept)
    assert results[0].startswith(text[:20]) and results[0].rstrip().endswith(text.rstrip()[-10:])
    if text is BIG:
        where = r"lines (\d+) to (\d+) of 6000; all of it: sed -n '\1,\2p' (\S+)]"
        said = re.search(where, results[0])
        assert said is not None and f"line {int(said[1]) - 1}:" in results[0]
        assert f"line {said[1]}:" not in results[0]


def test_results_that_fit_stay_whole_and_the_newest_are_cut(tmp_path) -> None:
    texts = iter(["a " * 4000, "b " * 4000, "c " * 4000, "d " * 4000])  # 2,000 tokens each
    answers: list[Any] = [calling("read", "read", "read", "read"), "Done."]
    engine = Engine(
        lambda messages, tools: answers.pop(0),
        Lines(8000),
        counter=TokenMeter(),
        call_tool=call_functions({"read": lambda: next(texts)}),
        results=tmp_path,
    )
    engine.run("Read them.")
    cut = ["left out here" in content_of(m) for m in engine.history if m["role"] == "tool"]
    assert cut == sorted(cut) and not cut[0] and cut[-1]


def test_without_a_folder_results_stay_as_they_are() -> None:
    answers: list[Any] = [calling("read")]
    engine = Engine(
        lambda messages, tools: answers.pop(0),
        Lines(8000),
        counter=TokenMeter(),
        call_tool=call_functions({"read": lambda: BIG}),
    )
    with pytest.raises(ContextExceeded):
        engine.run("Read it.")
    assert content_of(engine.history[-1]) == BIG


# --- usage, replies and summarisers that cannot be right ----------------------------------


@pytest.mark.parametrize("counter", [TokenMeter, FeatureMeter])
@pytest.mark.parametrize("tokens", [0, -5, 10**12, "many", float("nan"), True])
def test_absurd_usage_is_said_once_and_triggers_nothing(counter, tokens) -> None:
    notes: list[str] = []
    engine = Engine(
        lambda messages, tools: Reply(said("ok"), {"prompt_tokens": tokens}),
        Lines(8000),
        counter=counter(),
        on_note=notes.append,
    )
    for _ in range(3):
        engine.run("hello, hello")
    assert len(notes) == 1 and "cannot be right" in notes[0]
    assert engine.estimate() < 200 and not engine.counter.samples  # type: ignore[attr-defined]


def test_broken_calls_are_not_run_and_the_model_is_told() -> None:
    ran: list[str] = []
    broken = calling("write", "now", "write")
    for made, arguments in zip(broken["tool_calls"], ['{"text": "ab', "", ""], strict=True):
        made["function"]["arguments"] = arguments
    answers: list[Any] = [broken, "Done."]
    schema = {"name": "write", "parameters": {"type": "object", "required": ["text"]}}
    engine = Engine(
        lambda messages, tools: answers.pop(0),
        Lines(8000),
        counter=TokenMeter(),
        tools=[{"type": "function", "function": schema}],
        call_tool=lambda call: ran.append(call.name) or "ok",  # type: ignore[func-returns-value]
    )
    assert engine.run("Write.") == "Done."
    assert ran == ["now"]  # a call without arguments may need none
    results = [content_of(m) for m in engine.history if m["role"] == "tool"]
    assert "cut off" in results[0] and results[1] == "ok" and "without arguments" in results[2]
    kept = [call["function"]["arguments"] for call in engine.history[1]["tool_calls"]]
    assert kept == ["{}"] * 3 and problems(engine.history) == []


def test_a_session_that_was_saved_with_broken_arguments_is_healed() -> None:
    poisoned = calling("write")
    poisoned["tool_calls"][0]["function"]["arguments"] = '{"text": "ab'
    result = {"role": "tool", "tool_call_id": "c0", "content": "error"}
    seen: list[Any] = []
    engine = Engine(
        lambda messages, tools: seen.append(messages) or "ok",  # type: ignore[func-returns-value]
        Lines(8000),
        [user("hi"), poisoned, result],
        counter=TokenMeter(),
    )
    engine.run("Go on.")
    assert all(
        json.loads(call["function"]["arguments"]) == {}
        for message in seen[0]
        for call in message.get("tool_calls", ())
    )


def test_an_answer_that_was_cut_off_is_not_kept_as_whole() -> None:
    notes: list[str] = []
    reply = Reply(said("The first ha"), None, "length")
    engine = Engine(lambda m, t: reply, Lines(8000), counter=TokenMeter(), on_note=notes.append)
    assert engine.run("Tell me.").endswith(CUT_OFF_NOTE)
    assert content_of(engine.history[-1]) == f"The first ha\n\n{CUT_OFF_NOTE}"
    assert any("cut off" in note for note in notes)


EMPTY: list[Message] = [
    said(""),
    {"role": "assistant", "content": "", "reasoning_content": "hm"},
    said("<think>hm</think>"),
]


@pytest.mark.parametrize("empty", EMPTY)
def test_a_reply_that_says_nothing_is_asked_for_again_once(empty: Message) -> None:
    answers = [empty, "Done."]
    engine = Engine(lambda m, t: answers.pop(0), Lines(8000), counter=TokenMeter())
    assert engine.run("hi") == "Done."
    assert len(engine.history) == 2
    engine = Engine(lambda m, t: empty, Lines(8000), counter=TokenMeter())
    with pytest.raises(ReplyError, match="twice"):
        engine.run("hi")
    assert engine.history == [user("hi")] and engine.can_go_on


@pytest.mark.parametrize("change", ["assigned", "edited"])
def test_a_history_that_changes_while_it_is_summarised_is_left_alone(change: str) -> None:
    def compact(messages: list[Message]) -> list[Message]:
        if change == "assigned":
            engine.history = [*engine.history, user("one more")]
        else:
            engine.history.append(user("one more"))
        return messages[-1:]

    engine = Engine(
        lambda m, t: "ok", Lines(8000), long_history(), counter=TokenMeter(), compact=compact
    )
    before = list(engine.history)
    passed = engine.compact_now()
    assert passed.abandoned is not None and "changed while" in passed.abandoned
    assert engine.history == [*before, user("one more")]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_summariser_that_wants_to_end_the_program_changes_nothing(error) -> None:
    def summarize(messages: list[Message]) -> str:
        raise error

    engine = Engine(
        lambda m, t: "ok", Lines(8000), long_history(), counter=TokenMeter(), summarize=summarize
    )
    before = list(engine.history)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            engine.compact_now()
    else:
        assert engine.compact_now().abandoned is not None
    assert engine.history == before


# --- summary requests ---------------------------------------------------------------------


@pytest.mark.parametrize("room", [None, 1200])
def test_a_stretch_that_is_too_long_is_summarised_in_parts(room) -> None:
    def summary(body: dict[str, Any]) -> str:
        numbers = sorted(set(re.findall(r"Step (\d+)", body["messages"][-1]["content"])), key=int)
        return SUMMARY.replace("some", f"steps {', '.join(numbers)}")

    stretch = [*long_history(6), user("one long text " * 1500)]
    with Gateway(summaries=[summary] * 40, window=2600) as gateway:
        summarize = summarize_with(client_of(gateway), "m", room_tokens=room)
        parsed = parse_summary(summarize(stretch))
        statuses = [request.status for request in gateway.requests]
    assert all(str(step) in parsed["Confirmed facts"] for step in range(6))
    assert parsed["Key paths and commands"] == "- calc.py"
    assert statuses.count(200) > 1
    if room is not None:
        assert set(statuses) == {200}  # no request was too long in the first place


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"content": f"<think>{SUMMARY}</think>"}, "only thought aloud|empty reply"),
        ({"content": "", "reasoning_content": SUMMARY}, "only thought aloud"),
        ({"content": SUMMARY[:60], "finish_reason": "length"}, "cut off"),
    ],
)
def test_a_thought_or_half_a_summary_abandons_the_pass(reply, why) -> None:
    with Gateway(summaries=[reply]) as gateway:
        engine = Engine(
            lambda m, t: "ok",
            Lines(8000),
            long_history(),
            counter=TokenMeter(),
            summarize=summarize_with(client_of(gateway), "m"),
        )
        before = list(engine.history)
        passed = engine.compact_now()
    assert passed.abandoned is not None and re.search(why, passed.abandoned)
    assert engine.history == before


def test_a_thought_before_a_summary_is_cut() -> None:
    drafted = f"<think>Confirmed facts:\n- wrong</think>\n{SUMMARY}"
    with Gateway(summaries=[drafted]) as gateway:
        summary = summarize_with(client_of(gateway), "m")([user("hi " * 200)])
    assert summary == SUMMARY


def test_the_refusals_of_the_scripted_gateway_are_recognised() -> None:
    for wording in WORDINGS:
        refusal = too_long(wording, tokens=9000, window=8000)
        error = type("E", (Exception,), {})(str(refusal))
        error.status_code, error.body = refusal.status, refusal.body  # type: ignore[attr-defined]
        assert read_overflow(error) is not None, wording


def test_one_long_line_among_short_ones_is_cut_like_any_other_text(tmp_path) -> None:
    text = "x" * 100_000 + "\n" + "short\n" * 2_000
    shown = excerpt(text, tmp_path / "r.txt", 0.02)
    assert len(shown) < 4_000 and "characters; the first of them: tail -c" in shown


def test_a_result_that_was_cut_down_can_be_cut_down_again(tmp_path) -> None:
    measuring = Measuring(TokenMeter(), None, None)
    results = Results(tmp_path, measuring, None, lambda line: None)
    history = [calling("read"), {"role": "tool", "tool_call_id": "c0", "content": BIG}]
    sizes = [measuring.plain(history)]
    while (shorter := results.shortened(history, Lines(8000))) is not None:
        history = shorter
        sizes.append(measuring.plain(history))
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == len(sizes)
    assert sizes[-1] < 400
