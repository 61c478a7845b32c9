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
    counted_as,
    is_due,
    named,
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
    from compaction.budget import budget_table
    from compaction.calibration import FeatureMeter
    from compaction.tokens import about

    meter = FeatureMeter()
    source = opened(options)
    schemas = schemas_of(options)
    window = options.window
    for index, (name, conversation) in enumerate(named(source)):
        messages, tools = conversation.messages, schemas or conversation.tools
        rows = budget_table(messages, window, meter, tools)
        count = counted_as(meter, messages, tools)
        if options.json:
            print_json(_report(name, rows, window, len(messages), count))
            continue
        total, at_most = count["tokens"], count["at_most"]
        if index:
            print()
        print(f"{name}: {about(total, at_most)} in {counted(len(messages), 'message')}")
        print(f"  ({count['basis']})")
        print(budget_text(rows, window, getattr(sys.stdout, "encoding", None)))
        print(verdict(total, at_most, window))
    return OK


def _report(
    name: str, rows: Sequence[Row], window: int, messages: int, count: dict[str, Any]
) -> dict[str, Any]:
    from compaction.budget import PATHS

    return {
        "source": name,
        "window": window,
        **count,
        "messages": messages,
        "threshold": THRESHOLD,
        "should_compact": is_due(count["at_most"], window),
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
