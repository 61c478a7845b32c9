"""Split a source into units, each classified as verbatim or compressible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compaction.documents.conversation import chat_units
from compaction.documents.markdown import markdown_units
from compaction.documents.source import PYTHON_KINDS, source_units
from compaction.documents.units import Unit
from compaction.messages import Message

CHAT_KINDS = ("chat", "history", "messages", "conversation")
MARKDOWN_KINDS = ("markdown", "md")
SOURCE_KINDS = (
    *PYTHON_KINDS,
    *("source", "code", "text", "plain", "log"),
    *("bash", "c", "c++", "cpp", "cs", "csharp", "css", "go", "haskell", "html", "java"),
    *("javascript", "js", "jsx", "json", "kotlin", "lua", "perl", "php", "r", "rb", "ruby"),
    *("rs", "rust", "scala", "sh", "shell", "sql", "swift", "toml", "ts", "tsx", "txt"),
    *("typescript", "yaml", "yml"),
)


def segment(
    source: str | Sequence[Message], kind: str, *, recent: int = 3, name: str = ""
) -> list[Unit]:
    """Split a source into units, in order, each classified as verbatim or compressible.

    ``kind`` "chat" takes a list of messages: a user's message with the answer is a turn, a round
    of tool calls stays with its results, and what the user rules or decides is a unit of its own.
    Instructions, pinned messages, unfinished calls, rules, decisions and the last ``recent``
    pieces are verbatim. "markdown" gives one unit a section; a code fence is never split. "python"
    gives one unit a function or class; other languages, and Python that does not parse, fall
    back to blocks between blank lines. Code is verbatim, blocks of comments are not. ``name``
    goes before the names of the units, such as a file's.

    The units' texts, one after the other, are the source: its transcript, for a chat.

    Raises ValueError for an unknown kind and for a source of the wrong type.

    >>> for unit in segment("# Set up\\nRun it.\\n# Rules\\nNever push.\\n", "markdown"):
    ...     print(unit.verbatim, unit.name)
    False Set up
    True Rules
    """
    family = str(kind).lower().lstrip(".")
    if family in CHAT_KINDS:
        are_messages = isinstance(source, Sequence) and all(isinstance(m, Mapping) for m in source)
        if isinstance(source, str) or not are_messages:
            raise ValueError(f"kind {kind!r} needs a list of messages")
        return chat_units(list(source), recent, name)
    if not isinstance(source, str):
        raise ValueError(f"kind {kind!r} needs text, not {type(source).__name__}")
    if family in MARKDOWN_KINDS:
        return markdown_units(source, name)
    if family in SOURCE_KINDS:
        return source_units(source, family, name)
    raise ValueError(
        f"unknown kind {kind!r}: expected chat, markdown, python, or source for other languages"
    )
