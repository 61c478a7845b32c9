"""Day 7: which fields a task carries from step to step.

What the statement promises, and which cases look at it (every one under every seed):

| property | fixed | drawn |
|---|---|---|
| as many go as are too many, no more; none when it fits | 5 and 3, 4 and 4, 4 and 5, keep 0 | all |
| what is not needed goes first, the oldest of it first | published | needed in any order |
| then what is needed, the oldest first, however it is listed | all needed | all but one needed |
| a name is needed when it is listed, whole, once or twice | ALIKE | some listed twice |
| values do not count | None, 0 and "", ALIKE | values of all kinds |
| the names come in the order in which they go | published | all |
| state and needed stay as they are | all | all |
| the simulator runs as the course says | seed of the course | other seeds and budgets |
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from compaction.carrying import Run, fields_to_drop, simulate
from grader.checks.check import check
from grader.checks.failure import CheckFailure
from grader.checks.show import show
from grader.checks.spell import Named
from grader.checks.trial import Given, Known, Trial, given
from grader.starters import day7 as starter

_FIELDS = ("abone", "anahtar", "sutun", "onceki", "simdiki", "tip", "bolge", "m3", "sonuc", "tutar")
_VALUES = (None, 0, "", False, 17, 4711, "mesken", "dogu", "A031")

State = dict[str, object]
# Each of these is nearly needed: part of a name that is, with such a part, in other letters, and
# by its value. All are older than the one that is.
_ALIKE: State = {
    "tutar": "m3",
    "m3_toplam": 7,
    "M3": 12,
    "sutun": "abone",
    "abone": "A001",
    "m3": 9,
}
_PUBLISHED: State = {
    "abone": "A001",
    "anahtar": "bedel",
    "sutun": "bedel",
    "tip": "mesken",
    "m3": 12,
}


def _shown(state: State) -> Named:
    return Named(state, "{" + ", ".join(f'"{name}": {show(v)}' for name, v in state.items()) + "}")


def _state(rng: Random, size: int) -> State:
    return {name: rng.choice(_VALUES) for name in rng.sample(_FIELDS, size)}


# --- known mistakes ---------------------------------------------------------------------


def _queue(
    queue: Callable[[State, list[str]], list[str]],
    surplus: Callable[[State, int], int] = lambda state, keep: max(0, len(state) - keep),
) -> Callable[[State, int, list[str]], list[str]]:
    """Return a way to drop: the beginning of a queue of its own."""
    return lambda state, keep, needed: queue(state, needed)[: surplus(state, keep)]


def _right(state: State, needed: list[str]) -> list[str]:
    return sorted(state, key=lambda name: name in needed)


def _others(state: State, needed: list[str]) -> list[str]:
    return [name for name in state if name not in needed]


def _stays(state: State, keep: int, needed: list[str]) -> list[str]:
    gone = fields_to_drop(state, keep, needed)
    return [name for name in state if name not in gone]


_OLDEST = Known(
    starter.fields_to_drop,
    "the oldest field was dropped though a later step needs it: what counts is which fields "
    "remain, not how long they have been there",
)
_TOO_FEW = "when all others are gone and it is still too much, needed fields go too"
_IN_ORDER = "among equals the oldest goes first: the first in the state"
_NUMBER = [
    Known(
        lambda state, keep, needed: _others(state, needed),
        "all fields that nobody needs were dropped: only as many go as are too many",
    ),
    Known(_queue(_others), _TOO_FEW),
    Known(
        _queue(_right, lambda state, keep: len(state) - keep),
        "a state of at most keep fields loses nothing; a negative number in a slice counts from "
        "the end",
    ),
    Known(
        _queue(_right, lambda state, keep: max(0, len(state) - keep + 1)),
        "one field more than is too many was dropped",
    ),
    Known(
        _queue(_right, lambda state, keep: max(0, len(state) - keep) if keep else 0),
        "keep 0 is a number like any other: all fields are too many",
    ),
    Known(_stays, "these are the fields that stay: those that are dropped are due"),
]
_ORDER = [
    _OLDEST,
    Known(
        _queue(lambda s, n: [*_others(s, n)[::-1], *(f for f in s if f in n)]),
        _IN_ORDER + ", not the newest",
    ),
    Known(
        _queue(lambda s, n: [*_others(s, n)[::-1], *[f for f in s if f in n][::-1]]),
        _IN_ORDER + ", not the newest",
    ),
    Known(
        _queue(lambda s, n: sorted(s, key=lambda name: (name in n, name))),
        _IN_ORDER + ", not the first in the alphabet",
    ),
    Known(
        _queue(lambda s, n: [*_others(s, n), *(f for f in n if f in s)]),
        "the order of needed means nothing: of needed fields, too, the oldest goes first",
    ),
    Known(
        _queue(lambda s, n: [*_others(s, n), *[f for f in s if f in n][::-1]]),
        "of needed fields, too, the oldest goes first",
    ),
    Known(
        lambda s, k, n: [name for name in s if name in fields_to_drop(s, k, n)],
        "these are the right fields in another order: they are due in the order in which they go",
    ),
    Known(
        _queue(lambda s, n: sorted(s, key=lambda name: any(name in other for other in n))),
        "a field is needed when its whole name is listed, not when a longer name contains it",
    ),
    Known(
        _queue(lambda s, n: sorted(s, key=lambda name: (name in n, s[name] is not None))),
        "an empty value does not count: what counts is the name",
    ),
]
# Here no two ways of the list above look alike.
_EVIDENCE = [
    given(_PUBLISHED, 3, ["m3", "tip", "abone"]),
    given(_PUBLISHED, 1, ["tip", "sutun", "abone", "anahtar"]),
    given({"tutar": None, "m3": 1, "abone": 2}, 2, ["tutar_net", "abone"]),
]


def _not_in_state(given: Given, dropped: list[str]) -> tuple[str, str] | None:
    state = given.args[0]
    strangers = [name for name in dropped if name not in state]
    if strangers:
        return "names of fields in the state", f"{strangers[0]!r}, which is not in it"
    if len(set(dropped)) < len(dropped):
        return "each field once", f"{dropped}"
    return None


# --- the checks -------------------------------------------------------------------------


def _say_number(given: Given, number: int) -> str:
    state, _keep, _needed = given.args
    return f"{number} of {len(state)} fields dropped, so that {len(state) - number} stay"


@check(
    "carry-budget",
    day=7,
    of=fields_to_drop,
    returns=[str],
    known=_NUMBER,
    fault=_not_in_state,
    view=lambda given, dropped: len(dropped),
    say=_say_number,
)
def carry_budget(trial: Trial, rng: Random) -> str:
    """As many fields go as are too many, and none when the state fits its budget."""
    lines = []
    for size, keep in ((5, 3), (4, 4), (2, 6)):
        # No later step needs anything, so this is about the number alone.
        dropped = trial(_shown(_state(rng, size)), keep, [])
        lines.append(f"{size} fields, keep {keep}: {len(dropped)} dropped")
    for size, keep in ((3, 0), (0, 0), (0, 3), (1, 1), (6, 1), (4, 5), (7, 8), (5, 7)):
        trial(_shown(_state(rng, size)), keep, [])
    for _ in range(10):
        state = _state(rng, rng.randint(0, 9))
        needed = rng.sample(_FIELDS, rng.randint(0, 6))
        trial(_shown(state), rng.randint(0, 9), needed)
    return f"✓ {'; '.join(lines)}"


@check(
    "carry-needed",
    day=7,
    of=fields_to_drop,
    returns=[str],
    known=[*_ORDER, *_NUMBER],
    evidence=_EVIDENCE,
    fault=_not_in_state,
)
def carry_needed(trial: Trial, rng: Random) -> str:
    """What no later step needs goes first; among equals the oldest goes first."""
    dropped = trial(_shown(_PUBLISHED), 3, ["m3", "tip", "abone"])
    # Nobody needs any of them: the oldest go. Everybody needs all of them: the oldest go.
    for needed in ([], ["m3", "tip", "sutun", "anahtar", "abone"]):
        trial(_shown(_PUBLISHED), 3, needed)
    # The younger ones are needed, once or twice, and the nearly needed go.
    for keep in (1, 2):
        trial(_shown(_ALIKE), keep, ["m3", "tutar_net", "abone", "abone"])
    # No name is needed by itself.
    trial(_shown({"sonuc": 12, "abone": "A001", "tip": "mesken", "m3": 12}), 2, ["m3"])
    trial(_shown({"abone": "A001", "m3": 0, "tip": None, "tutar": ""}), 2, ["deger", "deger"])
    for size in (5, 7, 8):
        state, needed = _state(rng, size), rng.sample(_FIELDS, rng.randint(2, 6))
        for keep in range(size + 1):
            trial(_shown(state), keep, needed)
    for _ in range(3):
        state = _state(rng, 7)
        # All but one are needed, so some of those have to go as well; the list repeats itself.
        needed = rng.sample([*state], 6)
        trial(_shown(state), rng.randint(0, 4), [*needed, needed[0], "deger"])
    return f"✓ what no later step needs goes first: {', '.join(dropped)} dropped, m3 and tip kept"


def _unfit_to_run(given: Given, dropped: list[str]) -> tuple[str, str] | None:
    """Name what the simulator could not go on with."""
    state, keep, _needed = given.args
    due = max(0, len(state) - keep)
    if len(dropped) < due:
        names = ", ".join(dropped)
        return f"{due} fields, so that {keep} remain", f"{len(dropped)}: {names or 'none'}"
    return _not_in_state(given, dropped)


@check("carry-run", day=7, of=fields_to_drop, returns=[str], fault=_unfit_to_run)
def carry_run(trial: Trial, rng: Random) -> str:
    """In the simulator, keeping what is needed saves tokens at unchanged success."""

    def policy(state: State, keep: int, needed: list[str]) -> list[str]:
        dropped: list[str] = trial.read(given(_shown(state), keep, needed))
        return dropped

    published: tuple[Run, Run] | None = None
    for keep, seed in ((3, None), (rng.choice((2, 3, 4)), rng.randrange(2**32))):
        where = {} if seed is None else {"seed": seed}
        right, seen = simulate(keep, "selective", **where), simulate(keep, policy, **where)
        published = published or (seen, simulate())
        if right != seen:
            call = f"simulate({keep}, fields_to_drop{'' if seed is None else f', seed={seed}'})"
            raise CheckFailure(call, _run(right), _run(seen), _why(trial))
    assert published is not None
    seen, whole = published
    return (
        f"✓ keep 3: {seen.tokens} tokens instead of {whole.tokens}, "
        f"{seen.success:.4f} of the tasks solved, {whole.success:.4f} without compaction"
    )


def _why(trial: Trial) -> str | None:
    """Say why a run differs, where the function does what a known mistake does, everywhere."""
    for known in (*_ORDER, *_NUMBER):
        if trial.but(evidence=_EVIDENCE).is_like(known.function):
            return known.why
    return None


def _run(run: Run) -> str:
    return f"{run.tokens} tokens, {run.errors} errors, {run.success:.4f} of the tasks solved"
