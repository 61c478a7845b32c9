"""What needs a person before it has a grade, kept in the classroom folder across runs.

Made anew from everything that was ever handed in: an item leaves when it is settled, not when the
next run begins. What the records and the gradebook say (answers to grade, cells to look at) is
added by whoever reads it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from compaction.files import write_whole
from grader.autograde.course import Course
from grader.autograde.intake.decide import Refused
from grader.autograde.intake.roster import Roster
from grader.autograde.intake.take_in import Intake


@dataclass
class Ledger:
    """What is held or refused; who handed in what counts; who is in the class, by id and name."""

    refused: list[Refused] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    older: int = 0
    people: dict[str, str] = field(default_factory=dict)
    exists: bool = False


def write_ledger(course: Course, intake: Intake, roster: Roster | None) -> None:
    """Keep what needs a person, for the report and for the next day."""
    people = {one.student: one.name for one in roster.people.values()} if roster else {}
    told: dict[str, Any] = {
        "refused": [asdict(refused) for refused in intake.refused],
        "notes": intake.notes,
        "older": intake.older,
        "people": people,
    }
    text = json.dumps(told, ensure_ascii=False, indent=1) + "\n"
    write_whole(course.classroom / "ledger.json", text.encode(errors="replace"))


def read_ledger(course: Course) -> Ledger:
    """Return what the last run wrote; an empty ledger before the first."""
    path = course.classroom / "ledger.json"
    if not path.is_file():
        return Ledger()
    told = json.loads(path.read_bytes())
    refused = [Refused(**one) for one in told["refused"]]
    return Ledger(refused, told["notes"], told["older"], told["people"], exists=True)
