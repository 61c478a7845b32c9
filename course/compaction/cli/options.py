"""What the commands share: arguments, the names of conversations, words for people."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from compaction.history import Conversation, HistoryFile, read_tools

OK, FAILED, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141


DEFAULT_WINDOW = 128_000
THRESHOLD = 0.70

_HISTORY_HELP = (
    'a file with a JSON list of messages, {"messages": [...]}, or JSON lines (a message or a '
    'conversation a line); "-" reads standard input'
)


def whole(least: int, what: str, most: float = math.inf) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``least`` to ``most``, for argparse."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")
        return number

    return read


# Shares of a window are floats, which hold whole numbers up to here exactly.
token_count = whole(1, "a positive number of tokens up to 10^15", 10**15)


def not_blank(what: str) -> Callable[[str], str]:
    """Return a reader of words for argparse; an unset variable of a shell gives none."""

    def read(text: str) -> str:
        if not text.strip():
            raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")
        return text

    return read


file_name = not_blank("a file name")


def add_history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("history", metavar="HISTORY", help=_HISTORY_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON, one value a conversation")


def add_tools(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tools",
        metavar="FILE",
        type=file_name,
        help="a JSON list of tool schemas that ride along on every request (otherwise the "
        '"tools" that lie beside the "messages", if any)',
    )


def add_keep_recent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-recent",
        metavar="N",
        type=whole(0, "a number of groups, 0 or more"),
        default=3,
        help="how many of the newest groups stay as they are (default: 3)",
    )


def add_facts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fact",
        metavar="TEXT",
        type=not_blank("a fact to look for"),
        action="append",
        default=[],
        help='a fact to look for, besides what the user pinned with "remember:"; may be repeated',
    )


def schemas_of(options: argparse.Namespace) -> list[dict[str, Any]] | None:
    return read_tools(options.tools) if options.tools else None


def named(source: HistoryFile) -> Iterator[tuple[str, Conversation]]:
    """Yield the conversations, each with a name for a person."""
    several = len(source.conversations) > 1
    for number, conversation in enumerate(source.conversations, 1):
        yield f"{source.name}, conversation {number}" if several else source.name, conversation


def of_window(tokens: int, window: int) -> str:
    return f"{percent(tokens / window)} of a window of {window}"


def verdict(tokens: int, window: int) -> str:
    from compaction.budget import line_tokens

    line = line_tokens(window, THRESHOLD)
    if tokens > line:
        return f"above the line of {percent(THRESHOLD)} ({line:g}), compaction is due"
    return f"not above the line of {percent(THRESHOLD)} ({line:g}), no compaction needed"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if math.isfinite(share) else "-"


def counted(number: int, what: str) -> str:
    """Say a number of things.

    >>> counted(1, "image"), counted(2, "image"), counted(2, "earlier summary")
    ('1 image', '2 images', '2 earlier summaries')
    """
    if number == 1:
        return f"{number} {what}"
    if what.endswith(" with calls"):
        return f"{number} {what.removesuffix(' with calls')}s with calls"
    return f"{number} {what[:-1]}ies" if what.endswith("y") else f"{number} {what}s"


def one_line(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= 200 else folded[:197] + "..."


def print_problems(found: Sequence[str], file: Any = None) -> None:
    for problem in found:
        print(f"  an API would refuse this history: {problem}", file=file)


def print_json(value: object, file: Any = None) -> None:
    stream = sys.stdout if file is None else file
    # Where the encoding lacks a character, JSON's own escapes must stand for it.
    is_utf8 = (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, ensure_ascii=not is_utf8, allow_nan=False), file=stream)
