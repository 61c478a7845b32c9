"""The same table over many seeds: which differences are more than luck."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from compaction.carrying.policy import POLICIES, FieldChooser, Policy
from compaction.carrying.simulator import Run, checked_int, simulate
from compaction.carrying.tables import budget_text, settings_of
from compaction.carrying.world import KEEPS, SEED, tasks


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its confidence interval at ``level``.

    >>> Interval(mean=2.0, low=1.5, high=2.5, level=0.95).half
    0.5
    """

    mean: float
    low: float
    high: float
    level: float

    @property
    def half(self) -> float:
        """Half of the interval's width: the number after the plus-minus sign."""
        return (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside: for a difference, whether it is more than noise."""
        return self.low > 0 or self.high < 0


SPREAD_MEASURES = ("tokens", "errors", "needed", "success")


@dataclass(frozen=True)
class SpreadRow:
    """One policy and budget over many seeds; ``runs`` holds the run of each seed, in order."""

    policy: str
    keep: int | None
    first_seed: int
    tokens: Interval
    errors: Interval
    needed: Interval
    success: Interval
    runs: tuple[Run, ...] = field(repr=False)


def spread(
    seeds: int = 200,
    keeps: Iterable[int] = KEEPS,
    policies: Iterable[str | Policy | FieldChooser] = tuple(POLICIES),
    *,
    first_seed: int = SEED,
    level: float = 0.95,
) -> list[SpreadRow]:
    """Run every row of the table under ``seeds`` seeds in a row and return means with intervals.

    >>> rows = spread(5, keeps=[3])
    >>> [(row.policy, row.keep, len(row.runs)) for row in rows]
    [('uncompacted', None, 5), ('summary', 3, 5), ('selective', 3, 5)]

    The intervals are Student's t intervals of the mean over seeds. They tell what the agent's
    choices add as noise; the 24 tasks are the same in every run, so they say nothing about other
    tasks. Every row sees the same seeds: compare two rows with :func:`difference`.

    Raises ValueError as :func:`sweep` does, for fewer than two seeds and for a level outside 0
    to 1.
    """
    seeds = checked_int("seeds", seeds, least=2)
    first_seed = checked_int("first_seed", first_seed)
    student_t(seeds - 1, level)  # refuses a bad level before the work
    settings = settings_of(keeps, policies)
    runs_by_row = [
        [simulate(keep, policy, seed) for seed in range(first_seed, first_seed + seeds)]
        for _, keep, policy in settings
    ]
    return [
        SpreadRow(
            policy=policy,
            keep=keep,
            first_seed=first_seed,
            tokens=mean_interval([run.tokens for run in runs], level),
            errors=mean_interval([run.errors for run in runs], level),
            needed=mean_interval([run.needed for run in runs], level),
            success=mean_interval([run.success for run in runs], level),
            runs=tuple(runs),
        )
        for (policy, keep, _), runs in zip(settings, runs_by_row, strict=True)
    ]


def difference(
    row: SpreadRow, other: SpreadRow, measure: str = "tokens", level: float = 0.95
) -> Interval:
    """Return by how much ``row`` exceeds ``other`` in ``measure``, compared seed by seed.

    >>> uncompacted, summary, selective = spread(20, keeps=[3])
    >>> difference(selective, summary, "success").excludes_zero
    True

    ``measure`` is a field of :class:`Run`. Pairing takes out the luck that both rows share, so the
    interval is narrower than the two rows' own. Raises ValueError for an unknown measure and for
    rows over different seeds.
    """
    if measure not in Run.__dataclass_fields__:
        known = ", ".join(Run.__dataclass_fields__)
        raise ValueError(f"measure: expected one of {known}, got {measure!r}")
    if (row.first_seed, len(row.runs)) != (other.first_seed, len(other.runs)):
        raise ValueError("rows: expected two rows over the same seeds")
    pairs = zip(row.runs, other.runs, strict=True)
    return mean_interval([getattr(a, measure) - getattr(b, measure) for a, b in pairs], level)


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean of ``values`` and its Student's t confidence interval.

    >>> interval = mean_interval([9, 10, 11])
    >>> interval.mean, round(interval.half, 2)
    (10.0, 2.48)

    Raises ValueError for fewer than two values and for a level outside 0 to 1.
    """
    if len(values) < 2:
        raise ValueError(f"values: expected at least 2, got {len(values)}")
    n = len(values)
    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = student_t(n - 1, level) * math.sqrt(variance / n)
    return Interval(mean, mean - half, mean + half, level)


@lru_cache(maxsize=64)
def student_t(freedom: int, level: float = 0.95) -> float:
    """Return t such that Student's distribution holds ``level`` of its mass within -t to t.

    >>> round(student_t(2), 3), round(student_t(199), 3)
    (4.303, 1.972)

    ``freedom`` is the number of degrees of freedom. The mass is the finite series of Abramowitz
    and Stegun, 26.7.3 and 26.7.4; t is found by bisection. Raises ValueError for a level that is
    not between 0 and 1 and for less than one degree of freedom.
    """
    if not (isinstance(level, int | float) and 0 < level < 1):
        raise ValueError(f"level: expected a number between 0 and 1, got {level!r}")
    freedom = checked_int("freedom", freedom, least=1)
    low, high = 0.0, math.pi / 2  # bisect the angle: t itself has no upper end
    for _ in range(60):
        angle = (low + high) / 2
        if _central_mass(angle, freedom) < level:
            low = angle
        else:
            high = angle
    return math.tan(low) * math.sqrt(freedom)


def _central_mass(angle: float, freedom: int) -> float:
    """Mass of Student's distribution within plus and minus tan(angle) times root of freedom."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    series = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        series += term
    if odd:
        return (angle + math.sin(angle) * series) * 2 / math.pi
    return math.sin(angle) * series


def spread_table(rows: Sequence[SpreadRow]) -> str:
    """Return the rows of :func:`spread` as text, and below them which differences are noise.

    >>> print(spread_table(spread(20, keeps=[3])).splitlines()[2])
    keep policy                 tokens         errors        needed           success

    Raises ValueError when there are no rows.
    """
    first, level = _first(rows)
    lines = [
        f"{len(first.runs)} seeds from {first.first_seed}, the same {len(tasks())} tasks each time",
        f"mean ± half of the {level:.0%} interval (Student's t over the seeds)",
        "keep policy                 tokens         errors        needed           success",
    ]
    lines += [
        (
            f"{budget_text(row.keep):>4} {row.policy:<14}"
            f" {_plus_minus(row.tokens, 0):>14} {_plus_minus(row.errors, 1):>14}"
            f" {_plus_minus(row.needed, 1):>13} {_plus_minus(row.success, 4):>17}"
        )
        for row in rows
    ]
    lines += [
        "",
        "difference, seed by seed             tokens beyond noise           success beyond noise",
    ]
    for row, other in _comparisons(rows):
        tokens = difference(row, other, "tokens", level)
        success = difference(row, other, "success", level)
        lines.append(
            f"{_label(row) + ' - ' + _label(other):<26} {_plus_minus(tokens, 0):>16} "
            f"{_yes(tokens.excludes_zero):>12} {_plus_minus(success, 4):>17} "
            f"{_yes(success.excludes_zero):>12}"
        )
    return "\n".join(lines)


def spread_dict(rows: Sequence[SpreadRow]) -> dict[str, Any]:
    """Return the rows of :func:`spread` and their differences as plain data, ready for JSON.

    >>> sorted(spread_dict(spread(5, keeps=[3])))
    ['differences', 'first_seed', 'level', 'rows', 'seeds']

    Raises ValueError when there are no rows.
    """
    first, level = _first(rows)
    return {
        "first_seed": first.first_seed,
        "seeds": len(first.runs),
        "level": level,
        "rows": [
            {"policy": row.policy, "keep": row.keep}
            | {name: _interval_dict(getattr(row, name)) for name in SPREAD_MEASURES}
            for row in rows
        ],
        "differences": [
            {"row": _label(row), "other": _label(other)}
            | {
                name: _interval_dict(difference(row, other, name, level))
                for name in SPREAD_MEASURES
            }
            for row, other in _comparisons(rows)
        ],
    }


def _first(rows: Sequence[SpreadRow]) -> tuple[SpreadRow, float]:
    if not rows:
        raise ValueError("rows: expected at least one, got none")
    return rows[0], rows[0].tokens.level


def _comparisons(rows: Sequence[SpreadRow]) -> list[tuple[SpreadRow, SpreadRow]]:
    """Each row against the uncompacted one, then the policies against each other, by budget."""
    against_uncompacted = [
        (row, other) for other in rows if other.keep is None for row in rows if row.keep is not None
    ]
    against_each_other = [
        (row, other)
        for position, other in enumerate(rows)
        for row in rows[position + 1 :]
        if row.keep is not None and row.keep == other.keep
    ]
    return against_uncompacted + against_each_other


def _label(row: SpreadRow) -> str:
    return row.policy if row.keep is None else f"{row.policy} {row.keep}"


def _plus_minus(interval: Interval, digits: int) -> str:
    return f"{interval.mean:.{digits}f} ± {interval.half:.{digits}f}"


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def _interval_dict(interval: Interval) -> dict[str, float]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}
