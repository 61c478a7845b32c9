"""Grade many submissions at once: one loop over futures, and the processes of this machine.

In go jobs, out come graded submissions in the order in which they are done. pebble's pool gives
each job its time and replaces a process that died; ``cluster`` hands the same jobs to Dask. A
death costs nobody else anything: the job is tried once more. Taking too long is no death: the job
is named at once, since another attempt would take as long.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import multiprocessing
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grader.autograde.results import GradedSubmission, Job, ungraded
from grader.errors import BadInput

if TYPE_CHECKING:
    from grader.sandbox import Sandbox

ATTEMPTS = 2
JOBS_A_PROCESS = 400
"""After this many submissions a process is replaced, so that none can grow forever."""
GRACE_S = 60.0
"""Seconds beyond the limit of a submission's code: to start a process, to read a notebook."""


@dataclass(frozen=True)
class Setting:
    """How submissions are isolated. ``folder`` is where sandboxes share copies of the library."""

    isolation: str = "auto"
    folder: str | None = None


def limit_s(job: Job) -> float:
    """Return how many seconds a job may take, all in all."""
    return (60.0 if job.limits is None else job.limits.submission_s) + GRACE_S


# --- in the process that grades --------------------------------------------------------------

_here = threading.local()


def grade_here(job: Job, setting: Setting) -> GradedSubmission:
    """Grade a submission in this thread's own sandbox; say at which level of isolation.

    Raises BadInput when the level does not work here.
    """
    sandbox = open_sandbox(setting)
    return replace(grade_safely(job, sandbox), level=sandbox.isolation, warnings=_here.warnings)


def grade_safely(job: Job, sandbox: Sandbox) -> GradedSubmission:
    """Grade a submission; a fault of the grader's own becomes a reason, too."""
    from grader.autograde.grade_one import grade_one
    from grader.checks import describe_error

    try:
        return grade_one(job, sandbox)
    except Exception as error:
        return ungraded(job, f"the grader itself failed on it: {describe_error(error)}")


def open_sandbox(setting: Setting) -> Sandbox:
    """Return this thread's sandbox; it is made once, because what is inside ends with the thread.

    Raises BadInput when the level of isolation does not work here: less is never chosen.
    """
    from grader.sandbox import Sandbox

    if getattr(_here, "sandbox", None) is None:
        sandbox = Sandbox(isolation=setting.isolation, folder=setting.folder)
        atexit.register(sandbox.close)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sandbox.isolation  # noqa: B018 - tried now, and refused here if it is missing
        _here.sandbox = sandbox
        _here.warnings = tuple(str(warning.message) for warning in caught)
    return _here.sandbox  # type: ignore[no-any-return]


# --- the loop --------------------------------------------------------------------------------


def grade_all(
    jobs: Iterable[Job],
    submit: Callable[[Job], Future[GradedSubmission]],
    ahead: Callable[[], int],
    queued: int = 0,
) -> Iterator[GradedSubmission]:
    """Yield the result of each job, in the order in which they are done.

    At most ``ahead()`` jobs are under way, and jobs are taken from the iterable only then: memory
    does not grow with the class. ``queued`` is for a place that does not end a job itself: of so
    many that wait for one another, one must be done in their time, or all under way are given up.

    Raises BadInput when nobody can grade at all.
    """
    waiting = iter(jobs)
    under_way: dict[Future[GradedSubmission], tuple[Job, int]] = {}
    while True:
        while len(under_way) < ahead() and (job := next(waiting, None)) is not None:
            under_way[submit(job)] = job, 1
        if not under_way:
            return
        longest_s = max(limit_s(job) for job, _ in under_way.values())
        patience_s = queued * longest_s or None
        done, late = concurrent.futures.wait(under_way, patience_s, FIRST_COMPLETED)
        for future in done or late:
            job, attempt = under_way.pop(future)
            result = _result_of(future if done else None, job)
            if result is None and attempt < ATTEMPTS:
                under_way[submit(job)] = job, attempt + 1
                continue
            if not done:
                future.cancel()
            yield result or ungraded(job, "the process that graded it died, in two attempts")


def _result_of(future: Future[GradedSubmission] | None, job: Job) -> GradedSubmission | None:
    """Return a job's result, or why it has none; None when the process died that graded it."""
    try:
        if future is None:
            raise TimeoutError
        return future.result()
    except BadInput:
        raise
    except BrokenProcessPool:
        told = "processes for grading end as soon as they start; is memory short?"
        raise BadInput(told) from None
    except TimeoutError:
        return ungraded(job, "grading it did not come to an end in its time")
    except (Exception, concurrent.futures.CancelledError):
        return None  # pebble's ProcessExpired, Dask's KilledWorker, a worker that was lost


# --- processes of this machine ---------------------------------------------------------------


class Pool:
    """Processes that grade. Use it as a context manager; they start at once."""

    def __init__(self, count: int, isolation: str) -> None:
        from pebble import ProcessPool

        self.count = count
        self._folder = tempfile.mkdtemp(prefix="grading-")
        os.chmod(self._folder, 0o755)  # the level "limits" may have to become another user
        self._setting = Setting(isolation, os.path.join(self._folder, "library"))
        self._pool: Any = ProcessPool(
            count,
            JOBS_A_PROCESS,
            initializer=_begin,
            initargs=(self._folder,),
            context=multiprocessing.get_context("spawn"),
        )
        for _ in range(count):  # they load and open their sandboxes while this one reads on
            self._pool.schedule(_open, (self._setting,))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # Idle processes end by themselves and close their sandboxes; others are stopped.
        with contextlib.suppress(Exception):
            if kind is None:
                self._pool.close()
            else:
                self._pool.stop()
            self._pool.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, jobs: Iterable[Job]) -> Iterator[GradedSubmission]:
        """Yield the result of each job. Raises BadInput when no process can grade."""
        return grade_all(jobs, self._submit, lambda: self.count)

    def _submit(self, job: Job) -> Future[GradedSubmission]:
        future: Future[GradedSubmission] = self._pool.schedule(
            grade_here, (job, self._setting), timeout=limit_s(job)
        )
        return future


def _begin(folder: str) -> None:
    """Let a process keep its files where they are removed even if it is killed."""
    _here.__dict__.clear()  # a process that is a copy has a sandbox of its own, not its parent's
    tempfile.tempdir = folder


def _open(setting: Setting) -> None:
    with contextlib.suppress(BadInput):  # said again, and heard, with the first job
        open_sandbox(setting)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
