"""Grade one submission: its checks in the sandbox, and the notebook that nbgrader shows of it.

It needs the notebook's bytes, what the gradebook says about the lab's cells, and a sandbox; no
gradebook and no nbgrader. So the same function grades in a process beside the writer's, and on
another machine. Everything that comes back is plain data.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.autograde.graded_notebook import Composer, source_of
from grader.autograde.intake.files import filling_fault
from grader.autograde.intake.read import fault_of
from grader.autograde.results import GradedSubmission, Job, Mark, digest_of
from grader.checks import CHECKS, Check, Result
from grader.errors import printable
from grader.notebooks.lab import Cell, LabNotebook, NotebookError, read_notebook

if TYPE_CHECKING:
    from grader.sandbox import Sandbox

MAX_CELLS = 2_000
"""More cells than this are no lab; a lab has a hundredth of them."""
MAX_SOURCE_CHARS = 1_000_000
"""More code than this is no lab; a lab has a fiftieth of it."""
TRACE_LINES = 60
"""More lines of a learner's traceback are cut in the middle."""


def grade_one(job: Job, sandbox: Sandbox) -> GradedSubmission:
    """Grade a submission; never raises for anything that is in it."""
    started = time.monotonic()
    digest = digest_of(job.data)

    def without_mark(reason: str) -> GradedSubmission:
        seconds = time.monotonic() - started
        return GradedSubmission(
            job.student, job.slug, digest, reason=printable(reason), seconds=seconds
        )

    try:
        lab, cells = _read(job)
    except NotebookError as fault:
        return without_mark(str(fault))
    if lab.slug != job.slug:
        return without_mark(f"this is the lab {lab.slug}, handed in as {job.slug}")
    known = {cell.grade_id for cell in job.cells if cell.is_graded and not cell.is_solution}
    checks = [check for check in CHECKS.values() if check.day == lab.day and check.id in known]
    marks = tuple(map(_mark_of, _run(_with_own_imports(lab, job), checks, job, sandbox)))
    composed = Composer(job, lab, cells, {mark.id: mark for mark in marks})
    notebook = composed.notebook()
    attention = [*composed.attention]
    for name in sorted(known - {check.id for check in checks}):
        attention.append(f"the gradebook has a check {name} that this version of the course lacks")
    return GradedSubmission(
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
    cells, code = _cells_and_code(job.data)
    if len(cells) > MAX_CELLS:
        raise NotebookError(f"{len(cells):,} cells: no lab has this many")
    if code > MAX_SOURCE_CHARS:
        raise NotebookError(f"{code:,} characters of code: no lab has this many")
    path = Path(f"{job.slug}.ipynb")
    try:
        return read_notebook(path, job.data), cells
    except NotebookError as error:
        raise NotebookError(fault_of(error, path)) from None


def _cells_and_code(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """Return a notebook's cells and how many characters of code they hold.

    What cannot be read holds none: whoever reads it next says better what is wrong.
    """
    try:
        cells = json.loads(data)["cells"]
        return cells, sum(len(source_of(c)) for c in cells if c["cell_type"] == "code")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return [], 0


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

    return grade(sandbox, lab.cells_above_checks(), checks, job.seed, limits=job.limits)


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
