"""The library's copy in the sandbox: the day's exercise is a stub in it, the rest is whole."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import io
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Never

import pytest
from matplotlib import pyplot

from grader.checks import CHECKS, run_check
from grader.checks.check import Check
from grader.exercises import EXERCISES, IMPORTS, Exercise, exercises_of, source_of
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


@pytest.fixture
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function can wait for somebody, start something or draw: an exercise does neither."""

    def refuse(*args: object, **kwargs: object) -> Never:
        raise RuntimeError("not in an exercise")

    for owner, name in [
        (builtins, "input"),
        (socket, "socket"),
        (subprocess, "Popen"),
        (threading.Thread, "start"),
        (time, "sleep"),
        (pyplot, "subplots"),
    ]:
        monkeypatch.setattr(owner, name, refuse)


class Called(BaseException):
    """A check called the function with these arguments."""


def first_call(check: Check) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a check's first call; whoever raises there does not pass."""

    def function(*args: Any, **kwargs: Any) -> Never:
        raise Called(args, kwargs)

    result = run_check(check, function, seed=7)
    assert not result.passed
    assert isinstance(result.error, Called)
    args, kwargs = result.error.args
    return args, kwargs


def takes(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether a call with these arguments can get into the function."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # built in, without a signature
        return True
    return True


def checks_to_earn() -> dict[str, Check]:
    """Return the checks that the starters do not pass."""
    starters = {exercise.function: exercise.starter() for exercise in EXERCISES}
    return {
        name: check
        for name, check in CHECKS.items()
        if not run_check(check, starters[check.function], seed=7).passed
    }


def named(name: str) -> Any:
    """Return what has this full name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


@pytest.mark.usefixtures("nothing_waits")
def test_no_public_function_of_the_library_is_an_exercise_by_itself() -> None:
    """Each is tried as the whole body of each exercise: what gains a point has to be a stub."""
    checks = checks_to_earn()
    calls = {name: first_call(check) for name, check in checks.items()}
    stubs = {
        exercise.function: [
            exercise.solution(),
            *map(named, ALSO_STUBBED.get(exercise.function, ())),
        ]
        for exercise in EXERCISES
    }
    functions = {id(function): name for name, function in public_functions().items()}
    assert len(functions) > 100
    assert {id(stub) for found in stubs.values() for stub in found} <= functions.keys()
    tried, earned = 0, []
    for name in functions.values():
        function = named(name)
        for check_id, check in checks.items():
            if any(function is stub for stub in stubs[check.function]):
                continue
            if takes(function, *calls[check_id]):
                tried += 1
                with contextlib.redirect_stdout(io.StringIO()):
                    if run_check(check, function, seed=7).passed:
                        earned.append(f"{name} passes {check_id}")
    assert tried > 1000
    assert earned == []


def test_what_does_an_exercise_under_another_name_would_pass_its_checks() -> None:
    """The list is no longer than it has to be."""
    checks = checks_to_earn()
    for exercise, names in ALSO_STUBBED.items():
        for name in names:
            about = [check for check in checks.values() if check.function == exercise]
            assert any(run_check(check, named(name), seed=7).passed for check in about)


def places_of(function: object) -> list[tuple[str, str]]:
    """Return each module of the copy that has the function, and under which name."""
    places = []
    for path in needed_modules():
        dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        name = "compaction" if dotted == "__init__" else f"compaction.{dotted}"
        module = importlib.import_module(name)
        places += [(name, key) for key in dir(module) if getattr(module, key) is function]
    return places


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.function)
def test_a_stubbed_function_is_a_stub_wherever_it_is_handed_on(
    copies: dict[int, Path], exercise: Exercise
) -> None:
    also = ALSO_STUBBED.get(exercise.function, ())
    expected = {}
    for stub in (f"{exercise.module}.{exercise.function}", *also):
        places = places_of(named(stub))
        assert places
        expected |= {f"{module}.{name}": stub for module, name in places}
    told = python(
        copies[exercise.day],
        f"""
import importlib, inspect
for place in {list(expected)}:
    module, _, name = place.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    try:
        print(place, function(*[None] * len(needed)))
    except RuntimeError as error:
        print(place, str(error).partition(" is this day")[0])
""",
    )
    assert told.splitlines() == [f"{place} {stub}" for place, stub in expected.items()]
