"""A check, and running one: whatever the learner's function does, there is a result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any

from grader.checks.failure import CheckFailure, Raised, describe_error
from grader.checks.trial import Function, Trial
from grader.errors import BadInput

DEFAULT_SEED = 2026
SEED_VARIABLE = "GRADER_SEED"

Body = Callable[[Trial, Random], str]


@dataclass(frozen=True)
class Check:
    """One check: its id, its day, the library's function that it is about.

    ``body(trial, rng)`` returns the pass line, or raises what the trial raises; its docstring is
    the learner's sentence. ``how`` are the parts of its trial.
    """

    id: str
    day: int
    of: Function
    body: Body
    how: Mapping[str, Any]

    @property
    def function(self) -> str:
        """The name of the learner's function."""
        return self.of.__name__

    @property
    def sentence(self) -> str:
        """What the check is about, for the learner."""
        return " ".join(str(self.body.__doc__).split())

    def run(self, function: Function, rng: Random) -> str:
        """Return the pass line, or raise CheckFailure or Raised."""
        return self.body(Trial(function, self.of, **self.how), rng)


def check(check_id: str, *, day: int, of: Function, **how: Any) -> Callable[[Body], Check]:
    """Turn a function into a check; ``how`` are the parts of its trial."""
    return lambda body: Check(check_id, day, of, body, how)


def checks_in(module: ModuleType) -> list[Check]:
    """Return the checks that a module defines, in the order in which they are written."""
    return [value for value in vars(module).values() if isinstance(value, Check)]


@dataclass(frozen=True)
class Result:
    """The result of a check: ``failure`` is a wrong answer, ``error`` the learner's exception.

    ``case`` says with which call the exception came up, and what was expected.
    """

    id: str
    passed: bool
    line: str
    failure: CheckFailure | None = None
    error: BaseException | None = None
    case: CheckFailure | None = None

    @property
    def lines(self) -> list[str]:
        """What the learner is told: the pass line, or the lines of a failure."""
        told = self.failure or self.case
        return [self.line] if told is None else told.lines


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


def run_check(check: Check, function: Function, seed: int | None = None) -> Result:
    """Run one check on a function; whatever the function does, return the result.

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
    except Raised as raised:
        return _broken(check, raised.error, raised.failure)
    except BaseException as error:
        return _broken(check, error, None)


def _broken(check: Check, error: BaseException, case: CheckFailure | None) -> Result:
    what = f"{check.function} raised {describe_error(error)}"
    return Result(check.id, False, f"✗ {check.id}: {what}", error=error, case=case)
