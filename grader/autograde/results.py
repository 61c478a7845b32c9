"""What goes to whoever grades, and what comes back: plain data that any process can read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grader.sandbox import Limits

ROOT = Path(__file__).resolve().parents[2]


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
    """A submission to grade. ``texts`` are digests of the lab's own Markdown cells."""

    student: str
    slug: str
    data: bytes
    cells: tuple[SourceCell, ...]
    seed: int
    limits: Limits | None = None
    texts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Mark:
    """The result of a check. ``lines`` is what the learner reads, ``why`` a known mistake or "".

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
class GradedSubmission:
    """A graded submission, or the ``reason`` why it has no mark.

    ``notebook`` is the text of the graded notebook; ``untouched`` names solution cells that are
    as provided; ``answers`` has a digest of each answer that a person grades.
    ``attention`` says what a person should look at, ``problems`` what only the learner needs.
    ``level`` is the isolation in force, ``worker`` who graded ("" on this machine), ``warnings``
    what that worker's sandbox had to say.
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
    level: str = ""
    worker: str = ""
    warnings: tuple[str, ...] = ()


def digest_of(data: bytes) -> str:
    """Return what tells a changed submission from the one that has been graded."""
    return hashlib.sha256(data).hexdigest()


def ungraded(job: Job, reason: str) -> GradedSubmission:
    """Return a submission without a mark."""
    return GradedSubmission(job.student, job.slug, digest_of(job.data), reason=reason)


def version_of_course(seed: int) -> str:
    """Return what marks depend on beside the submission: checks, library, seed."""
    summed = hashlib.sha256(str(seed).encode())
    for folder in ("grader/checks", "course/compaction"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            summed.update(path.read_bytes())
    return summed.hexdigest()[:16]
