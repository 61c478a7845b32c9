"""nbgrader's records stay the truth: scores, comments, feedback, export, people's own grades."""

from __future__ import annotations

import csv
import html
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI

from grader.autograde.course import Course
from grader.autograde.grade_one import grade_one
from grader.autograde.gradebook import Writer
from grader.autograde.nbgrader_export import PlainCsvExport
from grader.autograde.records import read_record, record_path
from grader.autograde.results import GradedSubmission, Job
from grader.build.command import own_commands_first
from grader.checks import CHECKS
from grader.errors import BadInput
from grader.sandbox import Sandbox
from tests.grader.classroom import (
    DAY1,
    DAY2,
    STARTER_WHY,
    by_grade_id,
    hand_in,
    make_course,
    read,
    solved,
    starter,
    text_of,
)

ANSWER = "interview-estimate"
NOON = datetime(2026, 2, 18, 12, 0)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course whose gradebook is there and empty: making one takes nbgrader seconds."""
    root = make_course(tmp_path_factory.mktemp("course") / "course")
    with Writer(Course(root)) as writer:
        for slug in (DAY1, DAY2):
            writer.cells_of(slug)
    return root


@pytest.fixture
def course(empty: Path, tmp_path: Path) -> Course:
    root = tmp_path / "course"
    shutil.copytree(empty, root)
    config = root / "nbgrader_config.py"
    config.write_text(config.read_text().replace(str(empty.resolve()), str(root.resolve())))
    return Course(root)


class Grading:
    """Marks and writes one submission after another."""

    def __init__(self, course: Course, sandbox: Sandbox) -> None:
        self.course, self.sandbox = course, sandbox

    def __call__(
        self, student: str, notebook: dict[str, Any], slug: str = DAY1, when: datetime | None = NOON
    ) -> GradedSubmission:
        with Writer(self.course) as writer:
            data = text_of(notebook).encode()
            job = Job(student, slug, data, writer.cells_of(slug), 5, None, writer.texts_of(slug))
            graded = grade_one(job, self.sandbox)
            writer.write([(graded, when, False)], "v1")
        return graded


@pytest.fixture
def grading(course: Course, sandbox: Sandbox) -> Grading:
    return Grading(course, sandbox)


@pytest.fixture
def book(course: Course) -> Iterator[Gradebook]:
    with Gradebook(course.db_url) as gradebook:
        yield gradebook


def api_of(course: Course) -> NbGraderAPI:
    return NbGraderAPI(config=course.config)


def autograded(course: Course, student: str, slug: str = DAY1) -> dict[str, Any]:
    return read(course.autograded(student, slug) / f"{slug}.ipynb")


def grades(book: Gradebook, slug: str, student: str) -> dict[str, Any]:
    book.db.expire_all()
    submission = book.find_submission(slug, student)
    return {grade.name: grade for notebook in submission.notebooks for grade in notebook.grades}


# --- marks -------------------------------------------------------------------------------


def test_a_mark_for_each_check_and_a_person_for_each_answer(
    grading: Grading, book: Gradebook
) -> None:
    for slug in (DAY1, DAY2):
        grading("ada", solved(slug), slug)
        grading("sam", starter(slug), slug)
    scores = {name: grade.score for name, grade in grades(book, DAY1, "sam").items()}
    assert scores == {"estimate-latin": 1, "estimate-cjk": 0}
    assert all(grade.score == 1 for grade in grades(book, DAY1, "ada").values())
    answer = grades(book, DAY2, "ada")[ANSWER]
    assert (answer.auto_score, answer.needs_manual_grade) == (None, True)
    answer = grades(book, DAY2, "sam")[ANSWER]  # nobody answered
    assert (answer.auto_score, answer.needs_manual_grade) == (0, False)


def test_comments_say_who_did_nothing(grading: Grading, book: Gradebook) -> None:
    grading("sam", starter())
    grading("ada", solved())
    assert book.find_comment("estimate", DAY1, DAY1, "sam").comment == "No response."
    assert book.find_comment("estimate", DAY1, DAY1, "ada").comment is None


@pytest.mark.slow
def test_the_same_rows_and_notebook_as_nbgrader_s_own(
    grading: Grading, course: Course, book: Gradebook
) -> None:
    """Stock autograding and ours agree on scores, flags, comments, and the cells' metadata."""
    for student, notebook in (("ada", solved(DAY2)), ("sam", starter(DAY2))):
        grading(student, notebook, DAY2)
        hand_in(course.root, f"{student}-stock", notebook, DAY2)
        with own_commands_first():
            told = api_of(course).autograde(DAY2, f"{student}-stock")
        assert told["success"], told.get("error")
        ours, theirs = (grades(book, DAY2, s) for s in (student, f"{student}-stock"))
        assert ours.keys() == theirs.keys()
        for name in ours:
            for column in ("auto_score", "manual_score", "needs_manual_grade", "failed_tests"):
                assert getattr(ours[name], column) == getattr(theirs[name], column), (name, column)
        for name in ("fit", ANSWER):
            notes = [
                book.find_comment(name, DAY2, DAY2, s).comment
                for s in (student, f"{student}-stock")
            ]
            assert notes[0] == notes[1]
        mine, stock = (
            by_grade_id(autograded(course, s, DAY2)) for s in (student, f"{student}-stock")
        )
        assert mine.keys() == stock.keys()
        for name, cell in mine.items():
            assert "".join(cell["source"]) == "".join(stock[name]["source"])
            assert cell["metadata"]["nbgrader"] == stock[name]["metadata"]["nbgrader"]


# --- what nbgrader does with it ----------------------------------------------------------


def test_feedback_shows_the_four_lines(grading: Grading, course: Course) -> None:
    grading("sam", starter())
    told = api_of(course).generate_feedback(DAY1, "sam")
    assert told["success"], told.get("error")
    folder = course.root / "grader" / "classroom" / "feedback" / "sam" / DAY1
    page = (folder / f"{DAY1}.html").read_text(encoding="utf-8")
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    four = f'✗ estimate("你好 world")\n  expected: 4\n  got:      2\n  why:      {STARTER_WHY}'
    assert four in text
    assert "1 of 2 checks passed" in text
    assert "Traceback (most recent call last)" not in text and "/grader/" not in text


def test_export_gives_the_scores(grading: Grading, book: Gradebook, tmp_path: Path) -> None:
    grading("ada", solved())
    grading("sam", starter())
    PlainCsvExport(to=str(tmp_path / "grades.csv")).export(book)
    with (tmp_path / "grades.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["assignment"] == DAY1]
    assert {row["student_id"]: float(row["score"]) for row in rows} == {"ada": 2, "sam": 1}


def test_formgrader_lists_what_waits_for_a_person(grading: Grading, course: Course) -> None:
    hand_in(course.root, "ada", solved(DAY2), DAY2)
    grading("ada", solved(DAY2), DAY2, datetime(2026, 2, 18, 10, 30))
    (told,) = api_of(course).get_submissions(DAY2)
    assert (told["student"], told["code_score"], told["needs_manual_grade"]) == ("ada", 3, True)
    (notebook,) = api_of(course).get_notebook_submissions(DAY2, DAY2)
    assert notebook["needs_manual_grade"] and notebook["max_score"] == 5


def test_notebooks_are_valid_and_hold_no_output_of_the_learner_s(
    grading: Grading, course: Course
) -> None:
    notebook = solved()
    evil = "<script>alert(1)</script>"
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            data = {"text/html": evil, "application/javascript": "alert(1)"}
            cell["outputs"] = [{"output_type": "display_data", "metadata": {}, "data": data}]
            cell["metadata"]["evil"] = evil
    grading("ada", notebook)
    nbformat.validate(nbformat.from_dict(autograded(course, "ada")))
    assert "alert" not in json.dumps(autograded(course, "ada"))


def test_markup_of_a_learner_s_does_nothing_in_nbgrader_s_pages(
    grading: Grading, course: Course
) -> None:
    """nbgrader shows HTML in Markdown as it is, to the person who grades."""
    notebook = solved(DAY2)
    tricks = (
        "Five < six. <script>alert(1)</script> <img src=x onerror=alert(2)> <!-- `<b>code</b>`\n\n"
        "[a](javascript:alert(3)) ![b](data:text/html,x) <javascript:alert(4)> [c]\n\n"
        "[c]: javascript:alert(5)\n\n[d](https://example.org)"
    )
    by_grade_id(notebook)[ANSWER]["source"] = tricks
    own = {"id": "own", "metadata": {}, "source": tricks}
    notebook["cells"] += [{**own, "cell_type": "markdown"}, {**own, "cell_type": "raw"}]
    grading("eve", notebook, DAY2)
    assert api_of(course).generate_feedback(DAY2, "eve")["success"]
    folder = course.root / "grader" / "classroom" / "feedback" / "eve" / DAY2
    page = (folder / f"{DAY2}.html").read_text(encoding="utf-8")
    body = page[page.index("<body") :]
    assert not re.search(r"<script>alert|<img[^>]*onerror|(href|src)=.(javascript|data:text)", body)
    assert body.count('href="https://example.org"') == 3
    assert "<details" in body  # the lab's own hints keep theirs


def in_place_of_the_answer(notebook: dict[str, Any]) -> int:
    cells = notebook["cells"]
    return next(
        i for i, c in enumerate(cells) if c.get("id") == by_grade_id(notebook)[ANSWER]["id"]
    )


ANSWERED = "Two terms, one for CJK and one for the rest, rounded up."


@pytest.mark.parametrize("where", ["below", "above", "code", "question"])
def test_an_answer_in_the_wrong_cell_is_found_and_not_scored(
    where: str, grading: Grading, book: Gradebook, course: Course
) -> None:
    notebook = starter(DAY2)
    at = in_place_of_the_answer(notebook)
    own = {"id": "own", "metadata": {}, "source": ANSWERED, "cell_type": "markdown"}
    if where == "question":
        question = notebook["cells"][at - 1]
        assert question["cell_type"] == "markdown"
        question["source"] = "".join(question["source"]) + "\n\n" + ANSWERED
    elif where == "code":
        code = {**own, "cell_type": "code", "outputs": [], "execution_count": None}
        notebook["cells"].insert(at + 1, code)
    else:
        notebook["cells"].insert(at + (where == "below"), own)
    graded = grading("ada", notebook, DAY2)
    assert ANSWER not in graded.untouched
    assert any(ANSWER in line and "grade that" in line for line in graded.attention)
    answer = grades(book, DAY2, "ada")[ANSWER]
    assert (answer.auto_score, answer.needs_manual_grade) == (None, True)
    shown = by_grade_id(autograded(course, "ada", DAY2))[ANSWER]["source"]
    assert ANSWERED in "".join(shown)


def test_notes_that_are_not_beside_the_answer_are_no_answer(
    grading: Grading, book: Gradebook
) -> None:
    notebook = starter(DAY2)
    own = {"id": "own", "metadata": {}, "source": ANSWERED, "cell_type": "markdown"}
    notebook["cells"].insert(1, own)
    at = in_place_of_the_answer(notebook)
    code = {**own, "id": "x", "cell_type": "code", "outputs": [], "execution_count": None}
    notebook["cells"].insert(at + 1, {**code, "source": "print('one', 'two', 'three', 'four')"})
    assert ANSWER in grading("ada", notebook, DAY2).untouched
    assert grades(book, DAY2, "ada")[ANSWER].score == 0


# --- what a person has given -------------------------------------------------------------


def give(book: Gradebook, name: str, score: float, slug: str = DAY2, student: str = "ada") -> None:
    """Grade by hand, as formgrader does."""
    grade = book.find_grade(name, slug, slug, student)
    grade.manual_score, grade.needs_manual_grade, grade.extra_credit = score, False, 0.5
    book.find_comment(ANSWER, slug, slug, student).manual_comment = "well put"
    book.db.commit()


def test_a_manual_grade_survives_grading_again(grading: Grading, book: Gradebook) -> None:
    grading("ada", solved(DAY2), DAY2)
    give(book, ANSWER, 1.5)
    grading("ada", solved(DAY2), DAY2)
    answer = grades(book, DAY2, "ada")[ANSWER]
    assert (answer.manual_score, answer.extra_credit) == (1.5, 0.5)
    assert not answer.needs_manual_grade  # the answer is the one that was graded
    assert book.find_comment(ANSWER, DAY2, DAY2, "ada").comment == "well put"

    changed = solved(DAY2)
    by_grade_id(changed)[ANSWER]["source"] = "Another answer."
    grading("ada", changed, DAY2)
    answer = grades(book, DAY2, "ada")[ANSWER]
    assert (answer.manual_score, answer.needs_manual_grade) == (1.5, True)  # looked at again


def test_a_person_s_mark_of_a_check_stands(grading: Grading, book: Gradebook) -> None:
    grading("ada", starter(DAY2), DAY2)
    give(book, "calibrate-fit", 0.5)
    grading("ada", starter(DAY2), DAY2)
    fit = grades(book, DAY2, "ada")["calibrate-fit"]
    assert (fit.score, fit.manual_score, fit.needs_manual_grade) == (1.0, 0.5, False)
    grading("ada", solved(DAY2), DAY2)
    fit = grades(book, DAY2, "ada")["calibrate-fit"]
    assert (fit.auto_score, fit.manual_score, fit.needs_manual_grade) == (1, 0.5, True)


# --- late --------------------------------------------------------------------------------


def test_nbgrader_s_own_rule_says_what_being_late_costs(
    grading: Grading, course: Course, book: Gradebook
) -> None:
    book.find_assignment(DAY1).duedate = datetime(2026, 2, 18, 11, 0)
    book.db.commit()
    grading("ada", solved())
    record = read_record(record_path(course, "ada", DAY1))
    assert record is not None and record.late
    assert book.find_submission(DAY1, "ada").total_seconds_late == 3600
    assert book.find_submission_notebook(DAY1, DAY1, "ada").late_submission_penalty is None

    course.config.LateSubmissionPlugin.penalty_method = "zero"
    grading("ada", solved())
    book.db.expire_all()
    assert book.find_submission_notebook(DAY1, DAY1, "ada").late_submission_penalty == 2
    grading("ben", solved(), when=datetime(2026, 2, 18, 10, 0))
    assert book.find_submission_notebook(DAY1, DAY1, "ben").late_submission_penalty is None


# --- tampered notebooks ------------------------------------------------------------------


def tampered(notebook: dict[str, Any]) -> dict[str, Any]:
    """Change everything that a learner should leave alone."""
    cells = by_grade_id(notebook)
    cells["estimate-cjk"]["source"] = "print('passed')"
    cells["estimate-cjk"]["metadata"]["nbgrader"] |= {"points": 100, "locked": False}
    cells["estimate-latin"]["metadata"]["nbgrader"] |= {"grade": False, "points": -5}
    cells["estimate"]["metadata"]["nbgrader"] |= {"grade": True, "points": 50}
    cells["imports"]["source"] = "raise SystemExit"
    notebook["cells"].append(
        {
            **cells["estimate-cjk"],
            "id": "extra",
            "metadata": {"nbgrader": {"grade": True, "grade_id": "extra", "points": 100}},
        }
    )
    return notebook


def test_checks_and_points_come_from_the_gradebook(
    grading: Grading, course: Course, book: Gradebook
) -> None:
    grading("eve", tampered(starter()))
    scores = {name: (g.score, g.max_score) for name, g in grades(book, DAY1, "eve").items()}
    assert scores == {"estimate-latin": (1, 1), "estimate-cjk": (0, 1)}
    mine, lab = by_grade_id(autograded(course, "eve")), by_grade_id(starter())
    assert "extra" not in mine
    for name in ("imports", "estimate-cjk", "estimate-latin"):
        assert mine[name]["source"] == lab[name]["source"]
        expected = lab[name]["metadata"]["nbgrader"]
        assert (
            mine[name]["metadata"]["nbgrader"]
            == expected | {"points": float(expected.get("points", 0))}
            if "points" in expected
            else expected
        )


def test_copies_and_missing_cells(grading: Grading, course: Course, book: Gradebook) -> None:
    notebook = solved(DAY2)
    cells = by_grade_id(notebook)
    notebook["cells"].insert(0, {**cells["fit"], "source": "fit = None"})
    for name in ("calibrate-few", ANSWER):
        notebook["cells"].remove(cells[name])
    graded = grading("ada", notebook, DAY2)
    assert [m.passed for m in graded.marks] == [True, True, True]  # the last copy counts
    assert any("answer interview-estimate was missing" in line for line in graded.attention)
    mine = autograded(course, "ada", DAY2)
    nbformat.validate(nbformat.from_dict(mine))
    names = [c["metadata"].get("nbgrader", {}).get("grade_id") for c in mine["cells"]]
    assert names.count("fit") == 1 and names.count("calibrate-few") == 1
    assert grades(book, DAY2, "ada")[ANSWER].needs_manual_grade
    assert api_of(course).generate_feedback(DAY2, "ada")["success"]


def test_a_notebook_without_metadata_is_marked_by_its_functions(
    grading: Grading, course: Course, book: Gradebook
) -> None:
    notebook = solved()
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        cell.pop("id")
    notebook["nbformat_minor"] = 2
    graded = grading("ada", notebook)
    assert [m.passed for m in graded.marks] == [True, True]
    assert sum(g.score for g in grades(book, DAY1, "ada").values()) == 2
    nbformat.validate(nbformat.from_dict(autograded(course, "ada")))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{nope", "not JSON"),
        (text_of(starter(DAY2)).encode(), f"this is the lab {DAY2}, handed in as {DAY1}"),
        (b"[" + b"[]," * 1_100_000 + b"[]]", "made of brackets"),
        (
            text_of(
                {"nbformat": 4, "cells": [{"cell_type": "code", "source": "1;" * 600_000}]}
            ).encode(),
            "characters of code",
        ),
    ],
    ids=["broken", "another lab", "brackets", "much code"],
)
def test_what_cannot_be_marked_has_a_reason(
    data: bytes, said: str, course: Course, sandbox: Sandbox
) -> None:
    with Writer(course) as writer:
        graded = grade_one(Job("ada", DAY1, data, writer.cells_of(DAY1), 5), sandbox)
        writer.write([(graded, None, False)], "v1")
        assert writer.graded() == set()
    assert said in graded.reason and not graded.marks
    record = read_record(record_path(course, "ada", DAY1))
    assert record is not None and record.reason == graded.reason


# --- the writer --------------------------------------------------------------------------


def test_writing_twice_is_writing_once(course: Course, sandbox: Sandbox, book: Gradebook) -> None:
    with Writer(course) as writer:
        data = text_of(starter()).encode()
        graded = grade_one(Job("ada", DAY1, data, writer.cells_of(DAY1), 5), sandbox)
        batch = [(replace(graded, student=name), NOON, False) for name in ("ada", "ben", "eve")]
        writer.write(batch, "v1")
        first = everything(course, book)
        writer.write(batch, "v1")
        assert everything(course, book) == first
        assert writer.graded() == {("ada", DAY1), ("ben", DAY1), ("eve", DAY1)}


def everything(course: Course, book: Gradebook) -> tuple[Any, Any]:
    """Return all rows, and all files but the gradebook's."""
    from nbgrader.api import Base

    tables = {
        table.name: sorted(map(repr, book.db.execute(table.select()).all()))
        for table in Base.metadata.sorted_tables
    }
    book.db.rollback()
    files = {
        path.relative_to(course.root).as_posix(): path.read_bytes()
        for path in course.classroom.rglob("*")
        if path.is_file()
    }
    return tables, files


def test_a_gradebook_that_is_locked_for_a_moment_is_waited_for(
    course: Course, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3
    import threading

    path = course.db_url.removeprefix("sqlite:///")
    with Writer(course) as writer:
        data = text_of(starter()).encode()
        graded = grade_one(Job("ada", DAY1, data, writer.cells_of(DAY1), 5), sandbox)
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(6.5, other.rollback)  # longer than SQLite itself waits
        release.start()
        writer.write([(graded, NOON, False)], "v1")
        release.join()
        assert writer.graded() == {("ada", DAY1)}
        other.close()


def test_only_one_writes(course: Course) -> None:
    with course.locked(), pytest.raises(BadInput, match="another autograde"), course.locked():
        pass
    with course.locked():
        pass


def test_the_seed_is_drawn_once_and_is_nobody_else_s(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRADER_SEED", raising=False)
    seed = course.seed()
    assert course.seed() == seed
    assert (course.classroom / "seed").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("GRADER_SEED", "99")
    assert course.seed() == 99


def test_a_lab_that_is_not_released_is_named(course: Course) -> None:
    with Writer(course) as writer, pytest.raises(BadInput, match="python -m grader build"):
        writer.cells_of("day8_ship")


def test_every_check_of_a_lab_is_a_cell_of_the_gradebook(course: Course) -> None:
    with Writer(course) as writer:
        for slug, day in ((DAY1, 1), (DAY2, 2)):
            graded = [
                c.grade_id for c in writer.cells_of(slug) if c.is_graded and not c.is_solution
            ]
            assert sorted(graded) == sorted(c.id for c in CHECKS.values() if c.day == day)


def test_a_folder_that_is_no_course_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nbgrader_config\.py"):
        Course(tmp_path)
