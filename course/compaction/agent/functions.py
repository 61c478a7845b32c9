"""What a session is built from: the library's functions, or a learner's own in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compaction.agent.trying_out import try_out
from compaction.budget import Counter, Row, budget_table
from compaction.calibration import FeatureMeter, Fit, Sample, fit
from compaction.engine import Decision, Lines, Room, make_room, next_step
from compaction.files import InputError
from compaction.grouping import Group, group_messages
from compaction.history import HistoryError
from compaction.messages import Message, image_count, transcript
from compaction.probes import ProbeReport, verify
from compaction.summary import Compaction
from compaction.tokens import DEFAULT, IMAGE_TOKENS, Coefficients, count_chars, estimate

USED = (
    *("estimate", "fit", "should_compact", "budget_table"),
    *("group_messages", "compact", "verify", "next_step", "make_room"),
)
"""The functions of the labs that an agent runs on, by name."""


@dataclass(frozen=True)
class Parts:
    """The functions that a session runs on.

    Without a ``should_compact`` the line is ``next_step``'s; without a ``compact`` of day 5 the
    compactor is ``compact_history``. Every session has a counter of its own.
    """

    counter: Counter = field(default_factory=FeatureMeter)
    should_compact: Callable[..., bool] | None = None
    next_step: Callable[..., Decision] = next_step
    make_room: Callable[..., Room] = make_room
    budget_table: Callable[..., list[Row]] = budget_table
    group_messages: Callable[..., list[Group]] = group_messages
    compact: Callable[..., Compaction] | None = None
    verify: Callable[..., ProbeReport] = verify


def parts_of(own: Mapping[str, Callable[..., Any]]) -> Parts:
    """Return the parts of a session in which a learner's functions take the library's place.

    >>> parts_of({"verify": lambda probes, messages, ask=None: None}).next_step is next_step
    True
    """
    used: dict[str, Any] = {name: own[name] for name in own if name not in ("estimate", "fit")}
    if len(used) < len(own):
        used["counter"] = OwnMeter(own.get("estimate", estimate), own.get("fit", fit))
    return Parts(**used)


class OwnMeter:
    """A counter on a learner's ``estimate`` and ``fit``: the whole text, estimated.

    >>> counter = OwnMeter(estimate, fit)
    >>> counter.count([{"role": "user", "content": "hello"}])
    3
    """

    def __init__(self, own_estimate: Callable[..., int], own_fit: Callable[..., Fit] = fit) -> None:
        self.coefficients = DEFAULT
        self.samples: list[Sample] = []
        self._estimate = own_estimate
        self._fit = own_fit

    def count(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the estimate of the transcript, images included."""
        text = transcript(messages, tools)
        tokens = self._estimate(text, self.coefficients)
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
            raise TypeError(f"your estimate returned {tokens!r}, not a number of tokens")
        return tokens + IMAGE_TOKENS * image_count(messages)

    def observe(
        self,
        messages: Sequence[Message],
        usage: Any,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Keep the usage of a request as one sample."""
        tokens = usage if isinstance(usage, int) else getattr(usage, "prompt_tokens", None)
        if isinstance(tokens, int) and tokens > 0:
            chars = count_chars(transcript(messages, tools))
            text_tokens = max(1, tokens - IMAGE_TOKENS * image_count(messages))
            self.samples.append(Sample(chars.cjk, chars.other, text_tokens))

    def calibrate(self) -> Fit:
        """Fit the table to the samples so far by the learner's ``fit``."""
        found = self._fit(self.samples, self.coefficients)
        if not isinstance(getattr(found, "coefficients", None), Coefficients):
            raise TypeError(f"your fit returned {type(found).__name__}, not a Fit")
        self.coefficients = found.coefficients
        return found


@dataclass(frozen=True)
class OwnLines(Lines):
    """Lines that are watched by a learner's ``next_step`` and ``should_compact``.

    ``history`` returns the messages that the estimate is about.
    """

    parts: Parts = Parts()
    history: Callable[[], list[Message]] = list

    def decide(self, estimate: float) -> Decision:
        """Return what to do with a request of ``estimate`` tokens."""
        threshold, emergency = self.shares
        decision = self.parts.next_step(
            estimate, self.window, threshold, emergency, self.auto_compact
        )
        own = self.parts.should_compact
        if own is None or decision == Decision.COMPACT_EMERGENCY or not self.auto_compact:
            return decision
        due = own(self.history(), self.window, threshold, meter=_Told(int(estimate)))
        return Decision.COMPACT_THRESHOLD if due else Decision.SEND


class _Told:
    """A counter that knows the answer: the engine has counted, and one number is enough."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def count(self, messages: object, tools: object = None) -> int:
        return self._tokens


READERS = "compaction.functions"
"""The group of entry points under which a package offers to read notebooks."""


def own_functions(folder: str) -> tuple[dict[str, Callable[..., Any]], list[str]]:
    """Return a learner's functions that an agent runs on, and lines about what is missing.

    What reads notebooks is another package's, found by its entry point (group
    :data:`READERS`); it executes them, first in a process apart. Raises HistoryError when there
    is none or no notebook, and for code that loops or ends its process.
    """
    from importlib.metadata import entry_points

    reader = next(iter(entry_points(group=READERS)), None)
    if reader is None:
        raise HistoryError("--functions needs the course's grader: pip install -e . in its folder")
    read = reader.load()
    faults = try_out(read, folder, USED)
    try:
        own = read(folder)
    except InputError as error:
        raise HistoryError(str(error)) from error
    used = {n: own.functions[n] for n in USED if n in own.functions and n not in faults}
    lines = [f"yours: {', '.join(used) or 'none'}"]
    missing = {**own.missing, **faults}
    lines += [
        f"from the library: {name} ({missing.get(name, 'not found')})"
        for name in USED
        if name not in used
    ]
    return used, lines
