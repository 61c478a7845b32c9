"""One agent, one task after the other: steps, calls, tokens, errors, success.

A budget, a policy and a seed flow in; what the 24 tasks cost in sum flows out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from compaction.carrying.policy import POLICIES, FieldChooser, Policy, compact_state, needed_fields
from compaction.carrying.world import (
    SEED,
    TOOLS,
    WRITE_RECORD,
    State,
    Task,
    Tool,
    rng,
    state_tokens,
    tasks,
    trace_id,
)

MAX_STEPS = 8
STEP_TOKENS = 60
"""What a step costs before anything is carried: instructions and request."""
EARLIER_CALL_TOKENS = 22
"""What each earlier call of the task adds to every later step."""
CALL_TOKENS = 30
STOP_SHARE = 0.88
"""How often the agent sees that its task is done."""


@dataclass(frozen=True)
class Outcome:
    """What one task cost and whether its answer is right; ``state`` is the state at its end.

    ``lacked_dropped`` says that a call failed because a field that it needs had been dropped.
    """

    task: str
    steps: int
    calls: int
    tokens: int
    errors: int
    lacked_dropped: bool
    correct: bool
    state: Mapping[str, object]


def run_task(
    task: Task,
    keep: int | None = None,
    policy: str | Policy | FieldChooser = "summary",
    seed: int = SEED,
    *,
    carrying: bool = True,
) -> Outcome:
    """Let the agent work on one task and return the result.

    >>> run_task(tasks()[0], keep=3, policy="selective").correct
    True

    ``keep`` is the budget in fields (None: nothing is dropped), ``policy`` as in :func:`simulate`;
    ``carrying=False`` leaves the state's tokens out and drops nothing. Raises ValueError as
    :func:`simulate` does.
    """
    keep, policy, seed = checked_keep(keep), policy_of(policy), checked_int("seed", seed)
    return _work(task, keep, policy, seed, carrying)


def _work(task: Task, keep: int | None, policy: Policy, seed: int, carrying: bool) -> Outcome:
    draw = rng(seed ^ trace_id(task.name))
    state: State = {"abone": task.subscriber, "anahtar": task.request, "sutun": "bedel"}
    position = steps = calls = tokens = errors = 0
    dropped_ever: set[str] = set()
    lacked_dropped = False

    while steps < MAX_STEPS:
        steps += 1
        tokens += STEP_TOKENS + EARLIER_CALL_TOKENS * calls
        if carrying:
            tokens += state_tokens(state)

        target = task.sequence[position] if position < len(task.sequence) else None
        if target is None and draw() < STOP_SHARE:
            break
        tool = _pick_tool(target, position, draw)

        if tool is WRITE_RECORD:
            state["deger"] = state.get("sonuc")
        result = tool.call(state)
        calls += 1
        tokens += CALL_TOKENS
        if "hata" in result:
            errors += 1
            lacked_dropped |= any(
                name in dropped_ever and name not in state for name in tool.declares
            )
            continue

        state.update(result)
        if tool.result is not None:
            state["sonuc"] = result[tool.result]
        if tool is target:
            position += 1
        if carrying and keep is not None:
            needed = needed_fields(task.sequence[position:])
            dropped_ever.update(compact_state(state, keep, policy, needed))

    correct = state.get("sonuc") == task.answer
    return Outcome(task.name, steps, calls, tokens, errors, lacked_dropped, correct, state)


def _pick_tool(target: Tool | None, position: int, draw: Callable[[], float]) -> Tool:
    """Pick the target, or any tool: the further into a task, the more often the agent errs."""
    if target is not None and draw() < max(0.34, 0.80 - 0.09 * position):
        return target
    return TOOLS[int(draw() * len(TOOLS))]


# --- Run: all tasks under one budget, one policy and one seed -------------------------------------


@dataclass(frozen=True)
class Run:
    """Sums over the 24 tasks; ``needed`` and ``success`` count tasks.

    ``needed`` is the number of tasks in which a failing call lacked a dropped field; ``success``
    the share of tasks with the correct answer at the end.
    """

    steps: int
    calls: int
    tokens: int
    errors: int
    needed: int
    success: float


def simulate(
    keep: int | None = None, policy: str | Policy | FieldChooser = "summary", seed: int = SEED
) -> Run:
    """Run the 24 tasks with at most ``keep`` fields carried from step to step.

    >>> simulate(keep=3, policy="selective").tokens < simulate(keep=3, policy="summary").tokens
    True

    ``keep`` is a number of fields; None drops nothing. ``policy`` is ``"summary"``,
    ``"selective"``, or a function of your own with the arguments and the result of
    :func:`fields_to_drop`; no summary entry is left for a function (wrap it in a :class:`Policy`
    to have one). ``seed`` moves the agent's choices only: environment and tasks stay the same.

    Raises ValueError for a negative or fractional ``keep``, an unknown policy, a seed that is not
    an integer, and when a function names a field that is not there or leaves too many.
    """
    keep, policy, seed = checked_keep(keep), policy_of(policy), checked_int("seed", seed)
    return _total([_work(task, keep, policy, seed, carrying=True) for task in tasks()])


def baseline(seed: int = SEED) -> Run:
    """Run the 24 tasks without counting what is carried, and without dropping anything.

    >>> baseline().steps == simulate().steps, baseline().tokens < simulate().tokens
    (True, True)

    Raises ValueError for a seed that is not an integer.
    """
    seed = checked_int("seed", seed)
    policy = POLICIES["summary"]  # never asked: there is no budget
    return _total([_work(task, None, policy, seed, carrying=False) for task in tasks()])


def _total(outcomes: Sequence[Outcome]) -> Run:
    return Run(
        steps=sum(outcome.steps for outcome in outcomes),
        calls=sum(outcome.calls for outcome in outcomes),
        tokens=sum(outcome.tokens for outcome in outcomes),
        errors=sum(outcome.errors for outcome in outcomes),
        needed=sum(outcome.lacked_dropped for outcome in outcomes),
        success=sum(outcome.correct for outcome in outcomes) / len(outcomes),
    )


def checked_int(name: str, value: object, least: int | None = None) -> int:
    expected = "an integer" if least is None else f"an integer of at least {least}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # any integer, no float
    except TypeError:
        raise ValueError(f"{name}: expected {expected}, got {value!r}") from None
    if isinstance(value, bool) or (least is not None and number < least):
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    return number


def checked_keep(keep: object) -> int | None:
    return None if keep is None else checked_int("keep", keep, least=0)


def policy_of(policy: object) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and policy in POLICIES:
        return POLICIES[policy]
    if callable(policy):
        return Policy(getattr(policy, "__name__", "of your own"), policy)
    known = ", ".join(f'"{name}"' for name in POLICIES)
    raise ValueError(f"policy: expected {known} or a function, got {policy!r}")
