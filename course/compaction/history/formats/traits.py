"""What is in a conversation's data: one walk over the records gathers it for every form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

CONTAINERS = ("messages", "conversations", "contents", "input", "history")
"""The fields of an object that hold a conversation's records, in the order of search."""


@dataclass(frozen=True)
class Traits:
    """What is in a conversation's data.

    ``outer`` are the fields of the object around the records, ``fields`` those of the records,
    ``types`` and ``roles`` their values of that name, ``parts`` the types of the content's parts
    and ``part_fields`` the parts' fields.
    """

    outer: frozenset[str]
    fields: frozenset[str]
    types: frozenset[str]
    roles: frozenset[str]
    parts: frozenset[str]
    part_fields: frozenset[str]


def traits_of(data: Any) -> Traits:
    """Gather the traits of a conversation's data."""
    fields: set[str] = set()
    types: set[str] = set()
    roles: set[str] = set()
    parts: set[str] = set()
    part_fields: set[str] = set()
    for record in records_of(data):
        fields |= record.keys()
        _add_text(types, record.get("type"))
        _add_text(roles, record.get("role"))
        for name in ("content", "parts"):
            for part in _objects(record.get(name)):
                part_fields |= part.keys()
                _add_text(parts, part.get("type"))
    outer = frozenset(data if isinstance(data, Mapping) else ())
    return Traits(outer, *map(frozenset, (fields, types, roles, parts, part_fields)))


def records_of(data: Any) -> Iterable[Mapping[str, Any]]:
    """Return the records of a conversation: the objects of the list, or of the object's list."""
    if isinstance(data, Mapping):
        held = (data.get(name) for name in CONTAINERS)
        data = next((value for value in held if isinstance(value, list)), None)
    return _objects(data)


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    return (item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else ()


def _add_text(found: set[str], value: object) -> None:
    if isinstance(value, str):
        found.add(value)
