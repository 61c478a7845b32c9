"""The export of grades: nbgrader's own columns, and nothing that a spreadsheet would calculate."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from nbgrader.plugins.export import CsvExportPlugin

from grader.autograde.formulas import without_formula
from grader.autograde.nbgrader_export import COLUMNS, PlainCsvExport
from tests.grader.classroom import make_course


@pytest.mark.parametrize(
    "sign", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "﹢", " =", "\t=", "\r"]
)
def test_no_text_begins_like_a_formula(sign: str) -> None:
    assert without_formula(f"{sign}1+1") == f"'{sign}1+1"


@pytest.mark.parametrize("text", ["", "ada", "a=b", "1+1", "José"])
def test_other_texts_stay(text: str) -> None:
    assert without_formula(text) == text


def test_names_are_text_and_stay_in_their_columns(tmp_path: Path) -> None:
    root = make_course(tmp_path / "course")
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as book:
        book.add_assignment("day1_estimate")
        book.add_student("＝1+1", last_name='Lee, "Kim"', first_name="@x")
        book.add_student("ada", last_name="Lovelace")
        PlainCsvExport(to=str(tmp_path / "ours.csv")).export(book)
        CsvExportPlugin(to=str(tmp_path / "theirs.csv")).export(book)
    with (tmp_path / "ours.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert rows["'＝1+1"]["last_name"] == 'Lee, "Kim"' and rows["'＝1+1"]["first_name"] == "'@x"
    assert rows["ada"]["score"] == "0.0"
    theirs = (tmp_path / "theirs.csv").read_text(encoding="utf-8").splitlines()
    assert theirs[0] == ",".join(COLUMNS)
    assert next(line for line in theirs if ",ada," in line) == ",".join(rows["ada"].values())
