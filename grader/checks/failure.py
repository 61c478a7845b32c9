"""What went wrong, as a learner reads it: the call, what was expected, what came, and why."""

from __future__ import annotations

import linecache
import sys
from types import FrameType, TracebackType

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


class Raised(Exception):
    """The learner's function raised: its exception, and the case as a failure's lines."""

    def __init__(self, failure: CheckFailure, error: BaseException) -> None:
        super().__init__(failure, error)
        self.failure = failure
        self.error = error


def _one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()))


def describe_error(error: BaseException) -> str:
    """Return an exception's name and the first line of its text.

    >>> describe_error(ValueError("no\\nmore"))
    'ValueError: no'
    """
    try:
        text = printable(" ".join(str(error).splitlines()[:1])[:200])
    except Exception:  # a learner's exception may come with a __str__ of its own
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def learners_part(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the grader and of the library.

    What is left ends in the last line that the learner wrote.
    """
    frames = []
    while traceback is not None:
        if not _is_ours(traceback.tb_frame):
            frames.append(traceback)
        traceback = traceback.tb_next
    rest = None
    for frame in reversed(frames):
        rest = TracebackType(rest, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return rest


def _is_ours(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.split(".")[0] in ("grader", "compaction")


def place_of(error: BaseException) -> str:
    """Say in which line of the learner's code an exception came up; "" where nobody knows."""
    last = None
    traceback = learners_part(error.__traceback__)
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.split(".")[0] not in sys.stdlib_module_names:
            last = traceback
        traceback = traceback.tb_next
    if last is None:
        return ""
    line = linecache.getline(last.tb_frame.f_code.co_filename, last.tb_lineno).strip()
    return f", in line {last.tb_lineno}" + (f": {line}" if line else "")
