"""Grade a class: take in what was handed in, grade each notebook in a sandbox, write the gradebook.

    python -m grader autograde grader/classroom/submitted

Every submission ends in a grade or in a reason with its name. What is graded already and has not
changed is left alone, so a run that was stopped, even by force, goes on when it is started again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from grader.autograde.course import Course
from grader.autograde.gradebook import Writer
from grader.autograde.intake.decide import Refused
from grader.autograde.intake.files import read_file
from grader.autograde.intake.take_in import HandedIn, Intake
from grader.autograde.records import Record, read_record, record_path
from grader.autograde.results import GradedSubmission, Job, SourceCell, ungraded, version_of_course
from grader.errors import BadInput

if TYPE_CHECKING:
    from grader.sandbox import Limits

BATCH_SIZE = 24
BATCH_S = 3.0
"""Marks are written after so many submissions or seconds, whichever comes first."""


class Progress(Protocol):
    """Whoever shows how far it is."""

    def over(self, total: int) -> AbstractContextManager[Any]:
        """Show the bar over this many submissions."""
        ...

    def advance(self) -> None:
        """One more is done."""
        ...


class Graders(Protocol):
    """Processes of this machine, or a cluster."""

    def run(self, jobs: Iterable[Job]) -> Iterator[GradedSubmission]:
        """Yield the result of each job, in any order."""
        ...


@dataclass
class Outcome:
    """The result of a run: submissions graded now and left alone, and who needs a person.

    ``levels`` are the isolation in force by worker, ``warnings`` what workers said, ``by_hand``
    the answers of each lab that wait for a person.
    """

    intake: Intake
    graded: int = 0
    unchanged: int = 0
    outdated: int = 0
    needing: list[tuple[str, str, str]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    by_hand: Counter[str] = field(default_factory=Counter)
    levels: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def hear(self, graded: GradedSubmission) -> None:
        """Note the level at which a worker graded, and what its sandbox had to say."""
        if graded.level:
            self.levels[graded.worker] = graded.level
        for warning in graded.warnings:
            self.warnings[f"{graded.worker}: {warning}" if graded.worker else warning] = None


# --- grading -----------------------------------------------------------------------------


def autograde(
    course: Course,
    writer: Writer,
    graders: Graders,
    intake: Intake,
    *,
    limits: Limits | None = None,
    force: bool = False,
    progress: Progress,
) -> Outcome:
    """Grade what has changed, write it, and return the result of everything that was handed in."""
    seed, outcome = course.seed(), Outcome(intake)
    version = version_of_course(seed)
    cells = _cells_of_labs(writer, intake)
    counting = {(one.student, one.slug): one for one in intake.counting}
    changed = _changed(course, writer, intake, version, outcome, force)
    batch: list[tuple[GradedSubmission, datetime | None, bool]] = []
    with progress.over(len(changed)):
        written = time.monotonic()
        texts = {slug: writer.texts_of(slug) for slug in cells}
        jobs = _jobs(changed, cells, texts, seed, limits, batch)
        try:
            for graded in graders.run(jobs):
                one = counting[graded.student, graded.slug]
                batch.append((graded, one.when, one.late))
                progress.advance()
                outcome.hear(graded)
                if len(batch) >= BATCH_SIZE or time.monotonic() - written > BATCH_S:
                    outcome.graded += _write(writer, batch, version)
                    written = time.monotonic()
        finally:  # stopped by Ctrl-C: what has been graded is written
            outcome.graded += _write(writer, batch, version)
    _gather(course, outcome, counting)
    outcome.by_hand = writer.waiting()
    return outcome


def _write(
    writer: Writer, batch: list[tuple[GradedSubmission, datetime | None, bool]], version: str
) -> int:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        writer.write(batch, version)
    except SQLAlchemyError as error:
        first = str(error).strip().splitlines()[0]
        raise BadInput(f"the gradebook took no more marks; start again later: {first}") from None
    count = len(batch)
    batch.clear()
    return count


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
    """Return what has to be graded; count what has not."""
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
        rules = writer.rules.key(one.student, one.slug, one.when, one.late)
        is_same = is_graded and record is not None and record.rules == rules
        if force or record is None or not is_same or record.digest != _digest(one.path):
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
    batch: list[tuple[GradedSubmission, datetime | None, bool]],
) -> Iterator[Job]:
    """Yield the jobs, each read when somebody is free; what cannot be read goes to the batch."""
    for one in changed:
        job = Job(one.student, one.slug, b"", cells[one.slug], seed, limits, texts[one.slug])
        try:
            yield dataclasses.replace(job, data=read_file(one.path))
        except ValueError as fault:
            batch.append((ungraded(job, str(fault)), one.when, one.late))


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
        outcome.needing.append((who, refused.slug or "no lab", refused.line))
