"""Run learners' functions through their checks in a process apart, with a time limit.

On the learner's own machine nothing is confined, but code that loops, or ends its process, must
not stop what checks it, and must never look as if it had passed: a check without a verdict has
failed. In go cells and checks; out comes a verdict for each check.

One process does all of it. When it hangs or ends, another one goes on with the checks that are
left. Where no process can be started (WebAssembly), everything runs here, without a time limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grader.checks import CHECKS, Check, Result, describe_error, run_check
from grader.checks.failure import CheckFailure, learners_part
from grader.errors import printable
from grader.learner.functions import Source, take

CELL_S, CHECK_S = 20.0, 10.0
"""What a cell and a check may take; both take some hundredths of a second."""
AGAIN_S = 2.0
"""What a check may take after another one of the same function took too long."""
_START_S = 60.0

Message = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """The result of a check as data; ``error`` names a learner's exception, ``trace`` shows it.

    ``line`` is for a list of checks, ``lines`` is all that the learner is told.
    """

    id: str
    passed: bool
    line: str
    lines: tuple[str, ...]
    failure: CheckFailure | None = None
    error: str = ""
    trace: str = ""


@dataclass(frozen=True)
class Task:
    """A function and the checks to run on it, by id."""

    source: Source
    checks: tuple[str, ...]


@dataclass
class Outcome:
    """Verdicts by check, what stopped which cell, and why a function is not there.

    ``is_limited`` is False where no process could be started.
    """

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    is_limited: bool = True


def run_apart(tasks: Sequence[Task], seed: int) -> Outcome:
    """Run the checks of all tasks; there is a verdict for each of them afterwards."""
    outcome = Outcome()
    pending = [task for task in tasks if task.checks]
    slow: set[str] = set()
    while pending:
        try:
            pending = _Round(pending, seed, outcome, slow).run()
        except _NoProcess:
            outcome.is_limited = False
            work(pending, seed, lambda message: _take_down(message, outcome))
            break
    return outcome


def verdict_of(result: Result) -> Verdict:
    """Return a result as data, with the learner's part of the traceback."""
    error, trace = result.error, ""
    if error is not None:
        with contextlib.suppress(Exception):  # an exception's own __str__ may fail
            steps = learners_part(error.__traceback__)
            trace = "".join(traceback.format_exception(type(error), error, steps)).rstrip()
    told = describe_error(error) if error is not None else ""
    lines = tuple(result.lines)
    return Verdict(result.id, result.passed, result.line, lines, result.failure, told, trace)


def failed(check_id: str, why: str) -> Verdict:
    """Return the verdict of a check that could not be run, or gave none."""
    line = f"✗ {check_id}: {printable(why)}"
    return Verdict(check_id, False, line, (line,))


# --- the process that waits -------------------------------------------------------------


class _NoProcess(Exception):
    """No process can be started here."""


class _Round:
    """One process, from its start until it is done, hangs or ends."""

    def __init__(self, tasks: Sequence[Task], seed: int, outcome: Outcome, slow: set[str]) -> None:
        self._tasks, self._seed, self._outcome, self._slow = tasks, seed, outcome, slow
        self._function = ""
        self._at = ""  # what runs now: the name of a cell, or the id of a check
        self._is_check = False

    def run(self) -> list[Task]:
        """Take down what the process tells; return the tasks that are left when it is gone."""
        process, pipe = _start(self._tasks, self._seed)
        try:
            while True:
                limit_s = self._limit_s()
                if not pipe.poll(limit_s):
                    why = f"took longer than {limit_s:g} s and was stopped"
                    self._slow.add(self._function)
                    return self._left(why)
                message = _loads(pipe.recv_bytes())
                if "done" in message:
                    return []
                self._function = message.get("function", self._function)
                self._at = message.get("cell") or message.get("check") or self._at
                self._is_check = "check" in message or "verdict" in message
                _take_down(message, self._outcome)
        except (EOFError, OSError, ValueError):
            return self._left("ended its process instead of answering")
        finally:
            _end(process)
            pipe.close()

    def _limit_s(self) -> float:
        if not self._at:
            return _START_S
        if not self._is_check:
            return CELL_S
        return AGAIN_S if self._function in self._slow else CHECK_S

    def _left(self, why: str) -> list[Task]:
        """Say what failed, and return the checks that can still be run."""
        if not self._at:
            raise _NoProcess
        names = [task.source.function for task in self._tasks]
        number = names.index(self._function)
        left = [c for c in self._tasks[number].checks if c not in self._outcome.verdicts]
        if not self._is_check:  # without its cells there is no function
            where = self._at.rpartition(", ")[2]
            self._outcome.verdicts |= {c: failed(c, f"{where} {why}") for c in left}
            left = []
        elif self._at in left:
            self._outcome.verdicts[self._at] = failed(self._at, f"{self._function} {why}")
            left.remove(self._at)
        rest = list(self._tasks[number + 1 :])
        return [Task(self._tasks[number].source, tuple(left)), *rest] if left else rest


def _take_down(message: Message, outcome: Outcome) -> None:
    outcome.errors |= message.get("errors", {})
    if message.get("absent"):
        outcome.absent[message["function"]] = message["absent"]
    if "verdict" in message:
        told = dict(message["verdict"])
        failure, lines = told.pop("failure"), tuple(told.pop("lines"))
        made = CheckFailure(*failure) if failure else None
        outcome.verdicts[told["id"]] = Verdict(**told, lines=lines, failure=made)


def _start(tasks: Sequence[Task], seed: int) -> tuple[Any, Any]:
    """Start the process that works; return it and the pipe that it speaks through."""
    try:
        import multiprocessing

        way = "fork" if sys.platform == "linux" else "spawn"
        context: Any = multiprocessing.get_context(way)
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(theirs, tasks, seed), daemon=True)
        sys.stdout.flush()
        sys.stderr.flush()
        process.start()
    except (ImportError, OSError, NotImplementedError, AttributeError, ValueError) as error:
        raise _NoProcess from error
    theirs.close()
    return process, ours


def _end(process: Any) -> None:
    """End the process and what it has started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _encode(message: Message) -> bytes:
    return json.dumps(message).encode()


# --- the process that works -------------------------------------------------------------

# Taken now: a learner's code may put something else in its place.
_exit, _dumps, _loads = os._exit, _encode, json.loads


def _serve(pipe: Any, tasks: Sequence[Task], seed: int) -> None:
    """Work, and tell; then end at once, so that nothing of the learner's runs at exit."""
    with contextlib.suppress(OSError, AttributeError):
        os.setsid()
    _end_with_parent()
    with contextlib.suppress(OSError):
        os.dup2(2, 1)  # what code prints past sys.stdout must not get between the lines
    try:
        work(tasks, seed, lambda message: pipe.send_bytes(_dumps(message)))
        pipe.send_bytes(_dumps({"done": True}))
    finally:
        _exit(0)


_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def _end_with_parent() -> None:
    """Ask Linux to end this process with its parent: an endless loop must not outlive it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def work(tasks: Sequence[Task], seed: int, tell: Callable[[Message], None]) -> None:
    """Execute what each function needs and run its checks; tell each step before it begins.

    Where a check raises and only a part of the cells was run, a name may have been missing: then
    all cells are run, and those checks again.
    """
    for task in tasks:
        name = task.source.function
        checks = [CHECKS[check_id] for check_id in task.checks]
        for whole in (False, True):

            def on_cell(cell: str, name: str = name) -> None:
                tell({"function": name, "cell": cell})

            on_cell(name)
            taken = take(task.source, whole, on_cell)
            told = {"errors": taken.errors, "absent": taken.fault}
            tell({"function": name, "cell": name, **told})
            if taken.function is None:
                for check in checks:
                    _tell_verdict(failed(check.id, taken.fault), tell)
                break
            checks = _run_checks(checks, taken.function, seed, whole, tell)
            if not checks or not taken.left_out:
                break


def _run_checks(
    checks: Sequence[Check],
    function: Callable[..., Any],
    seed: int,
    is_second: bool,
    tell: Callable[[Message], None],
) -> list[Check]:
    """Run checks and tell their verdicts; return those in which the function raised."""
    raised = []
    for check in checks:
        tell({"function": check.function, "check": check.id})
        # What a learner's function prints must not get between the lines.
        with contextlib.redirect_stdout(sys.stderr):
            result = run_check(check, function, seed)
        if result.error is not None:
            raised.append(check)
        if result.passed or not is_second:
            _tell_verdict(verdict_of(result), tell)
    return raised


def _tell_verdict(verdict: Verdict, tell: Callable[[Message], None]) -> None:
    failure = verdict.failure
    parts = [failure.call, failure.expected, failure.got, failure.why] if failure else None
    tell({"verdict": {**vars(verdict), "failure": parts}})
