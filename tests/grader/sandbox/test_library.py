"""The library's copy in the sandbox: the day's exercise is not in it, everything else is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from grader.build.place_starters import home_of
from grader.exercises import EXERCISES, IMPORTS, exercises_of, source_of
from grader.notebooks.cells import _bound, free_names
from grader.sandbox.library import LIBRARY, PRELOADED, withhold, write_library

DAYS = sorted({exercise.day for exercise in EXERCISES})


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The copy for each day."""
    made = {}
    for day in DAYS:
        made[day] = tmp_path_factory.mktemp(f"day{day}")
        write_library(made[day], [exercise.function for exercise in exercises_of(day)])
    return made


def python(folder: Path, code: str) -> str:
    """Run code with this copy of the library and no other; return what it prints."""
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("day", DAYS)
def test_the_days_functions_are_nowhere_in_the_copy(copies: dict[int, Path], day: int) -> None:
    for exercise in exercises_of(day):
        body = source_of(exercise.solution()).split('"""')[2].strip()
        lines = [line for line in body.splitlines() if len(line.strip()) > 25]
        assert lines
        home = home_of(LIBRARY.parent, exercise.module, exercise.function)
        text = (copies[day] / home.relative_to(LIBRARY.parent)).read_text("utf-8")
        assert f"def {exercise.function}(" not in text
        original = home.read_text("utf-8")
        for line in lines:
            if original.count(line.strip()) == 1:  # a line that is in no other function
                assert line.strip() not in text
        for compiled in copies[day].rglob(f"{home.stem}.*.pyc"):
            assert exercise.solution().__code__.co_code not in compiled.read_bytes()


@pytest.mark.parametrize("day", DAYS)
def test_all_the_rest_can_be_imported(copies: dict[int, Path], day: int) -> None:
    names = [exercise.function for exercise in exercises_of(day)]
    told = python(
        copies[day],
        f"""
import importlib
from compaction._withheld import reached
for name in {PRELOADED}:
    importlib.import_module("compaction." + name)
{IMPORTS[day]}
assert reached == [], reached
for module, name in {[(e.module, e.function) for e in EXERCISES]}:
    there = hasattr(importlib.import_module(module), name)
    assert there == (name not in {names}), name
print(sorted(reached))
""",
    )
    expected = sorted(f"{e.module}.{e.function}" for e in exercises_of(day))
    assert told == repr(expected)


@pytest.mark.parametrize("day", DAYS)
def test_no_function_of_the_copy_lacks_a_name(copies: dict[int, Path], day: int) -> None:
    for path in (copies[day] / "compaction").glob("*.py"):
        if not (LIBRARY / path.name).exists():
            continue
        before, after = (ast.parse(f.read_text("utf-8")) for f in (LIBRARY / path.name, path))
        had, has = ({n for node in tree.body for n in _bound(node)} for tree in (before, after))
        for node in after.body:
            lacking = free_names(node, annotations=False) & (had - has)
            assert not lacking, (path.name, ast.unparse(node).splitlines()[0])


def test_who_needs_a_withheld_function_says_so(copies: dict[int, Path]) -> None:
    told = python(
        copies[4],
        """
from compaction.summary import compact, HEADINGS
try:
    compact([])
except RuntimeError as error:
    print(error)
""",
    )
    assert told == "compact needs group_messages, and here the library lacks it"


def test_reaching_for_a_withheld_function_is_noticed(copies: dict[int, Path]) -> None:
    told = python(
        copies[1],
        """
from compaction import _withheld
try:
    from compaction.tokens import estimate
except ImportError:
    print(_withheld.reached)
try:
    import compaction.tokens
    compaction.tokens.estimate
except AttributeError:
    print(_withheld.reached)
exec("from compaction.tokens import *")
import compaction.tokens
print(hasattr(compaction.tokens, "nothing"), _withheld.reached)
""",
    )
    reached = ["compaction.tokens.estimate"]
    assert told.splitlines() == [repr(reached), repr(reached * 2), f"False {reached * 2!r}"]


def test_star_import_brings_the_rest(copies: dict[int, Path]) -> None:
    told = python(
        copies[3],
        "from compaction.budget import *\nprint('PATHS' in dir(), 'budget_table' in dir())",
    )
    assert told == "True False"


def test_without_names_the_library_is_copied_as_it_is(tmp_path: Path) -> None:
    write_library(tmp_path)
    copied = {path.relative_to(tmp_path) for path in (tmp_path / "compaction").rglob("*.py")}
    tops = {path.parts[1].removesuffix(".py") for path in copied}
    assert set(PRELOADED) <= tops
    for path in copied - {Path("compaction", "_withheld.py")}:
        original = LIBRARY.parent / path
        assert (tmp_path / path).read_text("utf-8") == original.read_text("utf-8")


def test_a_name_that_is_no_exercise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no exercise is called nothing"):
        write_library(tmp_path, ["nothing"])
    with pytest.raises(ValueError, match=r"the library has no a\.f"):
        withhold({"a": "# f"}, {"f": "a"})


def test_what_is_made_by_a_withheld_function_goes_too() -> None:
    source = "def f(): return 1\nTABLE = [f()]\ndef g(): return TABLE\nclass C:\n    x = g\nN = 2\n"
    made = withhold({"a": source}, {"f": "a"})["a"]
    assert "TABLE = " not in made and "N = 2" in made
    assert "g = _stand_in('g', 'TABLE')" in made
    assert "C = _stand_in('C', " not in made  # it needs g, and g is there: it says what is missing


def test_a_parameter_of_the_same_name_is_no_use_of_it_but_its_default_is() -> None:
    plain_use = "def f(): pass\ndef g(f): return f\n"
    assert "_stand_in('g'" not in withhold({"a": plain_use}, {"f": "a"})["a"]
    default = "def f(): pass\ndef g(f=f): return f\n"
    assert "g = _stand_in('g', 'f')" in withhold({"a": default}, {"f": "a"})["a"]


def test_imports_within_functions_count() -> None:
    sources = {
        "a": "def f(): pass",
        "b": "def g():\n    from compaction.a import f\n    return f()",
    }
    assert "g = _stand_in('g', 'f')" in withhold(sources, {"f": "a"})["b"]
