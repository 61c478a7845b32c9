"""Canvas: the gradebook's CSV, and files that become attachments of comments.

Source: instructure/canvas-lms, lib/gradebook_importer.rb (``Student`` and ``ID`` first, an
assignment by the id in brackets at its title's end) and generate_comments_from_files (the user's
and the attachment's id in a file's name).
"""

from __future__ import annotations

import re

from grader.autograde.return_grades.people import People
from grader.autograde.return_grades.sheet import Sheet
from grader.autograde.return_grades.titles import column_of

TAKES_FILES = True
_COMPUTED = re.compile(r"(?:Current|Final|Unposted).* (?:Score|Points|Grade)$")
_NOBODY = re.compile(r"\s*(?:points possible|manual posting|muted|student, test)", re.IGNORECASE)


def column(sheet: Sheet, slug: str) -> int:
    """Return the place of the column for points."""
    sheet.needed("Student")
    sheet.needed("ID")
    fixed = {"student", "id", "section", "integration id", "root account"}
    points = _points_line(sheet)
    places = [
        place
        for place, title in enumerate(sheet.titles)
        if title.strip().casefold() not in fixed
        and not title.strip().casefold().startswith("sis ")
        and not _COMPUTED.search(title.strip())
        and "read only" not in sheet.cell(points, place).casefold()
    ]
    return column_of(sheet, places, slug)


def _points_line(sheet: Sheet) -> list[str]:
    lines = [r for r in sheet.rows[1:] if r[0].strip().casefold() == "points possible"]
    return lines[0] if lines else []


def most(sheet: Sheet, row: list[str], place: int) -> str:
    """Return the maximum that the platform has for a line, as it writes it."""
    return sheet.cell(_points_line(sheet), place)


def owner(sheet: Sheet, row: list[str], people: People) -> str:
    """Return whose line this is."""
    number = sheet.cell(row, sheet.column("ID"))
    ids = [sheet.cell(row, sheet.column(title)) for title in ("SIS Login ID", "SIS User ID")]
    return people.find([number], [*ids, number], [sheet.cell(row, sheet.column("Student"))])


def refuses(sheet: Sheet, row: list[str]) -> str:
    """Say why a line must stay as it is; "" where it may be filled."""
    return "nobody" if _NOBODY.match(row[0]) else ""


def feedback_path(given: str, day: str) -> str:
    """Return the name of a feedback page in the zip.

    >>> feedback_path("lovelaceada_LATE_1001_70002_day5-1.ipynb", "day5")
    'lovelaceada_LATE_1001_70002_day5.html'
    """
    match = re.match(r"[^_]+_(?:LATE_)?[0-9A-Za-z]+_\d+_", given)
    return f"{match[0]}{day}.html" if match else ""
