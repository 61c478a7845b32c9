"""Progress in words and as a table, from the self-test's verdicts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from grader.errors import BadInput
from grader.learner.progress import Day, as_table, as_text, next_day, progress_of
from grader.learner.working_copy import ROOT


def test_a_folder_of_starters_is_begun_everywhere() -> None:
    days = progress_of(ROOT / "labs")
    assert [day.number for day in days] == list(range(1, 9))
    assert sum(day.passed for day in days[:6]) == 6 and sum(day.total for day in days[:6]) == 15
    assert {day.state for day in days} == {"begun"}
    assert next_day(days).next_check == "estimate-cjk"


def test_an_endless_loop_does_not_hold_the_page(tmp_path: Path) -> None:
    lab = tmp_path / "day1_estimate.ipynb"
    shutil.copy(ROOT / "labs" / "day1_estimate" / lab.name, lab)
    notebook = json.loads(lab.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = "while True:\n    pass\n"
    lab.write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.raises(BadInput, match="no verdict within 3 s"):
        progress_of(tmp_path, time_limit_s=3)
    if sys.platform == "linux":  # nor does it go on behind the page's back
        for _ in range(300):
            if str(tmp_path) not in running():
                return
            time.sleep(0.1)
        raise AssertionError(running())


def running() -> str:
    """The commands of all processes but this one's ps."""
    done = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_folder_without_labs_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        progress_of(tmp_path)
    assert len(str(raised.value).splitlines()) == 1


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_table_can_be_read_by_ear_and_says_nothing_by_colour() -> None:
    days = [Day(1, 2, 2), Day(2, 1, 3, "calibrate-fit", "Five <samples>.")]
    table = as_table(days)
    parser = Cells()
    parser.feed(table)
    headings = [attributes for tag, attributes in parser.tags if tag == "th"]
    assert {heading["scope"] for heading in headings} == {"col", "row"}
    assert any(tag == "caption" for tag, _ in parser.tags)
    assert "color" not in table.replace("scope", "") and "<samples>" not in table
    spoken = re.sub(r"<[^>]+>", " ", table)
    assert "solved" in spoken and "begun" in spoken and "calibrate-fit" in spoken
    assert as_text(days).splitlines()[0] == "Day 1: solved, 2 of 2 checks."
