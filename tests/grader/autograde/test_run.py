"""Grading a class from end to end: every submission ends in a mark or a reason."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from nbgrader.api import Gradebook

from grader.autograde.command import limits_from
from grader.autograde.intake.roster import student_id
from grader.autograde.records import Record, read_record
from grader.checks import CHECKS
from grader.cli import main
from grader.exercises import IMPORTS, SLUGS, exercises_of, source_of
from tests.grader.classroom import (
    DAY1,
    DAY2,
    by_grade_id,
    hand_in,
    make_course,
    solved,
    starter,
    text_of,
    with_code,
)
from tests.grader.sandbox.hostile import CHECKS_OF, Submission, submissions

LOOP = "def estimate(text, coefficients=None):\n    while True:\n        pass\n"
ZOE = student_id("Zoë [x] van Dyk")
QUICK = ["--limit", "call_s=1", "--limit", "cell_s=2"]


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_SEED", "7")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_course(tmp_path / "course")


def autograde(root: Path, *arguments: str) -> int:
    return main(["autograde", *arguments, "--course", str(root), "--jobs", "2"])


def record(root: Path, student: str, slug: str = DAY1) -> Record:
    found = read_record(root / "grader" / "classroom" / "records" / slug / f"{student}.json")
    assert found is not None
    return found


def scores(root: Path) -> dict[tuple[str, str, str], tuple[Any, ...]]:
    """Return everything that the gradebook says about grades and comments, by names."""
    found: dict[tuple[str, str, str], tuple[Any, ...]] = {}
    with Gradebook(f"sqlite:///{root}/gradebook.db") as book:
        for assignment in book.assignments:
            for submission in assignment.submissions:
                for notebook in submission.notebooks:
                    place = submission.student.id, assignment.name
                    when = submission.timestamp
                    for grade in notebook.grades:
                        found[*place, grade.name] = (
                            when,
                            grade.auto_score,
                            grade.manual_score,
                            grade.needs_manual_grade,
                        )
                    for comment in notebook.comments:
                        found[*place, f"comment {comment.name}"] = (when, comment.auto_comment)
    return found


# --- a class -----------------------------------------------------------------------------


def test_a_class_with_broken_notebooks(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand_in(root, "ada", solved())
    hand_in(root, "ada", solved(DAY2), DAY2)
    hand_in(root, "sam", starter())
    hand_in(root, "Zoë [x] van Dyk", with_code("def estimate(text:\n"))
    hand_in(root, "cut", text_of(starter())[:500])
    hand_in(root, "mixed", starter(DAY2))
    assert autograde(root) == 1
    out = capsys.readouterr().out
    assert "6 graded, 0 unchanged" in out and "Needs a person (2):" in out
    assert "cut, day1_estimate: not JSON" in out
    assert "mixed, day1_estimate: this is the lab day2_calibrate, handed in as" in out
    points = {
        student: [
            score[1]
            for (who, slug, name), score in scores(root).items()
            if who == student and slug == DAY1 and not name.startswith("comment")
        ]
        for student in ("ada", "sam", ZOE)
    }
    assert {who: sum(found) for who, found in points.items()} == {
        "ada": 2,
        "sam": 1,
        ZOE: 0,
    }
    assert "SyntaxError" in record(root, ZOE).marks[0].lines[0]

    # Once more: nothing has changed, so nothing is graded again; what has no mark is tried again.
    before = everything(root)
    assert autograde(root) == 1
    assert "2 graded, 4 unchanged" in capsys.readouterr().out
    assert difference(everything(root), before) == {}

    hand_in(root, "sam", solved())
    hand_in(root, "cut", solved())
    (root / "grader/classroom/submitted/mixed/day1_estimate/day1_estimate.ipynb").unlink()
    assert autograde(root) == 0
    assert "2 graded, 3 unchanged" in capsys.readouterr().out
    assert record(root, "sam").marks[1].passed

    assert autograde(root, "--force") == 0
    assert "5 graded, 0 unchanged" in capsys.readouterr().out


def everything(root: Path) -> dict[Any, Any]:
    """Return what the gradebook says, and all files of the class but locks.

    Records say by which version of the course they were made; it may be edited meanwhile.
    """
    folder = root / "grader" / "classroom"
    found: dict[Any, Any] = {**scores(root)}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            text = path.read_text(encoding="utf-8")
            found[path.relative_to(folder).as_posix()] = re.sub(r'"course": "\w+"', "", text)
    return found


def difference(one: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    """Return what is not the same in both."""
    names = one.keys() | other.keys()
    return {n: (one.get(n), other.get(n)) for n in names if one.get(n) != other.get(n)}


def test_an_archive_with_a_roster(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "gradebook.db").unlink()  # nbgrader makes a new one
    with zipfile.ZipFile(tmp_path / "Lab 1.zip", "w") as archive:
        for name, data in (
            ("Ada Lovelace_81_assignsubmission_file/lab final.ipynb", text_of(solved())),
            ("José Núñez_82_assignsubmission_file/lab.ipynb", text_of(starter())),
            ("../../evil.ipynb", text_of(solved())),
        ):
            archive.writestr(name, data)
    roster = tmp_path / "roster.csv"
    roster.write_text("username,name,email\nal1,Ada Lovelace,a@x.edu\njn2,José Núñez,\n")
    assert autograde(root, str(tmp_path / "Lab 1.zip"), "--roster", str(roster)) == 1
    out = capsys.readouterr().out
    assert "2 graded" in out and "leads out of the archive" in out
    assert [record(root, s).marks[1].passed for s in ("al1", "jn2")] == [True, False]
    with Gradebook(f"sqlite:///{root}/gradebook.db") as book:
        assert book.find_student("al1").email == "a@x.edu"


def test_results_without_a_person_end_with_zero(root: Path) -> None:
    hand_in(root, "ada", solved())
    assert autograde(root) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere/at/all"], "no such folder"),
        (["--jobs", "0"], "--jobs 0"),
        (["--limit", "patience=3"], "no limit of this name"),
        (["--limit", "call_s=fast"], "expected a number"),
        (["--limit", "call_s=-1"], "above zero"),
        (["--roster", "/nowhere.csv"], "expected a roster"),
        (["--course", "/"], "nbgrader_config.py"),
        ([], "no submissions yet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_two(
    arguments: list[str],
    said: str,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(root)
    assert main(["autograde", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and said in error


def test_limits_are_settable() -> None:
    limits = limits_from(["call_s=0.5", "memory_bytes=1000000", "processes=2"])
    assert (limits.call_s, limits.memory_bytes, limits.processes) == (0.5, 1_000_000, 2)


@pytest.mark.parametrize("words", [(), ("--require-sandbox",), ("--isolation", "bwrap")])
def test_a_sandbox_that_is_missing_is_refused_with_what_to_do(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    """Less protection is never chosen in silence: limits alone must be asked for by name."""
    monkeypatch.setenv("PATH", str(root))  # also for the processes that it starts
    hand_in(root, "ada", solved())
    assert autograde(root, *words) == 2
    error = capsys.readouterr().err
    assert "install bubblewrap" in error and "--isolation limits" in error
    assert not (root / "grader/classroom/autograded").exists()


# --- killed and started again ------------------------------------------------------------


def start(root: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "grader", "autograde", "--course", str(root), "--jobs", "2"]
    return subprocess.Popen([*command, *QUICK], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def children(pid: int) -> set[int]:
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found.add(int(name))
    return found


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_killed_in_the_middle_and_started_again_it_comes_to_the_same(tmp_path: Path) -> None:
    roots = [make_course(tmp_path / name) for name in ("killed", "undisturbed")]
    for root in roots:
        for number in range(8):
            hand_in(root, f"loops{number}", with_code(LOOP.replace("pass", str(number))))
            hand_in(root, f"starts{number}", starter(DAY2), DAY2)
            hand_in(root, f"solves{number}", solved())
    killed, undisturbed = roots
    records = killed / "grader" / "classroom" / "records"
    for kill in (1, 2):
        run = start(killed)
        below: set[int] = set()
        before = len(list(records.glob("*/*.json")))
        until = time.monotonic() + 90
        while len(list(records.glob("*/*.json"))) <= before and time.monotonic() < until:
            time.sleep(0.02)
        below = children(run.pid)
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        done = len(list(records.glob("*/*.json")))
        assert before < done < 24, kill
        assert len(below) >= 2
        until = time.monotonic() + 30
        while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < until:
            time.sleep(0.1)
        assert not any(Path(f"/proc/{pid}").exists() for pid in below)  # nobody is left behind

    last, whole = start(killed), start(undisturbed)
    said, _ = last.communicate(timeout=180)
    whole.communicate(timeout=180)
    assert (last.returncode, whole.returncode) == (0, 0), said.decode()
    assert b"0 unchanged" not in said  # it went on, it did not begin again
    assert difference(everything(killed), everything(undisturbed)) == {}
    assert len(scores(killed)) == 8 * (2 * 2 + 4) + 8 * (2 * 1 + 2)


# --- hostile submissions, through the whole pipeline -------------------------------------


def minimal_lab(day: int) -> dict[str, Any]:
    """Return a lab as nbgrader releases it: imports, starters, checks, nothing else."""
    cells = []

    def add(grade_id: str, source: str, **marks: Any) -> None:
        told = {"grade": False, "locked": False, "solution": False, "task": False, **marks}
        metadata = {"nbgrader": {**told, "grade_id": grade_id, "schema_version": 3}}
        cell = {"cell_type": "code", "id": grade_id, "metadata": metadata, "source": source}
        cells.append({**cell, "execution_count": None, "outputs": []})

    add("imports", f"{IMPORTS[day]}from grader import check, score", locked=True)
    for exercise in exercises_of(day):
        add(exercise.function, source_of(exercise.starter()), solution=True)
    for name in CHECKS_OF[day]:
        call = f'check("{name}", {CHECKS[name].function})'
        add(name, call, grade=True, locked=True, points=1)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def notebook_of(submission: Submission) -> dict[str, Any]:
    """Return a hostile submission as a notebook; its checks are left out, and come back."""
    lab = minimal_lab(submission.day)
    known = by_grade_id(lab)
    cells = []
    for number, (name, source) in enumerate(submission.cells):
        cell = known.get(name, {"cell_type": "code", "metadata": {}, "outputs": []})
        cells.append({**cell, "execution_count": None, "id": f"c{number}", "source": source})
    return {**lab, "cells": cells}


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server.getsockname()[1]
        with pytest.raises(BlockingIOError):
            server.accept()


def hostile_class(root: Path, port: int) -> Sequence[tuple[str, Submission]]:
    """Hand in every hostile submission; the attacks know where the real gradebook is."""
    for day in CHECKS_OF:
        folder = root / "labs" / SLUGS[day]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{SLUGS[day]}.ipynb").write_text(json.dumps(minimal_lab(day)))
    table = submissions(root / "gradebook.db", Path(__file__).parents[3], port)
    named = [(f"s{number:03}", submission) for number, submission in enumerate(table)]
    for student, submission in named:
        hand_in(root, student, json.dumps(notebook_of(submission)), SLUGS[submission.day])
    return named


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_no_hostile_submission_earns_a_point_or_does_harm(
    root: Path, port: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for place in (root, root / "grader"):
        place.mkdir(exist_ok=True)
        place.chmod(0o777)
    named = hostile_class(root, port)
    assert len(named) >= 40
    before = {path for path in tmp_path.rglob("*") if "classroom" not in path.parts}
    limits = ["--limit", "memory_bytes=268435456", "--limit", "cpu_s=6", "--require-sandbox"]
    assert autograde(root, *QUICK, "--limit", "submission_s=20", *limits) in (0, 1)
    assert f"{len(named)} graded, 0 unchanged" in capsys.readouterr().out
    found = scores(root)
    wrong = {}
    for student, submission in named:
        slug = SLUGS[submission.day]
        if record(root, student, slug).reason:  # a named reason is fine for what deserves nothing
            assert submission.passes == (), submission.name
            continue
        passed = tuple(name for name in CHECKS_OF[submission.day] if found[student, slug, name][1])
        if passed != submission.passes:
            wrong[submission.name] = passed
        assert all(found[student, slug, n][2] is None for n in CHECKS_OF[submission.day])
        assert [m.id for m in record(root, student, slug).marks] == list(CHECKS_OF[submission.day])
    assert wrong == {}
    after = {path for path in tmp_path.rglob("*") if "classroom" not in path.parts}
    assert {path.name for path in after - before} <= {"gradebook.db"}
    assert not list(Path("/tmp").glob("hostile-was-here"))
    # What it wrote is shown by nbgrader: no tricks of the terminal's or the page's.
    for student, submission in named:
        slug = SLUGS[submission.day]
        path = root / "grader/classroom/autograded" / student / slug / f"{slug}.ipynb"
        if record(root, student, slug).reason:
            assert not path.exists()
            continue
        handed_in = root / "grader/classroom/submitted" / student / slug / f"{slug}.ipynb"
        assert path.stat().st_size < 4 * handed_in.stat().st_size + 100_000
        assert "\\u001b" not in path.read_text()


def test_the_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["autograde", "--help"])
    assert end.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for word in ("--roster", "--require-sandbox", "--scheduler", "--force", "submission_s"):
        assert word in shown


def test_the_guide_s_limits_are_those_in_force(repository: Path) -> None:
    guide = (repository / "grader" / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"(?m)^\| `(\w+)` \| ([\d.]+) \|", guide)
    assert told == [(name, str(value)) for name, value in vars(limits_from([])).items()]
