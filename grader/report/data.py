"""What the report is about: records, scores, and who needs a person."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from grader.autograde.course import Course
from grader.autograde.ledger import Ledger, read_ledger
from grader.autograde.records import Record, records_of
from grader.autograde.results import Mark
from grader.autograde.rules import read_rules
from grader.checks import CHECKS
from grader.errors import BadInput
from grader.exercises import SLUGS

WORDS = {"passed": "passed", "wrong": "wrong answer", "raised": "exception", "stopped": "no answer"}
"""The result of a check, as the page says it."""


@dataclass(frozen=True)
class Score:
    """What the gradebook says about one graded cell; ``by_hand`` when a person has graded it."""

    score: float
    max_score: float
    waits: bool
    by_hand: bool


@dataclass
class Class:
    """Everything about a class: records, scores by (student, lab, cell), and who needs a person.

    ``weights`` are those of labs in a total, ``penalties`` what being late costs by (student, lab).
    """

    records: list[Record]
    scores: dict[tuple[str, str, str], Score]
    ledger: Ledger = field(default_factory=Ledger)
    weights: dict[str, float] = field(default_factory=dict)
    penalties: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def students(self) -> list[str]:
        """Everybody who is in the roster, handed in, or has a score."""
        known = {record.student for record in self.records} | set(self.ledger.people)
        known |= {one.student for one in self.ledger.refused if one.student}
        return sorted(known | {student for student, _, _ in self.scores}, key=str.casefold)

    @property
    def slugs(self) -> list[str]:
        """The labs that somebody handed in, in the course's order."""
        there = {record.slug for record in self.records}
        there |= {one.slug for one in self.ledger.refused}
        return [slug for slug in SLUGS.values() if slug in there]


def read_class(course: Course) -> Class:
    """Read a class's records and scores.

    Raises BadInput when nothing has been graded yet.
    """
    records = list(records_of(course))
    ledger = read_ledger(course)
    if not records and not ledger.refused:
        raise BadInput(f"{course.records}: nothing graded yet; run python -m grader autograde")
    rules = read_rules(course.classroom)
    weights = {slug: lab.weight for slug, lab in rules.labs.items()}
    return Class(records, _scores(course), ledger, weights, _penalties(course))


def _scores(course: Course) -> dict[tuple[str, str, str], Score]:
    from nbgrader.api import (
        Assignment,
        Grade,
        Gradebook,
        GradeCell,
        SubmittedAssignment,
        SubmittedNotebook,
    )

    with Gradebook(course.db_url, course.course_id) as book:
        rows = (
            book.db.query(
                SubmittedAssignment.student_id,
                Assignment.name,
                GradeCell.name,
                Grade.score,
                GradeCell.max_score,
                Grade.needs_manual_grade,
                Grade.manual_score,
            )
            .select_from(Grade)
            .join(GradeCell, GradeCell.id == Grade.cell_id)
            .join(SubmittedNotebook, SubmittedNotebook.id == Grade.notebook_id)
            .join(SubmittedAssignment, SubmittedAssignment.id == SubmittedNotebook.assignment_id)
            .join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
        )
        return {
            (student, slug, name): Score(
                score or 0.0, most or 0.0, bool(waits), by_hand is not None
            )
            for student, slug, name, score, most, waits, by_hand in rows
        }


def _penalties(course: Course) -> dict[tuple[str, str], float]:
    from nbgrader.api import Assignment, Gradebook, SubmittedAssignment, SubmittedNotebook

    with Gradebook(course.db_url, course.course_id) as book:
        rows = (
            book.db.query(
                SubmittedAssignment.student_id,
                Assignment.name,
                SubmittedNotebook.late_submission_penalty,
            )
            .select_from(SubmittedNotebook)
            .join(SubmittedAssignment, SubmittedAssignment.id == SubmittedNotebook.assignment_id)
            .join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
        )
        return {(student, slug): penalty for student, slug, penalty in rows if penalty}


def without_names(known: Class) -> Class:
    """Return the same class with numbers for names, in an order that says nothing.

    Notes and the names of files are left out: people's names are in them.
    """
    mixed = sorted(known.students, key=lambda name: hashlib.sha256(name.encode()).digest())
    width = len(str(len(mixed)))
    names = {student: f"learner {n:0{width}}" for n, student in enumerate(mixed, 1)}

    def renamed(record: Record) -> Record:
        return Record(**{**vars(record), "student": names[record.student]})

    ledger = Ledger(
        [
            replace(one, student=names.get(one.student, ""), origin="a file", held=False)
            for one in known.ledger.refused
        ],
        older=known.ledger.older,
        people={names[student]: "" for student in known.ledger.people},
    )
    return Class(
        [renamed(record) for record in known.records],
        {(names[who], slug, cell): s for (who, slug, cell), s in known.scores.items()},
        ledger,
        known.weights,
        {(names[who], slug): penalty for (who, slug), penalty in known.penalties.items()},
    )


def needing(known: Class) -> Iterator[tuple[str, str, str]]:
    """Yield what needs a person: who, what, why. What is held or refused comes first."""
    for one in known.ledger.refused:
        yield one.student or "nobody's", one.slug or one.origin, one.line
    for record in known.records:
        for line in [record.reason] if record.reason else record.attention:
            yield record.student, record.slug, line


def is_missing(known: Class, student: str, slug: str) -> bool:
    """Return True if nothing at all is there of somebody that could be this lab.

    While a file waits to be told whose it is, nobody is said not to have handed in.
    """
    return not any(
        one.student in ("", student) and one.slug in ("", slug) for one in known.ledger.refused
    )


def waiting(known: Class) -> Counter[tuple[str, str]]:
    """Return how many answers wait to be graded by hand, by lab and cell."""
    return Counter((slug, cell) for (_, slug, cell), s in known.scores.items() if s.waits)


def known_mistakes(known: Class) -> dict[tuple[str, str], list[str]]:
    """Return who made each known mistake: students by (check, why), the most frequent first."""
    caught: dict[tuple[str, str], list[str]] = defaultdict(list)
    for record in known.records:
        for mark in record.marks:
            if mark.why:
                caught[mark.id, mark.why].append(record.student)
    return dict(sorted(caught.items(), key=lambda item: (-len(item[1]), item[0])))


def outcomes(known: Class) -> dict[str, dict[str, list[tuple[str, Mark]]]]:
    """Return who came to what, by check and kind, in the order of the course."""
    found: dict[str, dict[str, list[tuple[str, Mark]]]] = {}
    for check in CHECKS.values():
        for record in known.records:
            for mark in record.marks:
                if mark.id == check.id:
                    kinds = found.setdefault(check.id, defaultdict(list))
                    kinds[mark.kind].append((record.student, mark))
    return found


def totals(known: Class) -> dict[tuple[str, str], tuple[float, float]]:
    """Return points and the most that were possible, by (student, lab), penalties taken off."""
    totals: dict[tuple[str, str], tuple[float, float]] = {}
    for (student, slug, _), score in known.scores.items():
        before = totals.get((student, slug), (0.0, 0.0))
        totals[student, slug] = before[0] + score.score, before[1] + score.max_score
    return {
        place: (max(0.0, points - known.penalties.get(place, 0.0)), most)
        for place, (points, most) in totals.items()
    }
