"""Run the checks on a set of functions and print one line per check, then the total.

``solutions`` are the library's functions and ``labs`` the notebooks as they are handed out. A
folder of notebooks (``workbook``), one notebook or a Python file are a learner's own: that code
runs in a process apart, with a time limit (:mod:`grader.learner.apart`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.checks import CORE, EXTENSION, Check, run_check, seed_in_force
from grader.errors import BadInput
from grader.exercises import EXERCISES
from grader.learner.apart import Task, Verdict, failed, run_apart, verdict_of
from grader.learner.functions import Source, sources_of, sources_of_file
from grader.notebooks.lab import notebook_files, read_workbook

Function = Callable[..., Any]

UNLIMITED = "no process can be started here: the checks run without a time limit"


@dataclass(frozen=True)
class Functions:
    """The functions to check, by name: the course's own, or where a learner's come from.

    ``faults`` says, for a function that is not there, why not; ``notes`` are for the learner to
    read, one line each.
    """

    where: str
    found: Mapping[str, Function | Source]
    faults: Mapping[str, str]
    notes: Sequence[str] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "where",
        metavar="WHERE",
        nargs="?",
        default="solutions",
        help="solutions (default), labs (as handed out), or your own: a folder of notebooks "
        "(workbook), a notebook or a Python file",
    )
    parser.add_argument("--all", action="store_true", help="run the checks of days 7 and 8 as well")
    parser.add_argument(
        "--explain", action="store_true", help="show expected, got and why below a failed check"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Run the checks and print their results; 0 only when every one of them passes."""
    seed = seed_in_force()
    functions = functions_at(options.where)
    _note(functions.notes)
    asked = [*CORE, *(EXTENSION if options.all else ())]
    verdicts, notes = run_all(asked, functions, seed)
    _note(notes)
    core, extension = verdicts[: len(CORE)], verdicts[len(CORE) :]
    if options.json:
        data = {"where": functions.where, "seed": seed, **_as_data(CORE, core)}
        if options.all:
            data["extension"] = _as_data(EXTENSION, extension)
        print(json.dumps(data, ensure_ascii=False, indent=1))
    else:
        _print_block(core, options.explain)
        _print_block(extension, options.explain)
        total = f"{_passed(core)}/{len(core)}"
        if options.all:
            print(f"core {total}, extension {_passed(extension)}/{len(extension)}")
        else:
            print(f"{total} passed")
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def _note(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    sys.stderr.flush()


def run_all(
    checks: Sequence[Check], functions: Functions, seed: int
) -> tuple[list[Verdict], list[str]]:
    """Run checks on functions; return a verdict for each in order, and notes for the learner.

    A function that is missing fails its checks. Raises BadInput for a Python file that does not
    run.
    """
    by_function: dict[str, list[str]] = {}
    for check in checks:
        by_function.setdefault(check.function, []).append(check.id)
    verdicts: dict[str, Verdict] = {}
    tasks = []
    for name, ids in by_function.items():
        source = functions.found.get(name)
        if isinstance(source, Source):
            tasks.append(Task(source, tuple(ids)))
        elif source is None:
            fault = functions.faults.get(name, f"{name} is missing")
            verdicts |= {check_id: failed(check_id, fault) for check_id in ids}
    outcome = run_apart(tasks, seed)
    verdicts |= outcome.verdicts
    for check in checks:
        own = functions.found.get(check.function)
        if own is not None and not isinstance(own, Source):
            verdicts[check.id] = verdict_of(run_check(check, own, seed))
    notes = [] if outcome.is_limited else [UNLIMITED]
    for name, why in outcome.errors.items():
        if tasks[0].source.file is not None:
            line = re.match(r"line (\d+): ", why)
            place = f"{name}, line {line[1]}" if line else name
            reason = why[line.end() :] if line else why
            raise BadInput(f"{place}: expected code that runs, got {reason}")
        notes.append(f"{name}: {why}")
    return [verdicts[check.id] for check in checks], notes


# --- where functions come from ----------------------------------------------------------


def functions_at(where: str) -> Functions:
    """Return the functions of a place.

    >>> sorted(functions_at("solutions").found)[:3]
    ['budget_table', 'compact', 'estimate']

    Raises BadInput for anything but: ``solutions``, ``labs``, a folder with notebooks, a
    notebook, a Python file.
    """
    if where == "solutions":
        return Functions(where, {e.function: e.solution() for e in EXERCISES}, {})
    if where == "labs":
        return _functions_of_labs()
    path = Path(where)
    if not where.strip():  # an unset variable of a shell; Path would take it for this folder
        raise BadInput(f"expected the name of a place, got {where!r}")
    if path.suffix == ".py":
        return Functions(where, sources_of_file(path), {})
    if path.is_dir() or path.suffix == ".ipynb":
        return functions_in(path)
    raise BadInput(
        f"{where}: expected solutions, labs, a folder of notebooks, a notebook or a Python file"
    )


def functions_in(path: Path) -> Functions:
    """Return where a learner's functions come from in a notebook or a folder of notebooks."""
    workbook = read_workbook(path)
    found: dict[str, Function | Source] = {}
    faults = {}
    for exercise in EXERCISES:
        absent = f"no notebook of {exercise.slug} in {workbook.where}"
        notebook = workbook.notebooks.get(exercise.slug)
        if notebook is not None:
            found[exercise.function] = sources_of(notebook)[exercise.function]
        else:
            faults[exercise.function] = workbook.faults.get(exercise.slug, absent)
    return Functions(str(path), found, faults, workbook.problems)


def _functions_of_labs() -> Functions:
    """Return what is handed out: from the notebooks, and the starters where there are none.

    The package may be installed without the folder of labs.
    """
    starters = {e.function: e.starter() for e in EXERCISES}
    labs = Path(__file__).resolve().parents[2] / "labs"
    if not labs.is_dir() or not any(notebook_files(labs)):
        return Functions("labs", starters, {})
    own = functions_in(labs)
    there = {path.stem for path in notebook_files(labs)}
    missing = {e.function for e in EXERCISES if e.slug in there} & set(own.faults)
    found = {name: f for name, f in {**starters, **own.found}.items() if name not in missing}
    return Functions("labs", found, {name: own.faults[name] for name in missing}, own.notes)


# --- output -----------------------------------------------------------------------------


def _print_block(verdicts: Iterable[Verdict], explain: bool) -> None:
    for verdict in verdicts:
        print(verdict.line)
        if explain and len(verdict.lines) > 1:
            print("\n".join(verdict.lines[1:]))


def _passed(verdicts: Iterable[Verdict]) -> int:
    return sum(verdict.passed for verdict in verdicts)


def _as_data(checks: Iterable[Check], verdicts: list[Verdict]) -> dict[str, Any]:
    entries = []
    for check, verdict in zip(checks, verdicts, strict=True):
        failure = verdict.failure
        entries.append(
            {
                "id": check.id,
                "day": check.day,
                "function": check.function,
                "sentence": check.sentence,
                "passed": verdict.passed,
                "line": verdict.line,
                "call": failure and failure.call,
                "expected": failure and failure.expected,
                "got": failure and failure.got,
                "why": failure and failure.why,
                "error": verdict.error or None,
            }
        )
    return {"passed": _passed(verdicts), "total": len(verdicts), "checks": entries}
