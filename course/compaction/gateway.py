"""A model gateway that follows a script: real HTTP on loopback, no model, no network.

An agent needs somebody to talk to. This server speaks the Chat Completions protocol, checks
requests as strictly as a real gateway, and takes its replies from a list, so that lessons,
tests and the offline agent show the same thing on every machine::

    with Gateway(script=["Hello."]) as gateway:
        client = openai.OpenAI(base_url=gateway.base_url, api_key="unused")

The order below is that of a request: the character rule for usage, scripts and faults, the
checks, the reply, the wire, the server; last, the summariser that asks a gateway.
"""

from __future__ import annotations

import copy
import json
import math
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from compaction.history import HistoryError
from compaction.messages import Message, image_count, problems, text_of, transcript
from compaction.tokens import IMAGE_TOKENS, count_chars

if TYPE_CHECKING:
    import argparse
    import asyncio

    from openai import OpenAI
    from tornado.http1connection import HTTP1Connection
    from tornado.httputil import HTTPServerRequest

# --- usage: the character rule ----------------------------------------------------------

TOKENS_PER_CJK = 0.5
TOKENS_PER_OTHER = 0.5
"""What the scripted gateway charges for a character, whatever its kind.

Real tokenizers charge about 1 and 1/4. The rule differs from the default table on purpose:
only then has a calibration something to find out.
"""
TOKENS_PER_MESSAGE = 3
"""What it adds for a message's framing. No pair of coefficients fits this part exactly, so the
error after a calibration stays above zero, though far below that of a real gateway."""


def scripted_usage_of_chars(cjk: int, other: int, messages: int = 1) -> int:
    """Return the prompt tokens that the scripted gateway reports for so many characters.

    ``ceil(cjk / 2 + other / 2) + 3 * messages``: a rule of this course, not of any model.

    >>> scripted_usage_of_chars(cjk=4, other=7, messages=1)
    9
    """
    characters = TOKENS_PER_CJK * cjk + TOKENS_PER_OTHER * other
    return math.ceil(round(characters, 6)) + TOKENS_PER_MESSAGE * messages


def scripted_usage(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
) -> int:
    """Return the ``prompt_tokens`` that the scripted gateway reports for a request.

    The characters are those of the transcript, tool schemas included; an image costs the same
    flat 256 tokens as in the estimate.

    >>> scripted_usage([{"role": "user", "content": "hello"}])  # "user: hello" and a line break
    9
    """
    chars = count_chars(transcript(messages, tools))
    images = IMAGE_TOKENS * image_count(messages)
    return scripted_usage_of_chars(chars.cjk, chars.other, len(messages)) + images


def completion_usage(message: Message) -> int:
    """Return the ``completion_tokens`` of a reply: its characters by the same rule, no framing.

    >>> completion_usage({"role": "assistant", "content": "hello"})
    3
    """
    chars = count_chars(text_of(message))
    return scripted_usage_of_chars(chars.cjk, chars.other, messages=0)


# --- scripts ----------------------------------------------------------------------------

Reply = str | Mapping[str, Any] | Callable[[dict[str, Any]], Any]
"""One reply of a script: a text; a message with ``content`` and/or ``tool_calls``; or a callable
that is given the request's body and returns one of the two. A tool call may be written in full
or as ``{"name": "read_file", "arguments": {"path": "calc.py"}}``; then it gets its id here."""

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
        raise ScriptError(f"{path}: expected a list of replies, got {_kind(script)}")
    for number, reply in enumerate(script, start=1):
        _check_reply(reply, f"{path}: reply {number}")
    return script


def _check_reply(reply: object, place: str) -> None:
    """Raise ScriptError unless the reply is one; a callable is believed until it is called."""
    if isinstance(reply, str) or callable(reply):
        return
    if not isinstance(reply, Mapping):
        raise ScriptError(f"{place}: expected a text or a message, got {_kind(reply)}")
    content, calls = reply.get("content"), reply.get("tool_calls")
    if not isinstance(content, str | None):
        raise ScriptError(f"{place}: expected a string as content, got {_kind(content)}")
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


class _Script:
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
            _check_reply(reply, f"{self._name} {self._added}")
            self._replies.append(reply)

    def take(self) -> Reply | None:
        return self._replies.popleft() if self._replies else None

    def put_back(self, reply: Reply) -> None:
        self._replies.appendleft(reply)


def _message_of(reply: Reply, body: dict[str, Any]) -> Message:
    """Return a scripted reply as the assistant message that goes over the wire."""
    if callable(reply):
        # The callable gets its own copy: the recorded request stays what the client sent.
        reply = reply(copy.deepcopy(body))
        _check_reply(reply, "the value that a scripted callable returned")
        if callable(reply):
            raise ScriptError("a scripted callable returned a callable, not a reply")
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}
    message: Message = {"role": "assistant", "content": reply.get("content")}
    if reply.get("tool_calls"):
        taken = set(re.findall(r"call_\d+", json.dumps(body.get("messages"))))
        fresh = (name for n in count(1) if (name := f"call_{n}") not in taken)
        message["tool_calls"] = [_wire_call(call, fresh) for call in reply["tool_calls"]]
    return message


def _wire_call(call: Mapping[str, Any], fresh_ids: Iterator[str]) -> dict[str, Any]:
    function = call.get("function", call)
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {
        "id": call.get("id") or next(fresh_ids),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


# --- faults -----------------------------------------------------------------------------

FAULTS = {
    "usage-missing": "the reply carries no usage at all",
    "usage-null": "the reply carries a usage that is null",
    "rate-limit": "status 429 with a Retry-After header",
    "server-error": "status 500",
    "cut-stream": "the connection is cut in the middle of the reply",
    "missing-heading": "a summary lacks one of its four headings",
    "tool-call-summary": "a tool call comes instead of a summary",
    "slow": "the reply keeps the client waiting",
}
"""The fault modes by name. The two about summaries meet summary requests only; those about usage
meet requests whose reply carries usage. A request refused by a fault meets no other, and a
reply that did not arrive whole is given again to the next request."""

_REFUSING = ("rate-limit", "server-error")
_ABOUT_SUMMARIES = ("missing-heading", "tool-call-summary")
_ABOUT_USAGE = ("usage-missing", "usage-null")

Kind = Literal["turn", "summary", "other"]
_On = Literal["any", "turn", "summary"]


@dataclass(frozen=True)
class Fault:
    """A fault mode and the requests that it meets, counted among those it can meet at all.

    ``Fault("slow")`` meets the next request, ``times=2`` the next two, ``every=3`` each third
    (with ``times`` at most so often). ``on`` narrows it to "turn" or "summary" requests.
    Raises ValueError for a name that is not in FAULTS.
    """

    name: str
    every: int | None = None
    times: int | None = None
    on: _On = "any"

    def __post_init__(self) -> None:
        if self.name not in FAULTS:
            raise ValueError(f"no fault is named {self.name!r}; known are {', '.join(FAULTS)}")
        if any(number is not None and number < 1 for number in (self.every, self.times)):
            raise ValueError("every and times must be at least 1")

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read a fault from its short form: NAME, NAME*TIMES or NAME/EVERY, then @turn or @summary.

        >>> Fault.parse("rate-limit*2")
        Fault(name='rate-limit', every=None, times=2, on='any')
        >>> Fault.parse("cut-stream/3@summary")
        Fault(name='cut-stream', every=3, times=None, on='summary')
        """
        match = re.fullmatch(r"([\w-]+)(?:([*/])(\d+))?(?:@(turn|summary))?", text)
        if match is None:
            raise ValueError(f"expected a fault such as slow, slow*2 or slow/3@turn, not {text!r}")
        name, sign, number, on = match.groups()
        return cls(
            name,
            every=int(number) if sign == "/" else None,
            times=int(number) if sign == "*" else None,
            on=cast("_On", on or "any"),
        )


class _ArmedFault:
    """A fault together with how many requests it could have met, and did meet."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._passed = 0
        self._met = 0

    def meets(self, kind: Kind, carries_usage: bool) -> bool:
        fault = self.fault
        if fault.on not in ("any", kind):
            return False
        if fault.name in _ABOUT_SUMMARIES and kind != "summary":
            return False
        if fault.name in _ABOUT_USAGE and not carries_usage:
            return False
        limit = fault.times or (1 if fault.every is None else math.inf)
        self._passed += 1
        due = self._met < limit and self._passed % (fault.every or 1) == 0
        self._met += due
        return due


# --- checking a request -----------------------------------------------------------------


class _Refusal(Exception):
    """A request that is answered with an error object instead of a reply."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.body = {"error": {"message": message, "type": type, "param": param, "code": code}}


# The optional parameters that are checked, and what each must be. All may be null. What is not
# listed is accepted and ignored, as most compatible gateways do.
_PARAMETERS: dict[str, tuple[type, ...]] = {
    "stream": (bool,),
    "stream_options": (dict,),
    "tools": (list,),
    "tool_choice": (str, dict),
    "parallel_tool_calls": (bool,),
    "max_tokens": (int,),
    "max_completion_tokens": (int,),
    "n": (int,),
    "temperature": (int, float),
    "top_p": (int, float),
    "stop": (str, list),
    "seed": (int,),
}
_KINDS = {
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise _Refusal(400, f"The body is not valid JSON ({error.msg}, {place}).") from error
    except (ValueError, RecursionError) as error:
        raise _Refusal(400, "The body is not valid JSON in UTF-8.") from error
    if not isinstance(value, dict):
        raise _Refusal(400, f"The body must be a JSON object, not {_kind(value)}.")
    return value


def _check_request(body: dict[str, Any]) -> None:
    """Raise a refusal with status 400 for what a real gateway would not accept."""
    for name, expected in (("model", str), ("messages", list)):
        if body.get(name) is None:
            message = f"Missing required parameter: '{name}'."
            raise _Refusal(400, message, param=name, code="missing_required_parameter")
        _check_type(name, body[name], (expected,))
    if not body["model"]:
        raise _Refusal(400, "You must name a model: 'model' is empty.", param="model")
    for name, kinds in _PARAMETERS.items():
        if body.get(name) is not None:
            _check_type(name, body[name], kinds)
    _check_messages(body["messages"])
    _check_values(body)
    _check_tools(body)


def _check_type(name: str, value: object, expected: tuple[type, ...]) -> None:
    if (isinstance(value, bool) and bool not in expected) or not isinstance(value, expected):
        wanted = " or ".join(_KINDS[kind] for kind in expected)
        message = f"Invalid type for '{name}': expected {wanted}, got {_kind(value)} instead."
        raise _Refusal(400, message, param=name, code="invalid_type")


_PAIRING_RULES = {
    "tool result '": "a message with role 'tool' must respond to a preceding message with"
    " 'tool_calls'",
    "tool call '": "an assistant message with 'tool_calls' must be followed by tool messages that"
    " respond to each 'tool_call_id'",
}
_SHOWN_PROBLEMS = 5


def _check_messages(messages: list[Any]) -> None:
    found = problems(messages)
    if not found:
        return
    rules = [rule for kind, rule in _PAIRING_RULES.items() if found[0].startswith(kind)]
    named = "; ".join(found[:_SHOWN_PROBLEMS])
    if len(found) > _SHOWN_PROBLEMS:
        named += f"; and {len(found) - _SHOWN_PROBLEMS} more"
    message = ": ".join(["Invalid parameter 'messages'", *rules, named]) + "."
    raise _Refusal(400, message, param="messages")


def _check_values(body: dict[str, Any]) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        if body.get(name) is not None and body[name] < 1:
            message = f"Invalid '{name}': expected at least 1, got {body[name]}."
            raise _Refusal(400, message, param=name, code="integer_below_min_value")
    for name, highest in (("temperature", 2), ("top_p", 1)):
        if body.get(name) is not None and not 0 <= body[name] <= highest:
            message = f"Invalid '{name}': expected 0 to {highest}, got {body[name]}."
            raise _Refusal(400, message, param=name, code="decimal_out_of_range")
    if body.get("n") not in (None, 1):
        raise _Refusal(400, "This gateway gives one choice: 'n' must be 1.", param="n")
    if body.get("stream_options") is not None and not body.get("stream"):
        message = "'stream_options' is only allowed together with 'stream': true."
        raise _Refusal(400, message, param="stream_options")


def _check_tools(body: dict[str, Any]) -> None:
    tools = body.get("tools")
    if tools == []:
        message = "Invalid 'tools': expected at least one tool, got an empty array."
        raise _Refusal(400, message, param="tools", code="empty_array")
    for position, tool in enumerate(tools or []):
        place = f"tools[{position}]"
        _check_type(place, tool, (dict,))
        if tool.get("type") != "function":
            continue  # other kinds of tool exist; their form is their maker's affair
        _check_type(f"{place}.function", tool.get("function"), (dict,))
        name = tool["function"].get("name")
        _check_type(f"{place}.function.name", name, (str,))
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            field = f"{place}.function.name"
            message = f"Invalid '{field}': expected up to 64 letters, digits, '_' and '-'."
            raise _Refusal(400, message, param=field, code="invalid_value")
    if body.get("tool_choice") not in (None, "none") and not tools:
        message = "'tool_choice' is only allowed when 'tools' are given."
        raise _Refusal(400, message, param="tool_choice")


# --- summary requests -------------------------------------------------------------------


def is_summary_request(messages: Sequence[Message]) -> bool:
    """Say whether a request asks for a summary: its last message is a ``summary_prompt``.

    It is known by the prompt's first line, in either language; nothing but system instructions
    may stand before it, so that a quoted prompt inside a history is not taken for one.
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


def _summarize_quoted(prompt: str) -> str:
    """Answer a summary prompt without a model: extract from the messages that it quotes."""
    from compaction.summary import extract

    return extract(quoted_messages(prompt))


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


def _drop_heading(summary: str) -> str:
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


# --- the wire ---------------------------------------------------------------------------

_PIECE_CHARACTERS = 16
"""Characters of a text or of a call's arguments that one event of a stream carries."""

_JSON = {"Content-Type": "application/json"}
_EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


@dataclass(frozen=True)
class _Answer:
    """What goes back over the wire: one body, or server-sent events.

    ``whole_after`` is the number of events that hold all of the reply; usage and the end mark
    come after them, and some clients do not stay for these.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    events: tuple[bytes, ...] = ()
    whole_after: int = 1
    delay_s: float = 0.0
    cut: bool = False


def _error_answer(refusal: _Refusal) -> _Answer:
    return _Answer(refusal.status, _JSON | refusal.headers, json.dumps(refusal.body).encode())


def _finish_reason(message: Message) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _carries_usage(body: dict[str, Any]) -> bool:
    """Say whether the reply to a request carries usage: always, or in a stream if asked for."""
    if not body.get("stream"):
        return True
    return bool((body.get("stream_options") or {}).get("include_usage"))


def _usage_field(body: dict[str, Any], message: Message, faults: Sequence[str]) -> dict[str, Any]:
    """Return the reply's ``usage`` field, or nothing where it carries none."""
    if "usage-missing" in faults or not _carries_usage(body):
        return {}
    if "usage-null" in faults:
        return {"usage": None}
    prompt_tokens = scripted_usage(body["messages"], body.get("tools"))
    completion_tokens = completion_usage(message)
    return {
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
    }


def _whole_body(shared: dict[str, Any], message: Message, usage: dict[str, Any]) -> bytes:
    choice = {
        "index": 0,
        "message": {"refusal": None, **message},
        "logprobs": None,
        "finish_reason": _finish_reason(message),
    }
    body = {**shared, "object": "chat.completion", "choices": [choice], **usage}
    return json.dumps(body).encode()


def _stream_events(
    shared: dict[str, Any], message: Message, usage: dict[str, Any], asked: bool
) -> Iterator[bytes]:
    """Yield the events of a streamed reply; ``asked`` says whether the client wants usage."""
    shared = {**shared, "object": "chat.completion.chunk"}
    if asked:
        # As in the real protocol: null in every chunk, and the figures in one more, the last.
        shared["usage"] = None

    def event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return b"data: " + json.dumps({**shared, "choices": [choice]}).encode() + b"\n\n"

    content, calls = message["content"], message.get("tool_calls") or []
    yield event({"role": "assistant", "content": None if content is None else ""})
    for piece in _pieces(content or ""):
        yield event({"content": piece})
    for index, call in enumerate(calls):
        head = {**call, "function": {**call["function"], "arguments": ""}}
        yield event({"tool_calls": [{"index": index, **head}]})
        for piece in _pieces(call["function"]["arguments"]):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, _finish_reason(message))
    if usage:
        yield b"data: " + json.dumps({**shared, "choices": [], **usage}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE_CHARACTERS):
        yield text[start : start + _PIECE_CHARACTERS]


# --- the server -------------------------------------------------------------------------

HOST = "127.0.0.1"
MODEL = "scripted"
"""The model that ``/v1/models`` lists; requests may name any."""

_ROUTES = {"/v1/chat/completions": "POST", "/v1/models": "GET"}
_STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class SeenRequest:
    """A request as the gateway saw it, and how it answered.

    ``body`` is None when it was no JSON object; ``usage`` is what the reply carried, if any;
    ``faults`` names the faults that it met. Headers, and so keys, are never kept.
    """

    method: str
    path: str
    kind: Kind
    body: dict[str, Any] | None
    status: int
    reply: Message | None = None
    usage: dict[str, int] | None = None
    faults: tuple[str, ...] = ()


def _give_back(taken: list[tuple[_Script, Reply]]) -> None:
    """Put replies that did not arrive back at the head of their scripts."""
    while taken:
        script, reply = taken.pop()
        script.put_back(reply)


class Gateway:
    """An OpenAI-compatible server on loopback that takes its replies from a script.

    ``script``: replies to turns, consumed in order; after the last one every turn is answered
    with ``after_script``, never with an error. ``summaries``: replies to summary requests;
    after the last one, or without any, the extractive summariser answers. ``faults``: Fault
    objects or their short forms. A callable reply runs in the server's thread and must be quick;
    when it raises, the client gets status 500 with the exception's text, now and on a retry.

    Any API key and model is accepted; limits and sampling parameters are checked, and change
    nothing. ``start`` raises OSError when the port is taken; a reply that is none raises
    ScriptError here.

    >>> with Gateway(script=["Hello."]) as gateway:
    ...     gateway.base_url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        script: Iterable[Reply] = (),
        *,
        summaries: Iterable[Reply] = (),
        faults: Iterable[Fault | str] = (),
        after_script: Reply = SCRIPT_OVER,
        port: int = 0,
        models: Sequence[str] = (MODEL,),
        retry_after_s: float = 1.0,
        slow_s: float = 2.0,
        chunk_delay_s: float = 0.0,
    ) -> None:
        _check_reply(after_script, "after_script")
        self._script = _Script(script, "reply")
        self._summaries = _Script(summaries, "summary")
        self._after_script = after_script
        self._faults: list[_ArmedFault] = []
        self.add_faults(*faults)
        self._models = tuple(models)
        self._retry_after_s = retry_after_s
        self._slow_s = slow_s
        self._chunk_delay_s = chunk_delay_s
        self._wanted_port = port
        self._port: int | None = None
        self._seen: list[SeenRequest] = []
        self._served = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    # What a test or a lesson asks and says.

    @property
    def base_url(self) -> str:
        """The address to hand to a client, such as ``http://127.0.0.1:40123/v1``."""
        if self._port is None:
            raise RuntimeError("the gateway has no address before it has started")
        return f"http://{HOST}:{self._port}/v1"

    @property
    def requests(self) -> list[SeenRequest]:
        """All requests so far, in order of arrival, each with the answer it was given."""
        return list(self._seen)

    @property
    def remaining(self) -> int:
        """How many replies of the script have not been given yet."""
        return len(self._script)

    @property
    def running(self) -> bool:
        """Whether the server answers."""
        return self._thread is not None and self._thread.is_alive()

    def add_replies(self, *replies: Reply) -> None:
        """Append replies to the script, also while the server runs."""
        self._script.add(*replies)

    def add_faults(self, *faults: Fault | str) -> None:
        """Arm faults, also while the server runs; they count requests from now on."""
        armed = [Fault.parse(fault) if isinstance(fault, str) else fault for fault in faults]
        self._faults.extend(map(_ArmedFault, armed))

    # Starting and stopping.

    def start(self) -> Gateway:
        """Listen on loopback and answer in a thread of its own; return when it answers."""
        if self.running:
            raise RuntimeError("the gateway is already running")
        from tornado.netutil import bind_sockets

        try:
            sockets = bind_sockets(self._wanted_port, HOST)
        except OSError as error:
            message = f"cannot listen on {HOST}:{self._wanted_port}: {error.strerror}"
            raise OSError(error.errno, message) from error
        self._port = sockets[0].getsockname()[1]
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(sockets, ready), name=f"gateway-{self._port}", daemon=True
        )
        self._thread.start()
        ready.wait()
        if self._loop is None:
            raise RuntimeError("the gateway's thread ended before it could answer")
        return self

    def stop(self) -> None:
        """Stop answering, close every connection and end the thread; safe to call twice."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None:
            return
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        thread.join(_STOP_TIMEOUT_S)
        self._thread = self._loop = self._stopping = None

    def __enter__(self) -> Gateway:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, sockets: list[Any], ready: threading.Event) -> None:
        import asyncio

        # A selector loop everywhere: tornado cannot listen on the default one of Windows.
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._listen(sockets, ready))
        finally:
            ready.set()  # whatever happened, nobody waits for this thread for ever

    async def _listen(self, sockets: list[Any], ready: threading.Event) -> None:
        import asyncio

        from tornado.httpserver import HTTPServer

        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def accept(request: HTTPServerRequest) -> None:
            task = asyncio.create_task(self._serve(request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = HTTPServer(accept)
        server.add_sockets(sockets)
        ready.set()
        await self._stopping.wait()
        server.stop()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.close_all_connections()

    # One request.

    async def _serve(self, request: HTTPServerRequest) -> None:
        method, path = request.method or "", request.path
        taken: list[tuple[_Script, Reply]] = []
        try:
            if path == "/v1/chat/completions" and method == "POST":
                answer = self._answer_chat(request.body, taken)
            else:
                answer = self._answer_other(method, path)
        except _Refusal as refusal:
            self._record(method, path, "other", None, refusal.status)
            answer = _error_answer(refusal)
        except Exception as error:  # whatever it is, the client must not wait for ever
            text = f"The gateway failed: {type(error).__name__}: {error}"
            self._record(method, path, "other", None, 500)
            answer = _error_answer(_Refusal(500, text, type="server_error"))
        delivered = False
        if answer.cut:
            # Before the client can see the cut, so that its next request finds the reply.
            _give_back(taken)
        try:
            delivered = await self._send(request, answer)
        finally:
            if not delivered:
                _give_back(taken)

    def _answer_other(self, method: str, path: str) -> _Answer:
        route = "/v1/models" if path.startswith("/v1/models/") else path
        if route not in _ROUTES:
            raise _Refusal(404, f"Invalid URL ({method} {path}).")
        if method != _ROUTES[route]:
            allowed = {"Allow": _ROUTES[route]}
            message = f"{method} is not allowed on {path}; use {_ROUTES[route]}."
            raise _Refusal(405, message, code="method_not_supported", headers=allowed)
        models = [
            {"id": model, "object": "model", "created": 0, "owned_by": "compaction"}
            for model in self._models
        ]
        body: dict[str, Any] = {"object": "list", "data": models}
        if path != route:
            wanted = path.removeprefix("/v1/models/")
            if wanted not in self._models:
                message = f"The model '{wanted}' does not exist here."
                raise _Refusal(404, message, param="model", code="model_not_found")
            body = models[self._models.index(wanted)]
        self._record(method, path, "other", None, 200)
        return _Answer(200, _JSON, json.dumps(body).encode())

    def _answer_chat(self, raw: bytes, taken: list[tuple[_Script, Reply]]) -> _Answer:
        body: dict[str, Any] | None = None
        kind: Kind = "other"
        faults: tuple[str, ...] = ()
        try:
            body = _read_json(raw)
            _check_request(body)
            kind = "summary" if is_summary_request(body["messages"]) else "turn"
            faults = self._meet_faults(kind, body)
            message = self._reply_to(kind, body, faults, taken)
        except _Refusal as refusal:
            self._record("POST", "/v1/chat/completions", kind, body, refusal.status, faults=faults)
            return _error_answer(refusal)
        usage = _usage_field(body, message, faults)
        self._record(
            "POST",
            "/v1/chat/completions",
            kind,
            body,
            200,
            reply=message,
            usage=usage.get("usage"),
            faults=faults,
        )
        self._served += 1
        shared = {
            "id": f"chatcmpl-{self._served}",
            "created": int(time.time()),
            "model": body["model"],
        }
        delay_s = self._slow_s if "slow" in faults else 0.0
        cut = "cut-stream" in faults
        if not body.get("stream"):
            whole = _whole_body(shared, message, usage)
            return _Answer(200, _JSON, body=whole, delay_s=delay_s, cut=cut)
        events = tuple(_stream_events(shared, message, usage, asked=_carries_usage(body)))
        return _Answer(
            200,
            _EVENT_STREAM,
            events=events,
            whole_after=len(events) - (2 if usage else 1),
            delay_s=delay_s,
            cut=cut,
        )

    def _meet_faults(self, kind: Kind, body: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of the faults that this request meets; a refusing one comes alone."""
        carries_usage = _carries_usage(body)
        refusing = [armed for armed in self._faults if armed.fault.name in _REFUSING]
        for armed in refusing:
            if armed.meets(kind, carries_usage):
                return (armed.fault.name,)
        others = [armed for armed in self._faults if armed not in refusing]
        return tuple(armed.fault.name for armed in others if armed.meets(kind, carries_usage))

    def _reply_to(
        self,
        kind: Kind,
        body: dict[str, Any],
        faults: tuple[str, ...],
        taken: list[tuple[_Script, Reply]],
    ) -> Message:
        if "rate-limit" in faults:
            wait = f"{self._retry_after_s:g}"
            raise _Refusal(
                429,
                f"Too many requests: the rate limit is reached. Try again in {wait} s.",
                type="requests",
                code="rate_limit_exceeded",
                headers={"Retry-After": wait},
            )
        if "server-error" in faults:
            text = "The server failed while it worked on the request. Try again."
            raise _Refusal(500, text, type="server_error")
        if "tool-call-summary" in faults:
            call = {"name": "read_file", "arguments": {"path": "calc.py"}}
            return _message_of({"tool_calls": [call]}, body)
        script = self._summaries if kind == "summary" else self._script
        reply = script.take()
        if reply is not None:
            taken.append((script, reply))
        try:
            if reply is None and kind == "summary":
                reply = _summarize_quoted(text_of(body["messages"][-1]))
            message = _message_of(self._after_script if reply is None else reply, body)
        except Exception as error:  # a script is code too; its fault must not end the server
            _give_back(taken)
            text = f"The script failed: {type(error).__name__}: {error}"
            raise _Refusal(500, text, type="server_error") from error
        if "missing-heading" in faults and message["content"]:
            message["content"] = _drop_heading(message["content"])
        return message

    def _record(
        self,
        method: str,
        path: str,
        kind: Kind,
        body: dict[str, Any] | None,
        status: int,
        *,
        reply: Message | None = None,
        usage: dict[str, int] | None = None,
        faults: tuple[str, ...] = (),
    ) -> None:
        # Recorded before anything is sent: whoever holds the answer finds the request here.
        self._seen.append(SeenRequest(method, path, kind, body, status, reply, usage, faults))

    async def _send(self, request: HTTPServerRequest, answer: _Answer) -> bool:
        """Send an answer; return whether the reply in it went out whole."""
        import asyncio
        from http.client import responses

        from tornado.httputil import HTTPHeaders, ResponseStartLine
        from tornado.iostream import StreamClosedError

        connection = cast("HTTP1Connection", request.connection)
        gone = asyncio.Event()
        connection.set_close_callback(gone.set)

        async def wait(delay_s: float) -> None:
            try:
                await asyncio.wait_for(gone.wait(), delay_s)
            except TimeoutError:
                return
            raise StreamClosedError

        start_line = ResponseStartLine("HTTP/1.1", answer.status, responses[answer.status])
        headers = HTTPHeaders(answer.headers)
        chunks = list(answer.events)
        if not chunks:
            headers["Content-Length"] = str(len(answer.body))
            # In two halves, so that the connection can be cut between them.
            middle = len(answer.body) // 2
            chunks = [answer.body[:middle], answer.body[middle:]] if answer.cut else [answer.body]
        if request.method == "HEAD":
            chunks = []  # it asks for the headers alone
        sent = 0
        try:
            if answer.delay_s:
                await wait(answer.delay_s)
            await connection.write_headers(start_line, headers)
            for chunk in chunks:
                if answer.cut and sent >= max(1, len(chunks) // 2):
                    connection.close()
                    return False
                await connection.write(chunk)
                sent += 1
                if self._chunk_delay_s and answer.events:
                    await wait(self._chunk_delay_s)
            connection.finish()
        except StreamClosedError:
            pass
        return sent >= answer.whole_after


def serve(
    script: Iterable[Reply] = (),
    *,
    port: int = 0,
    faults: Iterable[Fault | str] = (),
    out: TextIO | None = None,
    **options: Any,
) -> int:
    """Run a gateway until Ctrl-C, print its base URL first, and return the exit code 0.

    ``options`` are those of Gateway. Raises OSError when the port is taken, ScriptError and
    ValueError for a script or a fault that is none.
    """
    out = sys.stdout if out is None else out
    with Gateway(script, port=port, faults=faults, **options) as gateway:
        print(f"scripted gateway at {gateway.base_url} (Ctrl-C stops it)", file=out, flush=True)
        try:
            while gateway.running:
                time.sleep(0.5)
        except KeyboardInterrupt:
            print("stopped", file=out, flush=True)
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``python -m compaction gateway`` takes to its parser."""
    from argparse import ArgumentTypeError

    def fault(text: str) -> Fault:
        try:
            return Fault.parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from error

    def port(text: str) -> int:
        if not text.isdecimal() or int(text) > 65535:
            raise ArgumentTypeError(f"expected a port number, 0 to 65535, got {text!r}")
        return int(text)

    parser.add_argument(
        "--script", metavar="FILE", help="a JSON list of replies, each a text or a message"
    )
    parser.add_argument(
        "--summaries",
        metavar="FILE",
        help="the same for summary requests (default: sentences copied from the stretch)",
    )
    parser.add_argument(
        "--port", type=port, default=0, help="the port on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument(
        "--fault",
        metavar="FAULT",
        type=fault,
        action="append",
        default=[],
        help="let requests meet a fault: NAME the next one, NAME*2 the next two, NAME/3 every "
        "third; then @turn or @summary for these only; may be repeated",
    )
    modes = "\n".join(f"  {name:<18} {about}" for name, about in FAULTS.items())
    parser.epilog = f"faults:\n{modes}\n\n{parser.epilog or ''}".rstrip()


def run(options: argparse.Namespace) -> int:
    """Serve what the command line asks for until Ctrl-C; raises ScriptError and OSError."""
    return serve(
        read_script(options.script) if options.script else (),
        summaries=read_script(options.summaries) if options.summaries else (),
        port=options.port,
        faults=options.fault,
    )


# --- asking a model for a summary -------------------------------------------------------


def summarize_with(
    client: OpenAI,
    model: str,
    *,
    language: Literal["auto", "en", "zh"] = "auto",
    timeout_s: float | None = None,
    observe: Callable[[list[Message], Any], object] | None = None,
) -> Callable[[list[Message]], str]:
    """Return a summariser that asks a model through the ``openai`` client, one request a stretch.

    The stretch goes out as data inside ``summary_prompt``, without tools. The client's errors
    pass through; SummaryError is raised for a reply that is no finished text (a tool call,
    nothing, or cut off at its length limit), so that ``compact`` abandons and says why.
    ``observe`` is called with the messages sent and the reply's usage, which may be None:
    what a compaction costs is part of the account.
    """

    def summarize(messages: list[Message]) -> str:
        from compaction.summary import SummaryError, language_of, summary_prompt

        chosen = language_of(messages) if language == "auto" else language
        sent: list[Any] = [{"role": "user", "content": summary_prompt(messages, chosen)}]
        options: dict[str, Any] = {} if timeout_s is None else {"timeout": timeout_s}
        response = client.chat.completions.create(model=model, messages=sent, **options)
        if observe is not None:
            observe(sent, response.usage)
        choice = response.choices[0] if response.choices else None
        if choice is None or choice.message is None:
            raise SummaryError("the model gave no reply instead of a summary")
        if choice.message.tool_calls:
            raise SummaryError("the model answered with a tool call instead of a summary")
        if choice.finish_reason == "length":
            raise SummaryError("the summary was cut off at the reply's length limit")
        content = choice.message.content
        if not isinstance(content, str) or not content.strip():
            raise SummaryError("the model gave an empty reply instead of a summary")
        return content

    return summarize
