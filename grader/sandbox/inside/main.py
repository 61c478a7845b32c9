"""The program inside the sandbox: it runs a learner's cells and calls the learner's function.

It starts once for many submissions. The *supervisor* (a fork server) loads the library and waits;
for each submission it forks a *worker* process, which gives up its rights, gets the learner's
cells over a pipe of its own, and is killed with all that it has started when the submission is
done. The supervisor never sees a learner's code, and a worker can reach neither the supervisor
nor the next submission.

Run with ``python -I -S grader/sandbox/inside/main.py``, from a copy of the package ``grader`` that
holds only this folder and two modules of ``notebooks``. Nothing in here decides about points:
whatever this side says is only an answer.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import inspect
import io
import linecache
import os
import struct
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

if __name__ == "__main__":
    # Python was told to look for modules nowhere but at home (-I).
    sys.path.insert(0, os.path.abspath(__file__).rsplit(os.sep + "grader" + os.sep, 1)[0])

from grader.notebooks import cells
from grader.sandbox.inside import confine, protocol

# S: start a process (its pipe comes with it). K: kill this one. W: kill it unless it ends first.
REQUEST = struct.Struct("!ci")
STARTED = struct.Struct("!i")
ENDED = struct.Struct("!id")  # exit code, or minus the signal; CPU seconds

_ERROR_CHARS = 6000
_ERROR_FRAMES = 15
_FLOOD = 50  # times as much as is kept


def main() -> None:
    """Serve as supervisor or, when told to be alone, as one worker process."""
    if "--alone" in sys.argv:
        _live(_take_pipe(0, 1))
        return
    import socket

    control = socket.socket(fileno=os.dup(0))
    try:
        settings = protocol.read_message(lambda: control.recv(2**16), bytearray())
    except EOFError:  # nobody wants it any more
        return
    _preload(settings)
    _Supervisor(control, settings).serve()


def _preload(settings: dict[str, Any]) -> None:
    """Load the library, so that a forked process has it at once."""
    sys.path += settings["packages"]
    if settings["library"] is None:
        return
    sys.path.insert(0, settings["library"])
    importlib.import_module("compaction._stubbed")
    for name in settings["preload"]:
        with contextlib.suppress(Exception):  # it will say so to those who import it
            importlib.import_module(name)


class _Supervisor:
    """Start and end workers as the other side of the control pipe asks."""

    def __init__(self, control: Any, settings: dict[str, Any]) -> None:
        self._control = control
        self._namespaces: confine.Namespaces | None = None
        self._tasks_around: int | None = settings["tasks_around"]
        if settings["namespaces"]:
            with contextlib.suppress(OSError, AttributeError):
                self._namespaces = confine.Namespaces()
        confine.guard_supervisor()

    def serve(self) -> None:
        import socket

        # What is loaded by now is shared by all: never look at it again for collection.
        gc.collect()
        gc.freeze()
        self._control.sendall(protocol.pack({"namespaces": self._namespaces is not None}))
        while True:
            data, pipes, _, _ = socket.recv_fds(self._control, REQUEST.size, 1)
            if len(data) < REQUEST.size:  # the other side is gone
                self._end_orphans()
                os._exit(0)
            command, child = REQUEST.unpack(data)
            if command == b"S":
                self._control.sendall(STARTED.pack(self._start(pipes[0])))
                os.close(pipes[0])
            else:
                ending = self._end(child, patience_s=0.5 if command == b"W" else 0.0)
                self._control.sendall(ENDED.pack(*ending))

    def _start(self, pipe: int) -> int:
        def run() -> None:
            os.setsid()
            os.dup2(pipe, 3, inheritable=False)
            os.closerange(4, 4096)
            _live(_take_pipe(3, 3), self._confine)

        try:
            return self._namespaces.fork(run) if self._namespaces else confine.fork(run)
        except OSError as error:
            return -(error.errno or 1)

    def _confine(self, limits: dict[str, int]) -> None:
        if self._namespaces is not None:
            self._namespaces.enclose(limits["scratch_bytes"])
        around = self._tasks_around
        confine.limit_resources(limits, confine.tasks_of_user() if around is None else around)
        confine.renounce()

    def _end(self, child: int, patience_s: float) -> tuple[int, float]:
        """Kill a learner's process and what it has started; return how it ended."""
        until = time.monotonic() + patience_s
        with contextlib.suppress(OSError):
            while True:
                pid, status, usage = os.wait4(child, os.WNOHANG)
                if pid or time.monotonic() >= until:
                    break
                time.sleep(0.002)
            code = os.waitstatus_to_exitcode(status)
            if pid == 0:
                os.kill(child, 9)
                _, status, usage = os.wait4(child, 0)
                code = 0  # it ran until now
            with contextlib.suppress(OSError):
                os.killpg(child, 9)
            self._end_orphans()
            return code, usage.ru_utime + usage.ru_stime
        return 0, 0.0

    def _end_orphans(self) -> None:
        if self._namespaces is not None:
            return  # the system has ended them with the first process of their namespace
        for _ in range(100):
            left = confine.children()
            if not left:
                return
            for orphan in left:
                with contextlib.suppress(OSError):
                    os.kill(orphan, 9)
                    os.waitpid(orphan, 0)


# --- a learner's process ----------------------------------------------------------------


# Taken now: a learner's code may patch the module os, and is honest all the same.
_read, _write, _exit = os.read, os.write, os._exit


class _Pipe:
    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._came = bytearray()

    def send(self, message: dict[str, Any]) -> None:
        left = memoryview(protocol.pack(message))
        while left:
            left = left[_write(self._target, left) :]

    def receive(self) -> dict[str, Any]:
        return protocol.read_message(self._more, self._came)

    def _more(self) -> bytes:
        data = _read(self._source, 2**16)
        if not data:
            _exit(0)
        return data


def _take_pipe(source: int, target: int) -> _Pipe:
    """Keep the pipe to the other side; leave nothing at standard input, output and error."""
    if source < 3:
        source, target = os.dup(source), os.dup(target)
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        nothing = os.open(os.devnull, mode)
        if nothing != number:
            os.dup2(nothing, number)
            os.close(nothing)
    return _Pipe(source, target)


def _live(pipe: _Pipe, give_up_rights: Callable[[dict[str, int]], None] | None = None) -> None:
    """Answer requests until the pipe ends. Never returns: nothing of the learner's runs at exit."""
    try:
        first = pipe.receive()
        if give_up_rights is None:
            _preload(first)
            give_up_rights = _confine_alone
        give_up_rights(first["limits"])
        os.chdir(first["scratch"])
        system = os.environ.get("SYSTEMROOT")  # Windows cannot do without
        os.environ.clear()
        os.environ.update(first["environment"], **({"SYSTEMROOT": system} if system else {}))
        _Worker(pipe, first).serve()
    finally:
        os._exit(3)


def _confine_alone(limits: dict[str, int]) -> None:
    with contextlib.suppress(ImportError):  # Windows has no such limits
        confine.limit_resources(limits, confine.tasks_of_user())
    confine.renounce()


class _Worker:
    """A learner's notebook: its namespace, what it printed, and the functions in it."""

    def __init__(self, pipe: _Pipe, first: dict[str, Any]) -> None:
        self._pipe = pipe
        self._peer = protocol.Peer(pipe.send, pipe.receive)
        self._printed = _Printed(first["limits"]["output_chars"], self._flood)
        self._space = types.ModuleType("__main__")
        self._space.__dict__.update(display=print, get_ipython=_Shell)
        # The old main module is this program; it lives on as long as its functions do.
        self._program = sys.modules["__main__"]
        sys.modules["__main__"] = self._space
        sys.stdin = open(os.devnull)  # noqa: SIM115
        sys.stdout = sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(self._printed, 1024), "utf-8", "backslashreplace", write_through=True
        )
        del sys.argv[1:]
        self._cells: list[cells.Source] = []
        self._plan: cells.Plan | None = None
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._pipe.send({"answer": first["id"], "value": None})

    def serve(self) -> None:
        while True:
            message = self._pipe.receive()
            if "call" in message:
                self._peer.serve(message)
                continue
            answer = getattr(self, f"do_{message['do']}")(message)
            reached = sys.modules["compaction._stubbed"].reached
            answer["reached"] = reached[:20]
            reached.clear()
            answer["printed"] = self._printed.take()
            self._pipe.send({"answer": message["id"], **answer})

    def do_plan(self, message: dict[str, Any]) -> dict[str, Any]:
        """Choose the groups of statements to run; ``whole`` for all there is."""
        self._cells = [(name, source) for name, source in message["cells"]]
        for name, source in self._cells:
            linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        lean = cells.plan(self._cells, message["function"])
        self._plan = (
            cells.plan(self._cells, message["function"], whole=True) if message["whole"] else lean
        )
        return {
            "groups": [group.cell for group in self._plan.groups],
            "needed": sorted({group.cell for group in lean.groups}),
            "imported": _imported([group.body for group in lean.groups], message["stubbed"]),
            "faults": [list(fault) for fault in self._plan.faults],
            "left_out": self._plan.left_out,
        }

    def do_run(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run one group."""
        assert self._plan is not None
        group = self._plan.groups[message["group"]]
        name = self._cells[group.cell][0]
        try:
            code = compile(group.body, name, "exec", self._flags, dont_inherit=True)
            # As in a notebook: a future import holds for the cells that follow.
            self._flags |= code.co_flags & _FUTURES
            if code.co_flags & inspect.CO_COROUTINE:
                import asyncio

                asyncio.run(eval(code, self._space.__dict__))
            else:
                exec(code, self._space.__dict__)
        except BaseException as error:
            return {"raised": _told(error)}
        return {}

    def do_apply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Call the learner's function."""
        function = self._space.__dict__.get(message["function"], self)
        if function is self:
            return {"absent": "is not defined"}
        if not callable(function):
            return {"absent": "is not a function"}
        self._peer.forget()
        args, kwargs = self._peer.decode(message["args"]), self._peer.decode(message["kwargs"])
        handed_in = protocol.encode([args, kwargs])
        try:
            value = protocol.encode(function(*args, **kwargs))
            # The other side has other copies: it cannot see what was done to these.
            return {"value": value, "changed": not _is_still([args, kwargs], handed_in)}
        except protocol.Unsendable as reason:
            return {"unsendable": str(reason)}
        except protocol.PipeEnd:
            os._exit(3)
        except BaseException as error:
            return {"raised": _told(error)}

    def _flood(self) -> None:
        self._pipe.send({"flood": True})
        os._exit(3)


def _is_still(arguments: object, data: object) -> bool:
    """Return True if arguments are what they were when they were encoded."""
    try:
        return bool(protocol.encode(arguments) == data)
    except protocol.Unsendable:
        return False


def _imported(bodies: list[ast.Module], stubbed: list[str]) -> list[str]:
    """Return which of the stubbed functions the cells import by name."""
    return [
        f"{node.module}.{alias.name}"
        for body in bodies
        for node in ast.walk(body)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "compaction"
        for alias in node.names
        if alias.name in stubbed
    ]


_FUTURES = 0
for _name in __import__("__future__").all_feature_names:
    _FUTURES |= getattr(__import__("__future__"), _name).compiler_flag


class _Printed(io.RawIOBase):
    """Keep the first part of what is printed; end a flood."""

    def __init__(self, limit: int, flood: Callable[[], None]) -> None:
        self._limit = limit
        self._flood = flood
        self._all = 0
        self._kept = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        room = self._limit - self._all
        if room > 0:
            self._kept += bytes(data[:room])
        self._all += len(data)
        if self._all > _FLOOD * self._limit:
            self._flood()
        return len(data)

    def take(self) -> str:
        """Return what was kept since the last time; a flood is counted anew."""
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        self._all = 0
        text = self._kept.decode("utf-8", "replace")
        self._kept.clear()
        return text


class _Shell:
    """In the place of IPython's shell: whatever a cell asks of it, nothing happens."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def _told(error: BaseException) -> list[str]:
    """Return an exception as three texts: its type, what it says, and where it happened."""
    name = type.__dict__["__name__"].__get__(type(error))
    try:
        text = str(error)[:_ERROR_CHARS]
    except BaseException:
        text = ""
    try:
        lines = "".join(_traceback(error))
    except BaseException:
        lines = f"{name}: {text}"
    if len(lines) > _ERROR_CHARS:
        third = _ERROR_CHARS // 3
        lines = (
            f"{lines[:third]}\n... {len(lines) - 3 * third} characters ...\n{lines[-2 * third :]}"
        )
    return [str(name)[:80], text, lines]


def _traceback(error: BaseException) -> Iterator[str]:
    """Yield the traceback without this program's own steps at its beginning."""
    steps = error.__traceback__
    while steps is not None and steps.tb_frame.f_code.co_filename == __file__:
        steps = steps.tb_next
    yield from traceback.format_exception(type(error), error, steps, limit=-_ERROR_FRAMES)


if __name__ == "__main__":
    main()
