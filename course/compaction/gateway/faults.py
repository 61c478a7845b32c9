"""Faults that requests to the scripted gateway meet on purpose."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, cast

FAULTS = {
    "usage-missing": "the reply carries no usage at all",
    "usage-null": "the reply carries a usage that is null",
    "rate-limit": "status 429 with a Retry-After header",
    "server-error": "status 500",
    "html-error": "status 502 with a web page for a body",
    "error-event": "status 200, and an error in the place of the reply",
    "empty-choices": "a reply without a choice",
    "cut-stream": "the connection is cut in the middle of the reply",
    "missing-heading": "a summary lacks one of its four headings",
    "tool-call-summary": "a tool call comes instead of a summary",
    "slow": "the reply keeps the client waiting",
}
"""The fault modes by name. The two about summaries meet summary requests only; those about usage
meet requests whose reply carries usage. A request refused by a fault meets no other, and a
reply that did not arrive whole is given again to the next request."""

REFUSING = ("rate-limit", "server-error", "html-error")
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


class ArmedFault:
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
