"""Day 4: what belongs together, and what stays.

What the statement promises, and which cases look at it (every one under every seed):

| property | fixed | drawn |
|---|---|---|
| every message once, in order; nothing makes no groups | no message at all | all |
| from a call to its last result, by id, with what stands between | long | late, reused, others |
| spans that overlap are one group, however many in a row | CHAIN | chains, nested, interleaved |
| spans that only touch are two | round trips | round trips |
| the first kind that holds: system, pinned by the rule handed in, and so on | | inside, outside |
| any member counts, but no tool result is asked whether it is pinned | PAGE | pages |
| a call waits until each of its ids has its result | twice answered, listed twice | all three |
| the last groups of whatever kind, none with 0, all with many | 0, 1, 99 | 0 to 4 |
| compaction through the groups parts no call from its result | published | late, pinned between |
| the messages stay as they are | all | all |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from compaction.calibration import TokenMeter
from compaction.grouping import (
    KINDS,
    PINNED_PREFIXES,
    Group,
    group_messages,
    is_checklist,
    pair_results,
)
from compaction.messages import SUMMARY_PREFIX, Message, calls_of, content_of, problems
from compaction.session import load
from compaction.summary import compact
from grader.checks import histories as h
from grader.checks.check import check
from grader.checks.show import show
from grader.checks.spell import Named, outline
from grader.checks.trial import Function, Given, Known, Trial, given
from grader.starters import day4 as starter

History = list[Message]

_TODO: Message = {"role": "user", "content": f"{PINNED_PREFIXES[0]}\n[ ] read\n[ ] test"}
_SYSTEM: Message = {"role": "system", "content": "Be brief."}


def _no_partition(given: Given, groups: list[Group]) -> tuple[str, str] | None:
    """Say where the groups fail to cover the messages, each once and in order."""
    messages, position = given.args[0], 0
    expected = f"groups that hold all {len(messages)} messages, each once and in order"
    for group in groups:
        if group.start != position:
            return expected, f"{show(group)} where a group from message {position} on was due"
        if group.end <= group.start:
            return expected, f"{show(group)}, which holds none: end is the first one outside"
        if group.keep not in KINDS:
            return f"one of {', '.join(KINDS)} as kind", show(group)
        position = group.end
    if position != len(messages):
        return expected, f"groups that end at message {position}"
    return None


# --- group-atomic -----------------------------------------------------------------------


def _spans(given: Given, groups: list[Group]) -> list[list[int]]:
    return [[group.start, group.end] for group in groups]


def _tell_spans(given: Given, right: list[list[int]], seen: list[list[int]]) -> tuple[str, str]:
    first = next(i for i, pair in enumerate(zip(right, seen, strict=False)) if pair[0] != pair[1])
    return _span(*right[first]), _span(*seen[first])


def _say_spans(given: Given, spans: list[list[int]]) -> str:
    return "; ".join(_span(*span) for span in spans[:4]) + ("; …" if len(spans) > 4 else "")


def _span(start: int, end: int) -> str:
    alone = end == start + 1
    return f"message {start} alone" if alone else f"messages {start} to {end - 1} as one group"


def _spans_only(spans: Callable[[Sequence[Message]], Sequence[tuple[int, int]]]) -> Function:
    """Return a grouping from a rule for spans; their kinds do not matter here."""

    def wrong(messages: Sequence[Message], keep_recent: int = 3, pinned: Any = None) -> list[Group]:
        return [Group(start, end, "compressible") for start, end in spans(messages)]

    return wrong


def _by_neighbours(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Group a call with the tool results right behind it, whatever their ids are."""
    starts = [
        position
        for position, message in enumerate(messages)
        if message.get("role") != "tool"
        or position == 0
        or not (messages[position - 1].get("role") == "tool" or calls_of(messages[position - 1]))
    ]
    return list(zip(starts, [*starts[1:], len(messages)], strict=True))


def _to_the_first_result(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """End a span at the first of the results."""
    first: dict[int, int] = {}
    for result, call in sorted(pair_results(messages)[0].items()):
        first.setdefault(call, result)
    return _joined(messages, first)


def _one_level(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Join a span with those that begin in it, but not with what those overlap in turn."""
    last: dict[int, int] = {}
    for result, call in pair_results(messages)[0].items():
        last[call] = max(result, last.get(call, 0))
    spans, start = [], 0
    while start < len(messages):
        reach = last.get(start, start)
        end = max([reach, *(last.get(inner, inner) for inner in range(start, reach + 1))])
        spans.append((start, end + 1))
        start = end + 1
    return spans


def _joined(messages: Sequence[Message], last: dict[int, int]) -> list[tuple[int, int]]:
    spans, start, end = [], 0, 0
    for position in range(len(messages)):
        end = max(end, position, last.get(position, 0))
        if position == end:
            spans.append((start, end + 1))
            start = end = end + 1
    return spans


_ATOMIC = [
    Known(
        starter.group_messages,
        "one message a group: an assistant message and the results of its calls are inseparable",
    ),
    Known(
        _spans_only(_by_neighbours),
        "results were taken by their place: a result belongs to the call with its id, "
        "wherever it stands",
    ),
    Known(
        _spans_only(_to_the_first_result),
        "the span ends at the first result: it reaches to the last one that belongs to the call",
    ),
    Known(
        _spans_only(_one_level),
        "a span that overlaps one that overlaps a third: all of them are one group",
    ),
]


@check(
    "group-atomic",
    day=4,
    of=group_messages,
    returns=[Group],
    known=_ATOMIC,
    evidence=[
        given([_TODO, *h.round_trip(Random(1), "a", "b"), _TODO]),
        given([h.calls(Random(1), "a"), _TODO, h.result(Random(1), "a")]),
    ],
    fault=_no_partition,
    view=_spans,
    say=_say_spans,
    tell=_tell_spans,
)
def group_atomic(trial: Trial, rng: Random) -> str:
    """An assistant message with tool calls and all its results are one group."""
    messages = load("long").messages
    groups = trial(Named(messages, 'load("long").messages'))
    trial([])
    trial([h.user(rng), {"role": "assistant", "content": ""}, *h.round_trip(rng, "a")])
    for drawn in _TOGETHER:
        trial(drawn(rng))
    for first, second in zip(_TOGETHER, _TOGETHER[3:] + _TOGETHER[:3], strict=True):
        trial(first(rng, "0") + second(rng, "1"), keep_recent=rng.randint(0, 4))
    pairs = sum(group.end - group.start > 1 for group in groups)
    return (
        f"✓ a call and its results are one group: {len(messages)} messages in {len(groups)} "
        f"groups, {pairs} of them round trips"
    )


def _parallel(rng: Random, name: str = "") -> History:
    ids = [f"{name}{letter}" for letter in "abc"[: rng.randint(2, 3)]]
    return [h.user(rng), *h.round_trip(rng, *ids), h.answer(rng)]


def _in_a_row(rng: Random, name: str = "") -> History:
    """Round trips one after another: their spans touch, and that is all."""
    return [m for letter in "abc" for m in h.round_trip(rng, f"{name}{letter}")]


def _late(rng: Random, name: str = "") -> History:
    """A result that comes after the conversation has gone on."""
    return [
        h.calls(rng, f"{name}a", f"{name}b"),
        h.result(rng, f"{name}b"),
        *h.talk(rng, rng.randint(1, 2)),
        h.result(rng, f"{name}a"),
        h.answer(rng),
    ]


def _overlapping(rng: Random, name: str = "") -> History:
    """Two calls whose results both come after the second one: their spans are one group."""
    return [
        h.calls(rng, f"{name}a"),
        *h.talk(rng, rng.randint(0, 1)),
        h.calls(rng, f"{name}b"),
        h.result(rng, f"{name}a"),
        *h.talk(rng, rng.randint(0, 1)),
        h.result(rng, f"{name}b"),
        h.answer(rng),
    ]


def _chain(rng: Random, name: str = "") -> History:
    """Three to five spans, each of which overlaps the next one alone."""
    length = rng.randint(3, 5)
    history = [h.calls(rng, f"{name}0")]
    for number in range(1, length):
        history += [h.calls(rng, f"{name}{number}"), h.result(rng, f"{name}{number - 1}")]
        history += h.talk(rng, rng.randint(0, 1))
    return [*history, h.result(rng, f"{name}{length - 1}"), h.answer(rng)]


def _nested(rng: Random, name: str = "") -> History:
    """A round trip inside the span of another one, which goes on behind it."""
    inner = [h.user(rng), *h.round_trip(rng, f"{name}b"), h.answer(rng)]
    return [h.calls(rng, f"{name}a"), *inner, h.result(rng, f"{name}a"), h.user(rng)]


def _interleaved(rng: Random, name: str = "") -> History:
    """Three calls, and then their results in any order."""
    ids = [f"{name}{letter}" for letter in "abc"]
    results = [h.result(rng, call_id) for call_id in ids]
    rng.shuffle(results)
    return [h.user(rng), *(h.calls(rng, call_id) for call_id in ids), *results, h.answer(rng)]


def _reused(rng: Random, name: str = "") -> History:
    """An id that a second call uses again."""
    return [*h.round_trip(rng, f"{name}a"), h.user(rng), *h.round_trip(rng, f"{name}a")]


def _reused_while_waiting(rng: Random, name: str = "") -> History:
    """An id that is used again before its first result: the nearest call is answered first."""
    again = [h.calls(rng, f"{name}a"), h.user(rng), h.calls(rng, f"{name}a")]
    return [h.user(rng), *again, h.result(rng, f"{name}a"), h.answer(rng)]


def _reused_and_both_answered(rng: Random, name: str = "") -> History:
    """And then the other one: one result each, though both results have one id."""
    *waiting, conclusion = _reused_while_waiting(rng, name)
    return [*waiting, *h.talk(rng, rng.randint(0, 1)), h.result(rng, f"{name}a"), conclusion]


def _duplicated(rng: Random, name: str = "") -> History:
    """A result that comes twice, the second time late."""
    between = h.talk(rng, rng.randint(0, 2))
    return [*h.round_trip(rng, f"{name}a"), *between, h.result(rng, f"{name}a"), h.user(rng)]


def _missing(rng: Random, name: str = "") -> History:
    """A result of a call that nobody has made yet, and a call without a result."""
    early = h.result(rng, f"{name}a")
    return [early, h.result(rng, f"{name}x"), h.calls(rng, f"{name}a"), h.answer(rng)]


_TOGETHER: tuple[Callable[..., History], ...] = (
    _parallel,
    _in_a_row,
    _late,
    _overlapping,
    _chain,
    _nested,
    _interleaved,
    _reused,
    _reused_while_waiting,
    _reused_and_both_answered,
    _duplicated,
    _missing,
)


# --- group-unfinished and group-keep ----------------------------------------------------


def _kinds(given: Given, groups: list[Group]) -> list[str]:
    """Return the kind of each message's group."""
    return [group.keep for group in groups for _ in range(group.start, group.end)]


def _kinds_of_the_kept(given: Given, groups: list[Group]) -> list[str]:
    """Return the kinds, those of plain messages left blank."""
    return [
        kind if message["role"] in ("system", "developer") or is_checklist(message) else ""
        for message, kind in zip(given.args[0], _kinds(given, groups), strict=True)
    ]


def _say_kinds(given: Given, kinds: list[str]) -> str:
    return ", ".join(kind or "…" for kind in kinds[:8]) + (", …" if len(kinds) > 8 else "")


def _tell_kinds(given: Given, right: list[str], seen: list[str]) -> tuple[str, str]:
    first = next(i for i, pair in enumerate(zip(right, seen, strict=True)) if pair[0] != pair[1])
    message = outline([given.args[0][first]])[1:-1]
    place = f"message {first} ({message})"
    return f'{place} is "{right[first]}"', f'"{seen[first]}"'


def _recent_messages(
    messages: Sequence[Message], keep_recent: int = 3, pinned: Any = is_checklist
) -> list[Group]:
    """Keep the last few messages instead of the last few groups."""
    first = len(messages) - keep_recent
    return [
        replace(group, keep="recent")
        if group.keep == "compressible" and group.start >= first
        else group
        for group in group_messages(messages, 0, pinned)
    ]


def _first_member_only(
    messages: Sequence[Message], keep_recent: int = 3, pinned: Any = is_checklist
) -> list[Group]:
    """Ask only the first message of each group what it is."""
    groups = group_messages(messages, keep_recent)
    waiting = pair_results(messages)[1]
    kinds = []
    for number, group in enumerate(groups):
        first = messages[group.start]
        if first["role"] in ("system", "developer"):
            kinds.append("system")
        elif first["role"] != "tool" and pinned(first):
            kinds.append("pinned")
        elif group.start in waiting:
            kinds.append("unfinished")
        else:
            recent = number >= len(groups) - keep_recent
            kinds.append("recent" if recent else "compressible")
    return [replace(group, keep=kind) for group, kind in zip(groups, kinds, strict=True)]


_ANY_MEMBER = "any message in a group may be the one that counts, not only its first"


def _kept_otherwise(kind: Callable[[Group, Sequence[Message], Any], str]) -> Function:
    """Return a grouping that decides about the kinds of its groups in another way."""

    def wrong(
        messages: Sequence[Message], keep_recent: int = 3, pinned: Any = is_checklist
    ) -> list[Group]:
        groups = group_messages(messages, keep_recent, pinned)
        return [replace(g, keep=kind(g, messages[g.start : g.end], pinned)) for g in groups]

    return wrong


def _nothing_waits(
    messages: Sequence[Message], keep_recent: int = 3, pinned: Any = is_checklist
) -> list[Group]:
    groups = group_messages(messages, keep_recent, pinned)
    first = len(groups) - keep_recent
    return [
        replace(g, keep="recent" if n >= first else "compressible") if g.keep == "unfinished" else g
        for n, g in enumerate(groups)
    ]


def _ids_answered(
    messages: Sequence[Message], keep_recent: int = 3, pinned: Any = is_checklist
) -> list[Group]:
    """Take a call for finished when as many results have come as it has calls."""
    groups = group_messages(messages, keep_recent, pinned)
    first = len(groups) - keep_recent

    def waits(group: Group) -> bool:
        members = messages[group.start : group.end]
        called = sum(len(calls_of(m)) for m in members)
        return called > sum(m["role"] == "tool" for m in members)

    return [
        replace(g, keep="recent" if n >= first else "compressible")
        if g.keep == "unfinished" and not waits(g)
        else g
        for n, g in enumerate(groups)
    ]


_UNFINISHED = [
    Known(
        starter.group_messages,
        "a call that nobody has answered yet is given away: its result would come back to nothing",
    ),
    Known(
        _nothing_waits,
        "a call that nobody has answered yet is given away: its result would come back to nothing",
    ),
    Known(
        _recent_messages,
        "the newest messages were counted, not the newest groups: a call and its results count "
        "once",
    ),
    Known(_first_member_only, _ANY_MEMBER),
    Known(
        _ids_answered,
        "as many results as calls are not enough: each call waits for a result of its own",
    ),
]


@check(
    "group-unfinished",
    day=4,
    of=group_messages,
    returns=[Group],
    known=_UNFINISHED,
    evidence=[
        given(
            [h.calls(Random(1), "a"), h.user(Random(1)), h.answer(Random(1)), h.user(Random(2))], 2
        )
    ],
    fault=_no_partition,
    view=_kinds,
    say=_say_kinds,
    tell=_tell_kinds,
)
def group_unfinished(trial: Trial, rng: Random) -> str:
    """A call that still waits for its result is kept, however old it is."""
    early = [
        {"role": "user", "content": "Start the long build, and meanwhile read the log."},
        h.calls(Random(1), "build"),
        {"role": "user", "content": "And?"},
        *h.round_trip(Random(1), "log"),
        *h.talk(Random(1), 4),
    ]
    groups = trial(early)
    for waiting in (_no_answer, _half_answered, _listed_twice, _answered_twice):
        history = [*h.talk(rng, rng.randint(0, 2)), *waiting(rng)]
        history += [*h.round_trip(rng, "done"), *h.talk(rng, rng.randint(3, 6))]
        trial(history, rng.randint(0, 3))
        # The same call inside the span of another one.
        inside = [h.calls(rng, "o"), *waiting(rng), h.result(rng, "o")]
        trial([*inside, *h.talk(rng, rng.randint(4, 6))], rng.randint(0, 3))
    # Several that wait, and what is higher or lower than they are.
    pair = [h.calls(rng, "o"), _SYSTEM, _TODO, h.result(rng, "o")]
    trial([*_no_answer(rng), *pair, *_half_answered(rng), h.calls(rng, "x"), *h.talk(rng, 5)])
    # And what is newest is counted in groups: a round trip at the end is one of them.
    history = [*_no_answer(rng), *h.talk(rng, rng.randint(3, 6)), *h.round_trip(rng, "x", "y")]
    for keep_recent in (0, 1, rng.randint(2, 3), 99):
        trial(history, keep_recent)
    # A group that waits is among the last ones, and no other moves up for it.
    trial([*h.talk(rng, 4), *_no_answer(rng), h.answer(rng)], 3)
    kept = [group.start for group in groups if group.keep == "unfinished"]
    return (
        f"✓ an early unfinished call is kept: message {', '.join(map(str, kept))} of "
        f"{len(early)} still waits for its result"
    )


def _no_answer(rng: Random) -> History:
    return [h.calls(rng, "w"), h.user(rng)]


def _half_answered(rng: Random) -> History:
    answered = rng.choice("vw")
    return [h.calls(rng, "v", "w"), h.result(rng, answered), h.user(rng)]


def _listed_twice(rng: Random) -> History:
    """An id listed twice needs two results."""
    return [h.calls(rng, "w", "w"), h.result(rng, "w"), h.user(rng)]


def _answered_twice(rng: Random) -> History:
    """One of two calls has two results, the other has none."""
    answered = rng.choice("vw")
    return [h.calls(rng, "v", "w"), h.result(rng, answered), h.result(rng, answered), h.user(rng)]


def _pinned_by_result(group: Group, members: Sequence[Message], pinned: Any) -> str:
    """Keep what the library keeps, and whatever a tool result says of itself."""
    by_text = any(content_of(m).startswith(PINNED_PREFIXES) for m in members)
    return "pinned" if group.keep in ("recent", "compressible") and by_text else group.keep


def _rule_not_asked(
    messages: Sequence[Message], keep_recent: int = 3, pinned: Any = None
) -> list[Group]:
    return group_messages(messages, keep_recent)


def _waiting_first(group: Group, members: Sequence[Message], pinned: Any) -> str:
    waits = group.keep == "pinned" and bool(pair_results(members)[1])
    return "unfinished" if waits else group.keep


def _pinned_first(group: Group, members: Sequence[Message], pinned: Any) -> str:
    by_rule = any(m["role"] != "tool" and pinned(m) for m in members)
    return "pinned" if by_rule and group.keep == "system" else group.keep


def _precious(message: Message) -> bool:
    """Pin what says so anywhere; a tool result may say so as well."""
    return "precious" in content_of(message)


@check(
    "group-keep",
    day=4,
    of=group_messages,
    returns=[Group],
    known=[
        Known(
            _kept_otherwise(_pinned_by_result),
            "a tool result pinned itself by its text: a fetched page could stay for ever",
        ),
        Known(_first_member_only, _ANY_MEMBER),
        Known(_rule_not_asked, "pinned was not asked: the rule that is handed in decides"),
        Known(
            _kept_otherwise(_waiting_first),
            "a pinned message makes its group pinned, also where a call in it waits",
        ),
        Known(
            _kept_otherwise(_pinned_first),
            "a system message makes its group system, also where another one in it is pinned",
        ),
    ],
    fault=_no_partition,
    view=_kinds,
    say=_say_kinds,
    tell=_tell_kinds,
)
def group_keep(trial: Trial, rng: Random) -> str:
    """System instructions and pinned messages are kept, however old they are."""
    messages = load("long").messages
    groups = trial(Named(messages, 'load("long").messages'))
    trial([])
    for keep_recent in (0, 1, 2, 3, rng.randint(0, 3)):
        trial(_kept(rng), keep_recent)
    # What is pinned is among the last ones, and no other moves up for it.
    trial([*h.talk(rng, 4), _TODO, *h.talk(rng, 1)], 2)
    # An earlier summary is not kept; a system message is system whatever it begins with.
    summary = {"role": "user", "content": f"{SUMMARY_PREFIX}\n{h.summary(rng)}"}
    trial([{**_TODO, "role": rng.choice(("system", "developer"))}, summary, *h.talk(rng, 4)])
    # Another rule: the course's own prefixes then mean nothing, and no result is asked either.
    page = h.round_trip(rng, "page")
    page[-1]["content"] = "precious: keep this page"
    told = {"role": rng.choice(("user", "assistant")), "content": "This is precious."}
    pieces = [h.talk(rng, 2), page, [told], [_TODO], h.talk(rng, 1)]
    rng.shuffle(pieces)
    history = [_SYSTEM, *(m for piece in pieces for m in piece), *h.talk(rng, 3)]
    trial(history, keep_recent=rng.randint(0, 3), pinned=_precious)
    _kept_inside(trial.but(view=_kinds_of_the_kept), rng)
    kept = [f"message {group.start} ({group.keep})" for group in groups if group.keep in KINDS[:2]]
    return f"✓ system instructions and checklist are kept: {', '.join(kept)}"


def _kept_inside(trial: Trial, rng: Random) -> None:
    """Try messages that are kept, between a call and its late result.

    That these are one group is the matter of group-atomic; here it is enough that the message
    itself is kept.
    """
    developer = {**_SYSTEM, "role": "developer"}
    for kept in (_SYSTEM, developer, _TODO):
        late = [h.calls(rng, "o"), kept, h.result(rng, "o")]
        trial([*h.talk(rng, 2), *late, *h.talk(rng, rng.randint(4, 6))])
        # Beside a call that waits, and among the newest, it is what it is.
        waiting = [h.calls(rng, "o", "p"), kept, h.result(rng, "o")]
        trial([*waiting, *h.talk(rng, rng.randint(4, 6))])
        trial([*h.talk(rng, 4), *waiting])
    # A message that calls and is pinned, with its result.
    pinned_call = {**h.calls(rng, "p"), "content": f"{PINNED_PREFIXES[0]}\n[ ] read"}
    trial([*h.talk(rng, 2), pinned_call, h.result(rng, "p"), *h.talk(rng, 4)])


def _kept(rng: Random) -> History:
    """Return a history with something to keep, and a tool result that would like to be kept."""
    first = {"role": rng.choice(("system", "developer")), "content": "You are a careful agent."}
    pins: History = [
        {"role": rng.choice(("user", "assistant")), "content": f"{prefix}\nread, fix, test"}
        for prefix in rng.sample(PINNED_PREFIXES, len(PINNED_PREFIXES))
    ]
    page = h.round_trip(rng, "page")
    page[-1]["content"] = f"{rng.choice(PINNED_PREFIXES)} keep this page for ever"
    again = {"role": rng.choice(("system", "developer")), "content": "The rules have changed."}
    pieces = [h.talk(rng, rng.randint(1, 3)), page, pins[:1], h.round_trip(rng, "c"), pins[1:]]
    rng.shuffle(pieces)
    # The newest messages are plain, so that the last three groups are the last three messages.
    return [first, *(m for piece in pieces for m in piece), again, *h.talk(rng, 3)]


# --- group-no-orphans -------------------------------------------------------------------


def _compaction_through(group: Function) -> Function:
    """Return what happens to a history when the library compacts it through a grouping."""
    checked = Trial(group, group_messages, [Group], fault=_no_partition)

    def compacted(messages: History, keep_recent: int, group: object = None) -> dict[str, Any]:
        # On its own and before: what is wrong with a group must not look like a fault of compact.
        groups = checked.read(given(messages, keep_recent))
        result = compact(
            messages,
            lambda stretch: h.summary(Random(0)),
            keep_recent=keep_recent,
            group=lambda *_: groups,
            meter=TokenMeter(),
        )
        added = Counter(problems(result.messages)) - Counter(problems(messages))
        return {
            "orphans": sorted(added.elements()),
            "abandoned": result.abandoned,
            "messages": len(result.messages),
        }

    return compacted


def _harm(given: Given, outcome: dict[str, Any]) -> dict[str, Any]:
    return {"orphans": outcome["orphans"], "abandoned": outcome["abandoned"] is not None}


def _say_harm(given: Given, view: dict[str, Any]) -> str:
    return "a history that an API accepts"


def _tell_harm(given: Given, right: dict[str, Any], seen: dict[str, Any]) -> tuple[str, str]:
    if seen["orphans"]:
        return "a history that an API accepts", "; ".join(seen["orphans"][:2])
    return "a compaction", "the compaction was abandoned: these groups leave nothing to compress"


@check("group-no-orphans", day=4, of=group_messages, returns=[Group])
def group_no_orphans(trial: Trial, rng: Random) -> str:
    """Compaction through this grouping leaves no tool result without its call."""
    through = Trial(
        _compaction_through(trial.function),
        _compaction_through(group_messages),
        dict,
        known=_orphaning(trial.function),
        view=_harm,
        say=_say_harm,
        tell=_tell_harm,
        name="compact",
    )

    def orphans_of(history: History, keep_recent: int) -> dict[str, Any]:
        shown = Named(history, outline(history, 9, end=True))
        way = Named(None, "group_messages")
        outcome: dict[str, Any] = through(shown, keep_recent=keep_recent, group=way)
        return outcome

    published = [
        {"role": "system", "content": "You are a coding agent."},
        *h.piece_of_work(Random(1), "a"),
        {"role": "user", "content": "Now the tests."},
        *h.round_trip(Random(1), "t1", "t2", lines=12),
        {"role": "assistant", "content": "Both pass."},
        {"role": "user", "content": "Thank you."},
    ]
    outcome = orphans_of(published, 3)
    for ending in (_parallel, _late, _chain, _interleaved, _reused, _duplicated):
        history = h.piece_of_work(rng, "a", trips=1)
        history += ending(rng, "t") + h.talk(rng, rng.randint(0, 2))
        orphans_of(history, rng.randint(1, 4))
    # What is kept for another reason than its age stands between a call and its result.
    for kept in (_TODO, {**_SYSTEM, "role": "developer"}, *_no_answer(rng)[:1]):
        late = [h.calls(rng, "l"), h.result(rng, "x", lines=9), kept, h.result(rng, "l", lines=9)]
        around = [h.piece_of_work(rng, name, trips=1) for name in "ab"]
        history = [*around[0], h.user(rng), *late, *around[1]]
        orphans_of(history, rng.randint(0, 2))
    return (
        "✓ compaction through this grouping leaves no orphaned tool result: "
        f"{len(published)} messages -> {outcome['messages']}"
    )


def _orphaning(group: Function) -> list[Known]:
    """Return the known mistake, where the grouping makes it: one message a group."""
    history = h.round_trip(Random(1), "a", "b")
    try:
        alone = all(end - start == 1 for start, end, _ in map(_as_tuple, group(history, 0)))
    except (Exception, SystemExit):
        return []
    if not alone:
        return []
    return [
        Known(
            _compaction_through(starter.group_messages),
            "one message a group: a call was summarised away and its result stayed behind",
        )
    ]


def _as_tuple(group: Any) -> tuple[int, int, str]:
    return (group.start, group.end, group.keep)
