"""Hostile, broken and strange submissions: each gets what its honest part deserves."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grader.checks import CHECKS, Result
from grader.exercises import exercises_of
from grader.sandbox import Limits, Sandbox, SandboxMissing, grade, launch
from tests.grader.sandbox.hostile import CHECKS_OF, Submission, submissions

resource = pytest.importorskip("resource", reason="limits of resources are no part of Windows")

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]

QUICK = Limits(call_s=2.0, cell_s=4.0, cpu_s=16, submission_s=30.0, memory_bytes=256 * 2**20)

PATIENT = replace(QUICK, call_s=30.0, submission_s=120.0)
"""For what ends by itself: a slow machine must not make a time-out of it."""

_TABLE = submissions(Path("@SECRET@"), Path("@REPOSITORY@"), 0)


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gradebook that everybody may read and write, if they only find it."""
    folder = tmp_path_factory.mktemp("classroom")
    path = folder / "gradebook.db"
    path.write_text("nobody's points")
    for place in (path, folder, folder.parent):
        place.chmod(0o777)
    return path


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A port of this machine where somebody listens, and notices every visitor."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server.getsockname()[1]
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(QUICK, isolation="bwrap") as made:
        try:
            made.isolation  # noqa: B018
        except SandboxMissing as reason:
            pytest.skip(str(reason))
        yield made


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_SEED", "99")


def graded(sandbox: Sandbox, submission: Submission) -> list[Result]:
    functions = [exercise.function for exercise in exercises_of(submission.day)]
    checks = [CHECKS[name] for name in CHECKS_OF[submission.day]]
    is_whole = submission.passes == CHECKS_OF[submission.day]
    ends = "longer" not in submission.reason and (submission.reason or is_whole)
    limits = PATIENT if ends else QUICK
    return grade(sandbox, dict.fromkeys(functions, submission.cells), checks, limits=limits)


def processes_below(pid: int) -> set[int]:
    """Return the descendants of a process."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            parents[int(name)] = int(text.rpartition(")")[2].split()[1])
    found = {pid}
    growing = True
    while growing:
        more = {child for child, parent in parents.items() if parent in found} - found
        found |= more
        growing = bool(more)
    return found - {pid}


@pytest.mark.parametrize("name", [s.name for s in _TABLE])
def test_each_gets_what_it_deserves(
    name: str, sandbox: Sandbox, secret: Path, port: int, repository: Path
) -> None:
    submission = next(s for s in submissions(secret, repository, port) if s.name == name)
    # Such as the one that multiprocessing starts once for each process that has ever used it.
    others = processes_below(os.getpid()) - _of_the_sandbox(sandbox)
    results = graded(sandbox, submission)

    assert tuple(r.id for r in results if r.passed) == submission.passes, [r.line for r in results]
    lost = [result for result in results if not result.passed]
    for result in lost:
        said = result.line
        assert said.startswith(f"✗ {result.id}: ") and len(said.splitlines()) == 1
        assert "\x1b" not in said
    if submission.reason:
        assert any(submission.reason in result.line for result in lost), [r.line for r in lost]
    assert secret.read_text() == "nobody's points"
    assert [path.name for path in secret.parent.iterdir()] == ["gradebook.db"]
    assert not list(Path("/tmp").glob("hostile-was-here"))
    # The program inside waits for the next one; of the learner's processes none is left.
    running = processes_below(os.getpid()) - _of_the_sandbox(sandbox) - others
    assert not running, [Path(f"/proc/{pid}/cmdline").read_text() for pid in running]


def _of_the_sandbox(sandbox: Sandbox) -> set[int]:
    """The processes that the sandbox itself consists of."""
    supervisors = [
        supervisor for supervisor in sandbox._supervisors.values() if supervisor.is_alive
    ]
    return {
        pid
        for supervisor in supervisors
        for pid in (supervisor.process_id, *_chain(supervisor.process_id))
    }


def _chain(pid: int) -> set[int]:
    """The processes that a supervisor consists of: each has one child, the last has none."""
    below = processes_below(pid)
    assert len(below) <= 2
    return below


def test_there_are_enough_of_them() -> None:
    names = [s.name for s in _TABLE]
    assert len(set(names)) == len(names) >= 40


def test_this_process_does_not_grow(
    sandbox: Sandbox, secret: Path, port: int, repository: Path
) -> None:
    floods = [
        "endless printing",
        "a list of ten million numbers",
        "a text of thirty million characters",
        "a frame of four gigabytes",
        "lists in lists in lists on the pipe",
        "keys that collide",
    ]
    table = {s.name: s for s in submissions(secret, repository, port)}
    graded(sandbox, table["an honest notebook of day 5"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in floods:
        graded(sandbox, table[name])
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 120 * 1024


CONTAINED = [
    "the gradebook, overwritten",
    "the repository: solutions, checks, other submissions",
    "writing wherever it can",
    "the environment and the seed",
    "the network, loopback too",
    "a namespace of one's own, and other processes' memory",
    "memory that no limit counts",
    "another program",
    "higher limits",
    "a fork bomb",
    "a process in the background",
    "a file that fills the disk",
]


def test_without_namespaces_in_it_it_contains_as_well(
    secret: Path,
    port: int,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a sandbox cannot hold further namespaces, each submission gets one of its own."""
    monkeypatch.setattr(launch, "_useless", set())
    monkeypatch.setattr(launch, "INNER_NAMESPACES", (False,))
    table = {s.name: s for s in submissions(secret, repository, port)}
    before = processes_below(os.getpid())
    with Sandbox(QUICK, isolation="bwrap") as sandbox:
        try:
            sandbox.isolation  # noqa: B018
        except SandboxMissing as reason:
            pytest.skip(str(reason))
        for name in CONTAINED:
            results = graded(sandbox, table[name])
            passed = tuple(result.id for result in results if result.passed)
            assert passed == table[name].passes, [name, *(r.line for r in results)]
    assert secret.read_text() == "nobody's points"
    assert processes_below(os.getpid()) <= before
