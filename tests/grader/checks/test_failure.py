"""The four lines of a failure."""

import pickle

from grader.checks import CHECKS, CORE, run_check
from grader.checks.failure import CheckFailure
from grader.starters import day1

FOUR_LINES = [
    '✗ estimate("你好 world")',
    "  expected: 4",
    "  got:      2",
    "  why:      one rule for all text: a CJK character costs about a whole token, not a quarter",
]


def test_a_failure_has_four_lines_or_three() -> None:
    failure = run_check(CHECKS["estimate-cjk"], day1.estimate).failure
    assert failure is not None
    assert failure.lines == FOUR_LINES
    assert failure._render_traceback_() == FOUR_LINES
    assert str(failure) == "\n".join(FOUR_LINES)
    assert CheckFailure("f()", "1", "2").lines == ["✗ f()", "  expected: 1", "  got:      2"]


def test_a_failure_travels_between_processes() -> None:
    failure = CheckFailure("f()", "1", "2", "because")
    assert pickle.loads(pickle.dumps(failure)).lines == failure.lines


def test_each_part_is_one_line_that_steers_no_terminal() -> None:
    failure = CheckFailure("f()", "1\n2", "\x1b[2Jgone\r\n\u202eback", "a\n\nb")
    assert len(failure.lines) == 4
    assert all(line.isprintable() for line in failure.lines)
    assert r"\x1b[2Jgone" in failure.got and r"\u202eback" in failure.got


def test_every_failure_of_a_starter_fits_on_its_lines() -> None:
    from grader.exercises import EXERCISES

    starters = {exercise.function: exercise.starter() for exercise in EXERCISES}
    for check in CORE:
        failure = run_check(check, starters[check.function]).failure
        if failure is not None:
            assert len(failure.lines) == 4
            assert max(map(len, failure.lines)) <= 180
