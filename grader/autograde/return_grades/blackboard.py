"""Blackboard: the file of the Grade Center, worked on offline. It takes no files back.

Source: Blackboard's help, "Uploading or downloading Grade Center items". A column is found by the
id behind ``|`` in its title; without one a new column would be made.
"""

from __future__ import annotations

import re

from grader.autograde.return_grades.people import People
from grader.autograde.return_grades.sheet import Sheet
from grader.autograde.return_grades.titles import column_of

TAKES_FILES = False


def column(sheet: Sheet, slug: str) -> int:
    """Return the place of the column for points."""
    sheet.needed("Username")
    places = [p for p, title in enumerate(sheet.titles) if re.search(r"\|\s*\d+\s*$", title)]
    return column_of(sheet, places, slug)


def most(sheet: Sheet, row: list[str], place: int) -> str:
    """Return the maximum that the platform has for a line, as it writes it."""
    match = re.search(r"Total Pts: ?([\d.,]+)", sheet.titles[place])
    return match[1] if match else ""


def owner(sheet: Sheet, row: list[str], people: People) -> str:
    """Return whose line this is."""
    ids = [sheet.cell(row, sheet.column(title)) for title in ("Username", "Student ID")]
    names = [sheet.cell(row, sheet.column(title)) for title in ("First Name", "Last Name")]
    return people.find([], ids, [" ".join(names).strip()])


def refuses(sheet: Sheet, row: list[str]) -> str:
    """Say why a line must stay as it is; "" where it may be filled."""
    return ""


def feedback_path(given: str, day: str) -> str:
    """Return "": Blackboard takes no files back."""
    return ""
