"""Run the checks under many seeds: starters, solutions, and what is nearly a solution.

    python benchmarks/checks.py points --seeds 200     # 6 and 15 points, and nine, under each
    python benchmarks/checks.py mutations --seeds 20   # tests/cases/mutations.json
    python benchmarks/checks.py time                   # processor time of each day's checks

The starters keep six of fifteen points and the solutions all of them, whatever is drawn; a
mutation fails under every seed, or under none. Ends with exit code 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grader.checks import CHECKS, CORE, EXTENSION, Check, run_check
from grader.exercises import EXERCISES

Function = Callable[..., Any]


def passed(checks: list[Check], functions: dict[str, Function], seed: int) -> int:
    """Return how many of the checks pass."""
    return sum(run_check(check, functions[check.function], seed).passed for check in checks)


def points(seeds: int) -> Iterator[str]:
    """Yield a line for each seed under which starters or solutions have other points."""
    solutions = {exercise.function: exercise.solution() for exercise in EXERCISES}
    starters = {exercise.function: exercise.starter() for exercise in EXERCISES}
    extension = passed(list(EXTENSION), starters, 0)
    for seed in range(seeds):
        due = {"solutions": (solutions, 15, 9), "starters": (starters, 6, extension)}
        for name, (functions, core, beyond) in due.items():
            found = passed(list(CORE), functions, seed), passed(list(EXTENSION), functions, seed)
            if found != (core, beyond):
                yield f"seed {seed}: {name} pass {found} in place of {(core, beyond)}"


def mutations(seeds: int) -> Iterator[str]:
    """Yield a line for each mutation that comes out another way than it should."""
    from tests.grader.checks.mutations import mutations as all_mutations

    for mutation in all_mutations().values():
        function = mutation.made()
        checks = [check for check in CHECKS.values() if check.function == mutation.function]
        for seed in range(seeds):
            with contextlib.redirect_stdout(io.StringIO()):
                passes = all(run_check(check, function, seed).passed for check in checks)
            if passes is not mutation.passes:
                yield f"seed {seed}: {mutation} {'passes' if passes else 'fails'}: {mutation.why}"


def time_of_days(repeat: int = 5) -> None:
    """Print the processor time of each day's checks on the solutions, the least of some runs."""
    solutions = {exercise.function: exercise.solution() for exercise in EXERCISES}
    for day in sorted({check.day for check in CHECKS.values()}):
        least = {}
        for _ in range(repeat):
            for check in (check for check in CHECKS.values() if check.day == day):
                start = time.process_time()
                run_check(check, solutions[check.function], 0)
                taken = time.process_time() - start
                least[check.id] = min(taken, least.get(check.id, taken))
        each = ", ".join(f"{name} {1000 * taken:.1f}" for name, taken in least.items())
        print(f"day {day}: {1000 * sum(least.values()):.1f} ms ({each})")


def main() -> int:
    """Read the arguments and run; 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("points", "mutations", "time"))
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    if options.what == "time":
        time_of_days()
        return 0
    lines = 0
    for line in (points if options.what == "points" else mutations)(options.seeds):
        lines += 1
        print(line, flush=True)
    print(f"{options.what} under {options.seeds} seeds: {lines or 'no'} exceptions")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
