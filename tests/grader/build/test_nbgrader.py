"""The labs in nbgrader's own pipeline: released, handed in, autograded, fed back, exported."""

import copy
import csv
import html
import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nbgrader.api import Gradebook
from nbgrader.plugins.export import CsvExportPlugin

from grader.build.command import ROOT, nbgrader_api, own_commands_first
from grader.checks import CORE
from grader.exercises import SLUGS

CORE_SLUGS = [SLUGS[day] for day in sorted({check.day for check in CORE})]
STARTER_PASSES = {
    "estimate-latin",
    "calibrate-few",
    "budget-table",
    "group-keep",
    "compact-summaries",
    "probe-survives",
}
FOUR_LINES = [
    '✗ estimate("你好 world")',
    "  expected: 4",
    "  got:      2",
    "  why:      one rule for all text: a CJK character costs about a whole token, not a quarter",
]
ANSWERS = {2: "interview-estimate", 4: "interview-keep", 6: "interview-proof"}


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def by_grade_id(notebook: dict[str, Any]) -> dict[str, dict[str, Any]]:
    marked = [cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
    return {cell["metadata"]["nbgrader"]["grade_id"]: cell for cell in marked}


def solved(lab: dict[str, Any], solution: dict[str, Any]) -> dict[str, Any]:
    """Return a lab as somebody hands it in who has typed in the solution and the answers."""
    mine, cells = copy.deepcopy(lab), by_grade_id(solution)
    for grade_id, cell in by_grade_id(mine).items():
        if cell["metadata"]["nbgrader"]["solution"]:
            cell["source"] = cells[grade_id]["source"]
    return mine


def careless(lab: dict[str, Any]) -> dict[str, Any]:
    """Return a lab with a check cell deleted, a check cell changed, and warnings on stderr."""
    mine = copy.deepcopy(lab)
    cells = by_grade_id(mine)
    cells["estimate-cjk"]["source"] = "pass"
    mine["cells"].remove(cells["estimate-latin"])
    loud = "import sys, warnings\nprint('careful', file=sys.stderr)\nwarnings.warn('deprecated')\n"
    call = "def counted(text):\n    warnings.warn('slow')\n    return count_chars(text)\n"
    cells["estimate"]["source"] = [loud, call, *cells["estimate"]["source"]]
    return mine


@dataclass
class Class:
    """A course's folder after grading, and its gradebook."""

    root: Path
    gradebook: Gradebook

    def grades(self, slug: str, student: str) -> dict[str, Any]:
        """Return a submission's grades by grade id."""
        submission = self.gradebook.find_submission(slug, student)
        return {grade.name: grade for book in submission.notebooks for grade in book.grades}

    def feedback(self, slug: str, student: str) -> str:
        """Return a feedback page as text."""
        folder = self.root / "grader" / "classroom" / "feedback" / student / slug
        page = (folder / f"{slug}.html").read_text(encoding="utf-8")
        return html.unescape(re.sub(r"<[^>]+>", "", page))


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Class]:
    """Run the whole pipeline once, in this process."""
    root = tmp_path_factory.mktemp("course")
    shutil.copytree(ROOT / "solutions", root / "solutions")
    api = nbgrader_api(root, root / "gradebook.db")

    def succeed(result: dict[str, Any]) -> None:
        assert result["success"], result.get("error") or result.get("log")

    with own_commands_first():
        for slug in CORE_SLUGS:
            succeed(api.generate_assignment(slug))
            lab = read(root / "labs" / slug / f"{slug}.ipynb")
            handed_in = {
                "ada": solved(lab, read(root / "solutions" / slug / f"{slug}.ipynb")),
                "starter": lab,
            }
            if slug == "day1_estimate":
                handed_in["careless"] = careless(lab)
            for student, notebook in handed_in.items():
                folder = root / "grader" / "classroom" / "submitted" / student / slug
                folder.mkdir(parents=True)
                (folder / f"{slug}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
                succeed(api.autograde(slug, student))
                succeed(api.generate_feedback(slug, student))
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        yield Class(root, gradebook)


@pytest.mark.slow
def test_the_starter_gets_six_and_the_solution_fifteen(graded: Class) -> None:
    for student, points in {"starter": 6, "ada": 15}.items():
        found = [graded.gradebook.find_submission(slug, student) for slug in CORE_SLUGS]
        assert sum(submission.code_score for submission in found) == points
        assert sum(submission.max_code_score for submission in found) == 15


@pytest.mark.slow
def test_every_check_is_scored_as_the_table_says(graded: Class) -> None:
    for check in CORE:
        slug = SLUGS[check.day]
        assert graded.grades(slug, "ada")[check.id].score == 1, check.id
        expected = int(check.id in STARTER_PASSES)
        assert graded.grades(slug, "starter")[check.id].score == expected, check.id


@pytest.mark.slow
def test_three_answers_wait_for_a_person(graded: Class) -> None:
    waiting = {}
    for day, slug in SLUGS.items():
        if slug not in CORE_SLUGS:
            continue
        for name, grade in graded.grades(slug, "ada").items():
            if grade.needs_manual_grade:
                waiting[day] = name
                assert grade.max_score == 2
    assert waiting == ANSWERS
    for day, name in ANSWERS.items():  # an answer nobody has given is worth nothing
        grade = graded.grades(SLUGS[day], "starter")[name]
        assert (grade.needs_manual_grade, grade.score) == (False, 0)


@pytest.mark.slow
def test_feedback_shows_the_four_lines_and_nothing_of_the_grader(graded: Class) -> None:
    page = graded.feedback("day1_estimate", "starter")
    assert "\n".join(FOUR_LINES) in page
    for slug in CORE_SLUGS:
        for student in ("ada", "starter"):
            page = graded.feedback(slug, student)
            assert "Traceback (most recent call last)" not in page
            assert not re.search(r"grader[/\\]\w+|HIDDEN TESTS", page)


@pytest.mark.slow
def test_check_cells_that_were_deleted_or_changed_come_back(graded: Class) -> None:
    grades = graded.grades("day1_estimate", "careless")
    assert {name: grade.score for name, grade in grades.items()} == {
        "estimate-latin": 1,
        "estimate-cjk": 0,
    }
    assert not any(grade.needs_manual_grade for grade in grades.values())


@pytest.mark.slow
def test_grades_are_exported(graded: Class, tmp_path: Path) -> None:
    plugin = CsvExportPlugin(to=str(tmp_path / "grades.csv"))
    plugin.export(graded.gradebook)
    with (tmp_path / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    points = {
        student: sum(float(row["raw_score"]) for row in rows if row["student_id"] == student)
        for student in ("ada", "starter")
    }
    assert points == {"ada": 15, "starter": 6}


@pytest.mark.slow
def test_nbgrader_runs_from_the_root_of_the_repository(tmp_path: Path) -> None:
    slug = "day1_estimate"
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    shutil.copytree(
        ROOT / "grader", tmp_path / "grader", ignore=shutil.ignore_patterns("classroom")
    )
    shutil.copytree(ROOT / "solutions" / slug, tmp_path / "solutions" / slug)
    (tmp_path / "grader" / "classroom").mkdir()

    def nbgrader(*arguments: str) -> subprocess.CompletedProcess[str]:
        with own_commands_first():
            return subprocess.run(
                [sys.executable, "-m", "nbgrader", *arguments],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )

    made = nbgrader("generate_assignment", slug)
    assert made.returncode == 0, made.stderr
    lab = Path("labs") / slug / f"{slug}.ipynb"
    assert (tmp_path / lab).read_bytes() == (ROOT / lab).read_bytes()
    assert (tmp_path / "grader" / "classroom" / "gradebook.db").is_file()

    shown = nbgrader("validate", str(lab))
    assert "\n".join(FOUR_LINES) in textwrap.dedent(shown.stdout[shown.stdout.index("    ✗") :])
    assert "without encryption" not in shown.stderr
