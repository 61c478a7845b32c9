"""The command ``python -m compaction gateway``: serve a script until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

from compaction.gateway.faults import FAULTS, Fault
from compaction.gateway.script import Reply, read_script
from compaction.gateway.server import Gateway
from compaction.gateway.too_long import WORDINGS

if TYPE_CHECKING:
    import argparse


def serve(
    script: Iterable[Reply] = (),
    *,
    port: int = 0,
    faults: Iterable[Fault | str] = (),
    out: TextIO | None = None,
    **options: Any,
) -> int:
    """Run a gateway until Ctrl-C, print its base URL first, and return the exit code 0.

    ``options`` are those of Gateway. Raises OSError when the port is taken, ScriptError and
    ValueError for a script or a fault that is not valid.
    """
    out = sys.stdout if out is None else out
    with Gateway(script, port=port, faults=faults, **options) as gateway:
        print(f"scripted gateway at {gateway.base_url} (Ctrl-C stops it)", file=out, flush=True)
        try:
            while gateway.running:
                time.sleep(0.5)
        except KeyboardInterrupt:
            print("stopped", file=out, flush=True)
    return 0


def _whole_number(expected: str, least: int, most: int) -> Callable[[str], int]:
    from argparse import ArgumentTypeError

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise ArgumentTypeError(f"expected {expected}, got {text!r}")
        return int(text)

    return read


def _fault(text: str) -> Fault:
    from argparse import ArgumentTypeError

    try:
        return Fault.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``python -m compaction gateway`` takes to its parser."""
    parser.add_argument(
        "--script", metavar="FILE", help="a JSON list of replies, each a text or a message"
    )
    parser.add_argument(
        "--summaries",
        metavar="FILE",
        help="the same for summary requests (default: sentences copied from the stretch)",
    )
    parser.add_argument(
        "--port",
        type=_whole_number("a port number, 0 to 65535", 0, 65535),
        default=0,
        help="the port on 127.0.0.1 (default: a free one)",
    )
    parser.add_argument(
        "--window",
        metavar="TOKENS",
        type=_whole_number("a number of tokens from 1 on", 1, 10**9),
        help="refuse longer requests, as a model's window does (default: none is too long)",
    )
    parser.add_argument(
        "--too-long",
        metavar="WORDING",
        choices=tuple(WORDINGS),
        default="openai",
        help=f"in whose words such a request is refused: {', '.join(WORDINGS)} (default: openai)",
    )
    parser.add_argument(
        "--fault",
        metavar="FAULT",
        type=_fault,
        action="append",
        default=[],
        help="let requests meet a fault: NAME the next one, NAME*2 the next two, NAME/3 every "
        "third; then @turn or @summary for these only; may be repeated",
    )
    modes = "\n".join(f"  {name:<18} {about}" for name, about in FAULTS.items())
    parser.epilog = f"faults:\n{modes}\n\n{parser.epilog or ''}".rstrip()


def run(options: argparse.Namespace) -> int:
    """Serve what the command line asks for until Ctrl-C; raises ScriptError and OSError."""
    return serve(
        read_script(options.script) if options.script else (),
        summaries=read_script(options.summaries) if options.summaries else (),
        port=options.port,
        faults=options.fault,
        window=options.window,
        too_long=options.too_long,
    )
