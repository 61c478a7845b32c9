"""Grade a learner's functions: run the checks on this side, and the functions in a sandbox.

In go the cells above each function's checks; out comes one result per check.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from grader.checks import Check, Result, run_check
from grader.sandbox.limits import (
    Absent,
    LaunchError,
    LearnerError,
    LearnerFault,
    Limits,
    SandboxMissing,
)
from grader.sandbox.sandbox import Sandbox
from grader.sandbox.submission import Child, Source


def grade(
    sandbox: Sandbox,
    exercises: Mapping[str, Sequence[Source]],
    checks: Iterable[Check],
    seed: int | None = None,
    stubbed: Sequence[str] | None = None,
    limits: Limits | None = None,
) -> list[Result]:
    """Run checks on a learner's functions, and return their results in order.

    ``exercises`` are the cells above each function's checks, by the function's name.
    Each function runs in a process of its own, so that none can spoil another. ``stubbed`` are
    the functions that the library lacks there (by default all of ``exercises``).
    ``limits.submission_s`` is for all of it.

    Never raises for anything that the learner's code does; raises LaunchError when the sandbox
    itself fails, and SandboxMissing.
    """
    limits = limits or sandbox.limits
    stubbed = tuple(exercises) if stubbed is None else stubbed
    until = time.monotonic() + limits.submission_s
    asked = list(checks)
    results: dict[str, Result] = {}
    for function in dict.fromkeys(check.function for check in asked):
        own = [check for check in asked if check.function == function]

        def grade_one(name: str = function, own: Sequence[Check] = own) -> dict[str, Result]:
            left = replace(limits, submission_s=max(0.1, until - time.monotonic()))
            with sandbox.child(exercises.get(name, ()), name, stubbed, left) as child:
                child.run_cells()
                return _grade_function(child, own, seed)

        try:
            results |= grade_one()
        except LaunchError:  # once more: what happened to the sandbox may not happen again
            results |= grade_one()
    return [results[check.id] for check in asked]


def _grade_function(child: Child, checks: Sequence[Check], seed: int | None) -> dict[str, Result]:
    function = child.function(checks[0].function)
    results = {check.id: run_check(check, function, seed) for check in checks}
    # Perhaps a name was missing because only a part of the cells was run.
    raised = (LearnerError, Absent)
    if child.left_out and any(isinstance(r.error, raised) for r in results.values()):
        child.run_cells(whole=True)
        for check in checks:
            if not results[check.id].passed:
                again, before = run_check(check, function, seed), results[check.id]
                if again.passed or isinstance(before.error, Absent):
                    results[check.id] = again
    for name, result in results.items():
        fault = result.error
        if isinstance(fault, LaunchError | SandboxMissing):
            raise fault  # not the learner's
        if child.reached:
            fault = child.forbidden()
        if isinstance(fault, LearnerFault) and not isinstance(fault, LearnerError):
            results[name] = Result(name, False, f"✗ {name}: {fault}", error=fault)
    return results
