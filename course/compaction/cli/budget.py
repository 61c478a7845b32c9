"""``budget``: which of seven paths fills the window."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from compaction.cli.options import (
    DEFAULT_WINDOW,
    OK,
    THRESHOLD,
    add_history,
    add_tools,
    counted,
    named,
    of_window,
    percent,
    print_json,
    schemas_of,
    token_count,
    verdict,
)
from compaction.history import read_histories

if TYPE_CHECKING:
    from compaction.budget import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_history(parser)
    add_tools(parser)
    parser.add_argument(
        "--window",
        metavar="N",
        type=token_count,
        default=DEFAULT_WINDOW,
        help=f"the context window in tokens (default: {DEFAULT_WINDOW})",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the seven-path table of each conversation."""
    from compaction.budget import PATHS, budget_table, should_compact
    from compaction.tokens import about

    source = read_histories(options.history)
    schemas = schemas_of(options)
    for index, (name, conversation) in enumerate(named(source)):
        messages, tools = conversation.messages, schemas or conversation.tools
        rows = budget_table(messages, options.window, tools=tools)
        total = sum(row.tokens for row in rows)
        if options.json:
            print_json(
                {
                    "source": name,
                    "window": options.window,
                    "tokens": total,
                    "messages": len(messages),
                    "threshold": THRESHOLD,
                    "should_compact": should_compact(
                        messages, options.window, THRESHOLD, tools=tools
                    ),
                    "rows": [
                        {
                            "path": row.path,
                            "nature": path.nature,
                            "tokens": row.tokens,
                            "allowance": row.allowance,
                            "share": path.share,
                            "used": row.used if math.isfinite(row.used) else None,
                            "over": row.over,
                        }
                        for row, path in zip(rows, PATHS, strict=True)
                    ],
                }
            )
            continue
        if index:
            print()
        print(f"{name}: {about(total)} in {counted(len(messages), 'message')}")
        draw_budget(rows, total, options.window)
        print(f"{of_window(total, options.window)}: {verdict(total, options.window)}")
    return OK


_BAR_CELLS = 14


def draw_budget(rows: Sequence[Row], total: int, window: int) -> None:
    """Draw the table; a full bar is the whole allowance."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=False, force_jupyter=False)
    console.width = max(78, min(console.width, 100))
    table = Table(box=None, padding=(0, 1, 0, 0), show_footer=True)
    table.add_column("path", footer="total", no_wrap=True)
    table.add_column("tokens", footer=str(total), justify="right", no_wrap=True)
    table.add_column("allowed", footer=str(window), justify="right", no_wrap=True)
    table.add_column("used", footer=percent(total / window), justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for row in rows:
        over = f"over by {row.tokens - row.allowance}" if row.over else ""
        table.add_row(
            escape(row.path),
            str(row.tokens),
            str(row.allowance),
            percent(row.used),
            _bar(row.used, getattr(sys.stdout, "encoding", None)),
            over,
            style="bold" if row.over else None,
        )
    with console.capture() as drawn:
        console.print(table)
    # Without the blanks that fill each line up to the table's width.
    print("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def _bar(used: float, encoding: str | None = "utf-8") -> str:
    """Draw a share of an allowance as cells; what is beyond it shows as an arrow.

    >>> _bar(0.5), _bar(3.0)
    ('███████░░░░░░░', '█████████████▶')
    """
    filled, empty, beyond = "█░▶"
    try:
        "█░▶".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        filled, empty, beyond = "#.>"
    if used > 1:
        return filled * (_BAR_CELLS - 1) + beyond
    cells = math.ceil(used * _BAR_CELLS)  # whatever is there shows
    return filled * cells + empty * (_BAR_CELLS - cells)
