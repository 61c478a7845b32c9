"""The command line of grading a class: options, progress, summary."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compaction.files import write_whole
from grader.autograde.course import Course, course_folder
from grader.autograde.gradebook import Writer
from grader.autograde.intake.roster import Roster, read_roster
from grader.autograde.intake.take_in import Intake, take_in
from grader.autograde.ledger import write_ledger
from grader.autograde.rules import read_rules
from grader.autograde.run import Graders, Outcome, autograde
from grader.autograde.workers import Pool, cores
from grader.errors import BadInput, printable
from grader.exercises import SLUGS

if TYPE_CHECKING:
    from grader.sandbox import Limits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    from grader.sandbox import LEVELS

    parser.add_argument(
        "folder",
        nargs="?",
        metavar="SUBMITTED",
        help="nbgrader's folder of submissions (the default), or any folder or zip archive of "
        "notebooks, as a learning platform packs it",
    )
    parser.add_argument(
        "--roster",
        metavar="CSV",
        help="who is in the class, as your platform exports it; remembered",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say whose each file is, and write nothing"
    )
    parser.add_argument("--force", action="store_true", help="grade again what has not changed")
    parser.add_argument("--course", metavar="FOLDER", help="where nbgrader_config.py is")
    parser.add_argument("--jobs", type=int, metavar="N", help="this many at once (default: cores)")
    parser.add_argument(
        "--require-sandbox", action="store_true", help="refuse to grade without isolation"
    )
    parser.add_argument(
        "--isolation", default="auto", metavar="LEVEL", help=f"{', '.join(LEVELS)}, or auto"
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="change a limit of a submission, as in call_s=2.5; names: "
        + ", ".join(name for name in _limit_types()),
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="grade on a Dask cluster, as in tcp://10.0.0.1:8786"
    )


def _limit_types() -> dict[str, type]:
    from grader.sandbox import Limits

    return {one.name: type(one.default) for one in dataclasses.fields(Limits)}


def limits_from(given: Sequence[str]) -> Limits:
    """Read the limits on the command line.

    >>> limits_from(["call_s=2.5", "processes=2"]).call_s
    2.5

    Raises BadInput for an unknown name, and for anything but a positive number.
    """
    from grader.sandbox import Limits

    types, values = _limit_types(), {}
    for text in given:
        name, _, number = text.partition("=")
        if name not in types:
            raise BadInput(f"--limit {text}: no limit of this name; there are {', '.join(types)}")
        try:
            values[name] = types[name](number)
        except ValueError:
            raise BadInput(f"--limit {text}: expected a number, got {number!r}") from None
        if not 0 < values[name] < float("inf"):
            raise BadInput(f"--limit {text}: expected a number above zero")
    return Limits(**values)


def run(options: argparse.Namespace) -> int:
    """Grade a class and print a summary."""
    limits = limits_from(options.limit)
    if options.jobs is not None and options.jobs < 1:
        raise BadInput(f"--jobs {options.jobs}: expected 1 or more")
    folder = Path(options.folder) if options.folder else None
    if folder is not None and not folder.exists():
        raise BadInput(f"{folder}: no such folder; expected a folder or a zip archive of notebooks")
    given = Path(options.roster) if options.roster else None
    if given is not None:
        read_roster(given)
    started = time.monotonic()
    with ExitStack() as stack:
        # The processes start while this one still loads nbgrader.
        graders = None if options.dry_run else stack.enter_context(_graders(options))
        course = Course(Path(options.course) if options.course else course_folder())
        stack.enter_context(course.locked())
        rules = read_rules(course.classroom)
        roster = _roster(course, given, remember=not options.dry_run)
        if folder is None and not course.submitted_folder.is_dir() and not course.has_hand_ins:
            raise BadInput(f"{course.submitted_folder}: no submissions yet; collect them first")
        intake = take_in(folder, course.places, roster, dry_run=options.dry_run, zone=rules.zone)
        if not intake.counting and not intake.refused:
            raise BadInput(f"{folder or course.submitted_folder}: no notebook of a lab in it")
        if graders is None:
            print_assignment(intake, roster)
            return 1 if intake.refused else 0
        writer = stack.enter_context(Writer(course, rules))
        if roster is not None:
            writer.enrol(roster)
        shown = Progress(sys.stderr.isatty())
        outcome = autograde(
            course, writer, graders, intake, limits=limits, force=options.force, progress=shown
        )
        write_ledger(course, intake, roster)
        for warning in outcome.warnings:
            print(f"WARNING: {warning}", file=sys.stderr)
        print_summary(outcome, time.monotonic() - started)
    return 1 if outcome.needing else 0


def _roster(course: Course, given: Path | None, *, remember: bool) -> Roster | None:
    """Return the roster that was given, else the one that was given last."""
    if given is not None and remember:
        write_whole(course.roster_file, given.read_bytes())
    if given is None and not course.roster_file.is_file():
        return None
    return read_roster(given or course.roster_file)


def print_assignment(intake: Intake, roster: Roster | None) -> None:
    """Print whose each file is: a line for each that counts, then what is held."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for title in ("learner", "name", "lab", "handed in (UTC)", "file"):
        table.add_column(title, overflow="fold")
    for one in intake.counting:
        person = roster.people.get(one.student) if roster else None
        when = f"{one.when:%Y-%m-%d %H:%M}" if one.when else ""
        when += " late" if one.late else ""
        cells = (one.student, person.name if person else "", one.slug, when.strip(), one.origin)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, 100)
    console.print(table)
    console.soft_wrap = True
    for note in intake.notes:
        console.print(Text(f"note: {printable(note)}"))
    if intake.refused:
        console.print(f"\nNeeds a person ({len(intake.refused)}):")
    for refused in intake.refused:
        who = refused.student or "nobody's"
        console.print(Text(f"  {printable(who)}, {printable(refused.line)}"))
    console.print("\nNothing was written. Without --dry-run this is what will be graded.")


def _graders(options: argparse.Namespace) -> AbstractContextManager[Graders]:
    from grader.sandbox import level_of

    level = level_of(options.isolation)
    if options.scheduler:
        from grader.autograde.cluster import Cluster

        return Cluster(options.scheduler, level)
    return Pool(options.jobs or cores(), level)


class Progress:
    """A bar with the time that is left, where somebody is looking."""

    def __init__(self, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._bar: Any = None
        self._task: Any = None

    def over(self, total: int) -> AbstractContextManager[Any]:
        """Show the bar over this many submissions."""
        if not self._is_shown or not total:
            return nullcontext()
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("grading"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("grading", total=total)
        bar: AbstractContextManager[Any] = self._bar
        return bar

    def advance(self) -> None:
        """One more is done."""
        if self._bar is not None:
            self._bar.advance(self._task)


def print_summary(outcome: Outcome, seconds: float) -> None:
    """Print a table with a line a lab, and a line for everything that needs a person."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    intake = outcome.intake
    table = Table()
    for title in ("lab", "handed in", "mean", "all passed", "by hand", "needs a person"):
        table.add_column(title, justify="left" if title == "lab" else "right", no_wrap=True)
    waiting = Counter(slug for _, slug, _ in outcome.needing)
    handed_in = Counter(record.slug for record in outcome.records)
    for refused in intake.refused:
        handed_in[refused.slug] += bool(refused.slug)
    for slug in sorted(handed_in & Counter(dict.fromkeys(SLUGS.values(), 10**9))):
        scored = [r for r in outcome.records if r.slug == slug and not r.reason]
        points = [sum(mark.passed for mark in record.marks) for record in scored]
        checks = max((len(record.marks) for record in scored), default=0)
        mean = f"{sum(points) / len(points):.1f} of {checks}" if points else "-"
        full = sum(point == checks for point in points)
        cells = (slug, handed_in[slug], mean, full, outcome.by_hand[slug], waiting[slug])
        table.add_row(*map(str, cells))
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, 100)
    console.print(table)
    console.soft_wrap = True
    older = f", {_count(intake.older, 'older one')} kept" if intake.older else ""
    console.print(
        f"{outcome.graded} graded, {outcome.unchanged} unchanged{older}; {seconds:.1f} s"
        + _sandboxes(outcome.levels)
    )
    if outcome.outdated:
        some = f"{outcome.outdated} of the unchanged were graded with other checks or another seed"
        console.print(f"{some}; --force grades them again")
    for note in intake.notes:
        console.print(Text(f"note: {printable(note)}"))
    if outcome.needing:
        console.print(f"\nNeeds a person ({len(outcome.needing)}):")
    for student, what, why in outcome.needing:
        console.print(Text(f"  {printable(student)}, {printable(what)}: {printable(why)}"))


def _sandboxes(levels: Mapping[str, str]) -> str:
    """Say at which level of isolation it was graded, by worker where there are several.

    >>> _sandboxes({"": "bwrap"})
    '; sandbox: bwrap'
    """
    if not levels:
        return ""
    told = [f"{worker} {level}".strip() for worker, level in sorted(levels.items())]
    return f"; sandbox: {', '.join(told)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
