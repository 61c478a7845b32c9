"""All checks, in the order of the course."""

from __future__ import annotations

from grader.checks import day1, day2, day3, day4, day5, day6, day7, day8
from grader.checks.check import Check

CORE: tuple[Check, ...] = (
    *day1.CHECKS,
    *day2.CHECKS,
    *day3.CHECKS,
    *day4.CHECKS,
    *day5.CHECKS,
    *day6.CHECKS,
)
"""The fifteen, in the order of the course."""

EXTENSION: tuple[Check, ...] = (*day7.CHECKS, *day8.CHECKS)
"""The checks of days 7 and 8."""

CHECKS: dict[str, Check] = {check.id: check for check in CORE + EXTENSION}
"""All checks by id."""
