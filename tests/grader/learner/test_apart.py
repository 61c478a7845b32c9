"""Code that hangs or ends its process fails its checks with a line, and nothing else stops."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from grader.checks import CHECKS
from grader.exercises import source_of
from grader.learner import apart
from grader.learner.apart import Outcome, Task, run_apart
from grader.learner.functions import Source
from grader.starters import day1

IMPORTS = "import math, os, sys, time\nfrom compaction.tokens import DEFAULT, count_chars\n"
RIGHT = (
    "def estimate(text, coefficients=DEFAULT):\n"
    "    chars = count_chars(text)\n"
    "    return math.ceil(coefficients.cjk * chars.cjk + coefficients.other * chars.other)\n"
)
DAY1 = ("estimate-latin", "estimate-cjk")
DAY3 = tuple(check.id for check in CHECKS.values() if check.function == "should_compact")


def outcome_of(*cells: str, folder: Path, checks: tuple[str, ...] = DAY1) -> Outcome:
    named = tuple((f"day1.ipynb, cell {n}", cell) for n, cell in enumerate((IMPORTS, *cells), 1))
    return run_apart([Task(Source("estimate", named, folder), checks)], seed=7)


def lines(outcome: Outcome) -> list[str]:
    return [outcome.verdicts[check].line for check in DAY1]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "CHECK_S", 1.5)
    monkeypatch.setattr(apart, "AGAIN_S", 0.5)
    monkeypatch.setattr(apart, "CELL_S", 4.0)


def test_a_right_function_passes_and_a_starter_fails(tmp_path: Path) -> None:
    outcome = outcome_of(RIGHT, folder=tmp_path)
    assert [outcome.verdicts[check].passed for check in DAY1] == [True, True]
    assert (outcome.errors, outcome.is_limited) == ({}, True)
    starter = "from compaction.tokens import Coefficients\n" + source_of(day1.estimate)
    verdict = outcome_of(starter, folder=tmp_path).verdicts["estimate-cjk"]
    assert verdict.failure is not None and verdict.failure.expected == "4"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os._exit(0)", "estimate ended its process instead of answering"),
        ("sys.exit(0)", "estimate raised SystemExit: 0"),
        ("while True: pass", "estimate took longer than 1.5 s and was stopped"),
        ("raise KeyboardInterrupt", "estimate ended its process instead of answering"),
        ("os.kill(os.getpid(), 9)", "estimate ended its process instead of answering"),
    ],
)
def test_no_verdict_never_means_passed(
    body: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = outcome_of(f"def estimate(*args):\n    {body}", folder=tmp_path)
    assert not any(outcome.verdicts[check].passed for check in DAY1)
    assert lines(outcome)[0] == f"✗ estimate-latin: {said}"
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("os._exit(0)", "cell 2 ended its process instead of answering"),
        ("while True: pass", "cell 2 took longer than 4 s and was stopped"),
    ],
)
def test_a_cell_that_ends_all_fails_its_checks(cell: str, said: str, tmp_path: Path) -> None:
    outcome = outcome_of(f"{RIGHT}{cell}", folder=tmp_path)
    assert lines(outcome) == [f"✗ {check}: {said}" for check in DAY1]


def test_after_one_that_hangs_the_others_are_run(tmp_path: Path) -> None:
    hangs = "def should_compact(*args, **kwargs):\n    while True: pass"
    tasks = [
        Task(Source("should_compact", (("day3.ipynb, cell 1", hangs),), tmp_path), DAY3),
        Task(Source("estimate", (("day1.ipynb, cell 1", IMPORTS + RIGHT),), tmp_path), DAY1),
    ]
    outcome = run_apart(tasks, seed=7)
    assert [outcome.verdicts[check].passed for check in DAY3] == [False] * len(DAY3)
    assert [outcome.verdicts[check].passed for check in DAY1] == [True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
def test_what_a_child_has_started_ends_with_it(tmp_path: Path) -> None:
    note = str(tmp_path / "pid")
    source = (
        "def estimate(*args):\n    import subprocess\n"
        f"    open({note!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid))\n"
        "    while True: pass"
    )
    outcome_of(source, folder=tmp_path, checks=DAY1[:1])
    stat = Path("/proc", Path(note).read_text(), "stat")
    until = time.monotonic() + 10
    while _is_running(stat) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _is_running(stat)


def _is_running(stat: Path) -> bool:
    try:
        return stat.read_text().split()[2] != "Z"
    except OSError:
        return False


def test_all_cells_are_run_where_a_part_is_not_enough(tmp_path: Path) -> None:
    hidden = RIGHT.replace("math.ceil(", "math.ceil(FACTOR * (") + ")"
    hidden = hidden.replace("\n)", ")\n")
    outcome = outcome_of("globals()['FACTOR'] = 1", hidden, folder=tmp_path)
    assert [outcome.verdicts[check].passed for check in DAY1] == [True, True], lines(outcome)


def test_without_processes_the_checks_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*_: Any) -> Any:
        raise apart._NoProcess

    monkeypatch.setattr(apart, "_start", no_process)
    outcome = outcome_of(RIGHT, folder=tmp_path)
    assert [outcome.verdicts[check].passed for check in DAY1] == [True, True]
    assert not outcome.is_limited


def test_the_command_line_fails_code_that_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import os\n\ndef estimate(*args):\n    os._exit(0)\n")
    command = [sys.executable, "-m", "grader", "selftest", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("✗ estimate-latin: estimate ended its process instead")
    assert done.stdout.endswith("0/15 passed\n")
