"""Every case of histories.json, by what it calls.

A test of another room takes the cases that it answers: ``cases_of("count")``.
"""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from pathlib import Path

import pytest

from compaction.calibration import TokenMeter
from compaction.compactor import compact_history
from compaction.messages import calls_of, problems, text_of
from compaction.probes import fold
from compaction.summary import extract, parse_summary

CASES = Path(__file__).resolve().parents[1] / "cases" / "histories.json"


def cases_of(*kinds):
    found = json.loads(CASES.read_text(encoding="utf-8"))
    chosen = [case for case in found if case["call"]["do"] in kinds]
    assert chosen
    return pytest.mark.parametrize("case", chosen, ids=[case["name"] for case in chosen])


@cases_of("extract")
def test_extract(case):
    original = copy.deepcopy(case["messages"])
    text = extract(case["messages"])
    assert case["messages"] == original
    check_text(text, case)
    sections = parse_summary(text)
    for heading, facts in case["expect"].get("under", {}).items():
        for fact in facts:
            assert found_in(fact, sections[heading]), (heading, fact)
    for heading, facts in case["expect"].get("not_under", {}).items():
        for fact in facts:
            assert not found_in(fact, sections[heading]), (heading, fact)


@cases_of("compact")
def test_compact_history(case):
    call, expect = case["call"], case["expect"]
    messages = copy.deepcopy(case["messages"])
    replies = list(call.get("replies", ()))

    def scripted(stretch):
        return replies.pop(0) if len(replies) > 1 else replies[0]

    for number in range(1, call.get("times", 1) + 1):
        if number > 1:
            grown = json.loads(json.dumps(call["more"]).replace("{n}", str(number)))
            messages = messages + grown
        before = copy.deepcopy(messages)
        summarize = scripted if replies else extract
        done = compact_history(messages, summarize, meter=TokenMeter(), **call.get("options", {}))
        assert messages == before
        messages = done.messages
    check_text("\n".join(text_of(message) for message in messages), case)
    if "abandoned" in expect:
        assert bool(done.abandoned) == expect["abandoned"], done.abandoned
        assert not done.abandoned or messages == before
    for words in expect.get("reason", ()):
        assert found_in(words, done.abandoned), done.abandoned
    original = case["messages"]
    for position in expect.get("verbatim", ()):
        assert original[position] in messages
    for position in expect.get("changed", ()):
        assert original[position] not in messages
    if "at_most_tokens" in expect:
        assert TokenMeter().count(messages) <= expect["at_most_tokens"]
    if expect.get("problems_none"):
        assert problems(messages) == []
    if expect.get("alternates"):
        check_alternates(messages)
    if "whole" in expect:
        named = problems(original) or done.abandoned
        assert named or all(word in json.dumps(messages) for word in expect["whole"])


def found_in(fact, text):
    words = [fact] if isinstance(fact, str) else fact
    return any(fold(word).lower() in fold(text).lower() for word in words)


def check_text(text, case):
    for fact in case["expect"].get("anywhere", ()):
        assert found_in(fact, text), fact
    for fact in case["expect"].get("nowhere", ()):
        assert not found_in(fact, text), fact
    for wanted in case["expect"].get("from_tool", ()):
        above = ""
        for line in text.splitlines():
            if fold(wanted["fact"]).lower() in fold(line).lower():
                assert found_in(wanted["names"], line) or found_in(wanted["names"], above), line
            if not line.startswith((" ", "\t")):
                above = line


def check_alternates(messages):
    roles = [message["role"] for message in messages]
    spoken = [role for role in roles if role not in ("system", "developer")]
    assert spoken[0] == "user"
    assert "system" not in roles[len(roles) - len(spoken) :]
    for first, second in pairwise(messages):
        same = first["role"] == second["role"] and first["role"] in ("user", "assistant")
        assert not same or calls_of(first)
