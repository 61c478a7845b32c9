"""The checks of the course: fifteen for days 1 to 6, and those beyond.

Each check calls the learner's function of one day and the library for everything else, counts
with a fresh meter, and draws some of its cases under a seed.

A check is a function in ``day1`` ... ``day8``, under the decorator of ``check``; ``catalogue`` has
them in order. ``trial`` runs a learner's function beside the library's on what ``histories`` draws;
``values`` reduces and compares what came back; ``spell`` and ``show`` write calls and values as the
learner reads them; ``failure`` holds the four lines.
"""

from grader.checks.catalogue import CHECKS, CORE, EXTENSION
from grader.checks.check import (
    DEFAULT_SEED,
    SEED_VARIABLE,
    Check,
    Result,
    run_check,
    seed_in_force,
)
from grader.checks.failure import describe_error
from grader.checks.values import plain, same

__all__ = [
    "CHECKS",
    "CORE",
    "DEFAULT_SEED",
    "EXTENSION",
    "SEED_VARIABLE",
    "Check",
    "Result",
    "describe_error",
    "plain",
    "run_check",
    "same",
    "seed_in_force",
]
