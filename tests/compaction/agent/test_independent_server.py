"""The same client loop against two servers: ours, and one that nobody here wrote.

A client and a server by the same hand can agree on the same mistake. So everything that an agent
relies on is asked of `llmock` as well (extra ``gateways``): what passes on both is the protocol,
not our habit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import openai
import pytest

from compaction.agent import Agent, Listener
from compaction.agent.connection import connect
from compaction.agent.functions import Parts
from compaction.agent.store import read_session
from compaction.agent.tools import SCHEMAS, Toolbox
from compaction.calibration import TokenMeter
from compaction.gateway import Gateway, summarize_with
from compaction.messages import calls_of, is_summary, problems
from compaction.summary import SummaryError, compact, parse_summary

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
            },
        },
    }
    for name, description, argument in (
        ("read_file", "Read a file of the project.", "path"),
        ("run_command", "Run a command in the project's folder.", "command"),
    )
]
QUESTION = {"role": "user", "content": "Read src/calc.py, run its tests, and say what is wrong."}
CALLS = [
    {"name": "read_file", "arguments": {"path": "src/计算.py"}},
    {"name": "run_command", "arguments": {"command": "pytest -q tests/test_calc.py"}},
]
ANSWER = "divide has no guard: 1 / 0 raises ZeroDivisionError."
SUMMARY = (
    "Confirmed facts:\n- divide has no guard\nChanges already made:\nnone\n"
    "Unfinished items:\n- guard divide\nKey paths and commands:\n- src/calc.py"
)


class Server(Protocol):
    """What the tests ask of a server, whoever wrote it."""

    base_url: str

    def say(self, text: str) -> None: ...
    def summarize(self, text: str) -> None: ...
    def call(self, *calls: dict[str, Any], text: str | None = None) -> None: ...
    def limit_rate(self, retry_after_s: float) -> None: ...
    def cut_stream(self) -> None: ...
    def seen(self) -> list[dict[str, Any]]: ...


class Ours:
    """The scripted gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.base_url = gateway.base_url

    def say(self, text: str) -> None:
        self._gateway.add_replies(text)

    def summarize(self, text: str) -> None:
        pass  # it answers a summary request by itself

    def call(self, *calls: dict[str, Any], text: str | None = None) -> None:
        self._gateway.add_replies({"content": text, "tool_calls": calls})

    def limit_rate(self, retry_after_s: float) -> None:
        self._gateway.add_faults("rate-limit")

    def cut_stream(self) -> None:
        self._gateway.add_faults("cut-stream")

    def seen(self) -> list[dict[str, Any]]:
        return [request.body for request in self._gateway.requests if request.body]


class Theirs:
    """llmock, in this process, on a real socket."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.base_url = server.base_url("openai")

    def say(self, text: str) -> None:
        from llmock.scenarios import Reply

        self._server.state.scenarios.add(Reply(text=text))

    def summarize(self, text: str) -> None:
        self.say(text)  # it has one script for every request, in order

    def call(self, *calls: dict[str, Any], text: str | None = None) -> None:
        from llmock.scenarios import Reply, ToolCall

        made = tuple(ToolCall(call["name"], call["arguments"]) for call in calls)
        self._server.state.scenarios.add(Reply(text=text, tool_calls=made))

    def limit_rate(self, retry_after_s: float) -> None:
        from llmock.scenarios import Fail

        self._server.state.scenarios.add(Fail(429, retry_after=retry_after_s))

    def cut_stream(self) -> None:
        from llmock.scenarios import Match, StreamFault

        fault = StreamFault("disconnect", after_chunks=3, match=Match(stream=True))
        self._server.state.scenarios.add(fault)

    def seen(self) -> list[dict[str, Any]]:
        return [record.body for record in self._server.state.journal.records(wait=2.0)]


@pytest.fixture(params=["ours", pytest.param("llmock", marks=pytest.mark.gateways)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "ours":
        with Gateway(retry_after_s=0.05) as gateway:
            yield Ours(gateway)
        return
    reason = "llmock is not installed (extra gateways)"
    testing = pytest.importorskip("llmock.testing", reason=reason)
    with testing.LLMockServer() as started:
        yield Theirs(started)


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=server.base_url, api_key="unused", max_retries=0, timeout=10
    ) as client:
        yield client


def stream_reply(
    client: openai.OpenAI, messages: list[Any], **options: Any
) -> tuple[dict[str, Any], Any]:
    """Ask for a streamed reply; return it as a message for the history, and its usage."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    usage = finish_reason = None
    for chunk in client.chat.completions.create(
        model="gpt-4o",
        messages=messages,
        stream=True,
        stream_options={"include_usage": True},
        **options,
    ):
        assert usage is None, "nothing may follow the usage chunk"
        if not chunk.choices:
            usage = chunk.usage
            continue
        [choice] = chunk.choices
        finish_reason = choice.finish_reason or finish_reason
        if choice.delta.content:
            message["content"] = (message["content"] or "") + choice.delta.content
        for delta in choice.delta.tool_calls or []:
            function = {"name": "", "arguments": ""}
            call = calls.setdefault(delta.index, {"type": "function", "function": function})
            call["id"] = delta.id or call.get("id")
            call["function"]["name"] += delta.function.name or ""
            call["function"]["arguments"] += delta.function.arguments or ""
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    assert finish_reason == ("tool_calls" if calls else "stop")
    return message, usage


def work(client: openai.OpenAI, meter: TokenMeter, at_most_turns: int = 5) -> list[Any]:
    """Run the loop of an agent: ask, run the tools, ask again, until the model only speaks."""
    messages: list[Any] = [{"role": "system", "content": "You mend code."}, QUESTION]
    for _ in range(at_most_turns):
        message, usage = stream_reply(client, messages, tools=TOOLS)
        meter.observe(messages, usage, tools=TOOLS)
        messages.append(message)
        calls = calls_of(message)
        if not calls:
            return messages
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"{call.name} ran"}
            for call in calls
        ]
    raise AssertionError(f"the model still calls tools after {at_most_turns} turns")


def test_the_agents_loop_with_parallel_calls(server: Server, client: openai.OpenAI) -> None:
    server.call(*CALLS, text="Both at once.")
    server.say(ANSWER)
    meter = TokenMeter()
    messages = work(client, meter)
    assert [m["role"] for m in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert messages[2]["content"] == "Both at once."
    assert [
        {"name": call.name, "arguments": json.loads(call.arguments)}
        for call in calls_of(messages[2])
    ] == CALLS
    assert messages[-1]["content"] == ANSWER
    assert problems(messages) == []
    assert len(meter.samples) == 2
    # The server was told what the loop holds: the same messages and the same tools.
    first, second = server.seen()
    assert first["messages"] == messages[:2]
    assert second["messages"] == messages[:5]
    assert first["tools"] == second["tools"] == TOOLS


def test_the_final_chunk_carries_usage(server: Server, client: openai.OpenAI) -> None:
    server.say(ANSWER)
    message, usage = stream_reply(client, [QUESTION])
    assert message["content"] == ANSWER
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_stream_that_did_not_ask_carries_no_usage(server: Server, client: openai.OpenAI) -> None:
    server.say(ANSWER)
    chunks = list(client.chat.completions.create(model="gpt-4o", messages=[QUESTION], stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_a_reply_in_one_piece(server: Server, client: openai.OpenAI) -> None:
    server.call(CALLS[0])
    response = client.chat.completions.create(model="gpt-4o", messages=[QUESTION], tools=TOOLS)
    [choice] = response.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    [call] = choice.message.tool_calls or []
    assert call.type == "function" and call.function.name == "read_file"
    assert json.loads(call.function.arguments) == CALLS[0]["arguments"]
    assert response.usage is not None and response.usage.prompt_tokens > 0


def test_models_are_listed(server: Server, client: openai.OpenAI) -> None:
    models = list(client.models.list())
    assert models and all(model.object == "model" and model.id for model in models)


def test_a_rate_limit_and_the_clients_own_retry(server: Server, client: openai.OpenAI) -> None:
    server.limit_rate(0.05)
    with pytest.raises(openai.RateLimitError) as error:
        stream_reply(client, [QUESTION])
    assert float(error.value.response.headers["Retry-After"]) >= 0.05
    server.limit_rate(0.05)
    server.say(ANSWER)
    message, _ = stream_reply(client.with_options(max_retries=1), [QUESTION])
    assert message["content"] == ANSWER


def test_a_stream_that_is_cut(server: Server, client: openai.OpenAI) -> None:
    server.cut_stream()
    server.say(ANSWER * 5)
    with pytest.raises(openai.APIConnectionError):
        stream_reply(client, [QUESTION])


def test_a_malformed_request_is_the_callers_fault(server: Server, client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as error:
        client.chat.completions.create(model="gpt-4o", messages="hello")  # type: ignore[arg-type]
    assert 400 <= error.value.status_code < 500


class Notes(Listener):
    """Writes down what a session tells, and lets every command run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.said = ""

    def text(self, piece: str) -> None:
        self.said += piece

    def note(self, line: str) -> None:
        self.lines.append(line)

    def allow(self, command: str) -> bool:
        return True


def test_a_whole_session_of_the_agent(server: Server, tmp_path: Path) -> None:
    """Real tools, two turns, a fault, and a compaction whose summary comes over HTTP."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "calc.py").write_text(
        "# Amounts are whole cents.\n" * 150 + "def divide(a, b):\n    return a / b\n"
    )
    notes = Notes()
    agent = Agent(
        connect("gpt-4o", server.base_url, "unused"),
        Toolbox(project, allow=notes.allow),
        notes,
        window=5000,
        parts=Parts(counter=TokenMeter()),
        save_to=tmp_path / "session.json",
    )
    read = {"name": "read_file", "arguments": {"path": "src/calc.py"}}
    run = {"name": "run_command", "arguments": {"command": "grep -c cents src/calc.py"}}
    guard = {"path": "src/calc.py", "old": "    return a / b", "new": "    return a / b  # guarded"}
    server.call(read, run, text="Both at once.")
    server.call({"name": "edit_file", "arguments": guard})
    server.call({"name": "read_file", "arguments": {"path": "src/calc.py", "start": 140}})
    server.say(ANSWER)
    try:
        assert agent.say("Guard divide. Remember: build with `make all`.")
        assert "# guarded" in (project / "src" / "calc.py").read_text()
        results = [str(m["content"]) for m in agent.history if m["role"] == "tool"]
        assert results[1].startswith("150\n[exit code 0")
        assert notes.said == "Both at once." + ANSWER
        # What this server reports as usage is taken as the truth, whatever rule it follows.
        assert agent.usage is not None and agent.usage.tokens > 0
        server.limit_rate(0.05)
        server.say("It is guarded.")
        assert agent.say("And now?")
        [line] = [line for line in notes.lines if "status 429" in line]
        assert "asking again in" in line
        for text in ("Fine.", "Good."):
            server.say(text)
            assert agent.say("So?")
        server.summarize(SUMMARY)
        passed = agent.compact()
        assert passed is not None and passed.abandoned is None, notes.lines
        assert passed.after < passed.before and not passed.lost
        # Below the line of the pass itself stands which values of the index went in.
        assert notes.lines[-1].startswith(f"{passed.line}; ") and "1 probe kept" in passed.line
        assert "values kept: make all" in notes.lines[-1]
        [summary] = [message for message in agent.history if is_summary(message)]
        assert "guard divide" in summary["content"].lower()
        server.say("The session goes on.")
        assert agent.say("Still there?")
        assert problems(agent.history) == []
        assert read_session(tmp_path / "session.json").messages == agent.history
        sent = server.seen()[-1]
        assert sent["messages"] == agent.history[:-1] and sent["tools"] == SCHEMAS
    finally:
        agent.close()


@pytest.mark.gateways
def test_a_summary_of_another_maker_is_checked_like_any_other() -> None:
    testing = pytest.importorskip(
        "llmock.testing", reason="llmock is not installed (extra gateways)"
    )
    # Long enough to be worth a summary, and with three groups after it that are kept.
    history: list[Any] = [
        {"role": "system", "content": "You mend code."},
        QUESTION,
        {"role": "assistant", "content": "I read the module. " + "It divides numbers. " * 40},
        {"role": "assistant", "content": "I ran the tests. " + "One of them fails. " * 40},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": "I look for the cause."},
        {"role": "assistant", "content": ANSWER},
    ]
    with (
        testing.LLMockServer() as started,
        openai.OpenAI(
            base_url=started.base_url("openai"), api_key="unused", max_retries=0
        ) as client,
    ):
        server = Theirs(started)
        summarize = summarize_with(client, "gpt-4o")
        server.say(SUMMARY)
        compacted = compact(history, summarize)
        assert compacted.abandoned is None
        assert compacted.after < compacted.before
        assert set(parse_summary(compacted.summaries[0]))
        # Left to itself the server says something, but no summary: nothing is touched.
        chatted = compact(history, summarize)
        assert chatted.abandoned and chatted.messages == history
        server.call(CALLS[0])
        with pytest.raises(SummaryError, match="tool call"):
            summarize(history)
