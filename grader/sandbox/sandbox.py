"""Run learners' code in other processes, confined, and call its functions from here.

Checks run on this side, the learner's code on the other, and only plain data crosses
(``inside.protocol``), so an object that equals everything, a patched builtin or a patched module
changes nothing here. What is on the other side: the program in ``inside``, started by ``launch``,
with a copy of the library in which the day's exercise is stubbed (``library``).

    with Sandbox() as sandbox, sandbox.start(cells, "estimate", stubbed=["estimate"]) as child:
        estimate = child.function("estimate")
        estimate("hello")

What this cannot see or stop: an answer copied from the published solutions, or from anybody;
an attack on the kernel itself through the system calls that are left; and at the level
``limits``, code that reads and changes what the user can. Memory is limited for each process,
not in sum, so a submission can use ``processes`` times as much.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from grader.errors import BadInput
from grader.sandbox import launch
from grader.sandbox.library import state_of_library, write_library
from grader.sandbox.limits import LaunchError, Limits, SandboxMissing
from grader.sandbox.submission import Child, Source
from grader.sandbox.worker import LoneWorker, Worker


def level_of(word: str) -> str:
    """Return the level of isolation that a word on the command line means.

    >>> level_of("auto"), level_of("process")
    ('bwrap', 'limits')

    Raises BadInput for a word that means none.
    """
    level = {"auto": "bwrap", "process": "limits"}.get(word, word)
    if word == "namespace":
        raise BadInput("isolation: namespace is gone; use bwrap, or limits to accept limits alone")
    if level not in launch.LEVELS:
        expected = ", ".join(("auto", *launch.LEVELS))
        raise BadInput(f"isolation: expected one of {expected}, got {word!r}")
    return level


class Sandbox:
    """A place to run learners' code in.

    ``isolation`` is one of ``LEVELS``, or ``auto`` for bubblewrap. ``folder`` keeps copies of the
    library; several sandboxes may share it, so that each copy is written once. Use it as a context
    manager, or close it: processes and files are left behind otherwise. Every process starts a
    sandbox of its own; on Linux the program inside ends with the thread that first used it.

    Raises SandboxMissing at the first start when the level does not work here.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        isolation: str = "auto",
        folder: str | Path | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._level = level_of(isolation)
        self._is_tried = False
        self._supervisors: dict[tuple[str, ...], launch.Supervisor] = {}
        self._lock = threading.Lock()
        self._own = Path(tempfile.mkdtemp(prefix="sandbox-"))
        self._folder = Path(folder) if folder is not None else self._own
        launch.write_program(self._own)

    @property
    def isolation(self) -> str:
        """The level in force; tried once, by starting the program inside with no library."""
        if not self._is_tried:
            with self._lock:
                if not _CAN_HAND_OVER:
                    self._must_be_limits()
                else:
                    self._start_supervisor(None).close()
        return self._level

    def start(
        self,
        cells: Iterable[Source],
        function: str,
        stubbed: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Child:
        """Run what a function needs of a notebook's cells, and return the process it is in.

        ``stubbed`` are the functions that the library lacks on the other side: the day's
        exercise. A cell that fails does not stop the others; see ``Child.faults``.
        """
        child = self.child(cells, function, stubbed, limits)
        child.run_cells()
        return child

    def child(
        self,
        cells: Iterable[Source],
        function: str,
        stubbed: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Child:
        """Return what ``start`` returns, with nothing run yet."""
        return Child(self.open, cells, function, stubbed, limits or self.limits)

    def close(self) -> None:
        """End everything inside and remove what was written."""
        with self._lock:
            for supervisor in self._supervisors.values():
                supervisor.close()
            self._supervisors.clear()
        shutil.rmtree(self._own, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def library(self, stubbed: tuple[str, ...]) -> Path:
        """Return the folder of a copy of the library with these stubs; write it if it is new."""
        key = sha256(repr((stubbed, state_of_library())).encode()).hexdigest()[:16]
        target = self._folder / f"library-{key}"
        if not target.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix="library-", dir=self._folder))
            write_library(made, stubbed)
            launch.open_to_all(made)
            try:
                made.rename(target)
            except OSError:  # somebody else was faster
                shutil.rmtree(made)
        return target

    def open(self, stubbed: tuple[str, ...]) -> Worker:
        """Make a worker process."""
        if not _CAN_HAND_OVER:
            self._must_be_limits()
            return LoneWorker(self._own, self.library(stubbed))
        for attempt in (1, 2):
            with self._lock:
                supervisor = self._supervisor(stubbed)
                ours, theirs = socket.socketpair()
                try:
                    number = supervisor.start(theirs)
                except LaunchError:
                    # The program inside was killed (by the system, for memory): once more.
                    ours.close()
                    supervisor.close()
                    del self._supervisors[stubbed]
                    if attempt == 2:
                        raise
                    continue
                finally:
                    theirs.close()
                if not supervisor.lasting:
                    del self._supervisors[stubbed]
            scratch = self._make_scratch(supervisor) if self._level == "limits" else None
            return Worker(self._lock, supervisor, number, ours, scratch)
        raise AssertionError("two attempts either return or raise")

    def _supervisor(self, stubbed: tuple[str, ...]) -> launch.Supervisor:
        """Return a program inside that is loaded with this copy of the library."""
        supervisor = self._supervisors.get(stubbed)
        if supervisor is None or not supervisor.is_alive:
            supervisor = self._start_supervisor(self.library(stubbed))
            self._supervisors[stubbed] = supervisor
        return supervisor

    def _start_supervisor(self, library: Path | None) -> launch.Supervisor:
        scratch_bytes = self.limits.scratch_bytes
        try:
            made = launch.start_supervisor(self._level, self._own, library, scratch_bytes)
        except LaunchError as reason:
            if self._is_tried:  # it has worked before: not the system's lack, but an accident
                raise
            raise SandboxMissing(_missing(self._level, str(reason))) from None
        self._is_tried = True
        return made

    def _must_be_limits(self) -> None:
        if self._level != "limits":
            raise SandboxMissing(_missing(self._level, f"{sys.platform} has none"))
        self._is_tried = True

    def _make_scratch(self, supervisor: launch.Supervisor) -> Path:
        scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=self._own))
        if supervisor.user is not None:
            os.chown(scratch, supervisor.user, supervisor.user)
        return scratch


_CAN_HAND_OVER = hasattr(socket, "send_fds") and hasattr(os, "fork")


def _missing(level: str, reason: str) -> str:
    if level == "limits":
        return f"the level limits does not work here: {reason}"
    return (
        "no sandbox works here: install bubblewrap (Linux), or accept limits alone, under which "
        f"learners' code can read what you can (--isolation limits). Reason: {reason}"
    )
