"""Moodle: the assignment's grading worksheet, and feedback files in a zip.

Source: moodle/moodle, mod/assign/feedback/offline/importgradeslib.php and file/importziplib.php.
The worksheet is found again by ``Identifier``; ``Last modified (grade)`` has to come back as it was
downloaded. Of a feedback file's path only the participant's number and the plugin are read.
"""

from __future__ import annotations

import re

from grader.autograde.return_grades.people import People
from grader.autograde.return_grades.sheet import Sheet

TAKES_FILES = True


def column(sheet: Sheet, slug: str) -> int:
    """Return the place of the column for points."""
    sheet.needed("Identifier")
    sheet.needed("Last modified (grade)")
    return sheet.needed("Grade")


def most(sheet: Sheet, row: list[str], place: int) -> str:
    """Return the maximum that the platform has for a line, as it writes it."""
    return sheet.cell(row, sheet.column("Maximum Grade"))


def owner(sheet: Sheet, row: list[str], people: People) -> str:
    """Return whose line this is."""
    number = sheet.cell(row, sheet.column("Identifier")).rpartition(" ")[2]
    email = sheet.cell(row, sheet.column("Email address"))
    own = sheet.cell(row, sheet.column("ID number")), sheet.cell(row, sheet.column("Username"))
    name = sheet.cell(row, sheet.column("Full name"))
    return people.find([number], [*own, email, email.partition("@")[0]], [name])


def refuses(sheet: Sheet, row: list[str]) -> str:
    """Say why a line must stay as it is; "" where it may be filled."""
    changes = sheet.cell(row, sheet.column("Grade can be changed")).casefold()
    return "Moodle says that this grade cannot be changed" if changes == "no" else ""


def feedback_path(given: str, day: str) -> str:
    """Return where a feedback page goes in the zip.

    >>> feedback_path("Ada Lovelace_1001_assignsubmission_file", "day5")
    'Ada Lovelace_1001_assignsubmission_file/day5-feedback.html'
    >>> feedback_path("Ada Lovelace_1001_assignsubmission_file_day5.ipynb", "day5")
    'Ada Lovelace_1001_assignsubmission_file_day5-feedback.html'
    """
    match = re.match(r"(.+?_\d+_assignsubmission_)(?:file|onlinetext)(_?)(.*)", given, re.DOTALL)
    if match is None:
        return ""
    head, underscore, rest = match.groups()
    between = "_" if rest else f"{underscore}/"
    return f"{head}file{between}{day}-feedback.html"
