"""The one who writes: marks into nbgrader's gradebook, notebooks into autograded/.

Exactly one process writes, many submissions in a transaction. The gradebook first, then the
graded notebook, then a record of our own that says which bytes have been graded: a run that was
killed between two of them grades this submission again and comes to the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from compaction.files import write_whole
from grader.autograde.course import Course
from grader.autograde.graded_notebook import source_of
from grader.autograde.intake.files import Refusal, read_bounded
from grader.autograde.intake.roster import Roster
from grader.autograde.records import Record, read_record, record_path
from grader.autograde.results import Marked, SourceCell, digest_of
from grader.autograde.rules import Rules
from grader.errors import BadInput

WRITE_ATTEMPTS = 8
"""Somebody else may hold the gradebook for a moment: formgrader, an export."""


# --- the course's folders ----------------------------------------------------------------


# --- our own records ---------------------------------------------------------------------


# --- the writer --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lab:
    """A lab's rows in the gradebook: ids by the cells' names."""

    assignment: str
    notebook: str
    graded: dict[str, str]
    points: dict[str, float]
    commented: dict[str, str]
    cells: tuple[SourceCell, ...]


@dataclass(frozen=True)
class _Late:
    """How late a hand-in was, and whether a rule says what that costs."""

    cause: str
    by_rule: bool

    @property
    def without_rule(self) -> str:
        """What a person is told where no rule says what being late costs."""
        return f"{self.cause}; no rule says what that costs (late = ... in course.toml)"


def _span(seconds: float) -> str:
    """Return a span of time in words.

    >>> _span(90_000), _span(30)
    ('1 d 1 h', '0 h 1 min')
    """
    minutes = int(-(-seconds // 60))
    days, hours = minutes // 1440, minutes % 1440 // 60
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min"


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
        self._labs: dict[str, _Lab] = {}

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
        cells = self._released(slug)
        return frozenset(
            digest_of(source_of(cell).encode()) for cell in cells if cell["cell_type"] == "markdown"
        )

    def graded(self) -> set[tuple[str, str]]:
        """Return which submissions (student, lab) the gradebook has marks of."""
        from nbgrader.api import Assignment, SubmittedAssignment

        rows = self._book.db.query(SubmittedAssignment.student_id, Assignment.name).join(
            Assignment, Assignment.id == SubmittedAssignment.assignment_id
        )
        found = {(str(student), str(slug)) for student, slug in rows}
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

    def write(self, batch: Sequence[tuple[Marked, datetime | None, bool]], version: str) -> None:
        """Write a batch: marked submissions, when each was handed in, and whether it is late."""
        for slug in dict.fromkeys(marked.slug for marked, _, _ in batch):
            self._lab(slug)
        before = {
            (m.student, m.slug): read_record(record_path(self.course, m.student, m.slug))
            for m, _, _ in batch
        }
        scored = [(marked, when) for marked, when, _ in batch if not marked.reason]
        overdue: dict[tuple[str, str], _Late] = {}

        def enter() -> None:
            for slug in dict.fromkeys(marked.slug for marked, _ in scored):
                some = [(marked, when) for marked, when in scored if marked.slug == slug]
                overdue.update(self._enter(self._labs[slug], some, before))

        if scored:
            self._in_one_transaction(enter)
        for marked, when, late in batch:
            if not marked.reason:
                self._write_notebook(marked, when)
            found = overdue.get((marked.student, marked.slug))
            if found is None and late:
                found = self._marked_late(marked)
            key = self.rules.key(marked.student, marked.slug, when, late)
            self._write_record(marked, version, found, key)

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

    def _lab(self, slug: str) -> _Lab:
        if slug not in self._labs:
            self._labs[slug] = self._read_lab(slug)
        return self._labs[slug]

    def _read_lab(self, slug: str) -> _Lab:
        from nbgrader.api import MissingEntry

        try:
            row = self._book.find_notebook(slug, slug)
        except MissingEntry:
            self._add_lab(slug)
            row = self._book.find_notebook(slug, slug)
        graded = {cell.name: cell for cell in row.grade_cells}
        self._apply_rules(slug, row.assignment, graded)
        solutions = {cell.name: str(cell.id) for cell in row.solution_cells}
        tasks = {cell.name: cell for cell in row.task_cells}
        order = self._order(slug)
        cells = [
            SourceCell(
                str(cell.name),
                str(cell.cell_type),
                cell.source or "",
                bool(cell.locked),
                cell.name in graded,
                cell.name in solutions,
                float(graded[cell.name].max_score) if cell.name in graded else 0.0,
                cell.checksum or "",
            )
            for cell in row.source_cells
        ]
        lab = _Lab(
            str(row.assignment.id),
            str(row.id),
            {name: str(cell.id) for name, cell in (graded | tasks).items()},
            {name: float(cell.max_score) for name, cell in graded.items()},
            solutions | {name: str(cell.id) for name, cell in tasks.items()},
            tuple(sorted(cells, key=lambda cell: (order.get(cell.grade_id, 0), cell.grade_id))),
        )
        self._book.db.rollback()
        return lab

    def _apply_rules(self, slug: str, assignment: Any, graded: dict[str, Any]) -> None:
        """Enter a lab's due date and the worth of its checks, as course.toml has them."""
        rules = self.rules.lab(slug)
        for name in rules.points.keys() - graded.keys():
            raise BadInput(f"course.toml: labs.{slug}.points.{name}: the lab has no such cell")
        if rules.due is not None:
            assignment.duedate = rules.due
        for name, worth in rules.points.items():
            graded[name].max_score = worth
        self._book.db.commit()

    def _order(self, slug: str) -> dict[str, int]:
        """Return the places of a lab's cells; the gradebook does not keep their order."""
        marks = [cell["metadata"].get("nbgrader", {}) for cell in self._released(slug)]
        return {mark["grade_id"]: place for place, mark in enumerate(marks) if "grade_id" in mark}

    def _released(self, slug: str) -> list[dict[str, Any]]:
        """Return the cells of a lab as learners get it; none where it does not lie there."""
        try:
            cells: list[dict[str, Any]] = json.loads(self.course.release(slug).read_bytes())[
                "cells"
            ]
        except (OSError, ValueError, KeyError):
            return []
        return cells

    def _add_lab(self, slug: str) -> None:
        """Enter a lab as nbgrader's own generate_assignment does, from what it released."""
        import nbformat
        from nbgrader.preprocessors import SaveCells

        path = self.course.release(slug)
        if not path.is_file():
            expected = "expected the released lab; run python -m grader build"
            raise BadInput(f"{path}: not there; {expected}")
        self._book.update_or_create_assignment(slug)
        self._book.db.commit()
        told = {"notebook": slug, "assignment": slug, "db_url": self.course.db_url}
        notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
        SaveCells(config=self.course.config).preprocess(notebook, {"nbgrader": told})
        self._book.db.expire_all()

    def _enter(
        self,
        lab: _Lab,
        batch: Sequence[tuple[Marked, datetime | None]],
        before: dict[tuple[str, str], Record | None],
    ) -> dict[tuple[str, str], _Late]:
        """Enter marks and comments of one lab; what a person has given stays as it is.

        Return which submissions (student, lab) came after the lab's due date.
        """
        from nbgrader.api import Comment, Grade

        db = self._book.db
        books = self._submissions(lab, batch)
        grades = self._rows(Grade, books.values(), lab.graded)
        comments = self._rows(Comment, books.values(), lab.commented)
        for marked, _ in batch:
            book = books[marked.student]
            passed = {mark.id: mark.passed for mark in marked.marks}
            earlier = before[marked.student, marked.slug]
            for name, cell in lab.graded.items():
                row = grades[book, cell]
                values: dict[str, Any] = {}
                if name in passed:
                    counts = self.rules.partial_credit or all(passed.values())
                    values["auto_score"] = lab.points[name] if passed[name] and counts else 0.0
                    # A person's mark of a check stands, and is looked at again when it changes.
                    changed = row.auto_score != values["auto_score"]
                    by_hand = row.manual_score is not None
                    values["needs_manual_grade"] = by_hand and (
                        changed or bool(row.needs_manual_grade)
                    )
                else:
                    is_empty = name in marked.untouched
                    values["auto_score"] = 0.0 if is_empty else None
                    if row.manual_score is None:
                        values["needs_manual_grade"] = not is_empty
                    elif not self._is_same_answer(name, marked, earlier):
                        values["needs_manual_grade"] = True
                for column, value in values.items():
                    setattr(row, column, value)
            for name, cell in lab.commented.items():
                note = "No response." if name in marked.untouched else None
                comments[book, cell].auto_comment = note
        db.flush()
        return self._give_penalties(batch)

    def _is_same_answer(self, name: str, marked: Marked, earlier: Record | None) -> bool:
        """Say whether an answer is the one that a person has graded already."""
        return earlier is not None and (earlier.answers or {}).get(name) == marked.answers.get(name)

    def _submissions(
        self, lab: _Lab, batch: Sequence[tuple[Marked, datetime | None]]
    ) -> dict[str, str]:
        """Return each student's row of this lab's notebook; make what is missing."""
        from nbgrader.api import Student, SubmittedAssignment, SubmittedNotebook
        from sqlalchemy import insert, select, update

        db = self._book.db
        students = [marked.student for marked, _ in batch]
        known = set(db.scalars(select(Student.id).where(Student.id.in_(students))))
        new = [{"id": student} for student in dict.fromkeys(students) if student not in known]
        if new:
            db.execute(insert(Student), new)
        rows = {
            student: (row, when)
            for row, student, when in db.execute(
                select(
                    SubmittedAssignment.id,
                    SubmittedAssignment.student_id,
                    SubmittedAssignment.timestamp,
                ).where(
                    SubmittedAssignment.assignment_id == lab.assignment,
                    SubmittedAssignment.student_id.in_(students),
                )
            )
        }
        for marked, when in batch:
            if marked.student not in rows:
                row = _new_id()
                values = {"id": row, "assignment_id": lab.assignment, "student_id": marked.student}
                db.execute(insert(SubmittedAssignment), [{**values, "timestamp": when}])
                rows[marked.student] = row, when
            elif when is not None and rows[marked.student][1] != when:
                found = SubmittedAssignment.id == rows[marked.student][0]
                db.execute(update(SubmittedAssignment).where(found).values(timestamp=when))
        owners = {row: student for student, (row, _) in rows.items()}
        books = {
            owners[owner]: book
            for book, owner in db.execute(
                select(SubmittedNotebook.id, SubmittedNotebook.assignment_id).where(
                    SubmittedNotebook.notebook_id == lab.notebook,
                    SubmittedNotebook.assignment_id.in_(owners),
                )
            )
        }
        for student, (row, _) in rows.items():
            if student not in books:
                book = _new_id()
                values = {"id": book, "notebook_id": lab.notebook, "assignment_id": row}
                db.execute(insert(SubmittedNotebook), [{**values, "flagged": False}])
                books[student] = book
        return books

    def _rows(self, table: Any, books: Iterable[str], cells: dict[str, str]) -> dict[Any, Any]:
        """Return the rows of grades or comments by notebook and cell; make what is missing."""
        books = list(books)
        db = self._book.db
        found = {
            (row.notebook_id, row.cell_id): row
            for row in db.query(table).filter(table.notebook_id.in_(books))
        }
        for book in books:
            for cell in cells.values():
                if (book, cell) not in found:
                    row = table(id=_new_id(), notebook_id=book, cell_id=cell)
                    db.add(row)
                    found[book, cell] = row
        db.flush()
        return found

    def _give_penalties(
        self, batch: Sequence[tuple[Marked, datetime | None]]
    ) -> dict[tuple[str, str], _Late]:
        """Let course.toml say what being late costs, else nbgrader's own plugin."""
        from nbgrader.preprocessors.latesubmissions import AssignLatePenalties

        dated = [marked for marked, when in batch if when is not None]
        overdue: dict[tuple[str, str], _Late] = {}
        if not dated:
            return overdue
        plugin = AssignLatePenalties(config=self.course.config)
        plugin.init_plugin()
        for marked in dated:
            submission = self._book.find_submission(marked.slug, marked.student)
            submission.extension = self.rules.extension(marked.student, marked.slug)
            late_s = submission.total_seconds_late
            cost, by_rule = 0.0, self.rules.penalty(marked.slug, 0.0, 0.0) is not None
            for book in submission.notebooks:
                book.late_submission_penalty = None
                penalty = self.rules.penalty(marked.slug, book.score, late_s)
                if late_s > 0 and penalty is None:
                    penalty = plugin.plugin_inst.late_submission_penalty(
                        marked.student, book.score, late_s
                    )
                    by_rule = by_rule or penalty is not None
                if late_s > 0 and penalty is not None:
                    book.late_submission_penalty = plugin._check_late_penalty(book, penalty)
                    cost += book.late_submission_penalty
            if late_s > 0:
                told = f"{_span(late_s)} late" + (f", {cost:g} points off" if cost else "")
                overdue[marked.student, marked.slug] = _Late(told, by_rule)
        return overdue

    def _marked_late(self, marked: Marked) -> _Late:
        """Take the platform's word that a hand-in was late; it does not say by how much."""
        rule = self.rules.lab(marked.slug).late
        if rule == "zero" and not marked.reason:

            def enter() -> None:
                for book in self._book.find_submission(marked.slug, marked.student).notebooks:
                    book.late_submission_penalty = book.score

            self._in_one_transaction(enter)
        return _Late("late, says the platform, but not by how much", rule in ("none", "zero"))

    # Files.

    def _write_notebook(self, marked: Marked, when: datetime | None) -> None:
        folder = self.course.autograded(marked.student, marked.slug)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{marked.slug}.ipynb"
        write_whole(path, marked.notebook, mode=0o444)
        # As nbgrader does: what its feedback needs lies beside the graded notebook.
        submitted = self.course.submitted(marked.student, marked.slug)
        for name in ("timestamp.txt", "submission_secret.txt"):
            try:
                write_whole(folder / name, read_bounded(submitted / name)[:10_000])
            except Refusal:
                (folder / name).unlink(missing_ok=True)
        if when is not None and not (folder / "timestamp.txt").exists():
            write_whole(folder / "timestamp.txt", f"{when:%Y-%m-%d %H:%M:%S.%f} UTC\n")

    def _write_record(self, marked: Marked, version: str, late: _Late | None, rules: str) -> None:
        path = record_path(self.course, marked.student, marked.slug)
        path.parent.mkdir(parents=True, exist_ok=True)
        record = Record(
            marked.student,
            marked.slug,
            marked.digest,
            version,
            marked.marks,
            {name: d for name, d in marked.answers.items() if name not in marked.untouched},
            marked.problems,
            (*marked.attention, *([late.without_rule] if late and not late.by_rule else [])),
            marked.reason,
            late is not None,
            late.cause if late else "",
            rules,
        )
        write_whole(path, record.text().encode())


def _new_id() -> str:
    from nbgrader.api import new_uuid

    return str(new_uuid())


def _without_password(url: str) -> str:
    before, at, place = url.rpartition("@")
    return f"{before.partition('://')[0]}://…@{place}" if at else url
