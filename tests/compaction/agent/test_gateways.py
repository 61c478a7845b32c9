"""Sessions on gateways that behave as real ones do: what goes back, the window, broken calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compaction.agent import Agent, asking
from compaction.agent.connection import connect
from compaction.agent.options import open_agent
from compaction.agent.slash_commands import run_command
from compaction.agent.store import read_session
from compaction.agent.tools import Toolbox
from compaction.gateway import Gateway
from compaction.gateway.script import SCRIPT_OVER
from compaction.messages import Message, content_of
from tests.compaction.agent.servers import (
    Misbehaving,
    answer,
    chunk,
    error,
    events,
    said,
)
from tests.compaction.agent.sessions import Heard, Start, assert_valid, calls, heard, options

Ask = Callable[..., Agent]

SUMMARY = (
    "Confirmed facts:\n- all is well\nChanges already made:\nnone\n"
    "Unfinished items:\nnone\nKey paths and commands:\n- calc.py"
)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_FIRST_WAIT_S", 0.01)


@pytest.fixture
def ask(folder: Path, tmp_path: Path) -> Iterator[Ask]:
    """Return a function that begins a session on a server."""
    begun: list[Agent] = []

    def begin(server: Misbehaving, **given: Any) -> Agent:
        listener = Heard()
        toolbox = Toolbox(folder, allow=listener.allow)
        connection = connect("m", server.base_url, timeout_s=5.0)
        begun.append(
            Agent(connection, toolbox, listener, **{"save_to": tmp_path / "s.json", **given})
        )
        return begun[-1]

    yield begin
    for agent in begun:
        agent.close()


def streamed(delta: dict[str, Any], *more: dict[str, Any], end: str = "tool_calls") -> bytes:
    deltas = [{"role": "assistant", **delta}, *more]
    pieces = [chunk({"index": 0, "delta": piece, "finish_reason": None}) for piece in deltas]
    return events(*pieces, chunk({"index": 0, "delta": {}, "finish_reason": end}))


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


READ = '{"path": "calc.py"}'
SIGNED = {"google": {"thought_signature": "c2ln"}}
THOUGHTS: dict[str, Any] = {
    "reasoning_content": "I should look at the file first. " * 8,
    "reasoning": "I should look at the file first. " * 8,
    "reasoning_details": [{"type": "reasoning.text", "text": "Look first. " * 20, "index": 0}],
}


# --- what the model sent goes back ----------------------------------------------------------


@pytest.mark.parametrize("field", THOUGHTS)
def test_a_models_own_fields_survive_saving_resuming_and_a_compaction(
    ask: Ask, tmp_path: Path, field: str
) -> None:
    calling = {
        field: THOUGHTS[field],
        "tool_calls": [call("read_file", READ, id="c1", index=0, extra_content=SIGNED)],
    }
    old: list[Message] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Read the module. " * 60},
        {"role": "assistant", "content": "The module holds amounts in whole cents. " * 60},
    ]
    summary = {"index": 0, "finish_reason": "stop"}
    summary["message"] = {"role": "assistant", "content": SUMMARY}  # type: ignore[assignment]
    whole = answer(200, {**chunk(), "object": "chat.completion", "choices": [summary]})
    with Misbehaving(streamed(calling), said("Read."), whole, said("Yes.")) as server:
        agent = ask(server, history=old)
        assert agent.say("Read it."), heard(agent).notes
        with_thoughts = agent.engine.estimate()
        passed = agent.compact()
        assert passed is not None and passed.abandoned is None, heard(agent).notes
        saved = read_session(tmp_path / "s.json")
        agent.close()

        resumed = ask(server, history=saved.messages, save_to=tmp_path / "t.json")
        assert resumed.say("So?")
        [sent] = [m for m in server.requests[-1]["messages"] if m.get("tool_calls")]
        assert sent[field] == THOUGHTS[field]
        assert sent["tool_calls"][0]["extra_content"] == SIGNED
        assert "model" not in sent
        assert resumed.engine.estimate() < with_thoughts

        resumed.change_model("another")
        assert resumed.say("And you?")
        assert field not in json.dumps(server.requests[-1])
        assert "extra_content" not in json.dumps(server.requests[-1])


def test_thoughts_are_counted(ask: Ask) -> None:
    with Misbehaving(said("Yes.")) as server:
        plain: list[Message] = [{"role": "user", "content": "hi"}, {"role": "assistant"}]
        plain[1]["content"] = "Hello."
        thought = [plain[0], {**plain[1], "reasoning_content": "word " * 400, "model": "m"}]
        assert ask(server, history=thought).sizes()[0] > ask(server, history=plain).sizes()[0] + 200


# --- calls as gateways really stream them ---------------------------------------------------

ONE = {"tool_calls": [call("read_file", READ, id="c1", index=0)]}
STREAMS: dict[str, tuple[bytes, int]] = {
    "all with index 0": (
        streamed(ONE, {"tool_calls": [call("read_file", READ, id="c2", index=0)]}),
        2,
    ),
    "no index at all": (
        streamed({"tool_calls": [call("read_file", READ, id=f"c{n}") for n in (1, 2)]}),
        2,
    ),
    "arguments as an object": (
        streamed({"tool_calls": [call("read_file", {"path": "calc.py"}, id="c1", index=0)]}),
        1,
    ),
    "without ids": (
        streamed({"tool_calls": [call("read_file", READ, index=n) for n in (0, 1)]}),
        2,
    ),
    "one id twice": (
        streamed({"tool_calls": [call("read_file", READ, id="c1", index=n) for n in (0, 1)]}),
        2,
    ),
    "arguments in pieces, without a name": (
        streamed(
            {"tool_calls": [call("read_file", READ[:7], id="c1", index=0)]},
            {"tool_calls": [{"index": 0, "function": {"arguments": READ[7:]}}]},
        ),
        1,
    ),
}


@pytest.mark.parametrize("form", STREAMS)
def test_calls_are_read_as_they_come(ask: Ask, form: str) -> None:
    stream, count = STREAMS[form]
    with Misbehaving(stream, said("Read.")) as server:
        agent = ask(server)
        assert agent.say("Read it."), heard(agent).notes
        results = [content_of(m) for m in agent.history if m["role"] == "tool"]
        assert len(results) == count and all("def divide" in text for text in results)
        assert_valid(agent)


BROKEN: dict[str, tuple[bytes, str]] = {
    "cut off": (
        streamed({"tool_calls": [call("edit_file", '{"path": "ca', id="c1", index=0)]}),
        "cut off",
    ),
    "cut off at the limit": (
        streamed({"tool_calls": [call("edit_file", "", id="c1", index=0)]}, end="length"),
        "cut off",
    ),
    "none": (
        streamed({"tool_calls": [call("edit_file", "", id="c1", index=0)]}),
        "without arguments",
    ),
    "unknown tool": (
        streamed({"tool_calls": [call("fly.to", "{}", id="c1", index=0)]}),
        "there is no tool",
    ),
}


@pytest.mark.parametrize("form", BROKEN)
def test_a_broken_call_is_told_to_the_model_and_stored_sound(ask: Ask, form: str) -> None:
    stream, reason = BROKEN[form]
    with Misbehaving(stream, said("Sorry.")) as server:
        agent = ask(server)
        assert agent.say("Change it."), heard(agent).notes
        [result] = [content_of(m) for m in agent.history if m["role"] == "tool"]
        assert reason in result
        [sent] = [m for m in server.requests[-1]["messages"] if m.get("tool_calls")]
        assert sent["tool_calls"][0]["function"]["arguments"] == "{}"
        assert_valid(agent)


@pytest.mark.parametrize("empty", [said(""), said("<think>hm, hm</think>")])
def test_a_reply_that_says_nothing_is_asked_for_again_once_and_then_said(
    ask: Ask, empty: bytes
) -> None:
    with Misbehaving(empty, said("Yes.")) as server:
        agent = ask(server)
        assert agent.say("Speak.") and content_of(agent.history[-1]) == "Yes."
        assert any("asking it again" in note for note in heard(agent).notes)
        server.answers = [empty]
        assert not agent.say("Speak on.")
        assert "twice in a row" in heard(agent).notes[-1]
        assert len(server.requests) == 4
        assert_valid(agent)


def test_thoughts_are_neither_shown_nor_kept_as_the_answer(ask: Ask) -> None:
    pieces = ["<th", "ink>Confirmed facts:", " none</think>", "\n\nIt is 4."]
    deltas = [{"content": piece} for piece in pieces]
    with Misbehaving(streamed({"content": ""}, *deltas, end="stop")) as server:
        agent = ask(server)
        assert agent.say("2 + 2?")
        assert "".join(heard(agent).texts) == content_of(agent.history[-1]) == "It is 4."


# --- the line breaks in the middle ----------------------------------------------------------


def in_chunks(body: bytes, end: bytes = b"") -> bytes:
    """A chunked response that stops in the middle: no last chunk."""
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return head + f"{len(body):x}\r\n".encode() + body + b"\r\n" + end


def test_a_connection_that_breaks_off_within_a_reply_is_asked_again(ask: Ask) -> None:
    begun = events(chunk({"index": 0, "delta": {"content": "One "}}), end=False)
    with Misbehaving(in_chunks(begun.split(b"\r\n\r\n")[1]), said("One two.")) as server:
        agent = ask(server)
        assert agent.say("Count."), heard(agent).notes
        assert "asking again" in heard(agent).notes[0]
        assert content_of(agent.history[-1]) == "One two."


# --- the window -----------------------------------------------------------------------------

LISTS: dict[str, dict[str, Any]] = {
    "vLLM": {"max_model_len": 20_000},
    "OpenRouter": {"context_length": 20_000},
    "Groq": {"context_window": 20_000},
    "llama.cpp": {"meta": {"n_ctx": 20_000, "n_ctx_train": 131_072}},
}


@pytest.mark.parametrize("kind", LISTS)
def test_the_list_of_models_is_asked_for_the_window(folder: Path, kind: str) -> None:
    entries = [{"id": "other", "context_length": 9_000}, {"id": "m", **LISTS[kind]}]
    with Misbehaving(said("Hi."), models=answer(200, {"data": entries})) as server:
        told = ["--model", "m", "--base-url", server.base_url, "--folder", str(folder)]
        for window in ([], ["--window", "8000"]):
            agent = open_agent(options(*told, *window), Heard())
            assert agent.say("Hello.")
            assert agent.window == (8_000 if window else 20_000)
            assert any("20,000" in note for note in heard(agent).notes) == (not window)
            assert agent.engine.lines.reserve == agent.window // 4
            agent.close()


@pytest.mark.parametrize(
    "models",
    [
        answer(404, error("no such address")),
        answer(200, {"data": [{"id": "m"}]}),
        answer(200, {"data": [{"id": "m", "context_length": "much"}]}),
        answer(200, {"models": []}),
        answer(200, "<html>no</html>"),
        lambda connection: None,
    ],
)
def test_a_list_that_tells_no_window_changes_nothing(folder: Path, models: Any) -> None:
    with Misbehaving(said("Hi."), models=models) as server:
        told = ("--model", "m", "--base-url", server.base_url, "--folder", str(folder))
        agent = open_agent(options(*told), Heard())
        assert (
            agent.say("Hello.")
            and agent.window == 128_000
            and heard(agent).notes == ["the gateway reports no usage; all figures are estimates"]
        )
        agent.close()


def test_a_second_refusal_ends_the_turn_with_the_table_and_the_way_on(ask: Ask) -> None:
    refusal = answer(400, error("maximum context length is 9000 tokens", code="x"))
    with Misbehaving(refusal) as server:
        agent = ask(server)
        assert not agent.say("Hello.")
        assert len(server.requests) == 2 and agent.window == 9000
        line = heard(agent).notes[-1]
        assert "/budget" in line and "--window" in line
        assert_valid(agent)


@pytest.mark.parametrize("status", [400, 422])
def test_the_limit_for_the_reply_goes_by_its_older_name_where_the_new_one_is_refused(
    ask: Ask, status: int
) -> None:
    refusal = answer(status, error("Unsupported parameter: 'max_completion_tokens'"))
    with Misbehaving(refusal, said("Hi."), said("Hi.")) as server:
        agent = ask(server, reserve=1000)
        assert agent.say("Hello.") and agent.say("Again.")
        asked = [
            {k: v for k, v in request.items() if k.startswith("max_")}
            for request in server.requests
        ]
    assert asked == [{"max_completion_tokens": 1000}, {"max_tokens": 1000}, {"max_tokens": 1000}]


def test_without_a_reserve_no_limit_is_sent(ask: Ask) -> None:
    with Misbehaving(said("Hi.")) as server:
        assert ask(server).say("Hello.")
        assert not [key for key in server.requests[0] if key.startswith("max_")]


# --- what is too large ----------------------------------------------------------------------


def test_a_long_output_is_kept_whole_and_its_head_and_tail_stay(start: Start) -> None:
    count = 60_000
    script = [calls(("run_command", {"command": f"seq 1 {count}"})), "Counted."]
    with Gateway(script=script) as gateway:
        agent = start(gateway, window=128_000)
        assert agent.say("Count."), heard(agent).notes
        [result] = [content_of(m) for m in agent.history if m["role"] == "tool"]
        found = re.search(r"all of it: sed -n '\d+,\d+p' (\S+)\]", result)
        assert found is not None and len(result) < 14_000
        kept = Path(found[1])
        assert kept.read_text().split()[:count] == [str(n) for n in range(1, count + 1)]
        assert kept.stat().st_mode & 0o777 == 0o600
        assert result.startswith("1\n2\n") and f"\n{count}\n[exit code 0" in result
        assert_valid(agent)


def test_four_large_results_at_once_never_fill_the_window(start: Start, folder: Path) -> None:
    (folder / "big.txt").write_text("".join(f"{n}: some words of text\n" for n in range(40_000)))
    reads = [("read_file", {"path": "big.txt"})] * 2
    runs = [("run_command", {"command": "cat big.txt"})] * 2
    with Gateway(script=[calls(*reads, *runs), calls(*runs, *reads), "Read."]) as gateway:
        agent = start(gateway, window=8_000)
        assert agent.say("Read it all."), heard(agent).notes
        assert content_of(agent.history[-1]) == "Read."
        assert_valid(agent)


# --- passes ---------------------------------------------------------------------------------


def test_small_turns_near_the_line_cost_few_summary_requests(start: Start) -> None:
    history: list[Message] = [{"role": "system", "content": "You are an agent."}]
    for n in range(4):
        history.append({"role": "user", "content": f"Step {n}. " + "Look at the next file. " * 30})
        history.append({"role": "assistant", "content": f"File {n} is fine. " * 20})
    history.append({"role": "user", "content": "Read it all. " + "word " * 2400})
    with Gateway(after_script="Noted.") as gateway:
        agent = start(gateway, window=6_500, reserve=0, history=history)
        for n in range(30):
            assert agent.say(f"Small turn {n}. " + "One more word. " * 10), heard(agent).notes
        asked = [request for request in gateway.requests if request.kind == "summary"]
        assert len(asked) <= 12
        assert_valid(agent)


def test_a_pass_under_a_target_reaches_it_or_changes_nothing(start: Start) -> None:
    history: list[Message] = []
    for n in range(12):
        history.append({"role": "user", "content": f"Step {n}. " + "Look at the next file. " * 30})
        history.append({"role": "assistant", "content": f"File {n} is fine. " * 20})
    with Gateway(after_script=SCRIPT_OVER) as gateway:
        agent = start(gateway, history=history)
        before = list(agent.history)
        run_command(agent, "/compact 1")
        assert agent.history == before and "cannot be reached" in heard(agent).notes[-1]
        run_command(agent, "/compact 2,000")
        assert agent.parts.counter.count(agent.history) <= 2_000, heard(agent).notes
        assert heard(agent).notes[-1].startswith("compacted ")
        run_command(agent, "/undo")
        assert agent.history == before


# --- secrets --------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", [True, False])
def test_secrets_stay_out_of_summary_requests_unless_a_person_wants_them(
    start: Start, masks: bool
) -> None:
    secrets = ["sk-proj-" + "aB3dE5gH7j" * 4, "correct-horse-battery"]
    url = f"postgres://admin:{secrets[1]}@db.example/app"
    history: list[Message] = []
    for n in range(6):
        history.append({"role": "user", "content": f"Step {n}. " + "Look at the next file. " * 30})
        history.append(
            {"role": "assistant", "content": f"The key is {secrets[0]}, the base {url}."}
        )
    with Gateway(after_script="Noted.") as gateway:
        agent = start(gateway, history=history, masks=masks)
        passed = agent.compact()
        assert passed is not None and passed.abandoned is None, heard(agent).notes
        asked = json.dumps([request.body for request in gateway.requests])
        line = heard(agent).notes[-1]
        assert ("hidden from the summaries" in line) == masks
        for secret in secrets:
            assert (secret in asked) == (not masks)
            if masks:
                assert secret not in line
                assert not any(secret in text for text in passed.summaries)
        run_command(agent, "/undo")
        assert agent.history == history  # the history itself keeps them
