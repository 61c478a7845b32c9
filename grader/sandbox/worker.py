"""A worker process seen from outside: bytes to it, bytes from it, and its end.

``Worker`` is one that a supervisor has forked, ``LoneWorker`` one that was started by itself where
processes cannot be forked or handed pipes (Windows).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from grader.sandbox import launch
from grader.sandbox.inside import protocol
from grader.sandbox.library import loaded_first
from grader.sandbox.system import package_folders


class Worker:
    """A worker process and the pipe to it."""

    def __init__(
        self,
        lock: threading.Lock,
        supervisor: launch.Supervisor,
        number: int,
        pipe: socket.socket,
        scratch: Path | None,
    ) -> None:
        self._lock, self._supervisor, self._number, self._pipe = lock, supervisor, number, pipe
        self.scratch = scratch
        self.preload: dict[str, Any] = {}
        # Whether the learner's code cannot have done it when the program inside is gone.
        self.is_out_of_reach = supervisor.lasting and scratch is None
        self._came = bytearray()
        self._pipe.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._pipe)

    def write(self, data: bytes, until: float) -> None:
        """Send bytes; raise TimeoutError when nobody takes them in time."""
        left = memoryview(data)
        while left:
            try:
                left = left[self._pipe.send(left) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, until)

    def read(self, most_bytes: int, until: float) -> dict[str, Any]:
        """Read a message; raise TimeoutError, TooLong, or EOFError at the pipe's end."""
        # What has come already is in time only as long as there is time.
        if time.monotonic() >= until:
            raise TimeoutError
        return protocol.read_message(lambda: self._more(until), self._came, most_bytes)

    def _more(self, until: float) -> bytes:
        self._wait(select.POLLIN, until)
        return self._pipe.recv(2**16)

    def _wait(self, event: int, until: float) -> None:
        self._poll.modify(self._pipe, event)
        if not self._poll.poll(max(1.0, 1000 * (until - time.monotonic()))):
            raise TimeoutError

    def end(self, is_ending: bool = False) -> launch.Ending | None:
        """End it, and everything that it has started."""
        with self._lock:
            ending = self._supervisor.end(self._number, is_ending)
        self._pipe.close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return ending


class LoneWorker(Worker):
    """A worker process where processes cannot be forked or handed pipes (Windows)."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.is_out_of_reach = False
        self.scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=folder))
        self.preload = {
            "library": str(library),
            "packages": package_folders(),
            "preload": loaded_first(),
        }
        program = [*launch.run_program(folder), "--alone"]
        environment = {k: v for k, v in os.environ.items() if k.upper() in ("SYSTEMROOT", "PATH")}
        self._process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )
        # Pipes have no time limits here: threads read and write, at most a few blocks ahead.
        self._blocks: Queue[bytes] = Queue(maxsize=16)
        self._came = bytearray()
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while data := self._process.stdout.read(2**16):
                self._blocks.put(data)
        self._blocks.put(b"")

    def write(self, data: bytes, until: float) -> None:
        assert self._process.stdin is not None
        writer = threading.Thread(target=_write_all, args=(self._process.stdin, data), daemon=True)
        writer.start()
        writer.join(max(0.001, until - time.monotonic()))
        if writer.is_alive():
            raise TimeoutError

    def _more(self, until: float) -> bytes:
        try:
            data = self._blocks.get(timeout=max(0.001, until - time.monotonic()))
        except Empty:
            raise TimeoutError from None
        if not data:
            self._blocks.put(b"")
        return data

    def end(self, is_ending: bool = False) -> launch.Ending | None:
        if is_ending:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
        code = self._process.poll()
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(Exception):
            while self._blocks.get_nowait():
                pass
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return launch.Ending(code or 0, 0.0)


def _write_all(stream: Any, data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):
        left = memoryview(data)
        while left:
            left = left[stream.write(left) :]
