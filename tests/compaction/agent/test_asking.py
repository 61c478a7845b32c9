"""Faults of the line: what may pass is asked again, and every end leaves a way on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compaction.agent import Agent, asking
from compaction.agent.connection import connect
from compaction.agent.functions import Parts
from compaction.agent.slash_commands import run_command
from compaction.agent.tools import Toolbox
from compaction.calibration import TokenMeter
from compaction.messages import content_of
from tests.compaction.agent.servers import (
    Answer,
    Misbehaving,
    answer,
    chunk,
    error,
    events,
    said,
    silence,
)
from tests.compaction.agent.sessions import Heard, assert_valid, heard

PAGE = "<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>"
WORD = {"index": 0, "delta": {"role": "assistant", "content": "One two"}, "finish_reason": None}
WHOLE = said("One two three four.", prompt_tokens=9, completion_tokens=4, total_tokens=13)

Ask = Callable[..., Agent]


@pytest.fixture
def ask(folder: Path, tmp_path: Path) -> Iterator[Ask]:
    """Return a function that begins a session on a server."""
    begun: list[Agent] = []

    def begin(server: Misbehaving, timeout_s: float = 5.0, **options: Any) -> Agent:
        listener = Heard()
        toolbox = Toolbox(folder, allow=listener.allow)
        connection = connect("m", server.base_url, timeout_s=timeout_s)
        parts = Parts(counter=TokenMeter())
        options = {"parts": parts, "save_to": tmp_path / "s.json", **options}
        begun.append(Agent(connection, toolbox, listener, **options))
        return begun[-1]

    yield begin
    for agent in begun:
        agent.close()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_FIRST_WAIT_S", 0.01)


SOON = format_datetime(datetime.now(UTC) - timedelta(seconds=1), usegmt=True)

PASSING: dict[str, Answer] = {
    "429, seconds": answer(429, error("slow down"), "Retry-After: 0.02"),
    "429, date": answer(429, error("slow down"), f"Retry-After: {SOON}"),
    "429, nothing": answer(429, error("slow down")),
    "500": answer(500, error("oops")),
    "502, a page": answer(502, PAGE),
    "503, empty": answer(503, ""),
    "529": answer(529, error("overloaded")),
    "closed at once": lambda connection: None,
    "an error in the stream": events(
        error("the server is overloaded", code="server_error"), end=False
    ),
}


@pytest.mark.parametrize("fault", PASSING)
def test_what_may_pass_is_asked_again(ask: Ask, fault: str) -> None:
    with Misbehaving(PASSING[fault], PASSING[fault], WHOLE) as server:
        agent = ask(server)
        assert agent.say("Speak."), heard(agent).notes
        assert len(server.requests) == 3
        notes = heard(agent).notes
        assert len(notes) == 2 and all("asking again in" in note for note in notes)
        assert all("\n" not in note and "<" not in note for note in notes)
        assert content_of(agent.history[-1]) == "One two three four."
        assert not agent.turn_failed
        assert_valid(agent)


@pytest.mark.parametrize("cut", range(0, len(WHOLE) - 14, 23))
def test_a_stream_that_is_cut_anywhere_is_asked_for_again(ask: Ask, cut: int) -> None:
    with Misbehaving(WHOLE[:cut], WHOLE) as server:
        agent = ask(server)
        assert agent.say("Speak."), heard(agent).notes
        assert [m["role"] for m in agent.history] == ["system", "user", "assistant"]
        assert content_of(agent.history[-1]) == "One two three four."
        assert_valid(agent)


LASTING: dict[str, tuple[Answer, int, str]] = {
    "400": (answer(400, error("no such field")), 1, "refused the request"),
    "401": (answer(401, error("bad key")), 1, "does not accept the key"),
    "a long wait": (answer(429, error("tomorrow"), "Retry-After: 7200"), 1, "is busy"),
    "an empty account": (
        answer(429, error("pay first", code="insufficient_quota")),
        1,
        "pay first",
    ),
    "500 for ever": (answer(500, error("oops")), asking.MAX_ATTEMPTS, "the gateway failed"),
    "a page under 200": (answer(200, PAGE), 2, ""),
    "no choices": (events(chunk(), chunk()), 2, ""),
}


@pytest.mark.parametrize("fault", LASTING)
def test_what_lasts_ends_the_turn_with_a_way_on(ask: Ask, fault: str) -> None:
    fault_answer, least, reason = LASTING[fault]
    with Misbehaving(fault_answer) as server:
        agent = ask(server)
        assert not agent.say("Speak.")
        assert agent.turn_failed
        assert least <= len(server.requests) <= asking.MAX_ATTEMPTS
        line = heard(agent).notes[-1]
        assert reason in line and line.endswith("/retry asks again") and "<" not in line
        assert agent.history[-1] == {"role": "user", "content": "Speak."}
        assert_valid(agent)
        server.answers = [WHOLE]
        run_command(agent, "/retry")
        assert content_of(agent.history[-1]) == "One two three four."
        assert_valid(agent)


def test_a_server_that_never_answers_ends_in_a_time_out(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MAX_ATTEMPTS", 2)
    with Misbehaving(silence) as server:
        agent = ask(server, timeout_s=0.3)
        assert not agent.say("Speak.")
        assert "took too long to answer" in heard(agent).notes[-1]
        assert len(server.requests) == 2


def test_the_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(passed_s), sleep=passed_s.append)
    monkeypatch.setattr(asking, "time", clock)
    monkeypatch.setattr(asking, "retry_wait_s", lambda error, attempt: 50.0)

    def fail(heard_a_word: Callable[[], None]) -> None:
        passed_s.append(7.0)
        raise OSError("no")

    with pytest.raises(OSError):
        asking.ask_patiently(fail, Heard(), str)
    # Attempts at 0, 57, 114 and 171 s; the next would begin later than ASK_AGAIN_FOR_S.
    assert passed_s == [7.0, 50.0, 7.0, 50.0, 7.0, 50.0, 7.0]


def test_a_long_wait_is_named_and_can_be_broken_off(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(wait_s: float) -> None:
        assert wait_s == 45.0
        raise KeyboardInterrupt

    monkeypatch.setattr(asking.time, "sleep", interrupt)
    with Misbehaving(answer(429, error("later"), "Retry-After: 45"), WHOLE) as server:
        agent = ask(server)
        assert not agent.say("Speak.")
        waiting, stopped = heard(agent).notes
        assert waiting.endswith("asking again in 45 s (Ctrl-C stops the waiting)")
        assert stopped == "stopped; the session is whole, /continue goes on"
        assert not agent.turn_failed  # it was the person's wish
        assert agent.go_on()
        assert_valid(agent)


def test_a_silence_is_named_again_when_it_has_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.05)
    listener = Heard()

    def ask_slowly(heard_a_word: Callable[[], None]) -> str:
        time.sleep(0.15)
        heard_a_word()
        before = threading.active_count()
        time.sleep(0.3)
        assert len(listener.notes) == 2 and before
        return "yes"

    assert asking.ask_patiently(ask_slowly, listener, str) == "yes"
    first, second = listener.notes
    assert "no word for 0.05 s" in first and "no word for 0.1 s" in second


def test_summaries_are_asked_for_again_too(ask: Ask) -> None:
    summary = "\n".join(
        f"{heading}\n- calc.py holds amounts in whole cents"
        for heading in (
            "Confirmed facts:",
            "Changes already made:",
            "Unfinished items:",
            "Key paths and commands:",
        )
    )
    whole = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant"}}
    whole["message"] = {"role": "assistant", "content": summary}  # type: ignore[dict-item]
    reply = {**chunk(), "object": "chat.completion", "choices": [whole]}
    with Misbehaving(answer(503, error("busy")), answer(200, reply)) as server:
        history = [
            {"role": "user", "content": "Read the module. " * 40},
            {"role": "assistant", "content": "The module holds amounts in whole cents. " * 40},
            *({"role": role, "content": "Go on."} for role in ("user", "assistant") * 3),
        ]
        agent = ask(server, history=history)
        passed = agent.compact()
        assert passed is not None and passed.abandoned is None
        assert "asking again in" in heard(agent).notes[0]
        assert heard(agent).notes[1].startswith("compacted ")
