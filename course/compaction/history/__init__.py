"""Histories as files: read any common form, write Chat Completions.

``source`` gives a file's lines, ``json_text`` turns them into values, ``reading`` finds the
conversations, ``formats`` knows other programs' forms, ``checking`` refuses what is not a message,
``writing`` writes histories back. ``conversation`` is what comes out.
"""

from compaction.history.conversation import (
    Conversation,
    HistoryError,
    HistoryFile,
    HistoryStream,
)
from compaction.history.reading import (
    iter_histories,
    open_histories,
    parse_histories,
    read_histories,
    read_history,
    read_tools,
)
from compaction.history.writing import render_histories

__all__ = [
    "Conversation",
    "HistoryError",
    "HistoryFile",
    "HistoryStream",
    "iter_histories",
    "open_histories",
    "parse_histories",
    "read_histories",
    "read_history",
    "read_tools",
    "render_histories",
]
