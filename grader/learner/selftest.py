"""Run the checks on a set of functions and print a line a check, then the total.

``solutions`` are the library's functions and ``labs`` the notebooks as they are handed out. A
folder of notebooks (``workbook``), one notebook or a Python file are a learner's own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.checks import CORE, EXTENSION, Check, Result, describe_error, run_check, seed_in_force
from grader.errors import BadInput
from grader.exercises import EXERCISES

Function = Callable[..., Any]


@dataclass(frozen=True)
class Functions:
    """The functions to check, by name, and where they come from.

    ``faults`` says, for a function that is not there, why not; ``notes`` are for the learner to
    read, one line each.
    """

    where: str
    found: Mapping[str, Function]
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
    """Run the checks and print what came of them; 0 only when every one of them passes."""
    seed = seed_in_force()
    functions = functions_at(options.where)
    for note in functions.notes:
        print(f"note: {note}", file=sys.stderr)
    sys.stderr.flush()
    core = run_all(CORE, functions, seed)
    extension = run_all(EXTENSION, functions, seed) if options.all else []
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
    return 0 if all(result.passed for result in [*core, *extension]) else 1


def run_all(checks: Iterable[Check], functions: Functions, seed: int) -> list[Result]:
    """Run checks on functions, in order; a function that is missing fails its checks."""
    results = []
    for check in checks:
        function = functions.found.get(check.function)
        if function is None:
            fault = functions.faults.get(check.function, f"{check.function} is missing")
            results.append(Result(check.id, False, f"✗ {check.id}: {fault}"))
            continue
        # What a learner's function prints must not get between the lines.
        with contextlib.redirect_stdout(sys.stderr):
            results.append(run_check(check, function, seed))
    return results


# --- where functions come from ----------------------------------------------------------


def functions_at(where: str) -> Functions:
    """Return the functions of a place.

    >>> sorted(functions_at("solutions").found)[:3]
    ['budget_table', 'compact', 'estimate']

    Raises BadInput for what is none of: ``solutions``, ``labs``, a folder with notebooks, a
    notebook, a Python file that runs.
    """
    if where == "solutions":
        return Functions(where, {e.function: e.solution() for e in EXERCISES}, {})
    if where == "labs":
        return _functions_of_labs()
    path = Path(where)
    if not where.strip():  # an unset variable of a shell; Path would take it for this folder
        raise BadInput(f"expected the name of a place, got {where!r}")
    if path.suffix == ".py":
        return functions_of_file(path)
    if path.is_dir() or path.suffix == ".ipynb":
        from grader.notebooks.lab import functions_of

        own = functions_of(path)
        return Functions(where, own.functions, own.missing, own.problems)
    raise BadInput(
        f"{where}: expected solutions, labs, a folder of notebooks, a notebook or a Python file"
    )


def _functions_of_labs() -> Functions:
    """Return what is handed out: from the notebooks, and the starters where there are none.

    The package may be installed without the folder of labs.
    """
    from grader.notebooks.lab import functions_of, notebook_files

    functions = Functions("labs", {e.function: e.starter() for e in EXERCISES}, {})
    labs = Path(__file__).resolve().parents[2] / "labs"
    if not labs.is_dir() or not any(notebook_files(labs)):
        return functions
    own = functions_of(labs)
    there = {path.stem for path in notebook_files(labs)}
    missing = {e.function for e in EXERCISES if e.slug in there} & set(own.missing)
    found = {**functions.found, **own.functions}
    return Functions(
        "labs",
        {name: function for name, function in found.items() if name not in missing},
        {name: own.missing[name] for name in missing},
        own.problems,
    )


def functions_of_file(path: Path) -> Functions:
    """Return the functions that a Python file defines.

    Raises BadInput when it cannot be read, is no Python, or fails while it runs.
    """
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise BadInput(f"{path}: expected a Python file: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        place = _place(path, getattr(error, "lineno", None))
        raise BadInput(f"{place}: expected Python code that can be read: {reason}") from None
    except (RecursionError, MemoryError):
        raise BadInput(f"{path}: expected Python code that is less deeply nested") from None
    module = ModuleType("learner")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(code, module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        place = _place(path, _line_of(error, str(path)))
        raise BadInput(f"{place}: expected code that runs, got {describe_error(error)}") from None
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
    found, faults = {}, {}
    for name in dict.fromkeys(exercise.function for exercise in EXERCISES):
        value = module.__dict__.get(name)
        if callable(value):
            found[name] = value
        elif name in module.__dict__:
            faults[name] = f"{name} in {path} is not a function"
        else:
            faults[name] = f"{name} is missing in {path}"
    return Functions(str(path), found, faults)


def _place(path: Path, line: int | None) -> str:
    return f"{path}, line {line}" if line else str(path)


def _line_of(error: BaseException, filename: str) -> int | None:
    """Return the last line of the file that was running."""
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


# --- output -----------------------------------------------------------------------------


def _print_block(results: Iterable[Result], explain: bool) -> None:
    for result in results:
        print(result.line)
        if explain and result.failure is not None:
            print("\n".join(result.failure.lines[1:]))


def _passed(results: Iterable[Result]) -> int:
    return sum(result.passed for result in results)


def _as_data(checks: Iterable[Check], results: list[Result]) -> dict[str, Any]:
    entries = []
    for check, result in zip(checks, results, strict=True):
        failure = result.failure
        entries.append(
            {
                "id": check.id,
                "day": check.day,
                "function": check.function,
                "sentence": check.sentence,
                "passed": result.passed,
                "line": result.line,
                "call": failure and failure.call,
                "expected": failure and failure.expected,
                "got": failure and failure.got,
                "why": failure and failure.why,
                "error": result.error and describe_error(result.error),
            }
        )
    return {"passed": _passed(results), "total": len(results), "checks": entries}
