"""The command line."""

from compaction.cli.commands import draw_budget, main

__all__ = ["draw_budget", "main"]
