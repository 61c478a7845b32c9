"""The agent on a learner's own functions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compaction.agent import Listener, demo, trying_out
from compaction.agent.functions import USED, Parts, parts_of
from compaction.agent.options import open_agent
from compaction.agent.slash_commands import run_command
from compaction.calibration import TokenMeter
from compaction.gateway import Gateway
from compaction.history import HistoryError
from compaction.messages import Message
from compaction.probes import Probe
from tests.compaction.agent.sessions import (
    READ_LONG,
    Heard,
    Start,
    assert_valid,
    heard,
    options,
)


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
        assert len(passes) >= 2 and all("2 probes kept" in line for line in passes)
    finally:
        agent.close()


@dataclass
class Read:
    """What a reader of notebooks returns."""

    functions: dict[str, Any]
    missing: dict[str, str]


def ends(*args: Any, **kwargs: Any) -> Any:
    os._exit(0)


def leaves(*args: Any, **kwargs: Any) -> Any:
    sys.exit(0)


def loops(*args: Any, **kwargs: Any) -> Any:
    while True:
        pass


def raises(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("no")


def test_functions_that_loop_or_end_the_process_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trying_out, "CALL_S", 0.5)
    functions = {"estimate": ends, "fit": leaves, "compact": loops, "verify": raises}
    faults = trying_out.try_out(lambda folder: Read(functions, {}), "workbook", USED)
    assert faults == {
        "estimate": "ended the process",
        "fit": "ended the process",
        "compact": "took longer than 0.5 s",
    }


@pytest.mark.parametrize(
    ("read", "why"), [(ends, "ended the process"), (loops, "took longer than")]
)
def test_notebooks_that_loop_or_end_the_process_are_one_line(
    monkeypatch: pytest.MonkeyPatch, read: Any, why: str
) -> None:
    monkeypatch.setattr(trying_out, "LOAD_S", 0.5)
    with pytest.raises(HistoryError, match=f"workbook: executing the notebooks {why}"):
        trying_out.try_out(read, "workbook", USED)


def test_a_function_that_wants_to_end_the_program_ends_the_turn(start: Start) -> None:
    with Gateway(script=["Yes."]) as gateway:
        agent = start(gateway, parts=parts_of({"should_compact": leaves}))
        assert not agent.say("Hi.") and agent.turn_failed
        assert "SystemExit" in heard(agent).notes[-1]
        assert_valid(agent)


def test_without_the_grader_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    with pytest.raises(HistoryError, match=r"needs the course's grader: pip install -e \."):
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
