"""Measuring: one counter, told exactly what a request would carry, and taught by usage.

In go histories, out come tokens: those to decide with, and those to compare histories by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compaction.budget import Counter
from compaction.engine.replies import Tools
from compaction.engine.tool_calls import close_calls
from compaction.messages import Message
from compaction.observing import prompt_tokens

Note = Callable[..., object]
"""Is told a line for a person; what it is told with ``once`` is said once."""


class Measuring:
    """What an engine counts with. ``overhead`` (tokens) replaces the count of the schemas.

    >>> from compaction.calibration import TokenMeter
    >>> Measuring(TokenMeter(), None, None).at_most([{"role": "user", "content": "hi"}])
    3
    """

    def __init__(self, counter: Counter, tools: Tools | None, overhead: int | None) -> None:
        self.counter = counter
        self.tools = tools
        self.overhead = overhead
        self.has_open_calls = True  # whether a history may hold calls without results

    @property
    def has_one_count(self) -> bool:
        """Whether the counter decides and compares by the same number."""
        return not hasattr(self.counter, "at_most")

    def payload(self, messages: list[Message], extras: Sequence[Message] = ()) -> list[Message]:
        """Return what a request would carry: exactly this is counted, and exactly this is sent."""
        # The extras come first into the list, so that a round before them counts as closed.
        whole = [*messages, *extras] if extras else messages
        return close_calls(whole) if self.has_open_calls else whole

    def at_most(self, messages: list[Message], extras: Sequence[Message] = ()) -> int:
        """Return the tokens to decide with: at most so many, where the counter can say that."""
        at_most: Callable[..., int] | None = getattr(self.counter, "at_most", None)
        return self._by(at_most or self.counter.count, messages, extras)

    def plain(self, messages: list[Message], extras: Sequence[Message] = ()) -> int:
        """Return the tokens to compare with: before and after a pass in one unit."""
        count: Callable[..., int] = self.counter.count
        if not self.has_one_count:  # such a counter may know the one history better than the other
            count = getattr(self.counter, "estimate", count)
        return self._by(count, messages, extras)

    def tokens_of(self, message: Message) -> int:
        """Return the tokens of one message alone."""
        return self.counter.count([message])

    def _by(
        self, count: Callable[..., int], messages: list[Message], extras: Sequence[Message]
    ) -> int:
        payload = self.payload(messages, extras)
        if self.overhead is not None:
            return self.overhead + count(payload)
        # Without tools a counter needs only one argument.
        return count(payload, self.tools) if self.tools else count(payload)

    def observe(
        self, payload: list[Message], usage: Any, estimate: int, window: int, note: Note
    ) -> None:
        """Let the counter learn from a reply's usage, if it can be true."""
        named = (
            usage.get("prompt_tokens")
            if isinstance(usage, Mapping)
            else getattr(usage, "prompt_tokens", usage)
        )
        tokens = prompt_tokens(usage, estimate)
        if tokens is None:
            if named is not None:
                note(
                    f"the gateway's usage cannot be right ({named!r} prompt tokens for a request "
                    f"of about {estimate:,}); such figures are left out",
                    once="usage",
                )
            return
        if tokens > window:
            note(
                f"the gateway counted {tokens:,} tokens, more than the window of {window:,}",
                once="window",
            )
        observe = getattr(self.counter, "observe", None)
        if observe is None:
            return
        if self.overhead is None:
            observe(payload, usage, self.tools)
        elif tokens > self.overhead:
            # The counter counts the messages alone, so the known overhead is taken off first.
            observe(payload, tokens - self.overhead)
