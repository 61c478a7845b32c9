"""What a learner sees in a notebook: a line or four, the card, the score."""

from __future__ import annotations

import html
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from grader.checks import CHECKS, Check, Result, run_check
from grader.checks.failure import learners_part
from grader.checks.show import number_of
from grader.learner.progress import html_table

PASSED, NOT_YET, NOT_RUN = "Passed", "Not yet", "Not run"


_results: dict[str, Result] = {}  # what this kernel has checked so far


def check_in_notebook(check_id: str, function: Callable[..., Any]) -> None:
    """Run one check, print its line and, in Jupyter, a card; raise what went wrong.

    Nothing is returned, because nbgrader takes a number that a cell shows for partial credit:
    a cell that raises gets nothing, every other one gets its point.
    """
    __tracebackhide__ = True
    if check_id not in CHECKS:
        raise ValueError(f"there is no check called {check_id!r}; there are {', '.join(CHECKS)}")
    chosen = CHECKS[check_id]
    result = run_check(chosen, function)
    _results[check_id] = result
    if result.passed:
        print(result.line)
    _display_card(chosen, result)
    if result.failure is not None:
        raise result.failure.with_traceback(None)
    if result.error is not None:
        print("\n".join(result.lines))  # which call it was; the exception's own stack follows
        raise result.error.with_traceback(learners_part(result.error.__traceback__))


def show_score() -> None:
    """Show passed and failed by name, for the days whose checks have run in this kernel.

    A table in Jupyter, lines elsewhere; both say the same in words.
    """
    lines = score_lines(_results)
    if not _results or not _display(lines, score_table(_results)):
        print("\n".join(lines))


_SCORE_WIDTH = 58  # characters: what a narrow terminal shows


def score_lines(results: dict[str, Result]) -> list[str]:
    """Return the score as lines, words first; the last ones are the checks not run.

    >>> score_lines({})
    ['No check has run in this kernel yet: run the notebook from the top.']
    """
    if not results:
        return ["No check has run in this kernel yet: run the notebook from the top."]
    lines = [_summed_up(results)]
    for word, chosen in _by_word(results):
        lines += score_entry(word, chosen)
    return lines


def score_table(results: dict[str, Result]) -> str:
    """Return the same as an HTML table over the pane's full width."""
    rows = (
        (word, f"<code>{chosen.id}</code>", html.escape(chosen.sentence))
        for word, chosen in _by_word(results)
    )
    return html_table(_summed_up(results), ("State", "Check", "What it shows"), rows)


def _summed_up(results: dict[str, Result]) -> str:
    words = [word for word, _ in _by_word(results)]
    return f"{words.count(PASSED)} of {number_of(words, 'check')} passed"


def _by_word(results: dict[str, Result]) -> list[tuple[str, Check]]:
    """Pair each check of the days at hand with its word: the passed first, the not run last."""
    days = {CHECKS[check_id].day for check_id in results}
    asked = [chosen for chosen in CHECKS.values() if chosen.day in days]
    paired = [(_word(results.get(chosen.id)), chosen) for chosen in asked]
    return sorted(paired, key=lambda pair: (PASSED, NOT_YET, NOT_RUN).index(pair[0]))


def score_entry(word: str, chosen: Check) -> list[str]:
    """Return a check's lines in the score; they are short, because Jupyter breaks words.

    >>> from grader.checks import CHECKS
    >>> print("\\n".join(score_entry("Passed", CHECKS["estimate-latin"])))
    Passed:  estimate-latin
             Latin text costs about one token per four
             characters, rounded up.
    """
    indent = " " * 9
    sentence = textwrap.wrap(
        chosen.sentence, _SCORE_WIDTH, initial_indent=indent, subsequent_indent=indent
    )
    return [f"{word + ':':9}{chosen.id}", *sentence]


def _word(result: Result | None) -> str:
    if result is None:
        return NOT_RUN
    return PASSED if result.passed else NOT_YET


def _display_card(chosen: Check, result: Result) -> None:
    word = _word(result)
    plain = f"{word}: {chosen.id}. {chosen.sentence}"
    _display([plain], card_html(word, chosen.id, [chosen.sentence]))


def _display(lines: list[str], page: str) -> bool:
    """Show HTML where there is something that draws it, a kernel of Jupyter; return whether."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if getattr(shell, "kernel", None) is None:
        return False
    from IPython.display import display

    display({"text/plain": "\n".join(lines), "text/html": page}, raw=True)
    return True


# JupyterLab breaks a long line of text anywhere, even inside a number. Not in a check's cell.
_WHOLE_WORDS = (
    "<style>.jp-Cell:has(.check-card) pre { word-break: normal; overflow-wrap: anywhere }</style>"
)


def card_html(word: str, name: str, sentences: Iterable[str]) -> str:
    """Return the card: the word first, then which check, then what it is about.

    It takes the page's own text colour and no background, so that it reads on a light and on a
    dark theme; the border says the same as the word, by its form as well as by its colour.

    >>> "<strong>Passed</strong>" in card_html("Passed", "estimate-latin", ["Latin text."])
    True
    """
    passed, not_yet = ("#2e8b57", "solid", "solid"), ("#b8700a", "dashed", "double")
    colour, form, edge = passed if word == PASSED else not_yet
    body = "".join(f"<div>{html.escape(sentence)}</div>" for sentence in sentences)
    return (
        f'{_WHOLE_WORDS}<div class="check-card" style="border: 1px {form} {colour}; '
        f"border-left: 6px {edge} {colour}; "
        "border-radius: 3px; padding: 0.4em 0.8em; margin: 0.2em 0; max-width: 60em; "
        'color: inherit; background: none; line-height: 1.5">'
        f"<strong>{html.escape(word)}</strong> &middot; <code>{html.escape(name)}</code>"
        f"{body}</div>"
    )
