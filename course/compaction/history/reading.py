"""Find the conversations in a file, whatever program wrote it.

A file holds one JSON value or JSON lines. A value is a conversation (a list of messages, or an
object that holds one, such as ``{"messages": [...]}``) or a list of conversations. Lines are
conversations, or the messages or records of a single one. ``formats`` says whose form it is; what
cannot be read is refused with one line that names the file, the place and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

from compaction.history.checking import checked
from compaction.history.conversation import (
    CHAT,
    Conversation,
    Form,
    HistoryError,
    HistoryFile,
    HistoryStream,
)
from compaction.history.formats.recognise import form_of
from compaction.history.formats.refused import refusal, refusal_of_bytes
from compaction.history.formats.traits import traits_of
from compaction.history.json_text import (
    brief,
    check_depth,
    decode,
    parse_value,
    refuse_json,
    seen,
)
from compaction.history.source import Progress, Source
from compaction.messages import Message

_FORMS = 'a JSON list of messages, {"messages": [...]}, or JSON lines'
_HELD_AS_LIST = ("conversations", "contents", "input", "history", "trajectory")
"""Fields that make an object a conversation when they hold a list; "messages" always does."""


def read_histories(path: str | Path) -> HistoryFile:
    """Read a file of histories in any known form; ``-`` is standard input.

    UTF-8 with or without a byte order mark; blank lines count for nothing. Raises HistoryError.
    """
    return _all(open_histories(path))


def iter_histories(path: str | Path) -> Iterator[Conversation]:
    """Yield the conversations of a file one by one; of JSON lines only one lies in memory.

    Raises HistoryError, for a later line when it is reached.
    """
    return open_histories(path).conversations


def open_histories(path: str | Path, progress: Progress | None = None) -> HistoryStream:
    """Look at a file's beginning and return its conversations as a stream.

    ``progress(done, size)`` is called now and then with the bytes read. Raises HistoryError.
    """
    return _stream(Source.open(path, progress))


def parse_histories(data: bytes, name: str = "the text") -> HistoryFile:
    """Parse the bytes of a file of histories; error messages call it ``name``.

    >>> parse_histories(b'{"role": "user", "content": "hi"}').form
    'message lines'
    """
    return _all(_stream(Source.of_bytes(data, name)))


def read_history(path: str | Path) -> list[Message]:
    """Read a file that holds exactly one history.

    Raises HistoryError, also when the file holds several.
    """
    found = read_histories(path)
    if len(found.conversations) > 1:
        number = len(found.conversations)
        raise HistoryError(f"{found.name}: expected one history, got {number} conversations")
    return found.conversations[0].messages


def read_tools(path: str | Path) -> list[dict[str, Any]]:
    """Read tool schemas: a JSON list of objects, or an object with such a list as ``tools``.

    Raises HistoryError.
    """
    source = Source.open(path)
    name = source.name
    text = decode(source.whole(), name)
    source.close()
    value, end = parse_value(text, name, len(text) - len(text.lstrip(" \t\r\n")))
    if text[end:].strip(" \t\r\n"):
        refuse_json(text, end, name, "expected the end of the file after the list of tools")
    tools = value.get("tools") if isinstance(value, dict) else value
    if not isinstance(tools, list):
        raise HistoryError(f"{name}: expected a JSON list of tool schemas, got {seen(value)}")
    check_depth(value, text, name)
    for number, tool in enumerate(tools, 1):
        if not isinstance(tool, dict):
            raise HistoryError(
                f"{name}, tool {number} of {len(tools)}: expected an object, got {seen(tool)}"
            )
    return tools


# --- one value or lines -----------------------------------------------------------------


def _all(stream: HistoryStream) -> HistoryFile:
    return HistoryFile(stream.name, stream.form, list(stream.conversations), stream.indent)


def _stream(source: Source) -> HistoryStream:
    """Look at the first lines: one JSON value over the whole file, or a value a line."""
    name = source.name
    lines = source.lines()
    number, first = next(lines, (0, b""))
    if not first:
        raise HistoryError(f"{name}: the file is empty; expected {_FORMS}")
    if reason := refusal_of_bytes(first):
        raise HistoryError(f"{name}: {reason}")
    value = _lone_value(first)
    second = next(lines, None) if value is not None else None
    if value is not None and second is not None:
        return _stream_of_lines(source, chain([(number, first), second], lines))
    # The value spans lines, or is the only one, or is not one: parse, or refuse, all of it.
    text = decode(b"\n" * (number - 1) + first + source.whole(), name)
    source.close()
    start = len(text) - len(text.lstrip(" \t\r\n"))
    value, end = parse_value(text, name, start)
    if rest := text[end:].lstrip(" \t\r\n"):
        refuse_json(text, len(text) - len(rest), name, "expected the end of the file")
    check_depth(value, text, name)
    return _stream_of_value(value, name, text[start:end])


def _lone_value(line: bytes) -> Any:
    """Return the list or object that fills a line; None for anything else."""
    try:
        text = line.decode().strip(" \t\r\n")
        value, end = parse_value(text, "", 0)
    except (UnicodeDecodeError, HistoryError):
        return None
    return value if end == len(text) and isinstance(value, list | dict) else None


def _stream_of_value(value: Any, name: str, text: str) -> HistoryStream:
    """Find the conversations in a file's only value."""
    spans_lines = "\n" in text
    indent = re.search(r"\n([ \t]+)\S", text)
    style = (indent[1] if indent else "") if spans_lines else None
    if _is_list_of_conversations(value):
        found = [
            _conversation(item, f"{name}, conversation {number} of {len(value)}")
            for number, item in enumerate(value, 1)
        ]
        return _of_list(found, name, "conversation list", style)
    is_record = isinstance(value, dict) and not _holds_conversation(value)
    if is_record and spans_lines and "role" in value:
        raise HistoryError(f"{name}: expected {_FORMS}, got a single message")
    if is_record and ("role" in value or form_of(traits_of([value]))):
        return _of_list([_conversation([value], name, [1])], name, "message lines")
    conversation = _conversation(value, name)
    form: Form = "list" if conversation.fields is None else "object"
    return _of_list([conversation], name, form, style)


def _of_list(
    found: list[Conversation], name: str, form: Form, indent: str | None = None
) -> HistoryStream:
    if form == "message lines" and found[0].program != CHAT:
        form = "list"  # what other programs write a line is not what is written back
    return HistoryStream(name, form, iter(found), len(found) > 1, found[0].program, indent)


# --- lines ------------------------------------------------------------------------------


def _stream_of_lines(source: Source, lines: Iterable[tuple[int, bytes]]) -> HistoryStream:
    """Read lines as conversations, one at a time, or as the records of a single one."""
    values = _values(source, lines)
    number, first = next(values)
    rest = chain([(number, first)], values)
    if isinstance(first, dict) and not _holds_conversation(first):
        numbers, records = _records(source.name, rest)
        source.close()
        found = _conversation(records, source.name, numbers)
        return _of_list([found], source.name, "message lines")
    conversations = _conversations(source, rest)
    head = next(conversations)
    stream = chain([head], conversations)
    return HistoryStream(source.name, "conversation lines", stream, True, head.program)


def _values(source: Source, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        text = decode(line, source.name, number).rstrip("\n")
        start = len(text) - len(text.lstrip(" \t\r"))
        value, end = parse_value(text, source.name, start, number)
        if rest := text[end:].lstrip(" \t\r"):
            place = len(text) - len(rest)
            refuse_json(text, place, source.name, "expected the end of the line", number)
        check_depth(value, text, source.name, number)
        yield number, value


def _records(name: str, values: Iterable[tuple[int, Any]]) -> tuple[list[int], list[Any]]:
    numbers, records = [], []
    for number, value in values:
        if not isinstance(value, dict) or "messages" in value:
            _refuse_line(f"{name}, line {number}", "a message as on the lines before", value)
        numbers.append(number)
        records.append(value)
    return numbers, records


def _conversations(source: Source, values: Iterable[tuple[int, Any]]) -> Iterator[Conversation]:
    try:
        for number, value in values:
            place = f"{source.name}, line {number}"
            if not (isinstance(value, list) or _holds_conversation(value)):
                _refuse_line(place, "a conversation as on the lines before", value)
            yield _conversation(value, place)
    finally:
        source.close()


def _refuse_line(place: str, expected: str, value: Any) -> None:
    got = seen(value)
    if isinstance(value, list | dict):
        is_message = isinstance(value, dict) and "messages" not in value
        got = "a message" if is_message else "a conversation"
    raise HistoryError(f"{place}: expected {expected}, got {got}")


# --- one conversation -------------------------------------------------------------------


def _holds_conversation(value: Any) -> bool:
    """Say whether a value is an object around a conversation, rather than a record of one."""
    return isinstance(value, dict) and (
        "messages" in value
        or any(isinstance(value.get(name), list) for name in _HELD_AS_LIST)
        or (isinstance(value.get("contents"), str) and "role" not in value)
        or (isinstance(value.get("input"), str) and "model" in value)
    )


def _is_list_of_conversations(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and (all(isinstance(item, list) for item in value) or all(map(_holds_conversation, value)))
    )


def _conversation(value: Any, place: str, lines: list[int] | None = None) -> Conversation:
    """Return a conversation from a list or an object; ``lines`` are those of its records."""
    data = _inner(value)
    traits = traits_of(data)
    if reason := refusal(traits):
        raise HistoryError(f"{place}: {reason}")
    form = form_of(traits)
    if form is None:
        return _chat(data, place, lines)
    messages = form.read(data)
    if not messages:
        raise HistoryError(f"{place}: this is {form.NAME}'s form, but no message is in it")
    for number, message in enumerate(messages, 1):
        checked(message, f"{place}, message {number} of {len(messages)}")
    tools_of = getattr(form, "tools", None)
    schemas = tools_of(data) if tools_of else []
    fields = {"messages": messages, "tools": schemas} if schemas else None
    return Conversation(messages, fields, form.NAME)


def _inner(value: Any) -> Any:
    """Return the object that holds the conversation, where another one wraps it."""
    if isinstance(value, dict) and not _holds_conversation(value):
        for name in ("body", "request", "values", "channel_values", "kwargs"):
            if _holds_conversation(value.get(name)):
                return value[name]
    return value


def _chat(value: Any, place: str, lines: list[int] | None) -> Conversation:
    """Check a list or an object that is to hold messages of Chat Completions."""
    fields = value if isinstance(value, dict) else None
    messages = value if fields is None else fields.get("messages")
    if not isinstance(messages, list):
        if fields is not None and "messages" not in fields:
            raise HistoryError(_unknown(fields, place))
        got = seen(messages) + (' as "messages"' if fields is not None else "")
        raise HistoryError(f"{place}: expected a list of messages, got {got}")
    if not messages:
        raise HistoryError(f"{place}: the list of messages is empty; expected at least one")
    where = (
        (f"{place}, line {line}" for line in lines)
        if lines
        else (f"{place}, message {number} of {len(messages)}" for number in count(1))
    )
    for message, spot in zip(messages, where, strict=False):
        checked(message, spot)
    return Conversation(messages, fields)


def _unknown(fields: dict[str, Any], place: str) -> str:
    """Say what an object that is not a conversation looks like."""
    names = [brief(str(name)) for name in list(fields)[:4]]
    more = ", ..." if len(fields) > 4 else ""
    seen = f" (its fields: {', '.join(names)}{more})" if names else ""
    return f'{place}: the object has no "messages"{seen}; expected {_FORMS}'
