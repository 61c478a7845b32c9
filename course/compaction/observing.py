"""What all meters share: a growing history is measured once, and usage is read with doubt.

``GrowingHistory`` takes the same history again and again and hands back its size; it looks only
at the messages that it has not met. ``prompt_tokens`` takes a reply's usage and hands back the
tokens of the prompt, or ``None`` where that figure cannot be true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Generic, TypeVar

from compaction.messages import Message

S = TypeVar("S")

LEAST_SHARE, MOST_TIMES = 1 / 8, 16
"""Usage below an eighth of the estimate, or above sixteen times of it, is not believed."""

UNSEEN_TOKENS = 50_000
"""What a request may carry besides the messages: a gateway's own instructions and tools."""


class GrowingHistory(Generic[S]):
    """The sizes of a history's beginnings, each message measured once.

    Messages are recognised by equality with snapshots that share their texts, so that an
    unchanged message costs no look at its characters and one changed in place is measured anew.

    >>> sizes = GrowingHistory(len, 0, int.__add__)
    >>> sizes.size([{"role": "user", "content": "hi"}, {"role": "assistant"}])
    3
    """

    def __init__(self, measure: Callable[[Message], S], zero: S, plus: Callable[[S, S], S]) -> None:
        self._measure, self._plus = measure, plus
        self._seen: list[Message] = []  # snapshots of the history measured last
        self._sizes: list[S] = [zero]  # sizes of its beginnings, shortest first

    def size(self, messages: Sequence[Message]) -> S:
        """Return the size of a history; look only at messages not measured last time."""
        known = _common_length(list(messages), self._seen)
        if known < len(messages):
            del self._seen[known:], self._sizes[known + 1 :]
            for message in messages[known:]:
                self._seen.append(snapshot(message))
                self._sizes.append(self._plus(self._sizes[-1], self._measure(message)))
        return self._sizes[len(messages)]

    def beginning(self, length: int) -> list[Message]:
        """Return snapshots of the first messages of the history measured last."""
        return self._seen[:length]

    def begins_with(self, snapshots: list[Message], length: int) -> bool:
        """Say whether the history measured last, ``length`` long, begins with these snapshots."""
        return len(snapshots) <= length and self._seen[: len(snapshots)] == snapshots


def snapshot(value: Any) -> Any:
    """Return a copy whose objects and lists are new and whose texts are shared.

    >>> message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    >>> kept = snapshot(message)
    >>> message["content"][0]["text"] = "ho"
    >>> kept["content"][0]["text"]
    'hi'
    """
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, list):
        return [snapshot(item) for item in value]
    return value


def _common_length(left: list[Message], right: list[Message]) -> int:
    """Return how many messages two lists have in common at their beginning.

    Whole slices are compared, halved where they differ: that is several times faster than a
    loop over the messages, and a long session compares often.
    """
    low, high = 0, min(len(left), len(right))
    middle = high  # mostly the history has only grown, and one comparison settles it
    while low < high:
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


def prompt_tokens(usage: Any, estimate: float) -> int | None:
    """Return the prompt tokens that a reply reports; ``None`` where there is no such figure.

    ``usage`` is a number, or an object or dict with ``prompt_tokens``. ``estimate`` is what the
    request was thought to cost: a figure far from it (an eighth, or sixteen times and 50,000
    more) is a fault of the report. Cached tokens are inside ``prompt_tokens``; where more are
    reported cached than the prompt had, they were left out of it and are added.

    >>> prompt_tokens({"prompt_tokens": 60}, estimate=75)
    60
    >>> prompt_tokens(10**12, estimate=75) is None
    True
    """
    tokens = _number(_field(usage, "prompt_tokens") if not isinstance(usage, Real) else usage)
    if tokens is None or tokens <= 0:
        return None
    cached = _number(_field(_field(usage, "prompt_tokens_details"), "cached_tokens"))
    if cached is not None and cached > tokens:
        tokens += cached
    if not LEAST_SHARE * estimate <= tokens <= MOST_TIMES * estimate + UNSEEN_TOKENS:
        return None
    return tokens


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _number(value: Any) -> int | None:
    # Real, not int: a number out of an array or a data frame is one of numpy's.
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    number = float(value)
    return int(number) if math.isfinite(number) else None
