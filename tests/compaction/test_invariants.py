"""What holds for every history, whatever stands in it."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from compaction.budget import budget_table, should_compact
from compaction.calibration import TokenMeter
from compaction.grouping import (
    KINDS,
    clear_results,
    group_messages,
    is_checklist,
    pair_results,
    segments,
)
from compaction.messages import (
    SUMMARY_PREFIX,
    calls_of,
    content_of,
    is_summary,
    problems,
    text_of,
    transcript,
)
from compaction.probes import fold, pinned_probes, truncate, verify
from compaction.summary import (
    COMPACTION_NOTICE,
    HEADINGS,
    KEYS,
    Compaction,
    compact,
    extract,
    parse_summary,
    summary_prompt,
)
from compaction.summary.attachments import attachments_of
from tests.compaction.strategies import PINS, histories, summary_text, valid_histories

Message = dict[str, Any]
keep_counts = st.integers(0, 5)


def new_problems(before: Sequence[Message], after: Sequence[Message]) -> Counter[str]:
    return Counter(problems(after)) - Counter(problems(before))


# --- grouping ---------------------------------------------------------------------------


@given(histories(), keep_counts)
def test_groups_partition_the_messages_in_order(history, keep):
    groups = group_messages(history, keep)
    assert [position for group in groups for position in range(group.start, group.end)] == list(
        range(len(history))
    )
    assert all(group.start < group.end and group.keep in KINDS for group in groups)


@given(histories(), keep_counts)
def test_a_call_and_its_results_are_in_one_group(history, keep):
    owner, _ = pair_results(history)
    group_of = {
        position: group
        for group in group_messages(history, keep)
        for position in range(group.start, group.end)
    }
    for result, assistant in owner.items():
        assert group_of[result] == group_of[assistant]


@given(histories())
def test_pairing_follows_the_rules(history):
    """Checked against a slow pairing that looks back from each result."""
    open_calls: dict[int, list[str]] = {}
    expected = {}
    for position, message in enumerate(history):
        open_calls[position] = [call.id for call in calls_of(message) if call.id is not None]
        result_id = message.get("tool_call_id")
        if message.get("role") != "tool" or result_id is None:
            continue
        earlier = range(position - 1, -1, -1)
        callers = [i for i in earlier if any(c.id == result_id for c in calls_of(history[i]))]
        waiting = [i for i in callers if result_id in open_calls[i]]
        if waiting:
            open_calls[waiting[0]].remove(result_id)
            expected[position] = waiting[0]
        elif callers:
            expected[position] = callers[0]
    unfinished = {
        position
        for position, message in enumerate(history)
        if open_calls[position] or any(call.id is None for call in calls_of(message))
    }
    owner, found = pair_results(history)
    assert owner == expected
    assert set(found) == unfinished


@given(histories(), keep_counts)
def test_a_group_takes_the_highest_kind_among_its_members(history, keep):
    groups = group_messages(history, keep)
    _, unfinished = pair_results(history)
    for index, group in enumerate(groups):
        members = range(group.start, group.end)
        if any(history[i]["role"] in ("system", "developer") for i in members):
            expected = "system"
        elif any(is_checklist(history[i]) for i in members):
            expected = "pinned"
        elif any(i in unfinished for i in members):
            expected = "unfinished"
        else:
            expected = "recent" if index >= len(groups) - keep else "compressible"
        assert group.keep == expected


@given(histories(), keep_counts)
def test_segments_cover_exactly_what_is_compressible(history, keep):
    groups = group_messages(history, keep)
    covered = [i for start, end in segments(history, groups) for i in range(start, end)]
    assert covered == [i for g in groups if g.keep == "compressible" for i in range(g.start, g.end)]


@given(histories(), keep_counts)
def test_one_segment_holds_one_piece_of_work(history, keep):
    """After its summaries, a segment goes on to the next user message and not past it."""
    groups = group_messages(history, keep)
    starts = {group.start for group in groups}
    for start, end in segments(history, groups):
        firsts = [history[i] for i in range(start, end) if i in starts]
        while len(firsts) > 1 and is_summary(firsts[0]):
            firsts.pop(0)
        # The message that opens the piece may be the user's; none after it is.
        assert not any(m["role"] == "user" and not is_summary(m) for m in firsts[1:])


@given(histories(), keep_counts)
def test_truncation_keeps_the_keep_list_and_parts_no_pair(history, keep):
    kept = truncate(history, keep)
    assert kept == [
        message
        for group in group_messages(history, keep)
        if group.keep != "compressible"
        for message in history[group.start : group.end]
    ]
    assert not new_problems(history, kept or history)


@given(histories(), keep_counts)
def test_clearing_keeps_every_message_and_adds_no_problem(history, keep):
    original = copy.deepcopy(history)
    cleared = clear_results(history, keep)
    assert history == original
    assert [m["role"] for m in cleared] == [m["role"] for m in history]
    assert not new_problems(history, cleared)
    changed = [i for i, (a, b) in enumerate(zip(history, cleared, strict=True)) if a != b]
    assert all(history[i]["role"] == "tool" for i in changed)
    assert len(transcript(cleared)) <= len(transcript(history)) + 200 * len(
        [m for m in history if not isinstance(m.get("content"), str)]
    )


# --- compaction -------------------------------------------------------------------------


def good(messages: list[Message]) -> str:
    return summary_text({"Confirmed facts:": content_of(messages[0]).strip()[:30] or "a"})


def decorated(messages: list[Message]) -> str:
    body = ["Sure, here it is:", "## Unfinished items", "none", "**Confirmed facts:** a"]
    return "\n".join([*body, "3. Key paths and commands:", "`x`", "_Changes already made_", "b"])


def nesting(messages: list[Message]) -> str:
    return f"{SUMMARY_PREFIX}\n{summary_text()}\n{SUMMARY_PREFIX} {SUMMARY_PREFIX}"


def meddling(messages: list[Message]) -> str:
    for message in messages:
        message["content"] = "changed"
        message.pop("tool_calls", None)
    messages.clear()
    return summary_text()


def failing(messages: list[Message]) -> str:
    raise RuntimeError("the gateway is away")


GOOD: tuple[Callable[[list[Message]], Any], ...] = (extract, good, decorated, nesting, meddling)

BAD: tuple[Callable[[list[Message]], Any], ...] = (
    failing,
    lambda messages: None,
    lambda messages: " \n ",
    lambda messages: {"content": summary_text()},
    lambda messages: "We discussed divide and the tests.",
    lambda messages: "\n".join(HEADINGS),
    lambda messages: summary_text() + "\nConfirmed facts: again",
    lambda messages: "```\n" + summary_text() + "\n```",
    lambda messages: summary_text({"Confirmed facts:": "long " * 90_000}),
    lambda messages: summary_text({"Confirmed facts:": "```\nopen"}),
)


def meters() -> st.SearchStrategy[str]:
    return st.sampled_from(["fresh", "anchored on all", "anchored on a part", "anchored elsewhere"])


def make_meter(kind: str, history: list[Message]) -> TokenMeter:
    meter = TokenMeter()
    plain = meter.count(history)
    if kind == "anchored on all":
        meter.observe(history, {"prompt_tokens": 3 * plain + 500})
    elif kind == "anchored on a part":
        meter.observe(history[: len(history) // 2 + 1], {"prompt_tokens": plain // 2 + 1})
    elif kind == "anchored elsewhere":
        meter.observe([{"role": "user", "content": "other"}], 90)
    return meter


def is_kept_in_order(kept: list[Message], result: list[Message]) -> bool:
    """Whether all kept messages stand unchanged in the result; the first may have the notice."""
    rest = iter(result)
    return all(any(is_same_or_noted(message, other) for other in rest) for message in kept)


def is_same_or_noted(old: Message, new: Message) -> bool:
    if old == new:
        return True
    if old["role"] not in ("system", "developer"):
        return False
    rest_is_same = {**new, "content": None} == {**old, "content": None}
    before, after = text_of(old), text_of(new)
    return rest_is_same and after.startswith(before) and after.endswith(COMPACTION_NOTICE)


def check_compaction(
    history: list[Message], done: Compaction, keep: int, meter: TokenMeter
) -> None:
    if done.abandoned is not None:
        assert done.abandoned.strip() and "\n" not in done.abandoned.strip()
        assert done.messages == history
        assert done.summaries == [] and done.carried == []
        assert done.before == done.after
        return
    assert done.after < done.before
    assert meter.count(done.messages) == done.after
    assert not new_problems(history, done.messages)
    kept = [
        message
        for group in group_messages(history, keep)
        if group.keep != "compressible"
        for message in history[group.start : group.end]
    ]
    assert is_kept_in_order(kept, done.messages)
    # The notice stands in the system text once.
    systems = [m for m in done.messages if m["role"] in ("system", "developer")]
    assert sum(COMPACTION_NOTICE in content_of(m) for m in systems) >= 1
    added = [m for m in done.messages if is_summary(m) and m not in history]
    assert len(done.summaries) >= len(added)
    for message in added:
        assert set(message) == {"role", "content"} and message["role"] == "user"
        assert message["content"].count(SUMMARY_PREFIX) == 1
        assert list(parse_summary(message["content"].removeprefix(SUMMARY_PREFIX)))
    for text in done.summaries:
        assert sorted(parse_summary(text)) == sorted(KEYS)
        assert any(
            message["content"] == f"{SUMMARY_PREFIX}\n{text}"
            for message in done.messages
            if is_summary(message)
        )


@settings(max_examples=150)
@given(
    histories(least=4), keep_counts, st.sampled_from(GOOD), meters(), st.sampled_from([0, 20, 100])
)
def test_compaction(history, keep, summarize, meter_kind, least):
    original = copy.deepcopy(history)
    meter = make_meter(meter_kind, history)
    done = compact(history, summarize, keep_recent=keep, meter=meter, min_segment_tokens=least)
    assert history == original
    event(f"compacted: {done.abandoned is None}")
    check_compaction(history, done, keep, meter)


@given(histories(least=3), keep_counts, st.sampled_from(BAD), st.booleans())
def test_a_bad_summary_abandons_everything(history, keep, summarize, at_the_end):
    """Whether the first reply is bad or only the last: not one byte changes."""
    original = copy.deepcopy(history)
    stretches = segments(history, group_messages(history, keep))
    number = 0

    def reply(messages: list[Message]) -> Any:
        nonlocal number
        number += 1
        return extract(messages) if at_the_end and number < len(stretches) else summarize(messages)

    done = compact(history, reply, keep_recent=keep, meter=TokenMeter(), min_segment_tokens=0)
    event(f"stretches: {min(3, len(stretches))}")
    assert done.abandoned is not None
    assert history == original
    check_compaction(history, done, keep, TokenMeter())


@settings(max_examples=100)
@given(valid_histories(), keep_counts)
def test_a_valid_history_stays_valid(history, keep):
    assert problems(history) == []
    done = compact(history, keep_recent=keep, meter=TokenMeter())
    event(f"compacted: {done.abandoned is None}")
    assert problems(done.messages) == []


@settings(max_examples=100)
@given(histories(), st.sampled_from(PINS), st.integers(0, 5), keep_counts, meters())
def test_pinned_facts_are_never_lost(history, pin, place, keep, meter_kind):
    pinned = {"role": "user", "content": f"{pin} {'And look at the log. ' * 20}"}
    history = [*history[:place], pinned, *history[place:]]
    probes = pinned_probes(history)
    assert probes
    at_stake = verify(probes, history).kept
    meter = make_meter(meter_kind, history)
    done = compact(history, good, keep_recent=keep, meter=meter, probes=probes)
    event(f"compacted: {done.abandoned is None}")
    assert verify(at_stake, done.messages).lost == []
    check_compaction(history, done, keep, meter)
    if done.carried:
        assert all(
            any(fold(probe.fact) in fold(text) for text in done.summaries) for probe in done.carried
        )


@settings(max_examples=100)
@given(histories(), keep_counts, st.sampled_from([0, 100]))
def test_compacting_again_changes_nothing_or_shrinks(history, keep, least):
    meter = TokenMeter()
    messages = history
    for _ in range(4):
        done = compact(messages, keep_recent=keep, meter=meter, min_segment_tokens=least)
        if done.abandoned is not None:
            assert done.messages == messages
            break
        assert done.after < done.before
        assert not new_problems(history, done.messages)
        notices = sum(content_of(m).count(COMPACTION_NOTICE) for m in done.messages)
        before = sum(content_of(m).count(COMPACTION_NOTICE) for m in messages)
        assert notices <= max(1, before)
        messages = done.messages


# --- the summariser without a model -------------------------------------------------------


def sources_of(messages: list[Message]) -> str:
    """All that an extract may copy: the folded texts, call arguments as they mean, attachments."""
    lines = [text_of(message) for message in messages]
    lines += [name for message in messages for name in attachments_of(message)]
    for message in messages:
        lines += [f"{call.name} {call.arguments}" for call in calls_of(message)]
        for call in calls_of(message):
            values = decoded_values(call.arguments)
            lines += values
            lines += [f"{call.name} {value}" for value in values]  # a call as a line names it
    return "\n".join(fold(line.replace(SUMMARY_PREFIX, "")) for line in lines)


def decoded_values(arguments: str) -> list[str]:
    try:
        values = json.loads(arguments)
    except ValueError:
        return []
    return [v for v in values.values() if isinstance(v, str)] if isinstance(values, dict) else []


def pieces_of(line: str) -> list[str]:
    """What a line claims to have copied: all of it, or an origin and the values beside it."""
    # In words of ours: who said it, and how often it was done before.
    line = re.sub(r"^(?:\(assistant\) |（助手）)|[ （(]+\d+ more before\)$", "", line)
    record = re.fullmatch(r"[(（](?:from |来自 ?)(.+?)[)）] ?(.+)", line)
    if record is None:
        return [line]
    origin, values = record.groups()
    spoken = [] if origin in ("the assistant", "the user", "a tool") else [origin]
    return spoken + [value.strip('"') for value in re.split(r"[;,] ", values)]


@settings(max_examples=200)
@given(histories())
def test_an_extract_is_copied_bounded_and_repeatable(history):
    text = extract(history)
    assert text == extract(copy.deepcopy(history))
    sections = parse_summary(text)
    source = sources_of(history)
    for body in sections.values():
        for line in body.splitlines():
            if line in ("none", "无"):
                continue
            assert line.startswith("- ")
            copied = line.removeprefix("- ").replace(SUMMARY_PREFIX, "")
            for piece in pieces_of(copied):
                assert fold(piece) in source or piece in source
    pins = sum(len(probe.fact) + 240 for probe in pinned_probes(history))
    earlier = sum(len(content_of(m)) for m in history if is_summary(m))
    assert len(text) < 1600 + 400 + pins + earlier


@given(histories())
def test_the_prompt_quotes_every_line(history):
    """A message begins behind one blank; its other lines stand further in."""
    quoted = [
        f"| {'  ' * bool(index)}{line}"
        for message in history
        for index, line in enumerate(transcript([message]).splitlines())
    ]
    for language in ("en", "zh"):
        lines = summary_prompt(history, language).splitlines()
        assert lines[-len(quoted) :] == quoted
        assert not any(line.startswith("| ") for line in lines[: -len(quoted)])


# --- counting ---------------------------------------------------------------------------


@given(histories(), st.integers(1, 10**6), meters())
def test_the_rows_of_the_budget_add_up(history, window, meter_kind):
    meter = make_meter(meter_kind, history)
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": {}}}]
    rows = budget_table(history, window, meter)
    assert len(rows) == 7 and all(row.tokens >= 0 for row in rows)
    assert sum(row.tokens for row in rows) == meter.count(history)
    with_tools = budget_table(history, window, meter, tools)
    assert sum(row.tokens for row in with_tools) == meter.count(history, tools)
    assert should_compact(history, window, 0.5, meter) == (
        meter.count(history) > round(window * 0.5, 6)
    )


@settings(max_examples=100)
@given(st.lists(histories(most=3), min_size=1, max_size=6), st.data())
def test_counting_in_passing_equals_counting_anew(stretches, data):
    """A meter that has seen every turn of a session counts as one that sees it first."""
    passing = TokenMeter()
    history: list[Message] = []
    for stretch in stretches:
        history = history + stretch if data.draw(st.booleans()) else [*history[:1], *stretch]
        assert passing.count(history) == TokenMeter().count(history)
