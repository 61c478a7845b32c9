"""Sentences: what user and assistant said, as lines with the heading and rank they belong to.

From a message to its lines. The user's own words stand bare; a line of the assistant or of a
tool says whose it is, so that nobody else speaks with the user's authority.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from compaction.messages import Message, content_of
from compaction.probes import PIN, fold
from compaction.summary.format import CHANGES, FACTS, FENCE_LINE, UNFINISHED, can_be_copied

PINNED, TASK, CHANGED, OPENING, SAID, CONCLUDED, REPORTED = range(7)
"""Ranks of lines, what matters most first: pinned facts, the request and its explicit rules,
changes, the rest of the request's opening and open items, other words of the user, the
assistant's conclusions, errors that tools reported."""

LONGEST_LINE = 240
_OPENING_SENTENCES = 3

_SENTENCES = re.compile(r"(?:[.!?](?!\s|$)|[^.!?。！？])+[.!?。！？]*")
_LIST_MARK = re.compile(r"^\s*(?:[-*+•>#]+|\d+[.)])\s+")
_OPEN_ITEM = re.compile(
    r"\[ \]|\b(?:todo|next|remaining|remains|still|not yet|left to)\b|待办|接下来|下一步|还需|尚未",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"^(?:i\s+(?:have\s+)?|i've\s+)?(?:now\s+)?(?:changed|edited|added|fixed|removed|wrote|updated|"
    r"created|renamed|replaced|installed|moved|deleted|booked|cancelled)\b|^(?:已|我)?(?:修改|添加|删除|修复)",
    re.IGNORECASE,
)
# What a user says is short and meant: the broad net errs on the side of keeping a sentence.
RULE = re.compile(
    r"\bmust\b|\bnever\b|\balways\b"
    r"|(?:^|[.!?;:,]\s+|\bplease\s+|\band\s+|\bbut\s+)(?:do not|don't)\b"
    r"|\bonly use\b|\buse only\b|\brequirements?\b|\bconstraints?\b|\bforbidden\b|\bnot allowed\b"
    r"|\bno (?:more|less|fewer|later|earlier) than\b|\bat (?:most|least) \d"
    r"|\bwithout (?:changing|touching|breaking)\b"
    r"|必须|不要|不得|不许|禁止|务必|只能|至少|至多|最多",
    re.IGNORECASE | re.MULTILINE,
)
_SOFT_RULE = re.compile(
    r"^(?:keep|only|avoid|make sure|ensure|use|leave|no)\b|\bonly\b|\bshould not\b|\bshouldn't\b"
    r"|\binstead of\b|\bexcept\b|请勿|不能|只许|仅|一律|不可",
    re.IGNORECASE,
)
_PLEASANTRY = re.compile(
    r"(?:hi|hello|hey|yes|yeah|yep|no|sure|ok|okay|thanks?|thank you|great|perfect|good|alright"
    r"|fine|right|correct|got it|please|go ahead|sorry)\b|你好|您好|谢谢|可以|[好是行嗯]",
    re.IGNORECASE,
)
_LONGEST_PLEASANTRY = 30
_ERROR = re.compile(r"\berror\b|\bfail(?:ed|ure|s)?\b|exception|错误|失败", re.IGNORECASE)

ASSISTANT = {"en": "(assistant) ", "zh": "（助手）"}
_ASSISTANT_LINE = re.compile(r"^[(（](?:assistant|助手)[)）] ?")


@dataclass(frozen=True)
class Line:
    """A candidate line: its heading, how much it matters (0 most), its text and its place.

    ``earlier`` says that an earlier summary held it; ``short`` is a form for little room.
    """

    key: str
    rank: int
    text: str
    stretch: int
    position: int
    earlier: bool = False
    short: str = ""


def is_rule(sentence: str) -> bool:
    """Say whether a sentence of the user rules something: must, never, only.

    >>> is_rule("Do not touch vendor/legacy."), is_rule("The shop closes at six.")
    (True, False)
    """
    return bool(RULE.search(sentence) or _SOFT_RULE.search(sentence))


def is_pleasantry(sentence: str) -> bool:
    """Say whether a sentence only greets, thanks or agrees: it asks for nothing by itself.

    >>> is_pleasantry("Hi there!"), is_pleasantry("Yes, please."), is_pleasantry("Fix calc.py.")
    (True, True, False)
    """
    return bool(_PLEASANTRY.match(sentence)) and len(sentence) <= _LONGEST_PLEASANTRY


def is_done(sentence: str) -> bool:
    """Say whether the assistant says that something was changed."""
    return bool(_DONE.match(sentence))


def user_lines(message: Message, stretch: int, position: int) -> Iterator[Line]:
    """Yield the user's sentences: the request first, explicit rules, pins, then the rest."""
    number = -1  # of the sentence, not counting greetings
    for sentence in sentences(content_of(message)):
        number += number >= 0 or not is_pleasantry(sentence)
        if PIN.search(sentence):
            rank = PINNED
        elif number == 0 or is_rule(sentence):
            rank = TASK
        else:
            rank = OPENING if 0 < number < _OPENING_SENTENCES else SAID
        yield Line(FACTS, rank, sentence[:LONGEST_LINE], stretch, position)


def assistant_lines(message: Message, stretch: int, position: int, mark: str) -> Iterator[Line]:
    """Yield the assistant's sentences: open items, changes that it claims, conclusions."""
    for sentence in sentences(content_of(message)):
        if sentence.endswith(("?", "？")):
            continue  # a question to the user settles nothing
        text = f"{mark}{sentence}"[:LONGEST_LINE]
        if _OPEN_ITEM.search(sentence):
            yield Line(UNFINISHED, OPENING, text, stretch, position)
        elif is_done(sentence):
            yield Line(CHANGES, CONCLUDED, text, stretch, position)
        else:
            yield Line(FACTS, CONCLUDED, text, stretch, position)


def error_lines(text: str, origin: str, stretch: int, position: int) -> Iterator[Line]:
    """Yield the last line of a result that reports an error, with its origin."""
    ends = [match.start() for match in _ERROR.finditer(text)]
    if ends:
        start = text.rfind("\n", 0, ends[-1]) + 1
        error = text[start:].partition("\n")[0]
        yield Line(FACTS, REPORTED, f"{origin} {fold(error)}"[:LONGEST_LINE], stretch, position)


def is_assistants(line: str) -> bool:
    """Say whether a line of a summary says that it is the assistant's."""
    return bool(_ASSISTANT_LINE.match(line))


def without_mark(line: str) -> str:
    return _ASSISTANT_LINE.sub("", line)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of the text outside code fences, without list or number marks.

    >>> list(sentences("1. Fix calc.py. Then test!"))
    ['Fix calc.py.', 'Then test!']
    """
    fenced = False
    for line in text.splitlines():
        if FENCE_LINE.match(line):
            fenced = not fenced
        elif not fenced:
            for sentence in _SENTENCES.findall(_LIST_MARK.sub("", line)):
                folded = fold(sentence)
                if re.search(r"\w", folded) and can_be_copied(folded):
                    yield folded
