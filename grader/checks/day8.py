"""Day 8: the two lines, passes that are counted again, and packing on an exact budget.

What the statements promise, and which cases look at it (every one under every seed):

| property of ``next_step`` | fixed | drawn |
|---|---|---|
| at the emergency line or above: always, and first | 7600, 7599 | both sides of each line |
| above the threshold, only while automatic compaction is on | 6400, 6401 | both sides |
| the lines lie at the shares handed in, not rounded, no floats | 1001 | both hairs, odd windows |

| property of ``make_room`` | fixed | drawn |
|---|---|---|
| a pass while ``decide`` does not say send; none where it does | none, one, two, 15 | windows |
| each history is counted with ``count``; no report is believed | 3000, 9000 | misreports |
| saved nothing, against the pass before: stuck, with the messages from before | 7000 twice | some |
| all counts in order, the one that saved nothing too | stuck, given up | all |

| property of ``pack`` | fixed | drawn |
|---|---|---|
| from the newest; exactly filling is fitting; what does not fit is passed over | by hand | all |
| both lists in ascending order, each position in one of them | twins, none | equal costs |
| a unit that costs nothing always fits | zeros, budget 0 | zeros |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations
from random import Random

from compaction.budget import line_tokens
from compaction.documents import Packing, pack
from compaction.engine import Decision, Lines, Room, make_room, next_step
from compaction.messages import Message, text_of
from compaction.summary import Compaction
from grader.checks.borders import HIGH, LOW, window_with_hair
from grader.checks.check import check
from grader.checks.spell import Named
from grader.checks.trial import Function, Given, Known, Trial, given
from grader.starters import day8 as starter

# --- step-lines -------------------------------------------------------------------------


def _deciding(
    *,
    over: Callable[[float, float], bool] = lambda estimate, line: estimate > line,
    out: Callable[[float, float], bool] = lambda estimate, line: estimate >= line,
    lies: Callable[[int, float], float] = line_tokens,
    shares: tuple[float, float] | None = None,
    threshold_first: bool = False,
    always: bool = False,
) -> Function:
    """Return a decision that does one of its steps in another way."""

    def wrong(
        estimate: float,
        window: int,
        threshold: float = 0.80,
        emergency: float = 0.95,
        auto_compact: bool = True,
    ) -> Decision:
        routine, last = shares or (threshold, emergency)
        crossed = (auto_compact or always) and over(estimate, lies(window, routine))
        if out(estimate, lies(window, last)) and not (threshold_first and crossed):
            return Decision.COMPACT_EMERGENCY
        return Decision.COMPACT_THRESHOLD if crossed else Decision.SEND

    return wrong


_ROUNDED = "a line between two whole numbers stays where it is: it is not rounded"
_STEPS = [
    Known(
        starter.next_step,
        "the emergency line was switched off too: without a compaction the next request would "
        "be refused",
    ),
    Known(
        _deciding(over=lambda estimate, line: estimate >= line),
        "exactly at the threshold the request is still sent",
    ),
    Known(
        _deciding(out=lambda estimate, line: estimate > line),
        "exactly at the emergency line it fires already",
    ),
    Known(
        _deciding(threshold_first=True),
        "where both lines are crossed, the emergency line is first",
    ),
    Known(
        _deciding(always=True),
        "the threshold is watched only while auto_compact is true",
    ),
    Known(
        _deciding(shares=(0.80, 0.95)),
        "the lines lie at the shares that are handed in: threshold and emergency",
    ),
    Known(
        _deciding(lies=lambda window, share: window * share),
        "window * share may be a hair beside the line: line_tokens is not",
    ),
    Known(_deciding(lies=lambda window, share: int(window * share)), _ROUNDED),
    Known(_deciding(lies=lambda window, share: int(line_tokens(window, share))), _ROUNDED),
    Known(_deciding(lies=lambda window, share: round(window * share)), _ROUNDED),
    Known(_deciding(lies=lambda window, share: math.ceil(line_tokens(window, share))), _ROUNDED),
]
_STEP_EVIDENCE = [
    # One for each way of the first six, so that no two of them look alike.
    given(7900, 8000, auto_compact=False),
    given(6400, 8000),
    given(7600, 8000),
    given(7900, 8000),
    given(7000, 8000, auto_compact=False),
    given(5000, 8000, threshold=0.5, emergency=0.6),
]


def _say_decision(given: Given, decision: Decision) -> str:
    return decision.value


def _near_the_lines(trial: Trial, rng: Random, *, on: bool) -> None:
    """Try both lines, in windows of all kinds, exactly at them and a token to each side."""
    switch = {} if on else {"auto_compact": False}

    def around(window: int, share: float, **shares: float) -> None:
        line = line_tokens(window, share)
        exact = line.is_integer()
        for estimate in {math.floor(line), math.ceil(line), int(line) + 1, int(line) - exact}:
            trial(estimate, window, **shares, **switch)

    for share in (0.80, 0.95):
        around(rng.randrange(1000, 200_000, 100), share)
        around(rng.randrange(1001, 20_000, 2), share)
    # Lines that the product of two floats misses: the threshold from below, where "above" goes
    # wrong, and the emergency line from above, where "at or above" does.
    for threshold in (0.70, rng.choice(LOW)):
        around(window_with_hair(rng, threshold), threshold, threshold=threshold, emergency=0.9)
    for emergency in (0.81, rng.choice(HIGH)):
        around(window_with_hair(rng, emergency), emergency, threshold=0.5, emergency=emergency)
    threshold, emergency = rng.choice((0.5, 0.6, 0.7)), rng.choice((0.85, 0.9, 0.97))
    for share in (threshold, emergency):
        around(rng.randrange(1000, 200_000, 50), share, threshold=threshold, emergency=emergency)
    # A threshold above the emergency line is crossed last.
    around(8000, 0.9, threshold=0.9, emergency=0.8)


@check(
    "step-threshold",
    day=8,
    of=next_step,
    returns=Decision,
    known=_STEPS,
    evidence=_STEP_EVIDENCE,
    say=_say_decision,
)
def step_threshold(trial: Trial, rng: Random) -> str:
    """Above the threshold: compact. Exactly at it: send."""
    told = [f"{n} {trial(n, 8000).value}" for n in (4700, 6400, 6401, 7600)]
    for estimate in (0, 7599, 8000, 9000):
        trial(estimate, 8000)
    for estimate in (800, 801, 950, 951):
        trial(estimate, 1001)
    _near_the_lines(trial, rng, on=True)
    return f"✓ window 8000: {', '.join(told)}"


@check(
    "step-emergency",
    day=8,
    of=next_step,
    returns=Decision,
    known=_STEPS,
    evidence=_STEP_EVIDENCE,
    say=_say_decision,
)
def step_emergency(trial: Trial, rng: Random) -> str:
    """The emergency line fires even when automatic compaction is off."""
    told = [f"{n} {trial(n, 8000, auto_compact=False).value}" for n in (6600, 7599, 7900)]
    for estimate in (0, 6400, 6401, 7600, 9000):
        trial(estimate, 8000, auto_compact=False)
    _near_the_lines(trial, rng, on=False)
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


def _try(trial: Trial, start: int, compact: Compact, said: str, window: int = 8000) -> Room:
    """Try a history of this many tokens and a compactor."""
    room: Room = trial(
        Named([_of(start)], f"[user of {start} tokens]"),
        Named(_count, "count"),
        Named(compact, f"compact <{said}>"),
        Named(Lines(window).decide, "decide" if window == 8000 else f"decide <window {window}>"),
    )
    return room


def _give_up(messages: list[Message]) -> Compaction:
    """Return what a compaction that was abandoned returns."""
    now = _count(messages)
    return Compaction(messages, now, now, [], "a heading is missing", [])


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
        _to_an_end(estimates)
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
        _to_an_end(estimates)
    return Room(messages, estimates, stuck=False)


def _to_an_end(estimates: Sequence[int]) -> None:
    """Raise where a way goes on for ever: it has no value that could be compared."""
    if len(estimates) > 50:
        raise RuntimeError("a loop without an end")


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
    return make_room(
        messages, count, compact, lambda tokens: _before_a_pass(tokens, count(messages), decide)
    )


def _before_a_pass(tokens: int, start: int, decide: Callable[[int], Decision]) -> Decision:
    return decide(tokens) if tokens == start else Decision.SEND


_ENDLESS = "a pass that saved nothing was followed by another: with a real compactor, without end"


def _view(given: Given, room: Room) -> tuple[list[int], bool, int]:
    return room.estimates, room.stuck, _count(room.messages)


def _chain(estimates: Sequence[int]) -> str:
    shown = [str(estimate) for estimate in estimates]
    return " -> ".join(shown if len(shown) <= 5 else [*shown[:4], "…", shown[-1]])


_ROOMS = [
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
]


def _say_room(given: Given, view: tuple[list[int], bool, int]) -> str:
    estimates, stuck, left = view
    return f"{_chain(estimates)} tokens, {'stuck' if stuck else 'room made'}, {left} tokens left"


@check(
    "room-passes",
    day=8,
    of=make_room,
    returns=Room,
    known=_ROOMS,
    view=_view,
    say=_say_room,
)
def room_passes(trial: Trial, rng: Random) -> str:
    """Compact again while each pass helps, and give up when one saves nothing."""
    honest = "reports what it left"
    helped = _try(trial, 7900, _passes([7000, 3800], int), honest)
    stuck = _try(trial, 7900, _passes([7000, 7000], int), honest)
    _try(trial, 6400, _passes([100], int), honest)
    _try(trial, 7000, _passes([8000], int), honest)
    _try(trial, 7000, _give_up, "gives up")
    _try(trial, 7000, _passes([6999, 6998, 6400], int), honest)
    _try(trial, 7900, _passes([7700, 7650, 6000], int), honest)
    many = sorted(rng.sample(range(6410, 7890), 14), reverse=True)
    _try(trial, 7900, _passes([*many, 6000], int), honest)
    for number in range(8):
        window = 8000 if number % 2 else rng.randrange(4000, 12_000, 100)
        sizes = sorted(rng.sample(range(window // 3, window + 1000), 3), reverse=True)
        _try(trial, rng.randint(window // 2, window + 4000), _passes(sizes, int), honest, window)
    return (
        f"✓ {' -> '.join(map(str, helped.estimates))} tokens: room made; "
        f"{' -> '.join(map(str, stuck.estimates))}: stuck, and it stops"
    )


@check(
    "room-recount",
    day=8,
    of=make_room,
    returns=Room,
    known=_ROOMS,
    view=_view,
    say=_say_room,
)
def room_recount(trial: Trial, rng: Random) -> str:
    """The new history is counted again; the compactor's report is not believed."""
    room = _try(trial, 7900, _passes([7000, 5100], lambda left: 3000), "always reports 3000 tokens")
    _try(trial, 7900, _passes([7000, 3800], lambda left: 9000), "always reports 9000 tokens")
    _try(trial, 7900, _passes([7000, 7000], lambda left: 10), "always reports 10 tokens")
    for factor in (0.3, 0.6, 1.7, rng.choice((0.5, 1.2))):
        for _ in range(2):
            sizes = sorted(rng.sample(range(3000, 9000), 3), reverse=True)
            compact = _passes(sizes, partial(_scale, factor))
            _try(trial, rng.randint(6600, 12_000), compact, f"reports {factor:.0%} of what it left")
    return (
        f"✓ the compactor reported 3000 tokens each time; counted again they were "
        f"{' and '.join(map(str, room.estimates[1:]))}"
    )


# --- pack -------------------------------------------------------------------------------


def _filling(order: Callable[[Sequence[int]], Iterable[int]], *, stop: bool = False) -> Function:
    """Return a packing that takes the positions in another order, or stops at the first miss."""

    def wrong(costs: Sequence[int], budget: int) -> Packing:
        kept: list[int] = []
        for position in order(costs):
            if sum(costs[i] for i in kept) + costs[position] <= budget:
                kept.append(position)
            elif stop:
                break
        return _packing(costs, sorted(kept))

    return wrong


def _packing(costs: Sequence[int], kept: Sequence[int]) -> Packing:
    return Packing([*kept], [i for i in range(len(costs)) if i not in kept])


def _fullest(costs: Sequence[int], budget: int) -> Packing:
    """Fill the budget as far as it goes, with whatever units."""
    if len(costs) > 10:
        raise ValueError("too many to try them all")
    every = (c for n in range(len(costs) + 1) for c in combinations(range(len(costs)), n))
    fitting = (kept for kept in every if sum(costs[i] for i in kept) <= budget)
    return _packing(costs, max(fitting, key=lambda kept: sum(costs[i] for i in kept)))


def _not_quite_full(costs: Sequence[int], budget: int) -> Packing:
    """Take exactly filling the budget for too much."""
    return pack(costs, budget - 1)


def _nothing_once_full(costs: Sequence[int], budget: int) -> Packing:
    """End the search where nothing is left, though a unit may cost nothing."""
    kept: list[int] = []
    for position in reversed(range(len(costs))):
        left = budget - sum(costs[i] for i in kept)
        if left <= 0:
            break
        if costs[position] <= left:
            kept.insert(0, position)
    return _packing(costs, kept)


def _by_first_of_its_cost(costs: Sequence[int], budget: int) -> Packing:
    """Look positions up by the cost, so that two units of one cost are one."""
    kept = [costs.index(costs[position]) for position in pack(costs, budget).kept]
    return Packing(sorted(kept), [i for i in range(len(costs)) if i not in kept])


def _as_they_came(costs: Sequence[int], budget: int) -> Packing:
    """Name the positions in the order of the search."""
    return Packing(*(positions[::-1] for positions in pack(costs, budget)))


def _unnamed(costs: Sequence[int], budget: int) -> Packing:
    return Packing(pack(costs, budget).kept, [])


def _newest_first(costs: Sequence[int]) -> Iterable[int]:
    return reversed(range(len(costs)))


_PACKS = [
    Known(
        starter.pack,
        "the loop stopped at the first unit that does not fit, and all newer ones are gone",
    ),
    Known(
        _filling(lambda costs: range(len(costs))),
        "it was filled from the oldest: the newest unit comes first",
    ),
    Known(
        _filling(_newest_first, stop=True),
        "the search ended at the first unit that does not fit: an older one may be smaller",
    ),
    Known(
        _filling(lambda costs: sorted(range(len(costs)), key=lambda i: costs[i])),
        "the smallest were taken first: the newest comes first, whatever it costs",
    ),
    Known(
        _filling(lambda costs: sorted(range(len(costs)), key=lambda i: (costs[i], -i))),
        "the smallest were taken first: the newest comes first, whatever it costs",
    ),
    Known(
        _fullest,
        "this fills the budget better, and yet it is not what is asked for: the newest comes first",
    ),
    Known(_not_quite_full, "exactly filling the budget is fitting"),
    Known(_nothing_once_full, "a unit that costs nothing fits, whatever is left"),
    Known(_by_first_of_its_cost, "two units may cost the same: a position is no cost"),
    Known(_as_they_came, "the positions are due in ascending order"),
    Known(_unnamed, "what does not fit is named: its positions belong into dropped"),
]
_PACK_EVIDENCE = [
    # No two ways of the list above do the same on all of these.
    given([300, 400, 500], 700),
    given([300, 900, 200, 100], 650),
    given([200, 500, 100], 350),
    given([500, 100, 300], 650),
    given([100, 450, 300, 400], 700),
]


def _say_packing(given: Given, packing: tuple[list[int], list[int]]) -> str:
    return f"kept {packing[0]}, dropped {packing[1]}"


@check(
    "pack-all",
    day=8,
    of=pack,
    returns=Packing,
    known=_PACKS,
    evidence=_PACK_EVIDENCE,
    say=_say_packing,
)
def pack_all(trial: Trial, rng: Random) -> str:
    """When everything fits, everything stays, in order."""
    packing = trial([300, 900, 200, 100], 1500)
    for costs in ([], [0], [0, 0, 0], [5, 5, 5], [0, 7, 0]):
        trial(costs, sum(costs))
        trial(costs, sum(costs) + 100)
    for _ in range(6):
        costs = [rng.randint(0, 900) for _ in range(rng.randint(1, 8))]
        trial(costs, sum(costs))
        trial(costs + costs[:1], sum(costs) + costs[0] + rng.randint(1, 50))
    return f"✓ 1500 tokens fit into 1500: {len(packing.kept)} units kept, none dropped"


@check(
    "pack-newest",
    day=8,
    of=pack,
    returns=Packing,
    known=_PACKS,
    evidence=_PACK_EVIDENCE,
    say=_say_packing,
)
def pack_newest(trial: Trial, rng: Random) -> str:
    """The newest comes first, and what does not fit is passed over and named."""
    packing = trial([300, 900, 200, 100], 650)
    trial([300, 400, 500], 700)
    trial([200, 200, 900, 200], 400)
    for costs, budget in (([0, 500, 0], 0), ([0, 300, 0, 200], 200), ([900], 899), ([900], 0)):
        trial(costs, budget)
    for _ in range(10):
        costs = [rng.randint(1, 900) for _ in range(rng.randint(2, 9))]
        trial(costs, rng.randint(min(costs), sum(costs)))
        # Twins, units that cost nothing, and a budget that the newest two fill exactly.
        costs = [*costs, rng.choice(costs), 0, rng.choice(costs)]
        rng.shuffle(costs)
        trial(costs[:10], sum(costs[:10][-2:]))
        trial(costs[:10], sum(costs[:10]) - 1)
    return (
        f"✓ budget 650: units {packing.kept} kept, the newest among them; {packing.dropped} named"
    )
