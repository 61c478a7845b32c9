"""Scripts: the replies that the gateway gives, in order."""

from __future__ import annotations

import copy
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from compaction.gateway.validate import kind_of
from compaction.history import HistoryError
from compaction.messages import Message

Reply = str | Mapping[str, Any] | Callable[[dict[str, Any]], Any]
"""One reply of a script: a text; a message with ``content`` and/or ``tool_calls``; or a callable
that is given the request's body and returns one of the two. A tool call may be written in full
or as ``{"name": "read_file", "arguments": {"path": "calc.py"}}``; then it gets its id here. Other
fields of a message or a call ride along as they are; ``finish_reason`` says how the reply ends,
and a call's ``index`` under which it is streamed."""

SCRIPT_OVER = "(The script of this gateway has no further reply.)"
"""The reply to every turn after the last one of the script."""


class ScriptError(HistoryError):
    """A script that the gateway cannot follow; the text names the reply and what was expected."""


def read_script(path: str) -> list[Reply]:
    """Read a script from a JSON file: a list of replies, each a text or a message.

    Raises ScriptError with one line that names the file, the place and what was expected.
    """
    try:
        with open(path, encoding="utf-8") as file:
            script = json.load(file)
    except OSError as error:
        raise ScriptError(f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ScriptError(f"{path}: {place}: expected JSON, a list of replies") from error
    except ValueError as error:
        raise ScriptError(f"{path}: expected text in UTF-8") from error
    except RecursionError as error:
        raise ScriptError(f"{path}: expected a list of replies, not nested so deeply") from error
    if not isinstance(script, list):
        raise ScriptError(f"{path}: expected a list of replies, got {kind_of(script)}")
    for number, reply in enumerate(script, start=1):
        check_reply(reply, f"{path}: reply {number}")
    return script


def check_reply(reply: object, place: str) -> None:
    """Raise ScriptError unless the reply is one; a callable is believed until it is called."""
    if isinstance(reply, str) or callable(reply):
        return
    if not isinstance(reply, Mapping):
        raise ScriptError(f"{place}: expected a text or a message, got {kind_of(reply)}")
    content, calls = reply.get("content"), reply.get("tool_calls")
    if not isinstance(content, str | list | None):
        raise ScriptError(f"{place}: expected text or parts as content, got {kind_of(content)}")
    if calls is None:
        if content is None:
            raise ScriptError(f"{place}: expected a message with content or tool_calls")
        return
    if not isinstance(calls, Sequence) or isinstance(calls, str) or not calls:
        raise ScriptError(f"{place}: expected a list of at least one tool call")
    for call in calls:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ScriptError(f"{place}: expected a tool call with a name and arguments")


class Script:
    """Replies in order. One that did not arrive whole is put back, so a retry receives it."""

    def __init__(self, replies: Iterable[Reply], name: str) -> None:
        self._replies: deque[Reply] = deque()
        self._name = name
        self._added = 0
        self.add(*replies)

    def __len__(self) -> int:
        return len(self._replies)

    def add(self, *replies: Reply) -> None:
        for reply in replies:
            self._added += 1
            check_reply(reply, f"{self._name} {self._added}")
            self._replies.append(reply)

    def take(self) -> Reply | None:
        return self._replies.popleft() if self._replies else None

    def put_back(self, reply: Reply) -> None:
        self._replies.appendleft(reply)


def message_of(reply: Reply, body: dict[str, Any]) -> Message:
    """Return a scripted reply as the assistant message that goes over the wire."""
    if callable(reply):
        # The callable gets its own copy: the recorded request stays what the client sent.
        reply = reply(copy.deepcopy(body))
        check_reply(reply, "the value that a scripted callable returned")
        if callable(reply):
            raise ScriptError("a scripted callable returned a callable, not a reply")
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}
    # Fields of other names ride along, as the reasoning of a thinking model does.
    message: Message = {**reply, "role": "assistant", "content": reply.get("content")}
    if reply.get("tool_calls"):
        taken = set(re.findall(r"call_\d+", json.dumps(body.get("messages"))))
        fresh = (name for n in count(1) if (name := f"call_{n}") not in taken)
        message["tool_calls"] = [_wire_call(call, fresh) for call in reply["tool_calls"]]
    else:
        message.pop("tool_calls", None)
    return message


def _wire_call(call: Mapping[str, Any], fresh_ids: Iterator[str]) -> dict[str, Any]:
    function = call.get("function", call)
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    own = {key: value for key, value in call.items() if key not in ("name", "arguments")}
    return {
        **own,
        "id": call.get("id") or next(fresh_ids),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
