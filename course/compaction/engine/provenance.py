"""Fields that only the model which made them may see again.

Thinking models send fields of their own (``reasoning_content``, ``reasoning_details``, a call's
``extra_content``, parts of type "thinking") and refuse a later request in which they are missing;
other models may refuse a request that has them. So a message with such fields is kept whole and
marked with its maker under the key ``model``, and each request carries what its model may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compaction.messages import Message

MADE_BY = "model"
"""The key of a message that names the model which made its own fields; it is never sent."""

_COMMON = frozenset({"role", "content", "name", "tool_calls", "refusal", "function_call"})
_COMMON_OF_CALLS = frozenset({"id", "type", "function", "custom"})
_COMMON_PARTS = frozenset({"text", "refusal", "image_url", "input_audio", "file"})


def marked(message: Message, model: str) -> Message:
    """Return an assistant message with its maker's name where it has fields of its own.

    >>> marked({"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}, "a")["model"]
    'a'
    >>> marked({"role": "assistant", "content": "4"}, "a")
    {'role': 'assistant', 'content': '4'}
    """
    bare = {key: value for key, value in message.items() if key != MADE_BY}
    return {**bare, MADE_BY: model} if bare != _common(bare) else bare


def as_sent(message: Message, model: str) -> Message:
    """Return a message as a request to ``model`` carries it: with its own fields or without.

    >>> thought = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2", "model": "a"}
    >>> as_sent(thought, "a")
    {'role': 'assistant', 'content': '4', 'reasoning_content': '2 + 2'}
    >>> as_sent(thought, "b")
    {'role': 'assistant', 'content': '4'}
    """
    if message.get("role") != "assistant":
        return message
    if message.get(MADE_BY) == model:
        return {key: value for key, value in message.items() if key != MADE_BY}
    return _common(message)


def _common(message: Message) -> Message:
    """Return what any model may be sent of an assistant message."""
    common = {key: value for key, value in message.items() if key in _COMMON}
    calls = common.get("tool_calls")
    if isinstance(calls, list):
        common["tool_calls"] = [
            {key: value for key, value in call.items() if key in _COMMON_OF_CALLS}
            if isinstance(call, Mapping)
            else call
            for call in calls
        ]
    content = common.get("content")
    if isinstance(content, list) and not all(map(_is_common_part, content)):
        parts = [part for part in content if _is_common_part(part)]
        common["content"] = parts or (None if calls else "")
    return common


def _is_common_part(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _COMMON_PARTS
