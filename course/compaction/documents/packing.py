"""How much a text may take, and what fits into that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


def plan_budget(
    window: int, system_tokens: int = 0, reply_tokens: int = 0, share: float = 0.65
) -> int:
    """Return how many tokens of a window a text may take, so that all else has room.

    At most ``share`` of the window (60 to 70 % is the usual plan: counts are never perfect, and
    a conversation follows), and never more than system prompt and reply leave.

    Raises ValueError when nothing is left.

    >>> plan_budget(8000)
    5200
    >>> plan_budget(8000, system_tokens=700, reply_tokens=4000)
    3300
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and up to 1, not {share!r}")
    if system_tokens < 0 or reply_tokens < 0:
        raise ValueError("the tokens to reserve must be 0 or more")
    budget = min(math.floor(round(window * share, 6)), window - system_tokens - reply_tokens)
    if budget <= 0:
        raise ValueError(
            f"no room for a text: window {window}, system prompt {system_tokens}, "
            f"reply {reply_tokens} tokens"
        )
    return budget


class Packing(NamedTuple):
    """Positions of what fits and of what does not, each in order."""

    kept: list[int]
    dropped: list[int]


def pack(costs: Sequence[int], budget: int) -> Packing:
    """Choose what fits into a budget, whole things only, the newest (last) first.

    What does not fit is passed over, and the search goes on: a loop that fills from the oldest
    and stops at the first unit that does not fit loses all newer ones, and with them the rule
    that the user gave last. Nothing is lost silently, for what is not kept is returned too.

    >>> pack([300, 900, 200, 100], budget=650)
    Packing(kept=[0, 2, 3], dropped=[1])
    """
    if any(cost < 0 for cost in costs):
        raise ValueError("a cost must be 0 or more")
    kept = []
    left = budget
    for position in reversed(range(len(costs))):
        if costs[position] <= left:
            kept.append(position)
            left -= costs[position]
    kept.reverse()
    chosen = set(kept)
    return Packing(kept, [position for position in range(len(costs)) if position not in chosen])
