"""All checks, in the order of the course."""

from __future__ import annotations

from grader.checks import day1, day2, day3, day4, day5, day6, day7, day8
from grader.checks.check import Check, checks_in

CHECKS: dict[str, Check] = {
    check.id: check
    for module in (day1, day2, day3, day4, day5, day6, day7, day8)
    for check in checks_in(module)
}
"""All checks by id."""

CORE: tuple[Check, ...] = tuple(check for check in CHECKS.values() if check.day <= 6)
"""The fifteen, in the order of the course."""

EXTENSION: tuple[Check, ...] = tuple(check for check in CHECKS.values() if check.day > 6)
"""The checks of days 7 and 8."""
