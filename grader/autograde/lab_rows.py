"""A lab as nbgrader's gradebook has it: its cells, their worth, the ids of its rows.

A lab that the gradebook does not know yet is entered from its released notebook, as nbgrader's own
generate_assignment does it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.autograde.course import Course
from grader.autograde.graded_notebook import source_of
from grader.autograde.results import SourceCell, digest_of
from grader.autograde.rules import Rules
from grader.errors import BadInput


@dataclass(frozen=True)
class Lab:
    """A lab's rows in the gradebook: ids by the cells' names."""

    assignment: str
    notebook: str
    graded: dict[str, str]
    points: dict[str, float]
    commented: dict[str, str]
    cells: tuple[SourceCell, ...]


def read_lab(book: Any, course: Course, rules: Rules, slug: str) -> Lab:
    """Return a lab of an open gradebook; enter it from its release where it is not there yet.

    Raises BadInput when there is no released notebook of it.
    """
    from nbgrader.api import MissingEntry

    try:
        row = book.find_notebook(slug, slug)
    except MissingEntry:
        _add_lab(book, course, slug)
        row = book.find_notebook(slug, slug)
    graded = {cell.name: cell for cell in row.grade_cells}
    _apply_rules(book, rules, slug, row.assignment, graded)
    solutions = {cell.name: str(cell.id) for cell in row.solution_cells}
    tasks = {cell.name: cell for cell in row.task_cells}
    released = released_cells(course.release(slug))
    lab = Lab(
        str(row.assignment.id),
        str(row.id),
        {name: str(cell.id) for name, cell in (graded | tasks).items()},
        {name: float(cell.max_score) for name, cell in graded.items()},
        solutions | {name: str(cell.id) for name, cell in tasks.items()},
        source_cells(row, released),
    )
    book.db.rollback()
    return lab


def source_cells(row: Any, released: list[dict[str, Any]]) -> tuple[SourceCell, ...]:
    """Return the cells of a notebook's row in the gradebook, in the order of the released lab.

    The gradebook itself does not keep their order.
    """
    marks = [cell["metadata"].get("nbgrader", {}) for cell in released]
    order = {mark["grade_id"]: place for place, mark in enumerate(marks) if "grade_id" in mark}
    points = {cell.name: float(cell.max_score) for cell in row.grade_cells}
    solutions = {cell.name for cell in row.solution_cells}
    cells = [
        SourceCell(
            str(cell.name),
            str(cell.cell_type),
            cell.source or "",
            bool(cell.locked),
            cell.name in points,
            cell.name in solutions,
            points.get(cell.name, 0.0),
            cell.checksum or "",
        )
        for cell in row.source_cells
    ]
    return tuple(sorted(cells, key=lambda cell: (order.get(cell.grade_id, 0), cell.grade_id)))


def released_cells(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a lab as learners get it; none where it is not there."""
    try:
        cells: list[dict[str, Any]] = json.loads(path.read_bytes())["cells"]
    except (OSError, ValueError, KeyError):
        return []
    return cells


def texts_of(path: Path) -> frozenset[str]:
    """Return digests of a released lab's own Markdown cells, hints and all."""
    cells = released_cells(path)
    return frozenset(
        digest_of(source_of(cell).encode()) for cell in cells if cell["cell_type"] == "markdown"
    )


def _apply_rules(
    book: Any, rules: Rules, slug: str, assignment: Any, graded: dict[str, Any]
) -> None:
    """Enter a lab's due date and the worth of its checks, as course.toml has them."""
    lab = rules.lab(slug)
    for name in lab.points.keys() - graded.keys():
        raise BadInput(f"course.toml: labs.{slug}.points.{name}: the lab has no such cell")
    if lab.due is not None:
        assignment.duedate = lab.due
    for name, worth in lab.points.items():
        graded[name].max_score = worth
    book.db.commit()


def _add_lab(book: Any, course: Course, slug: str) -> None:
    import nbformat
    from nbgrader.preprocessors import SaveCells

    path = course.release(slug)
    if not path.is_file():
        expected = "expected the released lab; run python -m grader build"
        raise BadInput(f"{path}: not there; {expected}")
    book.update_or_create_assignment(slug)
    book.db.commit()
    told = {"notebook": slug, "assignment": slug, "db_url": course.db_url}
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    SaveCells(config=course.config).preprocess(notebook, {"nbgrader": told})
    book.db.expire_all()
