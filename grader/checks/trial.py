"""Run a learner's function beside the library's on the same input, and say how they differ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grader.checks.check import Function
from grader.checks.failure import CheckFailure
from grader.checks.show import difference
from grader.checks.values import Misfit, Shape, read, same, wanted


@dataclass(frozen=True)
class Known:
    """A wrong way that is known: a function that goes it, and why its value is wrong."""

    function: Function
    why: str


@dataclass(frozen=True)
class Given:
    """One input: the call as a person would write it, and its arguments.

    The arguments are copied for every call, so that no call sees what another one did to them.
    """

    call: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def to(self, function: Function) -> Any:
        """Call a function with copies of the arguments."""
        args, kwargs = copy.deepcopy((self.args, self.kwargs))
        return function(*args, **kwargs)


def given(call: str, *args: Any, **kwargs: Any) -> Given:
    """Return an input.

    >>> given("estimate('hello')", "hello").to(len)
    5
    """
    return Given(call, args, kwargs)


def _as_it_is(given: Given, value: Any) -> Any:
    return value


def _difference(given: Given, right: Any, seen: Any) -> tuple[str, str]:
    return difference(right, seen)


def _no_fault(given: Given, value: Any) -> tuple[str, str] | None:
    return None


@dataclass(frozen=True)
class Trial:
    """A learner's function against the library's.

    ``returns``: the shape of what it must return. ``fault``: what makes such a value useless,
    as (expected, got). ``view``: the part of the value that the check is about. ``agree``: when
    two views count as the same. ``tell``: two views that differ, in words, as (expected, got).
    ``known``: wrong ways; one explains a wrong value only when it gives exactly this value here
    and on every input of ``evidence``.
    """

    function: Function
    library: Function
    returns: Shape
    known: Sequence[Known] = ()
    evidence: Sequence[Given] = ()
    fault: Callable[[Given, Any], tuple[str, str] | None] = _no_fault
    view: Callable[[Given, Any], Any] = _as_it_is
    agree: Callable[[Any, Any], bool] = same
    tell: Callable[[Given, Any, Any], tuple[str, str]] = _difference

    def on(self, given: Given) -> Any:
        """Return the function's value on an input, as plain data; raise CheckFailure if wrong."""
        value = self.read(given)
        right = self.view(given, read(given.to(self.library), self.returns))
        seen = self.view(given, value)
        if self.agree(right, seen):
            return value
        expected, got = self.tell(given, right, seen)
        raise CheckFailure(given.call, expected, got, self._why(given, right, seen))

    def read(self, given: Given) -> Any:
        """Return the function's value as plain data; raise CheckFailure if it is none of use."""
        try:
            value = read(given.to(self.function), self.returns)
        except Misfit as misfit:
            raise CheckFailure(given.call, wanted(self.returns), misfit.got) from None
        fault = self.fault(given, value)
        if fault is not None:
            raise CheckFailure(given.call, *fault)
        return value

    def _why(self, given: Given, right: Any, seen: Any) -> str | None:
        for known in self.known:
            wrong = self._seen(known.function, given)
            if wrong is None or self.agree(right, wrong[0]) or not same(wrong[0], seen):
                continue
            if all(self._go_together(known.function, more) for more in self.evidence):
                return known.why
        return None

    def _go_together(self, function: Function, given: Given) -> bool:
        views = self._seen(function, given), self._seen(self.function, given)
        return views[0] is not None and same(views[0], views[1])

    def _seen(self, function: Function, given: Given) -> tuple[Any] | None:
        """Return the view of a function's value, or None where it gives no usable value."""
        try:
            value = read(given.to(function), self.returns)
            return None if self.fault(given, value) else (self.view(given, value),)
        except (Exception, SystemExit):
            return None
