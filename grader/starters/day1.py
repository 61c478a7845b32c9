"""Day 1, as it is handed out: one rule for all text."""

from __future__ import annotations

import math

from compaction.tokens import DEFAULT, Coefficients


def estimate(text: str, coefficients: Coefficients = DEFAULT) -> int:
    """Estimate the tokens of a text, rounded up."""
    # Everybody says it: about four characters a token. Text is text, so one rule will do.
    return math.ceil(coefficients.other * len(text))
