"""Summary requests: recognise one, and answer it without a model."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any

from compaction.messages import Message, text_of


def is_summary_request(messages: Sequence[Message]) -> bool:
    """Say whether a request asks for a summary: its last message is a ``summary_prompt``.

    It is known by the prompt's first line, in either language; nothing but system instructions
    may come before it, so that a quoted prompt inside a history is not taken for one.
    """
    if not messages:
        return False
    *before, last = messages
    return (
        last.get("role") == "user"
        and text_of(last).startswith(_prompt_beginnings())
        and all(message.get("role") in ("system", "developer") for message in before)
    )


@cache
def _prompt_beginnings() -> tuple[str, ...]:
    from compaction.summary import summary_prompt

    return tuple(summary_prompt([], language).split("\n", 1)[0] for language in ("en", "zh"))


def summarize_quoted(prompt: str) -> str:
    """Answer a summary prompt without a model: extract from the messages that it quotes."""
    from compaction.summary import extract, share_in

    return extract(quoted_messages(prompt), max_tokens=share_in(prompt))


_QUOTED_START = re.compile(r"(system|developer|user|assistant|tool): ?(.*)", re.DOTALL)
_QUOTED_CALL = re.compile(r"([\w-]+) (\{.*\})")


def quoted_messages(prompt: str) -> list[Message]:
    r"""Read back the messages that a summary prompt quotes, as far as text can tell.

    A quoted line that begins with a role opens a message; the lines after its first are
    indented. In an assistant message a line of a name and a JSON object is a tool call; a text
    that imitates one is sorted less well, but still only copied.

    >>> quoted_messages("...\n| user: Fix divide.\n|   Run the tests.")
    [{'role': 'user', 'content': 'Fix divide.\nRun the tests.'}]
    """
    messages: list[Message] = []
    for line in prompt.splitlines():
        if not line.startswith("| "):
            continue
        start = _QUOTED_START.match(line, 2)
        if start:
            messages.append({"role": start[1], "content": start[2]})
        elif messages:
            messages[-1]["content"] += "\n" + line.removeprefix("|   ")
    ids = (f"quoted_{n}" for n in count(1))
    open_calls: deque[str] = deque()
    for message in messages:
        if message["role"] == "assistant":
            _restore_calls(message, ids)
            open_calls.extend(call["id"] for call in message.get("tool_calls", ()))
        elif message["role"] == "tool" and open_calls:
            message["tool_call_id"] = open_calls.popleft()
    return messages


def _restore_calls(message: Message, ids: Iterator[str]) -> None:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for line in message["content"].split("\n"):
        call = _QUOTED_CALL.fullmatch(line)
        if call and _is_json_object(call[2]):
            function = {"name": call[1], "arguments": call[2]}
            calls.append({"id": next(ids), "type": "function", "function": function})
        else:
            texts.append(line)
    if calls:
        message["content"] = "\n".join(texts) or None
        message["tool_calls"] = calls


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def drop_heading(summary: str) -> str:
    """Remove the last heading of a summary and leave its body where it is."""
    from compaction.summary import HEADINGS, HEADINGS_ZH, SummaryError, parse_summary

    names = "|".join(re.escape(heading.rstrip(":：")) for heading in HEADINGS + HEADINGS_ZH)
    for heading in reversed(list(re.finditer(f"(?:{names})[:：]?", summary, re.IGNORECASE))):
        shorter = summary[: heading.start()] + summary[heading.end() :]
        try:
            parse_summary(shorter)
        except SummaryError as error:
            if error.missing:
                return shorter
        # Still whole: the words stood in a body, not in a heading.
    return summary
