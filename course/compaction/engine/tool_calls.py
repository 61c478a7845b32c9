"""Tool calls: run them as Python functions, answer the broken ones, and find those that still
wait for a result."""

from __future__ import annotations

import json
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence

from compaction.engine.replies import CUT_OFF, EMPTY, Tools, sound_arguments
from compaction.messages import Call, Message, calls_of

CallTool = Callable[[Call], str]
"""Runs one tool call; returns the text of its result."""


def call_functions(functions: Mapping[str, Callable[..., object]]) -> CallTool:
    """Return a ``call_tool`` for the engine that calls Python functions by the tool's name.

    A call's JSON arguments become keyword arguments; a result that is no text becomes JSON. An
    unknown tool or unreadable arguments become an error text that a model can act on.

    >>> call_tool = call_functions({"add": lambda a, b: a + b})
    >>> call_tool(Call("c1", "add", '{"a": 1, "b": 2}'))
    '3'
    >>> call_tool(Call("c2", "subtract", "{}"))
    "error: there is no tool 'subtract'; there are: add"
    """

    def call_tool(call: Call) -> str:
        function = functions.get(call.name)
        if function is None:
            known = ", ".join(functions) or "none"
            return f"error: there is no tool {call.name!r}; there are: {known}"
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError as error:
            return f"error: the arguments of {call.name} are not JSON: {error}"
        if not isinstance(arguments, dict):
            return f"error: the arguments of {call.name} are not a JSON object"
        result = function(**arguments)
        if isinstance(result, str):
            return result
        return json.dumps(result, ensure_ascii=False, default=str)

    return call_tool


# --- interrupted turns ----------------------------------------------------------------------

# --- broken calls ---------------------------------------------------------------------------


def needs_arguments(tools: Tools | None, name: str, fault: str) -> bool:
    """Say whether a broken call must not be run; one without arguments may need none.

    >>> schema = {"type": "function", "function": {"name": "now", "parameters": {}}}
    >>> needs_arguments([schema], "now", EMPTY), needs_arguments([schema], "now", CUT_OFF)
    (False, True)
    """
    if fault != EMPTY:
        return True
    for tool in tools or ():
        function = tool.get("function")
        if isinstance(function, Mapping) and function.get("name") == name:
            parameters = function.get("parameters")
            return bool(isinstance(parameters, Mapping) and parameters.get("required"))
    return False


def broken_result(name: str, fault: str) -> str:
    """Return what the model is told about a call that was not run because it was broken."""
    smaller = "; where they are long, make several smaller calls" if fault == CUT_OFF else ""
    return (
        f"error: the call of {name} was not run: {fault}. "
        f"Call it again with whole arguments{smaller}."
    )


def with_sound_calls(messages: Iterable[Message]) -> list[Message]:
    """Return a history whose calls' arguments are JSON objects: no API takes back others.

    A session that was saved with a broken call would be refused for ever. What is sound stays.

    >>> broken = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{"}}
    >>> [healed] = with_sound_calls([{"role": "assistant", "tool_calls": [broken]}])
    >>> healed["tool_calls"][0]["function"]["arguments"]
    '{}'
    """
    return [_with_sound_calls(message) for message in messages]


def _with_sound_calls(message: Message) -> Message:
    calls = message.get("tool_calls") if message.get("role") == "assistant" else None
    if not isinstance(calls, list):
        return message
    sound = [_sound_call(call) for call in calls]
    unchanged = all(new is old for new, old in zip(sound, calls, strict=True))
    return message if unchanged else {**message, "tool_calls": sound}


def _sound_call(call: object) -> object:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return call
    arguments, _ = sound_arguments(function.get("arguments"))
    if arguments == function.get("arguments"):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


# --- interrupted turns ----------------------------------------------------------------------

NO_RESULT = "[no result] The turn was stopped before this call was answered."
"""What the model is told about a call that an interrupted turn left unanswered."""


def pending_calls(messages: Sequence[Message]) -> list[Call]:
    """Return the calls of the last round that still wait for their result, in order.

    Once another message follows, a round waits no longer. Calls without an id cannot be
    answered and are left out.

    >>> function = {"name": "read_file", "arguments": "{}"}
    >>> asked = {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]}
    >>> [call.id for call in pending_calls([asked])]
    ['c1']
    >>> pending_calls([asked, {"role": "tool", "tool_call_id": "c1", "content": "ok"}])
    []
    """
    end = len(messages)
    while end and messages[end - 1].get("role") == "tool":
        end -= 1
    return _unanswered(messages[end - 1], messages[end:]) if end else []


def _unanswered(message: Message, results: Iterable[Message]) -> list[Call]:
    answered = Tally(result.get("tool_call_id") for result in results)
    waiting = []
    for call in calls_of(message):
        if answered[call.id] > 0:
            answered[call.id] -= 1
        elif call.id is not None:
            waiting.append(call)
    return waiting


def close_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the history as an API takes it: with a stand-in for each result that never came.

    The calls that an interrupted turn left unanswered stay unfinished in the history, so that no
    compaction touches them; only what is sent tells the model that no result will come.

    >>> function = {"name": "read_file", "arguments": "{}"}
    >>> asked = {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]}
    >>> closed = close_calls([asked, {"role": "user", "content": "Go on."}])
    >>> [message["role"] for message in closed]
    ['assistant', 'tool', 'user']
    """
    closed: list[Message] = []
    for position, message in enumerate(messages):
        closed.append(message)
        if message.get("role") not in ("assistant", "tool"):
            continue
        # A round ends where anything but a tool result follows; the last round may go on.
        following = messages[position + 1] if position + 1 < len(messages) else None
        if following is None or following.get("role") == "tool":
            continue
        closed += [
            {"role": "tool", "tool_call_id": call.id, "content": NO_RESULT}
            for call in pending_calls(closed)
        ]
    return closed
