"""The command line of grading a class: options, progress, summary."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compaction.files import write_whole
from grader.autograde.course import Course
from grader.autograde.gradebook import Writer
from grader.autograde.intake.roster import read_roster
from grader.autograde.intake.take_in import Intake, survey, take_in
from grader.autograde.results import ROOT
from grader.autograde.run import Markers, Outcome, autograde
from grader.autograde.workers import Pool, Setting, cores
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
    parser.add_argument("--roster", metavar="CSV", help="who is in the class: ids, names, numbers")
    parser.add_argument("--force", action="store_true", help="grade again what has not changed")
    parser.add_argument("--course", metavar="FOLDER", help="where nbgrader_config.py is")
    parser.add_argument("--jobs", type=int, metavar="N", help="so many at once (default: cores)")
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
        "--scheduler", metavar="ADDRESS", help="mark on a Dask cluster, as in tcp://10.0.0.1:8786"
    )


def _limit_types() -> dict[str, type]:
    from grader.sandbox import Limits

    return {one.name: type(one.default) for one in dataclasses.fields(Limits)}


def limits_from(given: Sequence[str]) -> Limits:
    """Read the limits on the command line.

    >>> limits_from(["call_s=2.5", "processes=2"]).call_s
    2.5

    Raises BadInput for a name that is none, and for what is no positive number.
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
    roster = read_roster(Path(options.roster)) if options.roster else None
    started = time.monotonic()
    with ExitStack() as stack:
        # The processes start while this one still loads nbgrader.
        markers = stack.enter_context(_markers(options))
        course = Course(Path(options.course) if options.course else _course_folder())
        stack.enter_context(course.locked())
        if folder is None or _same(folder, course.submitted_folder):
            if not course.submitted_folder.is_dir():
                raise BadInput(f"{course.submitted_folder}: no submissions yet; collect them first")
            intake = survey(course.submitted_folder, roster)
        else:
            intake = take_in(folder, course.places, roster)
        if not intake.counting and not intake.refused:
            raise BadInput(f"{folder or course.submitted_folder}: no notebook of a lab in it")
        writer = stack.enter_context(Writer(course))
        if roster is not None:
            writer.enrol(roster)
        shown = Progress(sys.stderr.isatty())
        outcome = autograde(
            course, writer, markers, intake, limits=limits, force=options.force, progress=shown
        )
        _write_intake(course, intake, [*roster.people] if roster else [])
        for warning in dict.fromkeys(markers.warnings):
            print(f"WARNING: {warning}", file=sys.stderr)
        print_summary(outcome, markers.level, time.monotonic() - started)
    return 1 if outcome.needing else 0


def _markers(options: argparse.Namespace) -> AbstractContextManager[Markers]:
    from grader.sandbox import level_of

    setting = Setting(level_of(options.isolation), options.require_sandbox)
    if options.scheduler:
        from grader.autograde.cluster import Cluster

        return Cluster(options.scheduler, setting)
    return Pool(options.jobs or cores(), setting)


def _course_folder() -> Path:
    here = Path.cwd()
    return here if (here / "nbgrader_config.py").is_file() else ROOT


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _write_intake(course: Course, intake: Intake, people: list[str]) -> None:
    """Keep for the report what could not be graded, and who was expected."""
    told = {
        "refused": [dataclasses.asdict(refused) for refused in intake.refused],
        "notes": intake.notes,
        "older": intake.older,
        "people": people,
    }
    course.records.mkdir(parents=True, exist_ok=True)
    text = json.dumps(told, ensure_ascii=False, indent=1) + "\n"
    write_whole(course.records / "intake.json", text.encode(errors="replace"))


class Progress:
    """A bar with the time that is left, where somebody is looking."""

    def __init__(self, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._bar: Any = None
        self._task: Any = None

    def over(self, total: int) -> AbstractContextManager[Any]:
        """Show the bar over so many submissions."""
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


def print_summary(outcome: Outcome, level: str, seconds: float) -> None:
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
        by_hand = sum(len(record.answers or {}) for record in scored)
        cells = (slug, handed_in[slug], mean, full, by_hand, waiting[slug])
        table.add_row(*map(str, cells))
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, 100)
    console.print(table)
    console.soft_wrap = True
    older = f", {_count(intake.older, 'older one')} kept" if intake.older else ""
    fenced = f"; sandbox: {level}" if level else ""
    console.print(
        f"{outcome.marked} graded, {outcome.unchanged} unchanged{older}; {seconds:.1f} s{fenced}"
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
