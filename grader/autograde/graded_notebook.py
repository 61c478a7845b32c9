"""The notebook that nbgrader shows: the learner's cells, the lab's checks, their results."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from grader.autograde.results import Job, Mark, SourceCell, digest_of
from grader.autograde.safe_markdown import MAX_CHARS, pictures, safe_html
from grader.checks import CHECKS
from grader.learner.in_notebook import NOT_YET, PASSED, score_entry
from grader.notebooks.lab import LabNotebook
from grader.notebooks.write import render

RESTORED = "This cell was missing from what was handed in. Grading has put it back."


def source_of(cell: dict[str, Any]) -> str:
    """Return a cell's source, whichever way the file has it."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


MAX_RENDERED_CHARS = 60_000
"""Of all that a learner wrote as Markdown; what goes beyond it is shown as it was typed."""
FEW_WORDS = 5
"""Fewer words beside an empty answer are no answer."""


class Composer:
    """Put a graded notebook together: the learner's cells, the lab's checks, their results.

    As nbgrader does it: what is locked comes from the gradebook, of copies the last one counts,
    a graded cell that is missing comes back. Outputs are the grader's own, never the learner's.
    """

    def __init__(
        self, job: Job, lab: LabNotebook, cells: list[dict[str, Any]], marks: dict[str, Mark]
    ) -> None:
        self._job, self._lab, self._raw, self._marks = job, lab, cells, marks
        self._sources = {cell.grade_id: cell for cell in job.cells}
        self.untouched: list[str] = []
        self.answers: dict[str, str] = {}
        self.attention: list[str] = []
        self._left_chars = MAX_RENDERED_CHARS

    def notebook(self) -> str:
        """Return the notebook's text."""
        homes = self._homes()
        cells: list[dict[str, Any]] = []
        for index, raw in enumerate(self._raw):
            source = homes.get(index)
            if source is None:
                cells.append(self._own(raw))
            else:
                is_answer = source.is_graded and source.is_solution
                elsewhere = self._elsewhere(index, homes) if is_answer else []
                cells.append(self._known(raw, source, elsewhere))
        there = {source.grade_id for source in homes.values()}
        for position, source in enumerate(self._job.cells):
            if source.is_graded and source.grade_id not in there:
                cells.insert(self._place(cells, position), self._restored(source))
        for number, cell in enumerate(_with_own_ids(cells)):
            cells[number] = cell
        return render({"cells": cells})

    def _homes(self) -> dict[int, SourceCell]:
        """Return which of the lab's cells a cell is, by its position."""
        last: dict[str, int] = {}
        for index, raw in enumerate(self._raw):
            marks = (raw.get("metadata") or {}).get("nbgrader")
            grade_id = marks.get("grade_id") if isinstance(marks, dict) else None
            if isinstance(grade_id, str) and grade_id in self._sources:
                last[grade_id] = index
        for cell in self._lab.cells:  # found by what they define, where the names are gone
            if cell.grade_id in self._sources and cell.grade_id not in last:
                last[cell.grade_id] = int(cell.name.split()[1]) - 1
        return {index: self._sources[grade_id] for grade_id, index in last.items()}

    def _own(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Return a cell that belongs to the learner alone."""
        kind = "code" if raw["cell_type"] == "code" else "markdown"
        text = source_of(raw)
        if kind == "markdown" and not self._is_the_labs(text):
            text = self._shown(text, raw)
        return _cell(kind, text, raw.get("id"), {})

    def _is_the_labs(self, text: str) -> bool:
        """Return True for Markdown that is in the released lab just like this."""
        return digest_of(_text(text).encode()) in self._job.texts

    def _shown(self, text: str, raw: dict[str, Any]) -> str:
        """Return what a learner wrote as HTML that does nothing, pictures included."""
        attachments = raw.get("attachments")
        renders = self._left_chars >= len(text)
        self._left_chars -= len(text) if renders else 0
        return safe_html(
            _text(text), attachments if isinstance(attachments, dict) else {}, renders=renders
        )

    def _known(
        self, raw: dict[str, Any], source: SourceCell, elsewhere: Sequence[tuple[str, str]]
    ) -> dict[str, Any]:
        """Return a cell of the lab as the learner left it, or as it was if it is locked.

        ``elsewhere`` is what the learner wrote beside it, with where: an answer that is empty
        here may be there.
        """
        locked = source.locked or (source.is_graded and not source.is_solution)
        text = source.source if locked else source_of(raw)
        attached = raw.get("attachments")
        found = pictures(attached) if isinstance(attached, dict) and not locked else {}
        is_written = source.cell_type == "markdown" and text != source.source
        shown = self._shown(text, raw) if is_written or found else text
        is_untouched = text == source.source and not found
        is_answer = source.is_graded and source.is_solution
        if is_answer and is_untouched and elsewhere:
            is_untouched = False
            where, written = elsewhere[0]
            self.attention.append(
                f"the answer {source.grade_id} is empty, but there is text {where}: grade that"
            )
            text = f"{text}\n{written}"
            shown = f"*Found {where}:*\n\n{self._shown(written, {})}"
        if source.is_solution and is_untouched:
            self.untouched.append(source.grade_id)
        if is_answer:
            told = json.dumps(found, sort_keys=True)
            self.answers[source.grade_id] = digest_of(f"{_text(text)}\n{told}".encode())
        cell = _cell(source.cell_type, shown, raw.get("id"), _metadata(source))
        if source.cell_type == "code":
            cell["outputs"] = self._outputs(source)
        return cell

    def _elsewhere(self, index: int, homes: dict[int, SourceCell]) -> list[tuple[str, str]]:
        """Return what a learner wrote beside a cell, and where: in the question, in a cell by it.

        Beside means: no other cell of the lab that is graded or solved lies between.
        """
        found = []
        for step, where in ((1, "in a cell below it"), (-1, "in a cell above it")):
            at = index + step
            while 0 <= at < len(self._raw):
                source, text = homes.get(at), source_of(self._raw[at])
                if source is not None and (source.is_graded or source.is_solution):
                    break
                own = text.replace(source.source, "") if source is not None else text
                is_prose = self._raw[at]["cell_type"] != "code" or not _is_code(own)
                if is_prose and len(own.split()) >= FEW_WORDS and not self._is_the_labs(text):
                    found.append(("in the question" if source is not None else where, own))
                at += step
        return found

    def _restored(self, source: SourceCell) -> dict[str, Any]:
        """Return a graded cell that was missing."""
        text = source.source
        if source.is_solution:
            text = f"*{RESTORED}*\n\n{text}"
            self.answers[source.grade_id] = digest_of(b"missing")
            self.attention.append(f"the cell of the answer {source.grade_id} was missing")
        cell = _cell(source.cell_type, text, source.grade_id, _metadata(source))
        if source.cell_type == "code":
            cell["outputs"] = self._outputs(source)
        return cell

    def _place(self, cells: list[dict[str, Any]], position: int) -> int:
        """Return where a missing cell goes: behind the nearest one before it that is there."""
        for before in reversed(self._job.cells[:position]):
            for index, cell in enumerate(cells):
                if cell["metadata"].get("nbgrader", {}).get("grade_id") == before.grade_id:
                    return index + 1
        return 0

    def _outputs(self, source: SourceCell) -> list[dict[str, Any]]:
        mark = self._marks.get(source.grade_id)
        if mark is None:
            if source.grade_id != "score" or not self._marks:
                return []
            return [_stream("\n".join(self._score_lines()))]
        if mark.passed:
            return [_stream(mark.lines[0])]
        named = "CheckFailure" if mark.kind == "wrong" else "LearnerFault"
        error = {"output_type": "error", "ename": named, "evalue": mark.lines[0]}
        return [{**error, "traceback": list(mark.lines)}]

    def _score_lines(self) -> Iterator[str]:
        passed = [mark for mark in self._marks.values() if mark.passed]
        yield f"{len(passed)} of {len(self._marks)} checks passed"
        for mark in self._marks.values():
            yield from score_entry(PASSED if mark.passed else NOT_YET, CHECKS[mark.id])


def _cell(kind: str, source: str, cell_id: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    cell = {"cell_type": kind, "id": cell_id, "metadata": metadata, "source": _text(source)}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def _is_code(text: str) -> bool:
    """Return True for what Python can read, and for more than anybody answers."""
    if len(text) > MAX_CHARS:
        return True
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return True


def _text(source: str) -> str:
    """Return a text that can be written as UTF-8."""
    return source.encode(errors="replace").decode()


def _metadata(source: SourceCell) -> dict[str, Any]:
    """Return a cell's metadata as nbgrader's own release has them, whatever the learner's say."""
    marks = {
        "cell_type": source.cell_type,
        "checksum": source.checksum,
        "grade": source.is_graded,
        "grade_id": source.grade_id,
        "locked": source.locked,
        "schema_version": 3,
        "solution": source.is_solution,
        "task": False,
    }
    if source.is_graded:
        marks["points"] = source.points
    metadata: dict[str, Any] = {"deletable": False, "nbgrader": marks}
    if source.locked:
        metadata["editable"] = False
    return metadata


def _stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text + "\n"}


def _with_own_ids(cells: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the cells, each with an id that is valid and its own."""
    seen: set[str] = set()
    for number, cell in enumerate(cells):
        cell_id = cell["id"]
        fits = isinstance(cell_id, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cell_id)
        if not fits or cell_id in seen:
            cell_id = f"cell-{number}"
            while cell_id in seen:
                cell_id += "x"
        seen.add(cell_id)
        yield {**cell, "id": cell_id}
