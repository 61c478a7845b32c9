"""One frame around every command: input that cannot be used is one line and exit code 2."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from compaction.console import BAD_INPUT, FAILED, OK, run_command
from compaction.files import InputError
from compaction.gateway.script import ScriptError
from compaction.history import HistoryError
from grader.build.faults import BuildError
from grader.errors import BadInput
from grader.notebooks.lab import NotebookError


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    """Run a command that does what it is given."""

    def run(do) -> int:
        module = ModuleType("a_command")
        module.add_arguments = lambda parser: None  # type: ignore[attr-defined]
        module.run = lambda options: do()  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "a_command", module)
        return run_command("program", "What it does.", {"go": ("a_command", "go")}, ["go"])

    return run


def raising(error: BaseException):
    def do() -> int:
        raise error

    return do


@pytest.mark.parametrize("kind", [InputError, HistoryError, ScriptError, BadInput, NotebookError])
def test_input_that_cannot_be_used_is_one_line_and_exit_code_2(run, capsys, kind) -> None:
    assert run(raising(kind("a.json, line 3: expected a list"))) == BAD_INPUT == 2
    assert capsys.readouterr() == ("", "error: a.json, line 3: expected a list\n")


def test_the_faults_of_a_build_are_input_too() -> None:
    assert issubclass(BuildError, BadInput)


def test_other_ends_have_other_codes(run, capsys) -> None:
    assert run(lambda: OK) == 0
    assert run(raising(PermissionError(13, "Permission denied", "a.json"))) == FAILED == 1
    assert capsys.readouterr().err == "error: a.json: Permission denied\n"
    assert run(raising(KeyboardInterrupt())) == 130


def test_a_fault_of_our_own_is_no_bad_input(run) -> None:
    """A ValueError is a mistake in a program, and its stack is what mends it."""
    with pytest.raises(ValueError, match="window must be"):
        run(raising(ValueError("window must be positive")))


@pytest.mark.parametrize("kind", [InputError, BadInput, NotebookError, ScriptError])
def test_no_reader_of_json_can_swallow_it(kind) -> None:
    """Readers catch ValueError around a parse; what is meant for a person must get through."""
    assert not issubclass(kind, ValueError)
