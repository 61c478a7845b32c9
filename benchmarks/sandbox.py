"""Measure what a clean submission costs in the sandbox: processor time and wall-clock time.

    python benchmarks/sandbox.py [--repeats 20] [--days 1 2 3] [--isolation bwrap] [--json]

For each day the lab's solution is graded so many times, and next to it the same checks are run
on the library's own functions in this process. Processor time is that of this process and of all
below it, ended or alive, from the system's own account. The start of the sandbox (once for a
class) is everything that the first submission costs more than the others. The exit code is 1
when the dearest day costs 150 ms of processor time or more.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
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


def processor_s() -> float:
    """Return the seconds of processor time of this process and of all below it.

    What processes below it have used before they end is known on Linux only.
    """
    alive: dict[int, tuple[int, float]] = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                values = file.read().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        spent = sum(map(int, values[11:15])) / os.sysconf("SC_CLK_TCK")
        alive[int(path.split("/")[2])] = int(values[1]), spent
    below, growing = {os.getpid()}, True
    while growing:
        more = {pid for pid, (parent, _) in alive.items() if parent in below} - below
        below |= more
        growing = bool(more)
    return sum(os.times()[:4]) + sum(alive[pid][1] for pid in below - {os.getpid()})


def measure(day: int, isolation: str, repeats: int) -> Row:
    """Grade a day's solution so many times; return the cost of one."""
    functions = [exercise.function for exercise in exercises_of(day)]
    checks = [check for check in CHECKS.values() if check.day == day]
    solutions = {exercise.function: exercise.solution() for exercise in EXERCISES}
    cells = lab_cells(day)

    def run_here() -> None:
        for check in checks:
            run_check(check, solutions[check.function], SEED)

    def run_there() -> None:
        results = grade(sandbox, dict.fromkeys(functions, cells), checks, SEED)
        if not all(result.passed for result in results):
            raise SystemExit("\n".join(result.line for result in results))

    def cost(work: Callable[[], None], times: int) -> Cost:
        before, began = processor_s(), time.perf_counter()
        for _ in range(times):
            work()
        wall_s, cpu_s = time.perf_counter() - began, processor_s() - before
        return Cost(1000 * cpu_s / times, 1000 * wall_s / times)

    run_here()  # loads what only the first run loads
    with Sandbox(isolation=isolation) as sandbox:
        first, each = cost(run_there, 1), cost(run_there, repeats)
    start = Cost(first.cpu_ms - each.cpu_ms, first.wall_ms - each.wall_ms)
    return Row(SLUGS[day], each, start, cost(run_here, repeats))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each day; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="submissions a day (20)")
    days = sorted(SLUGS)
    parser.add_argument("--days", type=int, nargs="+", choices=days, default=days, help="all")
    parser.add_argument("--isolation", default="auto", help="bwrap, namespace, process or auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(arguments)
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
