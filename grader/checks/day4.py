"""Day 4: what belongs together, and what stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from compaction.calibration import TokenMeter
from compaction.grouping import KINDS, PINNED_PREFIXES, Group, is_checklist, pair_results
from compaction.grouping import group_messages as library_group_messages
from compaction.messages import Message, calls_of, content_of, problems
from compaction.session import load
from compaction.summary import compact
from grader.checks import histories as h
from grader.checks.check import Check, Function
from grader.checks.show import show
from grader.checks.trial import Given, Known, Trial, given
from grader.starters import day4 as starter


def _call(messages: list[Message], keep_recent: int = 3, name: str = "") -> Given:
    shown = name or h.outline(messages)
    if keep_recent == 3:
        return given(f"group_messages({shown})", messages)
    return given(f"group_messages({shown}, keep_recent={keep_recent})", messages, keep_recent)


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


def _span(start: int, end: int) -> str:
    alone = end == start + 1
    return f"message {start} alone" if alone else f"messages {start} to {end - 1} as one group"


def _by_neighbours(messages: Sequence[Message], keep_recent: int = 3) -> list[Group]:
    """Group a call with the tool results right behind it, whatever their ids are."""
    starts = [
        position
        for position, message in enumerate(messages)
        if message.get("role") != "tool"
        or position == 0
        or not (messages[position - 1].get("role") == "tool" or calls_of(messages[position - 1]))
    ]
    ends = [*starts[1:], len(messages)]
    return [Group(*span, "compressible") for span in zip(starts, ends, strict=True)]


def group_atomic(group_messages: Function, rng: Random) -> str:
    """An assistant message with tool calls and all its results are one group."""
    parallel = [h.user(rng), *h.round_trip(rng, "a", "b"), h.user(rng)]
    late = [h.calls(rng, "a"), h.user(rng), h.result(rng, "a")]
    trial = Trial(
        group_messages,
        library_group_messages,
        [Group],
        known=[
            Known(
                starter.group_messages,
                "one message a group: an assistant message and the results of its calls "
                "are inseparable",
            ),
            Known(
                _by_neighbours,
                "results were taken by their place: a result belongs to the call with its id, "
                "wherever it stands",
            ),
        ],
        evidence=[_call(parallel), _call(late)],
        fault=_no_partition,
        view=_spans,
        tell=_tell_spans,
    )
    messages = load("long").messages
    groups = trial.on(_call(messages, name='load("long").messages'))
    kinds = (_parallel, _late, _overlapping, _reused, _duplicated, _missing)
    for drawn in kinds:
        trial.on(_call(drawn(rng)))
    for _ in range(6):
        pieces = rng.sample(kinds, 2)
        trial.on(_call([m for number, drawn in enumerate(pieces) for m in drawn(rng, f"{number}")]))
    pairs = sum(group.end - group.start > 1 for group in groups)
    return (
        f"✓ a call and its results are one group: {len(messages)} messages in {len(groups)} "
        f"groups, {pairs} of them round trips"
    )


def _parallel(rng: Random, name: str = "") -> list[Message]:
    ids = [f"{name}{letter}" for letter in "abc"[: rng.randint(2, 3)]]
    return [h.user(rng), *h.round_trip(rng, *ids), h.answer(rng)]


def _late(rng: Random, name: str = "") -> list[Message]:
    """A result that comes after the conversation has gone on."""
    between = h.talk(rng, rng.randint(1, 2))
    return [
        h.calls(rng, f"{name}a", f"{name}b"),
        h.result(rng, f"{name}b"),
        *between,
        h.result(rng, f"{name}a"),
        h.answer(rng),
    ]


def _overlapping(rng: Random, name: str = "") -> list[Message]:
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


def _reused(rng: Random, name: str = "") -> list[Message]:
    """An id that a second call uses again."""
    return [*h.round_trip(rng, f"{name}a"), h.user(rng), *h.round_trip(rng, f"{name}a")]


def _duplicated(rng: Random, name: str = "") -> list[Message]:
    """A result that comes twice."""
    return [*h.round_trip(rng, f"{name}a"), h.result(rng, f"{name}a"), h.user(rng)]


def _missing(rng: Random, name: str = "") -> list[Message]:
    """A result of a call that nobody made, and a call without a result."""
    return [h.result(rng, f"{name}x"), h.user(rng), h.calls(rng, f"{name}a"), h.answer(rng)]


# --- group-unfinished and group-keep ----------------------------------------------------


def _kinds(given: Given, groups: list[Group]) -> list[str]:
    """Return the kind of each message's group."""
    return [group.keep for group in groups for _ in range(group.start, group.end)]


def _kinds_of_the_kept(given: Given, groups: list[Group]) -> list[str]:
    """Return the kinds, those of plain messages left blank."""
    return [
        kind if message["role"] == "system" or is_checklist(message) else ""
        for message, kind in zip(given.args[0], _kinds(given, groups), strict=True)
    ]


def _tell_kinds(given: Given, right: list[str], seen: list[str]) -> tuple[str, str]:
    first = next(i for i, pair in enumerate(zip(right, seen, strict=True)) if pair[0] != pair[1])
    message = h.outline([given.args[0][first]])[1:-1]
    place = f"message {first} ({message})"
    return f'{place} is "{right[first]}"', f'"{seen[first]}"'


def _recent_messages(messages: Sequence[Message], keep_recent: int = 3) -> list[Group]:
    """Keep the last few messages instead of the last few groups."""
    first = len(messages) - keep_recent
    return [
        replace(group, keep="recent")
        if group.keep == "compressible" and group.start >= first
        else group
        for group in library_group_messages(messages, 0)
    ]


def _first_member_only(messages: Sequence[Message], keep_recent: int = 3) -> list[Group]:
    """Ask only the first message of each group what it is."""
    groups = library_group_messages(messages, keep_recent)
    waiting = pair_results(messages)[1]
    kinds = []
    for number, group in enumerate(groups):
        first = messages[group.start]
        if first["role"] in ("system", "developer"):
            kinds.append("system")
        elif is_checklist(first):
            kinds.append("pinned")
        elif group.start in waiting:
            kinds.append("unfinished")
        else:
            recent = number >= len(groups) - keep_recent
            kinds.append("recent" if recent else "compressible")
    return [replace(group, keep=kind) for group, kind in zip(groups, kinds, strict=True)]


_ANY_MEMBER = "any message in a group may be the one that counts, not only its first"


def group_unfinished(group_messages: Function, rng: Random) -> str:
    """A call that still waits for a result is kept, however old it is."""
    trial = Trial(
        group_messages,
        library_group_messages,
        [Group],
        known=[
            Known(
                starter.group_messages,
                "a call that nobody has answered yet is given away: its result would come "
                "back to nothing",
            ),
            Known(
                _recent_messages,
                "the newest messages were counted, not the newest groups: a call and its "
                "results count once",
            ),
            Known(_first_member_only, _ANY_MEMBER),
        ],
        evidence=[_call([h.calls(rng, "a"), h.user(rng), h.answer(rng), h.user(rng)], 2)],
        fault=_no_partition,
        view=_kinds,
        tell=_tell_kinds,
    )
    early = [
        {"role": "user", "content": "Start the long build, and meanwhile read the log."},
        h.calls(Random(1), "build"),
        {"role": "user", "content": "And?"},
        *h.round_trip(Random(1), "log"),
        *h.talk(Random(1), 4),
    ]
    groups = trial.on(_call(early))
    for waiting in (_no_answer, _half_answered, _listed_twice):
        keep_recent = rng.randint(0, 3)
        history = [*h.talk(rng, rng.randint(0, 2)), *waiting(rng)]
        history += [*h.round_trip(rng, "done"), *h.talk(rng, rng.randint(3, 6))]
        trial.on(_call(history, keep_recent))
    # And what is newest is counted in groups: a round trip at the end is one of them.
    history = [*_no_answer(rng), *h.talk(rng, rng.randint(3, 6)), *h.round_trip(rng, "x", "y")]
    trial.on(_call(history, rng.randint(2, 3)))
    # A call that waits inside the span of another one.
    inside = [h.calls(rng, "o"), *_no_answer(rng), h.result(rng, "o")]
    trial.on(_call([*inside, *h.talk(rng, rng.randint(4, 6))]))
    kept = [group.start for group in groups if group.keep == "unfinished"]
    return (
        f"✓ an early unfinished call is kept: message {', '.join(map(str, kept))} of "
        f"{len(early)} still waits for its result"
    )


def _no_answer(rng: Random) -> list[Message]:
    return [h.calls(rng, "w"), h.user(rng)]


def _half_answered(rng: Random) -> list[Message]:
    answered = rng.choice("vw")
    return [h.calls(rng, "v", "w"), h.result(rng, answered), h.user(rng)]


def _listed_twice(rng: Random) -> list[Message]:
    """An id listed twice needs two results."""
    return [h.calls(rng, "w", "w"), h.result(rng, "w"), h.user(rng)]


def _pinned_by_result(messages: Sequence[Message], keep_recent: int = 3) -> list[Group]:
    """Keep what the library keeps, and whatever a tool result says of itself."""
    return [
        Group(group.start, group.end, "pinned")
        if group.keep in ("recent", "compressible")
        and any(
            content_of(m).startswith(PINNED_PREFIXES) for m in messages[group.start : group.end]
        )
        else group
        for group in library_group_messages(messages, keep_recent)
    ]


def group_keep(group_messages: Function, rng: Random) -> str:
    """System instructions and pinned messages are kept, however old they are."""
    trial = Trial(
        group_messages,
        library_group_messages,
        [Group],
        known=[
            Known(
                _pinned_by_result,
                "a tool result pinned itself by its text: a fetched page could stay for ever",
            ),
            Known(_first_member_only, _ANY_MEMBER),
        ],
        fault=_no_partition,
        view=_kinds,
        tell=_tell_kinds,
    )
    messages = load("long").messages
    groups = trial.on(_call(messages, name='load("long").messages'))
    for _ in range(5):
        keep_recent = rng.randint(0, 3)
        trial.on(_call(_kept(rng), keep_recent))
    # What is kept may also stand between a call and its late result. That these are one group is
    # the matter of group-atomic; here it is enough that the message itself is kept.
    inside = replace(trial, view=_kinds_of_the_kept)
    for role, text in (("system", "Be brief."), ("user", f"{PINNED_PREFIXES[0]}\nread, test")):
        late = [h.calls(rng, "o"), {"role": role, "content": text}, h.result(rng, "o")]
        inside.on(_call([*h.talk(rng, 2), *late, *h.talk(rng, rng.randint(4, 6))]))
    kept = [f"message {group.start} ({group.keep})" for group in groups if group.keep in KINDS[:2]]
    return f"✓ system instructions and checklist are kept: {', '.join(kept)}"


def _kept(rng: Random) -> list[Message]:
    """Return a history with something to keep, and a tool result that would like to be kept."""
    first = {"role": rng.choice(("system", "developer")), "content": "You are a careful agent."}
    pins: list[Message] = [
        {"role": rng.choice(("user", "assistant")), "content": f"{prefix}\nread, fix, test"}
        for prefix in rng.sample(PINNED_PREFIXES, rng.randint(1, 3))
    ]
    page = h.round_trip(rng, "page")
    page[-1]["content"] = f"{rng.choice(PINNED_PREFIXES)} keep this page for ever"
    pieces = [h.talk(rng, rng.randint(1, 3)), page, pins[:1], h.round_trip(rng, "c"), pins[1:]]
    rng.shuffle(pieces)
    # The newest messages are plain, so that the last three groups are the last three messages.
    return [first, *(m for piece in pieces for m in piece), *h.talk(rng, 3)]


# --- group-no-orphans -------------------------------------------------------------------


def _compaction_through(group: Function, call: str) -> Callable[..., dict[str, Any]]:
    """Return what happens to a history when the library compacts it through a grouping."""
    checked = Trial(group, group, [Group], fault=_no_partition)

    def compacted(messages: list[Message], keep_recent: int) -> dict[str, Any]:
        # On its own and before: what is wrong with a group must not look like a fault of compact.
        groups = checked.on(given(call, messages, keep_recent))
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


def _tell_harm(given: Given, right: dict[str, Any], seen: dict[str, Any]) -> tuple[str, str]:
    if seen["orphans"]:
        return "a history that an API accepts", "; ".join(seen["orphans"][:2])
    return "a compaction", "the compaction was abandoned: these groups leave nothing to compress"


def group_no_orphans(group_messages: Function, rng: Random) -> str:
    """Compaction through this grouping leaves no tool result without its call."""
    published = [
        {"role": "system", "content": "You are a coding agent."},
        *h.piece_of_work(Random(1), "a"),
        {"role": "user", "content": "Now the tests."},
        *h.round_trip(Random(1), "t1", "t2", lines=12),
        {"role": "assistant", "content": "Both pass."},
        {"role": "user", "content": "Thank you."},
    ]
    outcome = _orphans_of(group_messages, published, 3)
    for _ in range(5):
        pieces = [h.piece_of_work(rng, name) for name in "ab"]
        tail = rng.choice((_parallel, _late, _reused, _duplicated))(rng, "t")
        history = [m for piece in pieces for m in piece] + tail + h.talk(rng, rng.randint(0, 2))
        _orphans_of(group_messages, history, rng.randint(1, 4))
    return (
        "✓ compaction through this grouping leaves no orphaned tool result: "
        f"{len(published)} messages -> {outcome['messages']}"
    )


def _orphans_of(group: Function, history: list[Message], keep_recent: int) -> dict[str, Any]:
    shown = h.outline(history, 9, end=True)
    call = f"compact({shown}, keep_recent={keep_recent}, group=group_messages)"
    through = partial(_compaction_through, call=call)
    trial = Trial(
        through(group),
        through(library_group_messages),
        dict,
        known=[
            Known(
                through(starter.group_messages),
                "one message a group: a call was summarised away and its result stayed behind",
            )
        ],
        view=_harm,
        tell=_tell_harm,
    )
    outcome: dict[str, Any] = trial.on(given(call, history, keep_recent))
    return outcome


CHECKS = (
    Check(
        "group-atomic",
        4,
        "group_messages",
        "An assistant message with tool calls and all its results are one group.",
        group_atomic,
    ),
    Check(
        "group-unfinished",
        4,
        "group_messages",
        "A call that still waits for its result is kept, however old it is.",
        group_unfinished,
    ),
    Check(
        "group-keep",
        4,
        "group_messages",
        "System instructions and pinned messages are kept, however old they are.",
        group_keep,
    ),
    Check(
        "group-no-orphans",
        4,
        "group_messages",
        "Compaction through this grouping leaves no tool result without its call.",
        group_no_orphans,
    ),
)
