"""The starter functions: they run, and they are wrong in exactly the places they should be."""

import ast
import builtins
import dis
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from grader.checks import CHECKS, run_check
from grader.exercises import EXERCISES, IMPORTS, SLUGS, Exercise, exercises_of, source_of

SEEDS = (0, 1, 2, 7, 2026, 123456789)

PASSED_AS_HANDED_OUT = {
    "estimate-latin",
    "calibrate-few",
    "budget-table",
    "group-keep",
    "compact-summaries",
    "probe-survives",
    # beyond the fifteen
    "carry-budget",
    "step-threshold",
    "room-passes",
    "pack-all",
}

IDS = [exercise.function for exercise in EXERCISES]


def from_source(exercise: Exercise, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as a notebook has it: from its source, with the lab's imports alone."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(exercise.imports, "imports", "exec", dont_inherit=True), namespace)
    exec(compile(source_of(function), "cell", "exec", dont_inherit=True), namespace)
    return namespace[exercise.function]


def global_names(code: CodeType) -> set[str]:
    """Return the names that a function looks up outside of itself, inner functions included."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return names.union(*map(global_names, inner))


def passed(function: Callable[..., Any], name: str, seed: int) -> set[str]:
    return {
        c.id for c in CHECKS.values() if c.function == name and run_check(c, function, seed).passed
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_starter_fails_exactly_its_checks_and_says_why(exercise: Exercise, seed: int) -> None:
    for check in CHECKS.values():
        if check.function != exercise.function:
            continue
        result = run_check(check, exercise.starter(), seed)
        assert result.passed == (check.id in PASSED_AS_HANDED_OUT), result.line
        if not result.passed:
            assert result.failure is not None, result.error
            assert result.failure.why


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_solution_passes_all_its_checks(exercise: Exercise, seed: int) -> None:
    for check in CHECKS.values():
        if check.function == exercise.function:
            result = run_check(check, exercise.solution(), seed)
            assert result.passed, (result.line, result.error)


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_both_do_with_the_imports_of_the_lab(exercise: Exercise) -> None:
    every = {check.id for check in CHECKS.values() if check.function == exercise.function}
    solution = from_source(exercise, exercise.solution())
    starter = from_source(exercise, exercise.starter())
    # A name that is missing shows here even when no check comes by it.
    for function in (solution, starter):
        there = function.__globals__.keys() | vars(builtins).keys()
        assert global_names(function.__code__) - there == set()
    assert passed(solution, exercise.function, seed=11) == every
    assert passed(starter, exercise.function, seed=11) == every & PASSED_AS_HANDED_OUT


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_starter_has_the_library_signature(exercise: Exercise) -> None:
    starter, solution = exercise.starter(), exercise.solution()
    assert starter.__name__ == solution.__name__
    assert inspect.signature(starter) == inspect.signature(solution)


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_starter_is_short_and_has_a_comment(exercise: Exercise) -> None:
    source = source_of(exercise.starter())
    assert any(line.strip().startswith("#") for line in source.splitlines())
    assert len(source.splitlines()) <= 45
    assert inspect.getdoc(exercise.starter())


@pytest.mark.parametrize("day", IMPORTS)
def test_imports_of_a_lab_are_used_and_hold_no_solution(day: int) -> None:
    imported = {
        alias.asname or alias.name
        for node in ast.parse(IMPORTS[day]).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    used = {
        node.id
        for exercise in exercises_of(day)
        for function in (exercise.solution(), exercise.starter())
        for node in ast.walk(ast.parse(source_of(function)))
        if isinstance(node, ast.Name)
    }
    assert imported - used == set()
    assert imported & {exercise.function for exercise in exercises_of(day)} == set()


def test_every_check_is_about_an_exercise_of_its_day() -> None:
    for check in CHECKS.values():
        assert check.function in {exercise.function for exercise in exercises_of(check.day)}


def test_every_day_has_a_slug_and_imports() -> None:
    assert sorted(SLUGS) == list(range(1, 9))
    for exercise in EXERCISES:
        assert exercise.slug.startswith(f"day{exercise.day}_")
        assert exercise.imports == IMPORTS[exercise.day]
