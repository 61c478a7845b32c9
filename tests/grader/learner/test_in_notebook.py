"""What a learner is told: the lines of a failure, values on one line, the card, the score."""

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.utils import determine_grade

import grader
from compaction.calibration import fit
from compaction.tokens import estimate
from grader.checks import CHECKS, run_check
from grader.checks.failure import CheckFailure
from grader.learner import in_notebook
from grader.learner.in_notebook import card_html, score_lines
from grader.starters import day1

FOUR_LINES = [
    '✗ estimate("你好 world")',
    "  expected: 4",
    "  got:      2",
    "  why:      one rule for all text: a CJK character costs about a whole token, not a quarter",
]


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
    monkeypatch.setattr(in_notebook, "_results", {})
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
    monkeypatch.setattr(in_notebook, "_results", {})
    with pytest.raises(CheckFailure):
        grader.check("estimate-cjk", day1.estimate)
    grader.check("estimate-cjk", estimate)
    assert score_lines(in_notebook._results)[0] == "1 of 2 checks passed"


def test_an_unknown_check_is_named() -> None:
    with pytest.raises(ValueError, match="no check called 'estimate-latn'; there are estimate-lat"):
        grader.check("estimate-latn", estimate)


# --- in a kernel ------------------------------------------------------------------------

CELLS = [
    "from grader import check, score\nfrom grader.starters.day1 import estimate",
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
    assert "trial.py" not in shown and "run_check" not in shown
    assert cards(outputs[4])[0]["text/plain"].startswith("Not yet: estimate-cjk.")


def test_score_in_a_kernel(outputs: list[Any]) -> None:
    (score,) = cards(outputs[5])
    assert score["text/plain"].startswith("1 of 2 checks passed\nPassed:  estimate-latin")
    table = score["text/html"]
    assert "width: 100%" in table and "<caption" in table and table.count('scope="row"') == 2
    assert table.index("Passed") < table.index("estimate-latin") < table.index("Not yet")
    assert not texts(outputs[5])


def test_nbgrader_gives_a_point_a_pass_and_none_a_failure(outputs: list[Any]) -> None:
    for cell_outputs, points in ((outputs[1], 1.0), (outputs[2], 0), (outputs[4], 0)):
        cell = new_code_cell('check("estimate-cjk", estimate)', outputs=cell_outputs)
        cell.metadata["nbgrader"] = {"grade": True, "solution": False, "points": 1}
        assert determine_grade(cell) == (points, 1.0)
