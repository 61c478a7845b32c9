"""What the commands share: arguments, the conversations of a file, words about a window."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compaction.console import not_blank, percent, whole
from compaction.history import (
    Conversation,
    HistoryFile,
    HistoryStream,
    open_histories,
    read_tools,
)

if TYPE_CHECKING:
    from compaction.calibration import FeatureMeter
    from compaction.messages import Message

Tools = list[dict[str, Any]] | None

DEFAULT_WINDOW = 128_000
THRESHOLD = 0.70

_HISTORY_HELP = (
    'a file with a JSON list of messages, {"messages": [...]}, or JSON lines (a message or a '
    "conversation a line), or another program's session (Claude Code, Codex, and more: see "
    'convert --help); "-" reads standard input'
)
_LARGE = 32 << 20  # bytes of a file whose progress is shown


# Shares of a window are floats, which hold whole numbers up to here exactly.
token_count = whole(1, "a positive number of tokens up to 10^15", 10**15)
file_name = not_blank("a file name")


def add_history(parser: argparse.ArgumentParser) -> None:
    """Add the history to read, and ``--json``."""
    parser.add_argument("history", metavar="HISTORY", help=_HISTORY_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON, one value a conversation")


def add_tools(parser: argparse.ArgumentParser) -> None:
    """Add ``--tools``, the schemas that are sent along."""
    parser.add_argument(
        "--tools",
        metavar="FILE",
        type=file_name,
        help="a JSON list of tool schemas that ride along on every request (otherwise the "
        '"tools" that lie beside the "messages", if any)',
    )


def add_keep_recent(parser: argparse.ArgumentParser) -> None:
    """Add ``--keep-recent``."""
    parser.add_argument(
        "--keep-recent",
        metavar="N",
        type=whole(0, "a number of groups, 0 or more"),
        default=3,
        help="how many of the newest groups stay as they are (default: 3)",
    )


def add_facts(parser: argparse.ArgumentParser) -> None:
    """Add ``--fact``."""
    parser.add_argument(
        "--fact",
        metavar="TEXT",
        type=not_blank("a fact to look for"),
        action="append",
        default=[],
        help='a fact to look for, besides what the user pinned with "remember:"; may be repeated',
    )


def opened(options: argparse.Namespace) -> HistoryStream:
    """Open the history of the command line; where it is large, a terminal shows the progress."""
    return open_histories(options.history, _show_progress if sys.stderr.isatty() else None)


def _show_progress(done: int, size: int) -> None:
    if size >= _LARGE:
        # The cursor goes back, so that the next line of the report takes this one's place.
        print(f"reading: {percent(done / size)}", end="   \r", file=sys.stderr, flush=True)


def schemas_of(options: argparse.Namespace) -> list[dict[str, Any]] | None:
    """Read the tool schemas of ``--tools``, if given."""
    return read_tools(options.tools) if options.tools else None


def named(source: HistoryFile | HistoryStream) -> Iterator[tuple[str, Conversation]]:
    """Yield the conversations, each with a name for a person."""
    several = source.several if isinstance(source, HistoryStream) else len(source.conversations) > 1
    for number, conversation in enumerate(source.conversations, 1):
        yield f"{source.name}, conversation {number}" if several else source.name, conversation


def counted_as(meter: FeatureMeter, messages: list[Message], tools: Tools = None) -> dict[str, Any]:
    """Return a count as plain data: the plain one, the one to decide with, what both rest on."""
    return {
        "tokens": meter.count(messages, tools),
        "at_most": meter.at_most(messages, tools),
        "basis": meter.basis(messages, tools),
    }


def of_window(tokens: int, window: int) -> str:
    """Say which share of a window some tokens are."""
    return f"{percent(tokens / window)} of a window of {window}"


def is_due(at_most: int, window: int) -> bool:
    """Say whether a history is to be compacted; its upper bound decides, for the safe side."""
    from compaction.budget import line_tokens

    return at_most > line_tokens(window, THRESHOLD)


def verdict(tokens: int, at_most: int, window: int) -> str:
    """Say which share of a window a history is, and whether it is to be compacted."""
    from compaction.budget import line_tokens

    line = f"the line of {percent(THRESHOLD)} ({line_tokens(window, THRESHOLD):g})"
    share = of_window(tokens, window)
    if not is_due(at_most, window):
        return f"{share}: not above {line}, no compaction needed"
    perhaps = "" if is_due(tokens, window) else f"perhaps, with at most {at_most}, "
    return f"{share}: {perhaps}above {line}, compaction is due"


def problem_lines(found: list[str]) -> list[str]:
    """Return a line for each thing that an API would refuse."""
    return [f"  an API would refuse this history: {problem}" for problem in found]
