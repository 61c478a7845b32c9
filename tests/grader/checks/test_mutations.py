"""What is nearly a solution fails its checks, and what is one in another way passes them.

A line a mutation, under one seed; ``benchmarks/checks.py`` takes as many seeds as wanted.
"""

import contextlib
import io

import pytest

from grader.checks import CHECKS, run_check
from grader.exercises import EXERCISES
from tests.grader.checks.mutations import Mutation, mutations

SEED = 7
MUTATIONS = list(mutations().values())


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mutation_comes_out_as_it_should(mutation: Mutation) -> None:
    function = mutation.made()
    checks = [check for check in CHECKS.values() if check.function == mutation.function]
    with contextlib.redirect_stdout(io.StringIO()):
        failed = next((r for c in checks if not (r := run_check(c, function, SEED)).passed), None)
    assert (failed is None) is mutation.passes, (mutation.why, failed)
    assert failed is None or failed.error or len(failed.lines) in (3, 4), failed


def test_each_exercise_has_mutations_of_both_kinds() -> None:
    for exercise in EXERCISES:
        kinds = [m.passes for m in MUTATIONS if m.function == exercise.function]
        assert kinds.count(False) >= 15 and kinds.count(True) >= 2, exercise.function
