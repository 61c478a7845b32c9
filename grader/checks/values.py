"""Reduce what a learner's function returned to plain values, and compare such values.

A check never trusts an object's own methods: an object may say that it equals everything, and
a subclass of str may compare as it likes. So only exact types get through: None, bool, int,
float, str, list, tuple, dict, and the library's own dataclasses and named tuples, rebuilt from
their fields. Nothing here calls a method that the learner could have written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Any

from compaction.budget import Row
from compaction.calibration import Fit, Sample, Size
from compaction.documents import Packing
from compaction.engine import Decision, Room
from compaction.grouping import Group
from compaction.probes import Probe, ProbeReport
from compaction.summary import Compaction
from compaction.tokens import Chars, Coefficients
from grader.checks.show import show

# What a function returns: a type, a list of something ([int]), or alternatives ((str, None)).
Shape = Any

FIELDS: dict[type, dict[str, Shape]] = {
    Chars: {"cjk": int, "other": int},
    Coefficients: {"cjk": float, "other": float},
    Sample: {"cjk": int, "other": int, "tokens": int},
    Fit: {
        "coefficients": Coefficients,
        "samples": int,
        "error_before": float,
        "error_after": float,
        "degenerate": bool,
        "calibrated": bool,
        "note": str,
    },
    Size: {"cjk": int, "other": int, "images": int},
    Row: {"path": str, "tokens": int, "allowance": int, "over": bool},
    Group: {"start": int, "end": int, "keep": str},
    Probe: {"fact": str, "question": str},
    ProbeReport: {"kept": [Probe], "lost": [Probe], "answered": [Probe]},
    Compaction: {
        "messages": [dict],
        "before": int,
        "after": int,
        "summaries": [str],
        "abandoned": (str, None),
        "carried": [Probe],
    },
    Room: {"messages": [dict], "estimates": [int], "stuck": bool},
    Packing: {"kept": [int], "dropped": [int]},
}
"""The library's own types that may cross, and the shape of each of their fields."""

CHOICES: tuple[type[Enum], ...] = (Decision,)
"""The library's own enumerations; their members cross as they are."""

_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    dict: "a dict",
    list: "a list",
    tuple: "a tuple",
}
_MAX_DEPTH = 60


class Misfit(Exception):
    """A value that is not what a function must return; ``got`` says what came instead."""

    def __init__(self, got: str) -> None:
        super().__init__(got)
        self.got = got


def plain(value: object) -> Any:
    """Return a plain copy of a value, made of exact types only.

    >>> plain([1, ("a", None)])
    [1, ('a', None)]

    Raises Misfit when anything in it is of another type.

    >>> class Trick(int):
    ...     def __eq__(self, other): return True
    >>> plain(Trick())
    Traceback (most recent call last):
    ...
    grader.checks.values.Misfit: returned a Trick object
    """
    return _in_words(_plain, value, 0)


class _Odd(Exception):
    """What does not belong into a value; its place is put together on the way out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.place = ""

    def within(self, place: str) -> _Odd:
        """Return the same, seen from one level further out."""
        self.place = place + self.place
        return self


class _TooDeep(Exception):
    """A value that is nested deeper than any value of the course."""


def _in_words(walk: Callable[[Any, Any], Any], value: object, how: Any) -> Any:
    """Walk over a value; raise Misfit, with a sentence, where something odd is met."""
    try:
        return walk(value, how)
    except _TooDeep:
        raise Misfit(f"returned {_name_of(value)} that is nested too deep") from None
    except _Odd as odd:
        raise Misfit(_said(value, odd)) from None


def _plain(value: Any, depth: int) -> Any:
    # Always `is`: even a type can come with an __eq__ of the learner's.
    kind = type(value)
    if value is None or kind is str or kind is int or kind is float or kind is bool:
        return value
    if depth > _MAX_DEPTH:
        raise _TooDeep
    if kind is list or kind is tuple:
        items = _plain_items(kind.__iter__(value), depth + 1)
        return items if kind is list else tuple(items)
    if kind is dict:
        return _plain_dict(value, depth + 1)
    for choice in CHOICES:
        # Only the library's own members: nobody can make another one of them.
        if kind is choice and any(value is member for member in choice):
            return value
    known = next((cls for cls in FIELDS if cls is kind), None)
    if known is None:
        raise _Odd(_name_of(value))
    fields = {}
    for name, part in _parts(value, known):
        try:
            fields[name] = _plain(part, depth + 1)
        except _Odd as odd:
            raise odd.within(f".{name}") from None
    return known(**fields)


def _plain_items(items: Iterator[Any], depth: int) -> list[Any]:
    copy: list[Any] = []
    try:
        for item in items:
            copy.append(_plain(item, depth))
    except _Odd as odd:
        raise odd.within(f"[{len(copy)}]") from None
    return copy


def _plain_dict(value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    copy: dict[Any, Any] = {}
    for key, item in dict.items(value):
        try:
            key = _plain(key, depth)
        except _Odd as odd:
            raise odd.within(" key") from None
        try:
            copy[key] = _plain(item, depth)
        except _Odd as odd:
            raise odd.within(f"[{show(key, 40)}]") from None
    return copy


def _parts(value: Any, known: type) -> Iterator[tuple[str, object]]:
    """Yield the fields of a library object without asking the object."""
    names = FIELDS[known]
    if issubclass(known, tuple):
        items: list[Any] = list(tuple.__iter__(value))
        if len(items) != len(names):
            raise _Odd(f"{_name_of(value)} of {len(items)} items")
        yield from zip(names, items, strict=True)
        return
    held = object.__getattribute__(value, "__dict__")
    for name in names:
        if name not in held:
            raise _Odd(f"{_name_of(value)} without .{name}")
        yield name, held[name]


def read(value: object, shape: Shape) -> Any:
    """Return a plain copy of what a function returned, after making sure of its shape.

    >>> read(4, int)
    4

    Raises Misfit with a sentence for the learner.

    >>> read(None, int)
    Traceback (most recent call last):
    ...
    grader.checks.values.Misfit: returned None
    """
    copy = plain(value)
    _in_words(_fit, copy, shape)
    return copy


def _fit(value: Any, shape: Shape) -> None:
    kind = type(value)
    if isinstance(shape, tuple):
        for option in shape:
            with suppress(_Odd):
                return _fit(value, option)
        raise _Odd(_name_of(value))
    if isinstance(shape, list):
        if kind is not list:
            raise _Odd(_name_of(value))
        for index, item in enumerate(value):
            try:
                _fit(item, shape[0])
            except _Odd as odd:
                raise odd.within(f"[{index}]") from None
        return
    fits = value is None if shape is None else kind is shape
    if not fits and not (shape is float and kind is int):
        raise _Odd(_name_of(value))
    for name, part in FIELDS.get(kind, {}).items():
        try:
            _fit(getattr(value, name), part)
        except _Odd as odd:
            raise odd.within(f".{name}") from None


def wanted(shape: Shape) -> str:
    """Say in words what a function must return.

    >>> wanted([Group]), wanted(int)
    ('a list of Group', 'a whole number (int)')
    """
    if isinstance(shape, list):
        inner = shape[0]
        return f"a list of {'messages' if inner is dict else inner.__name__}"
    if isinstance(shape, tuple):
        return " or ".join(map(wanted, shape))
    if shape is None:
        return "None"
    return f"{_NAMES[shape]} ({shape.__name__})" if shape in _NAMES else _article(shape.__name__)


def _said(whole: object, odd: _Odd) -> str:
    if not odd.place:
        return f"returned {odd.what}"
    return f"returned {_name_of(whole)} whose {odd.place.strip()} is {odd.what}"


def _name_of(value: object) -> str:
    """Name a value for a person, without calling anything that belongs to it."""
    kind = type(value)
    if value is None:
        return "None"
    if kind is str:
        return f"text, {show(value, 40)}"
    if kind is bool or kind is float:
        return repr(value)
    if kind is int:
        return show(value)
    for known, name in _NAMES.items():
        if kind is known:
            return name
    name = str(type.__dict__["__name__"].__get__(kind))[:40]
    library = (*FIELDS, *CHOICES)
    own = any(kind is cls for cls in library)
    if not own and any(name == cls.__name__ for cls in library):
        return f"{_article(name)} that is not the library's (import it, do not define it again)"
    return _article(name) if own else f"{_article(name)} object"


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def same(first: object, second: object) -> bool:
    """Compare two plain values; fractions may differ by a millionth of their size.

    >>> same(0.1 + 0.2, 0.3), same(True, 1), same([1], [1.0])
    (True, False, True)
    """
    kinds = type(first), type(second)
    if float in kinds:
        if not all(kind is float or kind is int for kind in kinds):
            return False
        try:
            return math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9)  # type: ignore[arg-type]
        except OverflowError:  # a whole number beyond every fraction
            return False
    if kinds[0] is not kinds[1]:
        return False
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if kinds[0] in FIELDS:
        return all(same(getattr(first, n), getattr(second, n)) for n in FIELDS[kinds[0]])
    return first == second
