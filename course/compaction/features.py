"""Features: what in a text makes tokens, counted in one pass over its classes of characters.

A text goes in; a vector of counts comes out, in the order of ``FEATURES``. A tokenizer that
knows words pays for runs (a word, a number, an indent), and for scripts it knows less well by
the character. ``learned`` returns what each costs, in tokens, as exact tokenizers charge it.

The leading byte of a character in UTF-8 names its script well enough. Bytes are translated, and
a large integer compared bit by bit, without a loop; long texts are counted with numpy instead, to
the same figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

Vector = tuple[float, ...]

LONG_RUN = 7
"""Lower-case letters in a row beyond this many cost by the letter: few vocabularies hold them."""

ENCODED_RUN = 16
"""A stretch of this many letters, digits, ``+`` and ``/`` with upper case, lower case and a digit
in it is base64 or a key, and no word: each character that ends one is an encoded letter."""

FEATURES = (
    *("letter runs", "letters of long runs", "encoded letters", "humps", "upper-case runs"),
    *("digits", "digit runs", "digits after white space"),
    *("punctuation", "punctuation runs", "punctuation after white space"),
    *("white-space runs", "wide white space"),
    *("Han", "kana", "Hangul", "Cyrillic", "other Latin"),
    *("Greek, Hebrew, Arabic", "Indic, Thai", "symbols", "beyond the basic plane"),
)
"""The names of the counts, in order."""

# One class for each character. The order matters: what a mask of numpy takes together is adjacent.
_LATIN, _LOWER, _UPPER, _DIGIT, _PLUS_SLASH, _PUNCTUATION, _BLANK, _LINE_END = range(8)
_HAN, _KANA, _HANGUL, _CYRILLIC, _GREEK, _INDIC, _SYMBOL, _BEYOND, _NOTHING = range(8, 17)
_SCRIPTS = (_HAN, _KANA, _HANGUL, _CYRILLIC, _LATIN, _GREEK, _INDIC, _SYMBOL, _BEYOND)

# One bit for each class or group of classes in a character's byte of flags.
_IS_LETTER, _IS_LOWER, _IS_UPPER, _IS_DIGIT, _IS_PUNCTUATION, _IS_WHITE_SPACE = range(6)
_IS_BLANK, _IS_ENCODING = 6, 7

# The last leading byte of each class in UTF-8, ascending. Kana comes with CJK punctuation and
# Greek with Hebrew and Arabic, as they share leading bytes.
_LEADING_BYTES = (
    (0xC2, _SYMBOL),  # U+0080: Latin-1 signs
    (0xCC, _LATIN),  # U+00C0: accented letters, phonetic letters, combining accents
    (0xCF, _GREEK),
    (0xD3, _CYRILLIC),
    (0xDF, _GREEK),  # Armenian, Hebrew, Arabic, Syriac
    (0xE1, _INDIC),  # U+0800: Indic scripts, Thai, Georgian; not the Vietnamese letters below
    (0xE2, _SYMBOL),  # U+2000: dashes, quotes, arrows, boxes
    (0xE3, _KANA),  # U+3000: CJK punctuation, kana
    (0xE9, _HAN),
    (0xED, _HANGUL),
    (0xEF, _SYMBOL),  # U+F000: private use, full-width forms
    (0xFF, _BEYOND),
)
_ASCII, _CONTINUATION = bytes(range(0x80)), bytes(range(0x80, 0xC0))

# U+1E00 to U+1EFF, the letters of Vietnamese: they are inside words, and cost little more than any.
_VIETNAMESE = (b"\xe1\xb8", b"\xe1\xb9", b"\xe1\xba", b"\xe1\xbb")

# Above this length numpy repays its import, as in ``tokens``.
_LONG_TEXT = 200_000
_BLOCK = 1 << 17


class Learned(NamedTuple):
    """What exact counts taught: see ``benchmarks/learn_features.py``.

    ``tokens`` are those of each feature, in the order of ``FEATURES``; ``factors`` what each of
    nine tokenizers charges as a share of them; ``margin`` how many standard deviations above the
    count 95 of 100 requests stay that are made of other kinds of text.
    """

    tokens: Vector
    factors: tuple[Vector, ...]
    margin: float


@cache
def learned() -> Learned:
    """Return what was learned.

    >>> len(learned().tokens) == len(FEATURES), len(learned().factors)
    (True, 9)
    """
    path = files("compaction").joinpath("data", "feature_weights.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    rows = [[row[name] for name in FEATURES] for row in record["factors"].values()]
    tokens = tuple(record["tokens"][name] for name in FEATURES)
    return Learned(tokens, tuple(map(tuple, rows)), record["margin"])


def count_features(text: str) -> Vector:
    """Count the features of a text, in the order of ``FEATURES``.

    >>> counted = dict(zip(FEATURES, count_features("camelCase = 42; // 你好"), strict=True))
    >>> [name for name, count in counted.items() if count]
    ['letter runs', 'humps', 'upper-case runs', 'digits', 'digit runs',
    'digits after white space', 'punctuation', 'punctuation runs', 'punctuation after white space',
    'white-space runs', 'Han']
    >>> counted["digits"], counted["Han"]
    (2, 2)
    """
    if len(text) <= _LONG_TEXT:
        return _count_short(text)
    try:
        return _count_long(text)
    except UnicodeEncodeError:  # a lone surrogate is a character too, but has no UTF-16 form
        return _count_long(re.sub("[\ud800-\udfff]", "\ud7ff", text))


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
        elif character in "+/":
            table[code] = _PLUS_SLASH
    low = 0xC0
    for high, script in _LEADING_BYTES:
        table[low : high + 1] = bytes([script]) * (high + 1 - low)
        low = high + 1
    return bytes(table)


def _count_short(text: str) -> Vector:
    """Count with one large integer: quick on short texts, and nothing has to be loaded.

    Each character is a byte of flags in it, the first one lowest, so that a shift by a byte lays
    every character beside the one after it.
    """
    leading = _leading_bytes(text)
    flags = int.from_bytes(leading.translate(_flag_table()), "little")
    only = _masks(len(text).bit_length())
    before = flags << 8
    changes = flags ^ before

    def number(flag: int) -> int:
        return (flags & only[flag]).bit_count()

    def runs(flag: int) -> int:
        # A run changes its flag twice, where it begins and after it.
        return (changes & only[flag]).bit_count() // 2

    # A letter lies beyond a long run's seventh when it ends eight in a row: windows of 2, 4, 8.
    window = flags & only[_IS_LOWER]
    for shift in (8, 16, 32):
        window &= window << shift
    # Wide is all white space but a blank with none beside it.
    blank = flags & only[_IS_BLANK]
    beside = (before | flags >> 8) << _IS_BLANK - _IS_WHITE_SPACE & blank
    lone = blank.bit_count() - beside.bit_count()
    white_space = runs(_IS_WHITE_SPACE)
    scripts = b"" if text.isascii() else leading.translate(_class_table(), _ASCII)
    return (
        runs(_IS_LETTER),
        window.bit_count(),
        _encoded_letters(flags, only),
        (before << _IS_UPPER - _IS_LOWER & flags & only[_IS_UPPER]).bit_count(),
        runs(_IS_UPPER),
        number(_IS_DIGIT),
        runs(_IS_DIGIT),
        (before >> _IS_WHITE_SPACE - _IS_DIGIT & flags & only[_IS_DIGIT]).bit_count(),
        number(_IS_PUNCTUATION),
        runs(_IS_PUNCTUATION),
        (before >> _IS_WHITE_SPACE - _IS_PUNCTUATION & flags & only[_IS_PUNCTUATION]).bit_count(),
        white_space,
        white_space - lone,
        *map(scripts.count, _SCRIPTS),
    )


def _leading_bytes(text: str) -> bytes:
    """Return one byte a character, the first of its UTF-8 form."""
    encoded = text.encode("utf-8", "surrogatepass")
    if text.isascii():
        return encoded
    if b"\xe1" in encoded:
        for leading in _VIETNAMESE:
            encoded = encoded.replace(leading, b"a")
    return encoded.translate(None, _CONTINUATION)


def _encoded_letters(flags: int, only: Sequence[int]) -> int:
    """Count the characters that end a stretch of encoded ones with all three kinds in it."""
    encoded = flags & only[_IS_ENCODING]
    for shift in (8, 16, 32, 64):  # windows of 2, 4, 8 and 16 characters
        encoded &= encoded << shift
    if not encoded:  # as in most texts
        return 0
    for flag in (_IS_LOWER, _IS_UPPER, _IS_DIGIT):
        near = flags & only[flag]
        for shift in (8, 16, 32, 64):
            near |= near << shift
        encoded &= near << _IS_ENCODING - flag
    return encoded.bit_count()


@cache
def _masks(size: int) -> tuple[int, ...]:
    """Return for each flag the integer with this flag alone in each of ``2 ** size`` bytes."""
    ones = int.from_bytes(b"\1" * (1 << size), "little")
    return tuple(ones << flag for flag in range(8))


@cache
def _flag_table() -> bytes:
    """Return the flags of each leading byte."""
    classes_of = {
        _IS_LETTER: (_LATIN, _LOWER, _UPPER),
        _IS_LOWER: (_LOWER,),
        _IS_UPPER: (_UPPER,),
        _IS_DIGIT: (_DIGIT,),
        _IS_PUNCTUATION: (_PLUS_SLASH, _PUNCTUATION),
        _IS_WHITE_SPACE: (_BLANK, _LINE_END),
        _IS_BLANK: (_BLANK,),
        _IS_ENCODING: (_LOWER, _UPPER, _DIGIT, _PLUS_SLASH),
    }
    return bytes(
        sum((code in chosen) << flag for flag, chosen in classes_of.items())
        for code in _class_table()
    )


def _count_long(text: str) -> Vector:
    """Count with numpy, block by block: several times faster on long texts.

    Raises ``UnicodeEncodeError`` for a text with a lone surrogate.
    """
    import numpy as np

    table, total = _unit_table(), np.zeros(len(FEATURES), dtype=np.int64)
    # Each block brings along what precedes it, so that a run over its edge is counted once;
    # before the text stands a class that belongs to no run, and after it, to end the last one.
    ahead = np.full(ENCODED_RUN, _NOTHING, dtype=np.uint8)
    for start in range(0, len(text), _BLOCK):
        units = np.frombuffer(text[start : start + _BLOCK].encode("utf-16-le"), dtype="<u2")
        block = np.concatenate((ahead, table.take(units)))
        total += _count_block(block)
        ahead = block[-ENCODED_RUN:]
    total += _count_block(np.concatenate((ahead, np.array([_NOTHING], dtype=np.uint8))))
    return tuple(total.tolist())


@cache
def _unit_table() -> Any:
    """Return the class (uint8) of each UTF-16 code unit.

    A character beyond the basic plane is two units: the first has its class, the second none.
    """
    import numpy as np

    table = np.empty(0x10000, dtype=np.uint8)
    leading = np.frombuffer(_class_table(), dtype=np.uint8)
    table[:0x80] = leading[:0x80]
    table[0x80:0x800] = np.repeat(leading[0xC2:0xE0], 64)
    table[0x800:] = np.repeat(leading[0xE0:0xF0], 4096)[0x800:]
    table[0x1E00:0x1F00] = _LOWER
    table[0xD800:0xDC00], table[0xDC00:0xE000] = _BEYOND, _NOTHING
    return table


def _count_block(block: Any) -> list[int]:
    """Count the features of a block after its first ``ENCODED_RUN`` classes."""
    import numpy as np

    first = ENCODED_RUN

    def count(mask: Any) -> int:
        return int(np.count_nonzero(mask))

    def runs(mask: Any) -> int:
        # Beginnings and ends are the changes; one of them more where the block ends in a run,
        # one less where it goes on with one. (Quicker than "and not the one before".)
        changes = count(mask[first:] ^ mask[first - 1 : -1])
        return (changes + int(mask[-1]) - int(mask[first - 1])) // 2

    def between(low: int, high: int) -> Any:
        # Below the low end the difference wraps around, and is large.
        return block - np.uint8(low) <= high - low

    new, last = block[first:], block[first - 1 : -1]
    lower, upper, digit = block == _LOWER, block == _UPPER, block == _DIGIT
    punctuation = between(_PLUS_SLASH, _PUNCTUATION)
    white_space = between(_BLANK, _LINE_END)
    white_before = white_space[first - 1 : -1]
    # Wide where it ends: the character before it is a line end, or white space in its turn.
    wide = (last == _LINE_END) | (white_space[first - 2 : -2] & white_before)
    # A letter lies beyond a long run's seventh when it ends eight in a row: windows of 2, 4, 8.
    window = lower[first - LONG_RUN :]
    for shift in (1, 2, 4):
        window = window[shift:] & window[:-shift]
    return [
        runs(block <= _UPPER),
        count(window),
        _count_encoded(between(_LOWER, _PLUS_SLASH), (lower, upper, digit)),
        count(lower[first - 1 : -1] & upper[first:]),
        runs(upper),
        count(digit[first:]),
        runs(digit),
        count(white_before & digit[first:]),
        count(punctuation[first:]),
        runs(punctuation),
        count(white_before & punctuation[first:]),
        runs(white_space),
        count(wide > white_space[first:]),
        *(count(new == script) for script in _SCRIPTS),
    ]


def _count_encoded(encoded: Any, kinds: tuple[Any, ...]) -> int:
    """Count the characters that end a stretch of encoded ones with all three kinds in it."""
    import numpy as np

    encoded = encoded[1:]
    for shift in (1, 2, 4, 8):  # windows of 2, 4, 8 and 16 characters
        encoded = encoded[shift:] & encoded[:-shift]
    if not encoded.any():  # as in most texts
        return 0
    for kind in kinds:
        near = kind[1:]
        for shift in (1, 2, 4, 8):
            near = near[shift:] | near[:-shift]
        encoded = encoded & near
    return int(np.count_nonzero(encoded))
