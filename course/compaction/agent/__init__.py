"""Day 8: a small coding agent in the terminal and in a notebook, which compacts itself.

``agent`` is the session; it works with ``tools`` (and ``checklist``) in a folder, over a
``connection`` to a model, on the library's ``functions`` or a learner's own, and ``store`` keeps
it in a file. ``slash_commands``, ``terminal`` and ``notebook`` are what a person meets, ``demo``
is the offline demonstration, and ``options`` makes a session from a command line.
"""

from compaction.agent.agent import THRESHOLD, WINDOW, Agent, Listener, Usage

__all__ = ["THRESHOLD", "WINDOW", "Agent", "Listener", "Usage"]
