"""Grade submissions on a Dask cluster: each worker has its own sandbox, results come back here.

Workers need the course installed (the same version) and nothing else: no gradebook, no shared
folder. A worker that dies loses nothing: what it was at is given to another one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from grader.autograde.results import Job, Marked, unmarked, version_of_course
from grader.autograde.workers import Setting, mark_safely
from grader.errors import BadInput

AHEAD = 3
"""So many submissions wait at each thread of a worker."""
START_S = 15.0
WORKERS_S = 60.0

_here = threading.local()


def mark_here(job: Job, setting: Setting, version: str) -> Marked:
    """Mark a submission in this thread of a worker, in the thread's own sandbox.

    Raises BadInput when there is no sandbox and one is required, or when this machine has
    another version of the course.
    """
    from grader.sandbox import Sandbox

    if version_of_course(job.seed) != version:
        raise BadInput("a worker has another version of the course")
    if getattr(_here, "sandbox", None) is None:
        sandbox = Sandbox(isolation=setting.isolation)
        sandbox.isolation  # noqa: B018 - found out now, and refused here if it is missing
        _here.sandbox = sandbox
    return mark_safely(job, _here.sandbox)


def _level_here(setting: Setting) -> str:
    from grader.sandbox import Sandbox

    with Sandbox(isolation=setting.isolation) as sandbox:
        return sandbox.isolation


class Cluster:
    """A Dask cluster that marks. Use it as a context manager."""

    def __init__(self, address: str, setting: Setting) -> None:
        self.level = ""
        self.warnings: list[str] = []
        self._setting = setting
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

    def run(self, jobs: Iterable[Job]) -> Iterator[Marked]:
        """Yield what came of each job, in the order in which they are done.

        Only so many jobs are on their way at once, so memory does not grow with the class.
        Raises BadInput when there is no worker, or a worker cannot mark.
        """
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        try:
            self._client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError:
            raise BadInput("the Dask scheduler has no workers; start some first") from None
        waiting = iter(jobs)
        under_way: dict[str, tuple[Job, int]] = {}
        done: Any = as_completed(loop=self._client.loop)

        def give(job: Job, tried: int) -> None:
            version = version_of_course(job.seed)
            future = self._client.submit(mark_here, job, self._setting, version, pure=False)
            under_way[future.key] = job, tried
            done.add(future)

        def fill() -> None:
            threads = sum(self._client.nthreads().values()) or 1
            while len(under_way) < threads * AHEAD:
                job = next(waiting, None)
                if job is None:
                    return
                give(job, 1)

        fill()
        while under_way:
            future = next(done)
            job, tried = under_way.pop(future.key)
            error = future.exception()
            if error is None:
                yield future.result()
            elif isinstance(error, BadInput):
                raise error
            elif isinstance(error, KilledWorker) or tried > 1:
                yield unmarked(job, f"the workers that marked it died: {type(error).__name__}")
            else:  # lost on its way
                give(job, tried + 1)
            future.release()
            fill()
