"""Run one shell command: its output capped, its time limited, and nothing of it left behind.

What a command prints is capped while it is read. At the time limit, at Ctrl-C and when this
process ends, however it ends, the command ends together with everything it started.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_GRACE_S = 0.3  # for what a command left behind to close its output


def run_shell(
    command: str, folder: Path, environment: Mapping[str, str], time_limit_s: float, limit: int
) -> str:
    """Run a shell command in a folder; return its output and how it ended.

    ``limit`` is the longest output in characters; its beginning and its end are kept.
    """
    output = _Capped(limit)
    started_s = time.monotonic()
    note = ""
    with _started(command, folder, environment) as process:
        reader = threading.Thread(target=output.read_from, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            process.wait(time_limit_s)
            reader.join(_GRACE_S)
            if reader.is_alive():
                note = "; what it left running was ended"
        except subprocess.TimeoutExpired:
            note = f"; ended at the time limit of {time_limit_s:g} s"
        finally:  # Ctrl-C too
            _end_group(process)
            reader.join(_GRACE_S)
    took_s = time.monotonic() - started_s
    text = output.text()
    if text and not text.endswith("\n"):
        text += "\n"
    return f"{text}[exit code {process.returncode} after {took_s:.1f} s{note}]"


# --- the process and its group --------------------------------------------------------------

# The command waits for a line before it begins: only then does its watcher know it.
_WAIT_FOR_START = 'read -r _ || exit; exec /bin/sh -c "$1" </dev/null'

# The watcher reads from a pipe that only this process holds open. When this process is gone,
# killed or not, the pipe ends, and the watcher ends the command's family. (No `--` before the
# negative number: not every shell's kill knows it.)
_END_FAMILY = """
family=$(ps -eo pid=,ppid=,pgid= 2>/dev/null | awk -v group="$group" '
    { parent[$1] = $2; if ($3 == group) found[$1] = 1 }
    END {
        do {
            more = 0
            for (p in parent) if (!(p in found) && (parent[p] in found)) more = found[p] = 1
        } while (more)
        for (p in found) print p
    }')
kill -9 "-$group"
[ -z "$family" ] || kill -9 $family
"""
"""Ends a process group, and its descendants in groups and sessions of their own."""

_WATCH = f"read -r group; read -r _; {_END_FAMILY}"


@contextmanager
def _started(
    command: str, folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a process group of its own, which ends with this process."""
    options: dict[str, Any] = {
        "cwd": folder,
        "env": environment,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "bufsize": 0,
    }
    if sys.platform == "win32":
        group = subprocess.CREATE_NEW_PROCESS_GROUP
        yield subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, creationflags=group, **options
        )
        return
    watcher = subprocess.Popen(
        ["/bin/sh", "-c", _WATCH],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT_FOR_START, "sh", command],
            stdin=subprocess.PIPE,
            start_new_session=True,
            **options,
        )
        try:
            assert watcher.stdin is not None and process.stdin is not None
            watcher.stdin.write(f"{process.pid}\n".encode())
            process.stdin.write(b"\n")
            process.stdin.close()
            yield process
        except BaseException:
            _end_group(process)
            raise
    finally:
        watcher.kill()
        watcher.wait()
        if watcher.stdin is not None:
            watcher.stdin.close()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a command and whatever it started."""
    if sys.platform == "win32":
        if process.poll() is None:
            tree = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
            subprocess.run(tree, capture_output=True, check=False)
    else:
        if process.poll() is None:  # at the time limit, or stopped by a person
            script = f"group={process.pid}; {_END_FAMILY}"
            subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=False)
        # The group outlives its first process, so it is ended even when that one has gone.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# --- its output -----------------------------------------------------------------------------

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def plain_text(text: str) -> str:
    """Return text without colours, other terminal sequences and control characters.

    >>> plain_text("\\x1b[31mred\\x1b[0m\\r\\n")
    'red\\n'
    """
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text)


class _Capped:
    """The beginning and the end of an output; the middle is counted and forgotten."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._lock = threading.Lock()

    def read_from(self, pipe: Any) -> None:
        with suppress(OSError, ValueError), pipe:
            while piece := pipe.read(65_536):
                self._add(piece)

    def _add(self, piece: bytes) -> None:
        with self._lock:
            room = self._head_limit - len(self._head)
            self._head += piece[:room]
            self._tail += piece[room:] if room > 0 else piece
            excess = len(self._tail) - self._tail_limit
            if excess > 0:
                self._dropped += excess
                del self._tail[:excess]

    def text(self) -> str:
        with self._lock:
            if not self._dropped:
                return plain_text((self._head + self._tail).decode(errors="replace"))
            # Cut between lines where there are some.
            head = plain_text(self._head.decode(errors="ignore")).rpartition("\n")
            tail = plain_text(self._tail.decode(errors="ignore")).partition("\n")
            dropped = f"[{self._dropped:,} bytes in the middle are left out]"
            return f"{head[0] or head[2]}\n{dropped}\n{tail[2] or tail[0]}"
