"""The scripted gateway over real loopback HTTP, asked by the real ``openai`` client."""

from __future__ import annotations

import gc
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import openai
import pytest

from compaction.cli import main
from compaction.gateway import (
    FAULTS,
    SCRIPT_OVER,
    TOKENS_PER_MESSAGE,
    Fault,
    Gateway,
    ScriptError,
    completion_usage,
    is_summary_request,
    quoted_messages,
    read_script,
    scripted_usage,
    scripted_usage_of_chars,
    serve,
    summarize_with,
)
from compaction.messages import calls_of, problems, transcript
from compaction.summary import SummaryError, extract, parse_summary, summary_prompt

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
STRETCH = [
    {"role": "user", "content": "remember: the build command is `pnpm build:calc`\nFix divide."},
    {
        "role": "assistant",
        "content": "I read the module first.",
        "tool_calls": [
            {
                "id": "call_a",
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path": "src/calc.py"}'},
            },
            {
                "id": "call_b",
                "type": "function",
                "function": {"name": "run_command", "arguments": '{"command": "pytest -q"}'},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_a", "content": "def divide(a, b):\n    return a / b"},
    {"role": "tool", "tool_call_id": "call_b", "content": "ZeroDivisionError: divide by zero"},
    {"role": "assistant", "content": "divide has no guard against zero."},
]
SUMMARY = (
    "Confirmed facts:\n- divide has no guard\nChanges already made:\nnone\n"
    "Unfinished items:\n- guard divide\nKey paths and commands:\n- src/calc.py"
)


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[Gateway, openai.OpenAI]]]:
    """Start a gateway with the given arguments; give it and a client that never retries."""
    gateways: list[Gateway] = []
    clients: list[openai.OpenAI] = []

    def start(*args: Any, max_retries: int = 0, **kwargs: Any) -> tuple[Gateway, openai.OpenAI]:
        gateway = Gateway(*args, **kwargs).start()
        gateways.append(gateway)
        client = openai.OpenAI(
            base_url=gateway.base_url, api_key="unused", max_retries=max_retries, timeout=10
        )
        clients.append(client)
        return gateway, client

    yield start
    for client in clients:
        client.close()
    for gateway in gateways:
        gateway.stop()


def ask(client: openai.OpenAI, messages: Any = None, **options: Any) -> Any:
    return client.chat.completions.create(
        model="scripted", messages=HELLO if messages is None else messages, **options
    )


def collect(chunks: Any) -> tuple[str, list[dict[str, str]], str | None, Any, list[Any]]:
    """Put a stream together as an agent does: text, calls, finish reason, usage, all chunks."""
    text, calls, finish_reason, usage, seen = "", [], None, None, []
    for chunk in chunks:
        seen.append(chunk)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish_reason = choice.finish_reason or finish_reason
            text += choice.delta.content or ""
            for delta in choice.delta.tool_calls or []:
                while len(calls) <= delta.index:
                    calls.append({"id": "", "name": "", "arguments": ""})
                calls[delta.index]["id"] += delta.id or ""
                calls[delta.index]["name"] += delta.function.name or ""
                calls[delta.index]["arguments"] += delta.function.arguments or ""
    return text, calls, finish_reason, usage, seen


def post(gateway: Gateway, body: bytes | Any, path: str = "/v1/chat/completions") -> Any:
    """Send a raw body; return the status and the parsed answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(gateway, "POST", path, raw)[:2]


def request(gateway: Gateway, method: str, path: str, body: bytes | None = None) -> Any:
    host, port = gateway.base_url.split("/")[2].split(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=10)) as connection:
        connection.request(method, path, body)
        response = connection.getresponse()
        raw = response.read()
        return response.status, json.loads(raw) if raw else None, dict(response.headers)


# --- the character rule -----------------------------------------------------------------


def test_usage_is_half_the_characters_and_three_a_message() -> None:
    assert scripted_usage_of_chars(cjk=100, other=0, messages=0) == 50
    assert scripted_usage_of_chars(cjk=0, other=100, messages=0) == 50
    assert scripted_usage_of_chars(cjk=3, other=4, messages=0) == 4
    assert scripted_usage_of_chars(cjk=0, other=0, messages=5) == 15


def test_usage_of_a_request_counts_transcript_tools_and_images() -> None:
    characters = len(transcript(STRETCH))
    assert scripted_usage(STRETCH) == -(-characters // 2) + TOKENS_PER_MESSAGE * len(STRETCH)
    with_tools = len(transcript(STRETCH, [TOOL]))
    assert with_tools > characters
    assert scripted_usage(STRETCH, [TOOL]) == -(-with_tools // 2) + 3 * len(STRETCH)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    words = {"type": "text", "text": "hello"}
    seen = [{"role": "user", "content": [words, picture]}]
    assert scripted_usage(seen) == scripted_usage(HELLO) + 256


def test_completion_usage_counts_text_and_calls() -> None:
    assert completion_usage({"role": "assistant", "content": "你好，世界"}) == 3
    assert completion_usage({"role": "assistant", "content": None}) == 0
    assert completion_usage(STRETCH[1]) > completion_usage({"content": STRETCH[1]["content"]})


# --- replies ----------------------------------------------------------------------------


def test_text_reply(start: Any) -> None:
    gateway, client = start(["Hello.", {"content": "Again."}])
    first, second = ask(client), ask(client)
    assert first.choices[0].message.content == "Hello."
    assert first.choices[0].message.role == "assistant"
    assert first.choices[0].finish_reason == "stop"
    assert first.model == "scripted" and first.object == "chat.completion"
    assert second.choices[0].message.content == "Again."
    assert first.id != second.id
    assert gateway.remaining == 0


def test_usage_of_a_reply_is_the_rule(start: Any) -> None:
    _, client = start(["Hello."])
    usage = ask(client, tools=[TOOL]).usage
    assert usage.prompt_tokens == scripted_usage(HELLO, [TOOL])
    assert usage.completion_tokens == completion_usage({"content": "Hello."})
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_tool_call_reply_in_full_and_in_short(start: Any) -> None:
    _, client = start(
        [
            {"content": "I look.", "tool_calls": STRETCH[1]["tool_calls"]},
            {"tool_calls": [{"name": "read_file", "arguments": {"path": "计算.py"}}]},
        ]
    )
    full = ask(client).choices[0]
    assert full.finish_reason == "tool_calls"
    assert full.message.content == "I look."
    assert [call.id for call in full.message.tool_calls] == ["call_a", "call_b"]
    assert full.message.tool_calls[1].function.arguments == '{"command": "pytest -q"}'
    short = ask(client).choices[0].message
    assert short.content is None
    assert json.loads(short.tool_calls[0].function.arguments) == {"path": "计算.py"}
    assert short.tool_calls[0].type == "function"


def test_short_calls_get_ids_that_the_history_does_not_use(start: Any) -> None:
    calls = [{"name": "read_file", "arguments": {"path": path}} for path in ("a.py", "b.py")]
    _, client = start([{"tool_calls": calls}, {"tool_calls": calls}])
    history = list(HELLO)
    for _ in range(2):
        message = ask(client, history).choices[0].message.model_dump(exclude_none=True)
        message.setdefault("content", None)
        history.append(message)
        history += [
            {"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in calls_of(message)
        ]
    ids = [call.id for message in history for call in calls_of(message)]
    assert len(set(ids)) == 4
    assert problems(history) == []


def test_callable_reply_sees_the_request_and_cannot_change_the_record(start: Any) -> None:
    def echo(body: dict[str, Any]) -> str:
        body["messages"].append("spoilt")
        return f"{body['model']}: {body['messages'][0]['content']}"

    gateway, client = start([echo])
    assert ask(client).choices[0].message.content == "scripted: hello"
    assert gateway.requests[0].body["messages"] == HELLO


def divide_by_zero(*_: Any) -> Any:
    return str(1 / 0)


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        (divide_by_zero, "ZeroDivisionError: division by zero"),
        (lambda body: None, "ScriptError: .* got null"),
        (lambda body: {}, "ScriptError: .* content or tool_calls"),
        (lambda body: len, "ScriptError: .* returned a callable"),
    ],
)
def test_callable_that_fails_gives_500_each_time_and_the_server_goes_on(
    start: Any, reply: Any, named: str
) -> None:
    gateway, client = start([reply])
    for _ in range(2):
        with pytest.raises(openai.InternalServerError, match=named):
            ask(client)
    assert [seen.status for seen in gateway.requests] == [500, 500]
    assert client.models.list().data


def test_a_fault_of_the_gateway_itself_is_answered(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, client = start(["Hello."])
    monkeypatch.setattr("compaction.gateway.replies.scripted_usage", divide_by_zero)
    with pytest.raises(openai.InternalServerError, match="ZeroDivisionError"):
        ask(client)
    assert gateway.requests[0].status == 500
    monkeypatch.undo()
    assert client.models.list().data


def test_after_the_script_a_text_and_never_an_error(start: Any) -> None:
    _, client = start(["Only one."])
    ask(client)
    assert [ask(client).choices[0].message.content for _ in range(2)] == [SCRIPT_OVER] * 2
    _, client = start(after_script=lambda body: body["messages"][-1]["content"].upper())
    assert ask(client).choices[0].message.content == "HELLO"


def test_replies_and_faults_can_be_added_while_it_runs(start: Any) -> None:
    gateway, client = start()
    gateway.add_replies("Later.")
    gateway.add_faults("server-error")
    with pytest.raises(openai.InternalServerError):
        ask(client)
    assert ask(client).choices[0].message.content == "Later."


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (7, "got an integer"),
        (None, "got null"),
        ({}, "content or tool_calls"),
        ({"content": 1}, "text or parts as content"),
        ({"tool_calls": []}, "at least one tool call"),
        ({"tool_calls": ["read_file"]}, "a name and arguments"),
        ({"tool_calls": [{"function": {"arguments": "{}"}}]}, "a name and arguments"),
    ],
)
def test_a_reply_that_is_none_is_named_before_anything_starts(reply: Any, expected: str) -> None:
    with pytest.raises(ScriptError, match=expected) as error:
        Gateway(["Good.", reply])
    assert "reply 2" in str(error.value)
    with pytest.raises(ScriptError, match="summary 1"):
        Gateway(summaries=[reply])


# --- streaming --------------------------------------------------------------------------


def test_stream_ends_with_the_usage_chunk(start: Any) -> None:
    words = "Divide has no guard, so 1 / 0 raises. 你好。 " * 5
    _, client = start([words])
    stream = ask(client, stream=True, stream_options={"include_usage": True})
    text, calls, finish_reason, usage, chunks = collect(stream)
    assert (text, calls, finish_reason) == (words, [], "stop")
    assert usage.prompt_tokens == scripted_usage(HELLO)
    assert usage.completion_tokens == completion_usage({"content": words})
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks[:-1])
    assert all("usage" in chunk.model_fields_set for chunk in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len(chunks) > 10
    assert len({chunk.id for chunk in chunks}) == 1


def test_stream_without_include_usage_carries_none(start: Any) -> None:
    gateway, client = start(["Hello."])
    _, _, finish_reason, usage, chunks = collect(ask(client, stream=True))
    assert finish_reason == "stop" and usage is None
    assert all("usage" not in chunk.model_fields_set for chunk in chunks)
    assert gateway.requests[0].usage is None


def test_stream_of_parallel_tool_calls(start: Any) -> None:
    long_path = "src/" + "very/" * 30 + "计算.py"
    calls = [
        {
            "id": "a",
            "function": {"name": "read_file", "arguments": json.dumps({"path": long_path})},
        },
        {"id": "b", "function": {"name": "todo", "arguments": ""}},
        {"id": "c", "function": {"name": "run_command", "arguments": '{"command": "pytest"}'}},
    ]
    _, client = start([{"content": "Three at once.", "tool_calls": calls}])
    stream = ask(client, stream=True, stream_options={"include_usage": True})
    text, collected, finish_reason, usage, chunks = collect(stream)
    assert text == "Three at once." and finish_reason == "tool_calls"
    assert [(call["id"], call["name"]) for call in collected] == [
        ("a", "read_file"),
        ("b", "todo"),
        ("c", "run_command"),
    ]
    assert json.loads(collected[0]["arguments"]) == {"path": long_path}
    assert collected[1]["arguments"] == ""
    assert usage.completion_tokens > 0
    heads = [d for c in chunks[:-1] for d in c.choices[0].delta.tool_calls or [] if d.id]
    assert [head.index for head in heads] == [0, 1, 2]
    assert all(head.type == "function" for head in heads)


def test_stream_of_a_call_without_text_has_null_content(start: Any) -> None:
    _, client = start([{"tool_calls": [{"name": "todo", "arguments": {}}]}])
    _, calls, _, _, chunks = collect(ask(client, stream=True))
    assert chunks[0].choices[0].delta.content is None
    assert calls[0]["arguments"] == "{}"


def test_a_stream_arrives_piece_by_piece(start: Any) -> None:
    _, client = start(["x" * 64], chunk_delay_s=0.05)
    stream = ask(client, stream=True)
    arrivals = [time.monotonic() for chunk in stream if chunk.choices[0].delta.content]
    assert len(arrivals) == 4
    assert arrivals[-1] - arrivals[0] > 0.1


# --- models, routes, methods ------------------------------------------------------------


def test_models(start: Any) -> None:
    _, client = start(models=("small", "large"))
    assert [model.id for model in client.models.list()] == ["small", "large"]
    assert client.models.retrieve("large").id == "large"
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("other")
    assert error.value.code == "model_not_found"


def test_a_question_for_the_headers_alone(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    gateway, _ = start()
    for path, status in (("/v1/models", 405), ("/v1/chat/completions", 405), ("/", 404)):
        host, port = gateway.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request("HEAD", path)
        reply = connection.getresponse()
        assert (reply.status, reply.read()) == (status, b"")
        connection.request("GET", "/v1/models")  # the connection is still good
        assert connection.getresponse().status == 200
        connection.close()
    gc.collect()  # an exception that nobody took would be told now
    assert not caplog.records


def test_unknown_route_and_wrong_method(start: Any) -> None:
    gateway, client = start()
    with pytest.raises(openai.NotFoundError) as error:
        client.embeddings.create(model="scripted", input="hello")
    assert error.value.type == "invalid_request_error"
    assert "/v1/embeddings" in error.value.message
    for method, path, allowed in (
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET"),
    ):
        status, body, headers = request(gateway, method, path, b"{}" if method == "POST" else None)
        assert status == 405
        assert headers["Allow"] == allowed
        assert body["error"]["type"] == "invalid_request_error"
    assert request(gateway, "GET", "/")[0] == 404
    assert [seen.status for seen in gateway.requests] == [404, 405, 405, 405, 404]


# --- what is refused --------------------------------------------------------------------


def refused(client: openai.OpenAI, messages: Any = None, **options: Any) -> openai.BadRequestError:
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, messages, **options)
    assert error.value.type == "invalid_request_error"
    return error.value


def test_orphaned_tool_result_is_refused(start: Any) -> None:
    gateway, client = start(["never given"])
    orphan = {"role": "tool", "tool_call_id": "call_9", "content": "ok"}
    error = refused(client, [*HELLO, orphan])
    assert error.status_code == 400 and error.param == "messages"
    assert "role 'tool' must respond to a preceding message with 'tool_calls'" in error.message
    assert "call_9" in error.message
    assert gateway.requests[0].status == 400
    assert gateway.remaining == 1


def test_unanswered_tool_calls_are_refused(start: Any) -> None:
    _, client = start()
    error = refused(client, STRETCH[:2])
    assert "must be followed by tool messages" in error.message
    assert "call_a" in error.message and "call_b" in error.message
    late = refused(client, [*STRETCH[:3], STRETCH[4], STRETCH[3]])
    assert "'call_b'" in late.message
    assert "'call_a'" not in late.message


def test_a_long_list_of_problems_is_cut_short(start: Any) -> None:
    _, client = start()
    orphans = [{"role": "tool", "tool_call_id": f"id{n}", "content": "ok"} for n in range(90)]
    message = refused(client, orphans).message
    assert "id4'" in message and "id5'" not in message
    assert "85 more" in message


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([], "empty"),
        (["hello"], "text"),
        ([{"role": "narrator", "content": "hi"}], "narrator"),
        ([{"role": "user"}], "content"),
        ([{"role": "user", "content": 5}], "number"),
        ([{"role": "tool", "content": "ok"}], "tool_call_id"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "empty list"),
    ],
)
def test_messages_of_a_wrong_form_are_refused(start: Any, messages: Any, named: str) -> None:
    _, client = start()
    assert named in refused(client, messages).message


def test_whatever_problems_finds_is_refused_and_nothing_else(start: Any) -> None:
    gateway, _ = start()
    for end in range(1, len(STRETCH) + 1):
        status, _ = post(gateway, {"model": "scripted", "messages": STRETCH[:end]})
        assert status == (400 if problems(STRETCH[:end]) else 200)


@pytest.mark.parametrize(
    ("change", "param", "named"),
    [
        ({"model": None}, "model", "'model'"),
        ({"model": 5}, "model", "expected a string, got an integer"),
        ({"model": ""}, "model", "empty"),
        ({"messages": None}, "messages", "'messages'"),
        ({"messages": "hello"}, "messages", "expected an array, got a string"),
        ({"messages": {}}, "messages", "got an object"),
        ({"stream": "yes"}, "stream", "expected a boolean"),
        ({"stream": 1}, "stream", "expected a boolean"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "'stream'"),
        ({"stream": True, "stream_options": True}, "stream_options", "an object"),
        ({"temperature": "hot"}, "temperature", "an integer or a decimal"),
        ({"temperature": True}, "temperature", "got a boolean"),
        ({"temperature": 2.5}, "temperature", "0 to 2"),
        ({"top_p": -1}, "top_p", "0 to 1"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_completion_tokens": -3}, "max_completion_tokens", "at least 1"),
        ({"max_tokens": 1.5}, "max_tokens", "an integer"),
        ({"n": 2}, "n", "one choice"),
        ({"tools": {}}, "tools", "an array"),
        ({"tools": []}, "tools", "at least one tool"),
        ({"tools": ["read_file"]}, "tools[0]", "an object"),
        ({"tools": [TOOL, {"type": "function"}]}, "tools[1].function", "an object"),
        (
            {"tools": [{"type": "function", "function": {}}]},
            "tools[0].function.name",
            "a string",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "read file"}}]},
            "tools[0].function.name",
            "letters",
        ),
        ({"tool_choice": "auto"}, "tool_choice", "'tools'"),
    ],
)
def test_parameters_of_a_wrong_form_are_refused(
    start: Any, change: dict[str, Any], param: str, named: str
) -> None:
    gateway, _ = start()
    body = {"model": "scripted", "messages": HELLO} | change
    status, answer = post(gateway, body)
    assert status == 400
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert named in error["message"]


def test_the_kind_of_mistake_has_a_code(start: Any) -> None:
    gateway, _ = start()
    for body, code in (
        ({"model": "scripted"}, "missing_required_parameter"),
        ({"model": "scripted", "messages": "hello"}, "invalid_type"),
        ({"model": "scripted", "messages": []}, None),
    ):
        assert post(gateway, body)[1]["error"]["code"] == code


def test_null_and_unknown_parameters_are_accepted(start: Any) -> None:
    gateway, _ = start(["Hello."])
    names = ("stream", "stream_options", "tools", "tool_choice", "temperature", "n", "max_tokens")
    body = {"model": "any", "messages": HELLO, "a_new_one": {"x": 1}} | dict.fromkeys(names)
    status, answer = post(gateway, body)
    assert status == 200 and answer["model"] == "any"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "not valid JSON"),
        (b'{"model": "x",', "line 1, column"),
        (b'{"model":\n oops}', "line 2, column"),
        (b"\xff\xfe\xff", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[1]", "an array"),
        (b"null", "null"),
    ],
)
def test_malformed_bodies_are_refused(start: Any, body: bytes, named: str) -> None:
    gateway, client = start(["still here"])
    status, answer = post(gateway, body)
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert named in answer["error"]["message"]
    assert gateway.requests[0].body is None
    assert ask(client).choices[0].message.content == "still here"


# --- summaries --------------------------------------------------------------------------


def test_quoted_messages_gives_the_stretch_back() -> None:
    read = quoted_messages(summary_prompt(STRETCH))
    assert [message["role"] for message in read] == [message["role"] for message in STRETCH]
    assert [message["content"] for message in read] == [message["content"] for message in STRETCH]
    assert [(call.name, call.arguments) for call in calls_of(read[1])] == [
        ("read_file", '{"path": "src/calc.py"}'),
        ("run_command", '{"command": "pytest -q"}'),
    ]
    assert problems(read) == []


def test_summary_requests_are_recognised_by_the_prompt_alone() -> None:
    for language in ("en", "zh"):
        prompt = {"role": "user", "content": summary_prompt(STRETCH, language)}
        assert is_summary_request([prompt])
        assert is_summary_request([{"role": "system", "content": "Be brief."}, prompt])
        assert not is_summary_request([*HELLO, prompt])
        assert not is_summary_request([prompt, {"role": "assistant", "content": "done"}])
        quoted = {"role": "user", "content": f"What is this? {prompt['content']}"}
        assert not is_summary_request([quoted])
    assert not is_summary_request(HELLO)
    assert not is_summary_request([])


@pytest.mark.parametrize("language", ["auto", "en", "zh"])
def test_summaries_come_from_the_extractive_summariser(start: Any, language: Any) -> None:
    gateway, client = start(["a turn's reply"])
    text = summarize_with(client, "scripted", language=language)(STRETCH)
    assert text == extract(STRETCH)
    assert set(parse_summary(text)) and "pnpm build:calc" in text
    assert [seen.kind for seen in gateway.requests] == ["summary"]
    assert gateway.remaining == 1


def test_summaries_in_chinese(start: Any) -> None:
    gateway, client = start()
    stretch = [
        {"role": "user", "content": "请修好 calc.py 里的除法，不要改接口。"},
        {"role": "assistant", "content": "除法没有检查除数为零的情况。"},
    ]
    text = summarize_with(client, "scripted")(stretch)
    assert text == extract(stretch)
    assert text.startswith("已确认的事实")
    summarize_with(client, "scripted", language="en")(stretch)
    sent = [seen.body["messages"][0]["content"] for seen in gateway.requests if seen.body]
    assert sent == [summary_prompt(stretch, language) for language in ("zh", "en")]


def test_scripted_summaries_come_in_order_then_the_extractive_ones(start: Any) -> None:
    gateway, client = start(["turn"], summaries=["first", "second"])
    summarize = summarize_with(client, "scripted")
    assert [summarize(STRETCH), summarize(STRETCH)] == ["first", "second"]
    assert summarize(STRETCH) == extract(STRETCH)
    assert ask(client).choices[0].message.content == "turn"
    assert [seen.kind for seen in gateway.requests] == ["summary"] * 3 + ["turn"]


def test_summarize_with_sends_data_without_tools_and_reports_usage(start: Any) -> None:
    gateway, client = start()
    observed: list[Any] = []
    before = json.dumps(STRETCH)
    summarize_with(client, "m1", observe=lambda *pair: observed.append(pair))(STRETCH)
    body = gateway.requests[0].body
    assert set(body) == {"model", "messages"} and body["model"] == "m1"
    assert body["messages"] == [{"role": "user", "content": summary_prompt(STRETCH, "en")}]
    [(sent, usage)] = observed
    assert sent == body["messages"]
    assert usage.prompt_tokens == scripted_usage(sent)
    assert json.dumps(STRETCH) == before


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ({"content": "  \n"}, "empty"),
        ({"content": SUMMARY, "tool_calls": [{"name": "todo", "arguments": {}}]}, "tool call"),
    ],
)
def test_summarize_with_raises_for_what_is_no_text(start: Any, reply: Any, named: str) -> None:
    _, client = start(summaries=[reply])
    with pytest.raises(SummaryError, match=named):
        summarize_with(client, "scripted")(STRETCH)


def test_summarize_with_raises_for_a_summary_that_was_cut_off() -> None:
    class Completions:
        def create(self, **_: Any) -> Any:
            message = openai.types.chat.ChatCompletionMessage(role="assistant", content=SUMMARY)
            choice = openai.types.chat.chat_completion.Choice(
                index=0, message=message, finish_reason="length"
            )
            return openai.types.chat.ChatCompletion(
                id="1", object="chat.completion", created=0, model="m", choices=[choice]
            )

    class Client:
        class chat:
            completions = Completions()

    with pytest.raises(SummaryError, match="length limit"):
        summarize_with(Client(), "m")(STRETCH)  # type: ignore[arg-type]


# --- faults -----------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("fault", ["usage-missing", "usage-null"])
def test_usage_faults(start: Any, fault: str, streaming: bool) -> None:
    gateway, client = start(["Hello.", "Again."], faults=[fault])
    options = {"stream": True, "stream_options": {"include_usage": True}} if streaming else {}
    first, second = [ask(client, **options) for _ in range(2)]
    if streaming:
        text, _, finish_reason, usage, chunks = collect(first)
        assert (text, finish_reason, usage) == ("Hello.", "stop", None)
        assert (chunks[-1].choices == []) == (fault == "usage-null")
        assert collect(second)[3].prompt_tokens == scripted_usage(HELLO)
    else:
        assert first.choices[0].message.content == "Hello." and first.usage is None
        assert ("usage" in first.model_fields_set) == (fault == "usage-null")
        assert second.usage.prompt_tokens == scripted_usage(HELLO)
    assert [seen.faults for seen in gateway.requests] == [(fault,), ()]
    assert gateway.requests[0].usage is None


def test_usage_faults_wait_for_a_reply_that_carries_usage(start: Any) -> None:
    gateway, client = start(faults=["usage-null"])
    collect(ask(client, stream=True))
    ask(client)
    assert [seen.faults for seen in gateway.requests] == [(), ("usage-null",)]


def test_rate_limit_says_when_to_come_back(start: Any) -> None:
    gateway, client = start(["Hello."], faults=["rate-limit"], retry_after_s=3)
    with pytest.raises(openai.RateLimitError) as error:
        ask(client)
    assert error.value.response.headers["Retry-After"] == "3"
    assert error.value.code == "rate_limit_exceeded"
    assert gateway.remaining == 1
    assert ask(client).choices[0].message.content == "Hello."


@pytest.mark.parametrize("fault", ["rate-limit", "server-error"])
def test_the_clients_own_retry_gets_the_reply(start: Any, fault: str) -> None:
    gateway, client = start(["Hello."], faults=[fault], retry_after_s=0.05, max_retries=1)
    assert ask(client).choices[0].message.content == "Hello."
    assert [seen.status for seen in gateway.requests] == [
        429 if fault == "rate-limit" else 500,
        200,
    ]


def test_server_error(start: Any) -> None:
    _, client = start(["Hello."], faults=["server-error"])
    with pytest.raises(openai.InternalServerError) as error:
        ask(client)
    assert error.value.status_code == 500 and error.value.type == "server_error"
    assert ask(client).choices[0].message.content == "Hello."


def test_stream_cut_in_the_middle(start: Any) -> None:
    words = "one two three four five six seven eight nine ten " * 4
    gateway, client = start([words], faults=["cut-stream"])
    got = ""
    with pytest.raises(openai.APIConnectionError):
        for chunk in ask(client, stream=True, stream_options={"include_usage": True}):
            got += chunk.choices[0].delta.content or ""
    assert got and words.startswith(got) and got != words
    # The reply did not arrive whole, so the next request receives it.
    assert gateway.remaining == 1
    assert collect(ask(client, stream=True))[0] == words


def test_stream_of_a_tool_call_cut_in_the_middle_is_no_finished_call(start: Any) -> None:
    call = {"name": "read_file", "arguments": {"path": "a/" * 100}}
    _, client = start([{"tool_calls": [call]}], faults=["cut-stream"])
    arguments, finish_reason = "", None
    with pytest.raises(openai.APIConnectionError):
        for chunk in ask(client, stream=True):
            finish_reason = chunk.choices[0].finish_reason or finish_reason
            for delta in chunk.choices[0].delta.tool_calls or []:
                arguments += delta.function.arguments or ""
    assert finish_reason is None
    with pytest.raises(ValueError):
        json.loads(arguments)


def test_body_cut_in_the_middle(start: Any) -> None:
    gateway, client = start(["Hello.", "Again."], faults=["cut-stream"])
    with pytest.raises(openai.APIConnectionError):
        ask(client)
    assert gateway.remaining == 2
    assert [ask(client).choices[0].message.content for _ in range(2)] == ["Hello.", "Again."]


@pytest.mark.parametrize("scripted", [True, False])
def test_summary_without_one_heading(start: Any, scripted: bool) -> None:
    summaries = [SUMMARY, SUMMARY] if scripted else []
    gateway, client = start(["Hello."], summaries=summaries, faults=["missing-heading"])
    assert ask(client).choices[0].message.content == "Hello."  # a turn does not meet it
    summarize = summarize_with(client, "scripted")
    with pytest.raises(SummaryError) as error:
        parse_summary(summarize(STRETCH))
    assert error.value.missing == ("Key paths and commands",)
    assert set(parse_summary(summarize(STRETCH)))
    assert [seen.faults for seen in gateway.requests] == [(), ("missing-heading",), ()]


@pytest.mark.parametrize(
    "decorated",
    [
        SUMMARY.replace("Key paths and commands:", "## Key paths and commands"),
        SUMMARY.replace("Key paths and commands:", "**Key paths and commands:**"),
        SUMMARY.replace("Key paths and commands:", "4. KEY PATHS AND COMMANDS："),
        SUMMARY + "\n- the words Confirmed facts: stand in this body",
    ],
)
def test_a_decorated_heading_is_dropped_too(start: Any, decorated: str) -> None:
    assert set(parse_summary(decorated))
    _, client = start(summaries=[decorated], faults=["missing-heading"])
    with pytest.raises(SummaryError) as error:
        parse_summary(summarize_with(client, "scripted")(STRETCH))
    assert error.value.missing == ("Key paths and commands",)


def test_tool_call_instead_of_a_summary(start: Any) -> None:
    gateway, client = start(summaries=[SUMMARY], faults=["tool-call-summary"])
    summarize = summarize_with(client, "scripted")
    with pytest.raises(SummaryError, match="tool call"):
        summarize(STRETCH)
    assert gateway.requests[0].reply["content"] is None
    assert summarize(STRETCH) == SUMMARY


def test_slow_reply_keeps_the_client_waiting(start: Any) -> None:
    gateway, client = start(["Hello.", "Again."], faults=["slow"], slow_s=0.3)
    began = time.monotonic()
    assert ask(client).choices[0].message.content == "Hello."
    assert time.monotonic() - began >= 0.3
    assert gateway.requests[0].faults == ("slow",)


def test_a_client_that_gives_up_gets_the_same_reply_next_time(start: Any) -> None:
    gateway, client = start(["Hello."], faults=["slow"], slow_s=60)
    with pytest.raises(openai.APITimeoutError):
        ask(client, timeout=0.2)
    wait_until(lambda: gateway.remaining == 1)
    assert ask(client).choices[0].message.content == "Hello."


def test_a_client_that_leaves_a_stream_gets_the_same_reply_next_time(start: Any) -> None:
    gateway, client = start(["word " * 100], chunk_delay_s=0.05)
    with ask(client, stream=True) as stream:
        next(iter(stream))
    wait_until(lambda: gateway.remaining == 1)
    gateway._chunk_delay_s = 0
    assert collect(ask(client, stream=True))[0] == "word " * 100


def test_a_client_that_leaves_after_the_last_word_has_had_its_reply(start: Any) -> None:
    gateway, client = start(["First.", "Second."], chunk_delay_s=0.02)
    for expected in ("First.", "Second."):
        text = ""
        with ask(client, stream=True, stream_options={"include_usage": True}) as stream:
            for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                if chunk.choices[0].finish_reason:
                    break  # without waiting for usage and the end mark
        assert text == expected
    assert gateway.remaining == 0


def wait_until(condition: Callable[[], bool], timeout_s: float = 5) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("fault", "met"),
    [
        ("usage-null", [0]),
        ("usage-null*3", [0, 1, 2]),
        ("usage-null/2", [1, 3, 5]),
        ("usage-null/1", [0, 1, 2, 3, 4, 5]),
        (Fault("usage-null", every=2, times=2), [1, 3]),
        ("usage-null@summary", []),
        ("usage-null/3@turn", [2, 5]),
    ],
)
def test_which_requests_a_fault_meets(start: Any, fault: Any, met: list[int]) -> None:
    gateway, client = start(faults=[fault])
    for _ in range(6):
        ask(client)
    assert [n for n, seen in enumerate(gateway.requests) if seen.faults] == met


def test_faults_narrowed_to_summaries(start: Any) -> None:
    gateway, client = start(faults=["server-error@summary"])
    ask(client)
    with pytest.raises(openai.InternalServerError):
        summarize_with(client, "scripted")(STRETCH)
    assert [seen.status for seen in gateway.requests] == [200, 500]


def test_a_refused_request_meets_one_fault_only(start: Any) -> None:
    gateway, client = start(["Hello."], faults=["usage-null", "server-error", "rate-limit"])
    with pytest.raises(openai.InternalServerError):
        ask(client)
    with pytest.raises(openai.RateLimitError):
        ask(client)
    assert ask(client).usage is None
    assert [seen.faults for seen in gateway.requests] == [
        ("server-error",),
        ("rate-limit",),
        ("usage-null",),
    ]


@pytest.mark.parametrize("text", ["", "slow*", "slow*0", "slow/0", "slow/x", "slow@any", "fast"])
def test_a_fault_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ValueError):
        Gateway(faults=[text])


# --- life -------------------------------------------------------------------------------


def test_stops_cleanly_and_can_start_again() -> None:
    threads = set(threading.enumerate())
    sockets = open_sockets()
    gateway = Gateway(["one", "two"])
    for expected in ("one", "two"):
        with gateway:
            assert gateway.running
            client = openai.OpenAI(base_url=gateway.base_url, api_key="unused", max_retries=0)
            with client:
                assert ask(client).choices[0].message.content == expected
        assert not gateway.running
    gateway.stop()
    assert set(threading.enumerate()) == threads
    assert open_sockets() <= sockets
    assert len(gateway.requests) == 2


def open_sockets() -> set[str]:
    """Return this process's sockets, where the system shows them."""
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        return set()
    targets = set()
    for name in os.listdir(folder):
        try:
            targets.add(os.readlink(f"{folder}/{name}"))
        except OSError:
            continue  # the folder's own descriptor is gone by now
    return {target for target in targets if target.startswith("socket:")}


def test_stopping_does_not_wait_for_a_slow_reply(caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway(["Hello."], faults=["slow"], slow_s=60).start()
    client = openai.OpenAI(base_url=gateway.base_url, api_key="unused", max_retries=0)
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            ask(client)
        except openai.APIConnectionError as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: bool(gateway.requests))
    began = time.monotonic()
    gateway.stop()
    waiting.join(5)
    client.close()
    assert time.monotonic() - began < 3
    assert len(failures) == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_two_gateways_at_once(start: Any) -> None:
    (one, first), (two, second) = start(["one"]), start(["two"])
    assert one.base_url != two.base_url
    assert ask(second).choices[0].message.content == "two"
    assert ask(first).choices[0].message.content == "one"


def test_requests_side_by_side_each_get_one_reply(start: Any) -> None:
    gateway, client = start([str(n) for n in range(20)], faults=["slow*4"], slow_s=0.2)
    got: list[str] = []
    workers = [
        threading.Thread(target=lambda: got.append(ask(client).choices[0].message.content))
        for _ in range(20)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(10)
    assert sorted(got, key=int) == [str(n) for n in range(20)]
    assert gateway.remaining == 0


def test_starting_twice_and_a_taken_port_are_named(start: Any) -> None:
    gateway, _ = start()
    with pytest.raises(RuntimeError, match="already running"):
        gateway.start()
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=str(port)):
            Gateway(port=port).start()
    with pytest.raises(RuntimeError, match="no address"):
        _ = Gateway().base_url


def test_keys_are_not_kept(start: Any) -> None:
    gateway, _ = start()
    with openai.OpenAI(base_url=gateway.base_url, api_key="sk-secret-123") as client:
        ask(client)
    assert "sk-secret-123" not in repr(gateway.requests)


def test_importing_the_module_loads_no_server_and_no_client() -> None:
    program = (
        "import sys, compaction.gateway; "
        "print([m for m in ('tornado', 'openai', 'asyncio', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize("way", ["serve", "command line"])
def test_serve_prints_the_address_answers_and_stops_on_ctrl_c(way: str, tmp_path: Any) -> None:
    script = tmp_path / "script.json"
    script.write_text('["Hello."]', encoding="utf-8")
    program = "from compaction.gateway import serve; raise SystemExit(serve(['Hello.']))"
    command = {
        "serve": [sys.executable, "-c", program],
        "command line": [sys.executable, "-m", "compaction", "gateway", "--script", str(script)],
    }[way]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/v1", line)
        assert address, line
        with openai.OpenAI(base_url=address[0], api_key="unused") as client:
            assert ask(client).choices[0].message.content == "Hello."
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0
    assert rest == "stopped\n" and errors == ""


def test_serve_names_a_taken_port() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        out = io.StringIO()
        with pytest.raises(OSError, match="cannot listen"):
            serve(port=taken.getsockname()[1], out=out)
        assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--script", "none.json"], 2, "none.json: cannot be read"),
        (["--port", "99999"], 2, "0 to 65535"),
        (["--fault", "fast"], 2, "no fault is named 'fast'; known are usage-missing"),
        (["--port", "TAKEN"], 1, "cannot listen on 127.0.0.1:"),
    ],
)
def test_a_wrong_command_line_gets_one_line(
    arguments: list[str], code: int, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        given = [a.replace("TAKEN", str(taken.getsockname()[1])) for a in arguments]
        try:
            ended = main(["gateway", *given])
        except SystemExit as exit:
            ended = int(exit.code or 0)
    captured = capsys.readouterr()
    assert ended == code and captured.out == ""
    assert named in captured.err and captured.err.count("\n") == 1


def test_the_command_lines_faults_and_scripts_reach_the_gateway(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        "compaction.gateway.command.serve",
        lambda *args, **kwargs: given.append((args, kwargs)) or 0,
    )
    turns, summaries = tmp_path / "turns.json", tmp_path / "summaries.json"
    turns.write_text('["Hello."]', encoding="utf-8")
    summaries.write_text(json.dumps([SUMMARY]), encoding="utf-8")
    files = ["--script", str(turns), "--summaries", str(summaries)]
    files += ["--window", "4096", "--too-long", "vllm"]
    assert main(["gateway", *files, "--port", "8000", "--fault", "slow", "--fault", "slow/3"]) == 0
    faults = [Fault("slow"), Fault("slow", every=3)]
    expected = {"summaries": [SUMMARY], "port": 8000, "faults": faults}
    expected |= {"window": 4096, "too_long": "vllm"}
    assert given == [((["Hello."],), expected)]
    with pytest.raises(SystemExit):
        main(["gateway", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {about}" in shown for name, about in FAULTS.items())


# --- a script from a file ---------------------------------------------------------------


def test_read_script(tmp_path: Any) -> None:
    path = tmp_path / "script.json"
    replies = ["Hello.", {"tool_calls": [{"name": "todo", "arguments": {}}]}]
    path.write_text(json.dumps(replies), encoding="utf-8")
    assert read_script(str(path)) == replies


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b'["a", 5]', "reply 2: expected a text or a message, got an integer"),
        (b'{"content": "a"}', "expected a list of replies, got an object"),
        (b'["a",\n', "line 2, column 1: expected JSON"),
        (b'["\xff"]', "expected text in UTF-8"),
        (b"[" * 100_000, "not nested so deeply"),
    ],
)
def test_read_script_names_file_place_and_expectation(
    tmp_path: Any, content: bytes, named: str
) -> None:
    path = tmp_path / "script.json"
    path.write_bytes(content)
    with pytest.raises(ScriptError) as error:
        read_script(str(path))
    assert str(error.value).startswith(f"{path}: ")
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_read_script_without_a_file(tmp_path: Any) -> None:
    with pytest.raises(ScriptError, match="cannot be read"):
        read_script(str(tmp_path / "none.json"))
