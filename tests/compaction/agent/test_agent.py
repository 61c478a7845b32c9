"""The agent's session: the loop over real HTTP, its compaction, its faults."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from compaction import session
from compaction.agent import Agent, asking
from compaction.agent import agent as agent_module
from compaction.agent.asking import MAX_ATTEMPTS, retry_wait_s
from compaction.agent.connection import connect, connect_to, explain
from compaction.agent.functions import Parts
from compaction.agent.slash_commands import run_command
from compaction.agent.tools import SCHEMAS, Toolbox
from compaction.calibration import TokenMeter
from compaction.engine import Engine, Lines, Prices, reply_with
from compaction.gateway import FAULTS, Gateway, summarize_with
from compaction.messages import content_of, is_summary, problems
from compaction.probes import verify
from compaction.summary import compact
from tests.compaction.agent.sessions import (
    READ,
    READ_LONG,
    Heard,
    Start,
    assert_valid,
    calls,
    heard,
)

# --- a turn -------------------------------------------------------------------------------


def test_a_turn_with_tools(start: Start, folder: Path) -> None:
    edit = {"path": "calc.py", "old": "    return a / b", "new": "    return a / b  # guarded"}
    script = [
        calls(
            ("read_file", {"path": "calc.py"}),
            ("run_command", {"command": "echo tested"}),
            content="I look.",
        ),
        calls(("edit_file", edit)),
        "Done.",
    ]
    with Gateway(script=script) as gateway:
        agent = start(gateway)
        assert agent.say("Guard divide.")
        roles = " ".join(message["role"] for message in agent.history)
        assert roles == "system user assistant tool tool assistant tool assistant"
        assert heard(agent).texts[0] == "I look."
        assert heard(agent).texts[-2:] == ["Done.", ""]
        assert heard(agent).allowed == ["echo tested"]
        assert heard(agent).results[1].startswith("tested\n[exit code 0")
        assert "# guarded" in (folder / "calc.py").read_text()
        first, *_ = gateway.requests
        assert first.body is not None and first.body["tools"] == SCHEMAS
        assert first.body["stream_options"] == {"include_usage": True}
        assert_valid(agent)


def test_usage_is_observed_in_passing_and_calibrates(start: Start) -> None:
    with Gateway(script=[READ, READ, READ, "Read."]) as gateway:
        agent = start(gateway)
        agent.say("Read it three times.")
        meter = agent.parts.counter
        assert isinstance(meter, TokenMeter)
        assert [sample.tokens for sample in meter.samples] == [
            request.usage["prompt_tokens"] for request in gateway.requests if request.usage
        ]
        # The gateway charges half a token a character; the default table says a quarter.
        assert meter.coefficients.other == pytest.approx(0.5, abs=0.03)
        assert agent.usage is not None
        assert agent.usage.tokens == gateway.requests[-1].usage["prompt_tokens"]  # type: ignore[index]
        assert agent.usage.estimate == pytest.approx(agent.usage.tokens, rel=0.05)
        shown = run_command(agent, "/tokens")
        assert "on 4 samples" in shown and f"charged {agent.usage.tokens:,}" in shown


def test_the_checklist_tool_pins_its_text(start: Start) -> None:
    items = [{"text": "read", "done": True}, {"text": "mend", "done": False}]
    script = [calls(("todo", {"items": items}), content="First a plan."), "So far."]
    with Gateway(script=script) as gateway:
        agent = start(gateway)
        agent.say("Plan.")
        pinned = agent.history[2]
        assert pinned["content"] == "[todo]\n[x] read\n[ ] mend\n\nFirst a plan."
        assert agent.history[3]["content"] == "checklist written: 1 of 2 done"
        kept = [line.split()[3] for line in run_command(agent, "/history").splitlines()[1:]]
        assert kept == ["system", "recent", "pinned", "pinned", "recent"]


def test_a_refused_command_is_told_to_the_model(start: Start, folder: Path) -> None:
    script = [calls(("run_command", {"command": "touch made"})), "Then not."]
    with Gateway(script=script) as gateway:
        agent = start(gateway)
        agent.toolbox.allow = lambda command: False
        assert agent.say("Make a file.")
        assert agent.history[-2]["content"].startswith("refused: ")
        assert not (folder / "made").exists()


def test_a_model_that_never_stops_is_stopped(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "MAX_REQUESTS", 3)
    with Gateway(after_script=READ) as gateway:
        agent = start(gateway)
        assert not agent.say("Read.")
        assert len(gateway.requests) == 3
        assert "asked for tools 3 times in one turn" in heard(agent).notes[-1]
        assert_valid(agent)
        gateway.add_replies("Enough.")
        assert agent.go_on() and agent.history[-1]["content"] == "Enough."


# --- compaction ---------------------------------------------------------------------------


def test_the_sessions_figures_through_the_gateway() -> None:
    """The summaries come over real HTTP; the figures are those of the self-test."""
    long = session.load("long")
    with Gateway(summaries=long.replies) as gateway:
        client = connect_to(gateway).client
        meter = TokenMeter()
        done = compact(long.messages, summarize_with(client, "scripted"), meter=meter)
        assert (len(long.messages), len(done.messages)) == (14, 7)
        assert (done.before, done.after, done.abandoned) == (1368, 571, None)
        assert meter.count(session.load("short").messages) == 176
        assert [r.kind for r in gateway.requests] == ["summary", "summary"]
        assert not verify(long.probes, done.messages).lost
        assert done.messages == compact(long.messages, session.replay(long.replies)).messages


def test_the_engines_line_through_the_gateway() -> None:
    long = session.load("long")
    with Gateway(script=["It is built."], summaries=long.replies) as gateway:
        client = connect_to(gateway).client
        engine = Engine(
            reply_with(client, "scripted"),
            Lines(long.window, threshold=0.70),
            long.messages,
            counter=TokenMeter(),
            summarize=summarize_with(client, "scripted"),
            probes=long.probes,
        )
        passed = engine.compact_now()
        assert passed.line == ("compacted 14 -> 7 messages, 1368 -> 571 tokens, 2 probes kept")


def test_a_session_compacts_itself_and_says_so_in_one_line(start: Start) -> None:
    script = [READ_LONG, READ_LONG, "I have read it.", "Still here."]
    with Gateway(script=script) as gateway:
        agent = start(gateway, window=6000)
        pinned = "Read it all. Remember: build with `make all`."
        assert agent.say(pinned) and agent.say("Are you there?")
        [line] = [note for note in heard(agent).notes if note.startswith("compacted")]
        before, after = (int(word) for word in line.split(", ")[1].split()[::2][:2])
        assert before > 0.7 * 6000 > after
        assert line.endswith("1 probe kept")
        assert any(map(is_summary, agent.history))
        assert "make all: kept" in run_command(agent, "/probes")
        assert_valid(agent)
        kinds = [request.kind for request in gateway.requests]
        assert kinds.count("summary") >= 1 and kinds.count("turn") == 4


def test_superseded_checklists_go_at_a_compaction(start: Start) -> None:
    def todo(done: int) -> dict[str, Any]:
        items = [{"text": f"step {n}", "done": n < done} for n in range(4)]
        return calls(("todo", {"items": items}))

    script = [todo(0), READ_LONG, todo(1), READ_LONG, todo(2), "So far.", "Yes.", "Yes."]
    with Gateway(script=script) as gateway:
        agent = start(gateway, window=50_000)
        agent.say("Work.")
        agent.say("Go on?")
        agent.compact()
        written = [m for m in agent.history if content_of(m).startswith("[todo]")]
        assert [content_of(m).count("[x]") for m in written] == [2]
        # An open item of an old list must not come back as unfinished work.
        [summary] = [content_of(m) for m in agent.history if is_summary(m)]
        assert "[ ]" not in summary and "step 0" not in summary
        assert_valid(agent)


def test_prices_say_when_a_pass_has_paid_for_itself(start: Start) -> None:
    with Gateway(script=[READ_LONG, "Read.", "Yes.", "Yes.", "Yes."]) as gateway:
        agent = start(gateway, prices=Prices(2.0, 0.5, 8.0))
        for text in ("Read.", "So?", "And?", "Then?"):
            agent.say(text)
        agent.compact()
        first, second = heard(agent).notes[-2:]
        assert first.startswith("compacted ") and "comes in again after" in second


def test_a_manual_pass_that_saves_nothing_changes_nothing(start: Start) -> None:
    with Gateway(script=["Hello."]) as gateway:
        agent = start(gateway)
        agent.say("Hi.")
        before = list(agent.history)
        run_command(agent, "/compact")
        assert agent.history == before
        [line] = heard(agent).notes
        assert line.startswith("not compacted: nothing to compress: all that is old is kept")


# --- faults -------------------------------------------------------------------------------


# What a person reads, for each fault as often as it takes to be noticed.
_LINES = {
    "usage-missing": ("usage-missing", ["the gateway reports no usage; all figures are estimates"]),
    "usage-null": ("usage-null", ["the gateway reports no usage; all figures are estimates"]),
    "rate-limit": ("rate-limit", ["the gateway is busy (status 429", "asking again in 0.05 s"]),
    "server-error": ("server-error", ["the gateway failed (status 500", "asking again in 0.5 s"]),
    "cut-stream": ("cut-stream", ["the connection to the gateway failed", "asking again in 0.5 s"]),
    "html-error": ("html-error", ["the gateway failed (status 502", "asking again in 0.5 s"]),
    "error-event": ("error-event", ["The server is overloaded", "asking again in 0.5 s"]),
    "empty-choices": ("empty-choices", ["asking again in 0.5 s"]),
    "slow": ("slow", ["the gateway is slow: no word for 0.4 s"]),
    "missing-heading": (
        "missing-heading",
        ["not compacted: the summary lacks the heading: Key paths", "going on with"],
    ),
    "tool-call-summary": (
        "tool-call-summary",
        ["not compacted: the summariser failed", "tool call instead of a summary", "going on with"],
    ),
}


def test_every_fault_is_tried() -> None:
    assert set(_LINES) == set(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_and_loses_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "slow":
        monkeypatch.setattr(asking, "PATIENCE_S", 0.4)
    armed, parts = _LINES[fault]
    script = [READ_LONG, READ_LONG, "Read. " * 20, "Still here.", "And here."]
    with Gateway(script=script, faults=[armed], retry_after_s=0.05, slow_s=0.8) as gateway:
        agent = start(gateway, window=6000)
        went_well = agent.say("Read it. Remember: build with `make all`.")
        if not went_well:
            assert agent.engine.can_go_on
            assert agent.go_on()
        assert agent.say("Are you there?")
        notes = heard(agent).notes
        # A loaded machine may be slow more than once, and longer.
        doubled = ("compacted", "the gateway is slow: no word for 0.8 s")
        [line] = {note for note in notes if not note.startswith(doubled)}
        assert all(part in line for part in parts) and "\n" not in line
        assert_valid(agent)
        said = [content_of(m) for m in agent.history if m["role"] == "assistant"]
        assert said[-1] == "Still here."
        assert "LOST" not in run_command(agent, "/probes")


def test_a_fault_that_stays_ends_the_turn_not_the_session(start: Start) -> None:
    with Gateway(
        script=["Hello."], faults=[f"rate-limit*{MAX_ATTEMPTS}"], retry_after_s=0.02
    ) as gateway:
        agent = start(gateway)
        assert not agent.say("Hi.")
        assert [note.count("status 429") for note in heard(agent).notes] == [1] * MAX_ATTEMPTS
        assert heard(agent).notes[-1].endswith("the session is whole, /retry asks again")
        assert agent.history[-1] == {"role": "user", "content": "Hi."}
        assert_valid(agent)
        run_command(agent, "/continue")
        assert agent.history[-1]["content"] == "Hello."


def test_no_gateway_at_all_is_one_line(folder: Path, tmp_path: Path) -> None:
    connection = connect("a-model", "http://127.0.0.1:9/v1")
    listener = Heard()
    toolbox = Toolbox(folder, allow=listener.allow)
    agent = Agent(
        connection, toolbox, listener, parts=Parts(counter=TokenMeter()), save_to=tmp_path / "s"
    )
    assert not agent.say("Hi.")
    assert "connection to the gateway failed" in listener.notes[-1]
    assert_valid(agent)
    agent.close()


def test_a_cut_reply_is_asked_for_again(start: Start) -> None:
    answer = "A long answer. " * 20
    with Gateway(script=[answer], faults=["cut-stream"]) as gateway:
        agent = start(gateway)
        assert agent.say("Speak.")
        assert len(gateway.requests) == 2
        beginning, whole = heard(agent).texts[:2]
        assert answer.startswith(beginning) and whole == answer
        assert "asking again in 0.5 s" in heard(agent).notes[0]
        assert content_of(agent.history[-1]) == answer  # and the broken one left no trace
        assert len(agent.history) == 3
        assert_valid(agent)


def test_an_emergency_does_without_the_models_summary(start: Start) -> None:
    faults = ["missing-heading/1"]
    script = [READ_LONG, READ_LONG, "Read.", "Yes."]
    with Gateway(script=script, faults=faults) as gateway:
        # The lines lie close together, so that the first crossing is an emergency; a result that
        # crosses them is cut down, so it is the person's text that does.
        agent = start(gateway, window=4400, threshold=0.95, reserve=0)
        assert agent.say("Read it twice.") and agent.say("So? " + "word " * 1000)
        notes = heard(agent).notes
        assert any("sentences were copied from the history" in note for note in notes)
        assert any(note.startswith("compacted ") for note in notes)
        assert_valid(agent)


def test_a_full_context_is_one_line_that_names_who_is_over(start: Start) -> None:
    with Gateway(script=["Yes."]) as gateway:
        agent = start(gateway, window=700)
        assert not agent.say("word " * 900)
        [line] = heard(agent).notes
        assert "the context is full" in line and "conversation" in line and "/budget" in line
        assert_valid(agent)


def test_waiting_is_for_what_may_pass() -> None:
    import httpx2
    import openai

    def status(code: int, **headers: str) -> openai.APIStatusError:
        request = httpx2.Request("POST", "http://127.0.0.1/v1")
        response = httpx2.Response(code, headers=headers, request=request)
        return openai.APIStatusError("no", response=response, body=None)

    waits = [retry_wait_s(status(503), attempt) for attempt in range(1, MAX_ATTEMPTS + 1)]
    assert waits == [0.5, 1.0, 2.0, 4.0, None]
    assert retry_wait_s(status(429, **{"Retry-After": "7"}), 1) == 7.0
    assert retry_wait_s(status(429, **{"Retry-After": "3600"}), 1) is None
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    assert retry_wait_s(status(429, **{"Retry-After": soon}), 1) == pytest.approx(20, abs=2)
    past = "Mon, 30 Nov 2020 10:00:00 GMT"
    assert retry_wait_s(status(429, **{"Retry-After": past}), 1) == 0.0
    assert retry_wait_s(status(429, **{"Retry-After": "in a while"}), 2) == 1.0
    assert retry_wait_s(status(400), 1) is None and retry_wait_s(status(401), 1) is None
    assert explain(status(401)).startswith("the gateway does not accept the key (status 401")


def test_broken_characters_do_not_stop_the_session(start: Start) -> None:
    half = {"content": "a half: \ud83d", "tool_calls": READ["tool_calls"]}
    with Gateway(script=[half, "Read.", "Fine."]) as gateway:
        agent = start(gateway)
        assert agent.say("Bytes that are no text: \udcff.")
        assert content_of(agent.history[2]) == "a half: \ufffd"
        assert agent.say("Still there?")
        assert_valid(agent)


# --- stopping -----------------------------------------------------------------------------


def test_ctrl_c_in_mid_reply_keeps_the_session(start: Start) -> None:
    with Gateway(script=["One two three four five six seven. " * 9, "Again."]) as gateway:
        agent = start(gateway)

        def interrupt(piece: str) -> None:
            raise KeyboardInterrupt

        agent.listener.text = interrupt  # type: ignore[method-assign]
        assert not agent.say("Speak.")
        assert heard(agent).notes == ["stopped; the session is whole, /continue goes on"]
        assert_valid(agent)
        del agent.listener.text
        assert agent.say("Speak again.")
        assert_valid(agent)


def test_ctrl_c_in_a_command_leaves_its_call_unfinished(start: Start) -> None:
    script = [
        calls(("read_file", {"path": "calc.py"}), ("run_command", {"command": "sleep 9"})),
        "No result, I see.",
    ]
    with Gateway(script=script) as gateway:
        agent = start(gateway)

        def interrupt(command: str) -> bool:
            raise KeyboardInterrupt

        agent.toolbox.allow = interrupt
        assert not agent.say("Work.")
        assert heard(agent).notes == [
            "stopped, 1 tool call without a result; the session is whole, /continue goes on"
        ]
        assert problems(agent.history) == ["tool call 'call_2' has no result right after it"]
        assert "no result" in run_command(agent, "/history").splitlines()[-1]
        assert_valid(agent)
        # Another message closes the round: the model is told, the history keeps the open call.
        assert agent.say("Never mind.")
        sent = gateway.requests[-1].body
        assert sent is not None and problems(sent["messages"]) == []
        assert any("stopped before" in str(m["content"]) for m in sent["messages"])
        assert len(agent.history) + 1 == len(sent["messages"]) + 1
        assert_valid(agent)


def test_continue_runs_the_calls_that_wait(start: Start) -> None:
    with Gateway(script=[calls(("run_command", {"command": "echo ran"})), "It ran."]) as gateway:
        agent = start(gateway)

        def interrupt(command: str) -> bool:
            raise KeyboardInterrupt

        agent.toolbox.allow = interrupt
        agent.say("Work.")
        agent.toolbox.allow = lambda command: True
        assert agent.go_on()
        assert problems(agent.history) == []
        assert agent.history[-1]["content"] == "It ran."
        assert not agent.go_on()
        assert "nothing to go on with" in heard(agent).notes[-1]


# --- the window and the reply's room --------------------------------------------------------


def test_the_window_that_a_gateway_names_is_learned_and_kept(start: Start) -> None:
    script = ["Noted. " * 60] * 8 + ["Still here."]
    with Gateway(script=script, window=1500) as gateway:
        agent = start(gateway, window=100_000)
        for turn in range(8):
            agent.say(f"Turn {turn}. " + "Look at the next file. " * 10)
        notes = heard(agent).notes
        refused = [request for request in gateway.requests if request.status == 400]
    assert len(refused) == 1
    assert any("refused the request as too long; its window is 1,500" in note for note in notes)
    assert agent.window == 1500
    assert_valid(agent)


def test_a_reserve_moves_the_lines_and_limits_the_reply_only_where_it_is_given(
    start: Start,
) -> None:
    with Gateway(script=["ok", "ok"]) as gateway:
        plain = start(gateway, window=8000)
        assert plain.engine.lines.reserve == 2000 and plain.say("hi")
        asked = start(gateway, window=8000, reserve=500)
        assert asked.engine.lines.reserve == 500 and asked.say("hi")
        first, second = (request.body or {} for request in gateway.requests)
    assert "max_completion_tokens" not in first and "max_tokens" not in first
    assert second["max_completion_tokens"] == 500
    assert start(gateway, window=1_000_000).engine.lines.reserve == 16_384
