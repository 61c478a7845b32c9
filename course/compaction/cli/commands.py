"""Which commands there are, and how one of them is run.

Each command loads what it needs when it runs, so that a short command starts in a moment.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from compaction import __version__
from compaction.cli.options import BAD_INPUT, FAILED, INTERRUPTED, PIPE_CLOSED
from compaction.files import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done. 1: the compaction was abandoned, or a pinned fact is lost. 2: the input or the
    command line is wrong, said in one line. 130: stopped by Ctrl-C.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # Texts of a history may hold what this terminal cannot show.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        options = _parser(given).parse_args(given)
        code = options.run(options)
        sys.stdout.flush()
        return int(code)
    except InputError as error:
        return _complain(error)
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


def _complain(error: object, code: int = BAD_INPUT) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


def _forget_output() -> None:
    """Let nothing be flushed at exit into an output that takes nothing more."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


# --- the parser -------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """An argument parser that complains in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"error: {message} (see {self.prog} --help)\n")


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m compaction",
        description="Measure an agent's history, see what fills its context window, replace\n"
        "old stretches by summaries, and check that nothing pinned was lost.",
        epilog=_examples(
            "estimate history.json",
            "budget history.json --window 128000",
            "compact history.json --out shorter.json",
            "probes history.json --after shorter.json",
            "agent",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"compaction {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    # Only the command that is asked for loads its module and adds its arguments.
    asked = next((word for word in given if not word.startswith("-")), None)
    for name, (about, module, examples) in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=about,
            description=about[0].upper() + about[1:] + ".",
            epilog=_examples(*examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == asked:
            _add_command(module, command)
    return parser


def _examples(*lines: str) -> str:
    return "examples:\n" + "\n".join(f"  python -m compaction {line}" for line in lines)


def _add_command(module: str, parser: argparse.ArgumentParser) -> None:
    """Let a module add the arguments of its command."""
    loaded = importlib.import_module(module)
    loaded.add_arguments(parser)
    # What the module calls a script that is none is bad input, like a history that is none.
    script_error = getattr(loaded, "ScriptError", InputError)

    def run(options: argparse.Namespace) -> int:
        try:
            return int(loaded.run(options))
        except script_error as error:
            return _complain(error)

    parser.set_defaults(run=run)


_COMMANDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "estimate": (
        "estimate the tokens of a history",
        "compaction.cli.estimate",
        (
            "estimate history.json",
            "estimate history.json --tools schemas.json --window 128000",
            "estimate - < history.jsonl",
        ),
    ),
    "budget": (
        "show which of seven paths fills the window",
        "compaction.cli.budget",
        ("budget history.json --window 128000", "budget history.json --json"),
    ),
    "compact": (
        "replace old stretches of a history by summaries",
        "compaction.cli.compact",
        (
            "compact history.json --out shorter.json",
            "compact history.json --keep-recent 5 --fact 'pnpm build:calc'",
            "compact - --out - < history.json > shorter.json",
        ),
    ),
    "probes": (
        "list what the user pinned, and look for it in a compacted history",
        "compaction.cli.probes",
        ("probes history.json", "probes history.json --after shorter.json"),
    ),
    "simulate": (
        "run the simulator of day 7: what a task carries, under two policies",
        "compaction.cli.simulate",
        ("simulate", "simulate --keep 3 4 --seeds 200", "simulate --plot sweep.png"),
    ),
    "agent": (
        "work with a small coding agent that compacts itself",
        "compaction.agent.main",
        ("agent", "agent --help"),
    ),
    "gateway": (
        "serve a scripted OpenAI-compatible gateway on this machine",
        "compaction.gateway",
        ("gateway", "gateway --help"),
    ),
}
