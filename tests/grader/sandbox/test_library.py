"""The library's copy in the sandbox: the day's exercise is a stub in it, the rest is whole."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.checks import CHECKS, run_check
from grader.exercises import EXERCISES, IMPORTS, exercises_of, source_of
from grader.sandbox.library import (
    ALSO_STUBBED,
    LIBRARY,
    loaded_first,
    needed_modules,
    with_stub,
    write_library,
)

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
def test_the_bodies_of_the_days_functions_are_nowhere_in_the_copy(
    copies: dict[int, Path], day: int
) -> None:
    texts = [path.read_text("utf-8") for path in (copies[day] / "compaction").rglob("*.py")]
    compiled = [path.read_bytes() for path in copies[day].rglob("*.pyc")]
    originals = [path.read_text("utf-8") for path in LIBRARY.rglob("*.py")]
    for exercise in exercises_of(day):
        body = source_of(exercise.solution()).split('"""')[2].strip()
        lines = [line.strip() for line in body.splitlines() if len(line.strip()) > 25]
        # A line that stands in this function alone.
        own = [line for line in lines if sum(text.count(line) for text in originals) == 1]
        assert own
        assert not [line for line in own if any(line in text for text in texts)]
        assert compiled
        assert not any(exercise.solution().__code__.co_code in data for data in compiled)


@pytest.mark.parametrize("day", DAYS)
def test_everything_can_be_imported_and_a_call_meets_the_stub(
    copies: dict[int, Path], day: int
) -> None:
    told = python(
        copies[day],
        f"""
import importlib, inspect
from compaction._stubbed import reached
for name in {loaded_first()}:
    importlib.import_module(name)
{IMPORTS[day]}
assert reached == [], reached
for module, name in {[(e.module, e.function) for e in exercises_of(day)]}:
    function = getattr(importlib.import_module(module), name)
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    try:
        function(*[None] * len(needed))
    except RuntimeError as error:
        print(error)
print(reached)
""",
    )
    names = [f"{e.module}.{e.function}" for e in exercises_of(day)]
    lines = [f"{name} is this day's exercise: here the library lacks it" for name in names]
    assert told.splitlines() == [*lines, repr(names)]


def test_whatever_calls_a_stubbed_function_meets_the_stub(copies: dict[int, Path]) -> None:
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
    lacking = "compaction.grouping.group_messages is this day's exercise: here the library lacks it"
    assert told == lacking


def test_without_names_the_library_is_copied_as_it_is(tmp_path: Path) -> None:
    write_library(tmp_path)
    copied = {path.relative_to(tmp_path) for path in (tmp_path / "compaction").rglob("*.py")}
    assert copied == {Path("compaction", name) for name in (*needed_modules(), "_stubbed.py")}
    for path in copied - {Path("compaction", "_stubbed.py")}:
        assert (tmp_path / path).read_text("utf-8") == (LIBRARY.parent / path).read_text("utf-8")


def test_what_no_exercise_needs_is_not_there() -> None:
    tops = {name.split("/")[0].removesuffix(".py") for name in needed_modules()}
    assert tops & {"agent", "cli", "setup_check", "__main__"} == set()


def test_all_that_the_labs_import_is_there(copies: dict[int, Path], repository: Path) -> None:
    lines = set()
    for path in sorted((repository / "solutions").glob("*/*.ipynb")):
        for cell in json.loads(path.read_bytes())["cells"]:
            if cell["cell_type"] == "code":
                lines |= set(_imports_of_the_library("".join(cell["source"])))
    assert len(lines) > 20
    python(copies[7], "\n".join(sorted(lines)))


def _imports_of_the_library(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("compaction"):
            yield ast.unparse(node)


def test_a_name_that_is_not_an_exercise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no exercise is called nothing"):
        write_library(tmp_path, ["nothing"])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\n", "there is no function f here"),
        ("def f(): return 1\n", "the body of f begins on the line of its name"),
    ],
)
def test_what_cannot_be_stubbed_is_refused(source: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        with_stub(source, "f", "a.f")


# --- no other function of the library does an exercise ----------------------------------


def public_functions() -> dict[str, Callable[..., Any]]:
    """Every public function and class of the modules in the copy, by its full name."""
    found: dict[str, Callable[..., Any]] = {}
    for path in needed_modules():
        dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        name = "compaction" if dotted == "__init__" else f"compaction.{dotted}"
        for key, value in vars(importlib.import_module(name)).items():
            module = getattr(value, "__module__", None) or ""
            if callable(value) and not key.startswith("_") and module.startswith("compaction"):
                found[f"{name}.{key}"] = value
    return found


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarms on Windows")
def test_no_public_function_of_the_library_is_an_exercise_by_itself() -> None:
    """Each is tried as the whole body of each exercise: what gains a point has to be a stub."""
    starters = {exercise.function: exercise.starter() for exercise in EXERCISES}
    given = {c.id for c in CHECKS.values() if run_check(c, starters[c.function], seed=7).passed}
    asked = [check for check in CHECKS.values() if check.id not in given]
    solutions = {exercise.function: exercise.solution() for exercise in EXERCISES}
    stubbed = {name for names in ALSO_STUBBED.values() for name in names}
    functions = public_functions()
    assert len(functions) > 100
    tried: set[int] = set()
    for name, function in functions.items():
        if id(function) in tried or name in stubbed:
            continue
        tried.add(id(function))
        for check in asked:
            if function is solutions[check.function]:
                continue
            with contextlib.redirect_stdout(io.StringIO()), at_most(0.3):
                passed = run_check(check, function, seed=7).passed
            assert not passed, f"{name} passes {check.id}"


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt a function that works on something else for long; the check fails by that."""

    def interrupt(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_does_an_exercise_under_another_name_is_stubbed_with_it(tmp_path: Path) -> None:
    for exercise, names in ALSO_STUBBED.items():
        for name in names:
            module, _, function = name.rpartition(".")
            place = module.replace(".", "/")
            if not list(LIBRARY.parent.glob(f"{place}*")):
                continue
            write_library(tmp_path / exercise, [exercise])
            if not list((tmp_path / exercise).glob(f"{place}*")):
                continue
            told = python(
                tmp_path / exercise,
                f"from {module} import {function}\n"
                f"try: {function}(None)\nexcept RuntimeError as error: print(error)",
            )
            assert told == f"{name} is this day's exercise: here the library lacks it"
