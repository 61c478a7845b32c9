"""Day 1: the estimate before a request."""

from __future__ import annotations

import math
from random import Random

from compaction.tokens import CJK_RANGES, DEFAULT, Coefficients, about, count_chars
from compaction.tokens import estimate as library_estimate
from grader.checks.check import Check, Function
from grader.checks.show import quote
from grader.checks.trial import Given, Known, Trial, given
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

_WORDS = """
the a of to in is on it read file test error line naïve café window token summary agent log fix
call result keep old new under straße because compaction
""".split()
_NOT_CJK = "abcdefgh XYZ 0189 .,;:-_(){}/ éüßñ αβγ жшю ←✓"


def _rounding(away: Function) -> Function:
    def rounded(text: str, coefficients: Coefficients = DEFAULT) -> int:
        chars = count_chars(text)
        return int(away(coefficients.cjk * chars.cjk + coefficients.other * chars.other))

    return rounded


def _each_term(text: str, coefficients: Coefficients = DEFAULT) -> int:
    chars = count_chars(text)
    terms = coefficients.cjk * chars.cjk, coefficients.other * chars.other
    return sum(math.ceil(term) for term in terms)


def _default_prices(text: str, coefficients: Coefficients = DEFAULT) -> int:
    return library_estimate(text)


_NOT_UP = "not rounded up: an estimate errs high, so a part of a token counts as a whole one"
_KNOWN_LATIN = [Known(_rounding(math.floor), _NOT_UP), Known(_rounding(round), _NOT_UP)]
_KNOWN_CJK = [
    Known(
        starter.estimate,
        "one rule for all text: a CJK character costs about a whole token, not a quarter",
    ),
    *_KNOWN_LATIN,
    Known(_each_term, "each term was rounded up by itself: add the two first, then round once"),
    Known(_default_prices, "the default prices were used, not those that are handed in"),
]


def _call(text: str, coefficients: Coefficients | None = None) -> Given:
    if coefficients is None:
        return given(f"estimate({quote(text)})", text)
    table = f"Coefficients({coefficients.cjk}, {coefficients.other})"
    return given(f"estimate({quote(text)}, {table})", text, coefficients)


def estimate_latin(estimate: Function, rng: Random) -> str:
    """Latin text: about one token per four characters, rounded up."""
    evidence = [_call("hello"), _call("naïve " * 41), _call("read calc.py")]
    trial = Trial(estimate, library_estimate, int, known=_KNOWN_LATIN, evidence=evidence)
    tokens = trial.on(_call(LATIN))
    for length in [1, 2, 4, *(rng.randint(3, 60) for _ in range(8)), rng.randint(500, 4000)]:
        text = " ".join(rng.choice(_WORDS) for _ in range(length))
        trial.on(_call(text[:length]))
    return f"✓ Latin text of {len(LATIN)} characters: {about(tokens)}"


def estimate_cjk(estimate: Function, rng: Random) -> str:
    """CJK and mixed text: the two terms add."""
    evidence = [_call("请先读日志"), _call("hello"), _call("read 日志 now, please")]
    trial = Trial(estimate, library_estimate, int, known=_KNOWN_CJK, evidence=evidence)
    shown = [f"{quote(text)} is {about(trial.on(_call(text)))}" for text in MIXED]
    for _ in range(10):
        trial.on(_call(_mixed(rng)))
    # By hand: 2 · 1.25 + 6 · 0.375 is 4.75.
    trial.on(_call("你好 world", Coefficients(1.25, 0.375)))
    # Fractions of two, so that every order of adding gives the same sum.
    halves = Coefficients(rng.choice((0.5, 0.75, 1.25)), rng.choice((0.125, 0.375, 0.5)))
    for _ in range(3):
        trial.on(_call(_mixed(rng), halves))
    return f"✓ CJK and mixed text, the two terms add: {', '.join(shown[:3])}"


def _mixed(rng: Random) -> str:
    """Return a short text of characters from all CJK ranges, their edges included, and others."""
    characters = []
    for _ in range(rng.randint(2, 24)):
        low, high = rng.choice(CJK_RANGES)
        inside = rng.choice((low, high, rng.randint(low, high)))
        characters.append(rng.choice((chr(inside), rng.choice(_NOT_CJK))))
    return "".join(characters)


CHECKS = (
    Check(
        "estimate-latin",
        1,
        "estimate",
        "Latin text costs about one token per four characters, rounded up.",
        estimate_latin,
    ),
    Check(
        "estimate-cjk",
        1,
        "estimate",
        "CJK and mixed text: the two terms add, a token for each CJK character.",
        estimate_cjk,
    ),
)
