"""What a lesson needs beside the library: a guess, written down before the cell has run.

A number in a learner's guess flows in beside the outcome that a cell has computed; one line that
shows both flows out.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

NO_GUESS = ("", None, ...)
"""What counts as no guess: the cell as it was handed out, or emptied."""


def compare(my_guess: Any, outcome: Any, unit: str = "") -> None:
    """Print a guess beside the outcome, in one line; without a guess, say that it was left open.

    Two numbers are compared by how far apart they lie, and all else by whether it is the same.
    ``unit`` follows both: a word for what is counted, or ``%``.

    >>> compare(20, 12, "times")
    your guess: 20 times · outcome: 12 times (67 % too high)
    >>> compare("Up", "up")
    your guess: Up · outcome: up (the same)
    >>> compare(..., 4, "tokens")
    no guess yet · outcome: 4 tokens
    """
    shown = f"outcome: {_shown(outcome, unit)}"
    if any(my_guess is empty or my_guess == empty for empty in NO_GUESS):
        print(f"no guess yet · {shown}")
        return
    print(f"your guess: {_shown(my_guess, unit)} · {shown} ({_distance(my_guess, outcome)})")


def _shown(value: Any, unit: str) -> str:
    text = (
        f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if _is_int(value) else value
    )
    return f"{text} {unit}".strip()


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _distance(guess: Any, outcome: Any) -> str:
    numbers = [isinstance(v, Real) and not isinstance(v, bool) for v in (guess, outcome)]
    if not all(numbers):
        same = str(guess).strip().casefold() == str(outcome).strip().casefold()
        return "the same" if same else "not the same"
    if guess == outcome:
        return "exactly"
    side = "too high" if guess > outcome else "too low"
    if not outcome:
        return side
    return f"{abs(guess - outcome) / abs(outcome):.0%} {side}".replace("%", " %")
