"""Fill a platform's own table with the grades of a lab, and pack the feedback for it.

python -m grader return moodle day5_summarize --from "Grades.csv" --out returned --feedback

The download itself is never changed: a filled copy is written, in which only points differ.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from compaction.files import write_whole
from grader.autograde.course import Course, course_folder
from grader.autograde.return_grades import blackboard, brightspace, canvas, moodle
from grader.autograde.return_grades.people import People, read_people
from grader.autograde.return_grades.sheet import Sheet, read_sheet
from grader.errors import BadInput, printable
from grader.exercises import SLUGS

PLATFORMS: dict[str, ModuleType] = {
    "moodle": moodle,
    "canvas": canvas,
    "blackboard": blackboard,
    "brightspace": brightspace,
}


class Grade(NamedTuple):
    """A learner's points for a lab, what being late costs taken off; ``waits`` for a person."""

    points: float
    most: float
    waits: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("platform", choices=PLATFORMS, help="where the work came from")
    parser.add_argument("lab", metavar="LAB", help="as in day5_summarize")
    parser.add_argument(
        "--from", dest="source", required=True, metavar="CSV", help="the table you downloaded there"
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the filled copy goes")
    parser.add_argument(
        "--feedback", action="store_true", help="pack the feedback pages for it, too"
    )
    parser.add_argument("--column", metavar="TITLE", help="the column of the lab's points")
    parser.add_argument(
        "--scale", action="store_true", help="stretch the points to the platform's maximum"
    )
    parser.add_argument("--course", metavar="FOLDER", help="where nbgrader_config.py is")


def run(options: argparse.Namespace) -> int:
    """Write the filled copy and the feedback; say what was left out, and end with 1 for it."""
    if options.lab not in SLUGS.values():
        raise BadInput(f"{options.lab}: no lab of this name; there are {', '.join(SLUGS.values())}")
    platform = PLATFORMS[options.platform]
    source, folder = Path(options.source), Path(options.out)
    if source.resolve().parent == folder.resolve():
        raise BadInput(f"--out {folder}: the download is in it; choose another folder")
    if options.feedback and not platform.TAKES_FILES:
        raise BadInput(f"--feedback: {options.platform} takes no files back; leave it out")
    sheet = read_sheet(source)
    place = platform.column(sheet, options.lab) if not options.column else None
    place = sheet.needed(options.column) if place is None else place
    course = Course(Path(options.course) if options.course else course_folder())
    grades = grades_of(course, options.lab)
    if not grades:
        raise BadInput(f"{options.lab}: nothing graded yet; run python -m grader autograde")
    people = read_people(course, options.platform, options.lab, set(grades))
    filled, left, other_most = fill(platform, sheet, place, grades, people, scale=options.scale)
    packed, without = b"", 0
    if options.feedback:
        packed, without = pack(platform, course, options.lab, people)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / source.name, sheet.data())
    print(f"{folder / source.name}: {filled} of {len(grades)} grades filled in")
    if other_most:
        print(f"note: {other_most}; change it there, or use --scale")
    if options.feedback:
        name = f"{options.lab}-feedback.zip"
        write_whole(folder / name, packed)
        print(f"{folder / name}: {len(people.given) - without} feedback pages")
    if without:
        left.append(f"{without} without a page; first: nbgrader generate_feedback {options.lab}")
    for line in left:
        print(f"note: {printable(line)}")
    return 1 if left else 0


def grades_of(course: Course, slug: str) -> dict[str, Grade]:
    """Return what the gradebook says about a lab, by learner."""
    from nbgrader.api import Gradebook, MissingEntry

    with Gradebook(course.db_url, course.course_id) as book:
        try:
            submissions = list(book.find_assignment(slug).submissions)
        except MissingEntry:
            return {}
        return {
            str(one.student_id): Grade(
                max(0.0, one.score - one.late_submission_penalty),
                one.max_score,
                bool(one.needs_manual_grade),
            )
            for one in submissions
        }


def fill(
    platform: ModuleType,
    sheet: Sheet,
    place: int,
    grades: Mapping[str, Grade],
    people: People,
    *,
    scale: bool = False,
) -> tuple[int, list[str], str]:
    """Write points into a table; return how many, what was left out, and how maxima differ."""
    left: list[str] = []
    rows: dict[str, list[list[str]]] = {}
    for row in sheet.rows[1:]:
        student = platform.owner(sheet, row, people)
        if student in grades and platform.refuses(sheet, row) != "nobody":
            rows.setdefault(student, []).append(row)
    filled, other_most = 0, ""
    for student, grade in sorted(grades.items()):
        mine = rows.get(student, [])
        if len(mine) != 1:
            told = "several lines" if mine else "no line"
            left.append(f"{student}: {told} of the table can be told to be theirs; left out")
            continue
        (row,) = mine
        reason = platform.refuses(sheet, row)
        if grade.waits:
            reason = "an answer waits to be graded by hand"
        if reason:
            left.append(f"{student}: {reason}; left as it was")
            continue
        most = _number(platform.most(sheet, row, place))
        factor = most / grade.most if scale and most and grade.most else 1.0
        if most and most != grade.most and not scale:
            other_most = f"the lab has {grade.most:g} points and the platform {most:g}"
        sheet.put(row, place, sheet.number(grade.points * factor))
        filled += 1
    return filled, left, other_most


def _number(text: str) -> float:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return 0.0


def pack(platform: ModuleType, course: Course, slug: str, people: People) -> tuple[bytes, int]:
    """Return a zip with the feedback pages, and how many learners have none yet."""
    out, without = io.BytesIO(), 0
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for student, one in sorted(people.given.items()):
            page = course.feedback(student, slug)
            path = platform.feedback_path(one.named.given, slug.partition("_")[0])
            if path and page.is_file():
                archive.writestr(path, page.read_bytes())
            else:
                without += 1
    return out.getvalue(), without
