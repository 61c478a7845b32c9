"""Read histories from files in three forms.

A history is a JSON list of messages, an object ``{"messages": [...]}``, or JSON lines: a message
a line, or a conversation (list or object) a line. What cannot be read is refused with one line
that names the file, the place and what was expected.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from compaction.files import read_bytes
from compaction.history.checking import checked
from compaction.history.conversation import Conversation, Form, HistoryError, HistoryFile
from compaction.history.json_text import check_depth, decode, kind_of, parse_value, refuse_json
from compaction.messages import Message

_FORMS = 'a JSON list of messages, {"messages": [...]}, or JSON lines'


def read_histories(path: str | Path) -> HistoryFile:
    """Read a file of histories in any of the three forms; ``-`` is standard input.

    UTF-8 with or without a byte order mark; blank lines count for nothing. Raises HistoryError.
    """
    data, name = read_bytes(path)
    return parse_histories(data, name)


def read_history(path: str | Path) -> list[Message]:
    """Read a file that holds exactly one history.

    Raises HistoryError, also when the file holds several.
    """
    found = read_histories(path)
    if len(found.conversations) > 1:
        count = len(found.conversations)
        raise HistoryError(f"{found.name}: expected one history, got {count} conversations")
    return found.conversations[0].messages


def read_tools(path: str | Path) -> list[dict[str, Any]]:
    """Read tool schemas: a JSON list of objects, or an object with such a list as ``tools``.

    Raises HistoryError.
    """
    data, name = read_bytes(path)
    text = decode(data, name)
    value, end = parse_value(text, name, len(text) - len(text.lstrip(" \t\r\n")))
    if text[end:].strip(" \t\r\n"):
        refuse_json(text, end, name, "expected the end of the file after the list of tools")
    tools = value.get("tools") if isinstance(value, dict) else value
    if not isinstance(tools, list):
        raise HistoryError(f"{name}: expected a JSON list of tool schemas, got {kind_of(value)}")
    check_depth(value, text, name)
    for number, tool in enumerate(tools, 1):
        if not isinstance(tool, dict):
            raise HistoryError(
                f"{name}, tool {number} of {len(tools)}: expected an object, got {kind_of(tool)}"
            )
    return tools


def parse_histories(data: bytes, name: str = "the text") -> HistoryFile:
    """Parse the bytes of a file of histories; ``name`` stands in the error messages.

    >>> parse_histories(b'{"role": "user", "content": "hi"}').form
    'message lines'
    """
    text = decode(data, name)
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        raise HistoryError(f"{name}: the file is empty; expected {_FORMS}")
    value, end = parse_value(text, name, start)
    spans_lines = "\n" in text[start:end]
    if text[end:].strip(" \t\r\n"):
        # More than one value: JSON lines, where every value has a line to itself.
        next_line = text.find("\n", end)
        if spans_lines or next_line < 0 or text[end:next_line].strip(" \t\r"):
            position = len(text) - len(text[end:].lstrip(" \t\r\n"))
            refuse_json(text, position, name, "expected the end of the file")
        return _parse_lines(text, name)
    if isinstance(value, dict) and "role" in value and "messages" not in value:
        if spans_lines:
            raise HistoryError(f"{name}: expected {_FORMS}, got a single message")
        return _parse_lines(text, name)
    conversation = _conversation(value, text, name, f"; expected {_FORMS}")
    indent = re.search(r"\n([ \t]+)\S", text[start:end])
    form: Form = "list" if conversation.fields is None else "object"
    style = (indent[1] if indent else "") if spans_lines else None
    return HistoryFile(name, form, [conversation], style)


def _parse_lines(text: str, name: str) -> HistoryFile:
    messages: list[Message] = []
    conversations: list[Conversation] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(" \t\r"):
            continue
        value, end = parse_value(line, name, len(line) - len(line.lstrip(" \t\r")), number)
        if rest := line[end:].lstrip(" \t\r"):
            position = len(line) - len(rest)
            refuse_json(line, position, name, "expected the end of the line", number)
        place = f"{name}, line {number}"
        is_message = isinstance(value, dict) and "messages" not in value
        if not isinstance(value, dict | list) or (conversations if is_message else messages):
            wanted = "a message" if messages else "a conversation" if conversations else ""
            wanted = f"{wanted} as on the lines before" if wanted else "a message or a conversation"
            got = "a message" if is_message else "a conversation"
            got = got if isinstance(value, dict | list) else kind_of(value)
            raise HistoryError(f"{place}: expected {wanted}, got {got}")
        if is_message:
            check_depth(value, line, name, number)
            messages.append(checked(value, place))
        else:
            conversations.append(_conversation(value, line, place, "", name, number))
    if messages:
        return HistoryFile(name, "message lines", [Conversation(messages)])
    return HistoryFile(name, "conversation lines", conversations)


def _conversation(
    value: Any,
    text: str,
    place: str,
    hint: str,
    name: str | None = None,
    line: int | None = None,
) -> Conversation:
    """Check a list or an object that is to hold a conversation."""
    fields = value if isinstance(value, dict) else None
    messages = value if fields is None else fields.get("messages")
    if not isinstance(messages, list):
        if fields is not None and "messages" not in fields:
            raise HistoryError(f'{place}: the object has no "messages"{hint}')
        got = kind_of(messages) + (' as "messages"' if fields is not None else "")
        raise HistoryError(f"{place}: expected a list of messages, got {got}")
    if not messages:
        raise HistoryError(f"{place}: the list of messages is empty; expected at least one")
    check_depth(value, text, name or place, line)
    for number, message in enumerate(messages, 1):
        checked(message, f"{place}, message {number} of {len(messages)}")
    return Conversation(messages, fields)
