"""Try a learner's functions out in a process apart, before a session runs on them.

Code that loops, or ends its process, must not take the session with it. In go the reader of the
notebooks and their folder; out comes, by name, why a function is not to be used. A function that
raises is no such case: a session says so in a line and goes on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from compaction.history import HistoryError

LOAD_S, CALL_S = 60.0, 10.0
"""What executing all notebooks, and one call of a function on a short history, may take."""

Function = Callable[..., Any]
Read = Callable[[str], Any]
"""Executes a folder's notebooks and returns an object with ``functions`` by name."""


def try_out(read: Read, folder: str, names: Collection[str]) -> dict[str, str]:
    """Return the functions that ended their process or did not end themselves, with the reason.

    Raises HistoryError where executing the notebooks already does so. Where no process can be
    started, nothing is tried.
    """
    faults: dict[str, str] = {}
    while True:
        function, why = _round(read, folder, [name for name in names if name not in faults])
        if not why:
            return faults
        if not function:
            raise HistoryError(f"{folder}: executing the notebooks {why}")
        faults[function] = why


def _round(read: Read, folder: str, names: Collection[str]) -> tuple[str, str]:
    """Try in one process; return the function that stopped it, and how ("" for not at all)."""
    import multiprocessing

    function = ""
    try:
        context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(theirs, read, folder, names), daemon=True)
        sys.stdout.flush()
        process.start()
    except (ImportError, OSError, ValueError):
        return "", ""
    theirs.close()
    try:
        while True:
            limit_s = CALL_S if function else LOAD_S
            if not ours.poll(limit_s):
                return function, f"took longer than {limit_s:g} s"
            said = ours.recv_bytes().decode()
            if said == _DONE:
                return "", ""
            function = said
    except (EOFError, OSError):
        return function, "ended the process"
    finally:
        if hasattr(os, "killpg"):
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        ours.close()


# --- in the process apart -------------------------------------------------------------------

_DONE = "."  # no function has this name


def _work(pipe: Any, read: Read, folder: str, names: Collection[str]) -> None:
    """Execute the notebooks and call each function once, saying before which one it is."""
    leave = os._exit  # a learner's code may put something else in its place
    with suppress(OSError, AttributeError):
        os.setsid()
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
    try:
        # What the reader refuses is said by the session, which reads again.
        functions: Mapping[str, Function] = {}
        with suppress(Exception):
            functions = read(folder).functions
        uses = _uses()
        for name in names:
            if name in functions:
                pipe.send_bytes(name.encode())
                with suppress(Exception):
                    uses[name](functions[name])
        pipe.send_bytes(_DONE.encode())
    finally:
        leave(0)


def _uses() -> dict[str, Callable[[Function], object]]:
    """Return for each function of the labs a call of it, as a session makes it."""
    from compaction import session
    from compaction.calibration import TokenMeter
    from compaction.engine import Lines
    from compaction.grouping import group_messages
    from compaction.probes import Probe
    from compaction.summary import Compaction, extract
    from compaction.tokens import DEFAULT

    messages, meter = session.load("short").messages, TokenMeter()
    samples, probes = session.calibration_samples(), [Probe("calc.py")]
    lines = Lines(max(1, meter.count(messages) // 2))

    def shorter(history: list[Any]) -> Compaction:
        return Compaction(history[: len(history) // 2], 0, 0, [], None, [])

    return {
        "estimate": lambda own: own("hello", DEFAULT),
        "fit": lambda own: own(samples, DEFAULT),
        "should_compact": lambda own: own(messages, lines.window, 0.7, meter=meter),
        "budget_table": lambda own: own(messages, lines.window, meter=meter, tools=None),
        "group_messages": lambda own: own(messages),
        "compact": lambda own: own(
            messages, extract, keep_recent=3, group=group_messages, meter=meter, probes=probes
        ),
        "verify": lambda own: own(probes, messages, None),
        "next_step": lambda own: own(100, lines.window, 0.7, 0.95, True),
        "make_room": lambda own: own(messages, meter.count, shorter, lines.decide),
    }
