"""Check one lab from the terminal: the same lines as in the notebook, without a kernel."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

from grader.checks import CHECKS, Check, Result, seed_in_force
from grader.checks.failure import learners_part
from grader.errors import BadInput
from grader.learner.selftest import Functions, run_all
from grader.notebooks.lab import LabNotebook, load_functions, notebook_files, read_notebook


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "notebook",
        metavar="NOTEBOOK",
        help="a lab's notebook (.ipynb), or the folder that holds it",
    )


def run(options: argparse.Namespace) -> int:
    """Run the checks of the notebook's day; 0 only when every one of them passes."""
    seed = seed_in_force()
    notebook = read_notebook(_only_notebook(Path(options.notebook)))
    for problem in notebook.problems:
        print(f"note: {notebook.path}: {problem}", file=sys.stderr)
    loaded = load_functions(notebook)
    for name, why in loaded.errors.items():
        print(f"note: {notebook.path}: {name} did not run: {why}", file=sys.stderr)
    sys.stderr.flush()
    functions = Functions(str(notebook.path), loaded.functions, loaded.missing)
    results = run_all(checks_of(notebook), functions, seed)
    for result in results:
        print("\n".join(_lines(result)))
    passed = sum(result.passed for result in results)
    print(f"{passed}/{len(results)} passed")
    return 0 if passed == len(results) else 1


def checks_of(notebook: LabNotebook) -> list[Check]:
    """Return the checks of a notebook's day."""
    return [check for check in CHECKS.values() if check.day == notebook.day]


def _only_notebook(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = list(notebook_files(path, depth=0))
    if len(found) != 1:
        raise BadInput(
            f"{path}: {len(found)} notebooks in it; expected one. "
            f"For all of them: python -m grader selftest {path}"
        )
    return found[0]


def _lines(result: Result) -> list[str]:
    """Return what is said of a check: its lines, and the learner's own stack where there is one."""
    if result.error is None:
        return result.lines
    error = result.error
    shown = traceback.format_exception(type(error), error, learners_part(error.__traceback__))
    return [*result.lines, "".join(shown).rstrip()]
