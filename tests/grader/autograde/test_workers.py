"""The loop over futures, and the processes that grade: who dies or hangs costs nobody else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

from grader.autograde import workers
from grader.autograde.command import limits_from
from grader.autograde.results import GradedSubmission, Job
from grader.autograde.workers import Pool, grade_all
from grader.errors import BadInput
from tests.grader.classroom import DAY1


def job(student: str, *limits: str) -> Job:
    return Job(student, DAY1, b"", (), 1, limits_from(limits) if limits else None)


def done(job: Job) -> GradedSubmission:
    return GradedSubmission(job.student, job.slug, "", seconds=1.0)


class Place:
    """Where jobs are submitted: each is answered at once, by its learner's name."""

    def __init__(self, answers: dict[str, Exception | None]) -> None:
        self.answers, self.submitted = answers, [""][:0]

    def submit(self, job: Job) -> Future[GradedSubmission]:
        self.submitted.append(job.student)
        future: Future[GradedSubmission] = Future()
        if job.student in self.answers:
            error = self.answers[job.student]
            if error is not None:
                future.set_exception(error)
        else:
            future.set_result(done(job))
        return future


def reasons(place: Place, *names: str, **options: Any) -> dict[str, str]:
    found = grade_all(map(job, names), place.submit, lambda: 2, **options)
    return {graded.student: graded.reason for graded in found}


def test_a_death_is_tried_once_more_and_then_named() -> None:
    place = Place({"dies": RuntimeError("the process is gone")})
    found = reasons(place, "a", "dies", "b", "c")
    assert found["dies"] == "the process that graded it died, in two attempts"
    assert [name for name in found if not found[name]] == ["a", "b", "c"]
    assert place.submitted.count("dies") == 2


def test_taking_too_long_is_no_death() -> None:
    place = Place({"hangs": TimeoutError()})
    assert reasons(place, "hangs", "a") == {
        "hangs": "grading it did not come to an end in its time",
        "a": "",
    }
    assert place.submitted.count("hangs") == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BadInput("no sandbox works here"), "no sandbox works here"),
        (BrokenProcessPool("All workers expired"), "end as soon as they start"),
    ],
)
def test_where_nobody_can_grade_the_run_ends(error: Exception, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        reasons(Place({"a": error}), "a")


def test_jobs_are_read_only_when_there_is_room() -> None:
    read: list[str] = []

    def jobs() -> Iterator[Job]:
        for name in "abcdef":
            read.append(name)
            yield job(name)

    results = grade_all(jobs(), Place({}).submit, lambda: 2)
    next(results)
    assert read == ["a", "b"]
    assert len(list(results)) == 5


def test_a_place_that_ends_nothing_itself_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "GRACE_S", 0.0)
    place = Place({"hangs": None})
    jobs = [job("hangs", "submission_s=0.05"), job("a")]
    found = {g.student: g.reason for g in grade_all(jobs, place.submit, lambda: 1, queued=2)}
    assert found == {"hangs": "grading it did not come to an end in its time", "a": ""}


# --- processes -------------------------------------------------------------------------------


def _grade_or_die(job: Job, sandbox: Any) -> GradedSubmission:
    if job.student.startswith("dies"):
        os._exit(9)
    if job.student.startswith("hangs"):
        threading.Event().wait()
    if job.student.startswith("raises"):
        raise RuntimeError("a fault of the grader's own")
    return GradedSubmission(job.student, job.slug, str(os.getpid()))


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pool]:
    """Return what makes pools whose processes are copies of this one, with another grader."""
    context = workers.multiprocessing.get_context("fork")
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda _: context)
    monkeypatch.setattr("grader.autograde.grade_one.grade_one", _grade_or_die)
    return Pool


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are copies of this one")
def test_whoever_dies_or_hangs_costs_nobody_else(
    forked: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "GRACE_S", 1.0)
    slow = "submission_s=600"
    names = ["a", "dies", "b", "c", "raises", "d", "dies too", "e"]
    jobs = [job(name, slow) for name in names]
    jobs.insert(4, job("hangs", "submission_s=0.5"))
    with forked(2, "limits") as pool:
        found = {graded.student: graded for graded in pool.run(jobs)}
    assert found.keys() == {*names, "hangs"}
    assert {name for name in found if not found[name].reason} == {"a", "b", "c", "d", "e"}
    assert {found[name].level for name in "abcde"} == {"limits"}
    died = "the process that graded it died, in two attempts"
    assert found["dies"].reason == found["dies too"].reason == died
    assert found["hangs"].reason == "grading it did not come to an end in its time"
    assert "a fault of the grader's own" in found["raises"].reason


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are copies of this one")
def test_processes_are_replaced_now_and_then(
    forked: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "JOBS_A_PROCESS", 3)  # the first opens the sandbox
    with forked(1, "limits") as pool:
        found = [graded.digest for graded in pool.run(map(job, "abcde"))]
    assert len(found) == 5 and 1 < len(set(found)) < 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are copies of this one")
def test_processes_that_cannot_start_are_bad_input(
    forked: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_begin", lambda folder: os._exit(3))
    with forked(1, "limits") as pool, pytest.raises(BadInput, match="end as soon as they start"):
        list(pool.run([job("a")]))
