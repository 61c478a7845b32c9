"""What the names of files and folders tell: the patterns that platforms write."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from grader.exercises import SLUGS

NOISE = {"__macosx", "__pycache__", "thumbs.db", "desktop.ini", "timestamp.txt", "index.html"}

WRAPPERS = {"submissions", "submitted", "submission attachment(s)", "labs", "notebooks", "inbound"}


@dataclass(frozen=True)
class Named:
    """What the name of a file or folder tells. ``sequence`` orders what one platform gave."""

    student: str
    number: str = ""
    rest: str = ""
    when: datetime | None = None
    sequence: int = 0
    late: bool = False
    folder: tuple[str, ...] = ()


_SCHEMES = (
    # nbgrader's inbound folder: ada+day1_estimate+2026-02-18 10:30:00.000000 UTC+random
    r"(?P<student>[^+]+)\+[^+]+\+(?P<when>\d{4}-\d\d-\d\d[ _T]\d\d[:_]\d\d[:_]\d\d[^+]*)(\+.*)?",
    # Moodle: Ada Lovelace_123_assignsubmission_file (a folder), or the same and _lab.ipynb
    r"(?P<student>.+?)_(?P<number>\d+)_assignsubmission_(file|onlinetext)_?(?P<rest>.*)",
    # Blackboard: Lab 1_alovelace_attempt_2026-02-18-10-30-00_lab.ipynb
    r".*?_(?P<student>[^_]+)_attempt_(?P<when>\d{4}(-\d\d){5})(_(?P<rest>.*))?",
    # Canvas: lovelaceada_LATE_12345_67890_lab-1.ipynb
    r"(?P<student>[^_]+)_(?P<late>LATE_)?(?P<number>\d+)_(?P<sequence>\d+)_(?P<rest>.+)",
    # Brightspace: 12345-67890 - Ada Lovelace - Feb 18, 2026 1030 AM - lab.ipynb
    r"\d+-\d+ - (?P<student>.+?) ?- (?P<when>\w{3} \d{1,2}, \d{4} \d{3,4} [AP]M)( - (?P<rest>.*))?",
    # Sakai: Lovelace, Ada(alovelace)
    r"[^,]+, [^(]+\((?P<student>[^()]+)\)",
)

_PATTERNS = tuple(re.compile(scheme, re.DOTALL) for scheme in _SCHEMES)

_TIMES = ("%Y-%m-%d-%H-%M-%S", "%b %d, %Y %I%M %p")

COPY = re.compile(r"([ _-]*(\(\d+\)|copy ?\d*|kopie ?\d*|final|v\d+))+$", re.IGNORECASE)

SLUG = re.compile(
    "|".join(slug.replace("_", "[ _-]") for slug in SLUGS.values()) + r"|\bday ?[1-8]\b", re.I
)


def by_scheme(name: str) -> Named | None:
    """Read a name that a platform made."""
    for pattern in _PATTERNS:
        match = pattern.fullmatch(name)
        if match:
            told = match.groupdict()
            sequence = int(told.get("sequence") or 0) if len(told.get("sequence") or "") < 19 else 0
            return Named(
                told["student"].strip(),
                told.get("number") or "",
                told.get("rest") or "",
                time_of(told.get("when") or ""),
                sequence,
                bool(told.get("late")),
            )
    return None


def time_of(text: str) -> datetime | None:
    """Return a time that somebody wrote down, in UTC; None for what is no time."""
    for form in _TIMES:
        try:
            # Platforms write the time of the place, as far as one can know.
            return datetime.strptime(text, form).astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            continue
    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\d)[ _T](\d\d)[:_](\d\d)[:_](\d\d(?:\.\d{1,6})?) ?(UTC|Z|[+-]\d\d:?\d\d)?",
        text.strip(),
    )
    if not match:
        return None
    day, hour, minute, second, zone = match.groups()
    zone = "+00:00" if zone in (None, "UTC", "Z") else zone
    try:
        told = datetime.fromisoformat(f"{day} {hour}:{minute}:{second}{zone}")
        return told.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def without_slug(stem: str) -> str:
    """Return what a file's name says beside the lab: the student, or nothing."""
    rest = COPY.sub("", SLUG.sub(" ", COPY.sub("", stem))).strip(" ._-+~()[],")
    return " ".join(re.sub(r"(?<=\s)[-_]+|[-_]+(?=\s)", " ", rest).split())


def is_student_folder(name: str) -> bool:
    return name.lower() not in WRAPPERS and not SLUG.fullmatch(name)


def is_hidden(piece: str) -> bool:
    return (piece.startswith(".") and piece != "..") or piece.lower() in NOISE - {"timestamp.txt"}


def wrapper_depth(names: Iterable[tuple[str, ...]]) -> int:
    """Return how many folders only wrap all others: they are nobody's name.

    >>> wrapper_depth([("class", "ada", "day1.ipynb"), ("class", "ben", "day1.ipynb")])
    1
    >>> wrapper_depth([("ada", "day1_estimate", "x.ipynb"), ("ada", "day3_trigger", "x.ipynb")])
    0
    """
    names = [parts for parts in names if parts and not any(map(is_hidden, parts))]
    depth = 0
    while names:
        loose = any(len(parts) < depth + 3 for parts in names)
        tops = {parts[depth] for parts in names if len(parts) > depth}
        below = {parts[depth + 1] for parts in names if len(parts) > depth + 2}
        if len(tops) != 1 or loose or len(below) < 2 or any(map(SLUG.fullmatch, below)):
            break
        depth += 1
    return depth


def without_suffix(part: str) -> str:
    return re.sub(r"\.(ipynb|zip)$", "", part, flags=re.IGNORECASE)


def slug_in(parts: Iterable[str]) -> str:
    found = [slug for part in parts for slug in SLUGS.values() if slug in part]
    return found[-1] if found else ""
