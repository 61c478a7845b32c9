"""Mark one submission: its checks in the sandbox, and the notebook that nbgrader shows of it.

It needs the notebook's bytes, what the gradebook says about the lab's cells, and a sandbox; no
gradebook and no nbgrader. So the same function marks in a process beside the writer's, and on
another machine. Everything that comes back is plain data.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.checks import CHECKS, Check, Result
from grader.feedback import NOT_YET, PASSED, printable, score_entry
from grader.intake import fault_of, filling_fault
from grader.notebooks.lab import Cell, LabNotebook, NotebookError, read_notebook
from grader.notebooks.write import render

if TYPE_CHECKING:
    from grader.sandbox import Limits, Sandbox

MAX_SOURCE_CHARS = 1_000_000
"""More code than this is no lab; a lab has a fiftieth of it."""
TRACE_LINES = 60
"""More lines of a learner's traceback are cut in the middle."""

RESTORED = "This cell was missing from what was handed in. Grading has put it back."


@dataclass(frozen=True)
class SourceCell:
    """What the gradebook says about one of a lab's cells. ``points`` is 0 where none are given."""

    grade_id: str
    cell_type: str
    source: str
    locked: bool
    is_graded: bool
    is_solution: bool
    points: float
    checksum: str


@dataclass(frozen=True)
class Job:
    """A submission to mark. ``texts`` are digests of the lab's own Markdown cells."""

    student: str
    slug: str
    data: bytes
    cells: tuple[SourceCell, ...]
    seed: int
    limits: Limits | None = None
    texts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Mark:
    """What came of a check. ``lines`` is what the learner reads, ``why`` the trap if known.

    ``kind`` is ``passed``, ``wrong`` (an answer), ``raised`` (an exception of the learner's) or
    ``stopped``: no answer, for a limit, a cell that failed, or reaching for the library's own.
    """

    id: str
    kind: str
    lines: tuple[str, ...]
    why: str = ""

    @property
    def passed(self) -> bool:
        """Say whether the check gives its point."""
        return self.kind == "passed"


@dataclass(frozen=True)
class Marked:
    """A marked submission, or the ``reason`` why it has no mark.

    ``notebook`` is the text of the graded notebook; ``untouched`` names solution cells that are
    as they were handed out; ``answers`` has a digest of each answer that a person grades.
    ``attention`` says what a person should look at, ``problems`` what only the learner needs.
    """

    student: str
    slug: str
    digest: str
    marks: tuple[Mark, ...] = ()
    notebook: str = ""
    untouched: tuple[str, ...] = ()
    answers: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    attention: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0


def digest_of(data: bytes) -> str:
    """Return what tells a changed submission from the one that has been graded."""
    return hashlib.sha256(data).hexdigest()


def mark(job: Job, sandbox: Sandbox) -> Marked:
    """Mark a submission; never raises for anything that stands in it."""
    started = time.monotonic()
    digest = digest_of(job.data)

    def without_mark(reason: str) -> Marked:
        seconds = time.monotonic() - started
        return Marked(job.student, job.slug, digest, reason=printable(reason), seconds=seconds)

    try:
        lab, cells = _read(job)
    except NotebookError as fault:
        return without_mark(str(fault))
    if lab.slug != job.slug:
        return without_mark(f"this is the lab {lab.slug}, handed in as {job.slug}")
    known = {cell.grade_id for cell in job.cells if cell.is_graded and not cell.is_solution}
    checks = [check for check in CHECKS.values() if check.day == lab.day and check.id in known]
    marks = tuple(map(_mark_of, _run(_with_own_imports(lab, job), checks, job, sandbox)))
    composed = _Composer(job, lab, cells, {mark.id: mark for mark in marks})
    notebook = composed.notebook()
    attention = [*composed.attention]
    for name in sorted(known - {check.id for check in checks}):
        attention.append(f"the gradebook has a check {name} that this version of the course lacks")
    return Marked(
        job.student,
        job.slug,
        digest,
        marks,
        notebook,
        tuple(composed.untouched),
        composed.answers,
        tuple(map(printable, lab.problems)),
        tuple(attention),
        seconds=time.monotonic() - started,
    )


def _read(job: Job) -> tuple[LabNotebook, list[dict[str, Any]]]:
    """Return the notebook as a lab, and its cells as they stand in it."""
    fault = filling_fault(job.data)
    if fault:
        raise NotebookError(fault)
    with tempfile.TemporaryDirectory(prefix="marking-") as folder:
        path = Path(folder) / f"{job.slug}.ipynb"
        path.write_bytes(job.data)
        try:
            raw = json.loads(job.data)
            cells = raw["cells"]
            code = sum(len(source_of(cell)) for cell in cells if cell["cell_type"] == "code")
            if code > MAX_SOURCE_CHARS:
                raise NotebookError(f"{code:,} characters of code: no lab has so many")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            cells = []  # the next line says better what is wrong
        try:
            return read_notebook(path), cells
        except NotebookError as error:
            raise NotebookError(fault_of(error, path)) from None


def source_of(cell: dict[str, Any]) -> str:
    """Return a cell's source, whichever way the file has it."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _with_own_imports(lab: LabNotebook, job: Job) -> LabNotebook:
    """Return the notebook with the lab's import cell as it was handed out, as nbgrader does.

    It is locked; and where it was deleted by accident, it costs nobody a point.
    """
    imports = [c for c in job.cells if c.locked and c.grade_id == "imports"]
    if not imports:
        return lab
    cell = Cell("the imports", "setup", "imports", imports[0].source)
    there = [c for c in lab.cells if c.kind == "setup"]
    if not there:
        return replace(lab, cells=(cell, *lab.cells))
    restored = (replace(c, source=cell.source) if c in there else c for c in lab.cells)
    return replace(lab, cells=tuple(restored))


def _run(lab: LabNotebook, checks: Sequence[Check], job: Job, sandbox: Sandbox) -> list[Result]:
    """Run the checks on the functions as they are above their own checks."""
    from grader.sandbox import grade

    steps = lab.steps
    exercises: dict[str, list[tuple[str, str]]] = {name: [] for name in lab.functions}
    for index, step in enumerate(steps):
        for name in step.takes:
            exercises[name] = [(above.name, above.source) for above in steps[: index + 1]]
    return grade(sandbox, exercises, checks, job.seed, limits=job.limits)


def _mark_of(result: Result) -> Mark:
    from grader.sandbox import LearnerError

    if result.passed:
        return Mark(result.id, "passed", (printable(result.line),))
    if result.failure is not None:
        return Mark(result.id, "wrong", tuple(result.failure.lines), result.failure.why or "")
    trace: list[str] = []
    if isinstance(result.error, LearnerError):
        trace = [printable(line) for line in result.error.trace.splitlines()]
        if len(trace) > TRACE_LINES:
            half = TRACE_LINES // 2
            trace = [*trace[:half], "...", *trace[-half:]]
        return Mark(result.id, "raised", (printable(result.line), *trace))
    return Mark(result.id, "stopped", (printable(result.line),))


# --- the notebook that nbgrader shows ----------------------------------------------------


class _Composer:
    """Put a graded notebook together: the learner's cells, the lab's checks, what came of them.

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

    def notebook(self) -> str:
        """Return the notebook's text."""
        homes = self._homes()
        cells: list[dict[str, Any]] = []
        for index, raw in enumerate(self._raw):
            source = homes.get(index)
            cells.append(self._own(raw) if source is None else self._known(raw, source))
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
        if kind == "markdown" and digest_of(_text(text).encode()) not in self._job.texts:
            text = without_markup(text)
        cell = _cell(kind, text, raw.get("id"), {})
        pictures = raw.get("attachments")
        if kind == "markdown" and isinstance(pictures, dict):
            cell["attachments"] = _pictures(pictures)
        return cell

    def _known(self, raw: dict[str, Any], source: SourceCell) -> dict[str, Any]:
        """Return a cell of the lab as the learner left it, or as it was if it is locked."""
        locked = source.locked or (source.is_graded and not source.is_solution)
        text = source.source if locked else source_of(raw)
        is_written = source.cell_type == "markdown" and text != source.source
        shown = without_markup(text) if is_written else text
        cell = _cell(source.cell_type, shown, raw.get("id"), _metadata(source))
        pictures = raw.get("attachments")
        if source.cell_type == "markdown" and not locked and isinstance(pictures, dict):
            cell["attachments"] = _pictures(pictures)
        is_untouched = text == source.source and not cell.get("attachments")
        if source.is_solution and is_untouched:
            self.untouched.append(source.grade_id)
        if source.is_graded and source.is_solution:
            pictures = json.dumps(cell.get("attachments", {}), sort_keys=True)
            self.answers[source.grade_id] = digest_of(f"{_text(text)}\n{pictures}".encode())
        if source.cell_type == "code":
            cell["outputs"] = self._outputs(source)
        return cell

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


def _pictures(attachments: dict[Any, Any]) -> dict[str, Any]:
    """Return the pictures that a learner laid into an answer, and nothing else."""
    kept: dict[str, Any] = {}
    for name, bundle in attachments.items():
        if isinstance(bundle, dict):
            pictures = {
                kind: data
                for kind, data in bundle.items()
                if kind in ("image/png", "image/jpeg", "image/gif")
                and isinstance(data, str)
                and re.fullmatch(r"[A-Za-z0-9+/=\s]*", data)
            }
            if pictures:
                kept[_text(str(name))] = pictures
    return kept


_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINK = re.compile(r"\](?=\(\s*(?!https?://|#|attachment:|<))")
_REFERENCE = re.compile(r"(?m)^(\s*\[[^\]\n]+\])(?=:\s*(?!https?://|#))")


def without_markup(text: str) -> str:
    """Return a learner's Markdown that looks the same and does nothing in a grader's browser.

    nbgrader's pages show HTML in Markdown as it is. A space of no width keeps what looks like
    HTML, or like a link to anything but the web, from being it. What was handed in stays as it is.

    >>> without_markup("if a < b: <script>").replace(chr(0x200B), "|")
    'if a < b: <|script>'
    >>> without_markup("[a](javascript:x) [b](https://x.org)").replace(chr(0x200B), "|")
    '[a]|(javascript:x) [b](https://x.org)'
    """
    text = _TAG.sub("<\u200b", text)
    return _REFERENCE.sub("\\1\u200b", _LINK.sub("]\u200b", text))


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
