"""What a learner is told: the four lines of a failure, the card in a notebook, the score."""

from __future__ import annotations

import html
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from compaction.files import InputError

if TYPE_CHECKING:
    from types import TracebackType

    from grader.checks import Check, Result

PASSED, NOT_YET, NOT_RUN = "Passed", "Not yet", "Not run"


class BadInput(InputError):
    """Input that cannot be used; its text is one line: what, where, and what was expected."""


class CheckFailure(Exception):
    """A wrong answer: the call, what was expected, what came, and why where that is known.

    >>> print(CheckFailure('estimate("hello")', "2", "1", "rounded down"))
    ✗ estimate("hello")
      expected: 2
      got:      1
      why:      rounded down
    """

    def __init__(self, call: str, expected: str, got: str, why: str | None = None) -> None:
        super().__init__(call, expected, got, why)
        self.call = _one_line(call)
        self.expected = _one_line(expected)
        self.got = _one_line(got)
        self.why = None if why is None else _one_line(why)

    @property
    def lines(self) -> list[str]:
        """The four lines, or three when nobody knows why."""
        lines = [f"✗ {self.call}", f"  expected: {self.expected}", f"  got:      {self.got}"]
        return lines if self.why is None else [*lines, f"  why:      {self.why}"]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _render_traceback_(self) -> list[str]:
        """Tell IPython to show the lines alone, without a stack of the grader's own."""
        return self.lines


def _one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()))


def printable(text: str) -> str:
    r"""Return a text whose control characters are escaped: nothing steers a reader's terminal.

    >>> print(printable("a\x1b[2Jb 好"))
    a\x1b[2Jb 好
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


# --- showing values ---------------------------------------------------------------------

_WIDTH = 96  # characters of a value on one line


def quote(text: str, width: int = _WIDTH) -> str:
    """Show a text in double quotes on one line, a long one with its middle left out.

    >>> print(quote("你好\\n"))
    "你好\\n"
    >>> print(quote("a" * 50 + "b" * 50, width=20))
    "aaaaaaaaaaaa…bbbbbb" (100 characters)
    """
    if len(text) <= width:
        return _quoted(text)
    tail = max(1, width // 3)
    return f"{_quoted(text[: width - tail - 2] + '…' + text[-tail:])} ({len(text)} characters)"


def _quoted(text: str) -> str:
    # repr escapes what a terminal should not get; after a leading ' it chooses double quotes.
    written = repr("'" + text)
    return '"' + written[2:] if written.startswith('"') else repr(text)


def show(value: object, width: int = _WIDTH) -> str:
    """Show a plain value on one line: shortened, and a history by its number of messages.

    >>> show([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])
    '2 messages'
    >>> show(0.1234567)
    '0.123457'
    >>> show(["a", "b"])
    '["a", "b"]'
    """
    if isinstance(value, str):
        return quote(value, width)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"a whole number of {value.bit_length()} bits"
    if is_history(value):
        return _count(value, "message")
    if isinstance(value, list | tuple):
        marks = "[]" if isinstance(value, list) else "()"
        return _enclosed(marks, [show(item, width) for item in value], width)
    if isinstance(value, dict):
        items = [f"{show(key, width)}: {show(item, width)}" for key, item in value.items()]
        return _enclosed("{}", items, width)
    if is_dataclass(value):
        items = [f"{f.name}={show(getattr(value, f.name), width)}" for f in fields(value)]
        return type(value).__name__ + _enclosed("()", items, 2 * width)
    return repr(value)


def is_history(value: object) -> bool:
    """Say whether a value is a list of messages."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "role" in item for item in value)
    )


def _count(items: Any, noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _enclosed(marks: str, items: list[str], width: int) -> str:
    shown: list[str] = []
    for index, item in enumerate(items):
        if shown and sum(map(len, shown)) + 2 * len(shown) + len(item) > width:
            shown.append(f"… {len(items) - index} more")
            break
        shown.append(item)
    return marks[0] + ", ".join(shown) + marks[1]


def difference(expected: object, got: object, place: str = "") -> tuple[str, str]:
    """Show two plain values that differ: whole when they are short, else where they part.

    >>> difference(4, 2)
    ('4', '2')
    >>> difference(["x" * 99, "y" * 99], ["x" * 99, "z"])[1]
    '[1]: "z"'
    """
    shown = show(expected), show(got)
    if shown[0] != shown[1] and max(map(len, shown)) <= _WIDTH:
        return _placed(place, *shown)
    if isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got) and (is_history(expected) or is_history(got)):
            return _placed(place, _count(expected, "message"), _count(got, "message"))
        for index, pair in enumerate(zip(expected, got, strict=False)):
            if _differ(*pair):
                return difference(*pair, f"{place}[{index}]")
        end = min(len(expected), len(got))
        beyond = [show(items[end]) if len(items) > end else "nothing" for items in (expected, got)]
        return _placed(f"{place}[{end}]", *beyond)
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            if key not in expected or key not in got:
                sides = [show(side[key]) if key in side else "nothing" for side in (expected, got)]
                return _placed(f"{place}[{show(key)}]", *sides)
            if _differ(expected[key], got[key]):
                return difference(expected[key], got[key], f"{place}[{show(key)}]")
    if is_dataclass(expected) and type(expected) is type(got):
        for name in [field.name for field in fields(expected)]:
            pair = getattr(expected, name), getattr(got, name)
            if _differ(*pair):
                return difference(*pair, f"{place}.{name}")
    if isinstance(expected, str) and isinstance(got, str):
        return _placed(place, *_where_texts_part(expected, got))
    # Numbers that only differ far behind the point.
    return _placed(place, repr(expected)[:_WIDTH], repr(got)[:_WIDTH])


def _differ(expected: object, got: object) -> bool:
    """Compare as written: True is not 1, in whatever list it stands."""
    return repr(expected) != repr(got)


def _placed(place: str, expected: str, got: str) -> tuple[str, str]:
    return (f"{place}: {expected}", f"{place}: {got}") if place else (expected, got)


def _where_texts_part(expected: str, got: str) -> tuple[str, str]:
    pairs = zip(expected, got, strict=False)
    shorter = min(len(expected), len(got))
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    start = max(0, position - 20)
    lead = "…" if start else ""

    def around(text: str) -> str:
        end = position + 40
        return _quoted(lead + text[start:end] + ("…" if end < len(text) else ""))

    return around(expected), around(got)


# --- in a notebook ----------------------------------------------------------------------

_results: dict[str, Result] = {}  # what this kernel has checked so far


def check_in_notebook(check_id: str, function: Callable[..., Any]) -> None:
    """Run one check, print its line and, in Jupyter, a card; raise what went wrong.

    Nothing is returned, because nbgrader takes a number that a cell shows for partial credit:
    a cell that raises gets nothing, every other one gets its point.
    """
    from grader.checks import CHECKS, run_check

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
        raise result.error.with_traceback(learners_part(result.error.__traceback__))


def learners_part(traceback: TracebackType | None) -> TracebackType | None:
    """Leave out the grader's own steps at the beginning of a traceback."""
    rest = traceback
    while rest is not None and rest.tb_frame.f_globals.get("__name__", "").startswith("grader."):
        rest = rest.tb_next
    return rest


def print_score() -> None:
    """Print passed and failed by name, for the days whose checks have run in this kernel."""
    print("\n".join(score_lines(_results)))


_SCORE_WIDTH = 58  # characters: what a window of 900 pixels shows beside the list of files


def score_lines(results: dict[str, Result]) -> list[str]:
    """Return the score as lines, words first; the last ones are the checks not run.

    >>> score_lines({})
    ['No check has run in this kernel yet: run the notebook from the top.']
    """
    from grader.checks import CHECKS

    if not results:
        return ["No check has run in this kernel yet: run the notebook from the top."]
    days = {CHECKS[check_id].day for check_id in results}
    asked = [chosen for chosen in CHECKS.values() if chosen.day in days]
    passed = [chosen for chosen in asked if chosen.id in results and results[chosen.id].passed]
    lines = [f"{len(passed)} of {_count(asked, 'check')} passed"]
    for word in (PASSED, NOT_YET, NOT_RUN):
        for chosen in asked:
            if _word(results.get(chosen.id)) == word:
                lines += score_entry(word, chosen)
    return lines


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
    """Show the card where there is something that draws HTML: in a kernel of Jupyter."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if getattr(shell, "kernel", None) is None:
        return
    from IPython.display import display

    word = _word(result)
    bundle = {
        "text/plain": f"{word}: {chosen.id}. {chosen.sentence}",
        "text/html": card_html(word, chosen.id, [chosen.sentence]),
    }
    display(bundle, raw=True)


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
