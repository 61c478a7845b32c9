"""The learner's folder: open lessons, labs under any name, renewed until touched."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from grader.errors import BadInput
from grader.exercises import SLUGS, START_HERE
from grader.learner.selftest import functions_at
from grader.learner.working_copy import ROOT, Laid, fingerprint, lay_workbook, working_lesson

LESSON = "lessons/day1_lesson.ipynb"
LAB = "day1_estimate/day1_estimate.ipynb"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A clone with one lesson and one lab."""
    for folder in ("course", f"labs/{SLUGS[1]}"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "course" / START_HERE, tmp_path / "course")
    shutil.copy(ROOT / "course" / f"{SLUGS[1]}.ipynb", tmp_path / "course")
    shutil.copy(ROOT / "labs" / LAB, tmp_path / "labs" / LAB)
    return tmp_path


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def change(path: Path, text: str) -> None:
    notebook = read(path)
    notebook["cells"][1]["source"] = text
    path.write_text(json.dumps(notebook), encoding="utf-8")


def test_lessons_and_labs_are_laid_once(course: Path) -> None:
    assert sorted(lay_workbook(course).new) == sorted([START_HERE, LESSON, LAB])
    again = lay_workbook(course)
    assert (again.new, again.renewed, again.outdated) == ([], [], {})
    assert sorted(again.kept) == sorted([START_HERE, LESSON, LAB])


@pytest.mark.parametrize("path", sorted((ROOT / "course").glob("day[0-9]*.ipynb")), ids=str)
def test_a_working_lesson_holds_no_outputs_and_its_links_stay_in_the_folder(path: Path) -> None:
    lesson = json.loads(working_lesson(path.read_text(encoding="utf-8")))
    code = [cell for cell in lesson["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    texts = ["".join(c["source"]) for c in lesson["cells"] if c["cell_type"] == "markdown"]
    here = ROOT / "workbook" / "lessons"
    for target in re.findall(r"\]\(([^)#\s]+)", "\n".join(texts)):
        if re.match(r"[a-z]+:", target):
            continue
        name = (here / target).resolve().relative_to(ROOT)
        if name.parts[0] != "workbook":
            assert (ROOT / name).exists() and name.suffix != ".ipynb", target
        elif name.parts[1] == "lessons":
            assert re.fullmatch(r"day\d_lesson\.ipynb", name.name), target
        else:
            assert (ROOT / "labs" / Path(*name.parts[1:])).exists(), target


@pytest.mark.parametrize("name", [LESSON, LAB])
def test_an_untouched_notebook_is_renewed_with_the_course(course: Path, name: str) -> None:
    lay_workbook(course)
    mine = course / "workbook" / name
    ran = read(mine)
    for cell in ran["cells"]:
        if cell["cell_type"] == "code":  # it was run and saved: that is no change
            cell.update(execution_count=1, outputs=[])
    mine.write_text(json.dumps(ran), encoding="utf-8")
    source = course / ("course/day1_estimate.ipynb" if name == LESSON else f"labs/{LAB}")
    change(source, "a newer version")
    assert lay_workbook(course).renewed == [name]
    assert "a newer version" in mine.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [LESSON, LAB])
def test_a_touched_notebook_is_kept_and_the_newer_one_is_named(course: Path, name: str) -> None:
    lay_workbook(course)
    change(course / "workbook" / name, "my_guess = 12")
    assert lay_workbook(course).outdated == {}
    source = "course/day1_estimate.ipynb" if name == LESSON else f"labs/{LAB}"
    change(course / source, "a newer version")
    done = lay_workbook(course)
    assert done.outdated == {name: source}
    assert done.renewed == []
    assert "my_guess = 12" in (course / "workbook" / name).read_text(encoding="utf-8")
    assert any(name in line and source in line for line in done.lines())
    assert lay_workbook(course).outdated == {name: source}  # it is said each time


def test_a_lab_counts_under_any_name(course: Path) -> None:
    lay_workbook(course)
    lab = course / "workbook" / LAB
    lab.rename(lab.with_name("mine.ipynb"))
    assert LAB not in lay_workbook(course).new
    assert not lab.exists()


def test_the_self_check_takes_no_lesson_for_a_lab(course: Path) -> None:
    lay_workbook(course)
    assert functions_at(str(course / "workbook")).notes == ()


def test_a_spoiled_stamp_file_costs_nothing(course: Path) -> None:
    lay_workbook(course)
    change(course / "workbook" / LESSON, "mine")
    (course / "workbook" / ".jupyter" / "laid.json").write_text("{")
    lay_workbook(course)
    assert "mine" in (course / "workbook" / LESSON).read_text(encoding="utf-8")


def test_no_labs_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"labs: no labs there"):
        lay_workbook(tmp_path)


def test_what_is_no_notebook_has_a_fingerprint_too() -> None:
    assert fingerprint(b"{") != fingerprint(b"[]")


def test_what_was_done_is_said() -> None:
    assert Laid(new=["a"]).lines() == ["workbook/ now holds 1 notebook"]
    assert Laid(new=["a"], kept=["b", "c"]).lines() == [
        "workbook/: 1 new; 2 notebooks as you left them"
    ]
