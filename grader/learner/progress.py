"""How far a learner has come: the self-test's verdicts, day by day, as a table and as text.

``workbook/`` flows in, through the self-test in a process of its own with a time limit, so that
nothing in a lab can stop this page; a table flows out that says everything in words.
"""

from __future__ import annotations

import html
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.errors import BadInput
from grader.exercises import SLUGS

TIME_LIMIT_S = 120
"""All checks of all days take a few seconds; an endless loop in a lab must not hold the page."""


@dataclass(frozen=True)
class Day:
    """A day's checks: how many pass, how many there are, and the first that does not yet."""

    number: int
    passed: int
    total: int
    next_check: str = ""
    sentence: str = ""

    @property
    def state(self) -> str:
        """What the table says in words: solved, begun or not yet."""
        if self.passed == self.total:
            return "solved"
        return "begun" if self.passed else "not yet"

    @property
    def lab(self) -> str:
        """Where the lab lies, seen from workbook/."""
        return f"{SLUGS[self.number]}/{SLUGS[self.number]}.ipynb"


def progress_of(workbook: Path, time_limit_s: float = TIME_LIMIT_S) -> list[Day]:
    """Return what is solved, day by day, from the self-test on a learner's folder.

    Raises BadInput when the self-test says that the folder cannot be used, or gives no verdict
    within the limit.
    """
    command = [sys.executable, "-m", "grader", "selftest", str(workbook), "--all", "--json"]
    # A session of its own, so that what the self-test has started ends with it.
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=time_limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            raise BadInput(
                f"{workbook}: no verdict within {time_limit_s:.0f} s; does a cell never end?"
            ) from None
    try:
        verdicts = json.loads(stdout)
        checks = [*verdicts["checks"], *verdicts["extension"]["checks"]]
    except (ValueError, KeyError, TypeError):
        said = stderr.strip().splitlines() or ["the self-test gave no verdict"]
        raise BadInput(said[-1].removeprefix("error: ")) from None
    return days_of(checks)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and all that it has started, where the system knows groups of processes."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def days_of(checks: Sequence[dict[str, Any]]) -> list[Day]:
    """Sum up verdicts, as the self-test writes them, by day."""
    days = []
    for number in SLUGS:
        asked = [check for check in checks if check["day"] == number]
        failing = [check for check in asked if not check["passed"]]
        first = failing[0] if failing else {"id": "", "sentence": ""}
        passed = len(asked) - len(failing)
        days.append(Day(number, passed, len(asked), first["id"], first["sentence"]))
    return days


def next_day(days: Sequence[Day]) -> Day:
    """Return the first day that is not solved, or the last one.

    >>> next_day([Day(1, 2, 2), Day(2, 0, 3)]).number
    2
    """
    return next((day for day in days if day.passed < day.total), days[-1])


def as_text(days: Sequence[Day]) -> str:
    """Return one line per day, for where no table is drawn.

    >>> print(as_text([Day(1, 1, 2, "estimate-cjk", "Two terms add.")]))
    Day 1: begun, 1 of 2 checks. Next: estimate-cjk. Two terms add.
    """
    return "\n".join(
        f"Day {day.number}: {day.state}, {day.passed} of {day.total} checks."
        + (f" Next: {day.next_check}. {day.sentence}" if day.next_check else "")
        for day in days
    )


def as_table(days: Sequence[Day]) -> str:
    """Return the same as an HTML table with a caption and headings for a screen reader."""
    total, passed = sum(day.total for day in days), sum(day.passed for day in days)
    headings = ("Day", "State", "Checks", "Next check, and where its hints are")
    return html_table(f"{passed} of {total} checks pass.", headings, map(_cells, days))


def _cells(day: Day) -> tuple[str, ...]:
    lesson = f'<a href="lessons/day{day.number}_lesson.ipynb">lesson</a>'
    lab = f'<a href="{day.lab}">lab</a>'
    next_one = "nothing left to do"
    if day.next_check:
        next_one = (
            f"<code>{html.escape(day.next_check)}</code>: {html.escape(day.sentence)} "
            f"Hints: under the task in the {lab}."
        )
    checks = f"{day.passed} of {day.total}"
    return f"Day {day.number}: {lesson}, {lab}", day.state, checks, next_one


_LEFT = 'style="text-align: left; vertical-align: top; white-space: normal"'


def html_table(caption: str, headings: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table over the pane's full width; each row's first cell is its heading.

    Cells are HTML. Captions and headings are what a screen reader announces.

    >>> html_table("1 of 2", ["Day"], [["1"]]).startswith('<table style="width: 100%')
    True
    """
    head = "".join(f'<th scope="col" {_LEFT}>{html.escape(name)}</th>' for name in headings)
    body = "".join(
        f'<tr><th scope="row" {_LEFT}>{first}</th>'
        + "".join(f"<td {_LEFT}>{cell}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        '<table style="width: 100%; text-align: left">'
        f'<caption style="text-align: left">{html.escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def show(workbook: str | Path = ".") -> None:
    """Show in a notebook how far you have come; below it, one sentence says what comes next."""
    from IPython.display import display

    try:
        days = progress_of(Path(workbook))
    except BadInput as error:
        print(error)
        return
    display({"text/html": as_table(days), "text/plain": as_text(days)}, raw=True)
    day = next_day(days)
    print(f"Next: day {day.number}." if day.next_check else "Everything passes. Well done.")
