"""Who is told what happens in a session, and the two figures that every session begins with."""

from __future__ import annotations

from compaction.messages import Call

WINDOW = 128_000
"""The context window (tokens) that is taken for a model when none is given."""

THRESHOLD = 0.70
"""The share of the window at which the course's agent compacts."""


class Listener:
    """What an agent tells the person in front of it; every method may be left as it is."""

    def text(self, piece: str) -> None:
        """Show a piece of the model's reply as it comes."""

    def end_text(self) -> None:
        """End the reply that was shown piece by piece."""

    def call(self, call: Call) -> None:
        """Show a tool call before it runs."""

    def result(self, call: Call, result: str) -> None:
        """Show what a tool call gave."""

    def note(self, line: str) -> None:
        """Show one line about the session itself."""

    def allow(self, command: str) -> bool:
        """Ask whether a shell command may run; nobody there means no."""
        return False
