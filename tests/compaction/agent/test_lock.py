"""One session, one writer: the lock, and the copy that --fork goes on with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compaction.agent.listener import Listener
from compaction.agent.lock import SessionLock
from compaction.agent.options import open_agent
from compaction.agent.store import read_session
from compaction.files import InputError
from compaction.gateway import Gateway
from tests.compaction.agent.sessions import Start, options

HOLD = "from compaction.agent.lock import *; lock = SessionLock(Path({!r})); print('held'); input()"


def test_the_second_is_told_who_has_it(tmp_path: Path) -> None:
    lock = SessionLock(tmp_path / "s.json")
    with pytest.raises(InputError, match=rf"process {os.getpid()} .*--fork"):
        SessionLock(tmp_path / "s.json")
    lock.release()
    lock.release()
    SessionLock(tmp_path / "s.json").release()


def test_another_name_of_the_same_file_is_the_same_session(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "s.json")
    lock = SessionLock(tmp_path / "s.json")
    with pytest.raises(InputError):
        SessionLock(tmp_path / "link.json")
    lock.release()


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(str(file))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=f"process {holder.pid} "):
        SessionLock(file)
    holder.kill()
    holder.communicate()
    SessionLock(file).release()


def test_a_place_without_locks_goes_without(tmp_path: Path) -> None:
    SessionLock(tmp_path / "nowhere" / "s.json").release()


def test_a_session_that_is_open_is_forked(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    with Gateway(script=["Hello.", "And here."]) as gateway:
        given = ["--model", "m", "--base-url", gateway.base_url, "--folder", str(tmp_path)]
        first = open_agent(options(*given, "--session", str(file)), Listener())
        assert first.say("Hi.")
        with pytest.raises(InputError, match="another agent has this session open"):
            open_agent(options("--resume", str(file)), Listener())
        copy = tmp_path / "copy.json"
        fork = options(*given, "--resume", str(file), "--fork", "--session", str(copy))
        second = open_agent(fork, Listener())
        assert second.history == first.history and second.save_to == copy
        assert second.say("Are you there?")
        assert len(read_session(file).messages) == 3 and len(read_session(copy).messages) == 5
        first.close()
        second.close()
        # What is closed may be opened, and a fork needs no name of its own.
        again = open_agent(options("--resume", str(file)), Listener())
        other = open_agent(options("--resume", str(file), "--fork"), Listener())
        assert other.save_to is not None and other.save_to.parent.name == "sessions"
        again.close()
        other.close()


def test_options_that_clash_leave_no_lock(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    with pytest.raises(InputError):
        open_agent(options("--session", str(file), "--base-url", "http://h/v1"), Listener())
    SessionLock(file).release()
