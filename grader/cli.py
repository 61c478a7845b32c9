"""The command line of the grader: one word a command, each loaded only when it is asked for.

A command is a module with ``add_arguments(parser)`` and ``run(options) -> int`` (the exit code);
it raises BadInput for what it cannot use. To add one, add its line to :data:`COMMANDS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from compaction.console import Command, run_command

COMMANDS: dict[str, Command] = {
    "assign": ("grader.autograde.assign", "say whose a doubtful file is, for all later runs"),
    "autograde": ("grader.autograde.command", "grade a class: many notebooks, each in a sandbox"),
    "build": ("grader.build.command", "make labs and lessons again from their sources"),
    "check": ("grader.learner.check_notebook", "run the checks of one lab's notebook"),
    "lab": ("grader.learner.start", "lay your working copy and open JupyterLab on your next day"),
    "release": (
        "grader.build.release",
        "pack the course into a zip archive for people without git",
    ),
    "report": (
        "grader.report.command",
        "write a page on a class: scores, known mistakes, who needs a person",
    ),
    "return": (
        "grader.autograde.return_grades.command",
        "fill the table that a platform takes back, and pack feedback for it",
    ),
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
    description = "Check solutions and labs, build labs, and grade a class."
    return run_command("python -m grader", description, COMMANDS, arguments)
