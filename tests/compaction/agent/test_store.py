"""The session's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compaction.agent import agent as agent_module
from compaction.agent.slash_commands import CommandError, run_command
from compaction.agent.store import read_session, write_session
from compaction.agent.tools import SCHEMAS
from compaction.gateway import Gateway
from compaction.history import HistoryError, read_history
from tests.compaction.agent.sessions import (
    READ,
    Start,
    assert_valid,
    heard,
)


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
        (  # the more exact line must not be swallowed by the one about the lists
            '{"messages": [{"role": "user"}], "agent": {"window": 9, "probes": 7}}',
            '"probes" is no list',
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
