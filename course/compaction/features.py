"""Features: what in a text makes tokens, counted in one pass over its classes of characters.

A text goes in; a vector of counts comes out, in the order of ``FEATURES``. A tokenizer that
knows words pays for runs (a word, a number, an indent), and for scripts it knows less well by
the character. ``weights`` returns what each costs, in tokens, as exact tokenizers charge it.

The text is encoded as UTF-8 first. The leading byte of a character names its script well
enough, and bytes can be translated and counted without a loop.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

Vector = tuple[float, ...]

LONG_RUN = 12
"""Lower-case letters in a row beyond this many cost by the letter: few vocabularies hold them."""

FEATURES = (
    *("letter runs", "letters of long runs", "humps", "upper-case runs"),
    *("digits", "digit runs", "punctuation", "punctuation runs"),
    *("white-space runs", "wide white space"),
    *("Han", "kana", "Hangul", "Cyrillic", "other Latin"),
    *("Greek, Hebrew, Arabic", "Indic, Thai", "symbols", "beyond the basic plane"),
)
"""The names of the counts, in order."""

# One class for each character. The order matters: letters come first, white space is adjacent.
_LOWER, _UPPER, _LATIN, _DIGIT, _PUNCTUATION, _BLANK, _LINE_END = range(7)
_HAN, _KANA, _HANGUL, _CYRILLIC, _GREEK, _INDIC, _SYMBOL, _BEYOND = range(7, 15)
_LETTERS = (_LOWER, _UPPER, _LATIN)
_WHITE_SPACE = (_BLANK, _LINE_END)
_SCRIPTS = (_HAN, _KANA, _HANGUL, _CYRILLIC, _LATIN, _GREEK, _INDIC, _SYMBOL, _BEYOND)

# The last leading byte of each class in UTF-8, ascending. Kana comes with CJK punctuation and
# Greek with Hebrew and Arabic, as they share leading bytes.
_LEADING_BYTES = (
    (0xC2, _SYMBOL),  # U+0080: Latin-1 signs
    (0xCC, _LATIN),  # U+00C0: accented letters, phonetic letters, combining accents
    (0xCF, _GREEK),
    (0xD3, _CYRILLIC),
    (0xDF, _GREEK),  # Armenian, Hebrew, Arabic, Syriac
    (0xE1, _INDIC),  # U+0800: Indic scripts, Thai, Georgian; also Vietnamese letters
    (0xE2, _SYMBOL),  # U+2000: dashes, quotes, arrows, boxes
    (0xE3, _KANA),  # U+3000: CJK punctuation, kana
    (0xE9, _HAN),
    (0xED, _HANGUL),
    (0xEF, _SYMBOL),  # U+F000: private use, full-width forms
    (0xFF, _BEYOND),
)
_CONTINUATION = bytes(range(0x80, 0xC0))

# Above this length numpy repays its import, as in ``tokens``.
_LONG_TEXT = 200_000
_BLOCK = 1 << 17


class Weight(NamedTuple):
    """What a feature costs in tokens, and how far tokenizers differ in it, as a fraction."""

    tokens: float
    spread: float


@cache
def weights() -> tuple[Weight, ...]:
    """Return the learned cost of each feature, in the order of ``FEATURES``.

    ``benchmarks/learn_features.py`` learned them from exact counts of nine tokenizers.

    >>> len(weights()) == len(FEATURES)
    True
    """
    path = files("compaction").joinpath("data", "feature_weights.json")
    learned = json.loads(path.read_text(encoding="utf-8"))["features"]
    return tuple(Weight(learned[name]["tokens"], learned[name]["spread"]) for name in FEATURES)


def count_features(text: str) -> Vector:
    """Count the features of a text, in the order of ``FEATURES``.

    >>> counted = dict(zip(FEATURES, count_features("camelCase = 42; // 你好"), strict=True))
    >>> [name for name, count in counted.items() if count]
    ['letter runs', 'humps', 'upper-case runs', 'digits', 'digit runs', 'punctuation',
    'punctuation runs', 'white-space runs', 'Han']
    >>> counted["digits"], counted["Han"]
    (2, 2)
    """
    if len(text) <= _LONG_TEXT:
        return _count_bytes(_classes(text))
    return _count_array(_classes(text))


def _classes(text: str) -> bytes:
    """Return one byte a character, its class; a lone surrogate is a character too."""
    return text.encode("utf-8", "surrogatepass").translate(_class_table(), _CONTINUATION)


@cache
def _class_table() -> bytes:
    """Return the class of each leading byte."""
    table = bytearray([_PUNCTUATION]) * 256
    for code in range(0x80):
        character = chr(code)
        if character.isalpha():
            table[code] = _LOWER if character.islower() else _UPPER
        elif character.isdigit():
            table[code] = _DIGIT
        elif character in "\n\r\v\f":
            table[code] = _LINE_END
        elif character in " \t":
            table[code] = _BLANK
    low = 0xC0
    for high, script in _LEADING_BYTES:
        table[low : high + 1] = bytes([script]) * (high + 1 - low)
        low = high + 1
    return bytes(table)


def _count_bytes(classes: bytes) -> Vector:
    """Count with the methods of bytes: quick on short texts, and nothing has to be loaded."""
    long_runs = _long_runs().findall(classes)
    white_space = classes.translate(_white_space_table())
    return (
        _runs(classes.translate(_mask(*_LETTERS))),
        sum(map(len, long_runs)) - LONG_RUN * len(long_runs),
        classes.count(bytes([_LOWER, _UPPER])),
        _runs(classes.translate(_mask(_UPPER))),
        classes.count(_DIGIT),
        _runs(classes.translate(_mask(_DIGIT))),
        classes.count(_PUNCTUATION),
        _runs(classes.translate(_mask(_PUNCTUATION))),
        _runs(classes.translate(_mask(*_WHITE_SPACE))),
        # Wide where it ends: after a line end, or after two blanks.
        sum(map(white_space.count, (b"n.", b"  .", b"n ."))),
        *map(classes.count, _SCRIPTS),
    )


def _runs(mask: bytes) -> int:
    """Count runs of 1: one begins where 1 follows 0, or with the text."""
    return mask.count(b"\0\1") + mask.startswith(b"\1")


@cache
def _mask(*chosen: int) -> bytes:
    """Return the table that makes 1 of the chosen classes and 0 of all others."""
    return bytes(code in chosen for code in range(256))


@cache
def _white_space_table() -> bytes:
    """Return the table that keeps blanks and line ends apart and makes a dot of all others."""
    return bytes.maketrans(bytes([_BLANK, _LINE_END]), b" n").translate(
        bytes(code if code in b" n" else ord(".") for code in range(256))
    )


@cache
def _long_runs() -> re.Pattern[bytes]:
    return re.compile(b"%c{%d,}" % (_LOWER, LONG_RUN + 1))


def _count_array(classes: bytes) -> Vector:
    """Count with numpy, block by block: the same counts, several times faster on long texts."""
    import numpy as np

    total = np.zeros(len(FEATURES), dtype=np.int64)
    # Each block brings along what precedes it, so that a run over its edge is counted once;
    # before the text stands a class that belongs to no run.
    for start in range(0, len(classes), _BLOCK):
        ahead = classes[max(0, start - LONG_RUN) : start].rjust(LONG_RUN, bytes([_BEYOND]))
        total += _count_block(np.frombuffer(ahead + classes[start : start + _BLOCK], np.uint8))
    return tuple(total.tolist())


def _count_block(block: Any) -> list[int]:
    """Count the features of a block after its first ``LONG_RUN`` classes."""
    import numpy as np

    def count(mask: Any) -> int:
        return int(np.count_nonzero(mask))

    def runs(mask: Any) -> int:
        # In booleans, "greater" is "and not": a run begins where the class before is another.
        return count(mask[LONG_RUN:] > mask[LONG_RUN - 1 : -1])

    new, last = block[LONG_RUN:], block[LONG_RUN - 1 : -1]
    lower, upper, digit = block == _LOWER, block == _UPPER, block == _DIGIT
    punctuation, white_space = block == _PUNCTUATION, (block == _BLANK) | (block == _LINE_END)
    # Wide where it ends: the character before it is a line end, or white space in its turn.
    wide = (last == _LINE_END) | (white_space[LONG_RUN - 2 : -2] & white_space[LONG_RUN - 1 : -1])
    # A letter lies beyond a long run's twelfth when it ends thirteen in a row: windows of 2, 4
    # and 8 letters, then two of 8 that overlap.
    window = lower[1:] & lower[:-1]
    window = window[2:] & window[:-2]
    window = window[4:] & window[:-4]
    return [
        runs(block <= _LATIN),
        count(window[5:] & window[:-5]),
        count(lower[LONG_RUN - 1 : -1] & upper[LONG_RUN:]),
        runs(upper),
        count(digit[LONG_RUN:]),
        runs(digit),
        count(punctuation[LONG_RUN:]),
        runs(punctuation),
        runs(white_space),
        count(wide > white_space[LONG_RUN:]),
        *(count(new == script) for script in _SCRIPTS),
    ]
