"""What real gateways send beyond text: the scripted gateway sends it too, whole and streamed."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from compaction.engine import Reply, ReplyError, read_reply, reply_with
from compaction.gateway import Gateway, ScriptError
from compaction.gateway.too_long import WORDINGS

HELLO = [{"role": "user", "content": "Weather in Oslo?"}]
SIGNED = {"google": {"thought_signature": "c2ln"}}
CALL = {"name": "weather", "arguments": {"city": "Oslo"}}


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def client_of(gateway: Gateway) -> Any:
    return openai.OpenAI(base_url=gateway.base_url, api_key="unused", max_retries=0)


def ask(gateway: Gateway, stream: bool, messages: Any = HELLO, model: str = "m") -> Reply:
    on_text = (lambda piece: None) if stream else None
    return read_reply(reply_with(client_of(gateway), model, on_text=on_text)(messages, None))


FIELDS: list[dict[str, Any]] = [
    {"reasoning_content": "The tool knows. " * 5},
    {"reasoning": "The tool knows."},
    {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "T", "signature": "s"}]},
]


@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: next(iter(fields)))
def test_fields_go_out_and_come_back(stream: bool, fields: dict[str, Any]) -> None:
    first = {"content": None, **fields, "tool_calls": [{**CALL, "extra_content": SIGNED}]}
    with Gateway(script=[first, "Sunny.", "Sunny."]) as gateway:
        message = ask(gateway, stream).message
        result = {
            "role": "tool",
            "tool_call_id": message["tool_calls"][0]["id"],
            "content": "sun",
        }
        ask(gateway, stream, [*HELLO, message, result])
        ask(gateway, stream, [*HELLO, message, result], model="another")
        same, other = (
            request.body["messages"][1] for request in gateway.requests[1:] if request.body
        )
    for key, value in fields.items():
        assert message[key] == same[key] == value and key not in other
    assert same["tool_calls"][0]["extra_content"] == SIGNED
    assert "extra_content" not in other["tool_calls"][0]
    assert "model" not in same and "model" not in other


def test_calls_streamed_under_one_index_are_two(stream: bool) -> None:
    calls = [{**CALL, "index": 0}, {"name": "weather", "arguments": {"city": "Rome"}, "index": 0}]
    with Gateway(script=[{"tool_calls": calls}]) as gateway:
        found = ask(gateway, stream).message["tool_calls"]
    assert [call["function"]["arguments"] for call in found] == [
        '{"city": "Oslo"}',
        '{"city": "Rome"}',
    ]


def test_a_reply_may_be_cut_off_at_its_limit(stream: bool) -> None:
    script = [
        {"content": "Half an ans", "finish_reason": "length"},
        {
            "tool_calls": [{"name": "f", "arguments": '{"text": "ab'}],
            "finish_reason": "length",
        },
    ]
    with Gateway(script=script) as gateway:
        assert ask(gateway, stream).finish_reason == "length"
        [why] = ask(gateway, stream).broken.values()
    assert "cut off" in why


def test_content_may_be_parts(stream: bool) -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Sunny."},
    ]
    with Gateway(script=[{"content": parts}]) as gateway:
        reply = ask(gateway, stream)
    assert reply.text == "Sunny." and reply.message["content"] == parts


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        ("html-error", openai.InternalServerError),
        ("error-event", (openai.APIError, ReplyError)),
        ("empty-choices", ReplyError),
        ("cut-stream", (openai.APIError, ReplyError)),
    ],
)
def test_a_broken_answer_is_an_error_and_the_next_request_gets_the_reply(
    stream: bool, fault: str, raised: Any
) -> None:
    with Gateway(script=["Sunny."], faults=[fault]) as gateway:
        with pytest.raises(raised):
            ask(gateway, stream)
        assert ask(gateway, stream).text == "Sunny."


@pytest.mark.parametrize("wording", WORDINGS)
def test_a_request_beyond_the_window_is_refused(stream: bool, wording: str) -> None:
    long = [{"role": "user", "content": "word " * 100}]
    with Gateway(script=["Sunny."], window=100, too_long=wording) as gateway:
        with pytest.raises(openai.APIStatusError) as caught:
            ask(gateway, stream, long)
        assert caught.value.status_code == (413 if wording == "413" else 400)
        assert ask(gateway, stream).text == "Sunny."


def test_a_wording_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="too_long must be one of"):
        Gateway(too_long="nobody's")
    with pytest.raises(ScriptError, match="text or parts"):
        Gateway(script=[{"content": 5}])


@pytest.mark.parametrize("at", range(0, 400, 25))
def test_a_stream_cut_at_any_byte_is_no_reply(at: int) -> None:
    """A server of our own: it sends so many bytes of a good stream, then closes."""
    import json
    import socket
    import threading

    pieces = [{"content": "Sun"}, {"content": "ny."}, {}]
    chunks = [
        {
            "id": "1",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}],
        }
        for delta in pieces
    ]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    sent = (head + body).encode()[: len(head) + at]
    complete = body.rindex('"stop"') + 8 < at

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(sent)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        client = openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=5)
        call_model = reply_with(client, "m", on_text=lambda piece: None)
        try:
            reply = read_reply(call_model(HELLO, None))
        except (ReplyError, openai.APIError) as error:
            assert getattr(error, "may_pass", True)
        else:
            assert complete and reply.text == "Sunny."
        thread.join(5)
