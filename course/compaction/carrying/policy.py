"""What to drop when the state is over its budget.

A state and a budget of ``keep`` fields flow in; the names of the fields to drop flow out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from compaction.carrying.world import State, Tool

FieldChooser = Callable[[dict[str, object], int, list[str]], list[str]]
"""``(state, keep, needed) -> names of the fields to drop``: the form of a policy of your own."""


@lru_cache(maxsize=64)
def needed_fields(remaining: tuple[Tool, ...]) -> tuple[str, ...]:
    """Return the fields that the ``remaining`` tools declare, and ``sonuc``, each once.

    >>> from compaction.carrying.world import CHARGE, WRITE_RECORD
    >>> needed_fields((CHARGE, WRITE_RECORD))
    ('m3', 'tip', 'abone', 'sutun', 'deger', 'sonuc')
    """
    declared = [name for tool in remaining for name in tool.declares]
    return tuple(dict.fromkeys([*declared, "sonuc"]))


def oldest_fields(state: dict[str, object], keep: int, needed: list[str]) -> list[str]:
    """Return the fields to drop so that ``keep`` remain: the oldest, whatever they are for.

    >>> oldest_fields({"abone": "A001", "anahtar": "...", "m3": 12}, keep=2, needed=["abone"])
    ['abone']

    ``state`` lists its fields from the oldest to the newest. Same form as :func:`fields_to_drop`;
    ``needed`` is not looked at, and that is what the policy gets wrong.
    """
    surplus = max(0, len(state) - keep)
    return list(state)[:surplus]


def fields_to_drop(state: dict[str, object], keep: int, needed: list[str]) -> list[str]:
    """Return the fields to drop so that ``keep`` remain: first those that no later step needs.

    >>> fields_to_drop({"abone": "A001", "anahtar": "...", "m3": 12}, keep=2, needed=["abone"])
    ['anahtar']

    ``state`` maps field names to values, from the oldest to the newest; ``keep`` is a number of
    fields; ``needed`` names the fields that the remaining steps declare. A needed field goes only
    when nothing else is left, and among equals the oldest goes first. A state of at most ``keep``
    fields loses nothing.
    """
    surplus = max(0, len(state) - keep)
    unneeded_first = sorted(state, key=lambda name: name in needed)  # stable: oldest first
    return unneeded_first[:surplus]


@dataclass(frozen=True)
class Policy:
    """How a state is brought back to its budget: which fields go, and whether an entry says so.

    >>> Policy("summary", oldest_fields, leaves_summary=True).name
    'summary'
    """

    name: str
    choose: FieldChooser
    leaves_summary: bool = False


POLICIES = MappingProxyType(
    {
        "summary": Policy("summary", oldest_fields, leaves_summary=True),
        "selective": Policy("selective", fields_to_drop),
    }
)


def compact_state(state: State, keep: int, policy: Policy, needed: Sequence[str]) -> list[str]:
    """Drop fields of ``state`` in place until ``keep`` remain; return the names of the dropped.

    >>> state = {"abone": "A001", "anahtar": "...", "m3": 12}
    >>> compact_state(state, 2, POLICIES["summary"], needed=["abone"])
    ['abone']
    >>> state
    {'anahtar': '...', 'm3': 12, 'ozet': '1 alan dusuruldu'}

    The summary entry ``ozet`` is not held against ``keep`` now, but from the next step on it is a
    field like any other. Raises ValueError when the policy names a field that is not there, or
    leaves more than ``keep``.
    """
    if len(state) <= keep:
        return []
    # The policy gets copies: what it returns counts, what it does to its arguments does not.
    dropped = _checked_choice(policy, policy.choose(dict(state), keep, list(needed)), state, keep)
    for name in dropped:
        del state[name]
    if policy.leaves_summary:
        state["ozet"] = f"{len(dropped)} alan dusuruldu"
    return dropped


def _checked_choice(policy: Policy, chosen: object, state: State, keep: int) -> list[str]:
    if not isinstance(chosen, list | tuple | set | frozenset):
        raise ValueError(
            f"policy {policy.name}: expected a list of field names, got {type(chosen).__name__}"
        )
    for name in chosen:
        if not isinstance(name, str) or name not in state:
            raise ValueError(
                f"policy {policy.name}: {name!r} is not a field of the state ({', '.join(state)})"
            )
    dropped = list(dict.fromkeys(chosen))
    if len(state) - len(dropped) > keep:
        raise ValueError(
            f"policy {policy.name}: dropped {len(dropped)} of {len(state)} fields, "
            f"but only {keep} may remain"
        )
    return dropped
