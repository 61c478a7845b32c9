"""``simulate``: the tables of day 7, and a figure of them."""

from __future__ import annotations

import argparse
import io
import os
from typing import Any

from compaction.cli.options import file_name
from compaction.console import OK, print_json, whole
from compaction.files import InputError, write_whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from compaction.carrying import KEEPS, SEED

    parser.add_argument("--seed", metavar="N", type=int, default=SEED, help=f"(default: {SEED})")
    parser.add_argument(
        "--keep",
        metavar="N",
        type=whole(0, "a number of fields, 0 or more"),
        nargs="+",
        default=list(KEEPS),
        help=f"budgets in fields (default: {' '.join(map(str, KEEPS))})",
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=whole(2, "a number of seeds, 2 or more"),
        help="run every row under N seeds, and show means with confidence intervals",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=file_name,
        help="draw tokens against success (PNG, SVG, PDF)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the tables of day 7, or means over many seeds."""
    from compaction import carrying

    seed, keeps = options.seed, options.keep
    if options.seeds:
        rows = carrying.spread(options.seeds, keeps, first_seed=seed)
        plain: Any = carrying.spread_dict(rows) if options.json else carrying.spread_table(rows)
    elif options.json:
        plain = carrying.sweep_dict(seed, keeps)
    else:
        plain = carrying.sweep_table(seed, keeps)
    if options.plot:
        _plot_sweep(options)
    if options.json:
        print_json(plain)
    else:
        print(plain)
    return OK


_PLOT_FORMATS = (".png", ".svg", ".pdf")


def _plot_sweep(options: argparse.Namespace) -> None:
    """Draw the rows of one seed into a file; its name says which format."""
    suffix = os.path.splitext(options.plot)[1].lower()
    if suffix not in _PLOT_FORMATS:
        known = f"{', '.join(_PLOT_FORMATS[:-1])} or {_PLOT_FORMATS[-1]}"
        raise InputError(f"--plot {options.plot}: expected a file name that ends in {known}")
    os.environ.setdefault("MPLBACKEND", "agg")  # no window, and no screen needed

    from compaction import carrying
    from compaction.plots import plot_sweep

    uncompacted, *rows = carrying.sweep(options.seed, options.keep)
    drawn = io.BytesIO()
    plot_sweep(rows, uncompacted.first).savefig(drawn, format=suffix[1:], dpi=150)
    write_whole(options.plot, drawn.getvalue())
