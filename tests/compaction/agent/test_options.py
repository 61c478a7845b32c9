"""From options to a session: what clashes, where the file lies, what a key may never reach."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compaction.agent import Listener
from compaction.agent.connection import without_secrets
from compaction.agent.options import open_agent
from compaction.agent.store import latest_session_file
from compaction.cli import main
from compaction.gateway import Gateway
from compaction.history import HistoryError
from tests.compaction.agent.sessions import (
    Heard,
    calls,
    options,
)


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
