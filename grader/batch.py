"""Grade a class: take in what was handed in, mark each notebook in a sandbox, write the gradebook.

    python -m grader autograde grader/classroom/submitted

Every submission ends in a mark or in a reason with its name. What is graded already and has not
changed is left alone, so a run that was stopped, even by force, goes on when it is started again.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from compaction.files import write_whole
from grader.exercises import SLUGS
from grader.feedback import BadInput, printable
from grader.gradebook import ROOT, Course, Record, Writer, read_record, record_path
from grader.intake import HandedIn, Intake, Refused, read_roster, survey, take_in
from grader.marking import Job, Marked, SourceCell
from grader.pool import Pool, Setting, cores, unmarked

if TYPE_CHECKING:
    from grader.sandbox import Limits

BATCH_SIZE = 24
BATCH_S = 3.0
"""Marks are written after so many submissions or seconds, whichever comes first."""


class Markers(Protocol):
    """Whoever marks: processes here, or a cluster."""

    level: str
    warnings: list[str]

    def run(self, jobs: Iterable[Job]) -> Iterator[Marked]:
        """Yield what came of each job, in any order."""
        ...


@dataclass
class Outcome:
    """What came of a run: submissions marked now and left alone, and who needs a person."""

    intake: Intake
    marked: int = 0
    unchanged: int = 0
    outdated: int = 0
    needing: list[tuple[str, str, str]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


# --- grading -----------------------------------------------------------------------------


def autograde(
    course: Course,
    writer: Writer,
    markers: Markers,
    intake: Intake,
    *,
    limits: Limits | None = None,
    force: bool = False,
    progress: _Progress | None = None,
) -> Outcome:
    """Mark what has changed, write it, and return what came of everything that was handed in."""
    seed, outcome = course.seed(), Outcome(intake)
    version = version_of_course(seed)
    cells = _cells_of_labs(writer, intake)
    counting = {(one.student, one.slug): one for one in intake.counting}
    changed = _changed(course, writer, intake, version, outcome, force)
    progress = progress or _Progress(False)
    batch: list[tuple[Marked, datetime | None, bool]] = []
    with progress.over(len(changed)):
        written = time.monotonic()
        texts = {slug: writer.texts_of(slug) for slug in cells}
        jobs = _jobs(changed, cells, texts, seed, limits, batch)
        try:
            for marked in markers.run(jobs):
                one = counting[marked.student, marked.slug]
                batch.append((marked, one.when, one.late))
                progress.advance()
                if len(batch) >= BATCH_SIZE or time.monotonic() - written > BATCH_S:
                    outcome.marked += _write(writer, batch, version)
                    written = time.monotonic()
        finally:  # stopped by Ctrl-C: what has been marked is written
            outcome.marked += _write(writer, batch, version)
    _gather(course, outcome, counting)
    return outcome


def _write(writer: Writer, batch: list[tuple[Marked, datetime | None, bool]], version: str) -> int:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        writer.write(batch, version)
    except SQLAlchemyError as error:
        first = str(error).strip().splitlines()[0]
        raise BadInput(f"the gradebook took no more marks; start again later: {first}") from None
    count = len(batch)
    batch.clear()
    return count


def version_of_course(seed: int) -> str:
    """Return what marks depend on beside the submission: checks, library, seed."""
    summed = hashlib.sha256(str(seed).encode())
    for folder in ("grader/checks", "course/compaction"):
        for path in sorted((ROOT / folder).glob("*.py")):
            summed.update(path.read_bytes())
    return summed.hexdigest()[:16]


def _cells_of_labs(writer: Writer, intake: Intake) -> dict[str, tuple[SourceCell, ...]]:
    """Return the cells of the labs that came in; submissions to a lab that is none are refused."""
    cells = {}
    for slug in dict.fromkeys(one.slug for one in intake.counting):
        try:
            cells[slug] = writer.cells_of(slug)
        except BadInput as error:
            some = [one for one in intake.counting if one.slug == slug]
            intake.refused += [Refused(o.origin, o.student, slug, str(error)) for o in some]
            intake.counting = [one for one in intake.counting if one.slug != slug]
    return cells


def _changed(
    course: Course, writer: Writer, intake: Intake, version: str, outcome: Outcome, force: bool
) -> list[HandedIn]:
    """Return what has to be marked; count what has not."""
    in_gradebook = writer.graded()
    changed = []
    for one in intake.counting:
        record = read_record(record_path(course, one.student, one.slug))
        is_graded = (
            record is not None
            and not record.reason
            and (one.student, one.slug) in in_gradebook
            and (course.autograded(one.student, one.slug) / f"{one.slug}.ipynb").is_file()
        )
        if force or record is None or not is_graded or record.digest != _digest(one.path):
            changed.append(one)
        else:
            outcome.unchanged += 1
            outcome.outdated += record.course != version
    return changed


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _jobs(
    changed: Sequence[HandedIn],
    cells: dict[str, tuple[SourceCell, ...]],
    texts: dict[str, frozenset[str]],
    seed: int,
    limits: Limits | None,
    batch: list[tuple[Marked, datetime | None, bool]],
) -> Iterator[Job]:
    """Yield the jobs, each read when somebody is free; what cannot be read goes to the batch."""
    from grader.intake import read_file

    for one in changed:
        job = Job(one.student, one.slug, b"", cells[one.slug], seed, limits, texts[one.slug])
        try:
            yield dataclasses.replace(job, data=read_file(one.path))
        except ValueError as fault:
            batch.append((unmarked(job, str(fault)), one.when, one.late))


def _gather(course: Course, outcome: Outcome, counting: dict[tuple[str, str], HandedIn]) -> None:
    """Collect the records of what was handed in, and who needs a person."""
    for student, slug in sorted(counting):
        record = read_record(record_path(course, student, slug))
        if record is None:
            outcome.needing.append((student, slug, "no record of its grading could be written"))
            continue
        outcome.records.append(record)
        for line in [record.reason] if record.reason else record.attention:
            outcome.needing.append((student, slug, line))
    for refused in outcome.intake.refused:
        who = refused.student or "nobody's"
        outcome.needing.append((who, refused.slug or refused.origin, refused.reason))


# --- the command line --------------------------------------------------------------------


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
    parser.add_argument("--isolation", default="auto", choices=("auto", *LEVELS))
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
        shown = _Progress(sys.stderr.isatty())
        outcome = autograde(
            course, writer, markers, intake, limits=limits, force=options.force, progress=shown
        )
        _write_intake(course, intake, [*roster.people] if roster else [])
        for warning in dict.fromkeys(markers.warnings):
            print(f"WARNING: {warning}", file=sys.stderr)
        print_summary(outcome, markers.level, time.monotonic() - started)
    return 1 if outcome.needing else 0


def _markers(options: argparse.Namespace) -> AbstractContextManager[Markers]:
    setting = Setting(options.isolation, options.require_sandbox)
    if options.scheduler:
        from grader.cluster import Cluster

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


class _Progress:
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
