"""Day 6: is the fact still in the context?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from compaction.calibration import TokenMeter
from compaction.messages import Message, text_of
from compaction.probes import Probe, ProbeReport, truncate
from compaction.probes import verify as library_verify
from compaction.session import load
from compaction.summary import compact
from grader.checks import histories as h
from grader.checks.check import Check, Function
from grader.checks.trial import Given, Known, Trial, given
from grader.starters import day6 as starter

_FACTS = (
    "make dist-all",
    "port 8443",
    "never touch the table orders",
    "app/dates.py line 40",
    "时区是 UTC+8",
    "reviewer: Anna Žižek",
    "branch release/2.4",
    "timeout of 90 seconds",
)

Ask = Callable[[str, Sequence[Message]], str]


def _call(
    probes: Sequence[Probe], messages: list[Message], where: str, ask: Ask | None = None
) -> Given:
    facts = ", ".join(f'Probe("{probe.fact}")' for probe in probes)
    if ask is None:
        return given(f"verify([{facts}], {where})", list(probes), messages)
    return given(f"verify([{facts}], {where}, ask)", list(probes), messages, ask)


def _facts(given: Given, report: ProbeReport) -> dict[str, list[str]]:
    return {
        "kept": [probe.fact for probe in report.kept],
        "lost": [probe.fact for probe in report.lost],
        "answered": [probe.fact for probe in report.answered],
    }


def _tell(given: Given, right: dict[str, Any], seen: dict[str, Any]) -> tuple[str, str]:
    differing = [part for part in right if right[part] != seen[part]]
    told = [
        "; ".join(f"{part}: {', '.join(view[part]) or 'none'}" for part in differing)
        for view in (right, seen)
    ]
    return told[0], told[1]


def _as_written(
    probes: Iterable[Probe], messages: Sequence[Message], ask: Ask | None = None
) -> ProbeReport:
    """Look for each fact exactly as it is written, white space included."""
    texts = [text_of(message) for message in messages]
    report = ProbeReport(kept=[], lost=[], answered=[])
    for probe in probes:
        present = any(probe.fact in text for text in texts)
        (report.kept if present else report.lost).append(probe)
    return report


def _pieced_together(
    probes: Iterable[Probe], messages: Sequence[Message], ask: Ask | None = None
) -> ProbeReport:
    """Look for each fact in the text of all messages at once."""
    whole = "\n".join(text_of(message) for message in messages)
    return library_verify(probes, [{"role": "user", "content": whole}])


def _in_any_letters(
    probes: Iterable[Probe], messages: Sequence[Message], ask: Ask | None = None
) -> ProbeReport:
    """Look for each fact in upper or lower case."""
    lowered: list[Message] = [{"role": "user", "content": text_of(m).lower()} for m in messages]
    report = ProbeReport(kept=[], lost=[], answered=[])
    for probe in probes:
        present = library_verify([Probe(probe.fact.lower())], lowered).kept
        (report.kept if present else report.lost).append(probe)
    return report


def probe_survives(verify: Function, rng: Random) -> str:
    """A fact survives when it can be found in the compacted context."""
    trial = Trial(
        verify,
        library_verify,
        ProbeReport,
        known=[
            Known(
                _as_written,
                "white space was compared too: a fact that wraps onto a second line is still there",
            ),
            Known(
                _pieced_together,
                "the fact was pieced together from two messages: it must stand in one of them",
            ),
            Known(
                _in_any_letters,
                "upper and lower case count: in other letters a command is another command",
            ),
        ],
        view=_facts,
        tell=_tell,
    )
    session = load("long")
    compacted = compact(
        session.messages,
        h.scripted(session.messages, session.replies),
        meter=TokenMeter(),
    ).messages
    where = 'compact(load("long").messages).messages'
    kept = trial.on(_call(session.probes, compacted, where)).kept
    for _ in range(5):
        probes = [Probe(fact) for fact in rng.sample(_FACTS, 4)]
        present = [probe.fact for probe in probes if rng.random() < 0.5]
        messages = _holding(rng, present)
        messages += _resembling(rng, [p.fact for p in probes if p.fact not in present])
        trial.on(_call(probes, messages, h.outline(messages, 6)))
    which = "both probes are" if len(kept) == 2 else f"{len(kept)} probes are"
    return (
        f"✓ {which} still findable in the compacted context: "
        f"{', '.join(probe.fact for probe in kept)}"
    )


def _holding(rng: Random, facts: Sequence[str]) -> list[Message]:
    """Return a history that holds these facts: in texts, in parts, in tool calls, across lines."""
    messages = h.talk(rng, rng.randint(1, 4))
    for number, fact in enumerate(facts):
        place = rng.choice(("text", "wrapped", "parts", "call"))
        if place == "text":
            messages.append({"role": "user", "content": f"Mind this: {fact}. Thank you."})
        elif place == "wrapped":
            wrapped = fact.replace(" ", rng.choice(("\n", "\n  ", "  ")))
            messages.append({"role": "tool", "tool_call_id": "w", "content": f"> {wrapped} <"})
        elif place == "parts":
            parts = [{"type": "text", "text": "Look."}, {"type": "text", "text": f"{fact}!"}]
            messages.append({"role": "user", "content": parts})
        else:
            call = h.calls(rng, f"c{number}")
            call["tool_calls"][0]["function"]["arguments"] = f'{{"note": "{fact}"}}'
            messages.append(call)
    rng.shuffle(messages)
    return messages


def _resembling(rng: Random, facts: Sequence[str]) -> list[Message]:
    """Return messages that hold none of these facts: torn across two, or in other letters."""
    messages = []
    for fact in facts:
        texts = [f"Mind this: {fact.swapcase()}. Thank you."]
        if " " in fact and rng.random() < 0.5:
            first, rest = fact.rsplit(" ", 1)
            texts = [f"Mind this: {first}", f"{rest}. Thank you."]
        messages += [{"role": "user", "content": text} for text in texts]
    return messages


# --- probe-control ----------------------------------------------------------------------


def _guessing(answers: dict[str, str], otherwise: str) -> Ask:
    """Return a model that answers from what it was trained on and never looks at the context."""

    def ask(question: str, messages: Sequence[Message]) -> str:
        return f"I believe it is {answers.get(question, otherwise)}."

    return ask


def probe_control(verify: Function, rng: Random) -> str:
    """Truncation loses the fact, even when a model guesses it right."""
    present = Probe("make all", "How is it built?")
    evidence = _call(
        [present], [{"role": "user", "content": "Use make all."}], "", _guessing({}, "?")
    )
    trial = Trial(
        verify,
        library_verify,
        ProbeReport,
        known=[
            Known(
                starter.verify,
                "the model's answer was believed: it can guess a fact right that is no longer "
                "in its context",
            )
        ],
        evidence=[evidence],
        view=_facts,
        tell=_tell,
    )
    session = load("long")
    left = truncate(session.messages, keep_recent=3)
    right_guess = _guessing({p.question: p.fact for p in session.probes}, session.probes[0].fact)
    report = trial.on(_call(session.probes, left, 'truncate(load("long").messages)', right_guess))
    for _ in range(5):
        probes = [Probe(fact, f"What about {n}?") for n, fact in enumerate(rng.sample(_FACTS, 4))]
        there = [probe.fact for probe in probes if rng.random() < 0.5]
        messages = _holding(rng, there)
        answers = {p.question: p.fact for p in probes if rng.random() < 0.5}
        ask = _guessing(answers, "something else")
        trial.on(_call(probes, messages, h.outline(messages, 6), ask))
    return (
        '✓ switching to "keep only the last three groups": the estimate drops to '
        f'{h.tokens_of(left)} tokens, but the fact "{report.lost[0].fact}" is gone'
    )


CHECKS = (
    Check(
        "probe-survives",
        6,
        "verify",
        "A fact survives when it can be found in the compacted context.",
        probe_survives,
    ),
    Check(
        "probe-control",
        6,
        "verify",
        "Truncation loses the fact, even when a model guesses it right.",
        probe_control,
    ),
)
