"""Grades and feedback go back in each platform's own form: only points change, nobody is mixed up.

The tables are written after the platforms' own exports; see the modules for their sources.
"""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

from grader.autograde.course import Course
from grader.autograde.gradebook import Writer
from grader.autograde.intake.journal import HandIn, Journal, write_journal
from grader.autograde.intake.names import by_shape
from grader.autograde.results import GradedSubmission, Mark
from grader.autograde.return_grades.titles import names_lab
from grader.cli import main
from tests.grader.classroom import DAY1, DAY2, make_course

NOTEBOOK = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'

MOODLE = (
    "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,"
    "Last modified (submission),Online text,Last modified (grade),Feedback comments\n"
    'Participant 1001,Ada Lovelace,ada@x.edu,Submitted,,2.00,Yes,"Monday, 2 March",,-,"=1+1"\n'
    "Participant 1002,Ada Lovelace,ada2@x.edu,Submitted,,2.00,Yes,-,,-,\n"
    "Participant 1003,Grace Hopper,grace@x.edu,Submitted,1.00,2.00,No,-,,-,\n"
    "Participant 1004,Nobody Known,no@x.edu,No submission,,2.00,Yes,-,,-,\n"
)
CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,Lab 1 (501),Lab 2 (502),Final Score\r\n"
    "    Points Possible,,,,,2,3,(read only)\r\n"
    '"Lovelace, Ada",1001,s1,ada@x.edu,A,,,0\r\n'
    '"Hopper, Grace",1003,s3,grace@x.edu,A,,,0\r\n'
    '"Student, Test",9,,,A,,,0\r\n'
)
BLACKBOARD = (
    '"Last Name"\t"First Name"\t"Username"\t"Student ID"\t"Lab 1 [Total Pts: 2 Score] |409586"\r\n'
    '"Lovelace"\t"Ada"\t"ada"\t"s1"\t""\r\n'
    '"Hopper"\t"Grace"\t"g_hopper"\t"s3"\t""\r\n'
)
BRIGHTSPACE = (
    "OrgDefinedId,Username,Last Name,First Name,Email,"
    "Lab 1 Points Grade <Numeric MaxPoints:2 Weight:5>,End-of-Line Indicator\n"
    "#s1,#ada,Lovelace,Ada,ada@x.edu,,#\n"
    "#s3,#grace,Hopper,Grace,grace@x.edu,,#\n"
)


def hand_in(student_file: str, digest: str, slug: str = DAY1, is_folder: bool = False) -> HandIn:
    named = by_shape(student_file, is_folder)
    assert named is not None
    return HandIn(f"Lab 1.zip!{student_file}", named, "Lab 1.zip", slug, digest)


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return Course(make_course(tmp_path / "course"))


def enter(course: Course, students: dict[str, int], hand_ins: list[HandIn] | None = None) -> None:
    """Enter points of day 1, and what a platform gave; both as a run of autograde would."""
    with Writer(course) as writer:
        names = ("estimate-latin", "estimate-cjk")
        for student, points in students.items():
            marks = tuple(
                Mark(name, "passed" if place < points else "wrong", ("line",))
                for place, name in enumerate(names)
            )
            graded = GradedSubmission(student, DAY1, "d", marks, NOTEBOOK)
            writer.write([(graded, None, False)], "v")
            page = course.feedback(student, DAY1)
            page.parent.mkdir(parents=True)
            page.write_text(f"<p>{student}</p>")
    journal = Journal({one.key: one for one in hand_ins or []})
    for one in hand_ins or []:
        course.places.file(one.digest).parent.mkdir(parents=True, exist_ok=True)
        course.places.file(one.digest).write_text(NOTEBOOK)
    write_journal(course.places, journal)


def returned(
    course: Course, tmp_path: Path, platform: str, table: bytes, *more: str, code: int = 0
) -> bytes:
    source = tmp_path / "download.csv"
    source.write_bytes(table)
    words = ["return", platform, DAY1, "--from", str(source), "--out", str(tmp_path / "out")]
    assert main([*words, "--course", str(course.root), *more]) == code
    assert source.read_bytes() == table
    path = tmp_path / "out" / "download.csv"
    return path.read_bytes() if path.exists() else b""


def changed(before: str, after: str, separator: str = ",") -> dict[tuple[int, int], str]:
    """Return the cells of a table that differ, by line and column."""
    rows = [
        list(csv.reader(io.StringIO(t, newline=""), delimiter=separator)) for t in (before, after)
    ]
    assert [len(row) for row in rows[0]] == [len(row) for row in rows[1]]
    return {
        (line, place): cell
        for line, row in enumerate(rows[1])
        for place, cell in enumerate(row)
        if rows[0][line][place] != cell
    }


def test_moodle_s_worksheet_by_the_participants_numbers(
    course: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [f"Ada Lovelace_{n}_assignsubmission_file" for n in (1001, 1002)]
    given = [hand_in(name, f"d{n}", is_folder=True) for n, name in enumerate(folders)]
    given.append(hand_in("Grace Hopper_1003_assignsubmission_file", "d9", is_folder=True))
    enter(course, {"Ada Lovelace 1001": 2, "Ada Lovelace 1002": 1, "Grace Hopper": 2}, given)
    made = returned(course, tmp_path, "moodle", MOODLE.encode(), "--feedback", code=1).decode()
    assert changed(MOODLE, made) == {(1, 4): "2", (2, 4): "1"}
    said = capsys.readouterr().out
    assert "2 of 3 grades filled in" in said and "Grace Hopper: Moodle says" in said
    with zipfile.ZipFile(tmp_path / "out" / f"{DAY1}-feedback.zip") as archive:
        assert sorted(archive.namelist()) == [
            "Ada Lovelace_1001_assignsubmission_file/day1-feedback.html",
            "Ada Lovelace_1002_assignsubmission_file/day1-feedback.html",
            "Grace Hopper_1003_assignsubmission_file/day1-feedback.html",
        ]
        assert archive.read(archive.namelist()[0]) == b"<p>Ada Lovelace 1001</p>"


def test_canvas_s_gradebook_by_its_ids(course: Course, tmp_path: Path) -> None:
    names = ["lovelaceada_1001_70001_day1.ipynb", "hoppergrace_LATE_1003_70002_day1-1.ipynb"]
    enter(course, {"lovelaceada": 2, "hoppergrace": 1}, [hand_in(n, n[:4]) for n in names])
    made = returned(course, tmp_path, "canvas", CANVAS.encode(), "--feedback").decode()
    assert changed(CANVAS, made) == {(2, 5): "2", (3, 5): "1"}
    assert made.count("\r\n") == CANVAS.count("\r\n")
    with zipfile.ZipFile(tmp_path / "out" / f"{DAY1}-feedback.zip") as archive:
        assert sorted(archive.namelist()) == [
            "hoppergrace_LATE_1003_70002_day1.html",
            "lovelaceada_1001_70001_day1.html",
        ]


def test_blackboard_s_table_in_utf_16(course: Course, tmp_path: Path) -> None:
    enter(course, {"ada": 1, "g_hopper": 2})
    made = returned(course, tmp_path, "blackboard", BLACKBOARD.encode("utf-16"))
    assert made[:2] == BLACKBOARD.encode("utf-16")[:2]
    text = made.decode("utf-16")
    assert changed(BLACKBOARD, text, "\t") == {(1, 4): "1", (2, 4): "2"}
    assert text == BLACKBOARD.replace('"s1"\t""', '"s1"\t"1"').replace('"s3"\t""', '"s3"\t"2"')


def test_brightspace_keeps_its_marks_and_its_last_column(course: Course, tmp_path: Path) -> None:
    enter(course, {"ada": 2, "grace": 0})
    made = returned(course, tmp_path, "brightspace", BRIGHTSPACE.encode()).decode()
    assert changed(BRIGHTSPACE, made) == {(1, 5): "2", (2, 5): "0"}
    assert made == BRIGHTSPACE.replace("edu,,#\n#s3", "edu,2,#\n#s3").replace(
        "x.edu,,#", "x.edu,0,#"
    )


def test_a_table_with_semicolons_and_commas_keeps_them(course: Course, tmp_path: Path) -> None:
    enter(course, {"ada": 2})
    table = "\ufeffsep=;\r\nIdentifier;Full name;Username;Grade;Last modified (grade)\r\n"
    table += "Participant 7;Ada;ada;1,50;-\r\n"
    # The line with the separator comes before the mark of the encoding is used up.
    made = returned(course, tmp_path, "moodle", table.encode(), "--column", "Grade").decode()
    assert made == table.replace("1,50", "2")


def test_other_maxima_are_said_and_stretched_only_when_asked(
    course: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enter(course, {"ada": 1, "grace": 2})
    table = BRIGHTSPACE.replace("MaxPoints:2", "MaxPoints:10")
    made = returned(course, tmp_path, "brightspace", table.encode()).decode()
    assert changed(table, made) == {(1, 5): "1", (2, 5): "2"}
    assert "the lab has 2 points and the platform 10" in capsys.readouterr().out
    made = returned(course, tmp_path, "brightspace", table.encode(), "--scale").decode()
    assert changed(table, made) == {(1, 5): "5", (2, 5): "10"}


def test_nobody_is_filled_in_twice_or_by_guess(
    course: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enter(course, {"Kim Lee": 2, "eve": 1})
    table = (
        "OrgDefinedId,Last Name,First Name,Lab 1 Points Grade,End-of-Line Indicator\n"
        "#1,Lee,Kim,,#\n#2,Lee,Kim,,#\n"
    )
    made = returned(course, tmp_path, "brightspace", table.encode(), code=1).decode()
    assert made == table
    said = capsys.readouterr().out
    assert "Kim Lee: several lines" in said and "eve: no line" in said


def test_an_answer_that_waits_leaves_the_line_as_it_was(
    course: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Writer(course) as writer:
        graded = GradedSubmission("ada", DAY2, "d", (), NOTEBOOK, answers={"x": "y"})
        writer.write([(graded, None, False)], "v")
    source = tmp_path / "download.csv"
    source.write_text(BRIGHTSPACE.replace("Lab 1", "Lab 2"))
    words = ["return", "brightspace", DAY2, "--from", str(source), "--out", str(tmp_path / "out")]
    assert main([*words, "--course", str(course.root)]) == 1
    assert "waits to be graded by hand" in capsys.readouterr().out
    assert (tmp_path / "out" / "download.csv").read_text() == source.read_text()


@pytest.mark.parametrize(
    ("platform", "table", "words", "said"),
    [
        ("moodle", "Identifier,Grade\nParticipant 1,\n", (), "Last modified (grade)"),
        ("canvas", CANVAS.replace("Lab 1", "A").replace("Lab 2", "B"), (), "--column TITLE"),
        ("blackboard", BLACKBOARD.replace("|409586", ""), (), "--column TITLE"),
        ("blackboard", BLACKBOARD, ("--feedback",), "takes no files back"),
        ("brightspace", "OrgDefinedId\n", (), "a line for each learner"),
        ("canvas", CANVAS, ("--column", "Lab 9"), "no column Lab 9"),
        ("canvas", CANVAS, ("--out", "."), "choose another folder"),
    ],
    ids=str,
)
def test_what_cannot_be_filled_is_one_line(
    platform: str,
    table: str,
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = make_course(tmp_path / "course")
    source = tmp_path / "download.csv"
    source.write_text(table)
    out = [str(tmp_path) if word == "." else word for word in words]
    command = ["return", platform, DAY1, "--from", str(source), "--out", str(tmp_path / "out")]
    assert main([*command, *out, "--course", str(root)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and said in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("title", "is_it"),
    [
        ("Lab 5 (409)", True),
        ("Day 05: Summarise", True),
        ("day5_summarize", True),
        ("Lab 15", False),
        ("Lab 4", False),
        ("Holiday 5", False),
    ],
)
def test_a_title_names_a_lab(title: str, is_it: bool) -> None:
    assert names_lab(title, "day5_summarize") is is_it
