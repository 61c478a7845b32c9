"""Who is told what happens in a session, and the figures that every session begins with."""

from __future__ import annotations

from compaction.messages import Call

WINDOW = 128_000
"""The context window (tokens) that is taken for a model when none is given."""

THRESHOLD = 0.70
"""The share of the window at which the course's agent compacts."""


class Stopped(KeyboardInterrupt):
    """The system asks this process to end: its terminal was closed, or it was told to stop.

    A kind of Ctrl-C, so that whatever lets one pass lets this pass; it ends the program.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.signal_number = signal_number


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

    def allow_again(self, call: Call) -> bool:
        """Ask whether a command that was interrupted, and may have run, may run again."""
        return False
