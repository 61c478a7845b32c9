"""Whose line is whose: ids and names of a platform's table, and the learners of this class.

The names under which a platform gave its files are kept with each hand-in; they decide first. Then
the roster, then the learners' own ids. A line that could be two people's is nobody's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from grader.autograde.course import Course
from grader.autograde.intake.journal import HandIn, read_journal
from grader.autograde.intake.roster import Roster, read_roster, student_id
from grader.autograde.intake.take_in import take_in
from grader.autograde.rules import read_rules


@dataclass
class People:
    """The learners of a class, and what one platform knows of their hand-ins of one lab."""

    students: set[str]
    roster: Roster | None = None
    numbers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    given: dict[str, HandIn] = field(default_factory=dict)

    def find(self, numbers: Iterable[str], ids: Iterable[str], names: Iterable[str]) -> str:
        """Return whose line this is; "" where nobody's or perhaps several people's."""
        for text in filter(None, numbers):
            if found := self.numbers.get(text, set()):
                return _only(found)
        for text in filter(None, ids):
            found = self.roster.by_id(text) if self.roster else set()
            own = {one for one in self.students if one.casefold() == text.casefold()}
            if found := found or own:
                return _only(found)
        for name in filter(None, names):
            found = self.roster.by_name(name) if self.roster else set()
            own = {student_id(name)} & self.students
            if found := found or own:
                return _only(found)
        return ""


def _only(found: set[str]) -> str:
    return next(iter(found)) if len(found) == 1 else ""


def read_people(course: Course, platform: str, slug: str, students: set[str]) -> People:
    """Return who is in a class, with the names that a platform gave to the files of a lab."""
    roster = read_roster(course.roster_file) if course.roster_file.is_file() else None
    people = People(students, roster)
    journal = read_journal(course.places)
    zone = read_rules(course.classroom).zone
    decision = take_in(None, course.places, roster, dry_run=True, zone=zone).decision
    for key, learner in decision.owners.items():
        one = journal.hand_ins.get(key)
        if one is None or one.named.platform != platform:
            continue
        # Moodle's numbers are new for each lab.
        if one.named.number and (platform != "moodle" or one.slug == slug):
            people.numbers[one.named.number].add(learner)
        if one.slug == slug:
            newest = max((people.given.get(learner, one), one), key=lambda hand_in: hand_in.moment)
            people.given[learner] = newest
    return people
