"""The agent's checklist: what the ``todo`` tool writes, pinned in the history.

Summarised, a checklist makes the model do finished work again. So the newest one stands at the
beginning of the assistant's own message, where the agreed prefix pins it. An older one is
superseded: it is taken out before a compaction, neither pinned for ever nor summarised.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from compaction.messages import CHECKLIST_PREFIX, Call, Message, calls_of, content_of

TODO = "todo"
"""The name of the tool."""

MAX_ITEMS = 30
MAX_ITEM_CHARACTERS = 160

TODO_SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": TODO,
        "description": "Write the whole checklist of the work anew. It stays in the context.",
        "parameters": {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "text": {"type": "string"},
                            "done": {"type": "boolean"},
                        },
                        "required": ["text", "done"],
                    },
                }
            },
            "required": ["items"],
        },
    },
}


def render_checklist(items: object) -> str:
    """Return items as the text of a checklist; raises ValueError for items that are none.

    >>> print(render_checklist([{"text": "guard divide", "done": True}]))
    [todo]
    [x] guard divide
    """
    if not isinstance(items, list) or not items:
        raise ValueError("items must be a list of at least one item")
    if len(items) > MAX_ITEMS:
        raise ValueError(f"a checklist has at most {MAX_ITEMS} items, not {len(items)}")
    lines = [CHECKLIST_PREFIX]
    for item in items:
        text = " ".join(str(item.get("text") or "").split()) if isinstance(item, dict) else ""
        if not text:
            raise ValueError('every item must be an object with a "text" and "done"')
        lines.append(f"[{'x' if item.get('done') is True else ' '}] {text[:MAX_ITEM_CHARACTERS]}")
    return "\n".join(lines)


def count_items(items: object) -> str:
    """Return the result of the ``todo`` tool: how much is done, or what is wrong.

    >>> count_items([{"text": "guard divide", "done": True}, {"text": "test", "done": False}])
    'checklist written: 1 of 2 done'
    """
    try:
        lines = render_checklist(items).splitlines()[1:]
    except ValueError as error:
        return f"error: {error}"
    done = sum(line.startswith("[x]") for line in lines)
    return f"checklist written: {done} of {len(lines)} done"


def pin_checklist(message: Message) -> Message:
    """Return an assistant message with the checklist it asks for at the beginning of its text.

    A message without a ``todo`` call, or with one that cannot be read, comes back as it is.
    """
    written = [text for call in calls_of(message) if (text := _checklist_of(call))]
    if not written:
        return message
    said = content_of(message)
    return {**message, "content": f"{written[-1]}\n\n{said}" if said else written[-1]}


def _checklist_of(call: Call) -> str:
    if call.name != TODO:
        return ""
    try:
        return render_checklist(json.loads(call.arguments)["items"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""


def without_old_checklists(messages: Sequence[Message]) -> list[Message]:
    """Return the history without checklists that a newer one supersedes.

    Their calls and results go with them; what else the messages said or called stays.

    >>> old = pin_checklist({"role": "assistant", "content": "I begin.", "tool_calls": [
    ...     {"id": "c1", "function": {"name": "todo",
    ...      "arguments": '{"items": [{"text": "read", "done": false}]}'}}]})
    >>> new = {"role": "assistant", "content": "[todo]\\n[x] read"}
    >>> result = {"role": "tool", "tool_call_id": "c1", "content": "checklist written"}
    >>> without_old_checklists([old, result, new])[0]
    {'role': 'assistant', 'content': 'I begin.'}
    """
    written = [position for position, message in enumerate(messages) if _is_checklist(message)]
    superseded = set(written[:-1])
    kept: list[Message] = []
    gone: set[str] = set()  # ids of calls taken out of the round that is being read
    for position, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in gone:
                kept.append(message)
            continue
        gone = set()
        if position not in superseded:
            kept.append(message)
            continue
        gone = {call.id for call in calls_of(message) if call.name == TODO and call.id}
        shorter = _without_checklist(message)
        if shorter is not None:
            kept.append(shorter)
    return kept


def _is_checklist(message: Message) -> bool:
    # Only the agent's own: one that a person wrote is the person's to supersede.
    return message.get("role") == "assistant" and content_of(message).startswith(CHECKLIST_PREFIX)


def _without_checklist(message: Message) -> Message | None:
    said = content_of(message).partition("\n\n")[2].strip()
    calls = [
        call
        for call in message.get("tool_calls") or []
        if (call.get("function") or {}).get("name") != TODO
    ]
    if not said and not calls:
        return None
    rest = {key: value for key, value in message.items() if key not in ("content", "tool_calls")}
    shorter = {**rest, "content": said or None}
    return {**shorter, "tool_calls": calls} if calls else shorter
