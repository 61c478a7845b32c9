"""The command ``python -m compaction agent``: its options, and the session in a terminal."""

from __future__ import annotations

import argparse
import sys

from compaction.agent.options import add_arguments, open_agent
from compaction.agent.terminal import Screen, work

__all__ = ["add_arguments", "run"]


def run(options: argparse.Namespace) -> int:
    """Work with a person in the terminal until the session ends, and return the exit code."""
    screen = Screen(allow_all=options.yes, ask=input if sys.stdin.isatty() else None)
    return work(open_agent(options, screen), screen)
