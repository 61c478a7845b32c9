"""Values on one line, and where two of them part."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import fields, is_dataclass
from typing import Any, TypeGuard

_WIDTH = 96  # characters of a value on one line


def quote(text: str, width: int = _WIDTH) -> str:
    """Show a text in double quotes on one line, a long one with its middle left out.

    >>> print(quote("你好\\n"))
    "你好\\n"
    >>> print(quote("a" * 50 + "b" * 50, width=20))
    "aaaaaaaaaaaa…bbbbbb" (100 characters)
    """
    if len(text) <= width:
        return _quoted(text)
    tail = max(1, width // 3)
    return f"{_quoted(text[: width - tail - 2] + '…' + text[-tail:])} ({len(text)} characters)"


def _quoted(text: str) -> str:
    # repr escapes what a terminal should not get; after a leading ' it chooses double quotes.
    written = repr("'" + text)
    return '"' + written[2:] if written.startswith('"') else repr(text)


def show(value: object, width: int = _WIDTH) -> str:
    """Show a plain value on one line: shortened, and a history by its number of messages.

    >>> show([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])
    '2 messages'
    >>> show(0.1234567)
    '0.123457'
    >>> show(["a", "b"])
    '["a", "b"]'
    """
    if isinstance(value, str):
        return quote(value, width)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"a whole number of {value.bit_length()} bits"
    if is_history(value):
        return number_of(value, "message")
    if isinstance(value, list | tuple):
        marks = "[]" if isinstance(value, list) else "()"
        return _enclosed(marks, [show(item, width) for item in value], width)
    if isinstance(value, dict):
        items = [f"{show(key, width)}: {show(item, width)}" for key, item in value.items()]
        return _enclosed("{}", items, width)
    if is_dataclass(value):
        items = [f"{f.name}={show(getattr(value, f.name), width)}" for f in fields(value)]
        return type(value).__name__ + _enclosed("()", items, 2 * width)
    return repr(value)


def is_history(value: object) -> TypeGuard[list[Any]]:
    """Say whether a value is a list of messages."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "role" in item for item in value)
    )


def number_of(items: Sized, noun: str) -> str:
    """Say how many there are.

    >>> number_of([1], "check"), number_of([], "check")
    ('1 check', '0 checks')
    """
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _enclosed(marks: str, items: list[str], width: int) -> str:
    shown: list[str] = []
    for index, item in enumerate(items):
        if shown and sum(map(len, shown)) + 2 * len(shown) + len(item) > width:
            shown.append(f"… {len(items) - index} more")
            break
        shown.append(item)
    return marks[0] + ", ".join(shown) + marks[1]


def difference(expected: object, got: object, place: str = "") -> tuple[str, str]:
    """Show two plain values that differ: whole when they are short, else where they part.

    >>> difference(4, 2)
    ('4', '2')
    >>> difference(["x" * 99, "y" * 99], ["x" * 99, "z"])[1]
    '[1]: "z"'
    """
    shown = show(expected), show(got)
    if shown[0] != shown[1] and max(map(len, shown)) <= _WIDTH:
        return _placed(place, *shown)
    if isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got) and (is_history(expected) or is_history(got)):
            return _placed(place, number_of(expected, "message"), number_of(got, "message"))
        for index, pair in enumerate(zip(expected, got, strict=False)):
            if _differ(*pair):
                return difference(*pair, f"{place}[{index}]")
        end = min(len(expected), len(got))
        beyond = [show(items[end]) if len(items) > end else "nothing" for items in (expected, got)]
        return _placed(f"{place}[{end}]", *beyond)
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            if key not in expected or key not in got:
                sides = [show(side[key]) if key in side else "nothing" for side in (expected, got)]
                return _placed(f"{place}[{show(key)}]", *sides)
            if _differ(expected[key], got[key]):
                return difference(expected[key], got[key], f"{place}[{show(key)}]")
    if is_dataclass(expected) and type(expected) is type(got):
        for name in [field.name for field in fields(expected)]:
            pair = getattr(expected, name), getattr(got, name)
            if _differ(*pair):
                return difference(*pair, f"{place}.{name}")
    if isinstance(expected, str) and isinstance(got, str):
        return _placed(place, *_where_texts_part(expected, got))
    # Numbers that only differ far behind the point.
    return _placed(place, repr(expected)[:_WIDTH], repr(got)[:_WIDTH])


def _differ(expected: object, got: object) -> bool:
    """Compare as written: True is not 1, in whatever list it stands."""
    return repr(expected) != repr(got)


def _placed(place: str, expected: str, got: str) -> tuple[str, str]:
    return (f"{place}: {expected}", f"{place}: {got}") if place else (expected, got)


def _where_texts_part(expected: str, got: str) -> tuple[str, str]:
    pairs = zip(expected, got, strict=False)
    shorter = min(len(expected), len(got))
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    start = max(0, position - 20)
    lead = "…" if start else ""

    def around(text: str) -> str:
        end = position + 40
        return _quoted(lead + text[start:end] + ("…" if end < len(text) else ""))

    return around(expected), around(got)
