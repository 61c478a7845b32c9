"""A summariser without a model: sentences and calls copied from the history, never invented."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from compaction.grouping import pair_results
from compaction.messages import (
    SUMMARY_PREFIX,
    Call,
    Message,
    calls_of,
    content_of,
    is_summary,
    text_of,
    transcript,
)
from compaction.probes import PIN, fold
from compaction.summary.format import (
    CHANGES,
    FACTS,
    FENCE_LINE,
    KEYS,
    PATHS,
    UNFINISHED,
    SummaryError,
    can_be_copied,
    language_of,
    parse_summary,
    render_summary,
)

MAX_EXTRACT_CHARACTERS = 1600
"""Upper bound of an extract's bodies; a short stretch gets a third of its own length."""

_SHARES = dict(zip(KEYS, (0.45, 0.2, 0.15, 0.2), strict=True))
_MAX_LINE = 240
_MAX_CALL = 120  # the beginning of an edit says what and where
_MIN_LINE = 40  # a line cut shorter than this says nothing
_NOTHING = {"en": "none", "zh": "无"}

_SENTENCES = re.compile(r"(?:[.!?](?!\s|$)|[^.!?。！？])+[.!?。！？]*")
_OPEN_ITEM = re.compile(
    r"\[ \]|\b(?:todo|next|remaining|remains|still|not yet|left to)\b|待办|接下来|下一步|还需|尚未",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"^(?:i\s+(?:have\s+)?|i've\s+)?(?:now\s+)?(?:changed|edited|added|fixed|removed|wrote|updated|"
    r"created|renamed|replaced|installed|moved|deleted|booked|cancelled)\b|^(?:已|我)?(?:修改|添加|删除|修复)",
    re.IGNORECASE,
)
_CHANGING_TOOL = re.compile(
    r"edit|write|create|patch|apply|replace|delete|remove|rename|move|update|insert|add_|save|"
    r"book_|cancel|modify|send|transfer|commit|install",
    re.IGNORECASE,
)
_ERROR = re.compile(r"\berror\b|\bfail(?:ed|ure|s)?\b|exception|错误|失败", re.IGNORECASE)
_REFUSED = re.compile(r"\s*(?:error|failed|refused|traceback|exception|错误|失败)", re.IGNORECASE)
_BACKTICKED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?<![\w/.-])(?:[\w.-]+/)*[\w-]+\.[A-Za-z][A-Za-z0-9]{0,4}(?![\w/])")


class _Line(NamedTuple):
    """A candidate line: where it belongs, how much it matters (0 most), and its text."""

    key: str
    rank: int
    text: str


def extract(messages: Sequence[Message]) -> str:
    """Summarise a stretch without a model: lines copied from it, under the four headings.

    Facts are what the user pinned and asked, in the user's words, what the assistant concluded
    and the errors that tools reported; changes are the tool calls that write and were not
    refused; unfinished items are open checklist entries and announced next steps; paths and
    commands are the keys for fetching originals again. Earlier summaries are merged in, flat.
    Bounded in size, deterministic, with Chinese headings for a Chinese history.

    >>> history = [{"role": "user", "content": "Fix divide in calc.py."}]
    >>> print(extract(history))
    Confirmed facts:
    - Fix divide in calc.py.
    Changes already made:
    none
    Unfinished items:
    none
    Key paths and commands:
    - calc.py
    """
    language = language_of(messages)
    bound = min(MAX_EXTRACT_CHARACTERS, max(240, len(transcript(messages)) // 3))
    lines = [
        _Line(line.key, line.rank, text)
        for line in _candidates(messages)
        if (text := fold(line.text)[:_MAX_LINE]) and can_be_copied(text)
    ]
    of_key = {key: [line for line in lines if line.key == key] for key in KEYS}
    chosen = {key: _choose(of_key[key], bound * _SHARES[key]) for key in KEYS}
    # What other headings left over goes to the changes: one that is not named is made again.
    others = sum(len(text) for key in KEYS if key != CHANGES for text in chosen[key])
    chosen[CHANGES] = _choose(of_key[CHANGES], max(bound - others, bound * _SHARES[CHANGES]))
    # And a long line must not read as "none": it is cut to the room that there is.
    for key in (CHANGES, UNFINISHED, FACTS, PATHS):
        spare = int(bound) - sum(len(text) for texts in chosen.values() for text in texts)
        if of_key[key] and not chosen[key] and spare >= _MIN_LINE:
            chosen[key] = [_most_important(of_key[key], spare)]
    sections = {
        key: "\n".join(f"- {text}" for text in chosen[key]) or _NOTHING[language] for key in KEYS
    }
    return render_summary(sections, language)


def _choose(lines: Sequence[_Line], bound: float) -> list[str]:
    """Choose within the bound, what matters most and is newest first; keep their order."""
    chosen: dict[str, int] = {}
    used = 0
    for position, line in _by_importance(lines):
        # Pinned facts go in whatever the bound says: losing one abandons the compaction.
        if line.text not in chosen and (line.rank == 0 or used + len(line.text) <= bound):
            chosen[line.text] = position
            used += len(line.text)
    return sorted(chosen, key=chosen.__getitem__)


def _by_importance(lines: Sequence[_Line]) -> list[tuple[int, _Line]]:
    return sorted(enumerate(lines), key=lambda pair: (pair[1].rank, -pair[0]))


def _most_important(lines: Sequence[_Line], room: int) -> str:
    """Return the line that matters most, cut to the room (characters) that there is."""
    return _by_importance(lines)[0][1].text[:room]


def _candidates(messages: Sequence[Message]) -> Iterator[_Line]:
    owner, _ = pair_results(messages)
    refused = {
        (assistant, messages[result].get("tool_call_id"))
        for result, assistant in owner.items()
        if _REFUSED.match(text_of(messages[result]))
    }
    for position, message in enumerate(messages):
        role, text = message.get("role"), content_of(message)
        if is_summary(message):
            yield from _from_summary(text.removeprefix(SUMMARY_PREFIX))
        elif role == "user":
            yield from _from_user(text)
        elif role == "assistant":
            yield from _from_assistant(text)
        elif role == "tool":
            errors = [line for line in text.splitlines() if _ERROR.search(line)]
            yield from (_Line(FACTS, 4, error) for error in errors[-1:])
        for call in calls_of(message):
            yield from _from_call(call, done=(position, call.id) not in refused)


def _from_summary(text: str) -> Iterator[_Line]:
    try:
        sections = parse_summary(text)
    except SummaryError:  # somebody else's summary: its sentences are facts
        sections = {FACTS: text}
    for key, body in sections.items():
        for line in body.splitlines():
            copied = line.strip().removeprefix("- ")
            if copied.rstrip(".。").lower() not in _NOTHING.values():
                yield _Line(key, 0 if PIN.search(copied) else 1, copied)


def _from_user(text: str) -> Iterator[_Line]:
    for sentence in _sentences(text):
        yield _Line(FACTS, 0 if PIN.search(sentence) else 2, sentence)
    yield from _names_in(text)


def _from_assistant(text: str) -> Iterator[_Line]:
    for sentence in _sentences(text):
        if sentence.endswith(("?", "？")):
            continue  # a question to the user settles nothing
        if _OPEN_ITEM.search(sentence):
            yield _Line(UNFINISHED, 2, sentence)
        elif _DONE.match(sentence):
            yield _Line(CHANGES, 2, sentence)
        else:
            yield _Line(FACTS, 3, sentence)
    yield from _names_in(text)


def _from_call(call: Call, done: bool) -> Iterator[_Line]:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = None
    values = arguments if isinstance(arguments, dict) else {}
    if _CHANGING_TOOL.search(call.name):
        if done:
            yield _Line(CHANGES, 1, f"{call.name} {fold(call.arguments)}"[:_MAX_CALL])
        return
    named = [values[name] for name in ("command", "cmd", "path", "file_path") if name in values]
    named = [value for value in named if isinstance(value, str)]
    yield from (_Line(PATHS, 1, name) for name in named or [f"{call.name} {call.arguments}"])


def _names_in(text: str) -> Iterator[_Line]:
    for name in _BACKTICKED.findall(text) + _PATH.findall(text):
        yield _Line(PATHS, 2, name)


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of the text outside code fences, without list or number marks."""
    fenced = False
    for line in text.splitlines():
        if FENCE_LINE.match(line):
            fenced = not fenced
        elif not fenced:
            for sentence in _SENTENCES.findall(re.sub(r"^\s*(?:[-*+•]|\d+[.)])\s+", "", line)):
                if re.search(r"\w", sentence):
                    yield sentence.strip()
