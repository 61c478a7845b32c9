"""``needed``: which facts each method keeps of those that the work needed later."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compaction.cli.options import add_history, add_keep_recent, named, opened
from compaction.console import OK, counted, one_line, percent, print_json

if TYPE_CHECKING:
    from compaction.needed import Row

_SHOWN = 5  # lost facts that are named for each cut


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        f"{parser.description}\n\nA finished conversation is cut at several places. A fact counts "
        "as needed later when the agent wrote it after the cut and could only know it from what "
        "is compressed there. Each method gets the same budget: the size that compaction reaches "
        "by itself, then half and a quarter of the compressed part."
    )
    add_history(parser)
    add_keep_recent(parser)


def run(options: argparse.Namespace) -> int:
    """Measure each conversation, and all of them together."""
    from compaction.needed import needed

    everything: list[Row] = []
    number = 0
    for number, (name, conversation) in enumerate(named(opened(options)), 1):  # noqa: B007
        rows = needed(conversation.messages, keep_recent=options.keep_recent)
        everything += rows
        if options.json:
            print_json({"source": name, "rows": [_plain(row) for row in rows]})
        else:
            print("\n".join(_lines(name, rows)))
    if number > 1 and everything and not options.json:
        print(f"all {counted(number, 'conversation')}:")
        print("\n".join(_table(everything)))
    return OK


def _plain(row: Row) -> dict[str, Any]:
    return {
        "cut_before_message": row.cut.position + 1,
        "method": row.method,
        "budget_share": row.share,
        "budget": row.budget,
        "after": row.after,
        "kept": list(row.kept),
        "lost": list(row.lost),
        "broken": row.broken,
    }


def _lines(name: str, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return [f"{name}: nothing from before a cut was needed after it"]
    cuts = list({row.cut.position: row.cut for row in rows}.values())
    facts = sum(len(cut.facts) for cut in cuts)
    lines = [f"{name}: {counted(len(cuts), 'cut')}, {counted(facts, 'fact')} needed later"]
    for cut in cuts:
        of_cut = [row for row in rows if row.cut.position == cut.position]
        lines.append(f"  cut before message {cut.position + 1}: {counted(len(cut.facts), 'fact')}")
        lines += [f"  {line}" for line in _table(of_cut)]
        lost = next((row.lost for row in of_cut if row.method == "compact"), ())
        if lost:
            named_ones = ", ".join(map(one_line, lost[:_SHOWN]))
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            lines.append(f"    lost by compact at its own size: {named_ones}{more}")
    return lines


def _table(rows: Sequence[Row]) -> list[str]:
    """Lay the methods side by side: a line for each, a column for each budget."""
    from compaction.needed import pooled

    totals = pooled(rows)
    shares = list(dict.fromkeys(row.share for row in rows))
    methods = list(dict.fromkeys(row.method for row in rows))
    width = max(map(len, methods))
    heads = ["own size" if share is None else percent(share) for share in shares]
    lines = [f"  {'kept at':{width}}" + "".join(f"  {head:>9}" for head in heads)]
    for method in methods:
        cells = []
        for share in shares:
            kept, facts = totals.get((method, share), (0, 0))
            cells.append(f"  {percent(kept / facts) if facts else '-':>9}")
        lines.append(f"  {method:{width}}" + "".join(cells))
    return lines
