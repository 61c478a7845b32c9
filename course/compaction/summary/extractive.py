"""A summariser without a model: lines and values copied from the history, never invented.

Candidates are gathered from one stretch or from many, chosen within a room, and written under
the four headings. ``extract`` does it for one stretch; ``compact_history`` for all of a history
at once, so that no value is written twice and room goes where it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from compaction.messages import Message, content_of, is_summary, text_of, transcript
from compaction.probes import fold
from compaction.summary.changes import call_results
from compaction.summary.choice import Choice, Room, choose, weight, weight_of_tokens
from compaction.summary.format import (
    FACTS,
    KEYS,
    NOTHING,
    PATHS,
    language_of,
    render_summary,
)
from compaction.summary.gather import gather
from compaction.summary.prose import ASSISTANT, LONGEST_LINE, sentences
from compaction.summary.records import Entry, Record, line_of, origin_of, record_of

MAX_EXTRACT_CHARACTERS = 1600
"""Upper bound of an extract's bodies; a short stretch gets less, by its length."""

_SHARE = 9
_LEAST_CHARACTERS = 80

TARGET_PROSE = 0.2
"""The share of a target's room that goes to prose before the index."""

EARLIER_CHARACTERS = 4800
"""Room for what earlier summaries hold, beside the bound for new text."""


def extract(messages: Sequence[Message], *, max_tokens: int | None = None) -> str:
    """Summarise a stretch without a model: copied from it, under the four headings.

    The user's request and rules come first, in the user's words, with what was pinned. An index
    of values follows, each line with the call that it stems from; changes are the calls that
    changed something and succeeded; unfinished items are open entries and announced next steps.
    What an earlier summary holds is merged in. Bounded in size (``max_tokens``, by the two-term
    default, where it is given), deterministic, with Chinese headings for a Chinese history.

    >>> history = [{"role": "user", "content": "Fix divide in calc.py."}]
    >>> print(extract(history))
    Confirmed facts:
    - Fix divide in calc.py.
    Changes already made:
    none
    Unfinished items:
    none
    Key paths and commands:
    none
    """
    material = gather([messages])
    rooms = [own_room(messages) if max_tokens is None else room_of(max_tokens, messages)]
    return render(choose(material, rooms), 0)


def own_room(messages: Sequence[Message]) -> Room:
    """Return the room that a stretch's extract takes when nobody sets one."""
    text = transcript(messages)
    scale = weight(text) / max(1, len(text))
    bound = min(MAX_EXTRACT_CHARACTERS, _LEAST_CHARACTERS + len(text) // _SHARE)
    return Room(bound * scale, EARLIER_CHARACTERS * scale)


def room_of(tokens: int, messages: Sequence[Message]) -> Room:
    """Return the room that a summary of so many tokens has beside its headings."""
    bare = weight(bare_summary(language_of(messages))) + 1
    size = max(0.0, weight_of_tokens(tokens) - bare)
    return Room(size, size / 2, beside=False, prose=TARGET_PROSE, users=TARGET_PROSE)


def bare_summary(language: str) -> str:
    """Return a summary that says nothing: four headings, each with "none" below."""
    return render_summary(dict.fromkeys(KEYS, NOTHING[language]), language)


def render(choice: Choice, stretch: int) -> str:
    """Write what was chosen for a stretch as a summary."""
    language = choice.languages[stretch]
    bodies: dict[str, list[str]] = {key: [] for key in KEYS}
    for line in sorted(choice.lines, key=lambda line: line.position):
        if line.stretch == stretch:
            bodies[line.key].append(line.text)
    records: dict[tuple[str, str], list[Entry]] = {}
    with_values = {
        (entry.record.origin, entry.record.about)
        for entry in choice.entries
        if entry.record.stretch == stretch and not entry.is_command
    }
    for entry in choice.entries:
        if entry.record.stretch == stretch:
            place = (entry.record.origin, entry.record.about)
            if not entry.is_command:
                records.setdefault(place, []).append(entry)
            elif not entry.record.about or place not in with_values:
                bodies[PATHS].append(entry.value)
    for entries in sorted(records.values(), key=lambda entries: entries[0].record.position):
        # The heading that the record's best value belongs under holds all of it.
        key = PATHS if entries[0].is_path_or_command else FACTS
        bodies[key].append(line_of(entries[0].record, entries, language))
    sections = {
        key: "\n".join(f"- {text}" for text in dict.fromkeys(bodies[key])) or NOTHING[language]
        for key in KEYS
    }
    return render_summary(sections, language)


def sentence_with(fact: str, messages: Sequence[Message]) -> str:
    """Return the sentence in which a fact stands, with the tool that it stems from.

    >>> sentence_with("8443", [{"role": "user", "content": "Hi. Staging listens on port 8443."}])
    'Staging listens on port 8443.'
    """
    language = language_of(messages)
    pairs = {pair.result_position: pair for pair in call_results(messages)}
    for position, message in enumerate(messages):
        text = fold(text_of(message))
        if fact not in text:
            continue
        found = [s for s in sentences(content_of(message)) if fact in s]
        sentence = min(found, key=len) if found else _around(fact, text)
        if len(sentence) > LONGEST_LINE:
            sentence = _around(fact, sentence)
        if message.get("role") == "tool":
            pair = pairs.get(position)
            record = record_of(0, pair) if pair else Record(0, 0, "a tool")
            return f"{origin_of(record, language)} {sentence}"
        is_own = message.get("role") != "assistant" or is_summary(message)
        return sentence if is_own else f"{ASSISTANT[language]}{sentence}"
    return fact


def _around(fact: str, text: str) -> str:
    """Return a fact with the words around it."""
    start = text.index(fact)
    before = text[max(0, start - 80) : start].partition(" ")[2] if start > 80 else text[:start]
    after = text[start + len(fact) : start + len(fact) + 80].rpartition(" ")[0]
    return f"{before}{fact}{after}".strip()
