"""Grading on a Dask cluster: results come back to one writer; a dead worker loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.cli import main
from grader.errors import BadInput
from tests.grader.autograde.test_run import difference, everything, record
from tests.grader.classroom import DAY2, hand_in, make_course, solved, starter, with_code

distributed = pytest.importorskip("distributed", reason="needs the extra cluster")

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and three workers, each a process of its own; yield its address."""
    file = tmp_path / "scheduler.json"
    folder = tmp_path / "dask"
    folder.mkdir()
    environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}

    def dask(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]]
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    own = ["--no-dashboard", "--host", "127.0.0.1"]
    started = [dask("dask_scheduler", "--scheduler-file", str(file), "--port", "0", *own)]
    until = time.monotonic() + 90
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.1)
    one = ["--nthreads", "1", "--no-nanny", "--memory-limit", "0"]
    local = ["--local-directory", str(folder), "--death-timeout", "120"]
    workers = [
        dask("dask_worker", "--scheduler-file", str(file), *one, *own, *local) for _ in range(3)
    ]
    try:
        import json

        yield json.loads(file.read_text())["address"], workers
    finally:
        for process in [*workers, *started]:
            process.kill()
            process.wait()


def test_a_worker_that_is_killed_loses_nothing(
    tmp_path: Path,
    scheduler: tuple[str, list[subprocess.Popen[bytes]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GRADER_SEED", "7")
    address, workers = scheduler
    roots = [make_course(tmp_path / name) for name in ("cluster", "here")]
    for root in roots:
        for number in range(8):
            loop = f"def estimate(text, coefficients=None):\n    while True:\n        {number}\n"
            hand_in(root, f"loops{number}", with_code(loop))
            hand_in(root, f"starts{number}", starter(DAY2), DAY2)
            hand_in(root, f"solves{number}", solved())
    there, here = roots
    limits = ["--limit", "call_s=1.5"]
    command = [sys.executable, "-m", "grader", "autograde", "--course", str(there), *limits]
    run = subprocess.Popen(
        [*command, "--scheduler", address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    records = there / "grader" / "classroom" / "records"
    until = time.monotonic() + 120
    while not list(records.glob("*/*.json")) and time.monotonic() < until and run.poll() is None:
        time.sleep(0.02)
    done = len(list(records.glob("*/*.json")))
    os.kill(workers[0].pid, signal.SIGKILL)
    said, _ = run.communicate(timeout=300)
    assert run.returncode == 0, said.decode()
    assert 0 < done < 24
    assert b"24 graded, 0 unchanged" in said
    assert record(there, "loops3").marks[0].kind == "stopped"

    # The same as on one machine.
    assert main(["autograde", "--course", str(here), "--jobs", "2", *limits]) == 0
    capsys.readouterr()
    assert difference(everything(there), everything(here)) == {}


def test_a_scheduler_that_is_not_there_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    from grader.autograde import cluster

    before = cluster.START_S
    cluster.START_S = 2.0
    try:
        with pytest.raises(BadInput, match="no Dask scheduler answers"):
            cluster.Cluster("tcp://127.0.0.1:1", "limits")
    finally:
        cluster.START_S = before
