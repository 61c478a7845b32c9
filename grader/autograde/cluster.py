"""Grade submissions on a Dask cluster: each worker isolates them itself, results come back here.

Workers need the course installed (the same version) and nothing else: no gradebook, no shared
folder. A worker that dies loses nothing: what it was at is given to another one. A worker that
cannot give the level of isolation refuses the work instead of lowering it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from typing import Any

from grader.autograde.results import GradedSubmission, Job, version_of_course
from grader.autograde.workers import Setting, grade_all, grade_here
from grader.errors import BadInput

AHEAD = 3
"""This many submissions wait at each thread of a worker."""
START_S = 15.0
WORKERS_S = 60.0


def grade_there(job: Job, setting: Setting, version: str) -> GradedSubmission:
    """Grade a submission in this thread of a worker; the result says whose worker it was.

    Raises BadInput when the level does not work here, or this machine has another version of the
    course.
    """
    from distributed import get_worker

    worker = get_worker().address
    if version_of_course(job.seed) != version:
        raise BadInput(f"the worker {worker} has another version of the course")
    try:
        return replace(grade_here(job, setting), worker=worker)
    except BadInput as error:
        raise BadInput(f"the worker {worker}: {error}") from None


class Cluster:
    """A Dask cluster that grades. Use it as a context manager."""

    def __init__(self, address: str, isolation: str) -> None:
        self._setting = Setting(isolation)
        try:
            from distributed import Client
        except ImportError:
            raise BadInput(
                "--scheduler needs Dask: pip install 'context-compaction[cluster]'"
            ) from None
        try:
            self._client: Any = Client(address, timeout=START_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise BadInput(f"{address}: no Dask scheduler answers there: {error}") from None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def run(self, jobs: Iterable[Job]) -> Iterator[GradedSubmission]:
        """Yield the result of each job. Raises BadInput without workers, or if one cannot grade."""
        try:
            self._client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError:
            raise BadInput("the Dask scheduler has no workers; start some first") from None
        executor = self._client.get_executor(pure=False)
        version = cache(version_of_course)

        def submit(job: Job) -> Future[GradedSubmission]:
            future: Future[GradedSubmission] = executor.submit(
                grade_there, job, self._setting, version(job.seed)
            )
            return future

        def ahead() -> int:
            return AHEAD * (sum(self._client.nthreads().values()) or 1)

        yield from grade_all(jobs, submit, ahead, queued=AHEAD)
