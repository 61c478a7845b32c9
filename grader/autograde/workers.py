"""Mark many submissions in several processes of this machine; whoever dies is replaced.

A process that dies, or does not come back, costs nobody else anything: its submission is tried
once more in a fresh process, and then named.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from grader.autograde.results import Job, Marked, unmarked
from grader.errors import BadInput

ATTEMPTS = 2
JOBS_A_PROCESS = 400
"""After so many submissions a process is replaced, so that none can grow for ever."""
GRACE_S = 60.0


@dataclass(frozen=True)
class Setting:
    """How submissions are confined, wherever they are graded."""

    isolation: str = "auto"
    require: bool = False


def mark_safely(job: Job, sandbox: Any) -> Marked:
    """Mark a submission; a fault of the grader's own becomes a reason, too."""
    from grader.autograde.grade_one import mark
    from grader.checks import describe_error

    try:
        return mark(job, sandbox)
    except Exception as error:
        return unmarked(job, f"the grader itself failed on it: {describe_error(error)}")


def _work(pipe: Connection, setting: Setting) -> None:
    """Mark what comes through the pipe until it closes."""
    from grader.sandbox import Sandbox, SandboxMissing

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's business
    sandbox = Sandbox(isolation=setting.isolation)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                level = sandbox.isolation
            except SandboxMissing as missing:
                pipe.send(("missing", str(missing)))
                return
        pipe.send(("ready", (level, [str(warning.message) for warning in caught])))
        while True:
            job = pipe.recv()
            pipe.send(("marked", mark_safely(job, sandbox)))
    except (EOFError, OSError):
        return  # the first process has finished, or is gone
    finally:
        sandbox.close()


class _Worker:
    """A process that marks, and what it is at."""

    def __init__(self, setting: Setting) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, setting), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.until = time.monotonic() + GRACE_S
        self.is_ready = False
        self.tried = self.done = 0

    def give(self, job: Job) -> None:
        """Hand a submission over."""
        limits = job.limits
        allowed_s = 60.0 if limits is None else limits.submission_s
        self.job, self.until = job, time.monotonic() + 2 * allowed_s + GRACE_S
        self.pipe.send(job)

    def stop(self, kill: bool = False) -> None:
        """End the process; gently, unless it has to be killed."""
        self.pipe.close()
        if kill:
            self.process.kill()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Pool:
    """Processes that mark. Use it as a context manager; ``level`` is the isolation in force."""

    def __init__(self, count: int, setting: Setting) -> None:
        self.count = count
        self.level = ""
        self.warnings: list[str] = []
        self._setting = setting
        self._workers = [_Worker(setting) for _ in range(count)]
        self._deaths = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self._workers:
            worker.stop(kill=worker.job is not None or not worker.is_ready)
        self._workers = []

    def run(self, jobs: Iterable[Job]) -> Iterator[Marked]:
        """Yield what came of each job, in the order in which they are done.

        Jobs are taken from the iterable only when somebody is free. Raises BadInput when no
        process can start, or a sandbox was required and there is none.
        """
        waiting, again = iter(jobs), deque[tuple[Job, int]]()
        is_over = False
        while True:
            for worker in list(self._workers):
                if not worker.is_ready or worker.job is not None or (is_over and not again):
                    continue
                if worker.done >= JOBS_A_PROCESS:
                    self._replace(worker)
                    continue
                job, tried = again.popleft() if again else (next(waiting, None), 0)
                if job is None:
                    is_over = True
                    continue
                worker.tried = tried + 1
                with contextlib.suppress(OSError):  # dead: seen below, by its closed pipe
                    worker.give(job)
            if is_over and not again and not any(worker.job for worker in self._workers):
                return
            for worker in self._heard():
                job, marked = worker.job, self._listen(worker)
                if marked is not None:
                    yield marked
                elif job is not None and worker.job is job:
                    why = self._bury(worker)
                    if worker.tried < ATTEMPTS:
                        again.append((job, worker.tried))
                    else:
                        yield unmarked(job, why)

    def _heard(self) -> list[_Worker]:
        """Wait for somebody to speak, to die, or to have taken too long."""
        now = time.monotonic()
        first = min((worker.until for worker in self._busy()), default=now + 1)
        ready = set(wait([worker.pipe for worker in self._workers], max(0.0, first - now)))
        now = time.monotonic()
        late = [worker for worker in self._busy() if worker.until <= now]
        return [w for w in self._workers if w.pipe in ready or w in late]

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.job is not None or not worker.is_ready]

    def _listen(self, worker: _Worker) -> Marked | None:
        """Take what a process says; None when it is ready, dead or late."""
        said: tuple[str, Any] = ("late or dead", None)
        with contextlib.suppress(EOFError, OSError):
            if worker.pipe.poll():
                said = worker.pipe.recv()
        kind, told = said
        if kind == "missing":
            raise BadInput(told)
        if kind == "ready":
            self.level, self.warnings = told
            worker.is_ready = True
        elif kind == "marked":
            worker.job, worker.done = None, worker.done + 1
            self._deaths = 0
            marked: Marked = told
            return marked
        elif worker.job is None:
            self._bury(worker)
        return None

    def _bury(self, worker: _Worker) -> str:
        """Replace a process that is dead or does not come back; say which."""
        alive = worker.process.is_alive() and worker.until <= time.monotonic()
        self._deaths += 1
        if self._deaths > 2 * self.count + 4:
            raise BadInput("processes for marking end as soon as they start; is memory short?")
        self._replace(worker, kill=True)
        if alive:
            return "marking it did not come to an end, in two attempts"
        return "the process that marked it died, in two attempts"

    def _replace(self, worker: _Worker, kill: bool = False) -> None:
        worker.stop(kill)
        self._workers[self._workers.index(worker)] = _Worker(self._setting)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
