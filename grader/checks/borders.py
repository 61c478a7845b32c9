"""Windows in which the product of two floats misses a line that is a whole number."""

from __future__ import annotations

from random import Random

from compaction.budget import line_tokens

LOW = (0.35, 0.57, 0.58, 0.69)
"""Shares, besides 0.70, whose product with some windows is a hair below the line."""

HIGH = (0.55, 0.56, 0.68, 0.81)
"""Shares whose product with some windows is a hair above the line."""

_WINDOWS = range(600, 26_000, 20)


def window_with_hair(rng: Random, share: float) -> int:
    """Draw a window whose line is a whole number that ``window * share`` misses.

    >>> window = window_with_hair(Random(1), 0.7)
    >>> window * 0.7 < line_tokens(window, 0.7) == round(window * 0.7)
    True

    Raises ValueError for a share that misses no line.
    """
    start = rng.randrange(len(_WINDOWS))
    for number in range(len(_WINDOWS)):
        window = _WINDOWS[(start + number) % len(_WINDOWS)]
        line = line_tokens(window, share)
        if line.is_integer() and window * share != line:
            return window
    raise ValueError(f"window * {share} misses no line")
