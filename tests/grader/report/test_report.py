"""The report about a class: right numbers, nobody's markup, no names where none are wanted."""

from __future__ import annotations

import csv
import io
from html.parser import HTMLParser
from pathlib import Path

import pytest

from grader.autograde.course import Course
from grader.autograde.gradebook import Writer
from grader.autograde.intake.decide import Refused
from grader.autograde.ledger import Ledger
from grader.autograde.records import Record
from grader.autograde.results import GradedSubmission, Mark
from grader.cli import main
from grader.report.data import Class, Score, known_mistakes, needing, without_names
from grader.report.page import page, view
from grader.report.table import table
from tests.grader.classroom import DAY1, DAY2, STARTER_WHY, make_course

EVIL = "<script>alert('x')</script>"


def wrong(name: str, why: str = "") -> Mark:
    return Mark(name, "wrong", (f"✗ {name}", "  expected: 4", "  got:      2"), why)


def passed(name: str) -> Mark:
    return Mark(name, "passed", ("✓ it does",))


def a_class() -> Class:
    records = [
        Record("ada", DAY1, "d", "v", (passed("estimate-latin"), passed("estimate-cjk"))),
        Record(
            "ben", DAY1, "d", "v", (passed("estimate-latin"), wrong("estimate-cjk", STARTER_WHY))
        ),
        Record(
            "eve", DAY1, "d", "v", (passed("estimate-latin"), wrong("estimate-cjk", STARTER_WHY))
        ),
        Record(
            EVIL,
            DAY1,
            "d",
            "v",
            (Mark("estimate-cjk", "raised", (EVIL, "\x1b[2J")),),
            late=True,
            cause="1 d 1 h late",
        ),
        Record("cut", DAY1, "d", "v", reason="not JSON"),
    ]
    scores = {
        (record.student, DAY1, mark.id): Score(float(mark.passed), 1.0, False, False)
        for record in records
        for mark in record.marks
    }
    scores["ada", DAY2, "interview-estimate"] = Score(0, 2, True, False)
    scores["ben", DAY2, "interview-estimate"] = Score(1.5, 2, False, True)
    refused = [Refused("=1+1.pdf", "", "", "no notebook")]
    people = {"ada": "Ada Lovelace", "absent": ""}
    return Class(records, scores, Ledger(refused, [f"{EVIL}: not in the roster"], people=people))


class _Page(HTMLParser):
    """What stands in a page: tags, attributes that would do something, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [
            f"{name}={value}"
            for name, value in attrs
            if name.startswith("on") or (name in ("src", "href") and not str(value).startswith("#"))
        ]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_and_runs_nothing() -> None:
    text = page(a_class())
    seen = _Page(text)
    assert "script" not in seen.tags and "img" not in seen.tags and not seen.loads
    assert "default-src 'none'" in text
    assert EVIL in seen.text and "\x1b" not in text  # shown as text, and the escape is escaped
    for place in ("labs", "checks", "mistakes", "person", "scores"):
        assert f'id="{place}"' in text and f'href="#{place}"' in text


def test_the_picture_says_the_same_in_words() -> None:
    text = page(a_class())
    assert "estimate-cjk: 1 passed, 2 wrong answer, 1 exception" in text
    assert "1 of 4 passed" in text and "3 of 3 passed" in text


def test_numbers_are_those_of_the_class() -> None:
    known = a_class()
    assert known_mistakes(known) == {("estimate-cjk", STARTER_WHY): ["ben", "eve"]}
    assert list(needing(known)) == [
        ("nobody's", "=1+1.pdf", "=1+1.pdf: no notebook"),
        ("cut", DAY1, "not JSON"),
    ]
    assert known.students == sorted([EVIL, "absent", "ada", "ben", "cut", "eve"])
    text = _Page(page(known)).text
    assert "Needs a person (2)" in text and "1 answer to interview-estimate" in text
    assert "6 learners, 5 submissions, 1 lab" in text


def test_what_needs_a_person_comes_first_with_names_beside_ids() -> None:
    text = page(a_class())
    assert text.index('id="person"') < text.index('id="labs"')
    assert 'ada <span class="soft">(Ada Lovelace)</span>' in text
    assert "1 d 1 h late" in text


def test_nobody_is_missing_while_a_file_waits_for_its_owner() -> None:
    known = a_class()
    row = next(row for row in view(known)["scores"] if row[0] == "absent")
    assert row[2] == [("held", "")]
    known.ledger.refused.clear()
    row = next(row for row in view(known)["scores"] if row[0] == "absent")
    assert row[2] == [("–", "")]


def test_weights_and_what_being_late_costs_are_in_the_total() -> None:
    known = a_class()
    known.weights[DAY1], known.penalties["ada", DAY1] = 2.0, 0.5
    row = next(row for row in view(known)["scores"] if row[0] == "ada")
    assert row[1:] == ("3", [("1.5 of 2", "")])


def test_without_names_there_are_none() -> None:
    known = without_names(a_class())
    for text in (page(known), table(known)):
        for name in ("ada", "ben", "eve", "absent", "=1+1.pdf", "not in the roster"):
            assert f"{name}" not in text.replace("even", "").replace("never", ""), name
    assert (
        len(known.students) == 6
        and known_mistakes(known).keys() == known_mistakes(a_class()).keys()
    )


def test_the_table_holds_every_cell_and_no_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(table(a_class()))))
    by_place = {(row["learner"], row["cell"]): row for row in rows}
    assert by_place["ben", "estimate-cjk"]["why"] == STARTER_WHY
    assert by_place["ben", "interview-estimate"]["outcome"] == "answer, graded by hand"
    assert by_place["ada", "interview-estimate"]["outcome"] == "to grade by hand"
    assert by_place[EVIL, "estimate-cjk"]["late"] == "1 d 1 h late"
    assert by_place["cut", ""]["why"] == "not JSON"
    assert len(rows) == 7 + 2 + 2
    cells = [cell for row in rows for cell in row.values()]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]


def test_the_command_writes_page_and_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_course(tmp_path / "course")
    course = Course(root)
    assert main(["report", "--course", str(root)]) == 2
    assert "nothing graded yet" in capsys.readouterr().err
    with Writer(course) as writer:
        marks = (passed("estimate-latin"), wrong("estimate-cjk", STARTER_WHY))
        notebook = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
        writer.write([(GradedSubmission("ada", DAY1, "d", marks, notebook), None, False)], "v")
        grade = writer._book.find_grade("estimate-cjk", DAY1, DAY1, "ada")
        grade.manual_score, grade.extra_credit = 0.5, 0.25
        writer._book.db.commit()
    assert main(["report", "--course", str(root), "--out", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "report.csv"}
    assert "1.75 of 2" in (tmp_path / "out" / "report.html").read_text()  # a person's score counts
    with (tmp_path / "out" / "report.csv").open(newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["cell"] == "estimate-cjk"]
    assert (row["score"], row["outcome"]) == ("0.75", "wrong answer, graded by hand")
    assert main(["report", "--course", str(root), "--anonymous"]) == 0
    page_text = (root / "grader" / "classroom" / "report" / "report.html").read_text()
    assert "learner 1" in page_text and "ada" not in page_text
    (tmp_path / "file").write_text("")
    assert main(["report", "--course", str(root), "--out", str(tmp_path / "file" / "x")]) == 2
