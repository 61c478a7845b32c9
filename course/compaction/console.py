"""What both command lines share: exit codes, the parser, the frame around a command, words.

A command is a module with ``add_arguments(parser)`` and ``run(options)``, which returns the exit
code and raises InputError for what it cannot use. Modules are loaded when they are asked for.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from compaction.files import InputError

if TYPE_CHECKING:
    from compaction.budget import Row

OK, FAILED, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

Command = tuple[str, ...]
"""A command: its module, a few words about what it does, then examples of its use."""


def run_command(
    program: str,
    description: str,
    commands: Mapping[str, Command],
    arguments: Sequence[str] | None = None,
    version: str | None = None,
    examples: Sequence[str] = (),
) -> int:
    """Run one command and return its exit code.

    0: all is well. 1: what was asked for failed. 2: the input or the command line cannot be used,
    said in one line on standard error. 130: stopped by Ctrl-C. 141: nobody reads the output.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape, not a crash.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        parser = _parser(program, description, commands, given, version, examples)
        options = parser.parse_args(given)
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except InputError as error:
        return _complain(error, BAD_INPUT)
    except BrokenPipeError:  # the reader has gone (`| head`): nothing to say
        _forget_output()
        return PIPE_CLOSED
    except OSError as error:
        _forget_output()
        reason = error.strerror or str(error)
        return _complain(f"{error.filename}: {reason}" if error.filename else reason, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _open_closed_streams() -> None:
    """Give a process that was started without its standard streams empty ones.

    Python has None in their place, and the next file opened would get a closed stream's number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _complain(error: object, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


def _forget_output() -> None:
    """Let nothing be flushed at exit into an output that takes nothing more."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


# --- the parser -------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """An argument parser that complains in one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with the exit code for bad input."""
        self.exit(BAD_INPUT, f"error: {message} (see {self.prog} --help)\n")


def _parser(
    program: str,
    description: str,
    commands: Mapping[str, Command],
    given: Sequence[str],
    version: str | None,
    examples: Sequence[str],
) -> Parser:
    def epilog(lines: Sequence[str]) -> str | None:
        shown = "\n".join(f"  {program} {line}" for line in lines)
        return f"examples:\n{shown}" if lines else None

    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog=program, description=description, epilog=epilog(examples), formatter_class=raw
    )
    if version is not None:
        parser.add_argument("--version", action="version", version=version)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    # Only the command that is asked for loads its module and adds its arguments.
    asked = next((word for word in given if not word.startswith("-")), None)
    for name, (module, about, *lines) in commands.items():
        command = subparsers.add_parser(
            name,
            help=about,
            description=f"{about[:1].upper()}{about[1:]}.",
            epilog=epilog(lines),
            formatter_class=raw,
        )
        if name == asked:
            loaded = importlib.import_module(module)
            loaded.add_arguments(command)
            command.set_defaults(run=loaded.run)
    return parser


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


def not_blank(what: str) -> Callable[[str], str]:
    """Return a reader of words for argparse; an unset variable of a shell gives none."""

    def read(text: str) -> str:
        if not text.strip():
            raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")
        return text

    return read


# --- words for people -------------------------------------------------------------------


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


def percent(share: float) -> str:
    """Say a share in percent; one of nothing is a dash.

    >>> percent(0.256), percent(float("inf"))
    ('26 %', '-')
    """
    return f"{100 * share:.0f} %" if math.isfinite(share) else "-"


def one_line(text: str, most: int = 200) -> str:
    """Return a text on one line, its end left out where it is long.

    >>> one_line("a\\n b", 10), one_line("abcdefgh", 6)
    ('a b', 'abc...')
    """
    folded = " ".join(text.split())
    return folded if len(folded) <= most else folded[: most - 3] + "..."


def print_json(value: object, file: Any = None) -> None:
    """Print a value as one line of JSON that this output can show."""
    stream = sys.stdout if file is None else file
    # Where the encoding lacks a character, JSON's own escapes must stand for it.
    is_utf8 = (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, ensure_ascii=not is_utf8, allow_nan=False), file=stream)


# --- the budget's table -----------------------------------------------------------------

_BAR_CELLS = 14


def budget_text(rows: Sequence[Row], window: int, encoding: str | None = "utf-8") -> str:
    """Return the seven-path table as text; a full bar is the whole allowance.

    Characters that ``encoding`` lacks are left out of the bars.

    >>> from compaction.budget import budget_table
    >>> table = budget_text(budget_table([{"role": "user", "content": "hello"}], 1000), 1000)
    >>> [line.split()[0] for line in table.splitlines()][:2]
    ['path', 'system']
    """
    total = sum(row.tokens for row in rows)
    cells = [("path", "tokens", "allowed", "used", "", "")]
    cells += [
        (
            row.path,
            str(row.tokens),
            str(row.allowance),
            percent(row.used),
            _bar(row.used, encoding),
            f"over by {row.tokens - row.allowance}" if row.over else "",
        )
        for row in rows
    ]
    cells.append(("total", str(total), str(window), percent(total / window), "", ""))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = []
    for path, *figures, bar, over in cells:
        aligned = [text.rjust(width) for text, width in zip(figures, widths[1:4], strict=True)]
        line = [path.ljust(widths[0]), *aligned, bar.ljust(widths[4]), over]
        lines.append(" ".join(line).rstrip())
    return "\n".join(lines)


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
