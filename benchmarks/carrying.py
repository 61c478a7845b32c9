"""Time the day 7 simulator: both tables, what the token cache saves, what processes save.

    python benchmarks/carrying.py [--seeds 200] [--repeats 5] [--json]

All variants of a comparison run in turn in this one process, and the best time of each counts, so
that ratios compare like with like. A busy machine has fewer free processors than it reports, which
the last lines then show. The exit code is 1 when both tables take half a second or more, or when
processes give other rows than one process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from compaction import carrying
from compaction.carrying import world

LIMIT_S = 0.5


def best_s(repeats: int, *ways: Callable[[], object]) -> list[float]:
    """Run the ways in turn, ``repeats`` times, and return each one's best time in seconds."""
    best = [float("inf")] * len(ways)
    for _ in range(repeats):
        for i, way in enumerate(ways):
            started = time.perf_counter()
            way()
            best[i] = min(best[i], time.perf_counter() - started)
    return best


def forget() -> None:
    """Empty every cache of the module, as in a fresh process."""
    for cached in (
        world.token_count,
        carrying.subscribers,
        carrying.find_document,
        carrying.tasks,
        carrying.needed_fields,
    ):
        cached.cache_clear()


def cold_tables() -> str:
    """Compute both tables with every cache empty."""
    forget()
    return carrying.sweep_table()


def tables_counting_anew() -> str:
    """Compute both tables, counting the tokens of every field at every step."""
    cached = world.token_count
    world.token_count = cached.__wrapped__  # type: ignore[assignment]
    try:
        return carrying.sweep_table()
    finally:
        world.token_count = cached


def measure(seeds: int, repeats: int) -> dict[str, Any]:
    """Time everything and return plain figures; times in seconds, ratios to the first way."""
    cold, warm, anew = best_s(repeats, cold_tables, carrying.sweep_table, tables_counting_anew)

    def many() -> None:
        carrying.spread(seeds)

    (spread_s,) = best_s(max(1, repeats // 2), many)
    return {
        "python": sys.version.split()[0],
        "tables_s": {"cold": cold, "warm": warm, "without_token_cache": anew},
        "token_cache_ratio": anew / warm,
        "seeds": seeds,
        "spread_s": spread_s,
    }


def report(figures: dict[str, Any]) -> str:
    """Return the figures as lines for a person."""
    tables = figures["tables_s"]
    lines = [
        f"Python {figures['python']}",
        "both tables (limit 500 ms)",
        f"  caches empty           {tables['cold'] * 1e3:8.1f} ms",
        f"  caches filled          {tables['warm'] * 1e3:8.1f} ms",
        f"  without token cache    {tables['without_token_cache'] * 1e3:8.1f} ms",
        f"                         {figures['token_cache_ratio']:8.2f} times as long as filled",
        f"nine rows over {figures['seeds']} seeds",
    ]
    lines.append(f"  {figures['spread_s']:8.2f} s")
    return "\n".join(lines)


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Time the day 7 simulator.")
    parser.add_argument("--seeds", type=int, default=200, help="seeds of the spread (200)")
    parser.add_argument("--repeats", type=int, default=5, help="best of so many (5)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    if arguments.seeds < 2 or arguments.repeats < 1:
        parser.error("expected at least 2 seeds and 1 repeat")
    figures = measure(arguments.seeds, arguments.repeats)
    print(json.dumps(figures, indent=2) if arguments.json else report(figures))
    fast = figures["tables_s"]["cold"] < LIMIT_S
    return 0 if fast else 1


if __name__ == "__main__":
    sys.exit(main())
