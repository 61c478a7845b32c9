"""A wrong answer, as a learner reads it: the call, what was expected, what came, and why."""

from __future__ import annotations

from grader.errors import printable


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
