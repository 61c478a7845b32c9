"""Histories for the checks, drawn under a seed: small, believable, and of a chosen kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random

from compaction.calibration import TokenMeter
from compaction.grouping import Group, group_messages, segments
from compaction.messages import Message, marked_text, transcript
from compaction.summary import HEADINGS, Summarizer

_SENTENCES = (
    "Please look at the upload page, it is slow.",
    "The export leaves the last row out.",
    "Which of the two tests fails?",
    "Use the new address from now on.",
    "请先看日志，再改代码。",
    "Never change the database by hand.",
    "The date is wrong in March.",
    "Only the German texts are missing.",
)
_ANSWERS = (
    "The reader stops one line too early.",
    "I see the cause: the cache is never emptied.",
    "Two of the nine tests fail, both in the parser.",
    "原因是时区没有换算。",
    "The change is made; the tests are next.",
)
_TOOLS = (
    ("read_file", "path", ("app/export.py", "app/upload.py", "tests/test_dates.py")),
    ("run_command", "command", ("make test", "git diff --stat", "grep -rn cache app")),
    ("edit_file", "path", ("app/export.py", "app/dates.py")),
)
_LINES = (
    "def rows(table): return table.read(skip=1)",
    "test_dates.py::test_march FAILED",
    "app/upload.py:40: cache = {}  # 缓存",
    "9 passed in 0.41s",
    "    return [row for row in rows if row]",
)


def user(rng: Random) -> Message:
    """Return a short request."""
    return {"role": "user", "content": rng.choice(_SENTENCES)}


def answer(rng: Random) -> Message:
    """Return a short answer of the assistant, without tool calls."""
    return {"role": "assistant", "content": rng.choice(_ANSWERS)}


def calls(rng: Random, *ids: str) -> Message:
    """Return an assistant message that calls one tool an id."""
    made = []
    for call_id in ids:
        name, argument, values = rng.choice(_TOOLS)
        arguments = json.dumps({argument: rng.choice(values)})
        function = {"name": name, "arguments": arguments}
        made.append({"id": call_id, "type": "function", "function": function})
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(rng: Random, call_id: str, lines: int = 1) -> Message:
    """Return a tool result of this many lines."""
    content = "\n".join(rng.choice(_LINES) for _ in range(lines))
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def round_trip(rng: Random, *ids: str, lines: int = 1) -> list[Message]:
    """Return a call of one tool an id, and its results right after it, in any order."""
    answers = [result(rng, call_id, lines) for call_id in ids]
    rng.shuffle(answers)
    return [calls(rng, *ids), *answers]


def talk(rng: Random, messages: int) -> list[Message]:
    """Return plain messages of user and assistant in turn."""
    return [user(rng) if index % 2 == 0 else answer(rng) for index in range(messages)]


def piece_of_work(rng: Random, name: str, trips: int = 2, lines: int = 12) -> list[Message]:
    """Return a request, round trips with long results, and a conclusion."""
    request = user(rng)
    # The name makes the piece's first message unlike any other's.
    work = [{**request, "content": f"Ticket {name}: {request['content']}"}]
    for number in range(trips):
        ids = [f"{name}{number}{letter}" for letter in "ab"[: rng.randint(1, 2)]]
        work += round_trip(rng, *ids, lines=lines)
    return [*work, answer(rng)]


def of_tokens(rng: Random, tokens: int, messages: int) -> list[Message]:
    """Return this many plain messages of this many tokens in all, by the default table."""
    history: list[Message] = [
        {"role": "user" if index % 2 == 0 else "assistant", "content": ""}
        for index in range(messages)
    ]
    spare = 4 * tokens - len(transcript(history)) - rng.randint(0, 3)
    if spare < 0:
        raise ValueError(f"{messages} messages need more than {tokens} tokens")
    for index, message in enumerate(history):
        last = index == messages - 1
        length = spare if last else rng.randint(0, min(spare, 2 * spare // (messages - index)))
        message["content"] = ("so be it " * (length // 9 + 1))[:length]
        spare -= length
    return history


def summary(rng: Random, without: str | None = None) -> str:
    """Return a structured summary with its four headings, or without one of them."""
    bodies = (
        rng.choice(_ANSWERS),
        rng.choice(("none", "app/dates.py: the month now counts from 1.")),
        rng.choice(("Run the tests again.", "none")),
        rng.choice(("app/export.py, `make test`", "tests/test_dates.py")),
    )
    sections = zip(HEADINGS, bodies, strict=True)
    return "\n".join(f"{heading}\n- {body}" for heading, body in sections if heading != without)


def stretches_of(
    messages: Sequence[Message],
    keep_recent: int = 3,
    *,
    group: Callable[..., list[Group]] = group_messages,
    min_segment_tokens: int = 100,
    meter: TokenMeter | None = None,
) -> list[tuple[int, int]]:
    """Return what a compaction with these parameters summarises."""
    meter = meter or TokenMeter()
    return [
        (start, end)
        for start, end in segments(messages, group(messages, keep_recent))
        if meter.count(list(messages[start:end])) >= min_segment_tokens
    ]


def scripted(
    messages: Sequence[Message], stretches: Sequence[tuple[int, int]], replies: Sequence[str]
) -> Summarizer:
    """Return a summariser that gives each stretch of a history its own reply, however often asked.

    A stretch is known by its first message and its length; anything else gets a reply that is in
    form and says nothing.
    """
    by_stretch = {
        (marked_text(messages[start]), end - start): reply
        for (start, end), reply in zip(stretches, replies, strict=True)
    }

    def summarize(stretch: list[Message]) -> str:
        first = marked_text(stretch[0]) if stretch else ""
        return by_stretch.get((first, len(stretch)), _NOTHING)

    return summarize


_NOTHING = "\n".join(f"{heading}\n- none" for heading in HEADINGS)


def tokens_of(messages: Sequence[Message]) -> int:
    """Return the tokens of a history by a fresh meter.

    >>> tokens_of([{"role": "user", "content": "hello"}])
    3
    """
    return TokenMeter().count(list(messages))
