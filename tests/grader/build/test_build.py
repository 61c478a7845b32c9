"""Labs are made from one source, to the byte; what cannot be built is named; nothing is lost."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grader.build.command import ROOT, build_labs, labs
from grader.build.faults import BuildError, RegionError
from grader.build.labs import fill_lab
from grader.build.lessons import execute, execute_lessons
from grader.build.place_starters import fill, place, regions_of, source_of
from grader.build.release import pack_release
from grader.checks import CHECKS
from grader.cli import main
from grader.exercises import EXERCISES, IMPORTS, SLUGS, exercises_of

DAY1 = "day1_estimate"
Notebook = dict[str, Any]


def read(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def write(path: Path, notebook: Notebook) -> None:
    path.write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")


def cell_of(notebook: Notebook, cell_id: str) -> dict[str, Any]:
    (found,) = [cell for cell in notebook["cells"] if cell["id"] == cell_id]
    return found


def text_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A repository with the lab of day 1, and all that it is made from."""
    for name in (f"solutions/{DAY1}", f"labs/{DAY1}", "course/compaction", "grader/starters"):
        ignore = shutil.ignore_patterns("__pycache__", "data")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


# --- solution regions -------------------------------------------------------------------

BEGIN, END = "# BEGIN SOLUTION compaction.tokens.about", "# END SOLUTION"


def test_a_region_is_filled_with_the_function_character_for_character() -> None:
    cell = fill(f"x = 1\n{BEGIN}\nold\n{END}\ny = 2", ROOT / "course")
    code = source_of(ROOT / "course" / "compaction" / "tokens.py", "about")
    assert cell == f"x = 1\n{BEGIN}\n{code}\n\n\n{END}\ny = 2"
    assert code in (ROOT / "course" / "compaction" / "tokens.py").read_text(encoding="utf-8")
    assert fill(cell, ROOT / "course") == cell


def test_decorators_and_comments_above_belong_to_a_function(tmp_path: Path) -> None:
    code = "# why\n@staticmethod\ndef f():\n    return 1"
    (tmp_path / "m.py").write_text(f"import os\n\n# else\n\n{code}\n\n\ndef g(): ...\n")
    assert source_of(tmp_path / "m.py", "f") == code


def test_the_starter_replaces_the_region_and_its_marks(tmp_path: Path) -> None:
    (tmp_path / "day3.py").write_text("def about(tokens):\n    return tokens\n")
    cell = f"x = 1\n{BEGIN}\nsolved\n{END}\n{BEGIN}\nsolved\n{END}"
    starter = "def about(tokens):\n    return tokens"
    assert place(cell, tmp_path, 3) == f"x = 1\n{starter}\n{starter}"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (BEGIN, "BEGIN SOLUTION without END SOLUTION"),
        (END, "END SOLUTION without BEGIN SOLUTION"),
        (f"{BEGIN}\n{BEGIN}\n{END}", "a second BEGIN SOLUTION before the first one's END SOLUTION"),
        (f"{BEGIN}\n{END}\n{END}", "END SOLUTION without BEGIN SOLUTION"),
        (f"# BEGIN SOLUTION\n{END}", "BEGIN SOLUTION must name a function of the library"),
        (
            f"# BEGIN SOLUTION os.system\n{END}",
            "BEGIN SOLUTION must name a function of the library",
        ),
    ],
)
def test_regions_that_do_not_pair_up_are_refused(source: str, fault: str) -> None:
    with pytest.raises(RegionError, match=re.escape(fault)):
        regions_of(source)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("tokens.nothing", "there is no function nothing in tokens.py"),
        ("tokes.estimate", "there is no tokes.py to take estimate from"),
    ],
)
def test_a_region_that_names_nothing_is_refused(name: str, fault: str) -> None:
    with pytest.raises(RegionError, match=re.escape(fault)):
        fill(f"# BEGIN SOLUTION compaction.{name}\n{END}", ROOT / "course")


# --- the notebooks in solutions/ --------------------------------------------------------


def damage(change: Callable[[Notebook], None], course: Path) -> str:
    """Change the notebook of day 1, and return what building it then says."""
    path = course / "solutions" / DAY1 / f"{DAY1}.ipynb"
    notebook = read(path)
    change(notebook)
    write(path, notebook)
    before = snapshot(course)
    with pytest.raises(BuildError) as caught:
        build_labs(root=course)
    assert snapshot(course) == before
    return str(caught.value)


def set_source(cell_id: str, source: str) -> Callable[[Notebook], None]:
    return lambda notebook: cell_of(notebook, cell_id).update(source=source)


def remove(cell_id: str) -> Callable[[Notebook], None]:
    return lambda notebook: notebook["cells"].remove(cell_of(notebook, cell_id))


def mark(cell_id: str, **marks: Any) -> Callable[[Notebook], None]:
    return lambda notebook: cell_of(notebook, cell_id)["metadata"]["nbgrader"].update(marks)


def untag(cell_id: str) -> Callable[[Notebook], None]:
    return lambda notebook: cell_of(notebook, cell_id)["metadata"].pop("tags")


def double(cell_id: str) -> Callable[[Notebook], None]:
    return lambda notebook: notebook["cells"].append(cell_of(notebook, cell_id))


@pytest.mark.parametrize(
    ("change", "cell", "fault"),
    [
        (set_source("estimate", BEGIN), "estimate", "BEGIN SOLUTION without END SOLUTION"),
        (set_source("estimate", "x = 1"), "estimate", "a solution needs a region"),
        (mark("estimate", solution=False), "estimate", "does not know as a solution"),
        (set_source("estimate-latin", "check('x', y)"), "estimate-latin", "a check cell is check("),
        (mark("estimate-latin", points=2), "estimate-latin", "a check gives 1 point"),
        (mark("estimate-latin", grade_id="other"), "estimate-latin", "no check of this day"),
        (untag("estimate-latin"), "estimate-latin", "the tag raises-exception is missing"),
        (untag("estimate"), "estimate", "the tag raises-exception is missing"),
        (double("estimate-cjk"), "estimate-cjk", "the same grade id as an earlier cell"),
        (remove("estimate-cjk"), "", "grade id estimate-cjk: there is no such cell"),
        (remove("imports"), "", "grade id imports: there is no such cell"),
        (remove("score"), "", "grade id score: there is no such cell"),
        (set_source("score", "### BEGIN HIDDEN TESTS"), "score", "no hidden regions"),
    ],
)
def test_a_lab_that_would_go_wrong_later_is_refused(
    change: Callable[[Notebook], None], cell: str, fault: str, course: Path
) -> None:
    said = damage(change, course)
    where = rf"{DAY1}\.ipynb, " + (rf"cell \d+ \({cell}\): " if cell else "")
    assert re.search(rf"^{where}.*{re.escape(fault)}", said, re.MULTILINE), said


def test_what_is_no_notebook_is_refused_in_one_line(course: Path) -> None:
    path = course / "solutions" / DAY1 / f"{DAY1}.ipynb"
    path.write_text("{")
    with pytest.raises(BuildError, match=rf"^{DAY1}\.ipynb: expected a notebook: .*$"):
        build_labs(root=course)
    write(path, {"cells": [], "nbformat": 4, "nbformat_minor": 4, "metadata": {}})
    with pytest.raises(BuildError, match=rf"^{DAY1}\.ipynb: format 4\.4; save it as 4\.5$"):
        build_labs(root=course)


def test_a_starter_that_is_missing_is_named(course: Path) -> None:
    starters = course / "grader" / "starters" / "day1.py"
    starters.write_text(starters.read_text().replace("def estimate", "def other"))
    expected = r"cell \d+ \(estimate\): the starter: there is no function estimate in day1\.py"
    with pytest.raises(BuildError, match=expected):
        fill_lab(course / "solutions" / DAY1 / f"{DAY1}.ipynb", course)


def test_no_cell_uses_a_name_that_none_defines(tmp_path: Path) -> None:
    """Ruff looks through solutions and labs: what the starters use is imported there."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--isolated",
        "--select",
        "F821",
    ]
    told = subprocess.run([*command, "solutions", "labs"], cwd=ROOT, capture_output=True, text=True)
    assert (told.returncode, told.stdout.strip()) == (0, "All checks passed!")
    name = f"labs/{DAY1}/{DAY1}.ipynb"
    notebook = json.loads((ROOT / name).read_text("utf-8"))
    cell_of(notebook, "score")["source"] = "scores()"
    write(tmp_path / "lab.ipynb", notebook)
    told = subprocess.run([*command, tmp_path], capture_output=True, text=True)
    assert told.returncode == 1 and "Undefined name `scores`" in told.stdout


# --- from solutions/ to labs/ -----------------------------------------------------------


def test_everything_that_is_committed_is_up_to_date() -> None:
    assert build_labs(check=True) == []
    assert labs() == [SLUGS[day] for day in IMPORTS]


def test_labs_are_the_same_to_the_byte_wherever_they_are_made(course: Path) -> None:
    shutil.rmtree(course / "labs")
    stale = build_labs(root=course)
    assert [(one.name, one.why) for one in stale] == [
        (f"labs/{DAY1}/{DAY1}.ipynb", "it is not there")
    ]
    assert snapshot(course / "labs" / DAY1) == snapshot(ROOT / "labs" / DAY1)


def test_a_change_in_the_library_makes_the_solution_stale_and_only_it(course: Path) -> None:
    module = course / "course" / "compaction" / "tokens.py"
    module.write_text(module.read_text().replace("rounded up.\n", "never rounded down.\n"))
    before = snapshot(course)
    name = f"solutions/{DAY1}/{DAY1}.ipynb"
    assert [one.name for one in build_labs(root=course, check=True)] == [name]
    assert snapshot(course) == before
    assert [one.name for one in build_labs(root=course)] == [name]
    assert "never rounded down." in (course / name).read_text()
    assert build_labs(root=course, check=True) == []


def test_a_change_in_a_starter_makes_the_lab_stale_and_only_it(course: Path) -> None:
    trap = course / "grader" / "starters" / "day1.py"
    trap.write_text(trap.read_text().replace("one rule will do", "a rule is enough"))
    stale = build_labs(root=course)
    assert [one.name for one in stale] == [f"labs/{DAY1}/{DAY1}.ipynb"]
    assert stale[0].why == "its source in solutions/ or a starter has changed since it was made"
    assert "a rule is enough" in (course / stale[0].name).read_text()


def test_what_the_build_did_not_make_is_named_and_left_alone(course: Path) -> None:
    (course / "labs" / DAY1 / "mine.txt").write_text("mine")
    (course / "labs" / "day0_old").mkdir()
    shutil.copy(course / "labs" / DAY1 / f"{DAY1}.ipynb", course / "solutions" / DAY1 / ".hidden")
    stale = build_labs(root=course)
    assert [(one.name, one.left) for one in stale] == [
        (f"labs/{DAY1}/mine.txt", True),
        ("labs/day0_old", True),
    ]
    assert (course / "labs" / DAY1 / "mine.txt").read_text() == "mine"
    assert (course / "labs" / "day0_old").is_dir()


def test_pictures_beside_a_notebook_go_with_it(course: Path) -> None:
    (course / "solutions" / DAY1 / "desk.png").write_bytes(b"\x89PNG\r\n")
    assert [one.name for one in build_labs(root=course)] == [f"labs/{DAY1}/desk.png"]
    assert (course / "labs" / DAY1 / "desk.png").read_bytes() == b"\x89PNG\r\n"
    assert build_labs(root=course, check=True) == []


@pytest.mark.parametrize("slug", labs())
def test_a_lab_holds_the_starter_and_nothing_of_the_solution(slug: str) -> None:
    lab = read(ROOT / "labs" / slug / f"{slug}.ipynb")
    whole = "\n".join(map(text_of, lab["cells"]))
    assert not re.search(r"(BEGIN|END) SOLUTION|HIDDEN|Rubric", whole)
    for exercise in (exercise for exercise in EXERCISES if exercise.slug == slug):
        cell = cell_of(lab, exercise.function)
        trap = source_of(ROOT / "grader" / "starters" / f"day{exercise.day}.py", exercise.function)
        assert text_of(cell) == trap
        assert cell["metadata"]["tags"] == ["raises-exception"]
    for cell in lab["cells"]:
        assert "outputs" not in cell or (cell["outputs"], cell["execution_count"]) == ([], None)
    locked = [cell["id"] for cell in lab["cells"] if cell["metadata"].get("editable") is False]
    checks = [check.id for check in CHECKS.values() if SLUGS[check.day] == slug]
    assert sorted(locked) == sorted(["imports", *checks, "score"])


@pytest.mark.parametrize("slug", labs())
def test_every_exercise_has_three_hints_and_none_is_code(slug: str) -> None:
    lab = read(ROOT / "labs" / slug / f"{slug}.ipynb")
    for exercise in exercises_of(int(slug[3])):
        hints = text_of(cell_of(lab, f"{exercise.function}-hints"))
        summaries = re.findall(r"<summary>(.*?)</summary>", hints)
        assert summaries == ["Hint 1: where to look", "Hint 2: the idea", "Hint 3: the shape"]
        assert hints.count("<details>") == hints.count("</details>") == 3
        assert "```" not in hints


# --- lessons ----------------------------------------------------------------------------


def lesson(course: Path, *sources: str) -> Path:
    path = course / "course" / "day1_estimate.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [
        {
            "cell_type": "code",
            "execution_count": 7,
            "id": f"c{number}",
            "metadata": {},
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(sources, 1)
    ]
    write(path, {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    return path


def test_a_lesson_is_run_and_its_outputs_are_the_same_every_time(tmp_path: Path) -> None:
    path = lesson(
        tmp_path,
        "import os, sys, time\nprint('a', flush=True); time.sleep(0.3); print('b')",
        "",
        "print(object(), os.getcwd())",
        "6 * 7",
    )
    assert [one.name for one in execute_lessons(root=tmp_path)] == ["course/day1_estimate.ipynb"]
    first = path.read_bytes()
    cells = read(path)["cells"]
    assert [cell["execution_count"] for cell in cells] == [1, None, 2, 3]
    assert "".join(cells[0]["outputs"][0]["text"]) == "a\nb\n"
    assert "".join(cells[2]["outputs"][0]["text"]) == "<object object at 0x...> ./course\n"
    assert execute_lessons(root=tmp_path) == []
    assert path.read_bytes() == first

    path.write_text(path.read_text().replace('"42"', '"43"'))
    changed = path.read_bytes()
    (stale,) = execute_lessons(root=tmp_path, check=True)
    assert stale.why == "cell 4 (c4) shows '42' where '43' is committed"
    assert path.read_bytes() == changed


def test_a_scratch_folder_has_the_same_name_every_time(tmp_path: Path) -> None:
    path = lesson(tmp_path, "import tempfile\nprint(tempfile.mkdtemp() + '/calc.py')")
    execute_lessons(root=tmp_path)
    (output,) = read(path)["cells"][0]["outputs"]
    assert "".join(output["text"]) == "scratch/calc.py\n"


def test_what_a_cell_says_about_the_machine_stays_as_it_was_committed(tmp_path: Path) -> None:
    path = lesson(tmp_path, "import os\nprint(os.getpid())", "print('text')")
    notebook = read(path)
    notebook["cells"][0]["metadata"]["tags"] = ["varies"]
    write(path, notebook)
    assert len(execute_lessons(root=tmp_path)) == 1  # nothing was committed: this machine speaks
    first = path.read_bytes()
    assert execute_lessons(root=tmp_path) == []
    assert execute_lessons(root=tmp_path, check=True) == []
    assert path.read_bytes() == first

    notebook = read(path)
    notebook["cells"][0] |= {"source": "print('anew')", "outputs": []}
    write(path, notebook)
    execute_lessons(root=tmp_path)
    assert "".join(read(path)["cells"][0]["outputs"][0]["text"]) == "anew\n"

    notebook = read(path)
    notebook["cells"][0]["source"] = "1 / 0"
    write(path, notebook)
    with pytest.raises(BuildError):  # it must run
        execute_lessons(root=tmp_path)


def test_a_lesson_that_fails_is_named_with_its_cell(tmp_path: Path) -> None:
    path = lesson(tmp_path, "1", "2 / 0")
    before = path.read_bytes()
    with pytest.raises(BuildError) as caught:
        execute(path, tmp_path)
    assert str(caught.value) == (
        "day1_estimate.ipynb, cell 2 (c2): ZeroDivisionError: division by zero"
    )
    assert path.read_bytes() == before


# --- the command line -------------------------------------------------------------------


def test_build_check_says_what_is_stale_and_ends_with_one(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[int, list[str]]:
        code = main(["build", "--labs", *arguments])
        return code, capsys.readouterr().out.splitlines()

    defaults = {"slugs": (), "root": course}
    monkeypatch.setattr(
        "grader.build.command.build_labs",
        lambda slugs=(), *, check=False: build_labs(slugs, check=check, root=defaults["root"]),
    )
    assert run("--check") == (0, ["all is up to date"])
    (course / "labs" / DAY1 / f"{DAY1}.ipynb").unlink()
    line = f"labs/{DAY1}/{DAY1}.ipynb: it is not there"
    assert run("--check") == (1, [line, "1 stale (python -m grader build)"])
    assert run(DAY1) == (0, [line, "1 renewed"])
    (course / "labs" / DAY1 / "mine.txt").write_text("mine")
    line = f"labs/{DAY1}/mine.txt: not made from solutions/; remove it"
    assert run() == (1, [line, "all was up to date"])


def test_build_of_an_unknown_name_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "day9_rest"]) == 2
    assert capsys.readouterr().err.startswith("error: day9_rest: no lab or lesson of this name; ")


# --- the archive and the working copy ---------------------------------------------------


def test_the_archive_holds_the_labs_and_no_solved_notebook() -> None:
    path = pack_release()
    first = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        times = {info.date_time for info in archive.infolist()}
    assert pack_release().read_bytes() == first
    assert times == {(1980, 1, 1, 0, 0, 0)}
    top = path.stem
    for slug in labs():
        assert f"{top}/labs/{slug}/{slug}.ipynb" in names
    assert f"{top}/README.md" in names
    assert not [
        name for name in names if re.search(r"solutions/|tests/|classroom|/\.|pycache", name)
    ]


def test_who_unpacks_the_archive_can_begin(tmp_path: Path) -> None:
    path = pack_release()
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    home = tmp_path / path.stem

    def grader(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "grader", *arguments],
            cwd=home,
            env={"PYTHONPATH": str(home / "course"), "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

    assert grader("workbook").stdout.startswith("workbook/ now holds ")
    laid, handed_out = snapshot(home / "workbook"), snapshot(home / "labs")
    assert {name: laid.get(name) for name in handed_out} == handed_out
    checked = grader("check", f"workbook/{DAY1}")
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (1, "1/2 passed")
    assert grader("selftest").stdout.splitlines()[-1] == "15/15 passed"
