"""Right and wrong functions in the solved labs: each comes out as it should, and is told why.

One process a lab reads the notebook with one cell replaced, as ``grader check`` does, and runs
the day's checks. A variant that "may end either way" is optional: only its crash would fail.
"""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
VARIANTS = json.loads((ROOT / "tests" / "cases" / "variants.json").read_text(encoding="utf-8"))
FAILS = [variant for variant in VARIANTS if variant["expect"] == "fail"]

RUN = """
import contextlib, io, json, sys, tempfile
from pathlib import Path
from grader.checks import CHECKS, run_check
from grader.learner.functions import load_functions
from grader.notebooks.lab import read_notebook

lab, seeds = sys.argv[1], [int(seed) for seed in sys.argv[2:]]
variants = [v for v in json.loads(Path("tests/cases/variants.json").read_text()) if v["lab"] == lab]
solved = json.loads(Path(f"solutions/{lab}/{lab}.ipynb").read_text())
day = int(lab[3])
told = {}
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, f"{lab}.ipynb")
    for variant in variants:
        cells = []
        for cell in solved["cells"]:
            graded = cell["metadata"].get("nbgrader", {}).get("grade_id")
            if graded == variant["function"]:
                cell = {**cell, "source": variant["code"]}
            elif cell["cell_type"] == "code" and "try" in cell["id"]:
                continue
            cells.append(cell)
        path.write_text(json.dumps({**solved, "cells": cells}))
        function = load_functions(read_notebook(path)).functions[variant["function"]]
        results = []
        with contextlib.redirect_stdout(io.StringIO()):
            for seed in seeds:
                for check in CHECKS.values():
                    if check.day != day or check.function != variant["function"]:
                        continue
                    result = run_check(check, function, seed)
                    lines = [] if result.passed else result.lines
                    results.append([seed, result.passed, result.error is not None, lines])
                    if seed != seeds[0] and not result.passed:
                        break  # all that is told has been told under the first seed
        told[f"{variant['function']}/{variant['name']}"] = results
print(json.dumps(told))
"""
SEEDS = (2026, 1)


@cache
def outcomes(lab: str) -> dict[str, list[tuple[int, bool, bool, list[str]]]]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, lab, *map(str, SEEDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[tuple[int, bool, bool, list[str]]]] = json.loads(done.stdout)
    return found


def name_of(variant: dict[str, Any]) -> str:
    return f"{variant['function']}/{variant['name']}"


@pytest.mark.parametrize("variant", VARIANTS, ids=map(name_of, VARIANTS))
def test_a_variant_comes_out_as_it_should(variant: dict[str, Any]) -> None:
    results = outcomes(variant["lab"])[name_of(variant)]
    if variant.get("optional"):
        return
    for seed in SEEDS:
        passed = all(ok for s, ok, _raised, _lines in results if s == seed)
        assert passed == (variant["expect"] == "pass"), (variant["why"], results)


@pytest.mark.parametrize("variant", FAILS, ids=map(name_of, FAILS))
def test_a_wrong_one_is_told_something_useful(variant: dict[str, Any]) -> None:
    results = outcomes(variant["lab"])[name_of(variant)]
    told = "\n".join(line for *_, lines in results for line in lines)
    if variant.get("shows") and not variant.get("optional"):
        assert re.search(variant["shows"], told, re.IGNORECASE), told
    if variant.get("not_shows"):
        assert not re.search(variant["not_shows"], told, re.IGNORECASE), told
    for _seed, passed, raised, lines in results:
        assert not raised or variant.get("may_raise"), lines
        assert passed or len(lines) in (3, 4), lines


def test_there_are_variants_of_every_function() -> None:
    from grader.exercises import EXERCISES

    for exercise in EXERCISES:
        there = [v for v in VARIANTS if v["function"] == exercise.function]
        assert {v["expect"] for v in there} == {"pass", "fail"}, exercise.function
