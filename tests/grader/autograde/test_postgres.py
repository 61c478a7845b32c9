"""The gradebook in PostgreSQL, by nbgrader's own setting, on a real server of this machine."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI

from grader.autograde.course import Course
from grader.cli import main
from tests.grader.classroom import DAY1, DAY2, hand_in, make_course, solved, starter

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def _programs() -> Path | None:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    path = shutil.which("initdb") or (found[-1] if found else None)
    return Path(path).parent if path else None


def _somebody() -> dict[str, Any]:
    """Return whom the server runs as: it refuses to be root."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return {}
    person = pwd.getpwnam("nobody")
    return {"user": person.pw_uid, "group": person.pw_gid, "extra_groups": []}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start a server of our own; yield the address of an empty database."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's programs are not installed")
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    somebody = _somebody()
    if somebody:
        os.chown(folder, somebody["user"], somebody["group"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def run(name: str, *arguments: str) -> None:
        subprocess.run(
            [str(programs / name), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            timeout=120,
            **somebody,
        )

    data = str(folder / "data")
    run("initdb", "-D", data, "-A", "trust", "-U", "grader", "--no-sync", "-E", "UTF8")
    settings = f"-F -h 127.0.0.1 -p {port} -k {folder}"
    run("pg_ctl", "-D", data, "-w", "-t", "100", "-o", settings, "start")
    try:
        place = f"host=127.0.0.1 port={port} user=grader"
        with psycopg.connect(f"{place} dbname=postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE gradebook")
        yield f"postgresql+psycopg://grader:secret@127.0.0.1:{port}/gradebook"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def test_a_class_in_postgresql(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADER_SEED", "7")
    root = make_course(tmp_path / "course", server)
    hand_in(root, "ada", solved())
    hand_in(root, "ada", solved(DAY2), DAY2)
    hand_in(root, "Zoë " + "long" * 30, starter())  # longer than the column of nbgrader's
    command = ["autograde", "--course", str(root), "--jobs", "2"]
    assert main(command) == 0
    assert "3 graded, 0 unchanged" in capsys.readouterr().out
    with Gradebook(server) as book:
        found = {
            (one.student.id[:3], assignment.name): (one.score, one.needs_manual_grade)
            for assignment in book.assignments
            for one in assignment.submissions
        }
        assert found == {
            ("ada", DAY1): (2, False),
            ("ada", DAY2): (3, True),
            ("Zoë", DAY1): (1, False),
        }
        answer = book.find_grade("interview-estimate", DAY2, DAY2, "ada")
        answer.manual_score, answer.needs_manual_grade = 2, False
        book.db.commit()

    assert main([*command, "--force"]) == 0
    assert main(command) == 0
    assert "0 graded, 3 unchanged" in capsys.readouterr().out
    with Gradebook(server) as book:
        answer = book.find_grade("interview-estimate", DAY2, DAY2, "ada")
        assert (answer.score, answer.needs_manual_grade) == (2, False)

    told = NbGraderAPI(config=Course(root).config).generate_feedback(DAY2, "ada")
    assert told["success"], told.get("error")
    assert main(["report", "--course", str(root)]) == 0
    assert not list(root.rglob("*.db"))


def test_a_server_that_is_away_is_bad_input_without_the_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_course(tmp_path / "course", "postgresql+psycopg://grader:secret@127.0.0.1:1/book")
    hand_in(root, "ada", solved())
    assert main(["autograde", "--course", str(root), "--jobs", "1"]) == 2
    error = capsys.readouterr().err
    assert "no gradebook" in error and "secret" not in error and error.count("\n") == 1
