"""Context compaction for agents: count tokens, decide, group, summarise, verify.

Importing the package loads none of its modules, so that it costs nothing::

    from compaction.tokens import estimate
    from compaction.summary import compact

Days 1 to 8, from the bottom up: ``tokens``, ``calibration``, ``budget``, ``grouping``, ``summary``,
``probes``, ``carrying`` (alone), ``engine`` with ``documents``. For real work: ``history`` reads
files, ``feature_meter`` counts, ``compactor`` compacts, ``gateway`` talks to models, ``agent`` and
``cli`` are what a person meets.
"""

__version__ = "1.0.0"


def load_ipython_extension(ipython: object) -> None:
    """Answer ``%load_ext compaction``: add ``%budget``, ``%compact`` and ``%%agent``."""
    from compaction.agent.notebook import register

    register(ipython)
