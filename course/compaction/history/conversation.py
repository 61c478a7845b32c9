"""A history as the library holds it, and the file that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from compaction.files import InputError
from compaction.messages import Message

Form = Literal["list", "object", "message lines", "conversation lines"]


HistoryError = InputError
"""What reading a history raises: the library has one class for input that cannot be used."""


@dataclass(frozen=True)
class Conversation:
    """One history; ``fields`` is the object that held it, None for a bare list of messages."""

    messages: list[Message]
    fields: dict[str, Any] | None = None

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
