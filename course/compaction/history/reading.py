"""Read histories from files in three forms, and write a file whole or not at all.

A history is a JSON list of messages, an object ``{"messages": [...]}``, or JSON lines: a message
a line, or a conversation (list or object) a line. What cannot be read is refused with one line
that names the file, the place and what was expected.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from compaction.messages import ROLES, Message

Form = Literal["list", "object", "message lines", "conversation lines"]

MAX_DEPTH = 100
"""Deeper nesting than this is no message of an agent, and would exhaust Python's own stack."""

_FORMS = 'a JSON list of messages, {"messages": [...]}, or JSON lines'
_ROLES = f"{', '.join(ROLES[:-1])} or {ROLES[-1]}"


class HistoryError(ValueError):
    """A file that cannot be read or written; the message is one line for a person."""


@dataclass(frozen=True)
class Conversation:
    """One history; ``fields`` is the object that held it, None for a bare list of messages."""

    messages: list[Message]
    fields: dict[str, Any] | None = None

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """The tool schemas that lie beside the messages, as in the body of a request."""
        tools = (self.fields or {}).get("tools")
        are_schemas = isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)
        return tools if are_schemas and tools else None


@dataclass(frozen=True)
class HistoryFile:
    """What a file held: its name for a person, its form, and one or more conversations."""

    name: str
    form: Form
    conversations: list[Conversation]
    indent: str | None = None


def read_histories(path: str | Path) -> HistoryFile:
    """Read a file of histories in any of the three forms; ``-`` is standard input.

    UTF-8 with or without a byte order mark; blank lines count for nothing. Raises HistoryError.
    """
    data, name = _read_bytes(path)
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
    data, name = _read_bytes(path)
    text = _decode(data, name)
    value, end = _parse_value(text, name, len(text) - len(text.lstrip(" \t\r\n")))
    if text[end:].strip(" \t\r\n"):
        _refuse_json(text, end, name, "expected the end of the file after the list of tools")
    tools = value.get("tools") if isinstance(value, dict) else value
    if not isinstance(tools, list):
        raise HistoryError(f"{name}: expected a JSON list of tool schemas, got {_kind(value)}")
    _check_depth(value, text, name)
    for number, tool in enumerate(tools, 1):
        if not isinstance(tool, dict):
            raise HistoryError(
                f"{name}, tool {number} of {len(tools)}: expected an object, got {_kind(tool)}"
            )
    return tools


def parse_histories(data: bytes, name: str = "the text") -> HistoryFile:
    """Parse the bytes of a file of histories; ``name`` stands in the error messages.

    >>> parse_histories(b'{"role": "user", "content": "hi"}').form
    'message lines'
    >>> parse_histories(b"[1]", "a.json")
    Traceback (most recent call last):
    ...
    compaction.history.HistoryError: a.json, message 1 of 1: expected an object, got a number
    """
    text = _decode(data, name)
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        raise HistoryError(f"{name}: the file is empty; expected {_FORMS}")
    value, end = _parse_value(text, name, start)
    spans_lines = "\n" in text[start:end]
    if text[end:].strip(" \t\r\n"):
        # More than one value: JSON lines, where every value has a line to itself.
        next_line = text.find("\n", end)
        if spans_lines or next_line < 0 or text[end:next_line].strip(" \t\r"):
            position = len(text) - len(text[end:].lstrip(" \t\r\n"))
            _refuse_json(text, position, name, "expected the end of the file")
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


def render_histories(source: HistoryFile, results: Sequence[list[Message]]) -> str:
    """Write one list of messages a conversation back as text, in the form of the source.

    >>> source = parse_histories(b'{"id": 7, "messages": [{"role": "user", "content": "hi"}]}')
    >>> render_histories(source, [[{"role": "user", "content": "ho"}]])
    '{"id": 7, "messages": [{"role": "user", "content": "ho"}]}\\n'
    """
    if source.form == "message lines":
        return "".join(_dump(message) + "\n" for message in results[0])
    values = [
        messages if conversation.fields is None else {**conversation.fields, "messages": messages}
        for conversation, messages in zip(source.conversations, results, strict=True)
    ]
    return "".join(_dump(value, source.indent) + "\n" for value in values)


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write a file (text as UTF-8) whole or not at all, keeping an old file's permissions.

    The content goes to a temporary file in the same folder, which then takes the place of the
    old one. Raises HistoryError.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        # Through a link, so that the link stays and the file behind it changes.
        target = Path(os.path.realpath(path))
        if target.is_symlink():  # what is still a link after all links were followed is a circle
            raise OSError(None, "its symbolic links lead in a circle")
        old = target.stat() if target.exists() else None
        if old is not None and not stat.S_ISREG(old.st_mode) and not target.is_dir():
            target.write_bytes(data)  # a device or a pipe has nothing to be replaced
            return
        if old is not None and not os.access(target, os.W_OK):
            raise PermissionError(None, "the file is read-only")
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder; expected a file")
        if not target.parent.is_dir():
            raise FileNotFoundError(None, f"there is no folder {target.parent}")
        _replace(target, data, old)
    except OSError as error:
        raise HistoryError(f"{_shown(path)}: cannot be written: {_reason(error)}") from error


def _replace(target: Path, data: bytes, old: os.stat_result | None) -> None:
    temporary = target.with_name(f".{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if old is not None:
            if hasattr(os, "chown"):
                with suppress(OSError):  # only a privileged person may give a file away
                    os.chown(temporary, old.st_uid, old.st_gid)
            os.chmod(temporary, stat.S_IMODE(old.st_mode))
        os.replace(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):
        # So that the new name survives a power cut too.
        with suppress(OSError):
            folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


# --- bytes and text ---------------------------------------------------------------------


def _read_bytes(path: str | Path) -> tuple[bytes, str]:
    if str(path) == "-":
        return sys.stdin.buffer.read(), "standard input"
    name = _shown(path)
    try:
        if Path(path).is_dir():
            raise IsADirectoryError(None, "it is a folder; expected a file")
        return Path(path).read_bytes(), name
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        raise HistoryError(f"{name}: cannot be read: {reason}") from error


def _shown(path: str | Path) -> str:
    """Return a path as it is shown to a person: on one line, whatever characters it holds."""
    text = str(path)
    return text if text.isprintable() and text else repr(text)


def _reason(error: OSError) -> str:
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def _decode(data: bytes, name: str) -> str:
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        hint = " (it looks like UTF-16)" if wide else ""
        raise HistoryError(
            f"{name}, line {line}, byte {column}: expected UTF-8 text, "
            f"got the byte 0x{error.object[error.start]:02x}{hint}"
        ) from error


def _dump(value: object, indent: str | None = None) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except (ValueError, RecursionError) as error:
        raise HistoryError(f"the result cannot be written as JSON: {error}") from error
    # A lone surrogate has no UTF-8 form; as an escape it comes back as it was.
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


# --- JSON -------------------------------------------------------------------------------


class _NoNumber(ValueError):
    """A number that JSON does not have."""


def _finite(token: str) -> float:
    number = float(token)
    if not math.isfinite(number):
        raise _NoNumber
    return number


def _constant(token: str) -> NoReturn:
    raise _NoNumber


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_constant)
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_NUMBERS = re.compile(rf"{_STRING}|NaN|-?Infinity|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.DOTALL)
_BRACKETS = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_MAX_DIGITS = 4300  # of a whole number: Python's own limit


def _parse_value(text: str, name: str, start: int, line: int | None = None) -> tuple[Any, int]:
    """Parse the JSON value at ``start`` and return it with the position behind it."""
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
        if not text[error.pos :].strip():
            reason += ", but the text ends here"
        _refuse_json(text, error.pos, name, reason, line)
    except RecursionError:
        _refuse_depth(text, name, line)
    except ValueError:
        position = next(_unreadable_numbers(text, start), start)
        _refuse_json(text, position, name, "expected a finite number", line)


def _refuse_json(
    text: str, position: int, name: str, reason: str, line: int | None = None
) -> NoReturn:
    if line is None:
        line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    raise HistoryError(f"{name}, line {line}, column {column}: malformed JSON: {reason}")


def _refuse_depth(text: str, name: str, line: int | None = None) -> NoReturn:
    position = next(_deep_places(text), 0)
    _refuse_json(text, position, name, f"expected at most {MAX_DEPTH} levels of nesting", line)


def _unreadable_numbers(text: str, start: int) -> Iterator[int]:
    for match in _NUMBERS.finditer(text, start):
        token = match[0]
        if token[0] == '"':
            continue
        if token.lstrip("-").isdecimal():
            if len(token) > _MAX_DIGITS:
                yield match.start()
        elif not math.isfinite(float(token)):
            yield match.start()


def _deep_places(text: str) -> Iterator[int]:
    depth = 0
    for match in _BRACKETS.finditer(text):
        if match[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                yield match.start()
        elif match[0] in "]}":
            depth -= 1


def _check_depth(value: object, text: str, name: str, line: int | None = None) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, list | dict)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    if any(isinstance(node, list | dict) for node in level):
        _refuse_depth(text, name, line)


# --- messages ---------------------------------------------------------------------------


def _parse_lines(text: str, name: str) -> HistoryFile:
    messages: list[Message] = []
    conversations: list[Conversation] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(" \t\r"):
            continue
        value, end = _parse_value(line, name, len(line) - len(line.lstrip(" \t\r")), number)
        if rest := line[end:].lstrip(" \t\r"):
            position = len(line) - len(rest)
            _refuse_json(line, position, name, "expected the end of the line", number)
        place = f"{name}, line {number}"
        is_message = isinstance(value, dict) and "messages" not in value
        if not isinstance(value, dict | list) or (conversations if is_message else messages):
            wanted = "a message" if messages else "a conversation" if conversations else ""
            wanted = f"{wanted} as on the lines before" if wanted else "a message or a conversation"
            got = "a message" if is_message else "a conversation"
            got = got if isinstance(value, dict | list) else _kind(value)
            raise HistoryError(f"{place}: expected {wanted}, got {got}")
        if is_message:
            _check_depth(value, line, name, number)
            messages.append(_checked(value, place))
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
        got = _kind(messages) + (' as "messages"' if fields is not None else "")
        raise HistoryError(f"{place}: expected a list of messages, got {got}")
    if not messages:
        raise HistoryError(f"{place}: the list of messages is empty; expected at least one")
    _check_depth(value, text, name or place, line)
    for number, message in enumerate(messages, 1):
        _checked(message, f"{place}, message {number} of {len(messages)}")
    return Conversation(messages, fields)


def _checked(message: Any, place: str) -> Message:
    """Return the message, or refuse what no counting or grouping could make sense of.

    What an API would refuse but a person can work on (a result without its call, a missing
    content) is not refused here: ``compaction.messages.problems`` lists it.
    """

    def refuse(expected: str, value: object) -> NoReturn:
        raise HistoryError(f"{place}: expected {expected}, got {_kind(value)}")

    if not isinstance(message, dict):
        refuse("an object", message)
    if "role" not in message:
        raise HistoryError(f"{place}: the message has no role; expected {_ROLES}")
    role = message["role"]
    if role not in ROLES:
        got = _brief(role) if isinstance(role, str) else _kind(role)
        raise HistoryError(f"{place}: expected the role {_ROLES}, got {got}")
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        refuse("text, a list of parts or null as content", content)
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, str | dict):
            refuse("text or an object as a part of the content", part)
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        refuse("a list as tool_calls", calls)
    for call in calls or ():
        if not isinstance(call, dict):
            refuse("an object as a tool call", call)
    return message


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    (dict, "an object"),
    (list, "a list"),
    (str, "text"),
    ((int, float), "a number"),
)


def _kind(value: object) -> str:
    """Name a JSON value's type; a short text is shown itself."""
    if isinstance(value, str):
        return f"the text {_brief(value)}"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")


def _brief(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
