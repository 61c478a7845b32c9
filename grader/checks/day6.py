"""Day 6: is the fact still in the context?

What the statement promises, and which cases look at it (every one under every seed):

| property | fixed | drawn |
|---|---|---|
| a fact in the text of any one message is present | compacted session, the first | each place |
| a fact torn across two messages is not | | torn, at a space and inside a word |
| white space is folded, in fact and text; it is not removed | a fact on two lines | each wrap |
| letters, dots and dashes count, and mean themselves | NEARLY | in other letters |
| the question does not count | NEARLY | |
| each probe in one of two lists, in the order in which they came | twins | against their places |
| an answer decides nothing | truncation and a lucky guess | all four pairs of two |
| each probe is asked, by its question, with the messages | | a model that reads |
| the answer is folded and searched for the fact as it is | SAID | all four pairs of two |
| nobody is asked where there is nobody to ask | no ``ask`` | all of probe-survives |
| probes and messages stay as they are | all | all |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from compaction.calibration import TokenMeter
from compaction.messages import Message, content_of, text_of
from compaction.probes import Probe, ProbeReport, fold, truncate, verify
from compaction.session import load
from compaction.summary import compact
from grader.checks import histories as h
from grader.checks.check import check
from grader.checks.show import difference
from grader.checks.spell import Named, outline
from grader.checks.trial import Function, Given, Known, Trial, given
from grader.starters import day6 as starter

_FACTS = (
    "make dist-all",
    "on port 8443",
    "never touch the table orders",
    "app/dates.py line 40",
    "时区是 UTC+8",
    "reviewer: Anna Žižek",
    "branch release/2.4",
    "timeout of 90 seconds",
    "calc(2 + 3)",
)

# What is nearly the fact, and yet is not.
_NEARLY = (
    ("reviewer: Anna Žižek", "reviewer: Anna Zizek"),
    ("calc(2 + 3)", "calc(2 + 3"),
    ("make dist-all", "make dist all"),
    ("make dist-all", "ｍａｋｅ　ｄｉｓｔ－ａｌｌ"),
    ("timeout of 90 seconds", "timeout of exactly 90 seconds"),
    ("release/2.4", "release/204"),
)
# The fact, what a model answers, and its question, where that is no plain one.
_SAID = (
    ("make dist-all", "make, I believe", ""),
    ("on port 8443", "I do not know", "Is it on port 8443?"),
    ("app/dates.py line 40", "app/dates.py line 40, or is it 41", ""),
    ("branch\n release/2.4", "branch release/2.4", ""),
    ("calc(2 + 3)", "CALC(2 + 3)", ""),
    ("timeout of 90 seconds", "a timeout of 90 seconds, no more", ""),
)

Ask = Callable[[str, Sequence[Message]], str]


def _probes(probes: Sequence[Probe]) -> Named:
    return Named(list(probes), "[" + ", ".join(f'Probe("{fold(p.fact)}")' for p in probes) + "]")


def _facts(given: Given, report: ProbeReport) -> dict[str, list[list[str]]]:
    lists = {"kept": report.kept, "lost": report.lost, "answered": report.answered}
    return {name: [[p.fact, p.question] for p in probes] for name, probes in lists.items()}


def _say(given: Given, view: dict[str, Any]) -> str:
    return _in_words(view, [*view] if len(given.args) > 2 else ["kept", "lost"])


def _tell(given: Given, right: dict[str, Any], seen: dict[str, Any]) -> tuple[str, str]:
    differing = [part for part in right if right[part] != seen[part]]
    told = _in_words(right, differing), _in_words(seen, differing)
    return told if told[0] != told[1] else difference(right, seen)


def _in_words(view: dict[str, Any], parts: Sequence[str]) -> str:
    return "; ".join(
        f"{part}: {', '.join(fold(fact) for fact, _ in view[part]) or 'none'}" for part in parts
    )


# --- known mistakes ---------------------------------------------------------------------


def _folded_in_one(fact: str, texts: list[str]) -> bool:
    return any(fold(fact) in fold(text) for text in texts)


def _variant(
    *,
    present: Callable[[str, list[str]], bool] = _folded_in_one,
    text: Callable[[Message], str] = text_of,
    keeps: Callable[[bool, bool], bool] = lambda present, answered: present,
    answers: Callable[[bool, bool], bool] = lambda present, answered: answered,
    says: Callable[[str, str], bool] = lambda fact, answer: fold(fact) in fold(answer),
    among: Callable[[Sequence[Message]], Sequence[Message]] = lambda messages: messages,
) -> Function:
    """Return a verify that does one of its steps in another way."""

    def wrong(
        probes: Iterable[Probe], messages: Sequence[Message], ask: Ask | None = None
    ) -> ProbeReport:
        texts = [text(message) for message in among(messages)]
        report = ProbeReport(kept=[], lost=[], answered=[])
        for probe in probes:
            there = present(probe.fact, texts)
            said = ask is not None and says(probe.fact, ask(probe.question, messages))
            (report.kept if keeps(there, said) else report.lost).append(probe)
            if answers(there, said):
                report.answered.append(probe)
        return report

    return wrong


def _lower(text: str) -> str:
    return fold(text).lower()


_PRESENCE = [
    Known(
        _variant(present=lambda fact, texts: any(fact in text for text in texts)),
        "white space was compared too: a fact that wraps onto a second line is still there",
    ),
    Known(
        _variant(
            present=lambda fact, texts: any(
                "".join(fact.split()) in "".join(t.split()) for t in texts
            )
        ),
        "white space was taken out: folded, two words are still two words",
    ),
    Known(
        _variant(present=lambda fact, texts: fold(fact) in fold("\n".join(texts))),
        "the fact was pieced together from two messages: it must stand in one of them",
    ),
    Known(
        _variant(present=lambda fact, texts: any(_lower(fact) in _lower(t) for t in texts)),
        "upper and lower case count: in other letters a command is another command",
    ),
    Known(
        _variant(text=content_of),
        "only contents were searched: text_of also holds the names and arguments of tool calls",
    ),
    Known(
        _variant(among=lambda messages: [m for m in messages if m["role"] == "user"]),
        "only the user's messages were searched: a fact may stand in any message",
    ),
    Known(
        _variant(among=lambda messages: messages[-3:]),
        "only the newest messages were searched: a fact may stand in any message",
    ),
]
_ANSWERS = [
    Known(
        starter.verify,
        "the model's answer was believed: it can guess a fact right that is no longer in its "
        "context",
    ),
    Known(
        _variant(keeps=lambda present, answered: present or answered),
        "a right answer kept the fact: the model can guess it, only presence decides",
    ),
    Known(
        _variant(keeps=lambda present, answered: present and answered),
        "a wrong answer lost the fact: only presence decides",
    ),
    Known(
        _variant(answers=lambda present, answered: present and answered),
        "only the facts that are present were asked about: answered tells of every probe",
    ),
    Known(
        _variant(answers=lambda present, answered: answered and not present),
        "only the facts that are lost were asked about: answered tells of every probe",
    ),
    Known(
        _variant(answers=lambda present, answered: False),
        "the model was never asked: its answers belong into answered",
    ),
    Known(
        _variant(says=lambda fact, answer: fact in answer),
        "the answer was not folded: white space does not count there either",
    ),
    Known(
        _variant(says=lambda fact, answer: fold(fact) == fold(answer).strip()),
        "the answer was compared as a whole: it is enough that the fact stands in it",
    ),
]


def _guessing(answers: dict[str, str], otherwise: str) -> Ask:
    """Return a model that answers from what it was trained on and never looks at the context."""

    def ask(question: str, messages: Sequence[Message]) -> str:
        return f"I believe it is {answers.get(question, otherwise)}."

    return ask


_PRESENT = Probe("make all", "How is it built?")


def _evidence(role: str, *texts: str, answer: str | None = None) -> Given:
    messages: list[Message] = [{"role": role, "content": text} for text in texts]
    told = [] if answer is None else [_guessing({_PRESENT.question: answer}, "?")]
    return given([_PRESENT], messages, *told)


# One for each way to look for a fact, so that no two of them look alike.
_SEEN = [
    _evidence("user", "Use make all."),
    _evidence("assistant", "Use make all."),
    _evidence("user", "Use make all.", "a", "b", "c", "d"),
    _evidence("user", "Use make", "all."),
    _evidence("user", "Use make\n all."),
    _evidence("user", "Use makeall."),
    _evidence("user", "Use Make All."),
]
# And one for each way to take an answer.
_HEARD = [
    _evidence("user", "Use make all.", answer="?"),
    _evidence("user", "Use make all.", answer="make all"),
    _evidence("user", "Use make all.", answer="make\nall"),
    _evidence("user", "Use what you like.", answer="make all"),
]


# --- probe-survives ---------------------------------------------------------------------


@check(
    "probe-survives",
    day=6,
    of=verify,
    returns=ProbeReport,
    known=_PRESENCE,
    evidence=_SEEN,
    view=_facts,
    say=_say,
    tell=_tell,
)
def probe_survives(trial: Trial, rng: Random) -> str:
    """A fact survives when it can be found in the compacted context."""
    session = load("long")
    stretches = h.stretches_of(session.messages)
    script = h.scripted(session.messages, stretches, session.replies)
    compacted = compact(session.messages, script, meter=TokenMeter()).messages
    where = Named(compacted, 'compact(load("long").messages).messages')
    kept = trial(_probes(session.probes), where).kept
    trial(_probes(session.probes), [])
    trial(_probes([]), h.talk(rng, 2))
    for place in _PLACES:
        fact = rng.choice(_FACTS)
        _try_fact(trial, fact, _PLACES[place](rng, fact), rng)
    for cut in (" ", "", " "):
        _try_fact(trial, *_torn(rng, cut), rng)
    for spoil in _OTHER:
        fact = rng.choice([fact for fact in _FACTS if spoil(fact) != [fact]])
        messages = [{"role": "user", "content": f"Mind: {text}. Yes."} for text in spoil(fact)]
        _try_fact(trial, fact, messages, rng)
    for fact, nearly in _NEARLY:
        trial(_probes([Probe(fact, "How?")]), [{"role": "user", "content": f"How? {nearly}. Yes."}])
    # A fact may itself be written across lines, and stand in a longer word; in the first message
    # and in the last one.
    longer = {"role": "user", "content": "Use make dist-alls."}
    trial(_probes([Probe("make\n  dist-all")]), [longer, *h.talk(rng, 3)])
    trial(_probes([Probe("make\n  dist-all")]), [*h.talk(rng, 3), longer])
    for wrap in ("\n", "\n    ", "\t", "\r\n"):
        trial(_probes([Probe("make all")]), [{"role": "user", "content": f"Use make{wrap}all."}])
    _try_several(trial, rng)
    which = "both probes are" if len(kept) == 2 else f"{len(kept)} probes are"
    return (
        f"✓ {which} still findable in the compacted context: "
        f"{', '.join(probe.fact for probe in kept)}"
    )


def _try_fact(trial: Trial, fact: str, messages: list[Message], rng: Random) -> None:
    """Try one fact, with talk around the messages."""
    history = h.talk(rng, rng.randint(1, 2)) + messages + h.talk(rng, 3)
    trial(_probes([Probe(fact, "What was it?")]), Named(history, outline(messages, 6)))


def _torn(rng: Random, cut: str) -> tuple[str, list[Message]]:
    """Return a fact, and two messages that hold it together, one behind the other."""
    fact = rng.choice([fact for fact in _FACTS if " " in fact])
    at = fact.index(" ") if cut else len(fact) - 3
    texts = f"Mind this: {fact[:at]}", f"{fact[at:].removeprefix(cut)}. Thank you."
    return fact, [{"role": "user", "content": text} for text in texts]


def _try_several(trial: Trial, rng: Random) -> None:
    """Try several facts at once: some are there, in one place each, the others nearly.

    They are asked for in another order than that of their places, and one of them twice.
    """
    for _ in range(2):
        facts = rng.sample(_FACTS, 5)
        there = rng.sample(facts, 3)
        messages = h.talk(rng, 2)
        for fact in facts:
            if fact in there:
                messages += rng.choice([*_PLACES.values()])(rng, fact)
            else:
                nearly = rng.choice(_OTHER)(fact)
                nearly = [fact.swapcase()] if nearly == [fact] else nearly
                messages += [{"role": "user", "content": f"Mind: {text}."} for text in nearly]
        messages += h.talk(rng, 2)
        probes = [Probe(fact, f"Which {n}?") for n, fact in enumerate(facts)][::-1]
        trial(_probes([*probes, rng.choice(probes)]), messages)


def _said(role: str) -> Callable[[Random, str], list[Message]]:
    return lambda rng, fact: [{"role": role, "content": f"Mind this: {fact}. Thank you."}]


def _wrapped(rng: Random, fact: str) -> list[Message]:
    wrapped = fact.replace(" ", rng.choice(("\n", "\n  ", "  ", "\t", "\r\n")))
    return [{"role": "tool", "tool_call_id": "w", "content": f"> {wrapped} <"}]


def _in_parts(rng: Random, fact: str) -> list[Message]:
    parts = [{"type": "text", "text": "Look."}, {"type": "text", "text": f"{fact}!"}]
    return [{"role": "user", "content": parts}]


def _in_a_call(rng: Random, fact: str) -> list[Message]:
    call = h.calls(rng, "c1")
    call["tool_calls"][0]["function"]["arguments"] = f'{{"note": "{fact}"}}'
    return [call]


_PLACES: dict[str, Callable[[Random, str], list[Message]]] = {
    "system": _said("system"),
    "user": _said("user"),
    "assistant": _said("assistant"),
    "tool": lambda rng, fact: [{"role": "tool", "tool_call_id": "t", "content": fact}],
    "wrapped": _wrapped,
    "parts": _in_parts,
    "call": _in_a_call,
}

# What is not the fact, though it is close; where a way changes nothing, it gives the fact itself.
_OTHER: tuple[Callable[[str], list[str]], ...] = (
    lambda fact: [fact.swapcase()],
    lambda fact: [fact.replace(" ", "")],
    lambda fact: [fact.replace(".", "x").replace("+", "x").replace("(", "x")],
    lambda fact: [fact.replace("-", " ").replace(":", "").replace("/", " ")],
    lambda fact: [fact[:-1]],
)

# --- probe-control ----------------------------------------------------------------------


def _reading(facts: dict[str, str]) -> Ask:
    """Return a model that answers what it finds in the messages that it is sent."""

    def ask(question: str, messages: Sequence[Message]) -> str:
        fact = facts.get(question, "?")
        return fact if verify([Probe(fact)], messages).kept else "I do not know."

    return ask


@check(
    "probe-control",
    day=6,
    of=verify,
    returns=ProbeReport,
    known=[*_ANSWERS, *_PRESENCE],
    evidence=[*_SEEN, *_HEARD],
    view=_facts,
    say=_say,
    tell=_tell,
)
def probe_control(trial: Trial, rng: Random) -> str:
    """Truncation loses the fact, even when a model guesses it right."""
    session = load("long")
    left = truncate(session.messages, keep_recent=3)
    right_guess = _guessing({p.question: p.fact for p in session.probes}, session.probes[0].fact)
    where = Named(left, 'truncate(load("long").messages)')
    ask = Named(right_guess, "ask")
    report = trial(_probes(session.probes), where, ask)
    trial(_probes(session.probes), [], ask)
    trial(_probes([]), h.talk(rng, 2), ask)
    _try_answers(trial)
    for wrap in (" ", "\n", "\n  "):
        _try_all_four(trial, rng, wrap)
    _try_reader(trial, rng)
    return (
        '✓ switching to "keep only the last three groups": the estimate drops to '
        f'{h.tokens_of(left)} tokens, but the fact "{report.lost[0].fact}" is gone'
    )


def _try_answers(trial: Trial) -> None:
    """Try answers that hold the fact among other words, or nearly; the later half is kept."""
    probes = [Probe(fact, asked or f"What about {n}?") for n, (fact, _, asked) in enumerate(_SAID)]
    answers = {p.question: answer for p, (_, answer, _) in zip(probes, _SAID, strict=True)}
    kept = [{"role": "user", "content": fact} for fact, _, _ in _SAID[len(_SAID) // 2 :]]
    trial(_probes(probes), kept, Named(_guessing(answers, "?"), "ask"))


def _try_all_four(trial: Trial, rng: Random, wrap: str) -> None:
    """Try facts that are present or not, answered or not: all four pairs, in any order."""
    kinds = [(present, answered) for present in (True, False) for answered in (True, False)]
    rng.shuffle(kinds)
    facts = rng.sample([fact for fact in _FACTS if " " in fact], 4)
    probes = [Probe(fact, f"What about {n}?") for n, fact in enumerate(facts)]
    answers, messages = {}, h.talk(rng, 2)
    for probe, (present, answered) in zip(probes, kinds, strict=True):
        if present:
            messages += rng.choice([*_PLACES.values()])(rng, probe.fact)
        if answered:
            answers[probe.question] = probe.fact.replace(" ", wrap)
    ask = Named(_guessing(answers, "something else"), "ask")
    trial(_probes(probes), Named(messages, outline(messages, 6)), ask)


def _try_reader(trial: Trial, rng: Random) -> None:
    """Try a model that can read: it is to be sent the question and the messages as they are."""
    facts = rng.sample(_FACTS, 3)
    probes = [Probe(fact, f"Which {n}?") for n, fact in enumerate(facts)]
    messages = _PLACES["user"](rng, facts[0]) + _PLACES["call"](rng, facts[1]) + h.talk(rng, 4)
    ask = Named(_reading({p.question: p.fact for p in probes}), "ask <reads the messages>")
    trial(_probes(probes), Named(messages, outline(messages, 6)), ask)
