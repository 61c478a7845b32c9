"""Which column of a gradebook is a lab's, by its title."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grader.autograde.return_grades.sheet import Sheet
from grader.errors import BadInput
from grader.exercises import SLUGS


def column_of(sheet: Sheet, places: Sequence[int], slug: str) -> int:
    """Return the one of these columns that is a lab's: by its name or number, or the only one.

    Raises BadInput when it is not clear, with the titles to choose from.
    """
    named = [place for place in places if names_lab(sheet.titles[place], slug)]
    others = [s for s in SLUGS.values() if s != slug]
    free = [p for p in places if not any(names_lab(sheet.titles[p], s) for s in others)]
    chosen = named or free
    if len(chosen) == 1:
        return chosen[0]
    titles = "; ".join(sheet.titles[place] for place in chosen or places) or "none"
    raise BadInput(
        f"{sheet.path}: which column is {slug}'s? Say it with --column TITLE; there are: {titles}"
    )


def names_lab(title: str, slug: str) -> bool:
    """Return True if a title names a lab.

    >>> names_lab("Lab 5 (409)", "day5_summarize"), names_lab("Lab 15", "day5_summarize")
    (True, False)
    """
    day = slug.removeprefix("day").partition("_")[0]
    folded = re.sub(r"[\s_-]+", " ", title.casefold())
    number = re.search(rf"(?<![^\W_])(?:day|lab) ?0*{day}(?!\d)", folded)
    return slug.replace("_", " ") in folded or number is not None
