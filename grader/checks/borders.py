"""Windows in which the product of two floats misses a line that is a whole number."""

from __future__ import annotations

from random import Random

from compaction.budget import line_tokens


def window_with_hair(rng: Random, share: float, *, low: bool) -> int:
    """Draw a window whose line is a whole number that ``window * share`` misses.

    By less, where ``low``, else by more; where floats never miss it, any whole line will do.

    >>> window = window_with_hair(Random(1), 0.7, low=True)
    >>> window * 0.7 < line_tokens(window, 0.7) == round(window * 0.7)
    True
    """
    start = rng.randrange(600, 20_000, 20)
    for window in range(start, start + 6000, 20):
        line = line_tokens(window, share)
        if line.is_integer() and window * share != line and (window * share < line) is low:
            return window
    # Some shares are never missed to this side; in a multiple of 100 their line is whole.
    return start - start % 100 + 100
