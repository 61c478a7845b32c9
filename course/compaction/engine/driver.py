"""The driver: measure a real history at every growth point, and act on the decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from compaction.budget import Counter, Row, budget_table
from compaction.calibration import meter
from compaction.compactor import compact_history
from compaction.engine.costs import BreakEven, Prices, break_even
from compaction.engine.decide import Aim, Decision, Lines, Room, check_whole, make_room
from compaction.engine.events import ContextExceeded, Event, Pass, number_of
from compaction.engine.measuring import Measuring
from compaction.engine.overflow import Overflow, read_overflow
from compaction.engine.passes import Compactor, Tried, attempt, failed_pass, made_pass, why_not
from compaction.engine.replies import CallModel, Reply, ReplyError, Tools, read_reply
from compaction.engine.results import Results
from compaction.engine.tool_calls import (
    CallTool,
    broken_result,
    close_calls,
    needs_arguments,
    pending_calls,
    with_sound_calls,
)
from compaction.messages import Call, Message
from compaction.probes import Probe, ProbeReport, fold, pinned_probes, verify
from compaction.summary import Compaction, Summarizer, extract

MIN_GAIN = 0.10
"""The share of a request that a routine pass must save. Every pass costs a summary request and
the provider's prompt cache; a pass that saves less is due again soon."""

BACK_OFF = 0.05
"""After a routine pass that was given up, the threshold is not tried again before the estimate
has grown by this share of the window."""

TARGET_SHARE = 0.75
"""A pass with a target brings a request down to this share of the threshold."""

CUT_OFF_NOTE = "[cut off here: the reply reached its length limit]"
"""Stands at the end of an answer that was cut off, so that nobody takes it for whole."""


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
    is :func:`compaction.compactor.compact_history` with ``summarize``, ``keep_recent``, the same
    counter, and all facts that the user pinned, kept across passes (``probes`` adds those of an
    earlier session). ``budget_table`` and ``make_room`` may be replaced by your own. A counter with
    ``at_most`` decides by that; whether a pass helped is judged by its ``count``.

    ``results`` is a folder for results that are larger than what is free: the whole result goes
    into a file there, and the history gets its head, its tail and how to read the rest. So does
    one of more than ``result_characters``, however much is free.

    ``on_event(event)`` is told every measurement. ``on_note(line)`` is told what a person wants to
    know beyond that. ``on_change(history)`` is called after every change of the history, message
    by message: the place to save a session.

    A gateway that refuses a request as too long is believed: its window replaces the one of
    ``lines``, the history is compacted to it, and the request goes out once more. While a
    compactor works, ``aim`` says what the pass is for.

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
        on_note: Callable[[str], object] | None = None,
        results: str | Path | None = None,
        result_characters: int | None = None,
    ) -> None:
        if overhead is not None:
            check_whole("overhead", overhead, least=0)
        self.call_model = call_model
        self.lines = lines
        self._measuring = Measuring(meter if counter is None else counter, tools, overhead)
        self.call_tool = call_tool
        self.summarize = summarize
        self.keep_recent = keep_recent
        self.on_event = on_event
        self.on_change = on_change
        self.on_note = on_note
        self.events: list[Event] = []
        self.aim = Aim()  # of the pass under way
        self._results: Results | None = None
        if results is not None:
            self._results = Results(Path(results), self._measuring, result_characters, self._note)
        self._broken: dict[str, str] = {}
        self._noted: set[str] = set()
        self._compact = compact or self._compact_by_summary
        self._budget_table = budget_table
        self._make_room = make_room
        self._measured_overhead: int | None = None
        self._probes = {fold(probe.fact): probe for probe in probes}
        self.history = list(history)

    # What a program may look at.

    @property
    def counter(self) -> Counter:
        """The one counter of this engine."""
        return self._measuring.counter

    @property
    def tools(self) -> Tools | None:
        """The schemas that ride along on every request."""
        return self._measuring.tools

    @property
    def history(self) -> list[Message]:
        """The messages of the session. Assign a list to replace it; do not edit it in place."""
        return self._history

    @history.setter
    def history(self, messages: Iterable[Message]) -> None:
        self._history = with_sound_calls(messages)
        self._measuring.has_open_calls = True  # until the next look
        self._last_estimate: int | None = None
        self._try_again_at = 0.0  # the estimate below which the threshold is left alone
        self._pin(self._history)

    @property
    def probes(self) -> list[Probe]:
        """All facts that the user pinned in this session, whatever was compacted since."""
        return list(self._probes.values())

    @property
    def overhead(self) -> int:
        """Tokens that ride along on every request: as given, else measured once."""
        if self._measuring.overhead is not None:
            return self._measuring.overhead
        if self._measured_overhead is None:
            beginning = []
            for message in self._history:
                if message.get("role") not in ("system", "developer"):
                    break
                beginning.append(message)
            carried = beginning or self.tools
            self._measured_overhead = self._measuring.at_most(beginning) if carried else 0
        return self._measured_overhead

    @property
    def can_go_on(self) -> bool:
        """Whether the last turn stopped before its end, so that ``run()`` needs no input."""
        last = self._history[-1].get("role") if self._history else None
        return last in ("user", "tool") or bool(pending_calls(self._history))

    def estimate(self, extras: Sequence[Message] = ()) -> int:
        """Return the prompt tokens of the next request, by the engine's one counter."""
        self._look_for_open_calls()
        return self._measuring.at_most(self._history, extras)

    def budget(self, extras: Sequence[Message] = ()) -> list[Row]:
        """Return the budget table of the next request.

        Its rows add up to what the counter counts; :meth:`estimate` lies above that where the
        counter knows a bound.
        """
        self._look_for_open_calls()
        fixed = self._measuring.overhead
        rows = self._budget_table(
            self._measuring.payload(self._history, extras),
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
                self._settle("tool results", number_of(len(calls), "result"))
                continue
            if transient:
                self._settle("extras", number_of(len(transient), "message"), transient)
            reply = self._ask(transient)
            calls = pending_calls(self._history)
            if not calls:
                self._end_run()
                return reply.text
            self._settle("reply", number_of(len(calls), "tool call"))

    def compact_now(self, target_tokens: int | None = None) -> Pass:
        """Make one pass whatever the lines say; a pass that saves nothing changes nothing.

        With ``target_tokens`` the messages come down to that many tokens, or nothing changes.
        """
        self._look_for_open_calls()
        estimate = self._measuring.at_most(self._history)
        before = self._measuring.plain(self._history)
        aim = Aim(target_tokens, must_reach=target_tokens is not None)
        tried = self._try(self._history, before, aim)
        passed = tried.failed or self._adopt(tried)
        self._last_estimate, estimate = estimate, self._measuring.at_most(self._history)
        self._tell("manual pass", estimate, self.lines.decide(estimate), passed.line, passed=passed)
        return passed

    # Measuring.

    def _look_for_open_calls(self) -> None:
        """See whether an interrupted turn left calls behind; a clean run leaves none."""
        if self._measuring.has_open_calls:
            closed = len(close_calls(self._history))
            self._measuring.has_open_calls = closed > len(self._history)

    def _note(self, line: str, once: str | None = None) -> None:
        if once in self._noted or self.on_note is None:
            return
        if once is not None:
            self._noted.add(once)
        self.on_note(line)

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

    # Making room.

    def _settle(self, kind: str, note: str, extras: Sequence[Message] = ()) -> None:
        """Measure, and make room where a line is crossed; nothing is sent before that.

        The loop of passes is ``make_room``'s, which may be a learner's own; it asks the three
        functions in turn: count, decide, compact, count, decide ... A pass is adopted only when
        its result has been counted, in ``decide``.
        """
        last, decided = 0, Decision.SEND  # the estimate decided on, and what was decided
        tried: Tried | None = None  # the pass whose result is about to be counted

        def count(messages: list[Message]) -> int:
            return self._measuring.at_most(messages, extras)

        def compact(messages: list[Message]) -> Compaction:
            nonlocal tried
            # What a pass saves is told by the plain count of both histories: a margin on top of
            # it may move with what a counter knows of either.
            before = (
                last if self._measuring.has_one_count else self._measuring.plain(messages, extras)
            )
            routine = decided == Decision.COMPACT_THRESHOLD
            # Summaries at their own size gain less and less. Where that was not enough the last
            # time, or nothing may fail now, they have to share what a target leaves them.
            shared = not routine or self._try_again_at > 0
            aim = Aim(
                target_tokens=self._target_of(messages, last) if shared else None,
                min_gain=MIN_GAIN if routine else 0.0,
            )
            tried = self._try(messages, before, aim, extras)
            return tried.attempt

        def decide(estimate: int) -> Decision:
            nonlocal tried, last, decided
            decided = self._decide(estimate)
            # No pass led here: it is the measurement itself, at the start.
            if tried is None:
                self._tell(kind, estimate, decided, note)
            else:
                passed = self._adopt(tried)
                self._tell("pass", estimate, decided, passed.line, passed=passed)
            tried, last = None, estimate
            return decided

        without_extras = self._last_estimate or 0
        # First by passes. They end when the request may be sent, or when one does not help.
        room = self._make_room(self._history, count, compact, decide)
        first = room.estimates[0]
        while room.stuck:
            if tried is not None and tried.failed is None:
                # It helped by the plain count, and only the margin on top hides that: adopt it,
                # and make another one if a line is still crossed.
                if decide(room.estimates[-1]) == Decision.SEND:
                    break
            # Then by cutting down the largest result. Where that frees nothing either, a routine
            # pass lets the request go out, and an emergency ends the run.
            elif not self._shorten(last):
                failed = tried.failed if tried and tried.failed else self._failed(None, last, last)
                self._give_up(failed, last, decided, extras)
                break
            # Less is there now, so passes are tried once more.
            tried = None
            kind, note = "shortened", "a large result"
            room = self._make_room(self._history, count, compact, decide)
        if extras:
            # The next growth is told against the history alone, which holds no extras.
            self._last_estimate = last - (first - without_extras)

    def _decide(self, estimate: int) -> Decision:
        """Decide by the lines; after a pass that gained too little the threshold has to wait."""
        decision = self.lines.decide(estimate)
        waits = decision == Decision.COMPACT_THRESHOLD and estimate < self._try_again_at
        return Decision.SEND if waits else decision

    def _target_of(self, messages: list[Message], estimate: int, request: float = 0) -> int:
        """Return to how many tokens the messages have to come down, for a request of that size.

        Without a size the request is to stay well below the threshold. What rides along stays
        as it is: the messages have to give all of it.
        """
        request = request or TARGET_SHARE * self.lines.line_of(Decision.COMPACT_THRESHOLD)
        return max(1, int(self.counter.count(messages) - (estimate - request)))

    def _try(
        self,
        messages: list[Message],
        before: int,
        aim: Aim,
        extras: Sequence[Message] = (),
    ) -> Tried:
        """Let a pass be made, and judge it: a pass that does not help leaves all as it is."""
        self.aim = aim
        try:
            made = attempt(self._compact, messages, lambda: self._history)
        finally:
            self.aim = Aim()
        after = before
        if made.abandoned is not None:
            failed = self._failed(made.abandoned, before, after)
        else:
            after = self._measuring.plain(made.messages, extras)
            reason = why_not(made, before, after, aim, self.counter.count)
            if after < before and reason is None:
                return Tried(made, before, after)
            failed = self._failed(reason if after < before else None, before, after)
        # The same messages once more, so that whoever counts them sees that nothing was gained.
        return Tried(Compaction(messages, 0, 0, [], failed.abandoned, []), before, after, failed)

    def _failed(self, reason: str | None, before: int, after: int) -> Pass:
        return failed_pass(reason, before, after, self._history, self.probes)

    def _give_up(
        self, failed: Pass, estimate: int, decision: Decision, extras: Sequence[Message]
    ) -> None:
        """End the run after a pass that did not help; after a routine one there is still room."""
        served = decision == Decision.COMPACT_THRESHOLD and not failed.saved_nothing
        then = self._next_action("pass") if served else "give up"
        self._tell("pass", estimate, decision, failed.line, then=then, passed=failed)
        if not served:
            reason = failed.abandoned or ""
            raise ContextExceeded(reason, estimate, self.lines, decision, self.budget(extras))
        self._try_again_at = estimate + BACK_OFF * self.lines.window

    def _make_shorter(self, target: int, extras: Sequence[Message]) -> bool:
        """Compact until a request has at most ``target`` tokens; return whether it does."""
        while (estimate := self._measuring.at_most(self._history, extras)) > target:
            before = self._measuring.plain(self._history, extras)
            goal = self._target_of(self._history, estimate, target)
            tried = self._try(self._history, before, Aim(goal), extras)
            passed = tried.failed or self._adopt(tried)
            after = self._measuring.at_most(self._history, extras)
            self._tell("pass", after, self.lines.decide(after), passed.line, passed=passed)
            if tried.failed is not None and not self._shorten(after):
                return False
        return True

    def _adopt(self, tried: Tried) -> Pass:
        """Put the result of a pass in the place of the history, and say what it did."""
        passed = made_pass(tried, self._history, self.probes, self._measuring.plain)
        self._history = list(tried.attempt.messages)
        self._try_again_at = 0.0
        self._changed()
        return passed

    def _compact_by_summary(self, messages: list[Message]) -> Compaction:
        def compact(aim: Aim) -> Compaction:
            return compact_history(
                messages,
                self.summarize,
                target_tokens=aim.target_tokens,
                min_gain=aim.min_gain,
                keep_recent=self.keep_recent,
                meter=self.counter,
                probes=self.probes,
            )

        done = compact(self.aim)
        if self.aim.is_out_of_reach(done) and not self.aim.must_reach:
            return compact(self.aim.without_target)  # what can be had is better than nothing
        return done

    # Asking the model.

    def _ask(self, extras: Sequence[Message]) -> Reply:
        """Ask until there is a reply: once more after a refusal for length or an empty reply."""
        refused = empty = False
        while True:
            try:
                reply = self._request(extras)
            except Exception as error:
                overflow = read_overflow(error)
                if overflow is None:
                    raise
                self._fit_window(overflow, extras, refused)
                refused = True
                continue
            if not reply.is_empty:
                break
            if _had_no_room(reply):
                self._fit_window(Overflow(said="no room was left for a reply"), extras, refused)
                refused = True
                continue
            what = "only thought aloud" if len(reply.message) > 2 else "gave an empty reply"
            if empty:
                raise ReplyError(f"the model {what}, twice in a row", may_pass=True)
            self._note(f"the model {what}; asking it again")
            empty = True
        message, self._broken = reply.message, dict(reply.broken)
        if reply.finish_reason == "length":
            self._note("the reply was cut off at its length limit")
            if not message.get("tool_calls"):
                message = _with_text(message, CUT_OFF_NOTE)
        self._append(message)
        return replace(reply, message=message)

    def _request(self, extras: Sequence[Message]) -> Reply:
        payload = self._measuring.payload(self._history, extras)
        value = self.call_model(list(payload), self.tools)
        reply = read_reply(value, fresh_id=f"call_{len(self._history)}")
        if reply.usage is not None:
            estimate = self._measuring.plain(self._history, extras)
            window = self.lines.window
            self._measuring.observe(payload, reply.usage, estimate, window, self._note)
        return reply

    def _fit_window(self, overflow: Overflow, extras: Sequence[Message], again: bool) -> None:
        """Learn the window from a refusal for length, and make the request fit it."""
        estimate = self._measuring.at_most(self._history, extras)
        decision = Decision.COMPACT_EMERGENCY
        if again:
            reason = f"the gateway refused it as too long once more: {fold(overflow.said)[:200]}"
            raise ContextExceeded(reason, estimate, self.lines, decision, self.budget(extras))
        window = overflow.window
        if window is None and overflow.excess is not None:
            window = overflow.target(estimate)
        if window is not None and window != self.lines.window:
            reserve = min(self.lines.reserve, window // 4)
            self.lines = replace(self.lines, window=window, reserve=reserve)
        named = f"; its window is {window:,} tokens" if window is not None else ""
        self._note(f"the gateway refused the request as too long{named}; compacting to fit")
        target = overflow.target(estimate, self.lines.reserve)
        if not self._make_shorter(target, extras) and window is not None:
            estimate = self._measuring.at_most(self._history, extras)
            if estimate >= self.lines.line_of(decision):
                reason = "the gateway refused it as too long"
                raise ContextExceeded(reason, estimate, self.lines, decision, self.budget(extras))

    # Calling the tools.

    def _answer(self, calls: Sequence[Call]) -> None:
        """Run the calls one after the other; each result is in the history before the next."""
        for number, call in enumerate(calls):
            result = self._result_of(call)
            message: Message = {"role": "tool", "tool_call_id": call.id, "content": result}
            if self._results is not None:
                waiting = len(calls) - number - 1
                message = self._results.fitting(
                    message, call.name, self._history, self.lines, waiting
                )
            self._append(message)

    def _shorten(self, estimate: int) -> bool:
        """Cut the largest result of the history down where no pass frees room any more."""
        if self._results is None or self.lines.decide(estimate) != Decision.COMPACT_EMERGENCY:
            return False
        shorter = self._results.shortened(self._history, self.lines)
        if shorter is None:
            return False
        self._history = shorter
        self._changed()
        return True

    def _result_of(self, call: Call) -> str:
        fault = self._broken.get(call.id or "")
        if fault is not None and needs_arguments(self.tools, call.name, fault):
            return broken_result(call.name, fault)
        if self.call_tool is None:
            return "error: there are no tools here"
        try:
            result = self.call_tool(call)
        except Exception as error:
            return f"error: {type(error).__name__}: {error}"
        if not isinstance(result, str):
            return f"error: the tool {call.name} returned {type(result).__name__}, not text"
        return result

    # Keeping the history.

    def _end_run(self) -> None:
        """Measure the reply that ends a run. A pass that is due waits for the next run's start:
        only then is something sent, and a session that ends here pays for no summary."""
        estimate = self._measuring.at_most(self._history)
        decision = self.lines.decide(estimate)
        due = "" if decision == Decision.SEND else f"; {decision} at the next start"
        self._tell("reply", estimate, decision, "text", then="end the run" + due)

    def _append(self, message: Message) -> None:
        if message.get("role") == "user":
            # After a turn that stopped half-way, this message closes its round.
            if pending_calls(self._history):
                self._measuring.has_open_calls = True
            self._pin([message])
        self._history.append(message)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change(self._history)

    def _pin(self, messages: Iterable[Message]) -> None:
        for probe in pinned_probes(messages):
            self._probes.setdefault(fold(probe.fact), probe)


def _had_no_room(reply: Reply) -> bool:
    """Say whether a gateway cut the prompt to fill the window: it ends at once, without a word."""
    written = getattr(reply.usage, "completion_tokens", None)
    return reply.finish_reason == "length" and len(reply.message) <= 2 and not written


def _with_text(message: Message, text: str) -> Message:
    """Return a message with a line of text after its own."""
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [*content, {"type": "text", "text": text}]}
    return {**message, "content": f"{content}\n\n{text}" if content else text}
