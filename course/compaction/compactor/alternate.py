"""Alternating roles: what strict chat templates ask for, and the way back.

Joined messages keep their texts as separate parts, so that a further pass can read them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compaction.grouping import PINNED_PREFIXES
from compaction.messages import SUMMARY_PREFIX, Message, calls_of

GOES_ON = "(The conversation goes on.)"
"""What stands as the user's first message when the history begins with the assistant."""

_SPEAKERS = ("user", "assistant")
_OWN_BEGINNINGS = (SUMMARY_PREFIX, *PINNED_PREFIXES)


def alternating(messages: Sequence[Message]) -> list[Message]:
    """Return a history in which user and assistant take turns, the user first, system on top.

    >>> [m["role"] for m in alternating([
    ...     {"role": "user", "content": "one"},
    ...     {"role": "user", "content": "two"},
    ...     {"role": "assistant", "content": "three"},
    ... ])]
    ['user', 'assistant']
    """
    instructions = [m for m in messages if m.get("role") in ("system", "developer")]
    rest = [m for m in messages if m.get("role") not in ("system", "developer")]
    result: list[Message] = []
    for message in instructions:
        result = [_joined(result[0], message)] if result else [message]
    begin = len(result)
    for message in rest:
        role = message.get("role")
        if len(result) == begin and role != "user":
            result.append({"role": "user", "content": GOES_ON})
        last = result[-1] if len(result) > begin else None
        is_second = last is not None and role == last.get("role") and role in _SPEAKERS
        if last is not None and is_second and not calls_of(last):
            result[-1] = _joined(last, message)
        else:
            result.append(message)
    return result


def _joined(first: Message, second: Message) -> Message:
    """Return two messages of one role as one; the texts stay parts of their own."""
    parts = [*_parts(first), *_parts(second)]
    other = {k: v for k, v in second.items() if k not in ("role", "content")}
    return {**first, **other, "content": parts}


def _parts(message: Message) -> list[Any]:
    content = message.get("content")
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def separated(messages: Sequence[Message]) -> list[Message]:
    """Return a history in which summaries and pinned texts that were joined are messages again.

    >>> joined = alternating([
    ...     {"role": "user", "content": "[compacted history] a"},
    ...     {"role": "user", "content": "Go on."},
    ... ])
    >>> [m["content"] for m in separated(joined)]
    ['[compacted history] a', 'Go on.']
    """
    result: list[Message] = []
    for message in messages:
        result += _separated(message)
    return result


def _separated(message: Message) -> list[Message]:
    content = message.get("content")
    if message.get("role") not in ("user", "assistant") or not isinstance(content, list):
        return [message]
    pieces: list[list[Any]] = []
    after_own = True
    for part in content:
        text = part.get("text") if isinstance(part, dict) else None
        is_own = isinstance(text, str) and text.startswith(_OWN_BEGINNINGS)
        if is_own or after_own:
            pieces.append([part])
        else:
            pieces[-1].append(part)
        after_own = is_own
    if len(pieces) < 2:
        return [message]
    split: list[Message] = []
    for piece in pieces:
        only = piece[0].get("text") if len(piece) == 1 and isinstance(piece[0], dict) else None
        split.append({**message, "content": only if isinstance(only, str) else piece})
    # Calls belong to the last of them: their results follow it.
    for early in split[:-1]:
        early.pop("tool_calls", None)
    return split
