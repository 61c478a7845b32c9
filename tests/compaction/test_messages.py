"""Texts of messages, and what an API would refuse."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given

from compaction.messages import (
    ROLES,
    SUMMARY_PREFIX,
    Call,
    calls_of,
    content_of,
    image_count,
    is_summary,
    marked_text,
    problems,
    text_of,
    tools_text,
    transcript,
)
from tests.builders import call, calls, result, said, system, user
from tests.compaction.strategies import histories, valid_histories

BASE64 = "data:image/png;base64," + "iVBORw0KGgo" * 500


# --- text -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("hello", "hello"),
        ("", ""),
        (None, ""),
        ([], ""),
        (["one", "two"], "one\ntwo"),
        (
            [{"type": "text", "text": "one"}, "two", {"type": "text", "text": "three"}],
            "one\ntwo\nthree",
        ),
        ([{"type": "input_text", "text": "one"}], "one"),
        ([{"type": "refusal", "refusal": "I will not"}], "I will not"),
        ([{"type": "text"}], ""),
        ([{"type": "text", "text": None}], ""),
        ([{"type": "text", "text": 7}], ""),
        ([{"type": {"a": 1}, "text": "one"}, {"type": ["b"]}, {"type": 7}], "one"),
        ([{"type": "image_url", "image_url": {"url": BASE64}}], ""),
        ([{"type": "image_url", "text": "alt", "image_url": {"url": BASE64}}], ""),
        ([{"type": "input_image", "image_url": BASE64}], ""),
        ([{"type": "input_audio", "input_audio": {"data": "UklGR" * 99}}], ""),
        (7, ""),
        ({"text": "an object"}, ""),
    ],
)
def test_content_of_every_form(content, expected):
    assert content_of(user(content)) == expected
    assert text_of(user(content)) == expected


def test_content_of_a_message_without_content():
    assert content_of({"role": "assistant"}) == ""


def test_text_holds_content_then_calls_one_a_line():
    message = calls(call("c1"), call("c2", "run_tests", "{}"), content="I look.")
    assert text_of(message) == 'I look.\nread_file {"path": "calc.py"}\nrun_tests {}'
    assert content_of(message) == "I look."


def test_text_of_calls_alone_begins_with_the_first_call():
    assert text_of(calls(call())) == 'read_file {"path": "calc.py"}'


def test_arguments_may_be_an_object_and_keep_their_letters():
    message = calls(call(arguments={"path": "数据.csv", "lines": [1, 2]}))
    assert calls_of(message) == [Call("c1", "read_file", '{"path": "数据.csv", "lines": [1, 2]}')]
    assert "数据.csv" in text_of(message)


def test_a_custom_call_carries_its_input():
    custom = {"id": "c7", "type": "custom", "custom": {"name": "run_python", "input": "print(1)"}}
    assert calls_of(calls(custom)) == [Call("c7", "run_python", "print(1)")]
    assert text_of(calls(custom)) == "run_python print(1)"


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({"id": "c1"}, Call("c1", "", "")),
        ({"id": 5, "function": {"name": "f", "arguments": "{}"}}, Call(None, "f", "{}")),
        ({"function": {"name": "f"}}, Call(None, "f", "")),
        ({"id": "c1", "function": "f"}, Call("c1", "", "")),
        ({"id": "c1", "function": {"name": None, "arguments": None}}, Call("c1", "", "")),
    ],
)
def test_a_broken_call_is_read_as_far_as_it_goes(broken, expected):
    assert calls_of(calls(broken)) == [expected]


@pytest.mark.parametrize("value", [None, [], "text", 7, {}])
def test_tool_calls_that_are_none(value):
    assert calls_of({"role": "assistant", "content": "x", "tool_calls": value}) == []


@pytest.mark.parametrize("role", [r for r in ROLES if r != "assistant"])
def test_only_an_assistant_message_has_calls(role):
    assert calls_of({"role": role, "content": "x", "tool_calls": [call()]}) == []
    assert text_of({"role": role, "content": "x", "tool_calls": [call()]}) == "x"


# --- transcript and images ----------------------------------------------------------------


def test_transcript_marks_roles_and_begins_with_the_tools():
    tools = [{"type": "function", "function": {"name": "查", "parameters": {}}}]
    history = [system("s"), calls(call()), result()]
    assert transcript(history, tools) == (
        'tools: [{"type":"function","function":{"name":"查","parameters":{}}}]\n'
        'system: s\nassistant: read_file {"path": "calc.py"}\ntool: ok\n'
    )


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_leave_no_trace(tools):
    assert tools_text(tools) == ""
    assert transcript([], tools) == ""


@given(histories())
def test_transcript_is_additive(history):
    assert transcript(history) == "".join(transcript([message]) for message in history)
    assert transcript(history) == "".join(map(marked_text, history))


def test_images_are_counted_and_their_data_is_no_text():
    history = [
        user(
            [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": BASE64}},
                {"type": "input_image", "image_url": BASE64},
                {"type": "image", "source": {"data": BASE64}},
            ]
        ),
        result("c1", [{"type": "image_url", "image_url": {}}]),
        user("image_url"),
        user(None),
        user(["image_url"]),
        user([{"type": ["image_url"]}, {"type": {"image_url": 1}}]),
    ]
    assert image_count(history) == 4
    assert "base64" not in transcript(history)


# --- summaries --------------------------------------------------------------------------


def test_only_a_user_message_is_a_summary():
    text = f"{SUMMARY_PREFIX}\nConfirmed facts: a"
    assert is_summary(user(text))
    assert is_summary(user([{"type": "text", "text": text}]))
    for role in ("system", "developer", "assistant", "tool"):
        assert not is_summary({"role": role, "content": text})
    assert not is_summary(user("see " + text))


# --- problems ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], ["the list of messages is empty"]),
        (["hi"], ["a message is text, not an object"]),
        ([None], ["a message is null, not an object"]),
        ([{"role": "bot", "content": "x"}], ["a message has the unknown role 'bot'"]),
        ([{"content": "x"}], ["a message has the unknown role None"]),
        ([{"role": "bot", "tool_calls": []}], ["a message has the unknown role 'bot'"]),
        ([{"role": "user"}], ["a user message has no content"]),
        ([user(None)], ["a user message has no content"]),
        ([said(None)], ["an assistant message has no content"]),
        (
            [user(7)],
            ["a user message has a number as content, not text or parts"],
        ),
        (
            [user({"text": "x"})],
            ["a user message has an object as content, not text or parts"],
        ),
        (
            [user(["x"])],
            ["a user message has a content part without a type"],
        ),
        (
            [user([{"text": "x"}])],
            ["a user message has a content part without a type"],
        ),
        (
            [{"role": "user", "content": "x", "tool_calls": [call()]}],
            ["a user message has tool calls; only an assistant message may"],
        ),
        (
            [{"role": "assistant", "content": "x", "tool_calls": []}],
            ["an assistant message has an empty list of tool calls"],
        ),
        (
            [{"role": "assistant", "content": "x", "tool_calls": "read"}],
            ["an assistant message has text as tool_calls, not a list"],
        ),
        (
            [{"role": "assistant", "content": "x", "tool_calls": ["read"]}],
            ["a tool call is text, not an object"],
        ),
        (
            [calls({"type": "function", "function": {"name": "f", "arguments": ""}})],
            ["a tool call to 'f' has no id"],
        ),
        (
            [calls({"id": "c1", "function": {"arguments": "{}"}}), result()],
            ["tool call 'c1' names no function"],
        ),
        ([calls(call())], ["tool call 'c1' has no result right after it"]),
        (
            [calls(call()), user("x"), result()],
            [
                "tool call 'c1' has no result right after it",
                "tool result 'c1' does not follow an assistant message that calls it",
            ],
        ),
        ([result()], ["tool result 'c1' does not follow an assistant message that calls it"]),
        (
            [calls(call()), result(), result("c2")],
            ["tool result 'c2' does not follow an assistant message that calls it"],
        ),
        (
            [{"role": "tool", "content": "x"}],
            ["a tool result has no tool_call_id"],
        ),
        ([calls(call(), call()), result()], ["tool call 'c1' has no result right after it"]),
    ],
)
def test_problems(history, expected):
    assert problems(history) == expected


@pytest.mark.parametrize(
    "history",
    [
        [user("")],
        [{"role": "developer", "content": "s"}, user("x")],
        [calls(call("c1"), call("c2")), result("c2"), result("c1")],
        [calls(call("c1")), result("c1"), result("c1")],
        [calls(call("c1")), result(), calls(call("c1")), result()],
        [{"role": "assistant", "tool_calls": [call()]}, result()],
        [{"role": "assistant", "content": "x", "tool_calls": None}],
        [{"role": "assistant", "content": None, "refusal": "no"}],
        [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}],
        [user([{"type": "text", "text": "x"}])],
        [{"role": "user", "content": "x", "name": "ann", "metadata": {"a": 1}}],
    ],
)
def test_what_an_api_takes_is_no_problem(history):
    assert problems(history) == []


@given(valid_histories())
def test_a_well_behaved_agent_has_no_problem(history):
    assert problems(history) == []


@given(histories())
def test_problems_name_no_positions_and_change_nothing(history):
    """The same fault reads the same wherever it stands."""
    original = copy.deepcopy(history)
    found = problems(history)
    assert history == original
    greeted = [user("hello"), *history]
    assert problems(greeted) == found


def test_messages_survive_a_round_trip_through_json_unchanged():
    history = [calls(call(), content="x"), result(content=["a", {"type": "text", "text": "b"}])]
    again = json.loads(json.dumps(history))
    assert transcript(again) == transcript(history)


# --- blocks of other APIs, and strict templates ---------------------------------------------


@pytest.mark.parametrize(
    ("part", "api"),
    [
        ({"type": "tool_use", "id": "t1", "name": "f", "input": {}}, "Anthropic"),
        ({"type": "tool_result", "tool_use_id": "t1", "content": "x"}, "Anthropic"),
        ({"type": "thinking", "thinking": "x"}, "Anthropic"),
        ({"type": "image", "source": {"type": "base64", "data": "aGk="}}, "Anthropic"),
        ({"type": "output_text", "text": "x"}, "Responses"),
        ({"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {}}, "AI SDK"),
        ({"type": "file", "mediaType": "image/png", "data": "aGk="}, "AI SDK"),
        ({"type": "toolCall", "id": "c", "name": "f", "arguments": {}}, "pi"),
    ],
)
def test_a_block_of_another_api_is_named(part, api):
    (problem,) = problems([user([part, part])])
    assert f"'{part['type']}'" in problem and api in problem


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf"}},
        {"type": "video_url", "video_url": {"url": "x"}},
    ],
)
def test_parts_that_a_gateway_may_take_are_no_problem(part):
    assert problems([user([part])]) == []


USER, ANSWER, SYSTEM = ({"role": role, "content": "x"} for role in ("user", "assistant", "system"))


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ([SYSTEM, USER, ANSWER, USER], None),
        ([USER, USER, ANSWER], "two user messages"),
        ([USER, ANSWER, ANSWER], "two assistant messages"),
        ([ANSWER, USER], "the first message"),
        ([USER, SYSTEM, ANSWER], "a system message stands after the beginning"),
        ([USER, SYSTEM, USER], "two user messages"),
    ],
)
def test_what_a_strict_template_refuses_is_named_when_asked_for(messages, word):
    assert problems(messages) == []
    found = problems(messages, alternate=True)
    assert found == [] if word is None else any(word in problem for problem in found)


def test_results_between_two_answers_keep_them_apart():
    function = {"name": "f", "arguments": "{}"}
    call = {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    assert problems([USER, call, result, ANSWER], alternate=True) == []
