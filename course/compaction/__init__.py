"""Context compaction for agents: count tokens, decide, group, summarise, verify.

One module a day. Importing the package loads none of them, so that it costs nothing::

    from compaction.tokens import estimate
    from compaction.summary import compact
"""

__version__ = "1.0.0"


def load_ipython_extension(ipython: object) -> None:
    """Answer ``%load_ext compaction``: add ``%budget``, ``%compact`` and ``%%agent``."""
    from compaction.agent.notebook import register

    register(ipython)
