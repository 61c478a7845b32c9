"""JSON from bytes and back: every refusal names the file, the line and the column."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from compaction.history.conversation import HistoryError
from compaction.messages import kind_of

MAX_DEPTH = 100
"""Deeper nesting than this is no message of an agent, and would exhaust Python's own stack."""


def decode(data: bytes, name: str, line: int = 1) -> str:
    """Return bytes as text; they begin at this line of the file."""
    try:
        return (data.removeprefix(codecs.BOM_UTF8) if line == 1 else data).decode()
    except UnicodeDecodeError as error:
        line += error.object.count(b"\n", 0, error.start)
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        hint = " (it looks like UTF-16)" if wide else ""
        raise HistoryError(
            f"{name}, line {line}, byte {column}: expected UTF-8 text, "
            f"got the byte 0x{error.object[error.start]:02x}{hint}"
        ) from error


def dump(value: object, indent: str | None = None) -> str:
    """Return a value as JSON text, readable characters as they are."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except (ValueError, RecursionError) as error:
        raise HistoryError(f"the result cannot be written as JSON: {error}") from error
    # A lone surrogate has no UTF-8 form; as an escape it comes back as it was.
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


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


def parse_value(text: str, name: str, start: int, line: int | None = None) -> tuple[Any, int]:
    """Parse the JSON value at ``start`` and return it with the position behind it."""
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
        if not text[error.pos :].strip():
            reason += ", but the text ends here"
        refuse_json(text, error.pos, name, reason, line)
    except RecursionError:
        _refuse_depth(text, name, line)
    except ValueError:
        position = next(_unreadable_numbers(text, start), start)
        refuse_json(text, position, name, "expected a finite number", line)


def refuse_json(
    text: str, position: int, name: str, reason: str, line: int | None = None
) -> NoReturn:
    """Refuse a text at a position, or at that position of a line of the file."""
    if line is None:
        line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    raise HistoryError(f"{name}, line {line}, column {column}: malformed JSON: {reason}")


def _refuse_depth(text: str, name: str, line: int | None = None) -> NoReturn:
    position = next(_deep_places(text), 0)
    refuse_json(text, position, name, f"expected at most {MAX_DEPTH} levels of nesting", line)


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


def check_depth(value: object, text: str, name: str, line: int | None = None) -> None:
    """Refuse a value that is nested deeper than MAX_DEPTH."""
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


def seen(value: object) -> str:
    """Name a JSON value's type; a short text is shown itself."""
    return f"the text {brief(value)}" if isinstance(value, str) else kind_of(value)


def brief(text: str) -> str:
    """Return the beginning of a text, in quotes."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
