"""Day 8: the two lines, passes that are counted again, and packing on an exact budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from compaction.budget import line_tokens
from compaction.documents import Packing
from compaction.documents import pack as library_pack
from compaction.engine import Decision, Lines, Room
from compaction.engine import make_room as library_make_room
from compaction.engine import next_step as library_next_step
from compaction.messages import Message, text_of
from compaction.summary import Compaction
from grader.checks.judge import Check, Function, Given, Known, Trial, given
from grader.traps import day8 as starter

# --- step-lines -------------------------------------------------------------------------


def _step(estimate: int, window: int, auto_compact: bool = True) -> Given:
    off = "" if auto_compact else ", auto_compact=False"
    call = f"next_step({estimate}, {window}{off})"
    return given(call, estimate, window, auto_compact=auto_compact)


def _at_the_line(
    estimate: float,
    window: int,
    threshold: float = 0.80,
    emergency: float = 0.95,
    auto_compact: bool = True,
) -> Decision:
    """Fire at the threshold already, not above it."""
    if estimate >= line_tokens(window, emergency):
        return Decision.COMPACT_EMERGENCY
    at = auto_compact and estimate >= line_tokens(window, threshold)
    return Decision.COMPACT_THRESHOLD if at else Decision.SEND


def _steps(next_step: Function) -> Trial:
    return Trial(
        next_step,
        library_next_step,
        Decision,
        known=[
            Known(
                starter.next_step,
                "the emergency line was switched off too: without a compaction the next request "
                "would be refused",
            ),
            Known(_at_the_line, "exactly at the threshold the request is still sent"),
        ],
        tell=lambda given, right, seen: (right.value, seen.value),
    )


def step_threshold(next_step: Function, rng: Random) -> str:
    """Above the threshold: compact. Exactly at it: send."""
    trial = _steps(next_step)
    told = [f"{n} {trial.on(_step(n, 8000)).value}" for n in (4700, 6400, 6401, 7600)]
    for _ in range(20):
        window = rng.randrange(1000, 200_000, 100)
        near = round(window * rng.choice((0.8, 0.95))) + rng.randint(-2, 2)
        trial.on(_step(near, window))
    return f"✓ window 8000: {', '.join(told)}"


def step_emergency(next_step: Function, rng: Random) -> str:
    """The emergency line fires even when automatic compaction is off."""
    trial = _steps(next_step)
    told = [f"{n} {trial.on(_step(n, 8000, False)).value}" for n in (6600, 7599, 7900)]
    for _ in range(20):
        window = rng.randrange(1000, 200_000, 100)
        trial.on(_step(round(window * 0.95) + rng.randint(-2, 2), window, False))
    return f"✓ window 8000, automatic compaction off: {', '.join(told)}"


# --- room -------------------------------------------------------------------------------

Compact = Callable[[list[Message]], Compaction]


def _count(messages: Sequence[Message]) -> int:
    """Count as a real counter would: one token for every two characters, and framing."""
    return sum(7 + len(text_of(message)) // 2 for message in messages)


def _passes(sizes: Sequence[int], report: Callable[[int], int]) -> Compact:
    """Return a compactor whose n-th pass leaves a history of ``sizes[n]`` tokens.

    What it leaves depends on what it is given, so that it can be called again from the start.
    """

    def compact(messages: list[Message]) -> Compaction:
        now = _count(messages)
        left = next((size for size in sizes if size < now), sizes[-1])
        return Compaction([_of(left)], now, report(left), [], None, [])

    return compact


def _of(tokens: int) -> Message:
    return {"role": "user", "content": "x" * (2 * (tokens - 7))}


def _scale(factor: float, tokens: int) -> int:
    return int(tokens * factor)


def _room(start: int, sizes: Sequence[int], report: Callable[[int], int], said: str) -> Given:
    call = f"make_room([user of {start} tokens], count, compact, decide), where compact {said}"
    return given(call, [_of(start)], _count, _passes(sizes, report), Lines(8000).decide)


def _by_another_counter(
    messages: list[Message],
    count: Callable[[list[Message]], int],
    compact: Compact,
    decide: Callable[[int], Decision],
) -> Room:
    """Ask one counter whether it is too much, and another whether the pass helped."""
    estimates = [count(messages)]
    while decide(estimates[-1]) != Decision.SEND:
        shorter = compact(messages).messages
        estimates.append(sum(len(text_of(message)) for message in shorter) // 4)
        if estimates[-1] >= estimates[-2]:
            return Room(messages, estimates, stuck=True)
        messages = shorter
    return Room(messages, estimates, stuck=False)


def _view(given: Given, room: Room) -> tuple[list[int], bool, int]:
    return room.estimates, room.stuck, _count(room.messages)


def _tell(
    given: Given, right: tuple[list[int], bool, int], seen: tuple[list[int], bool, int]
) -> tuple[str, str]:
    told = [
        f"{' -> '.join(map(str, estimates))} tokens, {'stuck' if stuck else 'room made'}, "
        f"{left} tokens left"
        for estimates, stuck, left in (right, seen)
    ]
    return told[0], told[1]


def _rooms(make_room: Function) -> Trial:
    return Trial(
        make_room,
        library_make_room,
        Room,
        known=[
            Known(
                starter.make_room,
                "the compactor's own report was believed; only a count of what it left tells",
            ),
            Known(
                _by_another_counter,
                "a second counter judged the pass: two counters never agree on what fits",
            ),
        ],
        view=_view,
        tell=_tell,
    )


def room_passes(make_room: Function, rng: Random) -> str:
    """Compact again while each pass helps, and give up when one saves nothing."""
    trial = _rooms(make_room)
    honest = "reports what it left"
    helped = trial.on(_room(7900, [7000, 3800], int, honest))
    stuck = trial.on(_room(7900, [7000, 7000], int, honest))
    trial.on(_room(6400, [100], int, honest))
    for _ in range(8):
        sizes = sorted(rng.sample(range(3000, 9000), 3), reverse=True)
        trial.on(_room(rng.randint(6000, 12_000), sizes, int, honest))
    return (
        f"✓ {' -> '.join(map(str, helped.estimates))} tokens: room made; "
        f"{' -> '.join(map(str, stuck.estimates))}: stuck, and it stops"
    )


def room_recount(make_room: Function, rng: Random) -> str:
    """The new history is counted again; the compactor's report is not believed."""
    trial = _rooms(make_room)
    room = trial.on(_room(7900, [7000, 5100], lambda left: 3000, "always reports 3000 tokens"))
    for _ in range(8):
        sizes = sorted(rng.sample(range(3000, 9000), 3), reverse=True)
        misreport = partial(_scale, rng.choice((0.3, 0.6, 1.7)))
        trial.on(_room(rng.randint(6600, 12_000), sizes, misreport, "misreports"))
    return (
        f"✓ the compactor reported 3000 tokens each time; counted again they were "
        f"{' and '.join(map(str, room.estimates[1:]))}"
    )


# --- pack -------------------------------------------------------------------------------


def _pack(costs: list[int], budget: int) -> Given:
    return given(f"pack({costs}, {budget})", costs, budget)


def _oldest_first(costs: Sequence[int], budget: int) -> Packing:
    """Pass over what does not fit, but fill from the oldest."""
    kept: list[int] = []
    for position, cost in enumerate(costs):
        if sum(costs[i] for i in kept) + cost <= budget:
            kept.append(position)
    return Packing(kept, [i for i in range(len(costs)) if i not in kept])


def _packs(pack: Function) -> Trial:
    return Trial(
        pack,
        library_pack,
        Packing,
        known=[
            Known(
                starter.pack,
                "the loop stopped at the first unit that does not fit, and all newer ones are gone",
            ),
            Known(_oldest_first, "it was filled from the oldest: the newest unit comes first"),
        ],
    )


def pack_all(pack: Function, rng: Random) -> str:
    """When everything fits, everything stays, in order."""
    trial = _packs(pack)
    packing = trial.on(_pack([300, 900, 200, 100], 1500))
    trial.on(_pack([], 100))
    for _ in range(10):
        costs = [rng.randint(1, 900) for _ in range(rng.randint(1, 8))]
        trial.on(_pack(costs, sum(costs) + rng.randint(0, 50)))
    return f"✓ 1500 tokens fit into 1500: {len(packing.kept)} units kept, none dropped"


def pack_newest(pack: Function, rng: Random) -> str:
    """The newest comes first, and what does not fit is passed over and named."""
    trial = _packs(pack)
    packing = trial.on(_pack([300, 900, 200, 100], 650))
    for _ in range(20):
        costs = [rng.randint(1, 900) for _ in range(rng.randint(2, 9))]
        trial.on(_pack(costs, rng.randint(min(costs), sum(costs))))
    return (
        f"✓ budget 650: units {packing.kept} kept, the newest among them; {packing.dropped} named"
    )


CHECKS = (
    Check(
        "step-threshold",
        8,
        "next_step",
        "Above the threshold: compact. Exactly at it: send.",
        step_threshold,
    ),
    Check(
        "step-emergency",
        8,
        "next_step",
        "The emergency line fires even when automatic compaction is off.",
        step_emergency,
    ),
    Check(
        "room-passes",
        8,
        "make_room",
        "Compact again while each pass helps, and give up when one saves nothing.",
        room_passes,
    ),
    Check(
        "room-recount",
        8,
        "make_room",
        "The new history is counted again; the compactor's report is not believed.",
        room_recount,
    ),
    Check(
        "pack-all",
        8,
        "pack",
        "When everything fits, everything stays, in order.",
        pack_all,
    ),
    Check(
        "pack-newest",
        8,
        "pack",
        "The newest comes first, and what does not fit is passed over and named.",
        pack_newest,
    ),
)
