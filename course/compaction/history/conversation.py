"""A history as the library holds it, and the file that it came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from compaction.files import InputError
from compaction.messages import Message

Form = Literal["list", "object", "message lines", "conversation list", "conversation lines"]

CHAT = "Chat Completions"

HistoryError = InputError
"""What reading a history raises: the library has one class for input that cannot be used."""


@dataclass(frozen=True)
class Conversation:
    """One history; ``fields`` is the object that held it, None for a bare list of messages.

    ``program`` is whose form it was read from; the messages are Chat Completions always.
    """

    messages: list[Message]
    fields: dict[str, Any] | None = None
    program: str = CHAT

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """The tool schemas that lie beside the messages, as in the body of a request."""
        tools = (self.fields or {}).get("tools")
        are_schemas = isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)
        return tools if are_schemas and tools else None


@dataclass(frozen=True)
class HistoryFile:
    """What a file held: its name for a person, its form, and one or more conversations."""

    name: str
    form: Form
    conversations: list[Conversation]
    indent: str | None = None

    @property
    def program(self) -> str:
        """Whose form the file is in."""
        return self.conversations[0].program


@dataclass(frozen=True)
class HistoryStream:
    """A file that is being read: like a HistoryFile, its conversations one after the other.

    ``several`` says whether there is more than one; ``program`` is that of the first.
    """

    name: str
    form: Form
    conversations: Iterator[Conversation]
    several: bool
    program: str
    indent: str | None = None
