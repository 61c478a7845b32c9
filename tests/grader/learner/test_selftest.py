"""The self-test from the command line: its lines, its exit codes, and what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grader import cli
from grader.checks import CORE
from grader.exercises import EXERCISES, source_of
from grader.learner import selftest

SIX = {
    "estimate-latin",
    "calibrate-few",
    "budget-table",
    "group-keep",
    "compact-summaries",
    "probe-survives",
}


@pytest.fixture(autouse=True)
def published_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRADER_SEED", raising=False)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process; return its exit code, standard output and error."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = cli.main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def learners_file(folder: Path, name: str = "mine.py", without: str = "", more: str = "") -> Path:
    """Write the solutions as a learner would have them in one file."""
    parts = []
    for exercise in EXERCISES:
        parts.append(exercise.imports)
        if exercise.function != without:
            parts.append(source_of(exercise.solution()))
    path = folder / name
    path.write_text("\n\n".join([*parts, more]), encoding="utf-8")
    return path


def test_solutions_pass_all_fifteen(command: Any) -> None:
    code, out, err = command("selftest")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert len(lines) == 16 and lines[-1] == "15/15 passed"
    assert all(line.startswith("✓ ") for line in lines[:-1])
    assert command("selftest", "solutions") == (code, out, err)


def test_starters_pass_six(command: Any) -> None:
    code, out, _ = command("selftest", "labs")
    lines = out.splitlines()
    assert code == 1
    assert len(lines) == 16 and lines[-1] == "6/15 passed"
    failed = {line.split()[1].rstrip(":") for line in lines[:-1] if line.startswith("✗ ")}
    assert failed == {check.id for check in CORE} - SIX


def test_explain_shows_the_lines_below(command: Any) -> None:
    _, out, _ = command("selftest", "labs", "--explain")
    assert "  got:      2\n  why:      one rule for all text: " in out
    assert out.splitlines()[-1] == "6/15 passed"


@pytest.mark.parametrize("seed", ["0", "1", "31337"])
def test_any_seed_gives_the_same_total(
    command: Any, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    monkeypatch.setenv("GRADER_SEED", seed)
    assert command("selftest")[1].splitlines()[-1] == "15/15 passed"
    assert command("selftest", "labs")[1].splitlines()[-1] == "6/15 passed"
    assert json.loads(command("selftest", "--json")[1])["seed"] == int(seed)


def test_json(command: Any) -> None:
    code, out, err = command("selftest", "labs", "--json")
    data = json.loads(out)
    assert (code, err) == (1, "")
    assert (data["where"], data["passed"], data["total"]) == ("labs", 6, 15)
    assert [entry["id"] for entry in data["checks"]] == [check.id for check in CORE]
    assert {entry["id"] for entry in data["checks"] if entry["passed"]} == SIX
    cjk = data["checks"][1]
    assert (cjk["expected"], cjk["got"], cjk["error"]) == ("4", "2", None)
    assert cjk["why"].startswith("one rule for all text")
    assert "extension" not in data


def test_all_adds_the_extension(command: Any) -> None:
    code, out, _ = command("selftest", "--all")
    total = out.splitlines()[-1]
    assert code == 0 and total.startswith("core 15/15, extension ")
    passed, asked = total.removeprefix("core 15/15, extension ").split("/")
    assert passed == asked
    data = json.loads(command("selftest", "--all", "--json")[1])
    assert data["extension"]["total"] == int(asked)


# --- a learner's file -------------------------------------------------------------------


def test_a_file_with_all_functions_passes(command: Any, tmp_path: Path) -> None:
    path = learners_file(tmp_path)
    code, out, _ = command("selftest", str(path))
    assert code == 0 and out.splitlines()[-1] == "15/15 passed"


def test_a_missing_function_is_named_and_counts(command: Any, tmp_path: Path) -> None:
    path = learners_file(tmp_path, without="budget_table")
    code, out, _ = command("selftest", str(path))
    assert code == 1 and out.splitlines()[-1] == "14/15 passed"
    assert f"✗ budget-table: budget_table is missing in {path}" in out.splitlines()


def test_an_empty_file_passes_nothing(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("")
    code, out, _ = command("selftest", str(path))
    assert code == 1 and out.splitlines()[-1] == "0/15 passed" and len(out.splitlines()) == 16


def test_a_name_that_is_no_function_is_named(command: Any, tmp_path: Path) -> None:
    path = learners_file(tmp_path, more="verify = 3")
    _, out, _ = command("selftest", str(path))
    assert f"✗ probe-survives: verify in {path} is not a function" in out.splitlines()


def test_a_function_that_raises_fails_its_checks_alone(command: Any, tmp_path: Path) -> None:
    more = "def estimate(*args):\n    raise SystemExit('bye')"
    code, out, _ = command("selftest", str(learners_file(tmp_path, more=more)))
    assert code == 1 and out.splitlines()[-1] == "13/15 passed"
    assert "✗ estimate-latin: estimate raised SystemExit: bye" in out.splitlines()


def test_what_a_file_prints_stays_out_of_the_result(command: Any, tmp_path: Path) -> None:
    more = "print('hello')\n\ndef estimate(text, c=DEFAULT):\n    print('noise')\n    return 3"
    code, out, _ = command("selftest", str(learners_file(tmp_path, more=more)), "--json")
    assert code == 1 and json.loads(out)["passed"] == 13
    assert "hello" not in out and "noise" not in out


def test_a_file_may_define_dataclasses_and_import_its_neighbours(
    command: Any, tmp_path: Path
) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("LIMIT = 3\n")
    more = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from neighbour_of_mine import LIMIT\n\n@dataclass\nclass Note:\n    text: str\n"
    )
    path = tmp_path / "mine.py"
    path.write_text(more)
    code, out, err = command("selftest", str(path))
    assert (code, err) == (1, "") and out.splitlines()[-1] == "0/15 passed"
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("gap.py", "x = 1\ndef f(:\n", "gap.py, line 2: expected Python code that can be read"),
        ("tabs.py", "if 1:\n\tx = 1\n        y = 2\n", "tabs.py, line 3: expected Python code"),
        ("nul.py", "x = 1\0\n", "nul.py: expected Python code that can be read"),
        ("deep.py", "x = " + "-" * 100_000 + "1\n", "deep.py: expected Python code that is less"),
        ("long.py", "x = " + " + ".join("1" * 50_000) + "\n", "long.py: expected Python code"),
        ("stops.py", "x = 1\n\n1 / 0\n", "stops.py, line 3: expected code that runs, got ZeroDiv"),
        ("exits.py", "raise SystemExit(0)\n", "exits.py, line 1: expected code that runs, got"),
        ("value.py", "int('x')\n", "value.py, line 1: expected code that runs, got ValueError"),
        ("needs.py", "import nothing_like_it\n", "needs.py, line 1: expected code that runs, got"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(
    command: Any, tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text)
    code, out, err = command("selftest", str(tmp_path / name))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {tmp_path}{os.sep}{complaint}") and err.count("\n") == 1


@pytest.mark.parametrize("where", ["nowhere", "nowhere.py", "solution", "", " "])
def test_an_unknown_place_is_one_line(command: Any, where: str) -> None:
    code, out, err = command("selftest", where)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and "expected" in err and err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_one_line() -> None:
    run = [sys.executable, "-m", "grader", "selftest"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="a shell's way to close a stream")
def test_a_closed_output_is_no_failure() -> None:
    script = f"{sys.executable} -m grader selftest >&-"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_folder_with_the_name_of_a_file(command: Any, tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    code, _, err = command("selftest", str(tmp_path / "folder.py"))
    assert code == 2 and "expected a Python file" in err


@pytest.mark.parametrize(
    "words", [(), ("selftset",), ("selftest", "--fast"), ("selftest", "labs", "solutions")]
)
def test_a_wrong_command_line_is_one_line(command: Any, words: tuple[str, ...]) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1 and "--help" in err


def test_a_seed_that_is_no_number_is_one_line(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_SEED", "lucky")
    code, out, err = command("selftest")
    assert (code, out, err) == (2, "", "error: GRADER_SEED: expected a whole number, got 'lucky'\n")


def test_help_names_every_command(command: Any) -> None:
    code, out, _ = command("--help")
    assert code == 0 and all(name in out for name in cli.COMMANDS)
    code, out, _ = command("selftest", "--help")
    assert code == 0 and "--json" in out and "WHERE" in out


# --- as a process -----------------------------------------------------------------------


def test_the_module_runs_as_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "grader", "selftest"], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "15/15 passed"


def test_a_terminal_without_a_check_mark_still_gets_the_total() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "grader", "selftest"],
        capture_output=True,
        encoding="ascii",
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "15/15 passed"


def test_nothing_heavy_is_loaded() -> None:
    heavy = ["nbgrader", "nbformat", "IPython", "numpy", "matplotlib", "openai", "rich", "tornado"]
    code = (
        "import sys; from grader.cli import main; assert main(['selftest']) == 0; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_help_loads_no_check() -> None:
    code = (
        "import sys\nfrom grader.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n"
        "    print([name for name in sys.modules if name.startswith(('compaction', 'grader.ch'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    # The library's base error and the frame of its command line are all of it.
    light = "['compaction', 'compaction.files', 'compaction.console']"
    assert done.stdout.splitlines()[-1] == light, done.stderr


def test_functions_at_is_the_way_in() -> None:
    names = {exercise.function for exercise in EXERCISES}
    for where in ("solutions", "labs"):
        functions = selftest.functions_at(where)
        assert set(functions.found) == names and not functions.faults
