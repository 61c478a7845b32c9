"""Day 6: prove what a compaction kept.

A probe is a fact that stands only in the early context. The criterion is whether the fact is
still in the context, not whether a model answers well: an answer can be a lucky guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from compaction.grouping import group_messages
from compaction.messages import Message, content_of, is_summary, text_of


@dataclass(frozen=True)
class Probe:
    """A fact to look for, word for word, and a question that asks for it."""

    fact: str
    question: str = ""


@dataclass(frozen=True)
class ProbeReport:
    """Which facts are in the context (``kept``), which are not, and which a model answered."""

    kept: list[Probe]
    lost: list[Probe]
    answered: list[Probe]


# "remember: ..." and "记住：...", with either colon.
PIN = re.compile(r"(?:\bremember|记住)\s*[:：]", re.IGNORECASE)
_POINTS = re.compile(r"(?:[ \t]*\n[ \t]*[-*•][ \t]+[^\n]+)+")
_QUOTES = (
    # Without the opening mark inside, or a run of them would be searched again and again.
    r'`[^`\n]+`|"[^"\n]+"|“[^“”\n]+”|「[^「」\n]+」|『[^『』\n]+』|‘[^‘’\n]+’'
    r"|(?<!\w)'[^'\n]+'(?!\w)"
)
_QUOTED = re.compile(_QUOTES)
_AROUND = 200  # characters of the sentence on each side of the gap in a question
# A sentence ends at the line's end, at a CJK stop, or at a stop that white space follows; a
# stop inside quotes or inside a name (calc.py) does not end it.
_PINNED = re.compile(rf"[ \t\n*•-]*+(?P<sentence>(?:{_QUOTES}|[.!?](?!\s|$)|[^.!?。！？\n])+)")


def pinned_probes(messages: Iterable[Message]) -> list[Probe]:
    """Collect what the user pinned: after ``remember:`` or ``记住：``, one probe a fact.

    The fact is what is in backticks or quotes, else the whole sentence. Only the user's
    own messages count: a tool result or a summary must not pin itself.

    >>> pinned_probes([{"role": "user", "content": "Remember: build with `make all`. Thanks."}])
    [Probe(fact='make all', question='Fill the gap: build with ___')]
    """
    found: dict[str, Probe] = {}
    for message in messages:
        if message.get("role") == "user" and not is_summary(message):
            for probe in _pins(content_of(message)):
                found.setdefault(fold(probe.fact), probe)
    return list(found.values())


def _pins(text: str) -> Iterator[Probe]:
    for sentence in _pinned_sentences(text):
        quoted = [match for match in _QUOTED.finditer(sentence) if match[0][1:-1].strip()]
        for match in quoted:
            # Of a pasted file on one line the words around the gap are enough: a copy of it for
            # every quote in it would fill the memory.
            around = sentence[max(0, match.start() - _AROUND) : match.end() + _AROUND]
            gap = around.replace(match[0], "___")
            yield Probe(match[0][1:-1].strip(), f"Fill the gap: {gap.strip()}")
        if not quoted and re.search(r"\w", sentence):
            yield Probe(sentence, "What did the user ask to remember?")


def _pinned_sentences(text: str) -> Iterator[str]:
    position = 0
    while pin := PIN.search(text, position):
        # A pin may head a list; then each of its points is pinned.
        points = _POINTS.match(text, pin.end())
        if points:
            found = [_PINNED.match(line) for line in points.group().splitlines()]
            position = points.end()
        else:
            found = [_PINNED.match(text, pin.end())]
            # A pin inside a pinned sentence is part of it.
            position = found[0].end() if found[0] else pin.end()
        yield from (match["sentence"].strip() for match in found if match)


def fold(text: str) -> str:
    """Fold white space, so that a fact is found across a line break.

    >>> fold("pnpm\\n  build:calc")
    'pnpm build:calc'
    """
    return " ".join(text.split())


def verify(
    probes: Iterable[Probe],
    messages: Sequence[Message],
    ask: Callable[[str, Sequence[Message]], str] | None = None,
) -> ProbeReport:
    """Look for each fact in the messages; ask a model too when ``ask`` is given.

    Presence decides what is kept. The answers are reported apart: they test the model, and
    only presence tests the compaction.

    >>> report = verify([Probe("make all")], [{"role": "user", "content": "use make  all"}])
    >>> report.kept
    [Probe(fact='make all', question='')]
    """
    texts = [fold(text_of(message)) for message in messages]
    report = ProbeReport(kept=[], lost=[], answered=[])
    for probe in probes:
        fact = fold(probe.fact)
        present = any(fact in text for text in texts)
        (report.kept if present else report.lost).append(probe)
        answer = ask(probe.question, messages) if ask is not None else None
        # A model may answer with a tool call, and then there is no text.
        if isinstance(answer, str) and fact in fold(answer):
            report.answered.append(probe)
    return report


def truncate(messages: Sequence[Message], keep_recent: int = 3) -> list[Message]:
    """Drop what compaction would summarise: the control that saves more and loses facts.

    >>> truncate([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], 1)
    [{'role': 'user', 'content': 'b'}]
    """
    return [
        message
        for group in group_messages(messages, keep_recent)
        if group.keep != "compressible"
        for message in messages[group.start : group.end]
    ]
