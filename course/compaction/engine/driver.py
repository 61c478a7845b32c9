"""The driver: measure a real history at every growth point, and act on the decisions."""

from __future__ import annotations

import copy
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compaction.budget import Counter, Row, budget_table
from compaction.calibration import meter
from compaction.engine.costs import BreakEven, Prices, break_even
from compaction.engine.decide import Decision, Lines, Room, check_whole, make_room
from compaction.engine.events import ContextExceeded, Event, Pass, number_of
from compaction.engine.replies import CallModel, Tools, read_reply
from compaction.engine.tool_calls import CallTool, close_calls, pending_calls
from compaction.messages import Call, Message, content_of, problems
from compaction.probes import Probe, ProbeReport, fold, pinned_probes, verify
from compaction.summary import Compaction, Summarizer, extract
from compaction.summary import compact as compact_history

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
            check_whole("overhead", overhead, least=0)
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
                self._settle("tool results", number_of(len(calls), "result"))
                continue
            if transient:
                self._settle("extras", number_of(len(transient), "message"), transient)
            message = self._ask(transient)
            calls = pending_calls(self._history)
            if not calls:
                self._end_run()
                return content_of(message)
            self._settle("reply", number_of(len(calls), "tool call"))

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
