"""Histories as files."""

from compaction.history.reading import (
    Conversation,
    HistoryError,
    HistoryFile,
    parse_histories,
    read_histories,
    read_history,
    read_tools,
    render_histories,
    write_atomically,
)

__all__ = [
    "Conversation",
    "HistoryError",
    "HistoryFile",
    "parse_histories",
    "read_histories",
    "read_history",
    "read_tools",
    "render_histories",
    "write_atomically",
]
