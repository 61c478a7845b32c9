"""The two published tables: every policy under every budget, in two runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from compaction.carrying.policy import POLICIES, FieldChooser, Policy
from compaction.carrying.simulator import Run, baseline, checked_int, policy_of, simulate
from compaction.carrying.world import KEEPS, SEED

UNCOMPACTED = "uncompacted"


@dataclass(frozen=True)
class SweepRow:
    """One policy and budget, run under a seed (``first``) and under the next one (``second``)."""

    policy: str
    keep: int | None
    first: Run
    second: Run


def sweep(
    seed: int = SEED,
    keeps: Iterable[int] = KEEPS,
    policies: Iterable[str | Policy | FieldChooser] = tuple(POLICIES),
) -> list[SweepRow]:
    """Return the rows of both tables: uncompacted, then each policy from the largest budget down.

    >>> [(row.policy, row.keep) for row in sweep(keeps=[3, 4])]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('uncompacted', None), ('summary', 4), ('summary', 3), ('selective', 4), ('selective', 3)]

    ``policies`` as in :func:`simulate`. Raises ValueError for a seed that is not an integer, for
    budgets that are not, and for an unknown policy.
    """
    seed = checked_int("seed", seed)
    return [
        SweepRow(policy, keep, simulate(keep, chooser, seed), simulate(keep, chooser, seed + 1))
        for policy, keep, chooser in settings_of(keeps, policies)
    ]


def settings_of(
    keeps: Iterable[int], policies: Iterable[str | Policy | FieldChooser]
) -> list[tuple[str, int | None, Policy]]:
    """Name, budget and policy of each row of a table."""
    try:
        budgets = sorted({checked_int("keep", keep, least=0) for keep in keeps}, reverse=True)
    except TypeError:
        raise ValueError(f"keeps: expected a list of integers, got {keeps!r}") from None
    rows: list[tuple[str, int | None, Policy]] = [(UNCOMPACTED, None, POLICIES["summary"])]
    for policy in map(policy_of, policies):
        rows += [(policy.name, keep, policy) for keep in budgets]
    return rows


def sweep_table(
    seed: int = SEED,
    keeps: Iterable[int] = KEEPS,
    policies: Iterable[str | Policy | FieldChooser] = tuple(POLICIES),
) -> str:
    """Return the baseline and both tables as text.

    >>> print(sweep_table(keeps=[3]).splitlines()[2][:50])
    keep policy         steps calls   tokens errors ne

    Raises ValueError as :func:`sweep` does.
    """
    base = baseline(seed)
    summary = (
        f"baseline: steps {base.steps}, calls {base.calls}, trace tokens {base.tokens}, "
        f"errors {base.errors}, success {base.success:.4f}"
    )
    head = (
        "keep policy         steps calls   tokens errors needed  success | 2nd run tokens, success"
    )
    lines = [summary, "", head]
    for row in sweep(seed, keeps, policies):
        run = row.first
        lines.append(
            f"{budget_text(row.keep):>4} {row.policy:<14} {run.steps:>5} {run.calls:>5} "
            f"{run.tokens:>8} {run.errors:>6} {run.needed:>6} {run.success:>8.4f} | "
            f"{row.second.tokens:>6} {row.second.success:.4f}"
        )
    return "\n".join(lines)


def sweep_dict(
    seed: int = SEED,
    keeps: Iterable[int] = KEEPS,
    policies: Iterable[str | Policy | FieldChooser] = tuple(POLICIES),
) -> dict[str, Any]:
    """Return the baseline and both tables as plain data, ready for JSON.

    >>> sorted(sweep_dict(keeps=[3]))
    ['baseline', 'rows', 'seeds']

    Raises ValueError as :func:`sweep` does.
    """
    seed = checked_int("seed", seed)
    return {
        "seeds": [seed, seed + 1],
        "baseline": asdict(baseline(seed)),
        "rows": [asdict(row) for row in sweep(seed, keeps, policies)],
    }


def budget_text(keep: int | None) -> str:
    return "--" if keep is None else str(keep)
