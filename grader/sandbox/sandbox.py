"""Run a learner's code in another process, and call its functions from here.

Checks run on this side, the learner's code on the other, and only plain data crosses
(``inside.protocol``), so an object that equals everything, a patched builtin or a patched module
changes nothing here. What is on the other side: the program in ``inside``, in a jail
(``launch``), with a copy of the library that lacks the day's exercise (``library``).

    with Sandbox() as sandbox, sandbox.start(cells, "estimate", withheld=["estimate"]) as child:
        estimate = child.function("estimate")
        estimate("hello")

What this cannot see or stop: an answer copied from the published solutions, or from anybody;
an attack on the kernel itself through the system calls that are left; and where neither
bubblewrap nor namespaces work, code that reads and changes what the user can. Memory is limited
for each process, not in sum, so a submission can use ``processes`` times as much.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from unicodedata import category

from grader.feedback import BadInput
from grader.sandbox import launch
from grader.sandbox.inside import protocol
from grader.sandbox.inside.confine import SCRATCH
from grader.sandbox.library import write_library

if TYPE_CHECKING:
    from grader.checks import Check, Result
    from grader.notebooks.lab import LabNotebook

Source = str | tuple[str, str]
"""A cell: its source, or the name that messages call it by and its source."""


@dataclass(frozen=True)
class Limits:
    """What a learner's code may use. Times are wall-clock seconds unless they say CPU.

    ``processes`` counts processes and threads together. Memory is limited for each process, so
    ``processes * memory_bytes`` is the most that a submission can take.
    """

    call_s: float = 5.0
    cell_s: float = 10.0
    submission_s: float = 60.0
    cpu_s: int = 30
    memory_bytes: int = 512 * 2**20
    processes: int = 4
    open_files: int = 64
    file_bytes: int = 8 * 2**20
    scratch_bytes: int = 16 * 2**20
    output_chars: int = 20_000
    answer_bytes: int = 2**20
    calls_back: int = 5_000
    restarts: int = 6


# --- what can happen to a learner's code ------------------------------------------------


class LearnerFault(Exception):
    """Something in a learner's code that costs a point; the text is one line, for a person."""


class LearnerError(LearnerFault):
    """The learner's code raised. The class has the name of the learner's exception.

    ``trace`` is the learner's own traceback, as text.
    """

    trace = ""

    def _render_traceback_(self) -> list[str]:
        return self.trace.splitlines()


class OutOfMemory(LearnerFault):
    """The learner's code asked for more memory than it may have."""


class Absent(LearnerFault):
    """The function is not there, because a cell failed or nobody wrote it."""


class Unfit(LearnerFault):
    """A value that cannot cross: too deep, in itself, or a number of too many digits."""


class Forbidden(LearnerFault):
    """The learner's code reached for the library's own version of the exercise."""


class _Ended(LearnerFault, protocol.PipeEnd):
    """The process with the learner's code had to be ended, or ended by itself."""


class TimedOut(_Ended):
    """It took too long."""


class Died(_Ended):
    """It ended, or was ended by the system."""


class TooMuchOutput(_Ended):
    """It printed without end."""


class Garbled(_Ended):
    """What came over the pipe is no answer: the code wrote there itself, or answered too much."""


class UnsafeWarning(UserWarning):
    """The learner's code is not fenced in."""


class SandboxMissing(BadInput):
    """No isolation works on this system, and it was required."""


# --- the sandbox ------------------------------------------------------------------------


class Sandbox:
    """A place to run learners' code in.

    ``isolation`` is one of ``LEVELS``, or ``auto`` for the best that works here.
    Below it is a warning; with ``require`` it is an error instead (SandboxMissing). ``folder``
    keeps copies of the library; several sandboxes may share it. Use it as a context manager, or
    close it: processes and files are left behind otherwise. Every process starts a sandbox of
    its own; on Linux the program inside ends with the thread that first used it.

    Raises SandboxMissing at the first start when no level that was asked for works.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        isolation: str = "auto",
        require: bool = False,
        folder: str | Path | None = None,
    ) -> None:
        if isolation not in ("auto", *launch.LEVELS):
            expected = ", ".join(("auto", *launch.LEVELS))
            raise BadInput(f"isolation: expected one of {expected}, got {isolation!r}")
        self.limits = limits or Limits()
        self.require = require
        self._wanted = launch.LEVELS if isolation == "auto" else (isolation,)
        self._level: str | None = None
        self._wardens: dict[tuple[str, ...], launch.Warden] = {}
        self._lock = threading.Lock()
        self._own = Path(tempfile.mkdtemp(prefix="sandbox-"))
        self._folder = Path(folder) if folder is not None else self._own
        launch.write_program(self._own)

    @property
    def isolation(self) -> str:
        """The level in force; found out by starting the program inside, with no library."""
        if self._level is None:
            with self._lock:
                if _CAN_HAND_OVER:
                    self._start_warden(None).close()
                else:
                    self._settle_for_process([f"{sys.platform} has none"])
        assert self._level is not None
        return self._level

    def start(
        self,
        cells: Iterable[Source],
        function: str,
        withheld: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Child:
        """Run what a function needs of a notebook's cells, and return the process it is in.

        ``withheld`` are the functions that the library lacks on the other side: the day's
        exercise. A cell that fails does not stop the others; see ``Child.faults``.
        """
        child = Child(self, cells, function, withheld, limits or self.limits)
        child.run_cells()
        return child

    def close(self) -> None:
        """End everything inside and remove what was written."""
        with self._lock:
            for warden in self._wardens.values():
                warden.close()
            self._wardens.clear()
        shutil.rmtree(self._own, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def library(self, withheld: tuple[str, ...]) -> Path:
        """Return the folder of a copy of the library without these functions; write it if new."""
        key = sha256(repr((withheld, _library_state())).encode()).hexdigest()[:16]
        target = self._folder / f"library-{key}"
        if not target.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix="library-", dir=self._folder))
            write_library(made, withheld)
            launch.open_to_all(made)
            try:
                made.rename(target)
            except OSError:  # somebody else was faster
                shutil.rmtree(made)
        return target

    def _warden(self, withheld: tuple[str, ...]) -> launch.Warden:
        """Return a program inside that is loaded with this copy of the library."""
        warden = self._wardens.get(withheld)
        if warden is None or not warden.is_alive:
            warden = self._wardens[withheld] = self._start_warden(self.library(withheld))
        return warden

    def _start_warden(self, library: Path | None) -> launch.Warden:
        levels = self._wanted if self._level is None else (self._level,)
        reasons: list[str] = []
        for level in levels:
            if level == "process":
                self._settle_for_process(reasons)
            try:
                warden = launch.start_warden(level, self._own, library, self.limits.scratch_bytes)
            except launch.JailError as reason:
                reasons.append(f"{level}: {reason}")
                continue
            self._level = level
            return warden
        raise SandboxMissing(_MISSING + "; ".join(reasons))

    def _settle_for_process(self, reasons: Sequence[str]) -> None:
        """Do without isolation, loudly; raise SandboxMissing when that is not allowed."""
        if self.require or "process" not in self._wanted:
            raise SandboxMissing(_MISSING + "; ".join(reasons))
        if self._level is None and self._wanted != ("process",):
            warnings.warn(UnsafeWarning(_UNSAFE + "; ".join(reasons)), stacklevel=4)
        self._level = "process"

    def open(self, withheld: tuple[str, ...]) -> _Process:
        """Make a learner's process."""
        if not _CAN_HAND_OVER:
            assert self.isolation == "process"
            return _DirectProcess(self._own, self.library(withheld))
        for attempt in (1, 2):
            with self._lock:
                warden = self._warden(withheld)
                ours, theirs = socket.socketpair()
                try:
                    number = warden.start(theirs)
                except launch.JailError:
                    # The program inside was killed (by the system, for memory): once more.
                    ours.close()
                    warden.close()
                    del self._wardens[withheld]
                    if attempt == 2:
                        raise
                    continue
                finally:
                    theirs.close()
                if not warden.lasting:
                    del self._wardens[withheld]
            scratch = self._make_scratch(warden) if self._level == "process" else None
            return _Process(self._lock, warden, number, ours, scratch)
        raise AssertionError("two attempts either return or raise")

    def _make_scratch(self, warden: launch.Warden) -> Path:
        scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=self._own))
        if warden.user is not None:
            os.chown(scratch, warden.user, warden.user)
        return scratch


_CAN_HAND_OVER = hasattr(socket, "send_fds") and hasattr(os, "fork")

_UNSAFE = (
    "Learners' code is NOT fenced in: it runs with limits on time and memory, but it can read "
    "and change what you can. Install bubblewrap, or require a sandbox. Reasons: "
)
_MISSING = "no sandbox works here: install bubblewrap (Linux), or allow user namespaces. Reasons: "


def _library_state() -> list[tuple[str, int, int]]:
    from grader.sandbox.library import LIBRARY

    stats = [(str(path), path.stat()) for path in sorted(LIBRARY.rglob("*.py"))]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


class _Process:
    """A learner's process and the pipe to it."""

    def __init__(
        self,
        lock: threading.Lock,
        warden: launch.Warden,
        number: int,
        pipe: socket.socket,
        scratch: Path | None,
    ) -> None:
        self._lock, self._warden, self._number, self._pipe = lock, warden, number, pipe
        self.scratch = scratch
        self.preload: dict[str, Any] = {}
        # Whether the learner's code cannot have done it when the program inside is gone.
        self.is_out_of_reach = warden.lasting and scratch is None
        self._came = bytearray()
        self._pipe.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._pipe)

    def write(self, data: bytes, until: float) -> None:
        """Send bytes; raise TimeoutError when nobody takes them in time."""
        left = memoryview(data)
        while left:
            try:
                left = left[self._pipe.send(left) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, until)

    def read(self, size: int, until: float) -> bytes:
        """Read exactly so many bytes; raise TimeoutError, or EOFError at the pipe's end."""
        while len(self._came) < size:
            self._wait(select.POLLIN, until)
            more = self._pipe.recv(2**16)
            if not more:
                raise EOFError
            self._came += more
        data = bytes(self._came[:size])
        del self._came[:size]
        return data

    def _wait(self, event: int, until: float) -> None:
        self._poll.modify(self._pipe, event)
        if not self._poll.poll(max(1.0, 1000 * (until - time.monotonic()))):
            raise TimeoutError

    def end(self, is_ending: bool = False) -> launch.Ending | None:
        """End it, and everything that it has started."""
        with self._lock:
            ending = self._warden.end(self._number, is_ending)
        self._pipe.close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return ending


class _DirectProcess(_Process):
    """A learner's process where processes cannot be forked or handed pipes (Windows)."""

    def __init__(self, folder: Path, library: Path) -> None:
        from queue import Queue

        self.is_out_of_reach = False
        self.scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=folder))
        self.preload = {
            "library": str(library),
            "packages": launch.package_folders(),
            "preload": [],
        }
        program = [*launch.run_program(folder), "--alone"]
        environment = {k: v for k, v in os.environ.items() if k.upper() in ("SYSTEMROOT", "PATH")}
        self._process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )
        # Pipes have no time limits here: threads read and write, at most a few blocks ahead.
        self._blocks: Queue[bytes] = Queue(maxsize=16)
        self._came = bytearray()
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while data := self._process.stdout.read(2**16):
                self._blocks.put(data)
        self._blocks.put(b"")

    def write(self, data: bytes, until: float) -> None:
        assert self._process.stdin is not None
        writer = threading.Thread(target=_write_all, args=(self._process.stdin, data), daemon=True)
        writer.start()
        writer.join(max(0.001, until - time.monotonic()))
        if writer.is_alive():
            raise TimeoutError

    def read(self, size: int, until: float) -> bytes:
        from queue import Empty

        while len(self._came) < size:
            try:
                more = self._blocks.get(timeout=max(0.001, until - time.monotonic()))
            except Empty:
                raise TimeoutError from None
            if not more:
                self._blocks.put(b"")
                raise EOFError
            self._came += more
        data = bytes(self._came[:size])
        del self._came[:size]
        return data

    def end(self, is_ending: bool = False) -> launch.Ending | None:
        if is_ending:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
        code = self._process.poll()
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(Exception):
            while self._blocks.get_nowait():
                pass
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return launch.Ending(code or 0, 0, 0.0)


def _write_all(stream: Any, data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):
        left = memoryview(data)
        while left:
            left = left[stream.write(left) :]


# --- a learner's notebook, running ------------------------------------------------------


class Child:
    """One function of a learner's notebook, with the code it needs, in a process of its own.

    A call that hangs, dies or breaks the pipe ends the process; the next call starts another
    one and runs the cells again, without those that did it. After a call that timed out, the
    next ones get a fifth of the time.

    ``faults``: what went wrong in which cell, by the cell's name. ``printed``: the beginning of
    what the code printed. ``reached``: which withheld functions the code reached for.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        cells: Iterable[Source],
        function: str,
        withheld: Iterable[str],
        limits: Limits,
    ) -> None:
        self._sandbox = sandbox
        self._cells = _named(cells)
        self._function = function
        self._withheld = tuple(sorted(withheld))
        self._limits = limits
        self._until = time.monotonic() + limits.submission_s
        self._process: _Process | None = None
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
            call.changed = "an argument was changed" if self._has_changed else ""  # type: ignore[attr-defined]
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
                },
                self._limits.cell_s,
            )
            pieces, needed = _numbers(plan, "pieces"), _numbers(plan, "needed")
            self.left_out = plan.get("left_out") is True
            skipped = {self._cells[cell][0] for cell in self._skipped}
            self.faults = {name: text for name, text in self.faults.items() if name in skipped}
            self._note_faults(plan.get("faults"))
            if self._run_pieces(pieces, needed):
                return

    def _open(self) -> None:
        if self._starts > self._limits.restarts:
            raise Died(f"its process ended {self._starts} times and is not started again")
        self._starts += 1
        self._process = process = self._sandbox.open(self._withheld)
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
            raise launch.JailError(f"a process in the sandbox does not start: {fault}") from None

    def _run_pieces(self, pieces: Sequence[int], needed: Sequence[int]) -> bool:
        """Run the pieces, each within its time; False when one of them ended the process."""
        for number, cell in enumerate(pieces):
            if cell in self._skipped or not 0 <= cell < len(self._cells):
                continue
            try:
                answer = self._ask({"do": "run", "piece": number}, self._limits.cell_s)
            except _Ended as fault:
                self._skipped.add(cell)
                self.faults[self._cells[cell][0]] = str(fault)
                self._end()
                return False
            if cell in needed:
                self._note_reached(answer)
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
            self._note_reached(answer)
            self._refuse_if_reached()
            if "value" in answer:
                self._has_changed = answer.get("changed") is True
                return self._peer.decode(answer["value"])
        except protocol.WireError as fault:
            self._end()
            raise Garbled(f"{name}: what came back is no answer: {fault}") from None
        except _Ended as fault:
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
        except protocol.WireError as fault:
            self._end()
            raise Garbled(f"what came over the pipe is no answer: {fault}") from None
        except _Ended:
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
            length = protocol.frame_length(process.read(protocol.HEAD_BYTES, self._deadline))
            if length > self._limits.answer_bytes:
                most = self._limits.answer_bytes
                raise Garbled(f"an answer of {length:,} bytes, where {most:,} are allowed")
            message = protocol.unpack(process.read(length, self._deadline))
        except TimeoutError:
            raise self._too_slow() from None
        except (EOFError, OSError):
            raise self._gone() from None
        if "flood" in message:
            raise TooMuchOutput(f"printed more than {50 * self._limits.output_chars:,} characters")
        return message

    def _too_slow(self) -> _Ended:
        if time.monotonic() >= self._until:
            return TimedOut(f"the submission took longer than {self._limits.submission_s:g} s")
        return TimedOut(f"took longer than {self._allowed_s:g} s and was stopped")

    def _gone(self) -> _Ended:
        """Say why the process is gone."""
        process, self._process = self._process, None
        ending = process.end(is_ending=True) if process is not None else None
        if ending is None and process is not None and process.is_out_of_reach:
            raise launch.JailError("the program in the sandbox was killed")
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

    def _note_reached(self, answer: dict[str, Any]) -> None:
        told = answer.get("reached")
        for name in told if isinstance(told, list) else []:
            known = isinstance(name, str) and name.rpartition(".")[2] in self._withheld
            if known and name not in self.reached:
                self.reached.append(_clean(name, 80))

    def _refuse_if_reached(self) -> None:
        if self.reached:
            raise self.forbidden()

    def forbidden(self) -> Forbidden:
        """Say which of the library's functions the code reached for."""
        module, _, function = self.reached[0].rpartition(".")
        return Forbidden(
            f"uses the library's own {function} (from {module}), which is this day's exercise"
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


# --- grading ----------------------------------------------------------------------------


def grade(
    sandbox: Sandbox,
    exercises: Mapping[str, Sequence[Source]],
    checks: Iterable[Check],
    seed: int | None = None,
    withheld: Sequence[str] | None = None,
    limits: Limits | None = None,
) -> list[Result]:
    """Run checks on a learner's functions, and return what came of each, in order.

    ``exercises`` are the cells that stand above each function's checks, by the function's name.
    Each function runs in a process of its own, so that none can spoil another. The library lacks
    ``withheld`` there (by default all functions of ``exercises``). ``limits.submission_s`` is
    for all of it.

    Never raises for anything that the learner's code does; raises launch.JailError when the
    sandbox itself fails, and SandboxMissing.
    """
    limits = limits or sandbox.limits
    withheld = tuple(exercises) if withheld is None else withheld
    until = time.monotonic() + limits.submission_s
    asked = list(checks)
    results: dict[str, Result] = {}
    for function in dict.fromkeys(check.function for check in asked):
        own = [check for check in asked if check.function == function]

        def grade_one(name: str = function, own: Sequence[Check] = own) -> dict[str, Result]:
            left = replace(limits, submission_s=max(0.1, until - time.monotonic()))
            with Child(sandbox, exercises.get(name, ()), name, withheld, left) as child:
                child.run_cells()
                return _grade_function(child, own, seed)

        try:
            results |= grade_one()
        except launch.JailError:  # once more: what happened to the sandbox may not happen again
            results |= grade_one()
    return [results[check.id] for check in asked]


def cells_above_checks(notebook: LabNotebook) -> dict[str, list[Source]]:
    """Return, for each function of a lab, the cells that stand above its checks."""
    steps = notebook.steps
    above: dict[str, list[Source]] = {}
    for function in notebook.functions:
        taken = [index for index, step in enumerate(steps) if function in step.takes]
        end = taken[0] + 1 if taken else 0
        above[function] = [(step.name, step.source) for step in steps[:end]]
    return above


def _grade_function(child: Child, checks: Sequence[Check], seed: int | None) -> dict[str, Result]:
    from grader.checks import Result, run_check

    function = child.function(checks[0].function)
    results = {check.id: run_check(check, function, seed) for check in checks}
    # Perhaps a name was missing because only a part of the cells was run.
    raised = (LearnerError, Absent)
    if child.left_out and any(isinstance(r.error, raised) for r in results.values()):
        child.run_cells(whole=True)
        for check in checks:
            if not results[check.id].passed:
                again, before = run_check(check, function, seed), results[check.id]
                if again.passed or isinstance(before.error, Absent):
                    results[check.id] = again
    for name, result in results.items():
        fault = result.error
        if isinstance(fault, launch.JailError | SandboxMissing):
            raise fault  # not the learner's
        if child.reached:
            fault = child.forbidden()
        if isinstance(fault, LearnerFault) and not isinstance(fault, LearnerError):
            results[name] = Result(name, False, f"✗ {name}: {fault}", error=fault)
    return results
