"""What learners hand in: recognised, read and run, with every fault named and what still counts."""

import ast
import copy
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grader.build.command import ROOT, labs
from grader.checks import CHECKS, run_check
from grader.cli import main
from grader.errors import BadInput
from grader.exercises import IMPORTS
from grader.learner.functions import Loaded, functions_of, load_functions
from grader.notebooks.lab import MAX_CODE_CHARS, NotebookError, read_notebook, read_workbook
from grader.starters import day1 as starter

DAY1 = "day1_estimate"
Notebook = dict[str, Any]
WRONG = "def estimate(text, coefficients=DEFAULT):\n    return 0\n"
RIGHT = (
    "def estimate(text, coefficients=DEFAULT):\n"
    "    chars = count_chars(text)\n"
    "    return math.ceil(coefficients.cjk * chars.cjk + coefficients.other * chars.other)\n"
)


@pytest.fixture
def lab() -> Notebook:
    """A lab of day 1 as it is handed out, with few words."""
    goes_on = {"tags": ["raises-exception"]}
    cells = [
        cell("goal", "# Day 1"),
        cell("imports", f"{IMPORTS[1]}from grader import check, score", {}, locked=True),
        cell("estimate-task", "**Your code:**"),
        cell("estimate", inspect.getsource(starter.estimate), goes_on, solution=True),
        cell("estimate-try", "print(estimate('x'))", {"tags": ["raises-exception", "try-it"]}),
        cell("estimate-latin", 'check("estimate-latin", estimate)', goes_on, grade=True),
        cell("estimate-cjk", 'check("estimate-cjk", estimate)', goes_on, grade=True),
        cell("score", "score()", {}, locked=True),
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def cell(cell_id: str, source: str, metadata: Any = None, **marks: bool) -> dict[str, Any]:
    made = {"cell_type": "markdown", "id": cell_id, "metadata": {}, "source": source}
    if metadata is not None:
        made |= {"cell_type": "code", "execution_count": None, "outputs": []}
        made["metadata"] = dict(metadata)
    if marks:
        made["metadata"]["nbgrader"] = {"grade_id": cell_id, "schema_version": 3, **marks}
    return made


def cell_of(notebook: Notebook, cell_id: str) -> dict[str, Any]:
    (found,) = [cell for cell in notebook["cells"] if cell["id"] == cell_id]
    return found


def added(source: str, **metadata: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": "added",
        "metadata": metadata,
        "outputs": [],
        "source": source,
    }


def insert_above(notebook: Notebook, cell_id: str, source: str, **metadata: Any) -> None:
    position = notebook["cells"].index(cell_of(notebook, cell_id))
    notebook["cells"].insert(position, added(source, **metadata))


def save(notebook: Notebook, folder: Path, name: str = DAY1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")
    return path


def load(notebook: Notebook, folder: Path) -> Loaded:
    return load_functions(read_notebook(save(notebook, folder)))


def passed(loaded: Loaded) -> list[str]:
    function = loaded.functions["estimate"]
    chosen = [check for check in CHECKS.values() if check.function == "estimate"]
    return [check.id for check in chosen if run_check(check, function).passed]


# --- notebooks as they should be --------------------------------------------------------


@pytest.mark.parametrize("slug", labs())
@pytest.mark.parametrize("folder", ["labs", "solutions"])
def test_the_course_own_notebooks_are_read_without_a_remark(folder: str, slug: str) -> None:
    notebook = read_notebook(ROOT / folder / slug / f"{slug}.ipynb")
    assert (notebook.slug, notebook.problems) == (slug, ())
    assert set(notebook.sources) == set(notebook.functions)
    loaded = load_functions(notebook)
    assert set(loaded.functions) == set(notebook.functions)
    assert (loaded.missing, loaded.errors) == ({}, {})


def test_a_solved_cell_passes_and_the_starter_does_not(lab: Notebook, tmp_path: Path) -> None:
    assert passed(load(lab, tmp_path)) == ["estimate-latin"]
    cell_of(lab, "estimate")["source"] = RIGHT
    assert passed(load(lab, tmp_path)) == ["estimate-latin", "estimate-cjk"]


def test_reading_executes_nothing(lab: Notebook, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    cell_of(lab, "estimate")["source"] += f"\nopen({str(trace)!r}, 'w')"
    notebook = read_notebook(save(lab, tmp_path))
    assert not trace.exists()
    load_functions(notebook)
    assert trace.exists()


def test_helpers_in_cells_of_ones_own_are_there(lab: Notebook, tmp_path: Path) -> None:
    insert_above(lab, "estimate", "from math import ceil as up\nPRICE = 1.0")
    cell_of(lab, "estimate")["source"] = RIGHT.replace("math.ceil", "up")
    loaded = load(lab, tmp_path)
    assert passed(loaded) == ["estimate-latin", "estimate-cjk"]
    assert loaded.errors == {}


def test_a_free_cell_s_name_is_not_used_by_a_parameter_of_that_name(
    lab: Notebook, tmp_path: Path
) -> None:
    cell_of(lab, "estimate-try")["source"] = (
        "shown = sorted(['b', 'a'])\ntext = shown[0]\nchars = shown[1]\nprint(text, chars)\n"
    )
    cell_of(lab, "estimate")["source"] = RIGHT
    loaded = load(lab, tmp_path)
    assert loaded.errors == {}
    assert run_check(CHECKS["estimate-cjk"], loaded.functions["estimate"]).passed


def test_of_a_free_cell_only_the_definitions_that_are_used_count(
    lab: Notebook, tmp_path: Path
) -> None:
    cell_of(lab, "estimate-try")["source"] = (
        "import time, antigravity_that_is_not_there\n"
        "FACTOR = 1\n"
        "SLOW = time.sleep(60)\n"
        "def helper(x):\n    return x * FACTOR\n"
        "def unused():\n    return SLOW\n"
        "def estimate(text):\n    return -1\n"
        "print(estimate('x'))"
    )
    cell_of(lab, "estimate")["source"] = RIGHT.replace("math.ceil(", "helper(math.ceil)(")
    notebook = read_notebook(save(lab, tmp_path))
    (free,) = [cell for cell in notebook.cells if cell.kind == "try" and cell.source]
    names = [getattr(node, "name", "") for node in ast.parse(free.source).body]
    assert names == ["", "", "helper", "unused"]  # imports and FACTOR, line for line
    assert free.source.split("\n")[1] == "FACTOR = 1"
    loaded = load_functions(notebook)
    assert loaded.errors == {}  # the import that fails is not needed


def test_a_check_sees_what_stands_above_it(lab: Notebook, tmp_path: Path) -> None:
    cell_of(lab, "estimate")["source"] = RIGHT
    lab["cells"].append(added(WRONG))  # tried out at the end, below the checks
    assert passed(load(lab, tmp_path)) == ["estimate-latin", "estimate-cjk"]
    insert_above(lab, "estimate-latin", WRONG)
    assert passed(load(lab, tmp_path)) == []


def test_a_check_that_a_learner_added_is_not_run(lab: Notebook, tmp_path: Path) -> None:
    lab["cells"].append(added("check('estimate-cjk', estimate)\nscore()"))
    assert load(lab, tmp_path).errors == {}


def test_a_cell_that_fails_stops_only_itself(lab: Notebook, tmp_path: Path) -> None:
    for source in ("x = 1\nx.y", "raise SystemExit", "input()", "x = = 1", "exec('y = 1')"):
        insert_above(lab, "estimate", source)
    cell_of(lab, "estimate")["source"] = "exec('def estimate(text): return (len(text) + 3) // 4')"
    loaded = load(lab, tmp_path)  # nothing binds the function by name, so that all cells are run
    assert passed(loaded) == ["estimate-latin"]
    assert list(loaded.errors.values()) == [
        "SyntaxError: invalid syntax (line 1)",
        "line 2: AttributeError: 'int' object has no attribute 'y'",
        "line 1: SystemExit",
        "line 1: EOFError: EOF when reading a line",
    ]


def test_cells_run_in_the_notebook_s_folder_and_leave_no_trace(
    lab: Notebook, tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 1.0")
    own = "import beside\nassert open('beside.py').read()\n"
    cell_of(lab, "estimate")["source"] = own + cell_of(lab, "estimate")["source"]
    before = Path.cwd(), list(sys.path), sys.stdin, sys.stdout
    assert load(lab, tmp_path).errors == {}
    assert (Path.cwd(), sys.path, sys.stdin, sys.stdout) == before


def test_annotations_stay_unread_in_all_cells_below_the_future_import(
    lab: Notebook, tmp_path: Path
) -> None:
    insert_above(lab, "estimate", "from __future__ import annotations")
    cell_of(lab, "estimate")["source"] = RIGHT.replace("(text,", "(text: Unknown,")
    assert passed(load(lab, tmp_path)) == ["estimate-latin", "estimate-cjk"]


def test_the_learner_s_own_exception_shows_the_learner_s_line(
    lab: Notebook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell_of(lab, "estimate")["source"] = (
        "def estimate(text, coefficients=DEFAULT):\n    return count_chars(text).han"
    )
    assert main(["check", str(save(lab, tmp_path))]) == 1
    shown = capsys.readouterr().out
    assert f'File "{DAY1}.ipynb, cell 4 (estimate)", line 2, in estimate\n' in shown
    assert "return count_chars(text).han" in shown
    assert "AttributeError: 'Chars' object has no attribute 'han'" in shown
    assert "grader/" not in shown


# --- faults that are named, while the notebook counts -----------------------------------


def problems(notebook: Notebook, folder: Path, name: str = DAY1) -> list[str]:
    return list(read_notebook(save(notebook, folder, name)).problems)


def test_another_file_name_is_recognised(lab: Notebook, tmp_path: Path) -> None:
    assert problems(lab, tmp_path, "ada lovelace (1)") == [
        f"this is the lab {DAY1}; call it {DAY1}.ipynb before you hand it in"
    ]
    assert read_notebook(tmp_path / "ada lovelace (1).ipynb").slug == DAY1
    assert problems(lab, tmp_path, "day2_calibrate")[0].startswith(f"this is the lab {DAY1};")


def test_copied_cells_are_named_and_the_last_one_counts(lab: Notebook, tmp_path: Path) -> None:
    twin = copy.deepcopy(cell_of(lab, "estimate"))
    cell_of(lab, "estimate")["source"] = WRONG
    insert_above(lab, "estimate-latin", "")
    lab["cells"][lab["cells"].index(cell_of(lab, "added"))] = {**twin, "source": RIGHT}
    lab["cells"].append(copy.deepcopy(cell_of(lab, "estimate-cjk")))
    advice = "Delete all but one before you hand in: nbgrader stops at copies"
    assert problems(lab, tmp_path) == [
        f"cells 4 and 6 are copies of estimate; cell 6 counts. {advice}",
        f"cells 8 and 10 are copies of estimate-cjk. {advice}",
    ]
    assert passed(load(lab, tmp_path)) == ["estimate-latin", "estimate-cjk"]


def test_check_cells_that_are_missing_change_nothing(lab: Notebook, tmp_path: Path) -> None:
    for name in ("estimate-latin", "estimate-cjk"):
        lab["cells"].remove(cell_of(lab, name))
    assert problems(lab, tmp_path) == [
        "the check cells are missing: estimate-latin, estimate-cjk; grading puts them back"
    ]
    assert passed(load(lab, tmp_path)) == ["estimate-latin"]


def test_stripped_metadata_leaves_the_functions_names(lab: Notebook, tmp_path: Path) -> None:
    for cell in lab["cells"]:
        cell["metadata"] = {}
    (problem,) = problems(lab, tmp_path)
    assert problem.startswith("nbgrader's names of the cells are gone; your functions were found")
    notebook = read_notebook(save(lab, tmp_path))
    assert (notebook.slug, list(notebook.sources)) == (DAY1, ["estimate"])
    assert passed(load(lab, tmp_path)) == ["estimate-latin"]


def test_a_solution_that_is_gone_is_named(lab: Notebook, tmp_path: Path) -> None:
    lab["cells"].remove(cell_of(lab, "estimate"))
    (problem,) = problems(lab, tmp_path)
    assert problem.startswith("no cell defines estimate; move this file away, ")
    assert load(lab, tmp_path).missing == {"estimate": "no cell defines estimate"}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def estimates(text): ...", "no cell defines estimate"),
        ("estimate = 4", "estimate is not a function"),
        ("def estimate(text)\n  pass", "cell 4 (estimate) does not run: SyntaxError: "),
        ("1 / 0\ndef estimate(t): ...", "cell 4 (estimate) does not run: line 1: ZeroDivision"),
    ],
)
def test_the_reason_why_a_function_is_missing(
    source: str, reason: str, lab: Notebook, tmp_path: Path
) -> None:
    cell_of(lab, "estimate")["source"] = source
    assert load(lab, tmp_path).missing["estimate"].startswith(reason)


def test_a_function_below_its_checks_is_missing(lab: Notebook, tmp_path: Path) -> None:
    solution = cell_of(lab, "estimate")
    lab["cells"].remove(solution)
    lab["cells"].append(solution)
    assert load(lab, tmp_path).missing == {"estimate": "estimate is defined only below its checks"}


def test_broken_code_is_named_by_cell_and_line(lab: Notebook, tmp_path: Path) -> None:
    insert_above(lab, "estimate-latin", "x = 1\nif x\n")
    assert problems(lab, tmp_path) == [
        "cell 6 cannot be read as Python: SyntaxError: expected ':' (line 2)"
    ]


# --- what is not a notebook of this course -------------------------------------------------

FOREIGN = {
    "cells": [
        {
            "cell_type": "code",
            "source": "x",
            "metadata": {"nbgrader": {"grade_id": "squares", "grade": False, "solution": True}},
        }
    ],
    "nbformat": 4,
}
FRESH = "move this file away, run python -m grader workbook, and copy your code into the fresh lab"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", f"not JSON, so no notebook (line 1: Expecting value); {FRESH}"),
        (b'{"cells": [', f"not JSON, so no notebook (line 1: Expecting value); {FRESH}"),
        (b"\xff\x00x", f"not UTF-8, so no notebook; {FRESH}"),
        (b"[" * 200_000, f"not JSON, so no notebook (damaged); {FRESH}"),
        (
            b'{\n<<<<<<< HEAD\n"cells": []\n=======\n>>>>>>> other\n}',
            "git has left the markers of a conflict in it; choose one version",
        ),
        (b"[1, 2]", f"JSON, but no notebook: it has no nbformat; {FRESH}"),
        (b'{"nbformat": 4}', "format 4 is not known here; expected format 4 with cells"),
        (
            b'{"nbformat": 3, "worksheets": []}',
            "in the old format 3; open it in JupyterLab and save it, then again",
        ),
        (
            b'{"nbformat": 5, "cells": []}',
            "format 5 is not known here; expected format 4 with cells",
        ),
        (b'{"nbformat": 4, "cells": [1]}', f"cell 1 is no notebook cell; {FRESH}"),
        (
            b'{"nbformat": 4, "cells": []}',
            "no lab of this course; none of its cells has a name or a function of one",
        ),
        (
            json.dumps(FOREIGN).encode(),
            "no lab of this course; nbgrader calls its cells squares",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{DAY1}.ipynb"
    path.write_bytes(content)
    with pytest.raises(NotebookError) as caught:
        read_notebook(path)
    assert str(caught.value) == f"{path}: {said}"
    assert main(["check", str(path)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"error: {path}: {said}\n")


def test_no_file_and_a_huge_file_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotebookError, match=r"x\.ipynb: expected a notebook: No such file"):
        read_notebook(tmp_path / "x.ipynb")
    with pytest.raises(NotebookError, match=r": a folder; expected a notebook"):
        read_notebook(tmp_path)
    monkeypatch.setattr("grader.notebooks.lab.MAX_BYTES", 10)
    (tmp_path / "x.ipynb").write_text("x" * 11)
    with pytest.raises(NotebookError, match=r"larger than .* MB; clear its outputs and save it"):
        read_notebook(tmp_path / "x.ipynb")


def code_notebook(*sources: str | list[str]) -> bytes:
    """Return a notebook of code cells without metadata, as a hostile program writes it."""
    cells = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}).encode()


DEFINED = "def estimate(text):\n    return len(text)"


@pytest.mark.parametrize(
    ("sources", "fault"),
    [
        (["#" * MAX_CODE_CHARS], "more than 500,000 characters of code; no lab has so many"),
        ([["#"] * (MAX_CODE_CHARS + 1)], "more than 500,000 characters of code"),
        (["#\n" * 150_000, "#\n" * 150_000], "more than 500,000 characters of code"),
        ([None], "cell 2 is no notebook cell"),
        ([[1]], "cell 2 is no notebook cell"),
    ],
    ids=["one long cell", "many lines", "many cells", "no source", "no lines"],
)
def test_what_is_too_much_to_read_is_one_line(sources: list[Any], fault: str) -> None:
    with pytest.raises(NotebookError, match=fault):
        read_notebook("day1_estimate.ipynb", code_notebook(DEFINED, *sources))


@pytest.mark.parametrize("deep", ['{"a":' * 100_000, "[" * 100_000, "[" * 100_000 + "]" * 100_000])
def test_json_nested_without_end_is_one_line(deep: str) -> None:
    with pytest.raises(NotebookError, match=r"^day1_estimate\.ipynb: ") as caught:
        read_notebook("day1_estimate.ipynb", deep.encode())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "odd",
    [
        "x = " + " + ".join(["1"] * 400),
        "x = [" + ", ".join(["1"] * 100_000) + "]",
        "x = '\ud800'",
        "x = " + "(" * 5_000,
        "x = f'" + "{1}" * 5_000 + "'",
        "x = " + "-" * 100_000 + "1",
    ],
    ids=["a sum", "a long list", "half a surrogate pair", "brackets", "an f-string", "signs"],
)
def test_an_odd_cell_costs_only_itself(odd: str) -> None:
    notebook = read_notebook("day1_estimate.ipynb", code_notebook(DEFINED, odd))
    assert notebook.sources["estimate"] == DEFINED
    assert not [problem for problem in notebook.problems if len(problem.splitlines()) != 1]


# --- a folder of notebooks --------------------------------------------------------------


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    """The labs as they are laid for a learner."""
    shutil.copytree(ROOT / "labs", tmp_path / "workbook")
    return tmp_path / "workbook"


def test_a_folder_gives_all_functions(workbook: Path) -> None:
    own = functions_of(workbook)
    assert set(own.functions) == {
        name for slug in labs() for name in read_notebook(workbook / slug / f"{slug}.ipynb").sources
    }
    assert own.problems == ()


def test_one_broken_notebook_does_not_stop_the_others(workbook: Path) -> None:
    before = set(functions_of(workbook).functions)
    path = workbook / DAY1 / f"{DAY1}.ipynb"
    path.write_text("{")
    own = functions_of(workbook)
    assert set(own.functions) == before - {"estimate"}
    assert own.missing["estimate"].startswith(f"{path}: not JSON")
    assert own.problems == (own.missing["estimate"],)
    path.unlink()
    own = functions_of(workbook)
    assert own.missing["estimate"] == f"no notebook of {DAY1} in {workbook}"
    assert own.problems == ()
    path.write_text("{")
    with pytest.raises(NotebookError):
        functions_of(path)


def test_of_two_notebooks_of_a_lab_the_one_with_its_name_counts(
    lab: Notebook, workbook: Path
) -> None:
    copied = workbook / DAY1 / f"{DAY1}-Copy1.ipynb"
    cell_of(lab, "estimate")["source"] = RIGHT
    save(lab, workbook / DAY1, copied.stem)
    counts = workbook / DAY1 / f"{DAY1}.ipynb"
    read = read_workbook(workbook)
    assert read.notebooks[DAY1].path == counts
    assert read.problems == (f"2 notebooks of {DAY1}: {copied}, {counts}; {counts} counts",)

    counts.rename(counts.with_name("other.ipynb"))
    read = read_workbook(workbook)
    assert DAY1 not in read.notebooks
    assert read.problems[0].endswith(f"; keep one as {DAY1}.ipynb")


def test_hidden_folders_are_not_searched(workbook: Path) -> None:
    shutil.copytree(workbook / DAY1, workbook / DAY1 / ".ipynb_checkpoints")
    assert read_workbook(workbook).problems == ()


def test_a_folder_without_notebooks_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no notebook in it; python -m grader workbook lays"):
        functions_of(tmp_path)
    with pytest.raises(BadInput, match=r"no such file or folder"):
        functions_of(tmp_path / "nowhere")


# --- the command line -------------------------------------------------------------------


def test_check_shows_the_four_lines_and_ends_with_one(
    workbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "one rule for all text: a CJK character costs about a whole token, not a quarter"
    for where in (workbook / DAY1, workbook / DAY1 / f"{DAY1}.ipynb"):
        assert main(["check", str(where)]) == 1
        shown = capsys.readouterr()
        assert shown.out.splitlines()[1:] == [
            '✗ estimate("你好 world")',
            "  expected: 4",
            "  got:      2",
            f"  why:      {why}",
            "1/2 passed",
        ]
        assert shown.err == ""


def test_check_of_a_solved_lab_ends_with_zero(
    lab: Notebook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell_of(lab, "estimate")["source"] = RIGHT
    assert main(["check", str(save(lab, tmp_path, "mine"))]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "2/2 passed"
    assert shown.err == (
        f"note: {tmp_path / 'mine.ipynb'}: this is the lab {DAY1}; "
        f"call it {DAY1}.ipynb before you hand it in\n"
    )


def test_check_of_a_folder_with_several_is_bad_input(
    lab: Notebook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(lab, tmp_path, "a")
    save(lab, tmp_path, "b")
    assert main(["check", str(tmp_path)]) == 2
    assert "2 notebooks in it; expected one." in capsys.readouterr().err


HEAVY = {"IPython", "matplotlib", "nbgrader", "numpy", "openai", "rich", "sqlalchemy", "tornado"}


def test_check_loads_nothing_heavy(workbook: Path) -> None:
    """Loading them would take most of the time that a learner waits."""
    code = (
        "import sys\nfrom grader.cli import main\nended = main(sys.argv[1:])\n"
        f"print(ended, sorted({HEAVY!r} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", code, "check", str(workbook / DAY1)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "1 []", done.stderr


def test_selftest_of_a_workbook_is_the_learner_s_progress(
    lab: Notebook, workbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell_of(lab, "estimate")["source"] = RIGHT
    save(lab, workbook / DAY1)
    assert main(["selftest", str(workbook)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[0] for line in lines[:2]] == ["✓", "✓"]
    assert len(lines) == 16


def test_selftest_of_the_labs_runs_their_notebooks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def remember(path: Path) -> Any:
        read.append(path.stem)
        return read_notebook(path)

    monkeypatch.setattr("grader.notebooks.lab.read_notebook", remember)
    assert main(["selftest", "labs"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "6/15 passed"
    assert read == labs()
