"""Histories as files: read any common form, write Chat Completions.

``conversation`` is what a file holds, ``json_text`` turns bytes into values, ``reading`` finds the
conversations in them, ``checking`` refuses what is no message, ``writing`` writes them back.
"""

from compaction.history.conversation import Conversation, HistoryError, HistoryFile
from compaction.history.reading import parse_histories, read_histories, read_history, read_tools
from compaction.history.writing import render_histories

__all__ = [
    "Conversation",
    "HistoryError",
    "HistoryFile",
    "parse_histories",
    "read_histories",
    "read_history",
    "read_tools",
    "render_histories",
]
