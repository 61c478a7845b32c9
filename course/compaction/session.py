"""The course's own data: one coding session in two lengths, and five texts to calibrate on.

Fourteen messages: an agent reads a module, sees a test fail, mends it, tests again. The long
and the short form come from one source and differ only in the tool results, so whatever
measures them differently has looked at their size. No count is stored here: every figure
comes out of counting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from compaction.calibration import Sample
from compaction.messages import Message, transcript
from compaction.probes import Probe
from compaction.tokens import count_chars

FORMS = ("long", "short")


@dataclass(frozen=True)
class Session:
    """A history, the window it lives in (tokens), scripted summaries, and facts to look for.

    ``replies`` are what a summariser answers, one for each stretch that is compacted.
    """

    messages: list[Message]
    window: int
    replies: list[str]
    probes: list[Probe]


def load(form: str) -> Session:
    """Return the session in its ``"long"`` or its ``"short"`` form, fresh at each call.

    Raises ValueError for any other form.

    >>> session = load("long")
    >>> len(session.messages), session.window
    (14, 1800)
    >>> load("short").messages[-1] == session.messages[-1]
    True
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
    data = _read("session.json")
    return Session(
        messages=[_in_form(message, form) for message in data["messages"]],
        window=data["window"],
        replies=data["replies"],
        probes=[Probe(**probe) for probe in data["probes"]],
    )


def replay(replies: Iterable[str]) -> Callable[[list[Message]], str]:
    """Return a summariser that gives these replies in order, whatever it is asked.

    It raises LookupError when it is asked once more than it has replies.

    >>> from compaction.summary import compact
    >>> session = load("long")
    >>> len(compact(session.messages, replay(session.replies)).messages)
    7
    """
    remaining = iter(list(replies))

    def summarize(messages: list[Message]) -> str:
        for reply in remaining:
            return reply
        raise LookupError("the script has no further summary")

    return summarize


def calibration_texts() -> list[str]:
    """Return five texts whose shares of CJK characters differ, from none to nearly all.

    >>> len(calibration_texts())
    5
    """
    texts: list[str] = _read("calibration_texts.json")
    return texts


def calibration_samples() -> list[Sample]:
    """Return one sample a text: its characters, and the usage of the scripted gateway.

    Each text goes out as one user message. The gateway derives usage from character counts
    by the rule of :func:`compaction.gateway.scripted_usage`, so a fit on these samples is
    flatteringly close; a real gateway is not.

    >>> from compaction.calibration import fit
    >>> fit(calibration_samples()).calibrated
    True
    """
    from compaction.gateway import scripted_usage  # here: a history needs no gateway

    samples = []
    for text in calibration_texts():
        messages: list[Message] = [{"role": "user", "content": text}]
        chars = count_chars(transcript(messages))
        samples.append(Sample(chars.cjk, chars.other, scripted_usage(messages)))
    return samples


def _read(name: str) -> Any:
    """Read a data file anew: what a caller does to the result cannot reach the next one."""
    return json.loads((files("compaction") / "data" / name).read_text(encoding="utf-8"))


def _in_form(message: dict[str, Any], form: str) -> Message:
    """Return a message as the API knows it; a tool result is stored as lines, one list a form."""
    content = message["content"]
    if not isinstance(content, dict):
        return message
    return {**message, "content": "\n".join(content[form])}
