"""``budget``: which of seven paths fills the window."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compaction.cli.options import (
    DEFAULT_WINDOW,
    THRESHOLD,
    add_history,
    add_tools,
    named,
    of_window,
    opened,
    schemas_of,
    token_count,
    verdict,
)
from compaction.console import OK, budget_text, counted, print_json

if TYPE_CHECKING:
    from compaction.budget import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_history(parser)
    add_tools(parser)
    parser.add_argument(
        "--window",
        metavar="N",
        type=token_count,
        default=DEFAULT_WINDOW,
        help=f"the context window in tokens (default: {DEFAULT_WINDOW})",
    )


def run(options: argparse.Namespace) -> int:
    """Print the seven-path table of each conversation."""
    from compaction.budget import budget_table, should_compact
    from compaction.tokens import about

    source = opened(options)
    schemas = schemas_of(options)
    window = options.window
    for index, (name, conversation) in enumerate(named(source)):
        messages, tools = conversation.messages, schemas or conversation.tools
        rows = budget_table(messages, window, tools=tools)
        total = sum(row.tokens for row in rows)
        if options.json:
            due = should_compact(messages, window, THRESHOLD, tools=tools)
            print_json(_report(name, rows, window, len(messages), due))
            continue
        if index:
            print()
        print(f"{name}: {about(total)} in {counted(len(messages), 'message')}")
        print(budget_text(rows, window, getattr(sys.stdout, "encoding", None)))
        print(f"{of_window(total, window)}: {verdict(total, window)}")
    return OK


def _report(name: str, rows: Sequence[Row], window: int, count: int, due: bool) -> dict[str, Any]:
    from compaction.budget import PATHS

    return {
        "source": name,
        "window": window,
        "tokens": sum(row.tokens for row in rows),
        "messages": count,
        "threshold": THRESHOLD,
        "should_compact": due,
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
