"""Day 1: the estimate before a request.

What the statement promises, and which cases look at it (every one under every seed):

| property | fixed | drawn |
|---|---|---|
| the sum is rounded up, once, to an int | LATIN, MIXED, PRICED | every remainder of four |
| a whole sum stays as it is; nothing costs nothing | WHOLE | a text of 4 n characters |
| every character counts, at the ends too | SPACES | white space around each text |
| characters are code points, not bytes or letters | WIDE | from all scripts |
| CJK is what ``count_chars`` says, to the edges | EDGES | a character of each range |
| both terms add | MIXED | mixed texts |
| the prices are those that are handed in | PRICED | three pairs |
"""

from __future__ import annotations

import math
import unicodedata
from random import Random

from compaction.tokens import CJK_RANGES, DEFAULT, Coefficients, about, count_chars, estimate
from grader.checks.check import check
from grader.checks.show import quote
from grader.checks.trial import Function, Known, Trial, given
from grader.starters import day1 as starter

# 341 characters are 85 tokens and a quarter: rounding down or to the nearest shows.
LATIN = (
    "A context window is a desk with finite room. When it is full, you can pull out the lowest "
    "sheet, which may be the very sentence that the user said this morning; or you can write down "
    "on a card what a whole stack of paper has told you and put the stack away. The first is "
    "called truncation. The second is compaction, and it is what you build."
)
# Han and Latin; Han alone; kana and Han; Hangul; width forms and CJK punctuation.
MIXED = (
    "你好 world",
    "请先读日志",
    "ファイルを読む: calc.py",
    "로그를 읽어 줘",
    "（ＯＫ）「好」 yes",
)
WHOLE = ("", "read", "read the log")
# Of 4 n + 1 characters, so that one that is left out shows.
SPACES = (
    "  indent\n",
    "ends here\n\n\n\n",
    "two\r\nline",
    "a\t\tbc",
    " ",
    "\n\n\n\n\n",
    "\ufeffread",
    "read\0",
)
WIDE = ("naïve café ←", "αβγδε", "cafe\u0301", "🙂🙂🙂 o", "жизнь", "a\u200bbcd", "—c…!!")
# And of 4 n, so that one too many shows: in other letters these have more characters.
LETTERS = ("İSTA", "groß", "İSTANBUL", "straße 7")
EDGES = tuple(
    "".join(chr(c) for c in (low - 1, low, high, high + 1) if not 0xD800 <= c <= 0xDFFF)
    for low, high in CJK_RANGES
)
# A part of a token on either term, and a hair above a whole sum. The prices are fractions of
# two, so that every order of adding gives the same sum.
PRICED = (
    ("你好 world", 1.25, 0.375),
    ("好a", 0.75, 0.5),
    ("好a", 0.25, 0.5),
    ("好ab", 0.5, 0.25),
    ("你好a", 0.5, 2**-9),
)

_WORDS = """
the a of to in is on it read file test error line naïve café window token summary agent log fix
call result keep old new under straße because compaction
""".split()
_NOT_CJK = "abcdefgh XYZ 0189 .,;:-_(){}/ éüßñ αβγ жшю ←✓"


def _by(rule: Function) -> Function:
    """Return a way to estimate: a rule for the two counts and the two prices."""

    def wrong(text: str, coefficients: Coefficients = DEFAULT) -> int:
        chars = count_chars(text)
        return int(rule(chars.cjk, chars.other, coefficients.cjk, coefficients.other))

    return wrong


def _of(change: Function) -> Function:
    """Return a way to estimate: the right one, of another text."""

    def wrong(text: str, coefficients: Coefficients = DEFAULT) -> int:
        return estimate(change(text), coefficients)

    return wrong


def _seen_as(is_cjk: Function) -> Function:
    """Return a way to estimate: another rule for what a CJK character is."""

    def wrong(text: str, coefficients: Coefficients = DEFAULT) -> int:
        cjk = sum(map(is_cjk, text))
        return math.ceil(coefficients.cjk * cjk + coefficients.other * (len(text) - cjk))

    return wrong


def _bytes(text: str, coefficients: Coefficients = DEFAULT) -> int:
    cjk = count_chars(text).cjk
    return math.ceil(coefficients.cjk * cjk + coefficients.other * (len(text.encode()) - 3 * cjk))


_NOT_UP = "not rounded up: an estimate errs high, so a part of a token counts as a whole one"
_RANGES = "only CJK characters cost a token each, and count_chars knows which those are: "
_KNOWN = [
    Known(_by(lambda x, y, a, b: math.floor(a * x + b * y)), _NOT_UP),
    Known(_by(lambda x, y, a, b: round(a * x + b * y)), _NOT_UP),
    Known(_by(lambda x, y, a, b: int(a * x + b * y + 0.5)), _NOT_UP),
    Known(
        _by(lambda x, y, a, b: math.floor(a * x + b * y) + 1),
        "one more, always: a sum that is whole stays as it is",
    ),
    Known(
        _by(lambda x, y, a, b: max(1, math.ceil(a * x + b * y))),
        "at least one, always: a text of no characters costs nothing",
    ),
    Known(
        _of(str.strip), "white space at the ends was left out: it is sent and paid like the rest"
    ),
    Known(_of(lambda text: text.replace(" ", "")), "spaces were left out: they are characters too"),
    Known(
        _of(lambda text: "".join(text.split())),
        "white space was left out: its characters are characters too",
    ),
    Known(
        _of(lambda text: " ".join(text.split())),
        "white space was folded: each of its characters is sent and paid",
    ),
    Known(_bytes, "bytes were counted: characters are code points, as len counts them"),
    Known(_seen_as(lambda c: ord(c) > 127), _RANGES + "an accent or an arrow is none of them"),
    Known(_seen_as(lambda c: ord(c) > 255), _RANGES + "a Greek letter or an arrow is none"),
    Known(
        _seen_as(lambda c: "\u4e00" <= c <= "\u9fff"),
        _RANGES + "kana, Hangul, CJK punctuation and wide forms are among them",
    ),
    Known(
        _seen_as(lambda c: unicodedata.east_asian_width(c) in "WF"),
        _RANGES + "a wide character need not be one, and one need not be wide",
    ),
]
_KNOWN_CJK = [
    Known(
        starter.estimate,
        "one rule for all text: a CJK character costs about a whole token, not a quarter",
    ),
    *_KNOWN,
    Known(
        _by(lambda x, y, a, b: math.ceil(a * x) + math.ceil(b * y)),
        "each term was rounded up by itself: add the two first, then round once",
    ),
    Known(
        _by(lambda x, y, a, b: math.ceil(max(a * x, b * y))),
        "the larger term was taken: the two add",
    ),
    Known(
        _by(lambda x, y, a, b: math.ceil(b * x + a * y)),
        "the two prices were swapped: coefficients.cjk is that of a CJK character",
    ),
    Known(
        lambda text, coefficients=DEFAULT: estimate(text),
        "the default prices were used, not the coefficients that are handed in",
    ),
]


@check(
    "estimate-latin",
    day=1,
    of=estimate,
    returns=int,
    known=_KNOWN,
    evidence=[given("hello"), given("naïve " * 41), given("read calc.py"), given("  a ")],
)
def estimate_latin(trial: Trial, rng: Random) -> str:
    """Latin text costs about one token per four characters, rounded up."""
    tokens = trial(LATIN)
    for text in (*WHOLE, *SPACES, *WIDE, *LETTERS):
        trial(text)
    for remainder in range(4):
        trial(_latin(rng, 4 * rng.randint(1, 15) + remainder))
    trial(_latin(rng, rng.randint(500, 4000)))
    for space in (" ", "\n", "\t", "  \n"):
        trial(rng.choice(("", space)) + _latin(rng, 4 * rng.randint(2, 9) - len(space) + 1) + space)
    return f"✓ Latin text of {len(LATIN)} characters: {about(tokens)}"


def _latin(rng: Random, length: int) -> str:
    """Return words of so many characters in all, none of them CJK."""
    return " ".join(rng.choice(_WORDS) for _ in range(length))[:length]


@check(
    "estimate-cjk",
    day=1,
    of=estimate,
    returns=int,
    known=_KNOWN_CJK,
    evidence=[given("请先读日志"), given("hello"), given("read 日志 now, please"), given("naïf")],
)
def estimate_cjk(trial: Trial, rng: Random) -> str:
    """CJK and mixed text: the two terms add, a token for each CJK character."""
    shown = [f"{quote(text)} is {about(trial(text))}" for text in MIXED]
    for text, cjk, other in PRICED:
        trial(text, Coefficients(cjk, other))
    for text in ("naïve 你好 ←", "αβγ 好", "字　\n"):
        trial(text)
    for edge in EDGES:
        trial(edge)
    for _ in range(10):
        trial(_mixed(rng))
    for low, high in CJK_RANGES:
        trial(chr(rng.randint(low, high)) * 3 + rng.choice(_NOT_CJK))
    for cjk, other in ((0.5, 0.75), (0.75, 0.125), (1.5, rng.choice((0.375, 0.5)))):
        for _ in range(3):
            trial(_mixed(rng), Coefficients(cjk, other))
    return f"✓ CJK and mixed text, the two terms add: {', '.join(shown[:3])}"


def _mixed(rng: Random) -> str:
    """Return a short text of characters from all CJK ranges, their edges included, and others."""
    characters = []
    for _ in range(rng.randint(2, 24)):
        low, high = rng.choice(CJK_RANGES)
        inside = rng.choice((low, high, rng.randint(low, high)))
        characters.append(rng.choice((chr(inside), rng.choice(_NOT_CJK))))
    return "".join(characters)
