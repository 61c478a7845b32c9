"""Join a reply that comes in pieces, and turn a client's objects into plain data.

Gateways do not stream alike: parallel calls may all have the index 0, ids may be missing, arguments
may come as an object, text as a list of parts, and fields of their own may ride along which they
want back. Everything is kept; nothing is guessed where the pieces say it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SAID_ONCE = ("id", "type", "index", "role", "format", "name")
"""Fields that a gateway may repeat in every piece: the first value stands."""


def plain(value: Any) -> Any:
    """Return a client's object as dicts, lists and scalars; its fields that are None are left out.

    >>> from types import SimpleNamespace as Object
    >>> plain(Object(content="hi", reasoning_content="a greeting", tool_calls=None))
    {'content': 'hi', 'reasoning_content': 'a greeting'}
    """
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(inner) for inner in value]
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(exclude_none=True, warnings=False)
    fields = getattr(value, "__dict__", {})
    return {key: plain(inner) for key, inner in fields.items() if inner is not None}


class Pieces:
    """A reply in the making: ``add`` its deltas in order, then read ``message``."""

    def __init__(self) -> None:
        self._rest: dict[str, Any] = {}
        self._content: Any = None
        self._calls: list[dict[str, Any]] = []

    def add(self, delta: Mapping[str, Any]) -> Iterator[str]:
        """Take in one delta, and yield the pieces of the answer's text that it brings."""
        for key, value in delta.items():
            if value is None:
                continue
            if key == "tool_calls":
                for piece in value if isinstance(value, list) else [value]:
                    if isinstance(piece, Mapping):
                        self._add_call(piece)
            elif key == "content":
                self._content = _join_content(self._content, value)
                yield from _texts(value)
            elif key in self._rest:
                self._rest[key] = join(self._rest[key], value, key)
            else:
                self._rest[key] = value

    @property
    def message(self) -> dict[str, Any]:
        """The message so far, its calls without their indexes."""
        message = {**self._rest, "role": "assistant", "content": self._content}
        if self._calls:
            message["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"}
                for call in self._calls
            ]
        return message

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        call = self._call_of(piece)
        for key, value in piece.items():
            if key in ("function", "custom") and isinstance(value, Mapping):
                inner = call.setdefault(key, {})
                for name, part in value.items():
                    if part is not None:
                        inner[name] = _join_inner(inner.get(name), part, name)
            elif value not in (None, ""):
                call[key] = join(call.get(key), value, key)

    def _call_of(self, piece: Mapping[str, Any]) -> dict[str, Any]:
        """Return the call that a piece belongs to; a new one where it begins one.

        The index alone does not tell: some gateways give every parallel call the index 0, some
        give none. A new id begins a new call; without ids, so does more than a whole call.
        """
        index = piece.get("index")
        same = [call for call in self._calls if call.get("index") == index]
        if not same:
            return self._begin_call(piece)
        last = same[-1]
        known, new = last.get("id"), piece.get("id")
        if new and known and new != known:
            # A piece may come back to an earlier call of the same index.
            earlier = [call for call in same if call.get("id") == new]
            return earlier[-1] if earlier else self._begin_call(piece)
        if not new and self._is_whole(last):
            function = piece.get("function")
            function = function if isinstance(function, Mapping) else {}
            name, more = function.get("name"), function.get("arguments")
            known_name = last.get("function", {}).get("name")
            if (name and name != known_name) or (more and str(more).strip()):
                begun = self._begin_call(piece)
                begun["function"] = {"name": name or known_name}
                return begun
        return last

    def _begin_call(self, piece: Mapping[str, Any]) -> dict[str, Any]:
        call: dict[str, Any] = {"id": None, "type": "function"}
        if piece.get("index") is not None:
            call["index"] = piece["index"]
        self._calls.append(call)
        return call

    @staticmethod
    def _is_whole(call: Mapping[str, Any]) -> bool:
        """Say whether a call's arguments are a whole object already."""
        arguments = call.get("function", {}).get("arguments")
        if isinstance(arguments, str) and arguments.rstrip().endswith("}"):
            try:
                return isinstance(json.loads(arguments), dict)
            except (ValueError, RecursionError):
                return False
        return isinstance(arguments, Mapping)


def join(old: Any, new: Any, key: str = "") -> Any:
    """Return a field's value with what a further piece adds to it.

    >>> join("I th", "ink", "reasoning_content"), join("reasoning.text", "reasoning.text", "type")
    ('I think', 'reasoning.text')
    """
    if old is None or new is None:
        return new if old is None else old
    if key in _SAID_ONCE:
        return old
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, list) and isinstance(new, list):
        return _join_lists(old, new)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {name: join(old.get(name), new.get(name), name) for name in {**old, **new}}
    return new


def _join_lists(old: list[Any], new: list[Any]) -> list[Any]:
    """Add items to a list; one that carries an index and a type goes on with that item."""
    joined = list(old)
    for item in new:
        place = None
        if isinstance(item, Mapping) and item.get("index") is not None:
            signs = (item["index"], item.get("type"))
            for position, earlier in enumerate(joined):
                if isinstance(earlier, Mapping) and signs == (
                    earlier.get("index"),
                    earlier.get("type"),
                ):
                    place = position
        if place is None:
            joined.append(item)
        else:
            joined[place] = join(joined[place], item)
    return joined


def _join_inner(old: Any, new: Any, name: str) -> Any:
    """Join a part of a call's function: its name may be repeated, its arguments be an object."""
    if name == "name":
        return new if old is None or old == new else f"{old}{new}"
    return join(old, new, name)


def _join_content(old: Any, new: Any) -> Any:
    """Join contents, texts or lists of parts; neighbouring parts of one type are one part."""
    if old is None or (isinstance(old, str) and isinstance(new, str)):
        return new if old is None else old + new
    parts = list(_parts(old))
    for part in _parts(new):
        last = parts[-1] if parts else None
        if isinstance(part, Mapping) and isinstance(last, Mapping) and _go_on(last, part):
            parts[-1] = {
                name: _join_content(last.get(name), part.get(name))
                if isinstance(part.get(name), list)
                else join(last.get(name), part.get(name), name)
                for name in {**last, **part}
            }
        else:
            parts.append(part)
    return parts


def _go_on(last: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    return last.get("type") == part.get("type") and part.get("type") in ("text", "thinking")


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, list) else [content]


def _texts(content: Any) -> Iterator[str]:
    for part in _parts(content):
        if isinstance(part, Mapping) and part.get("type") == "text":
            text = part.get("text")
            if isinstance(text, str) and text:
                yield text
