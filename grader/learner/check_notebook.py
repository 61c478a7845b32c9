"""Check one lab from the terminal: the same lines as in the notebook, without a kernel."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grader.checks import CHECKS, Check, seed_in_force
from grader.errors import BadInput
from grader.learner.apart import Task, Verdict, run_apart
from grader.learner.functions import sources_of
from grader.learner.selftest import UNLIMITED
from grader.notebooks.lab import LabNotebook, notebook_files, read_notebook


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
    checks = checks_of(notebook)
    tasks = [
        Task(source, tuple(check.id for check in checks if check.function == name))
        for name, source in sources_of(notebook).items()
    ]
    outcome = run_apart(tasks, seed)
    for name, why in outcome.errors.items():
        print(f"note: {name} did not run: {why}", file=sys.stderr)
    if not outcome.is_limited:
        print(f"note: {UNLIMITED}", file=sys.stderr)
    sys.stderr.flush()
    verdicts = [outcome.verdicts[check.id] for check in checks]
    for verdict in verdicts:
        print("\n".join(_lines(verdict)))
    passed = sum(verdict.passed for verdict in verdicts)
    print(f"{passed}/{len(verdicts)} passed")
    return 0 if passed == len(verdicts) else 1


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


def _lines(verdict: Verdict) -> list[str]:
    """Return what is said of a check: its lines, and the learner's own stack where there is one."""
    return [*verdict.lines, verdict.trace] if verdict.trace else [*verdict.lines]
