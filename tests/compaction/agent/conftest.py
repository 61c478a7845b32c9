"""The agent's tests: a home, a project folder and a session of their own each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compaction.agent import Agent
from compaction.agent.connection import connect_to
from compaction.agent.functions import Parts
from compaction.agent.tools import Toolbox
from compaction.calibration import TokenMeter
from compaction.gateway import Gateway
from tests.compaction.agent.sessions import (
    LONG_TEXT,
    Heard,
    Start,
)


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
