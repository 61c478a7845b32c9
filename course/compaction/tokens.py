"""Day 1: estimate tokens from characters, before a request is sent.

Two terms are enough for a decision: a CJK character costs about one token, any other
character about a quarter of one. The estimate is rounded up, never down.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from compaction.messages import image_count, text_of

IMAGE_TOKENS = 256
"""Flat price of an image, whatever its size."""

FRAMING_CHARACTERS = 20
"""What the heuristic adds to a message for the marks around it."""

CJK_RANGES = (
    # Hangul Jamo
    (0x1100, 0x11FF),
    # Han radicals, CJK punctuation, kana, bopomofo, Hangul Jamo, width forms, Han
    (0x2E80, 0x2FDF),
    (0x3000, 0x303F),
    (0x3040, 0x312F),
    (0x3130, 0x318F),
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3200, 0x33FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    # Hangul
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),
    # Han compatibility, CJK compatibility forms, full-width forms
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE4F),
    (0xFF00, 0xFFEF),
    # Han beyond the basic plane
    (0x20000, 0x3FFFF),
)
"""Code points (both ends included) that count as CJK."""

# Above this length numpy's table look-up repays the import; below it a regular expression
# is fast enough and nothing has to be loaded.
_LONG_TEXT = 200_000
_BLOCK = 1 << 16


class Chars(NamedTuple):
    """Characters (Unicode code points) of a text: CJK and all others."""

    cjk: int
    other: int


@dataclass(frozen=True)
class Coefficients:
    """Tokens a CJK character and tokens any other character."""

    cjk: float = 1.0
    other: float = 0.25


DEFAULT = Coefficients()


def count_chars(text: str) -> Chars:
    """Count the CJK and the other characters of a text.

    >>> count_chars("你好 world")
    Chars(cjk=2, other=6)
    """
    if text.isascii():
        return Chars(0, len(text))
    cjk = _count_cjk_long(text) if len(text) > _LONG_TEXT else _count_cjk_short(text)
    return Chars(cjk, len(text) - cjk)


def _count_cjk_short(text: str) -> int:
    return sum(map(len, _cjk_runs().findall(text)))


@cache
def _cjk_runs() -> re.Pattern[str]:
    return re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in CJK_RANGES) + "]+")


def _count_cjk_long(text: str) -> int:
    import numpy as np

    table = _cjk_table()
    count = 0
    try:
        for start in range(0, len(text), _BLOCK):
            units = np.frombuffer(text[start : start + _BLOCK].encode("utf-16-le"), dtype="<u2")
            count += int(np.count_nonzero(table.take(units)))
    except UnicodeEncodeError:  # a lone surrogate is a code point too, but has no UTF-16 form
        return _count_cjk_short(text)
    return count


@cache
def _cjk_table() -> Any:
    """Return a 0/1 table (uint8) over all UTF-16 code units.

    A character beyond the basic plane is two units; its first one names the plane, so the
    table marks the first units of the CJK planes and none of the second ones.
    """
    import numpy as np

    table = np.zeros(0x10000, dtype=np.uint8)
    for low, high in CJK_RANGES:
        first, last = (_leading_unit(low), _leading_unit(high)) if low > 0xFFFF else (low, high)
        table[first : last + 1] = 1
    return table


def _leading_unit(code_point: int) -> int:
    return 0xD800 + ((code_point - 0x10000) >> 10)


def estimate(text: str, coefficients: Coefficients = DEFAULT) -> int:
    """Estimate the tokens of a text: the CJK term plus the other term, rounded up.

    >>> estimate("hello world")
    3
    >>> estimate("你好 world")
    4
    """
    chars = count_chars(text)
    return math.ceil(coefficients.cjk * chars.cjk + coefficients.other * chars.other)


def heuristic(message: Mapping[str, Any]) -> int:
    """Estimate one message crudely but on the high side: ``(characters + 20) / 4``, rounded up.

    An image adds a flat 256 tokens. A false "too big" costs one compaction; a false "fits"
    costs a refused request.

    >>> heuristic({"role": "user", "content": "Please read calc.py"})
    10
    """
    framed = len(text_of(message)) + FRAMING_CHARACTERS
    return math.ceil(framed / 4) + IMAGE_TOKENS * image_count([message])


def about(tokens: int, at_most: int | None = None) -> str:
    """Say a number of tokens the way it is shown to a person, with its upper bound if known.

    >>> about(86)
    'about 86 tokens'
    >>> about(1240, 1400)
    'about 1,240 tokens, at most 1,400'
    """
    said = f"about {tokens:,} token{'' if tokens == 1 else 's'}"
    return said if at_most is None or at_most <= tokens else f"{said}, at most {at_most:,}"
