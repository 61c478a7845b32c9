"""Run a learner's code where it can do no harm, and check it from outside.

``library`` copies what a notebook may import, ``launch`` starts the program in ``inside``,
``sandbox`` runs one function of a notebook and calls it from here.
"""

from grader.sandbox.launch import LEVELS
from grader.sandbox.sandbox import (
    Absent,
    Child,
    Died,
    Forbidden,
    Garbled,
    LearnerError,
    LearnerFault,
    Limits,
    OutOfMemory,
    Sandbox,
    SandboxMissing,
    Source,
    TimedOut,
    TooMuchOutput,
    Unfit,
    UnsafeWarning,
    cells_above_checks,
    grade,
)

__all__ = [
    "LEVELS",
    "Absent",
    "Child",
    "Died",
    "Forbidden",
    "Garbled",
    "LearnerError",
    "LearnerFault",
    "Limits",
    "OutOfMemory",
    "Sandbox",
    "SandboxMissing",
    "Source",
    "TimedOut",
    "TooMuchOutput",
    "Unfit",
    "UnsafeWarning",
    "cells_above_checks",
    "grade",
]
