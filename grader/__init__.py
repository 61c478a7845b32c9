"""How the course is graded: checks, starter functions, feedback, and grading a whole class.

A notebook needs two names from here::

    from grader import check, score

From the bottom up: ``exercises`` (which function, which day), ``starters``, ``checks``,
``notebooks`` (read, never run), ``sandbox`` (run, confined), ``learner`` (what runs at home),
``build`` (labs and lessons from their sources), ``autograde`` (a class), ``report``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def check(check_id: str, function: Callable[..., Any]) -> None:
    """Run one check on your function: print what it shows, or raise what went wrong.

    >>> from compaction.tokens import estimate
    >>> check("estimate-latin", estimate)
    ✓ Latin text of 341 characters: about 86 tokens

    Raises grader.checks.failure.CheckFailure when the function gives a wrong answer, the function's
    own exception when it raises one, and ValueError for an id that no check has.
    """
    from grader.learner.in_notebook import check_in_notebook

    __tracebackhide__ = True
    check_in_notebook(check_id, function)


def score() -> None:
    """Print which checks of this notebook have passed in this kernel, by name."""
    from grader.learner.in_notebook import show_score

    show_score()
