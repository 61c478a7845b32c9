"""The rules of a class in one small file, grader/classroom/course.toml: times, lateness, worth.

timezone = "Europe/Berlin"        # in which your platform writes times
partial_credit = true             # false: a lab's checks count only when all of them pass

[labs.day1_estimate]
due = 2026-03-01 23:59:00         # in that time zone
late = 0.1                        # a tenth of the points for each day begun; "zero"; "none"
weight = 2.0                      # in the report's total
points = { estimate-cjk = 2 }     # what a check is worth

[extensions.ada]
day1_estimate = 2026-03-08 23:59:00
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from grader.errors import BadInput
from grader.exercises import SLUGS


@dataclass(frozen=True)
class LabRules:
    """What holds for a lab. ``due`` is in UTC without a zone; ``late`` None: no rule yet."""

    due: datetime | None = None
    late: float | str | None = None
    weight: float = 1.0
    points: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """The rules of a class; without a file everything is nbgrader's own."""

    zone: tzinfo | None = None
    labs: dict[str, LabRules] = field(default_factory=dict)
    extensions: dict[str, dict[str, datetime]] = field(default_factory=dict)
    partial_credit: bool = True

    def lab(self, slug: str) -> LabRules:
        """Return what holds for a lab."""
        return self.labs.get(slug, LabRules())

    def extension(self, student: str, slug: str) -> timedelta | None:
        """Return by how much somebody's due date is later than the others'."""
        until, due = self.extensions.get(student, {}).get(slug), self.lab(slug).due
        return until - due if until and due else None

    def key(self, student: str, slug: str, when: datetime | None, late: bool) -> str:
        """Return what a grade depends on beside the notebook: it is given anew when this changes.

        >>> Rules().key("ada", "day1_estimate", None, False)
        ''
        """
        lab, extension = self.lab(slug), self.extension(student, slug)
        if lab == LabRules() and self.partial_credit and not late:
            return ""
        points = sorted(lab.points.items())
        told = (lab.due, lab.late, points, extension, self.partial_credit, when, late)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]

    def penalty(self, slug: str, points: float, late_s: float) -> float | None:
        """Return what being late costs; None where no rule says so.

        >>> Rules(labs={"day1_estimate": LabRules(late=0.1)}).penalty("day1_estimate", 10, 90_000)
        2.0
        """
        rule = self.lab(slug).late
        if rule is None:
            return None
        if rule == "none" or late_s <= 0:
            return 0.0
        if rule == "zero":
            return points
        return min(points, points * float(rule) * math.ceil(late_s / 86_400))


def read_rules(classroom: Path) -> Rules:
    """Read a class's course.toml; the defaults where there is none.

    Raises BadInput for what it does not know, with its place.
    """
    path = classroom / "course.toml"
    if not path.is_file():
        return Rules()
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML: {error}") from None
    known = {"timezone", "partial_credit", "labs", "extensions"}
    for name in told.keys() - known:
        raise BadInput(f"{path}: {name}: not known; expected {', '.join(sorted(known))}")
    zone = _zone(path, told.get("timezone"))
    partial = told.get("partial_credit", True)
    if not isinstance(partial, bool):
        raise BadInput(f"{path}: partial_credit: expected true or false")
    labs = {slug: _lab(path, slug, lab, zone) for slug, lab in _tables(path, told, "labs")}
    extensions = {
        student: {
            _slug(path, student, s): _time(path, f"{student}.{s}", t, zone) for s, t in each.items()
        }
        for student, each in _tables(path, told, "extensions")
    }
    for student, each in extensions.items():
        for slug in each:
            if slug not in labs or labs[slug].due is None:
                raise BadInput(f"{path}: extensions.{student}.{slug}: this lab has no due date")
    return Rules(zone, labs, extensions, partial)


def _tables(path: Path, told: dict[str, Any], name: str) -> list[tuple[str, dict[str, Any]]]:
    tables = told.get(name, {})
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        raise BadInput(f"{path}: {name}: expected tables, as in [{name}.NAME]")
    return list(tables.items())


def _slug(path: Path, place: str, slug: str) -> str:
    if slug not in SLUGS.values():
        raise BadInput(f"{path}: {place}: {slug}: no lab of this name")
    return slug


def _lab(path: Path, slug: str, told: dict[str, Any], zone: tzinfo | None) -> LabRules:
    place = f"labs.{_slug(path, 'labs', slug)}"
    for name in told.keys() - {"due", "late", "weight", "points"}:
        raise BadInput(f"{path}: {place}.{name}: not known; expected due, late, weight, points")
    due = _time(path, f"{place}.due", told["due"], zone) if "due" in told else None
    late = told.get("late")
    if late is not None and late not in ("zero", "none") and not _is_share(late):
        raise BadInput(f'{path}: {place}.late: expected a share a day (0.1), "zero" or "none"')
    weight, points = told.get("weight", 1.0), told.get("points", {})
    if not _is_number(weight) or not isinstance(points, dict):
        raise BadInput(f"{path}: {place}: expected a number as weight, a table of points")
    for name, worth in points.items():
        if not _is_number(worth):
            raise BadInput(f"{path}: {place}.points.{name}: expected a number, 0 or more")
    return LabRules(due, late, float(weight), {name: float(w) for name, w in points.items()})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6


def _is_share(value: Any) -> bool:
    return _is_number(value) and value <= 1


def _time(path: Path, place: str, value: Any, zone: tzinfo | None) -> datetime:
    """Return a time in UTC without a zone; a day alone lasts until its end."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, 23, 59, 59)
    if not isinstance(value, datetime):
        raise BadInput(f"{path}: {place}: expected a time, as in 2026-03-01 23:59:00")
    if value.tzinfo is None:
        value = value.replace(tzinfo=zone)
    return value.astimezone(UTC).replace(tzinfo=None)


def _zone(path: Path, name: Any) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError):
        raise BadInput(f"{path}: timezone: no time zone {name!r}; as in Europe/Berlin") from None
