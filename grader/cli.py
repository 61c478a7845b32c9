"""The command line of the grader: one word a command, each loaded only when it is asked for.

A command is a module with ``add_arguments(parser)`` and ``run(options) -> int`` (the exit code);
it raises BadInput for what it cannot use. To add one, add its line to :data:`COMMANDS`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from grader.feedback import BadInput

OK, FAILED, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

COMMANDS = {
    "assign": ("grader.autograde.assign", "say whose a doubtful file is, for all later runs"),
    "autograde": ("grader.autograde.command", "grade a class: many notebooks, each in a sandbox"),
    "build": ("grader.build.command", "make labs and lessons again from their sources"),
    "check": ("grader.learner.check_notebook", "run the checks of one lab's notebook"),
    "release": (
        "grader.build.release",
        "pack the course into a zip archive for people without git",
    ),
    "report": ("grader.report.command", "a page about a class: scores, traps, who needs a person"),
    "selftest": (
        "grader.learner.selftest",
        "run the fifteen checks on solutions, starters or your code",
    ),
    "workbook": (
        "grader.learner.working_copy",
        "lay your own copy of the labs where it is missing",
    ),
}
"""Each command: the module that does it, and what it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: all is well. 1: a check failed, or something is stale. 2: the input or the command line is
    wrong, said in one line on standard error. 130: stopped by Ctrl-C.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the process was started with the stream closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a check mark gets its escape, not a crash.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = _parser(given).parse_args(given)
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # the reader has gone (`| head`): nothing to say
        _forget_output()
        return PIPE_CLOSED
    except OSError as error:
        _forget_output()
        reason = error.strerror or str(error)
        print(
            f"error: {error.filename}: {reason}" if error.filename else f"error: {reason}",
            file=sys.stderr,
        )
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _forget_output() -> None:
    """Let nothing be flushed at exit into an output that takes nothing more."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """An argument parser that complains in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"error: {message} (see {self.prog} --help)\n")


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m grader",
        description="Check solutions and labs, build labs, and grade a class.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    asked = next((word for word in given if not word.startswith("-")), None)
    for name, (module_name, about) in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=f"{about.capitalize()}.")
        if name == asked:
            module = importlib.import_module(module_name)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser
