"""One function of a learner's notebook in a worker process, and calls of it from here.

In go the notebook's cells; out come a function that calls the learner's over the pipe, what
failed in which cell, and what was printed. What goes wrong on the other side is a LearnerFault.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self
from unicodedata import category

from grader.sandbox.inside import protocol
from grader.sandbox.inside.confine import SCRATCH
from grader.sandbox.library import stubbed_names
from grader.sandbox.limits import (
    Absent,
    Died,
    Ended,
    Forbidden,
    Garbled,
    LaunchError,
    LearnerError,
    LearnerFault,
    Limits,
    OutOfMemory,
    TimedOut,
    TooMuchOutput,
    Unfit,
)
from grader.sandbox.worker import Worker

Source = str | tuple[str, str]
"""A cell: its source, or the name that messages call it by and its source."""


class Child:
    """One function of a learner's notebook, with the code it needs, in a process of its own.

    A call that hangs, dies or breaks the pipe ends the process; the next call starts another
    one and runs the cells again, without those that did it. After a call that timed out, the
    next ones get a fifth of the time.

    ``faults``: what went wrong in which cell, by the cell's name. ``printed``: the beginning of
    what the code printed. ``reached``: which stubbed functions the code reached for.
    """

    def __init__(
        self,
        open_worker: Callable[[tuple[str, ...]], Worker],
        cells: Iterable[Source],
        function: str,
        stubbed: Iterable[str],
        limits: Limits,
    ) -> None:
        self._open_worker = open_worker
        self._cells = _named(cells)
        self._function = function
        self._stubbed = tuple(sorted(stubbed))
        self._limits = limits
        self._until = time.monotonic() + limits.submission_s
        self._process: Worker | None = None
        self._peer: protocol.Peer | None = None
        self._deadline = 0.0
        self._allowed_s = 0.0
        self._starts = 0
        self._whole = False
        self._skipped: set[int] = set()
        self._is_slow = False
        self._is_called = False
        self._has_changed = False  # what the last call did to its arguments
        self.faults: dict[str, str] = {}
        self.printed = ""
        self.reached: list[str] = []
        self.left_out = False

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function that calls the learner's function of this name.

        It raises a LearnerFault when the learner's code does not answer. Its attribute ``changed``
        says whether the last call has changed its own copies of the arguments.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            self._has_changed = False
            value = self._call(name, args, kwargs)
            vars(call)["changed"] = "an argument was changed" if self._has_changed else ""
            return value

        call.__name__ = call.__qualname__ = name
        return call

    def run_cells(self, whole: bool = False) -> None:
        """Run the cells in a new process: what the function needs of them, or ``whole``."""
        self._end()
        self._whole = whole
        try:
            self._launch()
        except LearnerFault:
            self._end()  # a call will try again, and say what is wrong

    def close(self) -> None:
        """End the process and all that it has started."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _launch(self) -> None:
        """Start a process and run the cells in it, without those that ended one before."""
        while True:
            self._open()
            plan = self._ask(
                {
                    "do": "plan",
                    "cells": [list(cell) for cell in self._cells],
                    "function": self._function,
                    "whole": self._whole,
                    "stubbed": list(stubbed_names(self._stubbed)),
                },
                self._limits.cell_s,
            )
            groups, needed = _numbers(plan, "groups"), _numbers(plan, "needed")
            self.left_out = plan.get("left_out") is True
            skipped = {self._cells[cell][0] for cell in self._skipped}
            self.faults = {name: text for name, text in self.faults.items() if name in skipped}
            self._note_faults(plan.get("faults"))
            self._note_reached(plan.get("imported"))
            if self._run_groups(groups, needed):
                return

    def _open(self) -> None:
        if self._starts > self._limits.restarts:
            raise Died(f"its process ended {self._starts} times and is not started again")
        self._starts += 1
        self._process = process = self._open_worker(self._stubbed)
        self._peer = protocol.Peer(self._send, self._receive, self._limits.calls_back)
        scratch = str(process.scratch or SCRATCH)
        first = {
            "limits": asdict(self._limits),
            "scratch": scratch,
            "environment": {"HOME": scratch, "TMPDIR": scratch, **_ENVIRONMENT},
            **process.preload,
        }
        try:
            self._ask(first, _START_S)
        except (Died, Garbled) as fault:  # nothing of the learner's is there yet
            raise LaunchError(f"a process in the sandbox does not start: {fault}") from None

    def _run_groups(self, groups: Sequence[int], needed: Sequence[int]) -> bool:
        """Run the groups, each within its time; False when one of them ended the process."""
        for number, cell in enumerate(groups):
            if cell in self._skipped or not 0 <= cell < len(self._cells):
                continue
            try:
                answer = self._ask({"do": "run", "group": number}, self._limits.cell_s)
            except Ended as fault:
                self._skipped.add(cell)
                self.faults[self._cells[cell][0]] = str(fault)
                self._end()
                return False
            if cell in needed:
                self._note_reached(answer.get("reached"))
            if "raised" in answer:
                error = _learner_error(answer["raised"])
                told = f"{type(error).__name__}: {error}"
                self.faults[self._cells[cell][0]] = " ".join(told[:300].split())
        return True

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._is_called:
            raise RuntimeError("a learner's function is called while another one is running")
        if self._process is None:
            self._launch()
        self._refuse_if_reached()
        assert self._peer is not None
        self._peer.forget()
        request = {"do": "apply", "function": name, "args": self._peer.encode(list(args))}
        request["kwargs"] = self._peer.encode(kwargs)
        allowed_s = self._limits.call_s * (0.2 if self._is_slow else 1.0)
        self._is_called = True
        try:
            answer = self._ask(request, allowed_s)
            self._note_reached(answer.get("reached"))
            self._refuse_if_reached()
            if "value" in answer:
                self._has_changed = answer.get("changed") is True
                return self._peer.decode(answer["value"])
        except protocol.ProtocolError as fault:
            self._end()
            raise Garbled(f"{name}: what came back is no answer: {fault}") from None
        except Ended as fault:
            self._is_slow = self._is_slow or isinstance(fault, TimedOut)
            raise
        finally:
            self._is_called = False
        if "raised" in answer:
            raise _learner_error(answer["raised"])
        if "unsendable" in answer:
            raise Unfit(f"{name} returned a value that is {_clean(answer['unsendable'], 80)}")
        if "absent" in answer:
            raise Absent(self._why_absent(name, _clean(answer["absent"], 40)))
        self._end()
        raise Garbled(f"{name}: what came back is no answer")

    def _why_absent(self, name: str, what: str) -> str:
        sources = dict(self._cells)
        guilty = [cell for cell in self.faults if re.search(rf"\b{name}\b", sources[cell])]
        for cell in guilty[-1:]:
            return f"{name} {what}: {cell} failed: {self.faults[cell]}"
        return f"{name} {what}"

    # What crosses the pipe.

    def _ask(self, request: dict[str, Any], allowed_s: float) -> dict[str, Any]:
        assert self._peer is not None
        now = time.monotonic()
        if now >= self._until:
            self._end()
            raise TimedOut(f"the submission took longer than {self._limits.submission_s:g} s")
        self._allowed_s = allowed_s
        self._deadline = min(now + allowed_s, self._until)
        try:
            answer = self._peer.ask(request)
        except protocol.ProtocolError as fault:
            self._end()
            raise Garbled(f"what came over the pipe is no answer: {fault}") from None
        except Ended:
            self._end()
            raise
        room = self._limits.output_chars - len(self.printed)
        if room > 0:
            self.printed += _clean(answer.get("printed"), room)
        return answer

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        try:
            self._process.write(protocol.pack(message), self._deadline)
        except TimeoutError:
            raise self._too_slow() from None
        except OSError:
            raise self._gone() from None

    def _receive(self) -> dict[str, Any]:
        process = self._process
        if process is None:
            raise Died("its process has ended")
        try:
            message = process.read(self._limits.answer_bytes, self._deadline)
        except protocol.TooLong as fault:
            most = self._limits.answer_bytes
            raise Garbled(
                f"an answer of {fault.length:,} bytes, where {most:,} are allowed"
            ) from None
        except TimeoutError:
            raise self._too_slow() from None
        except (EOFError, OSError):
            raise self._gone() from None
        if "flood" in message:
            raise TooMuchOutput(f"printed more than {50 * self._limits.output_chars:,} characters")
        return message

    def _too_slow(self) -> Ended:
        if time.monotonic() >= self._until:
            return TimedOut(f"the submission took longer than {self._limits.submission_s:g} s")
        return TimedOut(f"took longer than {self._allowed_s:g} s and was stopped")

    def _gone(self) -> Ended:
        """Say why the process is gone."""
        process, self._process = self._process, None
        ending = process.end(is_ending=True) if process is not None else None
        if ending is None and process is not None and process.is_out_of_reach:
            raise LaunchError("the program in the sandbox was killed")
        if ending is None or ending.code == 0:
            return Died("ended its process instead of answering")
        # Out of processor time: a signal of its own, or SIGKILL where that cannot be delivered.
        if ending.code == -24 or (ending.code == -9 and ending.cpu_s >= self._limits.cpu_s - 0.5):
            return TimedOut(f"used more than {self._limits.cpu_s} s of CPU time")
        if ending.code == -9:
            return Died("was killed by the system, most likely for want of memory")
        if ending.code < 0:
            return Died(f"crashed (signal {-ending.code})")
        return Died(f"ended its process instead of answering (exit code {ending.code})")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    # What the other side tells of itself.

    def _note_reached(self, told: Any) -> None:
        names = stubbed_names(self._stubbed)
        for name in told if isinstance(told, list) else []:
            known = isinstance(name, str) and name.rpartition(".")[2] in names
            if known and name not in self.reached:
                self.reached.append(_clean(name, 80))

    def _refuse_if_reached(self) -> None:
        if self.reached:
            raise self.forbidden()

    def forbidden(self) -> Forbidden:
        """Say which of the library's functions the code reached for."""
        module, _, function = self.reached[0].rpartition(".")
        exercise = stubbed_names(self._stubbed)[function]
        what = "is" if function == exercise else f"does the work of {exercise},"
        return Forbidden(
            f"uses the library's own {function} (from {module}), which {what} this day's exercise"
        )

    def _note_faults(self, told: Any) -> None:
        for number, text in told if isinstance(told, list) else []:
            self.faults[self._cells[number][0]] = _clean(text, 300)


_START_S = 30.0  # it takes a hundredth of a second; this is for a machine that does not keep up

_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "MPLBACKEND": "agg",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def _named(cells: Iterable[Source]) -> list[tuple[str, str]]:
    """Return cells with a name each, and no name twice."""
    named: dict[str, str] = {}
    for number, cell in enumerate(cells, start=1):
        name, source = (f"cell {number}", cell) if isinstance(cell, str) else cell
        named[f"{name} (cell {number})" if name in named else name] = source
    return list(named.items())


def _numbers(answer: dict[str, Any], name: str) -> list[int]:
    told = answer.get(name)
    return [n for n in told if type(n) is int] if isinstance(told, list) else []


def _learner_error(told: Any) -> LearnerFault:
    """Return the exception that the other side tells of, under its own name."""
    texts = told if isinstance(told, list) and len(told) == 3 else ["Exception", "", ""]
    name, text, trace = (_clean(part, 8000) for part in texts)
    if name == "MemoryError":
        return OutOfMemory("asked for more memory than it may have")
    word = "".join(c for c in name[:80] if c.isalnum() or c == "_")
    error: LearnerError = type(word or "Exception", (LearnerError,), {})(text)
    error.trace = trace
    return error


def _clean(text: Any, most: int) -> str:
    """Return a text of the learner's that is safe to print: no control characters, not too long."""
    if not isinstance(text, str):
        return ""
    kept = text[:most]
    if kept.isascii() and kept.isprintable():
        return kept
    return "".join(c if category(c) not in _UNSEEN or c in "\n\t" else "�" for c in kept)


_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # control, format, surrogates, line breaks
