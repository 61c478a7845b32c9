"""Brightspace: the exported grades, and feedback files in the folders of the download.

Source: community.d2l.com, "Importing grades". ``OrgDefinedId`` or ``Username`` comes first, their
``#`` is taken back; ``ITEM Points Grade`` holds numbers; a lone ``#`` ends each line.
"""

from __future__ import annotations

import re

from grader.autograde.return_grades.people import People
from grader.autograde.return_grades.sheet import Sheet
from grader.autograde.return_grades.titles import column_of

TAKES_FILES = True


def column(sheet: Sheet, slug: str) -> int:
    """Return the place of the column for points."""
    sheet.needed("OrgDefinedId", "Username")
    sheet.needed("End-of-Line Indicator")
    places = [p for p, title in enumerate(sheet.titles) if " Points Grade" in title]
    return column_of(sheet, places, slug)


def most(sheet: Sheet, row: list[str], place: int) -> str:
    """Return the maximum that the platform has for a line, as it writes it."""
    match = re.search(r"MaxPoints:([\d.,]+)", sheet.titles[place])
    return match[1] if match else ""


def owner(sheet: Sheet, row: list[str], people: People) -> str:
    """Return whose line this is."""
    ids = [sheet.cell(row, sheet.column(t)).lstrip("#") for t in ("OrgDefinedId", "Username")]
    email = sheet.cell(row, sheet.column("Email"))
    names = [sheet.cell(row, sheet.column(title)) for title in ("First Name", "Last Name")]
    return people.find(ids, [*ids, email, email.partition("@")[0]], [" ".join(names).strip()])


def refuses(sheet: Sheet, row: list[str]) -> str:
    """Say why a line must stay as it is; "" where it may be filled."""
    return ""


def feedback_path(given: str, day: str) -> str:
    """Return where a feedback page goes in the zip.

    >>> feedback_path("100-200 - Ada Lovelace - Jan 2, 2026 304 PM", "day5")
    '100-200 - Ada Lovelace - Jan 2, 2026 304 PM/day5-feedback.html'
    """
    folder = re.sub(r"(\d{3,4}(?: [AaPp]\.?[Mm]\.?)?) - [^/]*\.(?:ipynb|zip)$", r"\1", given)
    return f"{folder}/{day}-feedback.html"
