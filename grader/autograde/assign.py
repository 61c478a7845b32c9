"""Say whose a doubtful file is; remembered for all later runs.

python -m grader assign 'Lab5.zip!Copy of day5.ipynb' ada
python -m grader assign --list
python -m grader assign --forget 'Lab5.zip!Copy of day5.ipynb'
"""

from __future__ import annotations

import argparse
from pathlib import Path

from grader.autograde.course import Course, course_folder
from grader.autograde.intake.journal import NOBODY, HandIn, Journal, read_journal, write_journal
from grader.autograde.intake.roster import read_roster, student_id
from grader.autograde.intake.take_in import collected
from grader.errors import BadInput, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("file", nargs="?", metavar="FILE", help="as autograde and report print it")
    parser.add_argument(
        "learner", nargs="?", metavar="LEARNER", help=f"an id of the roster, or {NOBODY}"
    )
    parser.add_argument("--list", action="store_true", help="list what was assigned")
    parser.add_argument("--forget", metavar="FILE", help="hold a file again")
    parser.add_argument("--course", metavar="FOLDER", help="where nbgrader_config.py is")


def run(options: argparse.Namespace) -> int:
    """Assign, list or forget; say what was done in one line."""
    course = Course(Path(options.course) if options.course else course_folder())
    asked = sum((bool(options.file), options.list, options.forget is not None))
    if asked != 1 or (options.file and not options.learner):
        raise BadInput("assign: expected FILE LEARNER, or --list, or --forget FILE")
    with course.locked():
        journal = read_journal(course.places)
        if options.list:
            for (origin, _), learner in sorted(journal.assigned.items()):
                print(f"{printable(origin)}: {printable(learner)}")
            return 0
        if options.forget is not None:
            forget(journal, options.forget)
            print(f"{printable(options.forget)}: forgotten; the next autograde holds it again")
        else:
            learner = _learner(course, options.learner)
            assign(course, journal, options.file, learner)
            told = "counts for nobody" if learner == NOBODY else f"counts for {learner}"
            print(f"{printable(options.file)} {told}; python -m grader autograde grades it")
        write_journal(course.places, journal)
    return 0


def assign(course: Course, journal: Journal, origin: str, learner: str) -> None:
    """Remember whose a file is. Raises BadInput when nothing of this name was handed in."""
    lying = [one for one in collected(course.places, journal) if one.origin == origin]
    found: list[HandIn] = [*journal.find(origin), *lying]
    if not found:
        raise BadInput(
            f"{printable(origin)}: nothing of this name was handed in; "
            "expected a name as python -m grader autograde prints it"
        )
    newest = max(found, key=lambda one: one.received)
    journal.assigned[newest.key] = learner


def forget(journal: Journal, origin: str) -> None:
    """Forget whose a file is. Raises BadInput when nobody had said it."""
    keys = [key for key in journal.assigned if key[0] == origin]
    if not keys:
        raise BadInput(f"{printable(origin)}: not assigned; see python -m grader assign --list")
    for key in keys:
        del journal.assigned[key]


def _learner(course: Course, given: str) -> str:
    if given == NOBODY:
        return NOBODY
    if not course.roster_file.is_file():
        return student_id(given)
    roster = read_roster(course.roster_file)
    if given in roster.people:
        return given
    found = roster.by_id(given) or roster.by_name(given)
    if len(found) != 1:
        raise BadInput(f"{printable(given)}: not one person of the roster {course.roster_file}")
    return next(iter(found))
