"""Compress units to an exact budget: reassemble, verify, and name what does not fit.

Units are whole or absent; nothing leaves the text without a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compaction.documents.packing import pack
from compaction.documents.template import Summarize, digest, fill_template
from compaction.documents.units import BINDING_KINDS, TURN_KINDS, Unit, first_words
from compaction.probes import Probe, ProbeReport, verify
from compaction.summary.format import takes_max_tokens
from compaction.tokens import estimate


@dataclass(frozen=True)
class Compressed:
    """What :func:`compress` made of its units.

    ``text`` has ``tokens`` tokens by the caller's count. ``units`` are the units in it, in its
    order, summaries among them. Every unit that came in is in ``units`` word for word, in
    ``summarized`` (only its summary is in the text) or in ``dropped`` (nothing of it is).
    ``notes`` says of which unit there is no summary, and why.
    """

    text: str
    units: list[Unit]
    dropped: list[Unit]
    summarized: list[Unit]
    tokens: int
    notes: list[str]


_BETWEEN = "\n\n"
_FEWEST_WORDS = 4  # a unit cut shorter than this says nothing
_WORTH_ASKING = 20  # tokens of room for which a longer summary is asked


def assemble(units: Iterable[Unit]) -> str:
    """Return the units' texts one after the other, a blank line between them.

    >>> assemble([Unit("one\\n", "text"), Unit("\\ntwo", "text")])
    'one\\n\\ntwo'
    """
    texts = (unit.text.strip("\r\n") for unit in units)
    return _BETWEEN.join(text for text in texts if text.strip())


def compress(
    units: Iterable[Unit],
    budget: int,
    count: Callable[[str], int] = estimate,
    summarize: Summarize = digest,
) -> Compressed:
    """Bring units into a budget of tokens by ``count``, and name what does not fit.

    When all fit, nothing changes. Else room goes to rules, decisions and the like first, then
    to the other verbatim units, then to the summaries of the rest, each time the newest first;
    a verbatim unit that does not fit is compressed further, to its summary, unless it is of a
    binding kind. The text has the pinned units first, then the summaries, then the recent
    turns, each oldest to newest, and its total is counted as a whole before it is returned.
    Room that is left goes to what was dropped, shortened if need be, then to whole units in the
    place of their summaries and to longer summaries.

    ``count`` may be an estimate or an exact tokenizer. ``summarize`` gets a unit's text; a
    summary that is empty, raises or is not smaller leaves the unit whole.

    Raises ValueError for a budget below what an empty text costs.

    >>> words = lambda text: len(text.split())
    >>> units = [Unit("old talk " * 30, "turn"), Unit("Never push.", "constraint", True)]
    >>> done = compress(units, 30, words, summarize=lambda text: "Talk about the weather.")
    >>> print(done.text)
    Never push.
    <BLANKLINE>
    [summary]
    Topic: old talk old talk old talk old talk old talk old talk old...
    Outcome: Talk about the weather.
    Constraints: not stated
    Open questions: not stated
    >>> [unit.label for unit in compress(units, 3, words).dropped]
    ['turn: old talk old talk old talk old talk old talk old talk old...']
    """
    listed = list(units)
    if count("") > budget:
        raise ValueError(f"the budget of {budget} tokens is below what an empty text costs")
    whole = assemble(listed)
    tokens = count(whole)
    if tokens <= budget:
        return Compressed(whole, listed, [], [], tokens, [])
    plan = _Plan(listed, budget, count)
    binding = [n for n, unit in enumerate(listed) if unit.verbatim and unit.kind in BINDING_KINDS]
    plain = [n for n, unit in enumerate(listed) if unit.verbatim and unit.kind not in BINDING_KINDS]
    plan.take(binding, listed)
    plan.take(plain, listed)
    rest = [n for n in range(len(listed)) if n not in plan.chosen and n not in binding]
    shorter, notes = _summaries(listed, rest, count, summarize)
    plan.take(rest, shorter)
    plan.fit()
    plan.fill(shorter, summarize)
    return plan.result(notes)


def _summaries(
    units: Sequence[Unit],
    positions: Sequence[int],
    count: Callable[[str], int],
    summarize: Summarize,
) -> tuple[dict[int, Unit], list[str]]:
    """Return what stands for each unit: its summary, or itself where there is no shorter one."""
    shorter: dict[int, Unit] = {}
    notes = []
    for position in positions:
        unit = units[position]
        shorter[position] = unit
        try:
            reply = summarize(unit.text)
        except Exception as error:
            notes.append(f"no summary of {unit.label}: {type(error).__name__}: {error}")
            continue
        if not isinstance(reply, str) or not reply.strip():
            notes.append(f"no summary of {unit.label}: the summariser answered without text")
            continue
        text = f"{summary_mark(unit)}\n{fill_template(reply, first_words(unit.text))}"
        if count(text) < count(unit.text):
            shorter[position] = Unit(text, "summary", False, unit.label)
    return shorter, notes


def summary_mark(unit: Unit) -> str:
    """Return the line that a unit's summary begins with."""
    return f"[summary of {unit.name}]" if unit.name else "[summary]"


class _Plan:
    """What of each unit goes into the text, kept within the budget.

    ``chosen`` maps a unit's position to what stands for it: the unit itself or its summary.
    """

    def __init__(self, units: Sequence[Unit], budget: int, count: Callable[[str], int]) -> None:
        self.units = units
        self.budget = budget
        self.count = count
        self.left = budget  # by the units' own costs; the whole text is counted in the end
        self.chosen: dict[int, Unit] = {}
        self.offers: list[tuple[int, Unit, int]] = []  # position, form, cost; first is foremost
        turns = [n for n, unit in enumerate(units) if unit.verbatim and unit.kind in TURN_KINDS]
        self.first_recent = min(turns, default=len(units))

    def take(self, positions: Sequence[int], forms: Sequence[Unit] | Mapping[int, Unit]) -> None:
        """Choose among units of one rank, the newest first."""
        costs = [self.count(forms[n].text.strip("\r\n") + _BETWEEN) for n in positions]
        for index in pack(costs, self.left).kept:
            self.chosen[positions[index]] = forms[positions[index]]
            self.left -= costs[index]
        offers = [(n, forms[n], cost) for n, cost in zip(positions, costs, strict=True)]
        self.offers += reversed(offers)

    def fit(self) -> None:
        """Count the text as a whole; drop from the hind end, or use room that rounding left."""
        tokens = self.count(self.text())
        for position, form, _ in reversed(self.offers):
            if tokens <= self.budget:
                break
            if self.chosen.get(position) == form:
                del self.chosen[position]
                tokens = self.count(self.text())
        for position, form, cost in self.offers:
            # A unit alone costs a little more than in the text: rounding, and what follows it.
            if position in self.chosen or cost > self.budget - tokens + 2:
                continue
            self.chosen[position] = form
            with_it = self.count(self.text())
            if with_it <= self.budget:
                tokens = with_it
            else:
                del self.chosen[position]

    def fill(self, shorter: Mapping[int, Unit], summarize: Summarize) -> None:
        """Use the room that is left: no unit is dropped while it could stand shortened.

        Units are weighed one by one, so that the work stays linear, and the whole is counted
        once: where it came out too large after all, the plan stays as it was.
        """
        before = dict(self.chosen)
        spare = self.budget - self.count(self.text())
        order = list(dict.fromkeys(position for position, _, _ in self.offers))
        for position in order:
            unit = self.units[position]
            # A binding unit stands word for word, or is named as dropped.
            if position not in self.chosen and unit.kind not in BINDING_KINDS:
                form = shorter.get(position, unit)
                spare -= self.put(position, unit, spare) or self.put(position, form, spare)
                if position not in self.chosen:
                    spare -= self.put(position, self.beginning(unit, spare), spare)
        for position in order:
            if position in self.chosen and not self.is_whole(position):
                spare -= self.put(position, self.units[position], spare)
                if not self.is_whole(position) and spare >= _WORTH_ASKING:
                    spare -= self.put(position, self.longer(position, spare, summarize), spare)
        if self.count(self.text()) > self.budget:
            self.chosen = before

    def put(self, position: int, form: Unit | None, spare: int) -> int:
        """Take a form of a unit if it fits into the spare tokens, and return what it takes."""
        if form is None or spare <= 0:
            return 0
        old = self.chosen.get(position)
        cost = self.cost(form) - (self.cost(old) if old is not None else 0)
        if cost > spare:
            return 0
        self.chosen[position] = form
        return cost

    def cost(self, form: Unit) -> int:
        return self.count(form.text.strip("\r\n") + _BETWEEN)

    def beginning(self, unit: Unit, spare: int) -> Unit | None:
        """Return a summary that names the topic alone, in as many words as fit."""
        words = first_words(unit.text, 8 * spare).split(" ")
        best: Unit | None = None
        low, high = min(_FEWEST_WORDS, len(words)), len(words)
        while low <= high:
            middle = (low + high) // 2
            topic = " ".join(words[:middle]) + " ..." * (middle < len(words))
            text = f"{summary_mark(unit)}\n{fill_template('', topic)}"
            candidate = Unit(text, "summary", False, unit.label)
            if self.cost(candidate) <= spare and self.count(text) < self.count(unit.text):
                best, low = candidate, middle + 1
            else:
                high = middle - 1
        return best

    def longer(self, position: int, spare: int, summarize: Summarize) -> Unit | None:
        """Return a longer summary where the summariser can be told its room."""
        unit, old = self.units[position], self.chosen[position]
        if not takes_max_tokens(summarize):
            return None
        head = old.text.partition("\n")[0] + "\n"
        room = self.count(old.text) + spare - self.count(head)
        try:
            reply = summarize(unit.text, max_tokens=room)  # type: ignore[call-arg]
        except Exception:  # the shorter summary stands
            return None
        if not isinstance(reply, str) or not reply.strip():
            return None
        text = head + fill_template(reply, first_words(unit.text))
        longer = Unit(text, "summary", False, unit.label)
        return longer if self.count(old.text) < self.count(text) < self.count(unit.text) else None

    def ordered(self) -> list[Unit]:
        """Return pinned units, then summaries, then recent turns, each oldest to newest."""

        def zone(position: int) -> int:
            if not (self.units[position].verbatim and self.is_whole(position)):
                return 1
            return 2 if position >= self.first_recent else 0

        order = sorted(self.chosen, key=lambda position: (zone(position), position))
        return [self.chosen[position] for position in order]

    def is_whole(self, position: int) -> bool:
        return self.chosen.get(position) is self.units[position]

    def text(self) -> str:
        return assemble(self.ordered())

    def result(self, notes: list[str]) -> Compressed:
        text = self.text()
        missing = [n for n in range(len(self.units)) if n not in self.chosen]
        shortened = [n for n in self.chosen if not self.is_whole(n)]
        return Compressed(
            text=text,
            units=self.ordered(),
            dropped=[self.units[n] for n in missing],
            summarized=[self.units[n] for n in sorted(shortened)],
            tokens=self.count(text),
            notes=notes,
        )


Question = Probe | tuple[str, str]
"""A question with the fact that its answer must hold: a Probe, or (question, fact)."""


def faithful(
    questions: Iterable[Question] | Mapping[str, str],
    text: str,
    ask: Callable[[str, str], str] | None = None,
) -> ProbeReport:
    """Check a compressed text with key questions and the facts that their answers must hold.

    Presence is looked up, word for word, and decides what is kept or lost. ``ask(question,
    text)`` puts the question to a fresh model that sees nothing but the text; which facts its
    answers hold is reported apart, because it tests the model as well.

    Raises ValueError for a question without its fact.

    >>> report = faithful([("What builds it?", "make all")], "Build with make all.")
    >>> report.kept
    [Probe(fact='make all', question='What builds it?')]
    """
    listed = questions.items() if isinstance(questions, Mapping) else questions
    return verify(
        [_probe_of(question) for question in listed],
        [{"role": "user", "content": text}],
        None if ask is None else lambda question, _: ask(question, text),
    )


def _probe_of(question: object) -> Probe:
    if isinstance(question, Probe):
        probe = question
    elif isinstance(question, Sequence) and not isinstance(question, str) and len(question) == 2:
        probe = Probe(fact=question[1], question=question[0])
    else:
        raise ValueError(
            f"a question needs its fact: a Probe or (question, fact), not {question!r}"
        )
    if not isinstance(probe.fact, str) or not probe.fact.strip():
        raise ValueError(f"the question {probe.question!r} has no fact to look for")
    return probe
