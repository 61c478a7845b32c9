"""The published cases, each as it stands; and real conversations, where they are at hand."""

from __future__ import annotations

import copy
import json
import random
import runpy
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from compaction.calibration import TokenMeter
from compaction.grouping import group_messages
from compaction.history import read_histories
from compaction.messages import SUMMARY_PREFIX, calls_of, is_summary, problems, transcript
from compaction.probes import pinned_probes, verify
from compaction.summary import SummaryError, compact, parse_summary
from tests.compaction.desk import desk_conversation

TESTS = Path(__file__).resolve().parents[1]
REAL = TESTS.parent.parent / "shared" / "real"


def cases(kind):
    found = json.loads((TESTS / "cases" / f"{kind}.json").read_text(encoding="utf-8"))
    assert found
    return pytest.mark.parametrize("case", found, ids=[case["name"] for case in found])


def new_problems(before, after):
    return Counter(problems(after)) - Counter(problems(before))


@cases("grouping")
def test_grouping(case):
    original = copy.deepcopy(case["messages"])
    groups = group_messages(case["messages"], case.get("keep_recent", 0))
    assert [[group.start, group.end, group.keep] for group in groups] == case["groups"]
    assert case["messages"] == original


@cases("summaries")
def test_summaries(case):
    try:
        sections = parse_summary(case["text"])
    except SummaryError:
        sections = None
    assert (sections is not None) == case["ok"]


@cases("compaction")
def test_compaction(case):
    messages, replies = case["messages"], list(case["replies"])
    original = copy.deepcopy(messages)

    def summarize(stretch):
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if reply == "!raise":
            raise RuntimeError("the summariser failed")
        return reply

    meter = TokenMeter()
    done = compact(messages, summarize, meter=meter)
    assert messages == original
    if case["expect"] == "abandoned":
        assert done.abandoned
        assert done.messages == original
        return
    assert case["expect"] == "compacted" and done.abandoned is None
    assert meter.count(done.messages) < meter.count(original)
    assert len([m for m in done.messages if is_summary(m)]) == len(done.summaries) >= 1
    for message in done.messages:
        if message not in original and message["role"] == "user":
            assert message["content"].startswith(SUMMARY_PREFIX)
    assert not new_problems(original, done.messages)
    places = [done.messages.index(original[i]) for i in case.get("verbatim", [])]
    assert places == sorted(places)


@cases("usage")
@pytest.mark.parametrize("form", ["as it is", "as an object"])
def test_usage(case, form):
    meter = TokenMeter()
    for usage in case["usages"]:
        if form == "as an object" and isinstance(usage, dict):
            usage = SimpleNamespace(**usage)
        meter.observe([{"role": "user", "content": case["text"]}], usage)
    assert len(meter.samples) == case["samples"]
    if "tokens" in case:
        assert meter.samples[-1].tokens == case["tokens"]


# --- a real agent history -----------------------------------------------------------------


@pytest.fixture(scope="module")
def agent_history():
    source = read_histories(TESTS / "data" / "agent_history.json")
    return source.conversations[0].messages


def test_the_agent_history_is_one_that_an_api_takes(agent_history):
    assert len(agent_history) >= 60
    assert problems(agent_history) == []
    assert [probe.fact for probe in pinned_probes(agent_history)] == [
        "make ship CHANNEL=stable",
        "整数分",
    ]


def test_the_agent_history_can_be_made_again(agent_history, tmp_path):
    """The tools' results are real: run once more, they are the same (tests print differently)."""
    script = runpy.run_path(str(TESTS / "data" / "make_agent_history.py"))
    again = script["work"](tmp_path)
    assert len(again) == len(agent_history)
    names = {}
    for old, new in zip(agent_history, again, strict=True):
        names |= {call.id: call.name for call in calls_of(new)}
        if names.get(new.get("tool_call_id")) == "run_command":
            assert old["content"].splitlines()[0] == new["content"].splitlines()[0]
        else:
            assert old == new


def test_compaction_halves_a_real_history_and_keeps_its_pins(agent_history):
    probes = pinned_probes(agent_history)
    done = compact(agent_history, meter=TokenMeter(), probes=probes)
    assert done.abandoned is None
    assert done.after <= done.before / 2
    assert problems(done.messages) == []
    assert verify(probes, done.messages).lost == []
    assert done.messages[-3:] == agent_history[-3:]


def test_compaction_keeps_what_was_done_and_where(agent_history):
    """Not a topic ("discussed dates") but the finished edits and the keys to look again."""
    done = compact(agent_history, meter=TokenMeter())
    changes = " ".join(parse_summary(text)["Changes already made"] for text in done.summaries)
    whole = " ".join(done.summaries)
    for path in ("shelf/dates.py", "shelf/fees.py", "shelf/report.py", "tests/test_report.py"):
        assert f"edit_file {path}" in changes
    assert "python -m unittest" in whole


def test_compaction_keeps_what_the_assistant_said_that_it_changed(agent_history):
    done = compact(agent_history, meter=TokenMeter())
    changes = " ".join(parse_summary(text)["Changes already made"] for text in done.summaries)
    assert "Changed days_between" in changes


def test_a_session_that_is_compacted_as_it_grows_stays_in_its_window(agent_history):
    """Grown message by message, compacted whenever a turn ends above the line."""
    meter, history, times = TokenMeter(), [], 0
    window = 6000
    for message in agent_history:
        history = [*history, message]
        before = list(history)
        if message["role"] == "tool" or meter.count(history) <= 0.7 * window:
            continue
        done = compact(history, keep_recent=2, meter=meter, probes=pinned_probes(history))
        assert not new_problems(before, done.messages)
        history = done.messages
        times += done.abandoned is None
    assert times >= 2
    assert meter.count(history) < window
    assert transcript(history).count("make ship CHANNEL=stable") >= 1
    assert all(m["content"].count(SUMMARY_PREFIX) == 1 for m in history if is_summary(m))


# --- conversations of a service desk ------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_desk_conversations(seed):
    check_conversation(desk_conversation(random.Random(seed)))


def real_conversations():
    path = REAL / "airline_20.jsonl"
    return read_histories(path).conversations if path.is_file() else []


@pytest.mark.skipif(not real_conversations(), reason="the real conversations are not at hand")
def test_real_conversations():
    for conversation in real_conversations():
        check_conversation(conversation.messages)


def check_conversation(messages):
    original = copy.deepcopy(messages)
    assert problems(messages) == []
    for keep in (0, 3):
        meter = TokenMeter()
        done = compact(messages, keep_recent=keep, meter=meter, probes=pinned_probes(messages))
        assert messages == original
        assert problems(done.messages) == []
        assert done.abandoned is None
        assert done.after < done.before
        again = compact(done.messages, keep_recent=keep, meter=meter)
        assert problems(again.messages) == []
        assert again.after <= done.after
