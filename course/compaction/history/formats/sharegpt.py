"""ShareGPT: data sets of conversations with ``from`` and ``value``.

::

    {"id": "1", "system": "...", "tools": "[...]", "conversations": [
      {"from": "human", "value": "..."}, {"from": "gpt", "value": "..."},
      {"from": "function_call", "value": "{\\"name\\": ..., \\"arguments\\": {...}}"},
      {"from": "observation", "value": "..."}]}

Some sets write ``role`` and ``content``; some put calls into the text, as
``<tool_call>{...}</tool_call>``, and results as ``<tool_response>``. A result without a call is
the user's text, as it was for the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from compaction.history.formats.building import Builder, mapping, text_part, text_parts
from compaction.history.formats.traits import Traits, records_of
from compaction.messages import Message

NAME = "ShareGPT"

_SPEAKERS = {
    **dict.fromkeys(("human", "user", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "model", "bot", "bing", "bard"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("function_call", "tool_call", "function-call"), "call"),
    **dict.fromkeys(
        ("observation", "tool", "function_response", "tool_response", "function", "ipython"),
        "result",
    ),
}
_TOOL_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_TOOL_RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)


def matches(traits: Traits) -> bool:
    """Say whether turns have from and value, or lie under "conversations"."""
    return {"from", "value"} <= traits.fields or "conversations" in traits.outer


def read(data: Any) -> list[Message]:
    """Turn each turn into a message."""
    builder = Builder()
    outer = mapping(data)
    builder.say("system", text_parts(outer.get("system") or outer.get("system_prompt")))
    for turn in records_of(data):
        speaker = str(turn.get("from") or turn.get("role") or "").lower()
        value = turn.get("value", turn.get("content"))
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        _add(builder, _SPEAKERS.get(speaker, speaker), text)
    return builder.messages()


def tools(data: Any) -> list[dict[str, Any]]:
    """Return the tool schemas, which such sets keep as a text."""
    held = mapping(data).get("tools")
    try:
        found = json.loads(held) if isinstance(held, str) else held
    except ValueError:
        return []
    schemas = [dict(tool) for tool in found or [] if isinstance(tool, Mapping)]
    return [
        tool if "function" in tool else {"type": "function", "function": tool} for tool in schemas
    ]


def _add(builder: Builder, speaker: str, text: str) -> None:
    if speaker == "assistant":
        calls = [call for match in _TOOL_CALL.finditer(text) for call in _calls(match[1])]
        said = _TOOL_CALL.sub("", text).strip() if calls else text
        key = object()
        builder.answer([text_part(said)] if said or not calls else [], key)
        for name, arguments in calls:
            builder.call(None, name, arguments, key)
    elif speaker == "call":
        for name, arguments in _calls(text) or [("tool", text)]:
            builder.call(None, name, arguments)
    elif speaker == "result":
        for result in _TOOL_RESPONSE.findall(text) or [text]:
            if builder.oldest_open() is None:
                builder.say("user", [text_part(text)])
                break
            builder.result(None, result)
    else:
        builder.say(speaker, [text_part(text)])


def _calls(text: str) -> list[tuple[Any, Any]]:
    """Return the names and arguments of the calls that a JSON text holds."""
    try:
        value = json.loads(text)
    except ValueError:
        return []
    found = map(mapping, value if isinstance(value, list) else [value])
    return [
        (call["name"], call.get("arguments", call.get("parameters")))
        for call in found
        if isinstance(call.get("name"), str)
    ]
