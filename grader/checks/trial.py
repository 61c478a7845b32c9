"""Run a learner's function beside the library's on the same input, and say how they differ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compaction.calibration import Sample, TokenMeter
from compaction.tokens import Coefficients
from grader.checks.failure import CheckFailure, Raised, describe_error, place_of
from grader.checks.show import difference, show
from grader.checks.spell import bare, spell
from grader.checks.values import Misfit, Shape, plain, read, same, wanted

Function = Callable[..., Any]


@dataclass(frozen=True)
class Known:
    """A wrong way that is known: a function that goes it, and why its value is wrong."""

    function: Function
    why: str


@dataclass(frozen=True)
class Given:
    """One input: its arguments, and those as they were given, some of them ``Named``.

    The arguments are copied for every call, so that no call sees what another one did to them.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    told: tuple[Sequence[Any], Mapping[str, Any]]

    @property
    def written(self) -> str:
        """The arguments as a person would write them."""
        return spell(*self.told)

    def to(self, function: Function) -> Any:
        """Call a function with copies of the arguments."""
        args, kwargs = self.copies()
        return function(*args, **kwargs)

    def copies(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, copied."""
        return _copied(self.args), _copied(self.kwargs)


def _copied(value: Any) -> Any:
    """Copy a value; plain data by hand, which takes a fifth of the time of copy.deepcopy."""
    kind = type(value)
    if kind is dict:
        return {key: _copied(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(map(_copied, value))
    if kind is TokenMeter and not value.samples:
        return TokenMeter(value.coefficients)  # a fresh one is its prices
    return value if kind in _UNCHANGING else copy.deepcopy(value)


# Frozen, and made of numbers alone, are the last two.
_UNCHANGING = (str, int, float, bool, type(None), Sample, Coefficients)


def _untouched(before: Any, after: Any) -> bool:
    """Say whether plain data is as it was, to the type, without asking what may be there now."""
    kind = type(before)
    if type(after) is not kind:
        return False
    if kind is list or kind is tuple:
        return len(before) == len(after) and all(map(_untouched, before, after))
    if kind is dict:
        keys = len(before) == len(after) and all(map(_untouched, before, after))
        return keys and all(map(_untouched, before.values(), after.values()))
    return bool(before == after) if kind in _UNCHANGING else same(before, plain(after))


def given(*args: Any, **kwargs: Any) -> Given:
    """Return an input; an argument may be ``Named``.

    >>> given("hello").to(len), given("hello").written
    (5, '"hello"')
    """
    values = {name: bare(arg) for name, arg in kwargs.items()}
    return Given(tuple(map(bare, args)), values, (args, kwargs))


def _as_it_is(given: Given, value: Any) -> Any:
    return value


def _shown(given: Given, view: Any) -> str:
    return show(view)


def _agree(given: Given, right: Any, seen: Any) -> bool:
    return same(right, seen)


def _no_fault(given: Given, value: Any) -> tuple[str, str] | None:
    return None


@dataclass(frozen=True)
class Trial:
    """A learner's function against the library's.

    ``returns``: the shape of what it must return. ``fault``: what makes such a value useless,
    as (expected, got). ``view``: the part of the value that the check is about. ``agree``: when
    two views count as the same. ``say``: a view in words; ``tell``: two views that differ, in
    words, as (expected, got). ``known``: wrong ways; one explains a wrong value only when it
    gives exactly this value here and on every input of ``evidence``.
    """

    function: Function
    library: Function
    returns: Shape
    known: Sequence[Known] = ()
    evidence: Sequence[Given] = ()
    fault: Callable[[Given, Any], tuple[str, str] | None] = _no_fault
    view: Callable[[Given, Any], Any] = _as_it_is
    agree: Callable[[Given, Any, Any], bool] = _agree
    say: Callable[[Given, Any], str] = _shown
    tell: Callable[[Given, Any, Any], tuple[str, str]] | None = None
    name: str = ""

    def but(self, **parts: Any) -> Trial:
        """Return a trial that differs in some of its parts."""
        return replace(self, **parts)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Try these arguments: return the function's value, as plain data.

        Raises CheckFailure when it is wrong and Raised when the function raises.
        """
        return self.on(given(*args, **kwargs))

    def on(self, given: Given) -> Any:
        """Try an input; the same as a call."""
        value, changed = self._value(given)
        right, seen = self._right(given), self.view(given, value)
        if not self.agree(given, right, seen):
            expected, got = self._told(given, right, seen)
            raise CheckFailure(self.call(given), expected, got, self._why(given, right, seen))
        if changed is not None:
            raise CheckFailure(
                self.call(given),
                "what is handed in stays untouched",
                f"the right value, but {changed}",
            )
        return value

    def call(self, given: Given) -> str:
        """Write the call."""
        return f"{self.name or self.library.__name__}({given.written})"

    def read(self, given: Given) -> Any:
        """Return the function's value as plain data; raise CheckFailure if it is of no use."""
        value, changed = self._value(given)
        if changed is not None:
            raise CheckFailure(self.call(given), "what is handed in stays untouched", changed)
        return value

    def _value(self, given: Given) -> tuple[Any, str | None]:
        """Return the function's value, and what the call has changed in its arguments."""
        args, kwargs = given.copies()
        try:
            value = self.function(*args, **kwargs)
        except (KeyboardInterrupt, CheckFailure, Raised):  # the last two: of a trial in a trial
            raise
        except BaseException as error:
            raise Raised(self._raised(given, error), error) from None
        try:
            value = read(value, self.returns)
        except Misfit as misfit:
            raise CheckFailure(self.call(given), wanted(self.returns), misfit.got) from None
        fault = self.fault(given, value)
        if fault is not None:
            raise CheckFailure(self.call(given), *fault)
        return value, self._changed(given, args, kwargs)

    def _raised(self, given: Given, error: BaseException) -> CheckFailure:
        try:
            expected = self.say(given, self._right(given))
        except Exception:
            expected = wanted(self.returns)
        return CheckFailure(
            self.call(given), expected, f"raised {describe_error(error)}{place_of(error)}"
        )

    def _changed(self, given: Given, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Say which plain argument a call has changed, and where; None for none."""
        # A function that runs in another process can tell, but its arguments here cannot.
        there = getattr(self.function, "changed", None)
        if there:
            return str(there)
        pairs = [*zip(given.args, args, strict=True)]
        pairs += [(value, kwargs[name]) for name, value in given.kwargs.items()]
        for before, after in pairs:
            if not isinstance(before, list | dict):
                continue
            try:
                if _untouched(before, after):
                    continue
                was, is_now = difference(before, plain(after))
            except Misfit as misfit:
                return f"an argument was changed: {misfit.got.removeprefix('returned ')}"
            return f"an argument was changed from {was} to {is_now}"
        return None

    def _right(self, given: Given) -> Any:
        return self.view(given, read(given.to(self.library), self.returns))

    def _told(self, given: Given, right: Any, seen: Any) -> tuple[str, str]:
        if self.tell is not None:
            return self.tell(given, right, seen)
        told = self.say(given, right), self.say(given, seen)
        return told if self.say is not _shown and told[0] != told[1] else difference(right, seen)

    def _why(self, given: Given, right: Any, seen: Any) -> str | None:
        for known in self.known:
            wrong = self._seen(known.function, given)
            if wrong is None or self.agree(given, right, wrong[0]) or not same(wrong[0], seen):
                continue
            if self.is_like(known.function):
                return known.why
        return None

    def is_like(self, function: Function) -> bool:
        """Say whether the function gives what another one gives, on every input of evidence."""
        return all(self._go_together(function, more) for more in self.evidence)

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
