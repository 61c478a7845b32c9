"""Measure what a clean submission costs in the sandbox: processor time and wall-clock time.

    python benchmarks/sandbox.py [--repeats 20] [--days 1 2 3] [--isolation bwrap] [--json]

For each day the lab's solution is graded so many times, and next to it the same checks are run
on the library's own function in this process. Processor time is that of this process and of all
that it starts, from the system's own account; what the start of the sandbox costs (once for a
class) is measured with no submission at all, and taken off. The exit code is 1 when the dearest
day costs 150 ms of processor time or more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from grader.checks import CHECKS, run_check
from grader.exercises import EXERCISES, IMPORTS, SLUGS, exercises_of, source_of
from grader.sandbox import Sandbox, Source, grade

LIMIT_MS = 150
SEED = 2026


class Cost(NamedTuple):
    """Milliseconds of processor time and of the clock."""

    cpu_ms: float
    wall_ms: float


class Row(NamedTuple):
    """One day: what a submission costs, what the start costs, and the checks alone."""

    lab: str
    submission: Cost
    start: Cost
    checks: Cost


def lab_cells(day: int) -> list[Source]:
    """Return the code cells of a solved lab, with a cell that draws, as labs have it."""
    draws = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nprint('drawn')"
    solutions: list[Source] = [(e.function, source_of(e.solution())) for e in exercises_of(day)]
    return [
        ("imports", IMPORTS[day] + "from grader import check, score"),
        *solutions,
        ("try it", draws),
    ]


def spend(work: Callable[[], None]) -> Cost:
    """Return what a piece of work costs, with all processes that it starts and ends."""
    before, began = os.times(), time.perf_counter()
    work()
    wall, after = time.perf_counter() - began, os.times()
    return Cost(1000 * (sum(after[:4]) - sum(before[:4])), 1000 * wall)


def measure(day: int, isolation: str, repeats: int) -> Row:
    """Grade a day's solution so many times; return the cost of one."""
    functions = [exercise.function for exercise in exercises_of(day)]
    checks = [check for check in CHECKS.values() if check.day == day]
    cells = lab_cells(day)

    def run(times: int) -> None:
        with Sandbox(isolation=isolation) as sandbox:
            for _ in range(times):
                results = grade(sandbox, dict.fromkeys(functions, cells), checks, SEED)
                if not all(result.passed for result in results):
                    raise SystemExit("\n".join(result.line for result in results))

    def run_here() -> None:
        solutions = {e.function: e.solution() for e in EXERCISES}
        for check in checks:
            run_check(check, solutions[check.function], SEED)

    run_here()  # loads what the first run loads
    run(1)
    one, many = spend(lambda: run(1)), spend(lambda: run(1 + repeats))
    each = Cost(*((b - a) / repeats for a, b in zip(one, many, strict=True)))
    here = spend(lambda: [run_here() for _ in range(repeats)] and None)
    return Row(
        SLUGS[day],
        each,
        Cost(*(a - b for a, b in zip(one, each, strict=True))),
        Cost(*(value / repeats for value in here)),
    )


def main() -> int:
    """Print a line for each day; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="submissions a day (20)")
    parser.add_argument("--days", type=int, nargs="+", default=sorted(SLUGS), help="which days")
    parser.add_argument("--isolation", default="auto", help="bwrap, namespace, process or auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args()
    with Sandbox(isolation=options.isolation) as sandbox:
        isolation = sandbox.isolation
    rows = [measure(day, isolation, max(1, options.repeats)) for day in options.days]
    if options.json:
        days = {row.lab: {c: getattr(row, c)._asdict() for c in row._fields[1:]} for row in rows}
        report = {"isolation": isolation, "repeats": options.repeats, "days": days}
        print(json.dumps(report, indent=1))
    else:
        print(f"isolation: {isolation}, {options.repeats} submissions a day, milliseconds")
        print(f"{'':16}{'a submission':>22}{'checks alone':>22}{'start, once':>22}")
        print(f"{'lab':16}" + f"{'processor':>12}{'clock':>10}" * 3)
        for row in rows:
            costs = (row.submission, row.checks, row.start)
            print(f"{row.lab:16}" + "".join(f"{c.cpu_ms:12.1f}{c.wall_ms:10.1f}" for c in costs))
    return 0 if max(row.submission.cpu_ms for row in rows) < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
