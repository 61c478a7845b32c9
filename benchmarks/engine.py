"""Measure what counting costs the engine in long sessions, and what compressing a document costs.

    python benchmarks/engine.py [--turns 500 1000 2000] [--megabytes 2] [--json]

For each length a session runs twice: in a window so large that nothing is compacted, and in a
small one with passes. For contrast a short one runs with a counter that measures everything anew
each time. Characters are what counts: they do not depend on the
machine. The exit code is 1 when a character is measured more often in a longer session than in a
shorter one, that is, when counting is not linear in the text.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as count_from
from typing import Any, NamedTuple
from unittest import mock

from compaction import calibration
from compaction.budget import Counter
from compaction.calibration import TokenMeter
from compaction.documents import compress, segment
from compaction.engine import Engine, Lines, Reply
from compaction.tokens import Chars, count_chars, estimate

SMALL_WINDOW, LARGE_WINDOW = 6_000, 10**9
CONTRAST_TURNS = 100
ALLOWED_GROWTH = 1.35
"""How much more often a character may be measured in the longest session than in the shortest.

Above 1: the first passes of a session gain most, so a short one makes fewer passes for its size.
Work that grew with the square of the text would double with each doubling.
"""


class Session(NamedTuple):
    """One session: what was said, what was measured of it (characters), and how long it took."""

    name: str
    turns: int
    messages: int
    passes: int
    said: int
    measured: int
    seconds: float

    @property
    def times(self) -> float:
        """How often a character was measured, in the mean."""
        return self.measured / self.said


class Forgetful:
    """A counter that measures everything anew each time: what the meter saves."""

    def count(self, messages: Sequence[Any], tools: Any = None) -> int:
        return TokenMeter().count(messages, tools)


@contextmanager
def watch_characters() -> Iterator[Callable[[], int]]:
    """Count the characters that the meter looks at; yields a function that returns the sum."""
    measured = 0

    def count(text: str) -> Chars:
        nonlocal measured
        measured += len(text)
        return count_chars(text)

    with mock.patch.object(calibration, "count_chars", count):
        yield lambda: measured


def run_session(name: str, turns: int, window: int, counter: Counter) -> Session:
    """Run a session with a tool call in every fourth turn and real usage on every reply."""
    said = 0
    requests = count_from()

    def say(text: str) -> str:
        nonlocal said
        said += len(text)
        return text

    def call_model(messages: list[Any], tools: Any) -> Reply:
        message: dict[str, Any] = {"role": "assistant", "content": say("divide has no guard. " * 4)}
        if next(requests) % 5 == 0:
            function = {"name": "read_file", "arguments": say('{"path": "calc.py"}')}
            call = {"id": f"c{said}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return Reply(message, {"prompt_tokens": len(messages) * 40})

    engine = Engine(
        call_model,
        Lines(window),
        [{"role": "system", "content": say("You are a coding agent. " * 20)}],
        tools=[{"type": "function", "function": {"name": "read_file", "description": "d" * 300}}],
        call_tool=lambda call: say(f"line of calc.py after {call.id}\n" * 30),
        counter=counter,
    )
    with watch_characters() as measured:
        began = time.perf_counter()
        for turn in range(turns):
            engine.run(say(f"Step {turn}: go on with calc.py."))
        seconds = time.perf_counter() - began
        passes = sum(event.passed is not None for event in engine.events)
        return Session(name, turns, len(engine.history), passes, said, measured(), seconds)


def measure_sessions(turns: Sequence[int]) -> list[Session]:
    """Run all sessions, the shortest first."""
    sessions = []
    for length in sorted(turns):
        sessions.append(run_session("no pass", length, LARGE_WINDOW, TokenMeter()))
        sessions.append(run_session("with passes", length, SMALL_WINDOW, TokenMeter()))
    short = min(CONTRAST_TURNS, *turns)
    sessions.append(run_session("all anew each time", short, LARGE_WINDOW, Forgetful()))
    return sessions


def is_linear(sessions: Sequence[Session]) -> bool:
    """Say whether a character is measured as often in the longest session as in the shortest."""
    for name in ("no pass", "with passes"):
        times = [session.times for session in sessions if session.name == name]
        if times[-1] > ALLOWED_GROWTH * times[0]:
            return False
    return True


class Document(NamedTuple):
    """One compressed document: sizes in characters and tokens, and how long it took."""

    characters: int
    units: int
    budget: int
    tokens: int
    dropped: int
    seconds: float


def measure_document(megabytes: float) -> Document:
    """Segment and compress a Markdown document of that size to a tenth of its tokens."""
    rng = random.Random(20260218)
    words = "divide guard test build error fixed module never must changed path zero".split()
    sections = []
    size = 0
    while size < megabytes * 1e6:
        sentences = (" ".join(rng.choices(words, k=9)).capitalize() + "." for _ in range(40))
        sections.append(f"## Section {len(sections)}\n\n" + " ".join(sentences) + "\n\n")
        size += len(sections[-1])
    text = "".join(sections)
    budget = estimate(text) // 10
    began = time.perf_counter()
    done = compress(segment(text, "markdown"), budget)
    seconds = time.perf_counter() - began
    return Document(len(text), len(sections), budget, done.tokens, len(done.dropped), seconds)


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; return 1 when counting is not linear in the text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--turns", type=int, nargs="+", default=[500, 1000, 2000], help="lengths (500 1000 2000)"
    )
    parser.add_argument("--megabytes", type=float, default=2.0, help="size of the document (2)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if min(options.turns) < 1 or not options.megabytes > 0:
        parser.error("expected at least 1 turn, and a document above 0 megabytes")
    sessions = measure_sessions(options.turns)
    document = measure_document(options.megabytes)
    linear = is_linear(sessions)
    if options.json:
        listed = [session._asdict() | {"times": session.times} for session in sessions]
        report = {"linear": linear, "sessions": listed, "document": document._asdict()}
        print(json.dumps(report, indent=2))
        return 0 if linear else 1
    print(
        f"  {'session':<20} {'turns':>6} {'passes':>6} {'said':>11} {'measured':>13} {'times':>7}"
    )
    for session in sessions:
        print(
            f"  {session.name:<20} {session.turns:>6,} {session.passes:>6,} {session.said:>11,} "
            f"{session.measured:>13,} {session.times:>7.2f}   "
            f"{1000 * session.seconds / session.turns:.2f} ms a turn"
        )
    print(f"  counting is {'' if linear else 'NOT '}linear in the text")
    print(
        f"  a document of {document.characters:,} characters, {document.units:,} sections: "
        f"to {document.tokens:,} of {document.budget:,} tokens in {document.seconds:.2f} s, "
        f"{document.dropped:,} sections named as dropped"
    )
    return 0 if linear else 1


if __name__ == "__main__":
    sys.exit(main())
