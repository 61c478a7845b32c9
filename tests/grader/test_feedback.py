"""What a learner is told: the lines of a failure, values on one line, the card, the score."""

import pickle
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.utils import determine_grade

import grader
from compaction.calibration import fit
from compaction.session import load
from compaction.tokens import Coefficients, estimate
from grader import feedback
from grader.checks import CHECKS, CORE, run_check, same
from grader.feedback import CheckFailure, card_html, difference, quote, score_lines, show
from grader.traps import day1

FOUR_LINES = [
    '✗ estimate("你好 world")',
    "  expected: 4",
    "  got:      2",
    "  why:      one rule for all text: a CJK character costs about a whole token, not a quarter",
]


# --- a failure --------------------------------------------------------------------------


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


# --- values -----------------------------------------------------------------------------


def test_values_on_one_line() -> None:
    messages = load("long").messages
    assert show(messages) == "14 messages" and show(messages[:1]) == "1 message"
    assert show(None) == "None" and show(True) == "True" and show(86) == "86"
    assert show([]) == "[]" and show(()) == "()" and show({}) == "{}"
    assert show({"a": 1.0}) == '{"a": 1}'
    assert show(Coefficients()) == "Coefficients(cjk=1, other=0.25)"
    assert show(10**5000) == "a whole number of 16610 bits"
    assert show(list(range(500))).endswith("more]") and len(show(list(range(500)))) < 120


def test_quotes() -> None:
    assert quote("it's") == '"it\'s"'
    assert quote('say "hi"') == "'say \"hi\"'"
    assert quote("a\nb\x1b\ud800好") == '"a\\nb\\x1b\\ud800好"'
    assert quote("x" * 1000).endswith("(1000 characters)") and len(quote("x" * 1000)) < 130


def test_difference_shows_the_first_place() -> None:
    long = load("long").messages
    other = [dict(message) for message in long]
    other[9] = {**other[9], "content": other[9]["content"].replace("guard", "watch")}
    assert difference(long, long[:7]) == ("14 messages", "7 messages")
    expected, got = difference(long, other)
    place = next(i for i, pair in enumerate(zip(long, other, strict=True)) if pair[0] != pair[1])
    assert expected.startswith(f"[{place}]") and "guard" in expected and "watch" not in expected
    assert got.startswith(f"[{place}]") and "watch" in got and "guard" not in got


def test_difference_in_a_long_text_shows_its_surroundings() -> None:
    expected, got = difference("a" * 500 + "right" + "b" * 500, "a" * 500 + "wrong" + "b" * 500)
    assert expected == '"…' + "a" * 20 + "right" + "b" * 35 + '…"'
    assert got == '"…' + "a" * 20 + "wrong" + "b" * 35 + '…"'


def test_numbers_that_differ_far_behind_the_point() -> None:
    assert difference(0.12345678, 0.12345679) == ("0.12345678", "0.12345679")


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=20,
)


@given(plain_values, plain_values)
def test_values_that_differ_never_look_the_same(first: Any, second: Any) -> None:
    if same(first, second):
        return
    expected, got = difference(first, second)
    assert expected != got
    assert max(len(expected), len(got)) < 500
    assert expected.isprintable() and got.isprintable()


# --- card and score ---------------------------------------------------------------------


def test_card_says_it_in_words_first() -> None:
    passed, not_yet = (card_html(w, "a-b", ["x < y & z"]) for w in ("Passed", "Not yet"))
    for card, word in ((passed, "Passed"), (not_yet, "Not yet")):
        assert f"<strong>{word}</strong>" in card
        assert card.index(word) < card.index("a-b") < card.index("x &lt; y &amp; z")
        # The page's own colours for text and ground: readable in a light and a dark theme.
        assert "color: inherit" in card and "background: none" in card
    # Not by colour alone.
    assert "solid" in passed and "dashed" in not_yet


def test_score_names_passed_failed_and_not_run() -> None:
    results = {
        check_id: run_check(CHECKS[check_id], function)
        for check_id, function in (
            ("estimate-latin", day1.estimate),
            ("estimate-cjk", day1.estimate),
            ("calibrate-fit", fit),
        )
    }
    lines = score_lines(results)
    assert lines[0] == "2 of 5 checks passed"
    assert [line for line in lines[1:] if not line.startswith(" ")] == [
        "Passed:  estimate-latin",
        "Passed:  calibrate-fit",
        "Not yet: estimate-cjk",
        "Not run: calibrate-singular",
        "Not run: calibrate-few",
    ]
    told = " ".join(" ".join(lines).split())
    assert all(chosen.sentence in told for chosen in CHECKS.values() if chosen.day in (1, 2))
    assert max(map(len, lines)) < 60  # a narrow window does not break them


def test_outside_of_jupyter_there_is_a_line_and_no_card(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feedback, "_results", {})
    assert grader.check("estimate-latin", estimate) is None
    assert capsys.readouterr().out == "✓ Latin text of 341 characters: about 86 tokens\n"
    with pytest.raises(CheckFailure) as caught:
        grader.check("estimate-cjk", day1.estimate)
    assert str(caught.value) == "\n".join(FOUR_LINES)
    with pytest.raises(ZeroDivisionError):
        grader.check("calibrate-few", lambda *_: 1 / 0)
    capsys.readouterr()
    assert grader.score() is None
    out = capsys.readouterr().out
    assert out.startswith("1 of 5 checks passed\nPassed:  estimate-latin\n ")
    assert "Not yet: calibrate-few" in out and "Not run: calibrate-fit" in out


def test_a_check_that_passes_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "_results", {})
    with pytest.raises(CheckFailure):
        grader.check("estimate-cjk", day1.estimate)
    grader.check("estimate-cjk", estimate)
    assert score_lines(feedback._results)[0] == "1 of 2 checks passed"


def test_an_unknown_check_is_named() -> None:
    with pytest.raises(ValueError, match="no check called 'estimate-latn'; there are estimate-lat"):
        grader.check("estimate-latn", estimate)


# --- in a kernel ------------------------------------------------------------------------

CELLS = [
    "from grader import check, score\nfrom grader.traps.day1 import estimate",
    'check("estimate-latin", estimate)',
    'check("estimate-cjk", estimate)',
    "def estimate(text, coefficients=None):\n    return len(text) / 0",
    'check("estimate-cjk", estimate)',
    "score()",
]


@pytest.fixture(scope="module")
def outputs() -> list[Any]:
    """The outputs of the cells, run in a kernel as JupyterLab runs them."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, allow_errors=True, timeout=60).execute()
    nbformat.validate(notebook)
    return [cell.outputs for cell in notebook.cells]


def texts(cell_outputs: Any) -> list[str]:
    return [o.text for o in cell_outputs if o.output_type == "stream" and o.name == "stdout"]


def cards(cell_outputs: Any) -> list[Any]:
    return [o.data for o in cell_outputs if o.output_type == "display_data"]


def errors(cell_outputs: Any) -> list[Any]:
    return [o for o in cell_outputs if o.output_type == "error"]


def test_a_pass_in_a_kernel_is_its_line_and_a_card(outputs: list[Any]) -> None:
    assert texts(outputs[1]) == ["✓ Latin text of 341 characters: about 86 tokens\n"]
    (card,) = cards(outputs[1])
    assert card["text/plain"].startswith("Passed: estimate-latin. Latin text costs")
    assert "<strong>Passed</strong>" in card["text/html"]
    assert not errors(outputs[1])


def test_a_failure_in_a_kernel_is_a_card_and_the_four_lines_alone(outputs: list[Any]) -> None:
    (card,) = cards(outputs[2])
    assert card["text/plain"].startswith("Not yet: estimate-cjk.")
    (error,) = errors(outputs[2])
    assert error.ename == "CheckFailure"
    assert error.traceback == FOUR_LINES
    assert not texts(outputs[2])


def test_an_exception_of_the_learner_keeps_its_traceback(outputs: list[Any]) -> None:
    (error,) = errors(outputs[4])
    assert error.ename == "ZeroDivisionError"
    shown = "\n".join(error.traceback)
    assert "return" in shown and "estimate" in shown
    # The way through the grader is left out.
    assert "judge.py" not in shown and "run_check" not in shown
    assert cards(outputs[4])[0]["text/plain"].startswith("Not yet: estimate-cjk.")


def test_score_in_a_kernel(outputs: list[Any]) -> None:
    assert texts(outputs[5])[0].startswith("1 of 2 checks passed\nPassed:  estimate-latin")


def test_nbgrader_gives_a_point_a_pass_and_none_a_failure(outputs: list[Any]) -> None:
    for cell_outputs, points in ((outputs[1], 1.0), (outputs[2], 0), (outputs[4], 0)):
        cell = new_code_cell('check("estimate-cjk", estimate)', outputs=cell_outputs)
        cell.metadata["nbgrader"] = {"grade": True, "solution": False, "points": 1}
        assert determine_grade(cell) == (points, 1.0)


def test_every_failure_of_a_starter_fits_on_its_lines() -> None:
    from grader.exercises import EXERCISES

    starters = {exercise.function: exercise.starter() for exercise in EXERCISES}
    for check in CORE:
        failure = run_check(check, starters[check.function]).failure
        if failure is not None:
            assert len(failure.lines) == 4
            assert max(map(len, failure.lines)) <= 180
