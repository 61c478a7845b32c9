"""Our own records: which bytes were graded, and the result; the report is made from these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from grader.autograde.course import Course
from grader.autograde.results import Mark


@dataclass(frozen=True)
class Record:
    """What was graded, and what came of it; the report is made from these.

    ``answers`` has a digest of each answer that waits for a person, or has been graded by one.
    """

    student: str
    slug: str
    digest: str
    course: str
    marks: tuple[Mark, ...] = ()
    answers: dict[str, str] | None = None
    problems: tuple[str, ...] = ()
    attention: tuple[str, ...] = ()
    reason: str = ""
    late: bool = False
    cause: str = ""
    rules: str = ""

    def text(self) -> str:
        """Return the record as the text of its file."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def read_record(path: Path) -> Record | None:
    """Read a record; None when there is none that can be read."""
    try:
        told = json.loads(path.read_bytes())
        marks = tuple(Mark(m["id"], m["kind"], tuple(m["lines"]), m["why"]) for m in told["marks"])
        texts = {name: tuple(told[name]) for name in ("problems", "attention")}
        return Record(**{**told, **texts, "marks": marks})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def records_of(course: Course) -> Iterator[Record]:
    """Yield all records of a class, by lab and student."""
    for path in sorted(course.records.glob("*/*.json")):
        record = read_record(path)
        if record is not None:
            yield record


def record_path(course: Course, student: str, slug: str) -> Path:
    """Return where a submission's record lies."""
    return course.records / slug / f"{student}.json"
