"""What the tests of the agent share: a listener, a model's calls, programs that are started."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compaction.agent import Agent, Listener
from compaction.agent.options import add_arguments
from compaction.agent.store import read_session
from compaction.engine import close_calls
from compaction.messages import Call, Message, problems

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


Start = Callable[..., Agent]


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


def start_process(gateway: Any, folder: Path, file: Path, *options: str) -> Any:
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


def wait_for(condition: Callable[[], Any], timeout_s: float = 180.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def messages_in(file: Path) -> list[Message]:
    return read_session(file).messages if file.exists() else []


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)
