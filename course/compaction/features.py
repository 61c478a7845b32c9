"""Features: what in a text makes tokens, counted in one pass over its classes of characters.

A text goes in; a vector of counts comes out, in the order of ``FEATURES``. A tokenizer that
knows words pays for runs (a word, a number, an indent), and for scripts it knows less well by
the character. ``weights`` returns what each costs, in tokens, as exact tokenizers charge it.

The leading byte of a character in UTF-8 names its script well enough. Bytes are translated, and
a large integer compared bit by bit, without a loop; long texts are counted with numpy instead, to
the same figures.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

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
_HAN, _KANA, _HANGUL, _CYRILLIC, _GREEK, _INDIC, _SYMBOL, _BEYOND, _NOTHING = range(7, 16)
_LETTERS = (_LOWER, _UPPER, _LATIN)
_WHITE_SPACE = (_BLANK, _LINE_END)
_OF_NO_SCRIPT = bytes([_LOWER, _UPPER, _DIGIT, _PUNCTUATION, _BLANK, _LINE_END])
_SCRIPTS = (_HAN, _KANA, _HANGUL, _CYRILLIC, _LATIN, _GREEK, _INDIC, _SYMBOL, _BEYOND)

# One bit for each class or group of classes in a character's byte of flags.
_IS_LETTER, _IS_LOWER, _IS_UPPER, _IS_DIGIT, _IS_PUNCTUATION, _IS_WHITE_SPACE, _IS_BLANK = range(7)

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


@cache
def weights() -> Vector:
    """Return the tokens of each feature, in the order of ``FEATURES``.

    ``benchmarks/learn_features.py`` learned them from exact counts of nine tokenizers.

    >>> len(weights()) == len(FEATURES)
    True
    """
    return tuple(_learned()["tokens"][name] for name in FEATURES)


@cache
def factors() -> tuple[Vector, ...]:
    """Return what each of the nine tokenizers charges for each feature, as a share of its weight.

    >>> len(factors()), len(factors()[0]) == len(FEATURES)
    (9, True)
    """
    rows = _learned()["factors"].values()
    return tuple(tuple(row[name] for name in FEATURES) for row in rows)


def _learned() -> Any:
    path = files("compaction").joinpath("data", "feature_weights.json")
    return json.loads(path.read_text(encoding="utf-8"))


def count_features(text: str) -> Vector:
    """Count the features of a text, in the order of ``FEATURES``.

    >>> counted = dict(zip(FEATURES, count_features("camelCase = 42; // 你好"), strict=True))
    >>> [name for name, count in counted.items() if count]
    ['letter runs', 'humps', 'upper-case runs', 'digits', 'digit runs', 'punctuation',
    'punctuation runs', 'white-space runs', 'Han']
    >>> counted["digits"], counted["Han"]
    (2, 2)
    """
    if len(text) > _LONG_TEXT:
        try:
            return _count_long(text)
        except UnicodeEncodeError:  # a lone surrogate is a character too, but has no UTF-16 form
            pass
    return _count_short(text)


def _classes(text: str) -> bytes:
    """Return one byte a character, its class."""
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


def _count_short(text: str) -> Vector:
    """Count with one large integer: quick on short texts, and nothing has to be loaded.

    Each character is a byte of flags in it, the first one lowest, so that a shift by a byte lays
    every character beside the one after it.
    """
    classes = _classes(text)
    flags = int.from_bytes(classes.translate(_flag_table()), "little")
    ones = int.from_bytes(b"\1" * len(classes), "little")
    changes = flags ^ flags << 8

    def number(flag: int) -> int:
        return (flags & ones << flag).bit_count()

    def runs(flag: int) -> int:
        # A run changes its flag twice, where it begins and after it; one that ends the text is
        # still on when the ones are over.
        ends_on = bool(classes) and _flag_table()[classes[-1]] >> flag & 1
        return ((changes & ones << flag).bit_count() + ends_on) // 2

    # A letter lies beyond a long run's twelfth when it ends thirteen in a row: windows of 2, 4
    # and 8 letters, then two of 8 that overlap.
    window = flags & ones << _IS_LOWER
    window &= window << 8
    window &= window << 16
    window &= window << 32
    window &= window << 40
    # Wide is all white space but a blank with none beside it.
    blank = flags & ones << _IS_BLANK
    shift = _IS_BLANK - _IS_WHITE_SPACE
    beside = (flags << 8 | flags >> 8) << shift & blank
    lone = blank.bit_count() - beside.bit_count()
    # An upper-case letter after a lower-case one.
    humps = flags << 8 + _IS_UPPER - _IS_LOWER & flags & ones << _IS_UPPER
    white_space = runs(_IS_WHITE_SPACE)
    scripts = b"" if text.isascii() else classes.translate(None, _OF_NO_SCRIPT)
    return (
        runs(_IS_LETTER),
        window.bit_count(),
        humps.bit_count(),
        runs(_IS_UPPER),
        number(_IS_DIGIT),
        runs(_IS_DIGIT),
        number(_IS_PUNCTUATION),
        runs(_IS_PUNCTUATION),
        white_space,
        white_space - lone,
        *map(scripts.count, _SCRIPTS),
    )


@cache
def _flag_table() -> bytes:
    """Return the flags of each class."""
    classes_of = {
        _IS_LETTER: _LETTERS,
        _IS_LOWER: (_LOWER,),
        _IS_UPPER: (_UPPER,),
        _IS_DIGIT: (_DIGIT,),
        _IS_PUNCTUATION: (_PUNCTUATION,),
        _IS_WHITE_SPACE: _WHITE_SPACE,
        _IS_BLANK: (_BLANK,),
    }
    return bytes(
        sum((code in chosen) << flag for flag, chosen in classes_of.items()) for code in range(256)
    )


def _count_long(text: str) -> Vector:
    """Count with numpy, block by block: several times faster on long texts.

    Raises ``UnicodeEncodeError`` for a text with a lone surrogate.
    """
    import numpy as np

    table, total = _unit_table(), np.zeros(len(FEATURES), dtype=np.int64)
    # Each block brings along what precedes it, so that a run over its edge is counted once;
    # before the text stands a class that belongs to no run, and after it, to end the last one.
    ahead = np.full(LONG_RUN, _NOTHING, dtype=np.uint8)
    for start in range(0, len(text), _BLOCK):
        units = np.frombuffer(text[start : start + _BLOCK].encode("utf-16-le"), dtype="<u2")
        block = np.concatenate((ahead, table.take(units)))
        total += _count_block(block)
        ahead = block[-LONG_RUN:]
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
    table[0xD800:0xDC00], table[0xDC00:0xE000] = _BEYOND, _NOTHING
    return table


def _count_block(block: Any) -> list[int]:
    """Count the features of a block after its first ``LONG_RUN`` classes."""
    import numpy as np

    def count(mask: Any) -> int:
        return int(np.count_nonzero(mask))

    def runs(mask: Any) -> int:
        # Beginnings and ends are the changes; one of them more where the block ends in a run,
        # one less where it goes on with one. (Quicker than "and not the one before".)
        changes = count(mask[LONG_RUN:] ^ mask[LONG_RUN - 1 : -1])
        return (changes + int(mask[-1]) - int(mask[LONG_RUN - 1])) // 2

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
    # Scripts are few in most texts: nine comparisons of those few.
    scripts = new[(new >= _HAN) | (new == _LATIN)]
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
        *(count(scripts == script) for script in _SCRIPTS),
    ]
