"""What a compaction costs now, and when that has come in again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from compaction.engine.decide import check_whole


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens, in any currency: fresh input, cached input, output.

    A provider without a prompt cache charges the same for cached and fresh input. Raises
    ValueError for a price below 0 and for cached input that costs more than fresh input.
    """

    input: float
    cached_input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "cached_input", "output"):
            price = getattr(self, name)
            if not (isinstance(price, int | float) and math.isfinite(price) and price >= 0):
                raise ValueError(f"the price of {name} must be a number from 0 on, not {price!r}")
        if self.cached_input > self.input:
            raise ValueError("cached input must not cost more than fresh input")


@dataclass(frozen=True)
class BreakEven:
    """What a compaction costs now, and when that has come in again (money in one currency).

    ``turns_to_break_even`` is None when it never does; ``gain`` is what is left of the savings
    after ``turns`` turns, below 0 for a loss.
    """

    cost: float
    saving_per_turn: float
    turns_to_break_even: int | None
    turns: int
    gain: float
    worth_it: bool


def break_even(
    *,
    request_tokens: int,
    summary_tokens: int,
    resent_tokens: int,
    saved_tokens: int,
    turns: int,
    prices: Prices,
) -> BreakEven:
    """Weigh what a compaction costs at once against what it saves on every later request.

    ``request_tokens``: the summary request, which sends the old stretch once more, as fresh
    input. ``summary_tokens``: its reply, as output. ``resent_tokens``: what the next request
    carries from the first changed message on; it stood in the provider's prompt cache, and is
    paid as fresh input once. ``saved_tokens``: what every later request no longer carries; it
    would have been read from the cache. ``turns``: requests to come.

    The formula is plain book-keeping, not a model of a provider::

        cost   = request x input + summary x output + resent x (input - cached input)
        saving = saved x cached input, a turn
        turns to break even = cost / saving, rounded up

    Raises ValueError for numbers below 0.

    >>> prices = Prices(input=2.0, cached_input=0.5, output=8.0)
    >>> found = break_even(request_tokens=3200, summary_tokens=400, resent_tokens=3100,
    ...                    saved_tokens=2800, turns=20, prices=prices)
    >>> round(found.cost, 5), found.turns_to_break_even, found.worth_it
    (0.01425, 11, True)
    """
    tokens = {
        "request_tokens": request_tokens,
        "summary_tokens": summary_tokens,
        "resent_tokens": resent_tokens,
        "saved_tokens": saved_tokens,
    }
    for name, value in tokens.items():
        check_whole(name, value, least=0)
    if isinstance(turns, bool) or not isinstance(turns, int) or turns < 0:
        raise ValueError(f"turns must be a whole number from 0 on, not {turns!r}")
    cost = (
        request_tokens * prices.input
        + summary_tokens * prices.output
        + resent_tokens * (prices.input - prices.cached_input)
    )
    saving = saved_tokens * prices.cached_input
    needed: int | None = None
    if cost == 0:
        needed = 0
    elif saving > 0:
        needed = math.ceil(round(cost / saving, 9))  # 3.0000000000000004 turns are 3
    return BreakEven(
        cost=cost / 1e6,
        saving_per_turn=saving / 1e6,
        turns_to_break_even=needed,
        turns=turns,
        gain=(turns * saving - cost) / 1e6,
        worth_it=needed is not None and turns >= needed,
    )
