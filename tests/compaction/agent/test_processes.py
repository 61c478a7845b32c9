"""The agent as a process: killed, stopped and interrupted in mid-turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from compaction.agent.store import read_session
from compaction.gateway import Gateway
from compaction.messages import Call, problems
from tests.compaction.agent.servers import Misbehaving, answer, error, said
from tests.compaction.agent.sessions import (
    READ,
    Start,
    assert_valid,
    calls,
    heard,
    messages_in,
    start_process,
    wait_for,
)


def test_kill_in_mid_turn_loses_only_what_was_in_flight(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    slow = calls(("run_command", {"command": "echo $$ > pid; sleep 60"}), content="I run it.")
    with Gateway(script=[READ, "Read.", READ, slow, "It ended."]) as gateway:
        process = start_process(gateway, folder, file)
        try:
            process.stdin.write("Read it. Remember: build with `make all`.\nNow run it.\n")
            process.stdin.flush()
            wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip())
        finally:
            process.kill()
            process.wait()
        os.killpg(int((folder / "pid").read_text()), signal.SIGKILL)
        kept = messages_in(file)
        roles = " ".join(message["role"] for message in kept)
        assert roles == "system user assistant tool assistant user assistant tool assistant"
        assert problems(kept) == ["tool call 'call_3' has no result right after it"]
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
        # The same session goes on: the waiting call runs, and the fact is still pinned.
        (folder / "pid").unlink()
        later = start_process(gateway, folder, file, "--resume", "--time-limit", "0.3")
        out, _ = later.communicate("/continue\n/probes\n", timeout=300)
        assert "the last turn was stopped: /continue goes on" in out
        assert "It ended." in out and "make all: kept" in out
        assert problems(messages_in(file)) == []
        assert messages_in(file)[:9] == kept


def test_kill_in_mid_reply_keeps_the_persons_words(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    with Gateway(script=["word " * 2000, "Yes."], chunk_delay_s=0.05) as gateway:
        process = start_process(gateway, folder, file)
        try:
            process.stdin.write("Speak.\n")
            process.stdin.flush()
            heard = ""
            while "word word" not in heard:
                heard += process.stdout.read(1)
        finally:
            process.kill()
            process.wait()
        assert messages_in(file)[1:] == [{"role": "user", "content": "Speak."}]


def test_a_real_ctrl_c_ends_the_command_and_keeps_the_session(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    slow = calls(("run_command", {"command": "echo $$ > pid; sleep 60"}))
    with Gateway(script=[slow, "I see."]) as gateway:
        process = start_process(gateway, folder, file)
        process.stdin.write("Run it.\n")
        process.stdin.flush()
        wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate("Never mind.\n", timeout=300)
        assert process.returncode == 0
        assert "* stopped, 1 tool call without a result; the session is whole" in out
        assert "--resume goes on" in out and "I see." in out
    # Nothing of the group is alive; a dead process may wait for its parent to take note.
    group = (folder / "pid").read_text().strip()
    listed = subprocess.run(
        ["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True
    )
    states = [line.split()[1] for line in listed.stdout.splitlines() if line.split()[0] == group]
    assert all(state.startswith("Z") for state in states)
    assert [m["role"] for m in messages_in(file)[-3:]] == ["assistant", "user", "assistant"]


# --- nothing is left running ----------------------------------------------------------------

# A child in the background, one in the foreground, one that ignores a polite signal, and one that
# has gone into a session of its own.
FAMILY = (
    "setsid sh -c 'echo $$ > child; exec sleep 303' & sleep 300 & "
    "(trap '' TERM HUP; sleep 301) & while [ ! -s child ]; do sleep 0.01; done; "
    "echo $$ > pid; sleep 302"
)


def alive(group: int, child: int = 0) -> list[str]:
    """The processes of a group, and a child; a dead one may wait for its parent to take note."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,pgid=,stat=,args="], capture_output=True, text=True, check=True
    )
    lines = [line.split(None, 3) for line in listed.stdout.splitlines()]
    family = [w for w in lines if w[1] == str(group) or w[0] == str(child)]
    return [words[3] for words in family if words[2][0] != "Z"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_command_and_its_children_end_with_the_agent(
    folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "kept.json"
    with Gateway(script=[calls(("run_command", {"command": FAMILY}))]) as gateway:
        process = start_process(gateway, folder, file)
        process.stdin.write("Run it.\n")
        process.stdin.flush()
        wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip())
        group, child = (int((folder / name).read_text()) for name in ("pid", "child"))
        assert len(alive(group)) >= 3 and len(alive(-1, child)) == 1
        process.send_signal(number)
        process.wait(timeout=300)
        wait_for(lambda: not alive(group, child))
        process.stdin.close()
        process.stdout.close()
        assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
        saved = read_session(file)
        assert saved.running == "call_1"
        assert problems(saved.messages) == ["tool call 'call_1' has no result right after it"]


def test_an_interrupted_command_is_not_run_again_unasked(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    once = calls(("run_command", {"command": "echo ran >> marks; sleep 60"}))
    with Gateway(script=[once, "I look first.", "Fine."]) as gateway:
        process = start_process(gateway, folder, file)
        process.stdin.write("Run it.\n")
        process.stdin.flush()
        wait_for(lambda: (folder / "marks").exists())
        process.kill()
        process.communicate()
        # --yes is no answer to the question whether it may run twice.
        later = start_process(gateway, folder, file, "--resume")
        out, _ = later.communicate("/continue\n", timeout=300)
        assert later.returncode == 0 and "I look first." in out
        assert "it may have run, in part or whole" in out
    assert (folder / "marks").read_text() == "ran\n"
    [result] = [m["content"] for m in messages_in(file) if m["role"] == "tool"]
    assert result.startswith("interrupted: ") and "it may have run" in result
    assert read_session(file).running is None


@pytest.mark.parametrize("wanted", [True, False])
def test_a_person_decides_about_an_interrupted_command(
    start: Start, folder: Path, wanted: bool
) -> None:
    call = calls(
        ("run_command", {"command": "echo ran >> marks"}), ("read_file", {"path": "marks"})
    )
    asked: list[str | None] = []
    with Gateway(script=[call, "Done."]) as gateway:
        agent = start(gateway)

        begins = agent.toolbox.before_run
        assert begins is not None

        def interrupt() -> None:
            begins()
            raise KeyboardInterrupt

        def allow_again(call: Call) -> bool:
            asked.append(call.id)
            return wanted

        agent.toolbox.before_run = interrupt
        agent.listener.allow_again = allow_again  # type: ignore[method-assign]
        assert not agent.say("Run it.")
        agent.toolbox.before_run = begins
        before = len(heard(agent).allowed)
        assert agent.go_on()
        # One question about this command, and none twice; the second call never began.
        assert asked == ["call_1"] and len(heard(agent).allowed) == before
        assert (folder / "marks").exists() is wanted
        assert agent.history[3]["content"].startswith("[exit code 0" if wanted else "interrupted: ")
        assert_valid(agent)


def test_a_new_message_closes_what_was_interrupted(start: Start, folder: Path) -> None:
    call = calls(("run_command", {"command": "echo ran >> marks"}))
    with Gateway(script=[call, "No.", call, "Yes."]) as gateway:
        agent = start(gateway, running="call_1")
        assert agent.say("Run it.")  # the id of an old call comes again: no interruption
        assert agent.say("Again.")
    assert (folder / "marks").read_text() == "ran\nran\n"


def test_a_closed_terminal_ends_the_agent_and_its_command(folder: Path, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    file = tmp_path / "kept.json"
    with Gateway(script=[calls(("run_command", {"command": FAMILY}))]) as gateway:
        arguments = ["--model", "scripted", "--base-url", gateway.base_url, "--yes"]
        arguments += ["--folder", str(folder), "--session", str(file)]
        pid, terminal = pty.fork()
        if pid == 0:
            environment = {**os.environ, "TERM": "xterm-256color"}
            command = [sys.executable, "-m", "compaction", "agent", *arguments]
            os.execve(sys.executable, command, environment)
        shown = b""
        while b"/help" not in shown.rpartition(b"tokens")[2]:
            shown += os.read(terminal, 65_536)
            if b"\x1b[6n" in shown:  # where is the cursor?
                os.write(terminal, b"\x1b[8;1R")
                shown = shown.replace(b"\x1b[6n", b"")
        os.write(terminal, b"Run it.\r")
        wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip())
        group = int((folder / "pid").read_text())
        os.close(terminal)
        wait_for(lambda: not alive(group))
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
        assert problems(messages_in(file)) == ["tool call 'call_1' has no result right after it"]


def test_a_failed_turn_of_piped_input_ends_with_a_failing_exit_code(
    folder: Path, tmp_path: Path
) -> None:
    with Misbehaving(said("Hello."), answer(400, error("no"))) as server:
        process = start_process(server, folder, tmp_path / "s.json")
        out, _ = process.communicate("Hi.\nAnd now?\nNever said.\n", timeout=300)
        assert process.returncode == 1
        assert "Hello." in out and "Never said." not in out
        assert "/retry asks again" in " ".join(out.split())
