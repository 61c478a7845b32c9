"""The command ``python -m compaction agent``: its options, and the session in a terminal."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from compaction.agent.listener import Stopped
from compaction.agent.options import add_arguments, open_agent
from compaction.agent.terminal import Screen, work

__all__ = ["add_arguments", "run"]


def run(options: argparse.Namespace) -> int:
    """Work with a person in the terminal until the session ends, and return the exit code."""
    screen = Screen(allow_all=options.yes, ask=input if sys.stdin.isatty() else None)
    try:
        with _ending_in_order():
            return work(open_agent(options, screen), screen)
    except Stopped as stopped:
        return 128 + stopped.signal_number


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """End at SIGTERM and at a closed terminal as at a person's wish: commands end, files close."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise Stopped(signal_number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):  # Windows knows no SIGHUP
                before[name] = signal.signal(getattr(signal, name), stop)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
