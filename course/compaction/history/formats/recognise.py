"""Find out which program wrote a conversation, by looking at its content.

Each form's module says which traits are its own. What none of them claims is read as Chat
Completions.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from compaction.history.formats.traits import Traits
from compaction.messages import Message

MODULES = (
    "claude_code",
    "codex",
    "pi",
    "opencode",
    "swe_agent",
    "sharegpt",
    "gemini",
    "langchain",
    "responses",
    "ai_sdk",
    "anthropic",
)
"""The modules of this package that each know one form, in the order in which they are asked."""


class Form(Protocol):
    """A module of this package: the form's name, whether data is of it, and how it is read."""

    NAME: str

    @staticmethod
    def matches(traits: Traits) -> bool:
        """Say whether data with these traits is of this form."""

    @staticmethod
    def read(data: Any) -> list[Message]:
        """Return the messages of a conversation of this form.

        A module may also have ``tools(data)``, for the schemas that lie beside the messages.
        """


def form_of(traits: Traits) -> Form | None:
    """Return the form of a conversation with these traits; None is Chat Completions, or nothing.

    >>> from compaction.history.formats.traits import traits_of
    >>> form_of(traits_of([{"from": "human", "value": "hi"}])).NAME
    'ShareGPT'
    >>> form_of(traits_of([{"role": "user", "content": "hi"}])) is None
    True
    """
    for name in MODULES:
        form: Any = import_module(f"compaction.history.formats.{name}")
        if form.matches(traits):
            return form  # type: ignore[no-any-return]
    return None
