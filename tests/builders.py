"""Builders of messages, for every test: what a person, a model and a tool say.

A test that is about one field gives it; all else has a value that means nothing.
"""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]


def system(content: Any = "You are a coding agent.") -> Message:
    return {"role": "system", "content": content}


def user(content: Any = "Please go on.") -> Message:
    """A person's message; content is a text or a list of parts."""
    return {"role": "user", "content": content}


def said(content: Any = "It is done.") -> Message:
    """An assistant's message that calls nothing."""
    return {"role": "assistant", "content": content}


def call(
    call_id: str | None = "c1",
    name: str = "read_file",
    arguments: Any = '{"path": "calc.py"}',
    **fields: Any,
) -> dict[str, Any]:
    """One tool call; ``arguments`` are passed on as they are, ``fields`` are a gateway's own."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **fields}


def calls(*wanted: str | dict[str, Any], content: Any = None) -> Message:
    """An assistant's message with tool calls; a mere id stands for ``call(id)``."""
    made = [call(one) if isinstance(one, str) else one for one in wanted]
    return {"role": "assistant", "content": content, "tool_calls": made}


def result(call_id: str = "c1", content: Any = "ok", **fields: Any) -> Message:
    """What a tool answered to the call with this id."""
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def trip(
    call_id: str = "c1",
    name: str = "read_file",
    arguments: Any = '{"path": "calc.py"}',
    output: str = "def divide(a, b): ...",
) -> list[Message]:
    """A call and its result; arguments that are no text are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return [calls(call(call_id, name, text)), result(call_id, output)]
