"""nbgrader's own autograde, and formgrader's button, run learners' code only in the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI

from grader.autograde.course import Course
from grader.autograde.nbgrader_step import GradeInSandbox
from grader.build.command import own_commands_first
from tests.grader.classroom import DAY1, hand_in, make_course, read, solved, with_code


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv("GRADER_SEED", "7")
    course = Course(make_course(tmp_path / "course"))
    with own_commands_first():
        assert NbGraderAPI(config=course.config).generate_assignment(DAY1)["success"]
    return course


def autograde(course: Course, student: str) -> dict[str, Any]:
    """Press formgrader's button."""
    result: dict[str, Any] = NbGraderAPI(config=course.config).autograde(DAY1, student)
    return result


def test_the_step_that_executes_is_gone_from_the_settings(course: Course) -> None:
    steps = course.config.Autograde.autograde_preprocessors
    assert GradeInSandbox in steps
    assert not [step for step in steps if step.__name__ == "Execute"]


@pytest.mark.sandbox
def test_learners_code_runs_in_the_sandbox_and_is_scored(course: Course, tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    source = "".join(by_cell(solved())["estimate"]["source"])
    evil = (
        f"import pathlib\ntry:\n    pathlib.Path({str(harm)!r}).touch()\nexcept OSError:\n    pass"
    )
    hand_in(course.root, "eve", with_code(f"{evil}\n{source}"))
    result = autograde(course, "eve")
    assert result["success"], result["log"]
    assert not harm.exists()
    with Gradebook(course.db_url) as book:
        assert book.find_submission(DAY1, "eve").score == 2
    checked = by_cell(read(course.autograded("eve", DAY1) / f"{DAY1}.ipynb"))["estimate-cjk"]
    assert "✓" in "".join(checked["outputs"][0]["text"])


def by_cell(notebook: dict[str, Any]) -> dict[str, dict[str, Any]]:
    marked = [cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
    return {cell["metadata"]["nbgrader"]["grade_id"]: cell for cell in marked}


def test_without_a_sandbox_nothing_runs_and_a_sentence_says_what_to_do(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harm = tmp_path / "harm"
    hand_in(course.root, "eve", with_code(f"open({str(harm)!r}, 'w')"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("grader.autograde.workers._here", __import__("threading").local())
    result = autograde(course, "eve")
    assert not result["success"]
    assert "install bubblewrap" in result["log"] and "--isolation limits" in result["log"]
    assert not harm.exists()
    assert not (course.autograded("eve", DAY1) / f"{DAY1}.ipynb").exists()
