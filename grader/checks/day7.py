"""Day 7: which fields a task carries from step to step."""

from __future__ import annotations

from random import Random

from compaction.carrying import Run, simulate
from compaction.carrying import fields_to_drop as library_fields_to_drop
from grader.checks.check import Check, Function
from grader.checks.failure import CheckFailure
from grader.checks.trial import Given, Known, Trial, given
from grader.starters import day7 as starter

_FIELDS = ("abone", "anahtar", "sutun", "onceki", "simdiki", "tip", "bolge", "m3", "sonuc", "tutar")

_OLDEST = Known(
    starter.fields_to_drop,
    "the oldest field was dropped though a later step needs it: what counts is which fields "
    "remain, not how long they have been there",
)


_TOO_FEW = "when all others are gone and it is still too much, needed fields go too"


def _call(state: dict[str, object], keep: int, needed: list[str]) -> Given:
    shown = "{" + ", ".join(f'"{name}": ...' for name in state) + "}"
    return given(f"fields_to_drop({shown}, {keep}, {needed})", state, keep, needed)


def _state(rng: Random, size: int) -> dict[str, object]:
    return {name: rng.randint(0, 999) for name in rng.sample(_FIELDS, size)}


def _newest_first(state: dict[str, object], keep: int, needed: list[str]) -> list[str]:
    """Keep what is needed, but drop the newest of the others first."""
    kept = [name for name in state if name in needed]
    kept += [name for name in state if name not in needed]
    return kept[keep:][::-1]


def _in_order_of_need(state: dict[str, object], keep: int, needed: list[str]) -> list[str]:
    """Drop needed fields, when they must go, in the order in which they are listed."""
    queue = [name for name in state if name not in needed]
    queue += [name for name in needed if name in state]
    return queue[: max(0, len(state) - keep)]


def _never_needed(state: dict[str, object], keep: int, needed: list[str]) -> list[str]:
    """Drop no needed field, however many are too many."""
    surplus = max(0, len(state) - keep)
    return [name for name in state if name not in needed][:surplus]


def carry_budget(fields_to_drop: Function, rng: Random) -> str:
    """As many fields go as are too many, and none when the state fits its budget."""
    trial = Trial(
        fields_to_drop,
        library_fields_to_drop,
        [str],
        fault=_not_in_state,
        view=lambda given, dropped: sorted(dropped),
    )
    lines = []
    for size, keep in ((5, 3), (4, 4), (2, 6)):
        state = _state(rng, size)
        # No later step needs anything, so this is about the number alone.
        dropped = trial.on(_call(state, keep, []))
        lines.append(f"{size} fields, keep {keep}: {len(dropped)} dropped")
    for _ in range(10):
        trial.on(_call(_state(rng, rng.randint(0, 9)), rng.randint(0, 9), []))
    return f"✓ {'; '.join(lines)}"


def carry_needed(fields_to_drop: Function, rng: Random) -> str:
    """What no later step needs goes first; among equals the oldest goes first."""
    trial = Trial(
        fields_to_drop,
        library_fields_to_drop,
        [str],
        known=[
            _OLDEST,
            Known(_newest_first, "among fields that nobody needs the oldest goes first"),
            Known(_never_needed, _TOO_FEW),
            Known(
                _in_order_of_need,
                "the order of needed means nothing: of needed fields, too, the oldest goes first",
            ),
        ],
        fault=_not_in_state,
    )
    published = {"abone": "A001", "anahtar": "bedel", "sutun": "bedel", "tip": "mesken", "m3": 12}
    dropped = trial.on(_call(published, 3, ["m3", "tip", "abone"]))
    for _ in range(20):
        state = _state(rng, rng.randint(3, 9))
        needed = rng.sample(_FIELDS, rng.randint(1, 6))
        trial.on(_call(state, rng.randint(1, len(state)), needed))
    for _ in range(3):
        state = _state(rng, 7)
        # All but one are needed, so some of those have to go as well.
        trial.on(_call(state, rng.randint(2, 4), rng.sample([*state], 6)))
    return f"✓ what no later step needs goes first: {', '.join(dropped)} dropped, m3 and tip kept"


def _not_in_state(given: Given, dropped: list[str]) -> tuple[str, str] | None:
    state = given.args[0]
    strangers = [name for name in dropped if name not in state]
    if strangers:
        return "names of fields in the state", f"{strangers[0]!r}, which is not in it"
    if len(set(dropped)) < len(dropped):
        return "each field once", f"{dropped}"
    return None


def _unfit_to_run(given: Given, dropped: list[str]) -> tuple[str, str] | None:
    """Name what the simulator could not go on with."""
    state, keep, _needed = given.args
    due = len(state) - keep
    if len(dropped) < due:
        return f"{due} fields, so that {keep} remain", f"{len(dropped)}: {', '.join(dropped)}"
    return _not_in_state(given, dropped)


def carry_run(fields_to_drop: Function, rng: Random) -> str:
    """In the simulator, keeping what is needed saves tokens at unchanged success."""
    trial = Trial(fields_to_drop, library_fields_to_drop, [str], fault=_unfit_to_run)

    def policy(state: dict[str, object], keep: int, needed: list[str]) -> list[str]:
        return trial.read(_call(state, keep, needed))

    published: tuple[Run, Run] | None = None
    for keep, seed in ((3, None), (rng.choice((2, 3, 4)), rng.randrange(2**32))):
        where = {} if seed is None else {"seed": seed}
        right, seen = simulate(keep, "selective", **where), simulate(keep, policy, **where)
        published = published or (seen, simulate())
        if right != seen:
            call = f"simulate({keep}, fields_to_drop{'' if seed is None else f', seed={seed}'})"
            oldest = simulate(keep, starter.fields_to_drop, **where)
            why = _OLDEST.why if seen == oldest else None
            raise CheckFailure(call, _run(right), _run(seen), why)
    assert published is not None
    seen, whole = published
    return (
        f"✓ keep 3: {seen.tokens} tokens instead of {whole.tokens}, "
        f"{seen.success:.4f} of the tasks solved, {whole.success:.4f} without compaction"
    )


def _run(run: Run) -> str:
    return f"{run.tokens} tokens, {run.errors} errors, {run.success:.4f} of the tasks solved"


CHECKS = (
    Check(
        "carry-budget",
        7,
        "fields_to_drop",
        "As many fields go as are too many, and none when the state fits its budget.",
        carry_budget,
    ),
    Check(
        "carry-needed",
        7,
        "fields_to_drop",
        "What no later step needs goes first; among equals the oldest goes first.",
        carry_needed,
    ),
    Check(
        "carry-run",
        7,
        "fields_to_drop",
        "In the simulator, keeping what is needed saves tokens at unchanged success.",
        carry_run,
    ),
)
