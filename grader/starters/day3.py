"""Day 3, as it is handed out: compaction is triggered by the number of turns.

The budget table is right as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compaction.budget import PATHS, Counter, Row, line_tokens, sizes_by_path
from compaction.calibration import meter
from compaction.messages import Message
from compaction.tokens import DEFAULT


def should_compact(
    messages: Sequence[Message],
    window: int,
    threshold: float = 0.70,
    meter: Counter = meter,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> bool:
    """Say whether it is time to compact."""
    # Long conversations are the big ones, and turns are easy to count.
    turns = sum(message["role"] == "user" for message in messages)
    return turns > 20


def budget_table(
    messages: Sequence[Message],
    window: int,
    meter: Counter = meter,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> list[Row]:
    """Return one row a path, the empty ones too; the rows add up to the counter's total."""
    table = getattr(meter, "coefficients", DEFAULT)
    estimates = {name: size.tokens(table) for name, size in sizes_by_path(messages).items()}
    whole = sum(estimates.values())
    total = meter.count(messages, tools)
    to_share = min(total, meter.count(messages)) if whole else 0

    # Whole tokens first; what is left over goes to the paths that lost the largest fractions.
    tokens = {}
    fractions = {}
    for name, estimated in estimates.items():
        exact = to_share * estimated / whole if whole else 0.0
        tokens[name] = int(exact)
        fractions[name] = exact - int(exact)
    left_over = to_share - sum(tokens.values())
    for name in sorted(fractions, key=lambda name: -fractions[name])[:left_over]:
        tokens[name] += 1

    # The counter also counts what no message holds, such as tool schemas.
    tokens["system instructions"] += total - to_share
    rows = []
    for path in PATHS:
        allowance = round(line_tokens(window, path.share))
        rows.append(Row(path.name, tokens[path.name], allowance, tokens[path.name] > allowance))
    return rows
