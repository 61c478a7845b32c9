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
from grader.checks.check import Check, Function
from grader.checks.trial import Given, Known, Trial, given
from grader.starters import day8 as starter

# --- step-lines -------------------------------------------------------------------------


def _step(estimate: int, window: int, auto_compact: bool = True, **shares: float) -> Given:
    options = {**shares} if auto_compact else {**shares, "auto_compact": False}
    words = "".join(f", {name}={value}" for name, value in options.items())
    call = f"next_step({estimate}, {window}{words})"
    return given(call, estimate, window, **options)


def _drawn_step(rng: Random, auto_compact: bool = True) -> Given:
    """Draw a request near a line, and the shares that are handed in as well."""
    window = rng.randrange(1000, 200_000, 100)
    shares = {"threshold": rng.choice((0.5, 0.6, 0.7)), "emergency": rng.choice((0.8, 0.9))}
    near = round(window * rng.choice([*shares.values()])) + rng.randint(-2, 2)
    return _step(near, window, auto_compact, **shares)


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


def _above_the_emergency_line(
    estimate: float,
    window: int,
    threshold: float = 0.80,
    emergency: float = 0.95,
    auto_compact: bool = True,
) -> Decision:
    """Fire above the emergency line, not at it already."""
    if estimate > line_tokens(window, emergency):
        return Decision.COMPACT_EMERGENCY
    above = auto_compact and estimate > line_tokens(window, threshold)
    return Decision.COMPACT_THRESHOLD if above else Decision.SEND


def _threshold_first(
    estimate: float,
    window: int,
    threshold: float = 0.80,
    emergency: float = 0.95,
    auto_compact: bool = True,
) -> Decision:
    """Ask the threshold before the emergency line."""
    if auto_compact and estimate > line_tokens(window, threshold):
        return Decision.COMPACT_THRESHOLD
    at = estimate >= line_tokens(window, emergency)
    return Decision.COMPACT_EMERGENCY if at else Decision.SEND


def _fixed_shares(
    estimate: float,
    window: int,
    threshold: float = 0.80,
    emergency: float = 0.95,
    auto_compact: bool = True,
) -> Decision:
    """Watch the lines at their defaults, whatever is handed in."""
    return library_next_step(estimate, window, auto_compact=auto_compact)


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
            Known(_above_the_emergency_line, "exactly at the emergency line it fires already"),
            Known(_threshold_first, "where both lines are crossed, the emergency line is first"),
            Known(_fixed_shares, "the lines lie at the shares that are handed in"),
        ],
        # One for each way but the last, so that no two of them look alike.
        evidence=[
            _step(7900, 8000, False),
            _step(6400, 8000),
            _step(7600, 8000),
            _step(7900, 8000),
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
        trial.on(_drawn_step(rng))
    return f"✓ window 8000: {', '.join(told)}"


def step_emergency(next_step: Function, rng: Random) -> str:
    """The emergency line fires even when automatic compaction is off."""
    trial = _steps(next_step)
    told = [f"{n} {trial.on(_step(n, 8000, False)).value}" for n in (6600, 7599, 7900)]
    for _ in range(20):
        window = rng.randrange(1000, 200_000, 100)
        trial.on(_step(round(window * 0.95) + rng.randint(-2, 2), window, False))
        trial.on(_drawn_step(rng, False))
    return f"✓ window 8000, automatic compaction off: {', '.join(told)}"


# --- room -------------------------------------------------------------------------------

Compact = Callable[[list[Message]], Compaction]


def _count(messages: Sequence[Message]) -> int:
    """Count as a real counter would: one token for every two characters, and framing."""
    return sum(7 + len(text_of(message)) // 2 for message in messages)


def _passes(sizes: Sequence[int], report: Callable[[int], int]) -> Compact:
    """Return a compactor whose n-th pass leaves a history of ``sizes[n]`` tokens.

    What it leaves depends on what it is given, so that it can be called again from the start.
    A loop that goes on though nothing is saved would have no end: after a few such passes next
    to nothing is left, so that it comes to one, with a value that can be shown.
    """

    def compact(messages: list[Message]) -> Compaction:
        now = _count(messages)
        left = next((size for size in sizes if size < now), sizes[-1])
        in_vain = text_of(messages[0]).count("y") + 1 if left >= now else 0
        after = [_of(left, in_vain) if in_vain <= _IN_VAIN else _of(8)]
        return Compaction(after, now, report(left), [], None, [])

    return compact


_IN_VAIN = 5


def _of(tokens: int, in_vain: int = 0) -> Message:
    """Return a message of so many tokens; its last letters tell the passes that saved nothing."""
    return {"role": "user", "content": ("x" * (2 * (tokens - 7) - in_vain)) + "y" * in_vain}


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


def _on_while_not_larger(
    messages: list[Message],
    count: Callable[[list[Message]], int],
    compact: Compact,
    decide: Callable[[int], Decision],
) -> Room:
    """Give up when a pass has made it larger, and go on when it has saved nothing."""
    estimates = [count(messages)]
    while decide(estimates[-1]) != Decision.SEND:
        shorter = compact(messages).messages
        estimates.append(count(shorter))
        if estimates[-1] > estimates[-2]:
            return Room(messages, estimates, stuck=True)
        messages = shorter
    return Room(messages, estimates, stuck=False)


def _on_whatever_comes(
    messages: list[Message],
    count: Callable[[list[Message]], int],
    compact: Compact,
    decide: Callable[[int], Decision],
) -> Room:
    """Never give up."""
    estimates = [count(messages)]
    while decide(estimates[-1]) != Decision.SEND:
        messages = compact(messages).messages
        estimates.append(count(messages))
    return Room(messages, estimates, stuck=False)


def _with_the_last_pass(
    messages: list[Message],
    count: Callable[[list[Message]], int],
    compact: Compact,
    decide: Callable[[int], Decision],
) -> Room:
    """Give back what the pass that saved nothing has left."""
    estimates = [count(messages)]
    while decide(estimates[-1]) != Decision.SEND:
        messages = compact(messages).messages
        estimates.append(count(messages))
        if estimates[-1] >= estimates[-2]:
            return Room(messages, estimates, stuck=True)
    return Room(messages, estimates, stuck=False)


def _one_pass(
    messages: list[Message],
    count: Callable[[list[Message]], int],
    compact: Compact,
    decide: Callable[[int], Decision],
) -> Room:
    """Make one pass and leave it at that."""
    return library_make_room(
        messages, count, compact, lambda tokens: _before_a_pass(tokens, count(messages), decide)
    )


def _before_a_pass(tokens: int, start: int, decide: Callable[[int], Decision]) -> Decision:
    return decide(tokens) if tokens == start else Decision.SEND


_ENDLESS = "a pass that saved nothing was followed by another: with a real compactor, without end"


def _view(given: Given, room: Room) -> tuple[list[int], bool, int]:
    return room.estimates, room.stuck, _count(room.messages)


def _tell(
    given: Given, right: tuple[list[int], bool, int], seen: tuple[list[int], bool, int]
) -> tuple[str, str]:
    told = [
        f"{_chain(estimates)} tokens, {'stuck' if stuck else 'room made'}, {left} tokens left"
        for estimates, stuck, left in (right, seen)
    ]
    return told[0], told[1]


def _chain(estimates: Sequence[int]) -> str:
    shown = [str(estimate) for estimate in estimates]
    return " -> ".join(shown if len(shown) <= 5 else [*shown[:4], "…", shown[-1]])


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
            Known(_on_while_not_larger, _ENDLESS),
            Known(_on_whatever_comes, _ENDLESS),
            Known(
                _with_the_last_pass,
                "where it is stuck, the messages from before the pass that saved nothing are due",
            ),
            Known(_one_pass, "it stopped after one pass: decide had not said send yet"),
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
    trial.on(_room(7000, [8000], int, honest))
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


def _newest_until_full(costs: Sequence[int], budget: int) -> Packing:
    """Fill from the newest, and stop at the first unit that does not fit."""
    first = len(costs)
    while first and sum(costs[first - 1 :]) <= budget:
        first -= 1
    return Packing(list(range(first, len(costs))), list(range(first)))


def _as_they_came(costs: Sequence[int], budget: int) -> Packing:
    """Name the positions in the order of the search."""
    return Packing(*(positions[::-1] for positions in library_pack(costs, budget)))


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
            Known(
                _newest_until_full,
                "the search ended at the first unit that does not fit: an older one may be smaller",
            ),
            Known(_as_they_came, "the positions are due in ascending order"),
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
