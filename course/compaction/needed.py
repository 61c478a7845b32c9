"""Facts needed later: what an agent used after a cut and could only know from before it.

A finished conversation says what its agent went on to need. Cut it where a compaction would
come, compact what stands before the cut, and look for the values that the agent wrote after the
cut and that stood only in what was compressed. From a conversation to one row a cut and method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from compaction.calibration import TokenMeter
from compaction.compactor import compact_history
from compaction.grouping import clear_results, group_messages
from compaction.messages import Message, problems, text_of
from compaction.probes import Probe, fold, truncate, verify
from compaction.summary import SUMMARY_PREFIX, extract, with_notice
from compaction.summary.gather import gather
from compaction.summary.records import Entry
from compaction.summary.values import written_values

CUTS = (0.4, 0.6, 0.8)
"""Shares of the messages at which a conversation is cut."""

BUDGETS = (None, 0.5, 0.25)
"""Shares of the compressed part that the result may take; None is the size that
``compact_history`` reaches by itself."""

Method = Callable[[list[Message], "int | None"], "list[Message] | None"]
"""From the messages before a cut and a budget in tokens (None: the method's own size) to what
is left of them; None when the method gives up."""


@dataclass(frozen=True)
class Cut:
    """A place at which a conversation is cut, and the facts that are needed after it.

    ``floor`` is the tokens of what nobody may compress; ``own`` the size that
    ``compact_history`` reaches by itself, None where it gives up.
    """

    position: int
    messages: list[Message]
    facts: list[str]
    before: int
    floor: int
    own: int | None

    def budget(self, share: float | None) -> int | None:
        """Return the tokens that a result may have, for a share of the compressed part."""
        if share is None:
            return self.own
        return round(self.floor + share * max(0, self.before - self.floor))


@dataclass(frozen=True)
class Row:
    """What a method kept of the facts of a cut, within a budget (tokens; None: there is none).

    ``lost`` are the facts that are gone; ``after`` is None where the method gave up or its
    result is over the budget: then all are lost. ``broken`` says that a kept message changed or
    that an API would refuse what it took before.
    """

    cut: Cut
    method: str
    share: float | None
    budget: int | None
    after: int | None
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    broken: bool = False

    @property
    def share_kept(self) -> float:
        """The share of the facts that are kept, 0 to 1."""
        return len(self.kept) / max(1, len(self.cut.facts))


def needed(
    messages: Sequence[Message],
    *,
    cuts: Sequence[float] = CUTS,
    budgets: Sequence[float | None] = BUDGETS,
    methods: Mapping[str, Method] | None = None,
    keep_recent: int = 3,
) -> list[Row]:
    """Measure which facts needed later each method keeps, cut by cut and budget by budget.

    Tokens are those of a fresh two-term meter, as in the published figures. Cuts after which
    nothing was needed have no row, and budgets that a cut does not have (the compactor gives up
    there) have none either.

    >>> needed([{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}])
    []
    """
    rows = []
    for cut in cuts_of(messages, cuts, keep_recent):
        for share in budgets:
            budget = cut.budget(share)
            if budget is None:
                continue
            for name, method in (methods or METHODS).items():
                told = None if share is None and name == "compact" else budget
                result = method(list(cut.messages), told)
                rows.append(_row(cut, name, share, budget, result, keep_recent))
    return rows


def pooled(rows: Sequence[Row]) -> dict[tuple[str, float | None], tuple[int, int]]:
    """Pool rows over all cuts: (facts kept, facts) for each method and budget."""
    totals: dict[tuple[str, float | None], tuple[int, int]] = {}
    for row in rows:
        kept, facts = totals.get((row.method, row.share), (0, 0))
        totals[row.method, row.share] = kept + len(row.kept), facts + len(row.cut.facts)
    return totals


def cuts_of(
    messages: Sequence[Message], shares: Sequence[float] = CUTS, keep_recent: int = 3
) -> list[Cut]:
    """Return the cuts of a conversation after which something was needed."""
    found = []
    for position in cut_positions(messages, shares):
        facts = facts_after(messages, position, keep_recent)
        if facts:
            prefix = list(messages[:position])
            own = compact_history(prefix, keep_recent=keep_recent, meter=TokenMeter())
            floor = _count(with_notice(truncate(prefix, keep_recent)))
            size = None if own.abandoned else own.after
            found.append(Cut(position, prefix, facts, own.before, floor, size))
    return found


def cut_positions(messages: Sequence[Message], shares: Sequence[float]) -> list[int]:
    """Return the first assistant message at or after each share of the messages.

    >>> cut_positions([{"role": r} for r in ("user", "assistant", "user", "assistant")], [0.5])
    [3]
    """
    found: list[int] = []
    for share in shares:
        first = round(len(messages) * share)
        position = next(
            (n for n in range(first, len(messages)) if messages[n].get("role") == "assistant"), 0
        )
        if position and position not in found:
            found.append(position)
    return found


def facts_after(messages: Sequence[Message], position: int, keep_recent: int = 3) -> list[str]:
    """Return the facts needed after a cut, in the order of their first use.

    A fact is a value that stood in the compressed part and in no kept message, and that comes
    back first in what the assistant writes, before a user or a tool brings it back.
    """
    prefix = messages[:position]
    compressed = [
        message
        for group in group_messages(prefix, keep_recent)
        if group.keep == "compressible"
        for message in prefix[group.start : group.end]
    ]
    kept_text = _folded(truncate(prefix, keep_recent))
    compressed_text = _folded(compressed)
    known = {value for message in compressed for value in written_values(message)}
    facts: list[str] = []
    decided: set[str] = set()
    brought_back: list[str] = []
    for message in messages[position:]:
        if message.get("role") != "assistant":
            brought_back.append(_folded([message]))
            continue
        for value in sorted(written_values(message) - decided):
            decided.add(value)
            # A phrase may have stood inside a longer text.
            is_known = value in known or (" " in value and value in compressed_text)
            is_gone = is_known and value not in kept_text
            if is_gone and not any(value in text for text in brought_back):
                facts.append(value)
    return facts


def _folded(messages: Sequence[Message]) -> str:
    return "\n".join(fold(text_of(message)) for message in messages)


def _count(messages: list[Message]) -> int:
    return TokenMeter().count(messages)


def _row(
    cut: Cut,
    method: str,
    share: float | None,
    budget: int,
    result: list[Message] | None,
    keep_recent: int,
) -> Row:
    size = None if result is None else _count(result)
    if result is None or size is None or size > budget:
        return Row(cut, method, share, budget, None, (), tuple(cut.facts))
    report = verify([Probe(fact) for fact in cut.facts], result)
    return Row(
        cut=cut,
        method=method,
        share=share,
        budget=budget,
        after=size,
        kept=tuple(probe.fact for probe in report.kept),
        lost=tuple(probe.fact for probe in report.lost),
        broken=not is_whole(cut.messages, result, keep_recent),
    )


def is_whole(prefix: Sequence[Message], result: Sequence[Message], keep_recent: int = 3) -> bool:
    """Say whether every kept message is still there, in order, and no new fault appeared.

    A superseded checklist may go, and the system prompt may have gained a notice.
    """
    rest = iter(result)
    kept = truncate(prefix, keep_recent)
    lists = [m for m in kept if m.get("role") != "tool" and text_of(m).startswith("[todo]")]
    for message in kept:
        if any(message is old for old in lists[:-1]):
            continue
        if message.get("role") in ("system", "developer"):
            begins = text_of(message)
            found = any(
                m.get("role") == message["role"] and text_of(m).startswith(begins) for m in rest
            )
        else:
            found = any(m == message for m in rest)
        if not found:
            return False
    return set(problems(result)) <= set(problems(prefix))


# --- methods ----------------------------------------------------------------------------


def by_compacting(messages: list[Message], budget: int | None) -> list[Message] | None:
    """Compact with ``compact_history`` and ``extract``."""
    done = compact_history(messages, target_tokens=budget, meter=TokenMeter())
    return None if done.abandoned else done.messages


def by_truncating(messages: list[Message], budget: int | None) -> list[Message] | None:
    """Drop the oldest compressible groups until the rest fits."""
    spans = [g for g in group_messages(messages, 3) if g.keep == "compressible"]

    def without(number: int) -> list[Message]:
        gone = {n for g in spans[:number] for n in range(g.start, g.end)}
        return [m for n, m in enumerate(messages) if n not in gone]

    if budget is None:
        return without(len(spans))
    return _first_that_fits(without, len(spans), budget)


def by_keeping_the_last(messages: list[Message], budget: int | None) -> list[Message] | None:
    """Write one summary of the older part, and keep as many of the newest groups as fit."""
    spans = [g for g in group_messages(messages, 3) if g.keep == "compressible"]
    if not spans:
        return None

    def summarised(number: int) -> list[Message]:
        older = {n for g in spans[:number] for n in range(g.start, g.end)}
        if not older:
            return messages
        note = f"{SUMMARY_PREFIX}\n{extract([messages[n] for n in sorted(older)])}"
        result = [m for n, m in enumerate(messages) if n not in older]
        result.insert(min(older), {"role": "user", "content": note})
        return with_notice(result)

    if budget is None:
        return summarised(len(spans))
    return _first_that_fits(summarised, len(spans), budget)


def by_clearing(messages: list[Message], budget: int | None) -> list[Message] | None:
    """Replace old tool results by one line each; then drop the oldest groups as well."""
    cleared = clear_results(messages, 3)
    return cleared if budget is None else by_truncating(cleared, budget)


METHODS: dict[str, Method] = {
    "compact": by_compacting,
    "truncate": by_truncating,
    "keep last + extract": by_keeping_the_last,
    "clear results": by_clearing,
}
"""The methods that are laid side by side, by name."""


def _first_that_fits(
    option: Callable[[int], list[Message]], last: int, budget: int
) -> list[Message] | None:
    """Return the first of the options 0 to ``last``, ever smaller ones, that fits; by halves."""
    if _count(option(last)) > budget:
        return None
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        if _count(option(middle)) <= budget:
            high = middle
        else:
            low = middle + 1
    return option(low)


# --- probes without pins ----------------------------------------------------------------


def proposed_probes(messages: Sequence[Message], limit: int = 12) -> list[Probe]:
    """Propose probes from the index of values, for a history in which nobody pinned anything.

    The values that are most likely needed again, each with a question that names its origin.

    >>> call = {"id": "c1", "function": {"name": "get_order", "arguments": '{"id": "W1234"}'}}
    >>> history = [
    ...     {"role": "assistant", "tool_calls": [call]},
    ...     {"role": "tool", "tool_call_id": "c1", "content": '{"flight": "HAT136"}'},
    ... ]
    >>> [probe.fact for probe in proposed_probes(history)]
    ['W1234', 'HAT136']
    """
    material = gather([[m for m in messages if m.get("role") not in ("system", "developer")]])
    entries = [entry for entry in material.index.entries.values() if not entry.is_command]
    ranked = sorted(entries, key=lambda entry: (-_weight_as_probe(entry), -entry.last_seen))
    chosen: list[Entry] = []
    for entry in ranked:
        # A part of a longer value proves nothing that the longer one does not.
        if not any(entry.value in other.value for other in chosen):
            chosen.append(entry)
        if len(chosen) == limit:
            break
    return [Probe(entry.value, _question(entry)) for entry in chosen]


def _weight_as_probe(entry: Entry) -> float:
    """Rank by use alone: what a probe costs does not matter."""
    return entry.chance


def _question(entry: Entry) -> str:
    source = f"{entry.record.origin} {entry.record.about}".strip()
    what = entry.label.replace("_", " ") or "value"
    return f"Which {what} came from {source}?"
