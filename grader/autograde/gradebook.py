"""The one who writes: marks into nbgrader's gradebook, notebooks into autograded/.

Exactly one process writes, many submissions in a transaction. The gradebook first, then the
graded notebook, then a record of our own that says which bytes have been graded: a run that was
killed between two of them grades this submission again and comes to the same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from compaction.files import write_whole
from grader.autograde.course import Course
from grader.autograde.intake.files import Refusal, read_bounded
from grader.autograde.intake.roster import Roster
from grader.autograde.lab_rows import Lab, read_lab, texts_of
from grader.autograde.lateness import Late, give_penalties
from grader.autograde.records import Record, read_record, record_path
from grader.autograde.results import GradedSubmission, SourceCell
from grader.autograde.rules import Rules
from grader.errors import BadInput

WRITE_ATTEMPTS = 8
"""Somebody else may hold the gradebook for a moment: formgrader, an export."""

Entry = tuple[GradedSubmission, datetime | None, bool]
"""What is written of a hand-in: the result, when it came, whether the platform says it is late."""


class Writer:
    """Write marks into the gradebook and notebooks into autograded/. Close it at the end."""

    def __init__(self, course: Course, rules: Rules | None = None) -> None:
        from nbgrader.api import Gradebook

        from grader.build.command import own_commands_first

        self.course = course
        self.rules = rules or Rules()
        if course.db_url.startswith("sqlite:///"):
            Path(course.db_url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        try:
            with own_commands_first():
                self._book = Gradebook(course.db_url, course.course_id)
        except Exception as error:
            first = str(error).strip().splitlines()
            shown = first[0] if first else type(error).__name__
            raise BadInput(f"{_without_password(course.db_url)}: no gradebook: {shown}") from None
        self._labs: dict[str, Lab] = {}

    def close(self) -> None:
        """Close the gradebook."""
        self._book.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def cells_of(self, slug: str) -> tuple[SourceCell, ...]:
        """Return a lab's cells as the gradebook has them, in the lab's order.

        A lab that the gradebook does not know yet is entered from its released notebook. Raises
        BadInput when there is none.
        """
        return self._lab(slug).cells

    def texts_of(self, slug: str) -> frozenset[str]:
        """Return digests of the lab's own Markdown cells, hints and all."""
        return texts_of(self.course.release(slug))

    def graded(self) -> set[tuple[str, str]]:
        """Return which submissions (student, lab) the gradebook has marks of."""
        from nbgrader.api import Assignment, SubmittedAssignment

        rows = self._book.db.query(SubmittedAssignment.student_id, Assignment.name).join(
            Assignment, Assignment.id == SubmittedAssignment.assignment_id
        )
        found = {(str(student), str(slug)) for student, slug in rows}
        self._book.db.rollback()
        return found

    def waiting(self) -> Counter[str]:
        """Return how many answers of each lab wait to be graded by hand."""
        from nbgrader.api import Assignment, Grade, SubmittedAssignment, SubmittedNotebook

        rows = (
            self._book.db.query(Assignment.name)
            .select_from(Grade)
            .join(SubmittedNotebook, SubmittedNotebook.id == Grade.notebook_id)
            .join(SubmittedAssignment, SubmittedAssignment.id == SubmittedNotebook.assignment_id)
            .join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
            .filter(Grade.needs_manual_grade.is_(True))
        )
        found = Counter(str(slug) for (slug,) in rows)
        self._book.db.rollback()
        return found

    def enrol(self, roster: Roster) -> None:
        """Enter the people of a roster, their names and addresses."""
        from nbgrader.api import Student

        def enter() -> None:
            rows = {row.id: row for row in self._book.db.query(Student)}
            for person in roster.people.values():
                student = rows.get(person.student) or Student(id=person.student)
                student.first_name = person.first_name[:128] or student.first_name
                student.last_name = person.last_name[:128] or student.last_name
                student.email = person.email[:128] or student.email
                self._book.db.add(student)

        self._in_one_transaction(enter)

    def write(self, batch: Sequence[Entry], version: str) -> None:
        """Write a batch: graded submissions, when each was handed in, and whether it is late."""
        for slug in dict.fromkeys(graded.slug for graded, _, _ in batch):
            self._lab(slug)
        before = {
            (g.student, g.slug): read_record(record_path(self.course, g.student, g.slug))
            for g, _, _ in batch
        }
        scored = [entry for entry in batch if not entry[0].reason]
        late: dict[tuple[str, str], Late] = {}

        def enter() -> None:
            for slug in dict.fromkeys(graded.slug for graded, _, _ in scored):
                some = [entry for entry in scored if entry[0].slug == slug]
                self._enter(self._labs[slug], some, before)
                late.update(give_penalties(self._book, self.course, self.rules, some))

        if scored:
            self._in_one_transaction(enter)
        for graded, when, is_late in batch:
            if not graded.reason:
                self._write_notebook(graded, when)
            key = self.rules.key(graded.student, graded.slug, when, is_late)
            self._write_record(graded, version, late.get((graded.student, graded.slug)), key)

    # The gradebook.

    def _in_one_transaction(self, enter: Callable[[], None]) -> None:
        from sqlalchemy.exc import OperationalError

        for attempt in range(1, WRITE_ATTEMPTS + 1):
            try:
                enter()
                self._book.db.commit()
                return
            except OperationalError:
                self._book.db.rollback()
                if attempt == WRITE_ATTEMPTS:
                    raise
                time.sleep(0.2 * attempt)
            except BaseException:
                self._book.db.rollback()
                raise

    def _lab(self, slug: str) -> Lab:
        if slug not in self._labs:
            self._labs[slug] = read_lab(self._book, self.course, self.rules, slug)
        return self._labs[slug]

    def _enter(
        self, lab: Lab, batch: Sequence[Entry], before: dict[tuple[str, str], Record | None]
    ) -> None:
        """Enter marks and comments of one lab; what a person has given stays as it is."""
        from nbgrader.api import Comment, Grade

        books = self._books(lab, batch)
        grades = self._rows(Grade, books.values(), lab.graded)
        comments = self._rows(Comment, books.values(), lab.commented)
        for graded, _, _ in batch:
            book = books[graded.student]
            passed = {mark.id: mark.passed for mark in graded.marks}
            for name, cell in lab.graded.items():
                row = grades[book, cell]
                if name in passed:
                    counts = self.rules.partial_credit or all(passed.values())
                    _enter_check(row, lab.points[name] if passed[name] and counts else 0.0)
                else:
                    is_same = _is_same_answer(name, graded, before[graded.student, graded.slug])
                    _enter_answer(row, name in graded.untouched, is_same)
            for name, cell in lab.commented.items():
                note = "No response." if name in graded.untouched else None
                comments[book, cell].auto_comment = note
        self._book.db.flush()

    def _books(self, lab: Lab, batch: Sequence[Entry]) -> dict[str, str]:
        """Return the id of each student's notebook of this lab, and enter when it came."""
        from nbgrader.api import Student, SubmittedAssignment, SubmittedNotebook
        from sqlalchemy import update

        db = self._book.db
        students = [graded.student for graded, _, _ in batch]
        ids_of(db, Student, {}, "id", students)
        rows = ids_of(
            db, SubmittedAssignment, {"assignment_id": lab.assignment}, "student_id", students
        )
        for graded, when, _ in batch:
            if when is not None:
                mine = SubmittedAssignment.id == rows[graded.student]
                db.execute(update(SubmittedAssignment).where(mine).values(timestamp=when))
        books = ids_of(
            db, SubmittedNotebook, {"notebook_id": lab.notebook}, "assignment_id", rows.values()
        )
        return {student: books[row] for student, row in rows.items()}

    def _rows(self, table: Any, books: Iterable[str], cells: dict[str, str]) -> dict[Any, Any]:
        """Return the rows of grades or comments by notebook and cell."""
        books = list(books)
        for cell in cells.values():
            ids_of(self._book.db, table, {"cell_id": cell}, "notebook_id", books)
        rows = self._book.db.query(table).filter(table.notebook_id.in_(books))
        return {(row.notebook_id, row.cell_id): row for row in rows}

    # Files.

    def _write_notebook(self, graded: GradedSubmission, when: datetime | None) -> None:
        folder = self.course.autograded(graded.student, graded.slug)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{graded.slug}.ipynb"
        write_whole(path, graded.notebook, mode=0o444)
        # As nbgrader does: what its feedback needs lies beside the graded notebook.
        submitted = self.course.submitted(graded.student, graded.slug)
        for name in ("timestamp.txt", "submission_secret.txt"):
            try:
                write_whole(folder / name, read_bounded(submitted / name)[:10_000])
            except Refusal:
                (folder / name).unlink(missing_ok=True)
        if when is not None and not (folder / "timestamp.txt").exists():
            write_whole(folder / "timestamp.txt", f"{when:%Y-%m-%d %H:%M:%S.%f} UTC\n")

    def _write_record(
        self, graded: GradedSubmission, version: str, late: Late | None, rules: str
    ) -> None:
        path = record_path(self.course, graded.student, graded.slug)
        path.parent.mkdir(parents=True, exist_ok=True)
        record = Record(
            graded.student,
            graded.slug,
            graded.digest,
            version,
            graded.marks,
            {name: d for name, d in graded.answers.items() if name not in graded.untouched},
            graded.problems,
            (*graded.attention, *([late.without_rule] if late and not late.by_rule else [])),
            graded.reason,
            late is not None,
            late.cause if late else "",
            rules,
        )
        write_whole(path, record.text().encode())


def ids_of(
    db: Any, table: Any, given: dict[str, str], column: str, wanted: Iterable[str]
) -> dict[str, str]:
    """Return the ids of a table's rows by the values of a column; make the rows that are missing.

    ``given`` are the columns that all of them have in common.
    """
    from sqlalchemy import insert, select

    wanted = list(dict.fromkeys(wanted))
    key = getattr(table, column)
    asked = select(key, table.id).filter_by(**given).where(key.in_(wanted))
    found = {str(value): str(row) for value, row in db.execute(asked)}
    missing = [{**given, column: value} for value in wanted if value not in found]
    if missing:
        db.execute(insert(table), missing)
        found = {str(value): str(row) for value, row in db.execute(asked)}
    return found


def _enter_check(row: Any, score: float) -> None:
    """Enter a check's points; a person's mark stands, and is looked at again when they change."""
    by_hand = row.manual_score is not None
    is_changed = row.auto_score != score
    row.auto_score = score
    row.needs_manual_grade = by_hand and (is_changed or bool(row.needs_manual_grade))


def _enter_answer(row: Any, is_empty: bool, is_same: bool) -> None:
    """Enter that an answer waits for a person, unless it is empty or has been graded already."""
    row.auto_score = 0.0 if is_empty else None
    if row.manual_score is None:
        row.needs_manual_grade = not is_empty
    elif not is_same:
        row.needs_manual_grade = True


def _is_same_answer(name: str, graded: GradedSubmission, earlier: Record | None) -> bool:
    return earlier is not None and (earlier.answers or {}).get(name) == graded.answers.get(name)


def _without_password(url: str) -> str:
    before, at, place = url.rpartition("@")
    return f"{before.partition('://')[0]}://…@{place}" if at else url
