"""Replies as gateways really send them: whole, in pieces, with fields of their own, broken."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace as Object
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from compaction.engine import Reply, ReplyError, read_reply, reply_with
from compaction.engine.provenance import as_sent
from compaction.engine.thoughts import Visible, without_thoughts
from compaction.messages import problems
from tests.builders import call, result, said, user

CASES = Path(__file__).resolve().parents[2] / "cases" / "histories.json"
HELLO = [user("Weather in Oslo?")]
SIGNED = {"google": {"thought_signature": "c2ln"}}


def stub(answer: Any, seen: list[dict[str, Any]] | None = None) -> Any:
    def create(**request: Any) -> Any:
        if seen is not None:
            seen.append(request)
        return answer

    return Object(chat=Object(completions=Object(create=create)))


def whole(message: dict[str, Any], finish_reason: str = "stop", **more: Any) -> ChatCompletion:
    choice = {"index": 0, "finish_reason": finish_reason, "message": message}
    return ChatCompletion.construct(
        **json.loads(json.dumps({"id": "1", "model": "m", "choices": [choice], **more}))
    )


def chunks(*deltas: dict[str, Any], finish_reason: str | None = "stop") -> list[Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish_reason})
    return [ChatCompletionChunk.construct(id="1", choices=[choice]) for choice in choices]


def streamed(*deltas: dict[str, Any], finish_reason: str | None = "stop") -> tuple[Reply, str]:
    shown: list[str] = []
    ask = reply_with(stub(chunks(*deltas, finish_reason=finish_reason)), "m", on_text=shown.append)
    return read_reply(ask(HELLO, None), fresh_id="new"), "".join(shown)


def asked(answer: Any) -> Reply:
    return read_reply(reply_with(stub(answer), "m")(HELLO, None), fresh_id="new")


def forecast(arguments: Any = '{"city": "Oslo"}', **more: Any) -> dict[str, Any]:
    return call("c1", "weather", arguments, **more)


def names_and_arguments(reply: Reply) -> list[tuple[str, str]]:
    calls = reply.message["tool_calls"]
    return [(c["function"]["name"], c["function"]["arguments"]) for c in calls]


# --- fields of their own ------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [case for case in json.loads(CASES.read_text("utf-8")) if case["call"]["do"] == "reply"],
    ids=lambda case: case["name"],
)
@pytest.mark.parametrize("form", ["objects", "plain"])
def test_the_published_cases(case: dict[str, Any], form: str) -> None:
    message = {"role": "assistant", **case["call"]["reply"]}
    finish = case["call"].get("finish", "stop")
    answer: Any = whole(message, finish)
    if form == "plain":
        answer = Object(choices=[Object(message=message, finish_reason=finish)], usage=None)
    found: Any = asked(answer).message
    for path, wanted in case["expect"]["fields"].items():
        value = found
        for step in path.split("."):
            value = value[int(step)] if step.isdigit() else value[step]
        assert value == wanted


OWN_FIELDS: list[dict[str, Any]] = [
    {"reasoning_content": "The tool knows."},
    {"reasoning": "The tool knows."},
    {"reasoning_details": [{"type": "reasoning.text", "text": "T", "index": 0, "signature": None}]},
    {"a_field_of_tomorrow": {"x": [1, None]}},
    {"tool_calls": [forecast(extra_content=SIGNED)]},
]


@pytest.mark.parametrize("fields", OWN_FIELDS, ids=lambda fields: next(iter(fields)))
def test_fields_of_their_own_go_back_to_their_maker_and_to_nobody_else(fields) -> None:
    message = {"role": "assistant", "content": "Sunny.", **fields}
    adopted = asked(whole(message)).message
    assert adopted == {**message, "model": "m"}
    kept = json.loads(json.dumps(adopted))  # as a session is saved and read again
    seen: list[dict[str, Any]] = []
    for model in ("m", "another"):
        reply_with(stub(whole({"content": "ok"}), seen), model)([*HELLO, kept], None)
    assert seen[0]["messages"][1] == message
    common = said("Sunny.")
    assert seen[1]["messages"][1] == (
        {**common, "tool_calls": [forecast()]} if "tool_calls" in fields else common
    )


def test_a_plain_reply_gains_no_field() -> None:
    message = {"role": "assistant", "content": "ok", "annotations": [], "refusal": None}
    assert asked(whole(message)).message == said("ok")


def test_fields_whose_maker_is_unknown_are_not_sent() -> None:
    message = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}
    assert as_sent(message, "m") == said("4")


def test_streamed_fields_are_joined() -> None:
    reply, shown = streamed(
        {"role": "assistant", "reasoning_content": "The tool "},
        {"reasoning_content": "knows."},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "The "}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "tool."}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "s"}]},
        {"content": "Sun"},
        {"content": "ny."},
    )
    assert shown == "Sunny."
    assert reply.message["content"] == "Sunny."
    assert reply.message["reasoning_content"] == "The tool knows."
    details = [{"type": "reasoning.text", "index": 0, "text": "The tool.", "signature": "s"}]
    assert reply.message["reasoning_details"] == details


# --- calls in pieces ----------------------------------------------------------------------


def piece(index: int | None = 0, call_id: str | None = None, **function: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "id": call_id, "function": function}]}


TWO_CALLS = [("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Rome"}')]
STREAMS = {
    "an index each": [
        piece(0, "a", name="weather", arguments=""),
        piece(0, arguments='{"city": "Oslo"}'),
        piece(1, "b", name="weather", arguments='{"city": '),
        piece(1, arguments='"Rome"}'),
    ],
    "index 0 for all, a new id each": [
        piece(0, "a", name="weather", arguments='{"city": '),
        piece(0, arguments='"Oslo"}'),
        piece(0, "b", name="weather", arguments=""),
        piece(0, arguments='{"city": "Rome"}'),
    ],
    "whole calls, index 0 for all": [
        piece(0, "a", name="weather", arguments='{"city": "Oslo"}'),
        piece(0, "b", name="weather", arguments='{"city": "Rome"}'),
    ],
    "whole calls without an index": [
        piece(None, "a", name="weather", arguments='{"city": "Oslo"}'),
        piece(None, "b", name="weather", arguments='{"city": "Rome"}'),
    ],
    "neither ids nor indexes": [
        piece(0, name="weather", arguments='{"city": "Oslo"}'),
        piece(0, name="weather", arguments='{"city": "Rome"}'),
    ],
    "neither ids nor indexes, in pieces": [
        piece(0, name="weather", arguments=""),
        piece(0, arguments='{"city": "Oslo"}'),
        piece(0, name="weather", arguments=""),
        piece(0, arguments='{"city": "Rome"}'),
    ],
    "id and name in every piece": [
        piece(0, "a", name="weather", arguments='{"city": '),
        piece(0, "a", name="weather", arguments='"Oslo"}'),
        piece(1, "b", name="weather", arguments='{"city": '),
        piece(1, "b", name="weather", arguments='"Rome"}'),
    ],
    "one id for both": [
        piece(0, "a", name="weather", arguments='{"city": "Oslo"}'),
        piece(1, "a", name="weather", arguments='{"city": "Rome"}'),
    ],
    "arguments as objects": [
        piece(0, "a", name="weather", arguments={"city": "Oslo"}),
        piece(1, "b", name="weather", arguments={"city": "Rome"}),
    ],
    "both in one event, index 0": [
        {
            "tool_calls": [
                {"index": 0, "id": "a", "function": {"name": "weather", "arguments": "{"}},
                {"index": 0, "id": "b", "function": {"name": "weather", "arguments": "{"}},
            ]
        },
        piece(0, "a", arguments='"city": "Oslo"}'),
        piece(0, "b", arguments='"city": "Rome"}'),
    ],
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_two_parallel_calls_are_two_calls(stream) -> None:
    reply, _ = streamed(*stream, finish_reason="tool_calls")
    assert names_and_arguments(reply) == TWO_CALLS
    ids = [c["id"] for c in reply.message["tool_calls"]]
    assert len(set(ids)) == 2 and all(ids)
    assert not reply.broken
    results = [result(i, "ok") for i in ids]
    assert problems([*HELLO, reply.message, *results]) == []


def test_what_rides_on_a_streamed_call_stays_on_it() -> None:
    first = {"index": 0, "id": "a", "extra_content": SIGNED, "function": {"name": "weather"}}
    reply, _ = streamed(
        {"tool_calls": [first]},
        piece(0, arguments="{}"),
        piece(0, "b", name="weather", arguments="{}"),
    )
    calls = reply.message["tool_calls"]
    assert calls[0]["extra_content"] == SIGNED and "extra_content" not in calls[1]


# --- broken calls -------------------------------------------------------------------------

ARGUMENTS = [
    ('{"city": "Oslo"}', '{"city": "Oslo"}', ""),
    ({"city": "Oslo"}, '{"city": "Oslo"}', ""),
    ('{"city": "Os', "{}", "cut off"),
    ("", "{}", "without arguments"),
    (None, "{}", "without arguments"),
    ("null", "{}", "without arguments"),
    ("[1]", "{}", "not a JSON object"),
    ("[" * 100_000, "{}", "cut off"),
]


@pytest.mark.parametrize(("arguments", "kept", "fault"), ARGUMENTS)
def test_arguments_that_are_not_a_json_object_are_stored_as_an_empty_one(
    arguments, kept, fault
) -> None:
    reply = asked(whole({"content": None, "tool_calls": [forecast(arguments)]}, "tool_calls"))
    assert names_and_arguments(reply) == [("weather", kept)]
    assert fault in reply.broken.get("c1", "") and bool(reply.broken) == bool(fault)
    assert read_reply(reply).broken == reply.broken  # adopting it once more forgets nothing


def test_an_answer_cut_off_before_the_arguments_is_a_broken_call() -> None:
    reply = asked(whole({"content": None, "tool_calls": [forecast("")]}, "length"))
    assert "cut off" in reply.broken["c1"] and reply.finish_reason == "length"


@pytest.mark.parametrize("name", ["", None, "no such.tool!", "x" * 100])
def test_a_name_that_no_api_takes_back_is_mended(name) -> None:
    function = {"name": name, "arguments": "{}"}
    mended = read_reply({"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]})
    kept = mended.message["tool_calls"][0]["function"]["name"]
    assert kept and len(kept) <= 64 and kept.replace("_", "").replace("-", "").isalnum()


@pytest.mark.parametrize("ids", [[None, None], ["", "a"], ["a", "a"], ["new_0", None], [7, 7]])
def test_every_call_gets_an_id_of_its_own(ids) -> None:
    calls = [{**forecast(), "id": i} for i in ids]
    mended = read_reply({"role": "assistant", "tool_calls": calls}, fresh_id="new").message
    found = [c["id"] for c in mended["tool_calls"]]
    assert len(set(found)) == len(ids) and all(isinstance(i, str) and i for i in found)
    assert [i for i in ids if isinstance(i, str) and i][:1] == [i for i in found if i in ids][:1]


# --- thoughts -----------------------------------------------------------------------------

THOUGHTS = [
    ("<think>2 + 2</think>4", "4"),
    ("<think>\n2 + 2\n</think>\n\n4 <b>", "4 <b>"),
    ("2 + 2\n</think>\n\n4", "4"),
    ("First. <think>hm</think>Then.", "First. Then."),
    ("<think>a</think><think>b</think>4", "4"),
    ("<think>never ends", ""),
    ("<Thinking>x</Thinking>4", "4"),
    ("The tag `<think>` opens and `</think>` closes it.",) * 2,
    ("```\n<think>in code</think>\n```\n4",) * 2,
    ("if a <thin and b < 3",) * 2,
    ("The tag <think> is never closed here.",) * 2,
]


@pytest.mark.parametrize(("text", "answer"), THOUGHTS)
def test_a_thought_is_no_answer(text, answer) -> None:
    assert without_thoughts(text) == answer
    assert asked(whole({"content": text})).message["content"] == answer
    for size in (1, 3, 7):
        visible = Visible()
        parts = [visible.feed(text[i : i + size]) for i in range(0, len(text), size)]
        shown = "".join(parts) + visible.finish()
        if not text.startswith("2 + 2"):  # what was thought is known only at its end
            assert shown == answer
        reply, _ = streamed(*({"content": text[i : i + size]} for i in range(0, len(text), size)))
        assert reply.message["content"] == answer


def test_content_as_a_list_of_parts_is_read_and_kept() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "2 + 2"}]}
    message = said([thinking, {"type": "text", "text": "4"}])
    reply = asked(whole(message))
    assert reply.text == "4" and reply.message == {**message, "model": "m"}
    assert as_sent(reply.message, "m")["content"] == message["content"]
    assert as_sent(reply.message, "b")["content"] == [{"type": "text", "text": "4"}]
    half = [{"type": "thinking", "thinking": [{"type": "text", "text": "2 +"}]}]
    rest = [{"type": "thinking", "thinking": [{"type": "text", "text": " 2"}]}]
    reply, shown = streamed({"content": half}, {"content": rest}, {"content": "4"})
    assert shown == "4" and reply.message["content"] == message["content"]


@pytest.mark.parametrize(
    "message",
    [
        {"content": ""},
        {"content": None},
        {"content": " \n"},
        {"content": "", "reasoning_content": "hm"},
        {"content": "<think>hm</think>"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
    ],
)
def test_a_reply_that_says_nothing_is_empty(message) -> None:
    assert asked(whole(message)).is_empty


@pytest.mark.parametrize(
    "message", [{"content": "a"}, {"content": None, "refusal": "no"}, {"tool_calls": [forecast()]}]
)
def test_a_reply_that_says_or_asks_something_is_not_empty(message) -> None:
    assert not asked(whole(message)).is_empty


# --- no reply -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said", "may_pass"),
    [
        (Object(choices=[]), "gave no reply", True),
        (Object(choices=None, error={"message": "overloaded"}), "reports: overloaded", True),
        (Object(choices=None, error={"message": "prompt is too long"}), "too long", False),
        ("<!doctype html><html>Bad gateway</html>", "a web page instead", True),
    ],
)
def test_no_reply_is_said_and_may_be_asked_for_again(answer, said, may_pass) -> None:
    with pytest.raises(ReplyError, match=said) as caught:
        asked(answer)
    assert caught.value.may_pass is may_pass


def test_a_stream_without_an_end_is_no_reply() -> None:
    with pytest.raises(ReplyError, match="ended before") as caught:
        streamed({"content": "Sun"}, finish_reason=None)
    assert caught.value.may_pass
