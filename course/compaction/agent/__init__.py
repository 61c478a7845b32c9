"""Day 8: a small coding agent in the terminal and in a notebook, which compacts itself.

``agent`` is the session; it works with ``tools`` (and ``checklist``) in a folder, over a
``connection`` to a model, on the library's ``functions`` or a learner's own, and ``store`` keeps
it in a file. ``slash_commands``, ``terminal`` and ``notebook`` are what a person meets, ``demo``
is the offline demonstration; ``options`` makes a session and ``main`` is its command line.
What happens is told to a ``listener``.
"""

from compaction.agent.agent import Agent, Usage
from compaction.agent.listener import THRESHOLD, WINDOW, Listener

__all__ = ["THRESHOLD", "WINDOW", "Agent", "Listener", "Usage"]
