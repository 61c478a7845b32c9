"""Day 8, as it is handed out: one line for two, a belief in reports, a loop that stops too soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compaction.budget import line_tokens
from compaction.documents import Packing
from compaction.engine import Decision, Room
from compaction.messages import Message
from compaction.summary import Compaction


def next_step(
    estimate: float,
    window: int,
    threshold: float = 0.80,
    emergency: float = 0.95,
    auto_compact: bool = True,
) -> Decision:
    """Decide what to do with a request of ``estimate`` tokens in a window of ``window`` tokens."""
    # Switched off means off: whoever turns automatic compaction off does not want any.
    if not auto_compact:
        return Decision.SEND
    if estimate >= line_tokens(window, emergency):
        return Decision.COMPACT_EMERGENCY
    if estimate > line_tokens(window, threshold):
        return Decision.COMPACT_THRESHOLD
    return Decision.SEND


def make_room(
    messages: list[Message],
    count: Callable[[list[Message]], int],
    compact: Callable[[list[Message]], Compaction],
    decide: Callable[[int], Decision],
) -> Room:
    """Compact until the history may be sent, as long as each pass makes progress."""
    estimates = [count(messages)]
    while decide(estimates[-1]) != Decision.SEND:
        done = compact(messages)
        # The compactor has just counted its result; counting again would be work done twice.
        estimates.append(done.after)
        if estimates[-1] >= estimates[-2]:
            return Room(messages, estimates, stuck=True)
        messages = done.messages
    return Room(messages, estimates, stuck=False)


def pack(costs: Sequence[int], budget: int) -> Packing:
    """Choose what fits into a budget, whole things only."""
    kept: list[int] = []
    for position, cost in enumerate(costs):
        # The budget is used up: nothing more can go in.
        if sum(costs[i] for i in kept) + cost > budget:
            break
        kept.append(position)
    return Packing(kept, [position for position in range(len(costs)) if position not in kept])
