"""A check, and running one: whatever the learner's function does, there is a result."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from grader.checks.failure import CheckFailure
from grader.errors import BadInput, printable

Function = Callable[..., Any]

DEFAULT_SEED = 2026
SEED_VARIABLE = "GRADER_SEED"


@dataclass(frozen=True)
class Check:
    """One check: its id, its day, the function it is about and a sentence for the learner.

    ``run(function, rng)`` returns the pass line, or raises CheckFailure.
    """

    id: str
    day: int
    function: str
    sentence: str
    run: Callable[[Function, Random], str]


@dataclass(frozen=True)
class Result:
    """What came of a check. ``failure`` is a wrong answer, ``error`` the learner's exception."""

    id: str
    passed: bool
    line: str
    failure: CheckFailure | None = None
    error: BaseException | None = None


def seed_in_force() -> int:
    """Return the seed of the drawn cases: ``GRADER_SEED``, else the published one.

    Raises BadInput when the variable holds no whole number.
    """
    text = os.environ.get(SEED_VARIABLE, "").strip()
    if not text:
        return DEFAULT_SEED
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{SEED_VARIABLE}: expected a whole number, got {text!r}") from None


def run_check(check: Check, function: Callable[..., Any], seed: int | None = None) -> Result:
    """Run one check on a function; whatever the function does, return what came of it.

    >>> from compaction.tokens import estimate
    >>> from grader.checks import CHECKS
    >>> run_check(CHECKS["estimate-latin"], estimate).passed
    True

    Only KeyboardInterrupt gets through, and BadInput when ``GRADER_SEED`` is no number.
    """
    # Seeded with the check's name, so that a check draws the same whatever ran before it.
    rng = Random(f"{seed_in_force() if seed is None else seed}:{check.id}")
    try:
        return Result(check.id, True, check.run(function, rng))
    except KeyboardInterrupt:
        raise
    except CheckFailure as failure:
        wrong = f"{failure.call}: expected {failure.expected}, got {failure.got}"
        return Result(check.id, False, f"✗ {check.id}: {wrong}", failure=failure)
    except BaseException as error:
        what = f"{check.function} raised {describe_error(error)}"
        return Result(check.id, False, f"✗ {check.id}: {what}", error=error)


def describe_error(error: BaseException) -> str:
    """Return an exception's name and the first line of its text.

    >>> describe_error(ValueError("no\\nmore"))
    'ValueError: no'
    """
    try:
        text = printable(" ".join(str(error).splitlines()[:1])[:200])
    except Exception:  # a learner's exception may come with a __str__ of its own
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
