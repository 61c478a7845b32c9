"""The agent's session: the loop over real HTTP, its compaction, its faults, its file."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from compaction import session
from compaction.agent import Agent, Listener, asking, demo
from compaction.agent import agent as agent_module
from compaction.agent.asking import MAX_ATTEMPTS, retry_wait_s
from compaction.agent.connection import connect, connect_to, explain, without_secrets
from compaction.agent.functions import USED, Parts, parts_of
from compaction.agent.options import add_arguments, open_agent
from compaction.agent.slash_commands import COMMANDS, CommandError, run_command
from compaction.agent.store import latest_session_file, read_session, write_session
from compaction.agent.tools import SCHEMAS, Toolbox
from compaction.calibration import TokenMeter
from compaction.cli import main
from compaction.engine import Engine, Lines, Prices, close_calls, reply_with
from compaction.gateway import FAULTS, Gateway, summarize_with
from compaction.history import HistoryError, read_history
from compaction.messages import Call, Message, content_of, is_summary, problems
from compaction.probes import Probe, verify
from compaction.summary import compact

LONG_TEXT = "The module holds amounts in whole cents.\n" * 80


class Heard(Listener):
    """Writes down all that a session tells; answers every question with yes."""

    def __init__(self) -> None:
        self.texts: list[str] = [""]
        self.calls: list[Call] = []
        self.results: list[str] = []
        self.notes: list[str] = []
        self.allowed: list[str] = []

    def text(self, piece: str) -> None:
        self.texts[-1] += piece

    def end_text(self) -> None:
        self.texts.append("")

    def call(self, call: Call) -> None:
        self.calls.append(call)

    def result(self, call: Call, result: str) -> None:
        self.results.append(result)

    def note(self, line: str) -> None:
        self.notes.append(line)

    def allow(self, command: str) -> bool:
        self.allowed.append(command)
        return True


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep sessions away from the home of whoever runs the tests."""
    monkeypatch.setenv("COMPACTION_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "calc.py").write_text("def divide(a, b):\n    return a / b\n")
    (project / "long.txt").write_text(LONG_TEXT)
    return project


Start = Callable[..., Agent]


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    """Return a function that begins a session on a gateway, with a meter of its own."""
    begun: list[Agent] = []

    def begin(gateway: Gateway, **options: Any) -> Agent:
        heard = Heard()
        toolbox = Toolbox(folder, allow=heard.allow)
        options = {
            "parts": Parts(counter=TokenMeter()),
            "save_to": tmp_path / "session.json",
            **options,
        }
        begun.append(Agent(connect_to(gateway), toolbox, heard, **options))
        return begun[-1]

    yield begin
    for agent in begun:
        agent.close()


def heard(agent: Agent) -> Heard:
    assert isinstance(agent.listener, Heard)
    return agent.listener


def calls(*wanted: tuple[str, dict[str, Any]], content: str | None = None) -> dict[str, Any]:
    made = [{"name": name, "arguments": arguments} for name, arguments in wanted]
    return {"content": content, "tool_calls": made}


READ = calls(("read_file", {"path": "calc.py"}))
READ_LONG = calls(("read_file", {"path": "long.txt"}))


def assert_valid(agent: Agent) -> None:
    """What is sent next must be what an API accepts, and what the file holds."""
    asked = [*agent.history, {"role": "user", "content": "Go on."}]
    assert problems(close_calls(asked)) == []
    assert agent.save_to is not None
    assert read_session(agent.save_to).messages == agent.history


# --- a turn ---------------------------------------------------------------------------------


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


# --- compaction -----------------------------------------------------------------------------


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


# --- faults ---------------------------------------------------------------------------------

# What a person reads, for each fault as often as it takes to be noticed.
_LINES = {
    "usage-missing": ("usage-missing", ["the gateway reports no usage; all figures are estimates"]),
    "usage-null": ("usage-null", ["the gateway reports no usage; all figures are estimates"]),
    "rate-limit": ("rate-limit", ["the gateway is busy (status 429", "asking again in 0.05 s"]),
    "server-error": ("server-error", ["the gateway failed (status 500", "asking again in 0.5 s"]),
    "cut-stream": ("cut-stream", ["the connection to the gateway failed", "asking again in 0.5 s"]),
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
        # The lines lie close together, so that the first crossing is an emergency.
        agent = start(gateway, window=4400, threshold=0.95)
        assert agent.say("Read it twice.") and agent.say("So?")
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


# --- stopping -------------------------------------------------------------------------------


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


# --- the session's file ---------------------------------------------------------------------


def test_the_file_is_written_after_every_message(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def write(path: Path, saved: Any, *rest: Any) -> None:
        written.append(len(saved.messages))
        write_session(path, saved, *rest)

    monkeypatch.setattr(agent_module, "write_session", write)
    with Gateway(script=[READ, "Read."]) as gateway:
        agent = start(gateway)
        agent.say("Read.")
        assert written == [2, 3, 4, 5, 5]
        # It is a history as the command line reads it, tools included.
        file = json.loads((tmp_path / "session.json").read_text())
        assert file["tools"] == SCHEMAS
        assert read_history(tmp_path / "session.json") == agent.history


def test_a_session_goes_on_from_its_file(start: Start, tmp_path: Path) -> None:
    with Gateway(script=[READ, READ, READ, "Read.", "Yes."]) as gateway:
        agent = start(gateway, window=9000)
        agent.say("Read. Remember: build with `make all`.")
        saved = read_session(tmp_path / "session.json")
        assert (saved.window, saved.model, saved.demo) == (9000, "scripted", False)
        assert saved.folder == str(agent.toolbox.folder)
        later = start(gateway, history=saved.messages, probes=saved.probes, samples=saved.samples)
        assert later.history == agent.history
        # What was calibrated stays calibrated.
        assert later.parts.counter.coefficients.other == pytest.approx(0.5, abs=0.03)  # type: ignore[attr-defined]
        assert later.say("Are you there?")


def test_a_place_that_cannot_be_written_is_said_once(start: Start, tmp_path: Path) -> None:
    with Gateway(script=[READ, "Read."]) as gateway:
        agent = start(gateway, save_to=tmp_path / "nowhere" / "s.json")
        assert agent.say("Read.")
        [line] = heard(agent).notes
        assert line.startswith("the session is not saved: ") and "no folder" in line


def test_save_and_load(start: Start, tmp_path: Path) -> None:
    with Gateway(script=["Hello."]) as gateway:
        agent = start(gateway)
        agent.say("Hi. Remember: build with `make all`.")
        copy = tmp_path / "copy.json"
        assert run_command(agent, f"/save {copy}") == f"wrote {copy}"
        with pytest.raises(CommandError, match="the file exists"):
            run_command(agent, f"/save {copy}")
        other = tmp_path / "other.jsonl"
        lines = [{"role": "user", "content": "Remember: use `tabs`."}, {"role": "assistant"}]
        lines[1]["content"] = "Yes."
        other.write_text("\n".join(map(json.dumps, lines)))
        assert run_command(agent, f"/load {other}").startswith("2 messages from ")
        assert agent.history == lines
        # The facts are those of the history that is loaded.
        assert run_command(agent, "/probes") == "tabs: kept, in message 1"
        assert_valid(agent)


def test_what_is_not_loaded_leaves_the_session(start: Start, tmp_path: Path) -> None:
    orphan = tmp_path / "orphan.json"
    orphan.write_text('[{"role": "tool", "tool_call_id": "c9", "content": "ok"}]')
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with Gateway(script=["Hello."]) as gateway:
        agent = start(gateway)
        agent.say("Hi.")
        before = list(agent.history)
        for path, reason in (
            (orphan, "an API would refuse this history: tool result 'c9'"),
            (broken, "malformed JSON"),
            (tmp_path / "missing.json", "cannot be read"),
        ):
            with pytest.raises(CommandError, match=reason):
                run_command(agent, f"/load {path}")
        assert agent.history == before


def test_an_interrupted_history_can_be_loaded(start: Start, tmp_path: Path) -> None:
    function = {"name": "read_file", "arguments": '{"path": "calc.py"}'}
    call = {"id": "c1", "type": "function", "function": function}
    file = tmp_path / "stopped.json"
    messages = [
        {"role": "user", "content": "Read."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    file.write_text(json.dumps(messages))
    with Gateway(script=["Read."]) as gateway:
        agent = start(gateway)
        agent.load(file)
        assert agent.go_on()
        assert agent.history[2]["content"].startswith("def divide")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "is empty"),
        ('[{"role": "user", "content": "hi"}]', "expected a session of the agent"),
        ('{"messages": [{"role": "user", "content": "hi"}], "agent": {}}', '"window" is no int'),
        (
            '{"messages": [{"role": "user", "content": "hi"}], "agent": {"window": 0}}',
            "at least 1",
        ),
        (
            '{"messages": [{"role": "user"}], "agent": {"window": 9, "probes": [7]}}',
            "expected lists of probes",
        ),
        (
            '{"messages": [{"role": "user"}], "agent": {"window": 1' + "0" * 400 + "}}",
            '"window" must be at least 1, at most',
        ),
        (
            '{"messages": [{"role": "user"}], "agent": {"window": 9, "folder": "a\\u0000b"}}',
            '"folder" names no folder',
        ),
        (
            '{"messages": [{"role": "user"}], "agent": {"window": 9, "folder": ""}}',
            '"folder" names no folder',
        ),
        *(
            (
                '{"messages": [{"role": "user"}], "agent": {"window": 9, "samples": [['
                + number
                + "]]}}",
                "expected lists of probes and samples",
            )
            for number in ("1, 1, 1" + "0" * 400, "-5, 1, 1", "1e300, 1, 1", '"x", 1, 1')
        ),
    ],
)
def test_a_file_that_is_no_session(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "s.json"
    file.write_text(text)
    with pytest.raises(HistoryError, match=reason):
        read_session(file)


# --- kill -9 --------------------------------------------------------------------------------


def start_process(gateway: Gateway, folder: Path, file: Path, *options: str) -> Any:
    arguments = ["--model", "scripted", "--base-url", gateway.base_url, "--yes", *options]
    arguments += ["--folder", str(folder)] + (["--session", str(file)] if file else [])
    return subprocess.Popen(
        [sys.executable, "-m", "compaction", "agent", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], Any], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def messages_in(file: Path) -> list[Message]:
    return read_session(file).messages if file.exists() else []


def test_kill_in_mid_turn_loses_only_what_was_in_flight(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    slow = calls(("run_command", {"command": "echo $$ > pid; sleep 60"}), content="I run it.")
    with Gateway(script=[READ, "Read.", READ, slow, "It ended."]) as gateway:
        process = start_process(gateway, folder, file)
        try:
            process.stdin.write("Read it. Remember: build with `make all`.\nNow run it.\n")
            process.stdin.flush()
            wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip())
        finally:
            process.kill()
            process.wait()
        os.killpg(int((folder / "pid").read_text()), signal.SIGKILL)
        kept = messages_in(file)
        roles = " ".join(message["role"] for message in kept)
        assert roles == "system user assistant tool assistant user assistant tool assistant"
        assert problems(kept) == ["tool call 'call_3' has no result right after it"]
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
        # The same session goes on: the waiting call runs, and the fact is still pinned.
        (folder / "pid").unlink()
        later = start_process(gateway, folder, file, "--resume", "--time-limit", "0.3")
        out, _ = later.communicate("/continue\n/probes\n", timeout=60)
        assert "the last turn was stopped: /continue goes on" in out
        assert "It ended." in out and "make all: kept" in out
        assert problems(messages_in(file)) == []
        assert messages_in(file)[:9] == kept


def test_kill_in_mid_reply_keeps_the_persons_words(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    with Gateway(script=["word " * 2000, "Yes."], chunk_delay_s=0.05) as gateway:
        process = start_process(gateway, folder, file)
        try:
            process.stdin.write("Speak.\n")
            process.stdin.flush()
            heard = ""
            while "word word" not in heard:
                heard += process.stdout.read(1)
        finally:
            process.kill()
            process.wait()
        assert messages_in(file)[1:] == [{"role": "user", "content": "Speak."}]


def test_a_real_ctrl_c_ends_the_command_and_keeps_the_session(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    slow = calls(("run_command", {"command": "echo $$ > pid; sleep 60"}))
    with Gateway(script=[slow, "I see."]) as gateway:
        process = start_process(gateway, folder, file)
        process.stdin.write("Run it.\n")
        process.stdin.flush()
        wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate("Never mind.\n", timeout=60)
        assert process.returncode == 0
        assert "* stopped, 1 tool call without a result; the session is whole" in out
        assert out.rstrip().splitlines()[-2].startswith("--resume goes on") and "I see." in out
    # Nothing of the group is alive; a dead process may wait for its parent to take note.
    group = (folder / "pid").read_text().strip()
    listed = subprocess.run(
        ["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True
    )
    states = [line.split()[1] for line in listed.stdout.splitlines() if line.split()[0] == group]
    assert all(state.startswith("Z") for state in states)
    assert [m["role"] for m in messages_in(file)[-3:]] == ["assistant", "user", "assistant"]


# --- options and keys -----------------------------------------------------------------------


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def test_a_key_is_in_no_file_no_message_and_no_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, word = "sk-test-abcdefgh", "pass-word-1"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    file = tmp_path / "s.json"
    (folder / ".env").write_text(f"OPENAI_API_KEY={key}\n")
    script = [
        calls(("read_file", {"path": ".env"}), ("run_command", {"command": "env; cat .env"})),
        "Read.",
    ]
    with Gateway(script=script) as gateway:
        listener = Heard()
        address = gateway.base_url.replace("http://", f"http://me:{word}@")
        given = options(
            *("--model", "scripted", "--base-url", address, "--folder", str(folder)),
            *("--session", str(file), "--window", "100000"),
        )
        agent = open_agent(given, listener)
        agent.say("Read the environment.")
        gateway.add_faults("server-error*9")
        agent.say(f"And {key[:3]}?")
        agent.close()
        seen = [request.body for request in gateway.requests]
    everything = json.dumps([seen, listener.notes, listener.results, agent.history])
    everything += file.read_text()
    assert key not in everything and word not in everything
    assert "[key]" in everything
    assert without_secrets("https://a:b@host:1/v1?key=c#d") == "https://host:1/v1"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--base-url", "http://127.0.0.1:9/v1"], "--base-url needs --model"),
        (["--model", "m"], "--model needs a key in OPENAI_API_KEY"),
        (["--model", "m", "--base-url", "localhost:9"], "begins with http:// or https://"),
        (["--model", "m", "--base-url", "http://h/v1", "--folder", "/no/such"], "no such folder"),
        (["--window", "0"], "expected a positive number of tokens"),
        (["--threshold", "7"], "expected a share from 0.05 to 1"),
        (["--threshold", "nan"], "expected a share from 0.05 to 1"),
        (["--prices", "1", "2", "3"], "cached input must not cost more"),
        (["--prices", "1", "x", "3"], "expected a price"),
        (["--resume", "no-such.json"], "no-such.json: cannot be read"),
        (["--resume"], "there is no session to resume"),
        (["--resume", "a.json", "--session", "b.json"], "name two files"),
        (["--functions", "no-such-folder"], "no-such-folder"),
        (["--folder", "tests"], "expected a new or an empty folder"),
    ],
)
def test_options_that_are_none_are_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    repository: Path,
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(repository)
    try:
        code = main(["agent", *arguments])
    except SystemExit as exit:
        code = exit.code  # type: ignore[assignment]
    complaint = capsys.readouterr().err
    assert code == 2
    assert complaint.startswith("error: ") and reason in complaint
    assert complaint.count("\n") == 1


def test_a_session_is_never_written_over(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text("mine")
    with pytest.raises(HistoryError, match="--resume goes on with it"):
        open_agent(options("--session", str(file)), Listener())
    assert file.read_text() == "mine"


def test_the_default_place_is_private_and_the_latest_is_found(home: Path) -> None:
    agent = open_agent(options(), Heard())
    try:
        agent.say("hello")
        assert agent.save_to is not None and agent.save_to.parent == home / "sessions"
        assert (home / "sessions").stat().st_mode & 0o077 == 0
        assert latest_session_file() == agent.save_to
    finally:
        agent.close()
    later = open_agent(options("--resume"), Heard())
    try:
        assert later.history == agent.history and later.save_to == agent.save_to
        assert later.demo and later.toolbox.folder == agent.toolbox.folder
    finally:
        later.close()


# --- commands -------------------------------------------------------------------------------


def test_commands(start: Start) -> None:
    with Gateway(script=["Hello."]) as gateway:
        agent = start(gateway, window=4000)
        table = run_command(agent, "/budget")
        rows = agent.engine.budget()
        assert all(row.path in table for row in rows) and len(rows) == 7
        total = sum(row.tokens for row in rows)
        assert total == agent.engine.estimate()
        assert f"{total:,} of 4,000 tokens" in table
        assert "compacts above 2,800, at the latest at 3,800" in table
        assert "no usage yet" in run_command(agent, "/tokens")
        assert "nothing is pinned" in run_command(agent, "/probes")
        help_text = run_command(agent, "/help")
        assert all(name in help_text for name in COMMANDS)
        assert str(agent.toolbox.folder) in help_text
        with pytest.raises(EOFError):
            run_command(agent, "/exit")
        assert run_command(agent, "/bud") == table


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("/xyz", "there is no command /xyz; /help lists them"),
        ("/comapct 800", "there is no command /comapct; the nearest is /compact, /help lists them"),
        ("/Budget", "the nearest is /budget"),
        ("/etc/hosts is wrong", "there is no command /etc/hosts; /help lists them"),
        ("/compact some", "expected /compact, or /compact N"),
        ("/undo", "there is nothing to undo"),
        ("/", "there is no command /; /help"),
        ("/budget now", "/budget takes nothing after it"),
        ("/save", "expected /save FILE"),
        ("/load", "expected /load FILE"),
        ("/probes all", "expected /probes, or /probes ask"),
    ],
)
def test_commands_that_are_none(start: Start, line: str, reason: str) -> None:
    with Gateway() as gateway, pytest.raises(CommandError) as error:
        run_command(start(gateway), line)
    assert reason in str(error.value)


# --- the demonstration ----------------------------------------------------------------------


@pytest.fixture
def demonstration(tmp_path: Path) -> Iterator[Agent]:
    heard = Heard()
    demo.lay_project(tmp_path / "calc")
    toolbox = Toolbox(tmp_path / "calc", allow=heard.allow)
    agent = Agent(
        connect_to(Gateway(after_script=demo.reply)),
        toolbox,
        heard,
        window=demo.WINDOW,
        probes=demo.PROBES,
        parts=Parts(counter=TokenMeter()),
        save_to=tmp_path / "session.json",
        demo=True,
    )
    yield agent
    agent.close()


def test_the_demonstration_from_beginning_to_end(demonstration: Agent) -> None:
    agent = demonstration
    said = []
    while (suggestion := demo.suggestion(agent.history)) is not None:
        said.append(suggestion)
        assert agent.say(suggestion)
        assert_valid(agent)
    assert said == [turn.suggestion for turn in demo.TURNS]
    ran = [result for result in heard(agent).results if "[exit code" in result]
    # Real tests: they fail, say what is expected, and pass after the edits.
    assert [("[exit code 0 " in text, "divide by zero" in text) for text in ran] == [
        (False, True),
        (True, False),
        (False, True),
        (True, False),
    ]
    assert "Ran 20 tests" in ran[-1]
    passes = [note for note in heard(agent).notes if note.startswith("compacted ")]
    assert len(passes) >= 2
    assert all(line.endswith("2 probes kept") for line in passes)
    report, unseen = agent.check_probes()
    assert report.kept == demo.PROBES and not report.lost and not unseen
    assert content_of(agent.history[-1]) == demo.recall(agent.history)
    assert "gone from my context" not in content_of(agent.history[-1])
    # The machine's own figures: what was estimated is what was charged, to about a percent.
    assert agent.usage is not None
    assert agent.usage.estimate == pytest.approx(agent.usage.tokens, rel=0.02)
    agent.say("And now?")
    assert "My script ends here" in content_of(agent.history[-1])


def test_the_scripted_model_knows_only_what_it_is_sent() -> None:
    for probe in demo.PROBES:
        other = next(p for p in demo.PROBES if p != probe)
        answer = demo.recall([{"role": "user", "content": probe.fact}])
        assert probe.fact in answer and other.fact not in answer
        assert "gone from my context" in answer


def test_the_probe_questions_are_put_to_the_model(demonstration: Agent) -> None:
    agent = demonstration
    shown = run_command(agent, "/probes ask")
    assert shown.count("not in this session yet; no answer") == 2
    agent.say(demo.TURNS[0].suggestion)
    before = list(agent.history)
    shown = run_command(agent, "/probes ask")
    assert shown.count("kept, in message") == 2 and shown.count("the model answered it") == 2
    assert agent.history == before


@pytest.mark.parametrize("text", ["What is the weather?", "你好", "write me a poem", "/"])
def test_free_input_gets_help_and_changes_nothing(demonstration: Agent, text: str) -> None:
    agent = demonstration
    agent.say(text)
    answer = content_of(agent.history[-1])
    assert "I am a script, not a model" in answer and demo.TURNS[0].suggestion in answer
    assert "--model NAME" in answer
    # The demonstration then goes on where it is.
    assert demo.suggestion(agent.history) == demo.TURNS[0].suggestion
    agent.say("Please find out why the test fails.")
    assert "divide by zero" in content_of(agent.history[-1])


def test_a_fact_of_ones_own_is_pinned(demonstration: Agent) -> None:
    agent = demonstration
    agent.say("Remember: deploy on `Fridays never`.")
    assert "`Fridays never`" in content_of(agent.history[-1])
    assert "Fridays never: kept" in run_command(agent, "/probes")


def test_a_refused_command_is_asked_for_again(demonstration: Agent) -> None:
    agent = demonstration
    agent.toolbox.allow = lambda command: False
    agent.say(demo.TURNS[0].suggestion)
    assert "Without that command I cannot go on" in content_of(agent.history[-1])
    assert demo.suggestion(agent.history) == "Go on."
    agent.toolbox.allow = lambda command: True
    agent.say("go on")
    assert "divide by zero" in content_of(agent.history[-1])
    assert demo.suggestion(agent.history) == demo.TURNS[1].suggestion


def test_the_demonstration_goes_on_after_a_stop(demonstration: Agent) -> None:
    agent = demonstration

    def interrupt(command: str) -> bool:
        raise KeyboardInterrupt

    allow, agent.toolbox.allow = agent.toolbox.allow, interrupt
    agent.say(demo.TURNS[0].suggestion)
    assert demo.suggestion(agent.history) == "Go on."
    agent.toolbox.allow = allow
    agent.say("Go on.")
    assert "divide by zero" in content_of(agent.history[-1])
    assert_valid(agent)


def test_the_project_is_laid_once(tmp_path: Path) -> None:
    demo.lay_project(tmp_path / "calc")
    (tmp_path / "calc" / "calc.py").write_text("mine")
    demo.lay_project(tmp_path / "calc")
    assert (tmp_path / "calc" / "calc.py").read_text() == "mine"
    assert demo.may_lay_project(tmp_path / "calc")
    (tmp_path / "other").mkdir()
    assert demo.may_lay_project(tmp_path / "other")
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    assert not demo.may_lay_project(tmp_path / "other")


# --- a learner's own functions --------------------------------------------------------------


def test_own_functions_take_the_librarys_place(start: Start) -> None:
    from compaction import budget, engine, grouping, probes, summary, tokens
    from compaction.calibration import fit

    used: set[str] = set()

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            used.add(function.__name__)
            return function(*args, **kwargs)

        return call

    modules = (tokens, budget, grouping, summary, probes, engine)
    library = {"fit": fit} | {
        name: getattr(module, name) for module in modules for name in USED if hasattr(module, name)
    }
    assert set(USED) <= set(library)
    own = parts_of({name: watched(library[name]) for name in USED})
    script = [READ_LONG, READ_LONG, "I have read it.", "Still here."]
    with Gateway(script=script) as gateway:
        agent = start(gateway, window=6000, parts=own)
        agent.say("Read it. Remember: build with `make all`.")
        assert agent.say("Are you there?")
        run_command(agent, "/budget")
        run_command(agent, "/probes")
        assert used == set(USED)
        assert any(note.startswith("compacted ") for note in heard(agent).notes)
        assert_valid(agent)


def test_a_fault_in_own_functions_is_one_line(start: Start) -> None:
    def compact_wrongly(messages: list[Message], *args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("in my compact")

    def estimate_wrongly(text: str, coefficients: Any = None) -> Any:
        return None

    script = [READ_LONG, READ_LONG, "Read.", "Yes."]
    with Gateway(script=script) as gateway:
        agent = start(
            gateway,
            window=6000,
            parts=Parts(counter=TokenMeter(), compact=compact_wrongly),
        )
        assert agent.say("Read it.") and agent.say("So?")
        [line] = heard(agent).notes
        assert "not compacted: the compactor failed: ZeroDivisionError: in my compact" in line
        assert_valid(agent)
    with Gateway(script=["Yes."]) as gateway:
        agent = start(gateway, parts=parts_of({"estimate": estimate_wrongly}))
        assert not agent.say("Hi.")
        assert "your estimate returned None" in heard(agent).notes[-1]


def test_the_functions_of_a_folder(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("grader.notebooks.lab", reason="the grader is not here")
    heard = Heard()
    agent = open_agent(options("--functions", str(repository / "solutions"), "--yes"), heard)
    try:
        assert heard.notes[0].startswith("yours: ")
        for turn in demo.TURNS:
            assert agent.say(turn.suggestion)
        passes = [note for note in heard.notes if note.startswith("compacted ")]
        assert len(passes) >= 2 and all(line.endswith("2 probes kept") for line in passes)
    finally:
        agent.close()


def test_without_the_grader_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "grader.notebooks.lab", None)
    with pytest.raises(HistoryError, match="--functions needs the course's grader"):
        open_agent(options("--functions", str(tmp_path)), Listener())


def test_importing_the_agent_is_cheap() -> None:
    code = (
        "import sys, compaction.agent\n"
        "heavy = {'openai', 'tornado', 'prompt_toolkit', 'rich', 'numpy', 'grader', 'IPython'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_probes_that_have_not_been_seen_are_not_lost(start: Start) -> None:
    with Gateway(script=["Hello."]) as gateway:
        agent = start(gateway, probes=[Probe("nowhere yet")])
        agent.say("Hi.")
        assert run_command(agent, "/probes") == "nowhere yet: not in this session yet"
