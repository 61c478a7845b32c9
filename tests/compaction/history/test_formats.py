"""Other programs' histories become Chat Completions, or are refused by name."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from compaction import cli
from compaction.history import read_histories
from compaction.messages import problems

CASES = json.loads(
    (Path(__file__).resolve().parents[2] / "cases" / "formats.json").read_text(encoding="utf-8")
)


def named(word):
    """Return the cases that expect this, for parametrize."""
    return [pytest.param(case, id=case["name"]) for case in CASES if word in case["expect"]]


def laid(case, folder):
    path = folder / case["file"]
    data = base64.b64decode(case["base64"]) if "base64" in case else case["text"].encode()
    path.write_bytes(data)
    return path


def events(messages):
    """Say what a history holds, without saying how its neighbours of one role are joined."""
    found = []
    for message in messages:
        role, content = message["role"], message.get("content")
        said = []
        if thought := message.get("reasoning_content"):
            said.append(("thought", folded(thought)))
        for call in message.get("tool_calls") or []:
            function = call["function"]
            said.append(("call", call["id"], function["name"], json.loads(function["arguments"])))
        if role == "tool":
            found.append(("result", message.get("tool_call_id"), content))
            continue
        if isinstance(content, str) and content:
            found.append((role, folded(content)))
        for part in content if isinstance(content, list) else []:
            found.append(shape(role, part))
        found += said
    return joined(found)


def folded(text):
    return re.sub(r"\n+", "\n", text)


def shape(role, part):
    if part["type"] == "text":
        return (role, folded(part["text"]))
    if part["type"] == "image_url":
        return (role, "image", part["image_url"]["url"])
    return (role, part["type"], part[part["type"]].get("filename"))


def joined(found):
    """Join neighbouring texts of one role: blank lines and borders between them do not matter."""
    merged = []
    for event in found:
        last = merged[-1] if merged else None
        if last and len(event) == 2 and len(last) == 2 and event[0] == last[0]:
            merged[-1] = (event[0], f"{last[1]}\n{event[1]}")
        else:
            merged.append(event)
    return merged


def same(got, expected):
    """Compare two lists of events; ``"*a"`` is any id, and {"contains": [...]} asks for words."""
    ids = {}

    def equal(given, wanted):
        if isinstance(wanted, str) and re.fullmatch(r"\*\w", wanted):
            return ids.setdefault(wanted, given) == given
        if isinstance(wanted, dict) and set(wanted) == {"contains"}:
            return all(word in json.dumps(given, ensure_ascii=False) for word in wanted["contains"])
        if isinstance(wanted, tuple):
            return len(given) == len(wanted) and all(map(equal, given, wanted))
        return given == wanted

    return len(got) == len(expected) and all(map(equal, got, expected))


@pytest.mark.parametrize("case", named("messages"))
def test_a_known_form_becomes_chat_completions(case, tmp_path):
    (conversation,) = read_histories(laid(case, tmp_path)).conversations
    expected = case["expect"]["messages"]
    got = events(conversation.messages)
    assert same(got, events(expected)), got
    plain = [
        {**message, "content": "x"} if isinstance(message["content"], dict) else message
        for message in expected
    ]
    assert problems(conversation.messages) == problems(plain)


@pytest.mark.parametrize("case", named("conversations"))
def test_a_list_of_conversations_is_read_whole(case, tmp_path):
    found = read_histories(laid(case, tmp_path)).conversations
    assert len(found) == case["expect"]["conversations"]
    assert same(events(found[-1].messages), events(case["expect"]["last"]))


@pytest.mark.parametrize("case", named("refused"))
def test_a_known_file_that_is_no_history_is_refused_by_name(case, tmp_path, capsys):
    path = laid(case, tmp_path)
    assert cli.main(["estimate", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and path.name in said
    assert all(word.lower() in said.lower() for word in case["expect"]["refused"])
    any_of = case["expect"].get("any", [""])
    assert any(word.lower() in said.lower() for word in any_of)
