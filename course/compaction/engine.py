"""Day 8: the engine. Two lines watch one number, and one counter measures it.

The module has two halves. The first is a decision machine that is only told numbers: what to do
next, whether a pass helped, whether a compaction pays. The second is the driver that measures a
real history and acts on those decisions: it calls the model, calls the tools, makes room.
"""

from __future__ import annotations

import copy
import json
import math
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from compaction.budget import Counter, Row, budget_table, line_tokens
from compaction.calibration import meter
from compaction.messages import Call, Message, calls_of, content_of, problems
from compaction.probes import Probe, ProbeReport, fold, pinned_probes, verify
from compaction.summary import Compaction, Summarizer, extract
from compaction.summary import compact as compact_history

Tools = Sequence[Mapping[str, Any]]
"""Tool schemas in Chat Completions form."""

# --- deciding: numbers in, a decision out -----------------------------------------------


class Decision(StrEnum):
    """What to do with a request of a certain size."""

    SEND = "send"
    COMPACT_THRESHOLD = "compact (threshold)"
    COMPACT_EMERGENCY = "compact (emergency)"


def next_step(
    estimate: float,
    window: int,
    threshold: float = 0.80,
    emergency: float = 0.95,
    auto_compact: bool = True,
) -> Decision:
    """Decide what to do with a request of ``estimate`` tokens in a window of ``window`` tokens.

    The threshold is the routine line: exactly at it the request is still sent, and it is only
    watched while automatic compaction is on. The emergency line fires at it or above, always,
    because the alternative is a refused request. Both lines are shares of the window.

    Raises ValueError for an estimate below 0 and for lines that are none.

    >>> next_step(6400, 8000)
    <Decision.SEND: 'send'>
    >>> next_step(6401, 8000)
    <Decision.COMPACT_THRESHOLD: 'compact (threshold)'>
    >>> next_step(7900, 8000, auto_compact=False)
    <Decision.COMPACT_EMERGENCY: 'compact (emergency)'>
    """
    if not estimate >= 0:  # "not >=" also refuses a NaN, which would pass under every line
        raise ValueError(f"an estimate must be 0 tokens or more, not {estimate}")
    if estimate >= line_tokens(window, emergency):
        return Decision.COMPACT_EMERGENCY
    if auto_compact and estimate > line_tokens(window, threshold):
        return Decision.COMPACT_THRESHOLD
    return Decision.SEND


@dataclass(frozen=True)
class Lines:
    """The two lines of a window of ``window`` tokens; ``threshold`` and ``emergency`` are shares.

    Raises ValueError for a window that is no whole number above 0 and for a share outside 0 to 1.

    >>> lines = Lines(window=8000)
    >>> lines.decide(6600), lines.decide(3800)
    (<Decision.COMPACT_THRESHOLD: 'compact (threshold)'>, <Decision.SEND: 'send'>)
    """

    window: int
    threshold: float = 0.80
    emergency: float = 0.95
    auto_compact: bool = True

    def __post_init__(self) -> None:
        _check_whole("window", self.window, least=1)
        for name in ("threshold", "emergency"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
                raise ValueError(f"{name} must be a share above 0 and up to 1, not {share!r}")

    def decide(self, estimate: float) -> Decision:
        """Return what :func:`next_step` says about ``estimate`` tokens under these lines."""
        return next_step(
            estimate, self.window, self.threshold, self.emergency, bool(self.auto_compact)
        )

    def line_of(self, decision: Decision) -> float:
        """Return the tokens of the line that leads to a decision; 0.0 for SEND.

        >>> Lines(8000).line_of(Decision.COMPACT_EMERGENCY)
        7600.0
        """
        if decision == Decision.SEND:
            return 0.0
        emergency = decision == Decision.COMPACT_EMERGENCY
        return line_tokens(self.window, self.emergency if emergency else self.threshold)


def _check_whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of tokens from {least} on, not {value!r}")
    return value


# --- making room: passes, counted by the counter that asked for them ------------------------


@dataclass(frozen=True)
class Room:
    """The outcome of :func:`make_room`.

    ``estimates`` are the tokens counted: at the start, then after each pass. When ``stuck``, the
    last pass saved nothing; ``messages`` is then what stood before that pass.
    """

    messages: list[Message]
    estimates: list[int]
    stuck: bool


def make_room(
    messages: list[Message],
    count: Callable[[list[Message]], int],
    compact: Callable[[list[Message]], Compaction],
    decide: Callable[[int], Decision],
) -> Room:
    """Compact until the history may be sent, as long as each pass makes progress.

    After each pass the new history is counted here. The number in the compactor's own report
    (``Compaction.after``) is never believed: it may come from another counter, or leave out what
    rides along on the request. One counter answers both questions, "is it too much?" and "did
    the pass help?": with a second one for the second question, a history is under the line by
    one and over it by the other, for ever. A pass that saves nothing ends the loop.

    >>> sizes = lambda messages: sum(message["tokens"] for message in messages)
    >>> def halve(messages):  # it reports 0 tokens, whatever it did
    ...     return Compaction(messages[: len(messages) // 2], 0, 0, [], None, [])
    >>> make_room([{"tokens": 100}] * 8, sizes, halve, Lines(250).decide)
    Room(messages=[{'tokens': 100}, {'tokens': 100}], estimates=[800, 400, 200], stuck=False)
    """
    estimates = [count(messages)]
    while decide(estimates[-1]) != Decision.SEND:
        shorter = compact(messages).messages
        estimates.append(count(shorter))
        if estimates[-1] >= estimates[-2]:
            return Room(messages, estimates, stuck=True)
        messages = shorter
    return Room(messages, estimates, stuck=False)


# --- break-even: does a compaction pay? ----------------------------------------------------


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens, in any currency: fresh input, cached input, output.

    A provider without a prompt cache charges the same for cached and fresh input. Raises
    ValueError for a price below 0 and for cached input that costs more than fresh input.
    """

    input: float
    cached_input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "cached_input", "output"):
            price = getattr(self, name)
            if not (isinstance(price, int | float) and math.isfinite(price) and price >= 0):
                raise ValueError(f"the price of {name} must be a number from 0 on, not {price!r}")
        if self.cached_input > self.input:
            raise ValueError("cached input must not cost more than fresh input")


@dataclass(frozen=True)
class BreakEven:
    """What a compaction costs now, and when that has come in again (money in one currency).

    ``turns_to_break_even`` is None when it never does; ``gain`` is what is left of the savings
    after ``turns`` turns, below 0 for a loss.
    """

    cost: float
    saving_per_turn: float
    turns_to_break_even: int | None
    turns: int
    gain: float
    worth_it: bool


def break_even(
    *,
    request_tokens: int,
    summary_tokens: int,
    resent_tokens: int,
    saved_tokens: int,
    turns: int,
    prices: Prices,
) -> BreakEven:
    """Weigh what a compaction costs at once against what it saves on every later request.

    ``request_tokens``: the summary request, which sends the old stretch once more, as fresh
    input. ``summary_tokens``: its reply, as output. ``resent_tokens``: what the next request
    carries from the first changed message on; it stood in the provider's prompt cache, and is
    paid as fresh input once. ``saved_tokens``: what every later request no longer carries; it
    would have been read from the cache. ``turns``: requests to come.

    The formula is plain book-keeping, not a model of a provider::

        cost   = request x input + summary x output + resent x (input - cached input)
        saving = saved x cached input, a turn
        turns to break even = cost / saving, rounded up

    Raises ValueError for numbers below 0.

    >>> prices = Prices(input=2.0, cached_input=0.5, output=8.0)
    >>> found = break_even(request_tokens=3200, summary_tokens=400, resent_tokens=3100,
    ...                    saved_tokens=2800, turns=20, prices=prices)
    >>> round(found.cost, 5), found.turns_to_break_even, found.worth_it
    (0.01425, 11, True)
    """
    tokens = {
        "request_tokens": request_tokens,
        "summary_tokens": summary_tokens,
        "resent_tokens": resent_tokens,
        "saved_tokens": saved_tokens,
    }
    for name, value in tokens.items():
        _check_whole(name, value, least=0)
    if isinstance(turns, bool) or not isinstance(turns, int) or turns < 0:
        raise ValueError(f"turns must be a whole number from 0 on, not {turns!r}")
    cost = (
        request_tokens * prices.input
        + summary_tokens * prices.output
        + resent_tokens * (prices.input - prices.cached_input)
    )
    saving = saved_tokens * prices.cached_input
    needed: int | None = None
    if cost == 0:
        needed = 0
    elif saving > 0:
        needed = math.ceil(round(cost / saving, 9))  # 3.0000000000000004 turns are 3
    return BreakEven(
        cost=cost / 1e6,
        saving_per_turn=saving / 1e6,
        turns_to_break_even=needed,
        turns=turns,
        gain=(turns * saving - cost) / 1e6,
        worth_it=needed is not None and turns >= needed,
    )


# --- what the engine reports ----------------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    """One compaction pass, in the engine's own figures (tokens by its one counter).

    ``reported`` is what the compactor said about itself, None when it said nothing.
    ``resent_tokens`` is what follows the first changed message: the next request pays it
    without the prompt cache. ``kept`` and ``lost`` are the pinned facts that stood in the
    history before the pass. When ``abandoned`` holds a reason, the history did not change.
    """

    messages_before: int
    messages_after: int
    before: int
    after: int
    reported: int | None
    resent_tokens: int
    summaries: tuple[str, ...]
    kept: tuple[Probe, ...]
    lost: tuple[Probe, ...]
    carried: tuple[Probe, ...]
    abandoned: str | None = None

    @property
    def line(self) -> str:
        """Return the pass in one line for a person.

        >>> Pass(14, 7, 1368, 571, 571, 571, (), (Probe("a"), Probe("b")), (), ()).line
        'compacted 14 -> 7 messages, 1368 -> 571 tokens, 2 probes kept'
        """
        if self.abandoned is not None:
            return f"not compacted: {fold(self.abandoned)}"  # an exception may have many lines
        line = (
            f"compacted {self.messages_before} -> {self.messages_after} messages, "
            f"{self.before} -> {self.after} tokens"
        )
        if self.kept:
            line += f", {_number(len(self.kept), 'probe')} kept"
        if self.lost:
            names = ", ".join(probe.fact for probe in self.lost)
            line += f", {_number(len(self.lost), 'probe')} lost: {names}"
        return line


@dataclass(frozen=True)
class Event:
    """One measurement: what was measured, what came out, what was decided.

    ``kind`` is "run start", "reply", "tool results", "extras", "pass" or "manual pass".
    ``estimate`` are tokens, ``share`` is their part of the window, ``added`` are the tokens
    since the measurement before. ``then`` says what the engine does next; ``note`` adds what a
    person wants to know; ``passed`` is the pass that led here, if one did.
    """

    kind: str
    estimate: int
    share: float
    decision: Decision
    then: str
    added: int
    note: str = ""
    passed: Pass | None = None

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        share = f"{100 * self.share:.0f} %"
        return f"{self.kind}{note}: {self.estimate:,} tokens, {share} of the window: {self.then}"


def trace(events: Iterable[Event]) -> str:
    """Return events as a table of text: event, tokens added, estimate, share, what follows.

    >>> event = Event("run start", 2800, 0.35, Decision.SEND, "call the model", 2100)
    >>> print(trace([event]))
    event             added  estimate  of window  then
    run start         2,100     2,800       35 %  call the model
    """
    lines = ["event             added  estimate  of window  then"]
    lines += [
        f"{event.kind:<14} {event.added:>8,} {event.estimate:>9,} "
        f"{100 * event.share:>8.0f} %  {event.then}"
        for event in events
    ]
    return "\n".join(lines)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class ContextExceeded(Exception):
    """A request stands over a line and the last pass saved nothing.

    ``rows`` is the budget table of that request: it shows which path is over. ``reason`` says
    why the pass saved nothing, ``decision`` names the line, ``estimate`` and ``window`` are
    tokens. The history is whole: nothing that was said is lost.
    """

    def __init__(
        self, reason: str, estimate: int, lines: Lines, decision: Decision, rows: Sequence[Row]
    ) -> None:
        self.reason = reason
        self.estimate = estimate
        self.window = lines.window
        self.decision = decision
        self.rows = list(rows)
        emergency = decision == Decision.COMPACT_EMERGENCY
        place = "at or above the emergency line" if emergency else "above the threshold"
        over = [f"{row.path} {row.tokens:,} of {row.allowance:,}" for row in self.rows if row.over]
        super().__init__(
            f"the context is full and no pass frees more of it: {estimate:,} of "
            f"{lines.window:,} tokens, {place} ({lines.line_of(decision):,.0f}); {reason}; "
            f"over their allowance: {', '.join(over) or 'no single path'}"
        )


# --- the model and the tools ----------------------------------------------------------------


class ReplyError(RuntimeError):
    """A model's reply that is none: nothing came, or it broke off."""


@dataclass(frozen=True)
class Reply:
    """A model's whole reply: an assistant message, and the usage that came with it."""

    message: Message
    usage: Any = None


CallModel = Callable[[list[Message], Tools | None], Reply | Mapping[str, Any] | str]
"""Sends messages and tool schemas; returns the reply, its message alone, or its text alone."""

CallTool = Callable[[Call], str]
"""Runs one tool call; returns the text of its result."""


def reply_with(
    client: Any, model: str, *, on_text: Callable[[str], object] | None = None, **options: Any
) -> CallModel:
    """Return a ``call_model`` for the engine that asks a model through the ``openai`` client.

    With ``on_text`` the reply is streamed, and each piece of text is passed on as it comes.
    ``options`` go into every request, such as ``temperature`` or ``timeout``. The client's
    errors pass through; ReplyError is raised when there is no reply, or when a stream ends
    before the reply does.

    >>> from types import SimpleNamespace as Object
    >>> message = Object(content="Hello.", tool_calls=None)
    >>> answer = Object(choices=[Object(message=message)], usage=Object(prompt_tokens=9))
    >>> completions = Object(create=lambda **request: answer)
    >>> ask = reply_with(Object(chat=Object(completions=completions)), "a-model")
    >>> ask([{"role": "user", "content": "hi"}], None).message
    {'role': 'assistant', 'content': 'Hello.'}
    """

    def call_model(messages: list[Message], tools: Tools | None) -> Reply:
        request: dict[str, Any] = {"model": model, "messages": messages, **options}
        if tools:
            request["tools"] = list(tools)
        if on_text is not None:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        answer = client.chat.completions.create(**request)
        if on_text is not None:
            return _read_stream(answer, on_text)
        if not answer.choices or answer.choices[0].message is None:
            raise ReplyError("the model gave no reply")
        message = answer.choices[0].message
        calls = [_wire_call(call) for call in message.tool_calls or []]
        return Reply(_assistant_message(message.content, calls), answer.usage)

    return call_model


def _read_stream(stream: Any, on_text: Callable[[str], object]) -> Reply:
    pieces: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    usage = finish_reason = None
    try:
        for chunk in stream:
            # The last chunk carries the usage and no choice.
            usage = getattr(chunk, "usage", None) or usage
            for choice in chunk.choices[:1]:
                finish_reason = choice.finish_reason or finish_reason
                if choice.delta.content:
                    pieces.append(choice.delta.content)
                    on_text(choice.delta.content)
                for part in choice.delta.tool_calls or []:
                    _add_to_call(calls, part)
    finally:
        # Ctrl-C too ends here: an open stream would hold its connection.
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    if finish_reason is None:
        raise ReplyError("the stream ended before the reply was complete")
    return Reply(_assistant_message("".join(pieces), list(calls.values())), usage)


def _add_to_call(calls: dict[int, dict[str, Any]], part: Any) -> None:
    """Add a piece of a tool call to the call that it belongs to."""
    index = len(calls) if part.index is None else part.index
    call = calls.setdefault(
        index, {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
    )
    call["id"] = call["id"] or part.id
    if part.function is not None:
        call["function"]["name"] += part.function.name or ""
        call["function"]["arguments"] += part.function.arguments or ""


def _wire_call(call: Any) -> dict[str, Any]:
    """Return a client's tool call as the plain dict that goes back over the wire."""
    custom = getattr(call, "custom", None)
    if custom is not None:
        inner = {"name": custom.name, "input": custom.input}
        return {"id": call.id, "type": "custom", "custom": inner}
    inner = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": inner}


def _assistant_message(content: Any, calls: list[dict[str, Any]]) -> Message:
    message: Message = {"role": "assistant", "content": content or ("" if not calls else None)}
    return {**message, "tool_calls": calls} if calls else message


def read_reply(value: object, fresh_id: str = "call") -> Reply:
    """Return what ``call_model`` gave as a Reply whose message an API takes back.

    A call without an id gets one that begins with ``fresh_id``, so that it can be answered.
    Raises ReplyError for anything that is no assistant message.

    >>> read_reply("Hello.")
    Reply(message={'role': 'assistant', 'content': 'Hello.'}, usage=None)
    """
    reply = value if isinstance(value, Reply) else Reply(value)  # type: ignore[arg-type]
    message = reply.message
    if isinstance(message, str):
        return replace(reply, message=_assistant_message(message, []))
    if not isinstance(message, Mapping) or message.get("role", "assistant") != "assistant":
        raise ReplyError(
            "call_model must return an assistant message, its text or a Reply, "
            f"not {type(message).__name__}"
        )
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise ReplyError("the tool calls of a reply must be a list of objects")
    named = [
        {**call, "id": call.get("id") or f"{fresh_id}_{position}"}
        for position, call in enumerate(calls)
    ]
    rest = {key: value for key, value in message.items() if key not in ("content", "tool_calls")}
    whole = {**rest, **_assistant_message(message.get("content"), named)}
    # Its calls cannot have results yet; all else must be as an API takes it back.
    found = [text for text in problems([whole]) if "no result right after it" not in text]
    if found:
        raise ReplyError(f"the reply is not a valid message: {found[0]}")
    return replace(reply, message=whole)


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


# --- the driver -----------------------------------------------------------------------------

Compactor = Callable[[list[Message]], Compaction | list[Message]]
"""Makes a history shorter; returns a Compaction, or the new messages alone."""


class Engine:
    """Run turns of an agent inside a context window, measuring at every growth point.

    ``call_model(messages, tools)`` sends a request and returns the whole reply (see
    :func:`reply_with`; it may show the text on the screen while it comes). ``call_tool(call)``
    returns the text of a tool's result (see :func:`call_functions`); an exception becomes an
    error text for the model. ``history`` begins with the system message, if there is one.

    ``counter`` counts everything; without one it is the process's own meter, and a counter with
    ``observe`` takes in the usage of every reply. What rides along on every request, the system
    prompt and the tool schemas, is counted with it; ``overhead`` (tokens) replaces the count of
    the schemas where the number is known. ``compact`` makes a history shorter; without one it
    is :func:`compaction.summary.compact` with ``summarize``, ``keep_recent``, the same counter,
    and all facts that the user pinned, kept across passes (``probes`` adds those of an earlier
    session). ``budget_table`` and ``make_room`` may be replaced by your own.

    ``on_event(event)`` is told every measurement. ``on_change(history)`` is called after every
    change of the history, message by message: the place to save a session.

    An exception, Ctrl-C included, leaves the history valid and whole. Calls that were not
    answered stay unfinished; ``run()`` without input goes on where the turn stopped.

    >>> from compaction.calibration import TokenMeter
    >>> engine = Engine(lambda messages, tools: "Hello.", Lines(8000), counter=TokenMeter())
    >>> engine.run("hi")
    'Hello.'
    >>> print(*engine.events, sep="\\n")
    run start (input): 3 tokens, 0 % of the window: call the model
    reply (text): 7 tokens, 0 % of the window: end the run
    """

    def __init__(
        self,
        call_model: CallModel,
        lines: Lines,
        history: Iterable[Message] = (),
        *,
        tools: Tools | None = None,
        call_tool: CallTool | None = None,
        counter: Counter | None = None,
        overhead: int | None = None,
        summarize: Summarizer = extract,
        keep_recent: int = 3,
        compact: Compactor | None = None,
        probes: Iterable[Probe] = (),
        budget_table: Callable[..., list[Row]] = budget_table,
        make_room: Callable[..., Room] = make_room,
        on_event: Callable[[Event], object] | None = None,
        on_change: Callable[[list[Message]], object] | None = None,
    ) -> None:
        if overhead is not None:
            _check_whole("overhead", overhead, least=0)
        self.call_model = call_model
        self.lines = lines
        self.tools = tools
        self.call_tool = call_tool
        self.counter: Counter = meter if counter is None else counter
        self.summarize = summarize
        self.keep_recent = keep_recent
        self.on_event = on_event
        self.on_change = on_change
        self.events: list[Event] = []
        self._compact = compact or self._compact_by_summary
        self._budget_table = budget_table
        self._make_room = make_room
        self._fixed_overhead = overhead
        self._measured_overhead: int | None = None
        self._probes = {fold(probe.fact): probe for probe in probes}
        self.history = list(history)

    # What a program may look at.

    @property
    def history(self) -> list[Message]:
        """The messages of the session. Assign a list to replace it; do not edit it in place."""
        return self._history

    @history.setter
    def history(self, messages: Iterable[Message]) -> None:
        self._history = list(messages)
        self._has_open_calls = True  # until the next look
        self._last_estimate: int | None = None
        self._pin(self._history)

    @property
    def probes(self) -> list[Probe]:
        """All facts that the user pinned in this session, whatever was compacted since."""
        return list(self._probes.values())

    @property
    def overhead(self) -> int:
        """Tokens that ride along on every request: as given, else measured once."""
        if self._fixed_overhead is not None:
            return self._fixed_overhead
        if self._measured_overhead is None:
            beginning = []
            for message in self._history:
                if message.get("role") not in ("system", "developer"):
                    break
                beginning.append(message)
            carried = beginning or self.tools
            self._measured_overhead = self._count(beginning) if carried else 0
        return self._measured_overhead

    @property
    def can_go_on(self) -> bool:
        """Whether the last turn stopped before its end, so that ``run()`` needs no input."""
        last = self._history[-1].get("role") if self._history else None
        return last in ("user", "tool") or bool(pending_calls(self._history))

    def estimate(self, extras: Sequence[Message] = ()) -> int:
        """Return the prompt tokens of the next request, by the engine's one counter."""
        self._look_for_open_calls()
        return self._count(self._history, extras)

    def budget(self, extras: Sequence[Message] = ()) -> list[Row]:
        """Return the budget table of the next request; its rows add up to :meth:`estimate`."""
        self._look_for_open_calls()
        fixed = self._fixed_overhead
        rows = self._budget_table(
            self._payload(self._history, extras),
            self.lines.window,
            meter=self.counter,
            tools=self.tools if fixed is None else None,
        )
        if not fixed or not rows:
            return rows
        first = replace(rows[0], tokens=rows[0].tokens + fixed)
        return [replace(first, over=first.tokens > first.allowance), *rows[1:]]

    def verify_probes(
        self, ask: Callable[[str, Sequence[Message]], str] | None = None
    ) -> ProbeReport:
        """Look for every pinned fact in the history; ask a model too when ``ask`` is given."""
        return verify(self.probes, self._history, ask)

    def break_even(self, passed: Pass, turns: int, prices: Prices) -> BreakEven:
        """Weigh a pass of this engine against ``turns`` further requests, about.

        The stretch that went out for its summary is what the pass took away: the tokens saved
        plus those of the summaries.
        """
        summaries: list[Message] = [{"role": "user", "content": text} for text in passed.summaries]
        summary_tokens = self.counter.count(summaries) if summaries else 0
        saved_tokens = max(0, passed.before - passed.after)
        return break_even(
            request_tokens=saved_tokens + summary_tokens,
            summary_tokens=summary_tokens,
            resent_tokens=passed.resent_tokens,
            saved_tokens=saved_tokens,
            turns=turns,
            prices=prices,
        )

    # What a program may do.

    def run(self, user_input: str | Message | None = None, extras: Iterable[Message] = ()) -> str:
        """Run one turn to its end and return the text of the last reply.

        ``user_input`` is the user's text or whole message; None goes on with a turn that was
        interrupted, beginning with the calls that still wait. ``extras`` are transient messages
        of this turn: they ride along at the end of every request and never enter the history.

        Raises ContextExceeded when a pass saves nothing while a line is crossed, ValueError when
        there is nothing to go on with, and lets the errors of ``call_model`` pass through.
        """
        transient = list(extras)
        if user_input is not None:
            text = isinstance(user_input, str)
            self._append({"role": "user", "content": user_input} if text else dict(user_input))  # type: ignore[arg-type]
        elif not self.can_go_on:
            raise ValueError("there is nothing to go on with: the last turn is complete")
        self._look_for_open_calls()
        self._settle("run start", "" if user_input is None else "input")
        while True:
            calls = pending_calls(self._history)
            if calls:
                self._answer(calls)
                self._settle("tool results", _number(len(calls), "result"))
                continue
            if transient:
                self._settle("extras", _number(len(transient), "message"), transient)
            message = self._ask(transient)
            calls = pending_calls(self._history)
            if not calls:
                self._end_run()
                return content_of(message)
            self._settle("reply", _number(len(calls), "tool call"))

    def compact_now(self) -> Pass:
        """Make one pass whatever the lines say; a pass that saves nothing changes nothing."""
        self._look_for_open_calls()
        before = self._count(self._history)
        attempt = self._attempt(self._history)
        after = self._count(attempt.messages)
        if after < before:
            passed = self._adopt(attempt, before, after)
        else:
            passed = self._abandoned(attempt, before, after)
        estimate = min(before, after)
        self._last_estimate = before
        self._tell("manual pass", estimate, self.lines.decide(estimate), passed.line, passed=passed)
        return passed

    # Measuring.

    def _payload(self, messages: list[Message], extras: Sequence[Message] = ()) -> list[Message]:
        """Return what a request would carry: exactly this is counted, and exactly this is sent."""
        # The extras come first into the list, so that a round before them counts as closed.
        whole = [*messages, *extras] if extras else messages
        return close_calls(whole) if self._has_open_calls else whole

    def _count(self, messages: list[Message], extras: Sequence[Message] = ()) -> int:
        payload = self._payload(messages, extras)
        if self._fixed_overhead is not None:
            return self._fixed_overhead + self.counter.count(payload)
        # Without tools a counter needs only one argument.
        return (
            self.counter.count(payload, self.tools) if self.tools else self.counter.count(payload)
        )

    def _look_for_open_calls(self) -> None:
        """See whether an interrupted turn left calls behind; a clean run leaves none."""
        if self._has_open_calls:
            self._has_open_calls = len(close_calls(self._history)) > len(self._history)

    def _observe(self, payload: list[Message], usage: Any) -> None:
        observe = getattr(self.counter, "observe", None)
        if observe is None or usage is None:
            return
        if self._fixed_overhead is None:
            observe(payload, usage, self.tools)
            return
        # The counter counts the messages alone, so the known overhead is taken off first.
        tokens = usage
        if isinstance(usage, Mapping):
            tokens = usage.get("prompt_tokens")
        elif not isinstance(usage, int | float):
            tokens = getattr(usage, "prompt_tokens", None)
        if isinstance(tokens, int | float) and tokens > self._fixed_overhead:
            observe(payload, int(tokens) - self._fixed_overhead)

    def _tell(
        self,
        kind: str,
        estimate: int,
        decision: Decision,
        note: str = "",
        then: str | None = None,
        passed: Pass | None = None,
    ) -> None:
        before = self.overhead if self._last_estimate is None else self._last_estimate
        if then is None:
            then = str(decision) if decision != Decision.SEND else self._next_action(kind)
        event = Event(
            kind=kind,
            estimate=estimate,
            share=estimate / self.lines.window,
            decision=decision,
            then=then,
            added=estimate - before,
            note=note,
            passed=passed,
        )
        self._last_estimate = estimate
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    def _next_action(self, kind: str) -> str:
        if kind == "manual pass":
            return "wait for input"
        return "call the tools" if pending_calls(self._history) else "call the model"

    # Acting.

    def _settle(self, kind: str, note: str, extras: Sequence[Message] = ()) -> None:
        """Measure, and make room where a line is crossed; nothing is sent before that."""
        last = 0
        attempt: Compaction | None = None  # the pass whose result is about to be counted

        def count(messages: list[Message]) -> int:
            return self._count(messages, extras)

        def compact(messages: list[Message]) -> Compaction:
            nonlocal attempt
            attempt = self._attempt(messages)
            return attempt

        def decide(estimate: int) -> Decision:
            nonlocal attempt, last
            decision = self.lines.decide(estimate)
            if attempt is None:
                self._tell(kind, estimate, decision, note)
            else:
                passed = self._adopt(attempt, last, estimate, extras)
                self._tell("pass", estimate, decision, passed.line, passed=passed)
            attempt, last = None, estimate
            return decision

        without_extras = self._last_estimate or 0
        room = self._make_room(self._history, count, compact, decide)
        first = room.estimates[0]
        if room.stuck:
            failed = self._abandoned(attempt, last, room.estimates[-1])
            decision = self.lines.decide(last)
            self._tell("pass", last, decision, failed.line, then="give up", passed=failed)
            raise ContextExceeded(
                failed.abandoned or "", last, self.lines, decision, self.budget(extras)
            )
        if extras:
            # The next growth is told against the history alone, which holds no extras.
            self._last_estimate = last - (first - without_extras)

    def _attempt(self, messages: list[Message]) -> Compaction:
        """Let the compactor try on a copy; whatever goes wrong leaves the messages as they are."""

        def give_up(reason: str) -> Compaction:
            return Compaction(messages, 0, 0, [], reason, [])

        try:
            outcome = self._compact(copy.deepcopy(messages))
        except Exception as error:
            return give_up(f"the compactor failed: {type(error).__name__}: {error}")
        if not isinstance(outcome, Compaction):
            if not isinstance(outcome, list):
                return give_up(f"the compactor returned {type(outcome).__name__}, not messages")
            outcome = Compaction(outcome, 0, -1, [], None, [])
        if outcome.abandoned is not None:
            return give_up(outcome.abandoned)
        broken = Tally(problems(outcome.messages)) - Tally(problems(messages))
        if broken:
            return give_up(f"the pass would break the history: {next(iter(broken))}")
        return outcome

    def _adopt(
        self, attempt: Compaction, before: int, after: int, extras: Sequence[Message] = ()
    ) -> Pass:
        """Put the result of a pass in the place of the history, and say what it did."""
        old, new = self._history, list(attempt.messages)
        at_stake = verify(self.probes, old).kept
        report = verify(at_stake, new)
        unchanged = 0
        for left, right in zip(old, new, strict=False):
            if left != right:
                break
            unchanged += 1
        # Only a beginning that stayed the same can still stand in the provider's cache.
        cached = self._count(new[:unchanged]) if unchanged else 0
        self._history = new
        self._changed()
        return Pass(
            messages_before=len(old),
            messages_after=len(new),
            before=before,
            after=after,
            reported=attempt.after if attempt.after >= 0 else None,
            resent_tokens=max(0, after - cached),
            summaries=tuple(attempt.summaries),
            kept=tuple(report.kept),
            lost=tuple(report.lost),
            carried=tuple(attempt.carried),
        )

    def _abandoned(self, attempt: Compaction | None, before: int, after: int) -> Pass:
        reason = attempt.abandoned if attempt is not None else None
        size = len(self._history)
        return Pass(
            messages_before=size,
            messages_after=size,
            before=before,
            after=before,
            reported=None,
            resent_tokens=0,
            summaries=(),
            kept=tuple(verify(self.probes, self._history).kept),
            lost=(),
            carried=(),
            abandoned=reason or f"the pass saved nothing: {before:,} -> {after:,} tokens",
        )

    def _compact_by_summary(self, messages: list[Message]) -> Compaction:
        return compact_history(
            messages,
            self.summarize,
            keep_recent=self.keep_recent,
            meter=self.counter,
            probes=self.probes,
        )

    def _ask(self, extras: Sequence[Message]) -> Message:
        payload = self._payload(self._history, extras)
        value = self.call_model(list(payload), self.tools)
        reply = read_reply(value, fresh_id=f"call_{len(self._history)}")
        self._observe(payload, reply.usage)
        self._append(reply.message)
        return reply.message

    def _answer(self, calls: Sequence[Call]) -> None:
        """Run the calls one after the other; each result is in the history before the next."""
        for call in calls:
            self._append(
                {"role": "tool", "tool_call_id": call.id, "content": self._result_of(call)}
            )

    def _result_of(self, call: Call) -> str:
        if self.call_tool is None:
            return "error: there are no tools here"
        try:
            result = self.call_tool(call)
        except Exception as error:
            return f"error: {type(error).__name__}: {error}"
        if not isinstance(result, str):
            return f"error: the tool {call.name} returned {type(result).__name__}, not text"
        return result

    def _end_run(self) -> None:
        """Measure the reply that ends a run. A pass that is due waits for the next run's start:
        only then is something sent, and a session that ends here pays for no summary."""
        estimate = self._count(self._history)
        decision = self.lines.decide(estimate)
        due = "" if decision == Decision.SEND else f"; {decision} at the next start"
        self._tell("reply", estimate, decision, "text", then="end the run" + due)

    def _append(self, message: Message) -> None:
        if message.get("role") == "user":
            # After a turn that stopped half-way, this message closes its round.
            self._has_open_calls = self._has_open_calls or bool(pending_calls(self._history))
            self._pin([message])
        self._history.append(message)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change(self._history)

    def _pin(self, messages: Iterable[Message]) -> None:
        for probe in pinned_probes(messages):
            self._probes.setdefault(fold(probe.fact), probe)
