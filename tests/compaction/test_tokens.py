"""Day 1: counting characters, estimating tokens."""

from __future__ import annotations

import math
import random
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction import tokens
from compaction.tokens import (
    CJK_RANGES,
    DEFAULT,
    IMAGE_TOKENS,
    Chars,
    Coefficients,
    about,
    count_chars,
    estimate,
    heuristic,
)
from tests.builders import calls, user

# The ranges once more, in the order and the words of the course's own list.
PUBLISHED = {
    "Han": [
        (0x2E80, 0x2FDF),
        (0x3400, 0x4DBF),
        (0x4E00, 0x9FFF),
        (0xF900, 0xFAFF),
        (0x20000, 0x3FFFF),
    ],
    "kana and bopomofo": [(0x3040, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF)],
    "Hangul": [(0x1100, 0x11FF), (0x3130, 0x318F), (0xA960, 0xA97F), (0xAC00, 0xD7FF)],
    "punctuation and width forms": [
        (0x3000, 0x303F),
        (0x3200, 0x33FF),
        (0xFE30, 0xFE4F),
        (0xFF00, 0xFFEF),
    ],
}
RANGES = sorted(pair for pairs in PUBLISHED.values() for pair in pairs)


def is_cjk(character: str) -> bool:
    return any(low <= ord(character) <= high for low, high in RANGES)


def count_slowly(text: str) -> Chars:
    cjk = sum(map(is_cjk, text))
    return Chars(cjk, len(text) - cjk)


@pytest.fixture(params=["short", "long"])
def count(request, monkeypatch):
    """count_chars by way of the regular expression, and by way of numpy's table."""
    if request.param == "long":
        monkeypatch.setattr(tokens, "_LONG_TEXT", 0)
        monkeypatch.setattr(tokens, "_BLOCK", 7)
    else:
        monkeypatch.setattr(tokens, "_LONG_TEXT", 10**9)
    return count_chars


EDGES = sorted(
    {
        chr(point)
        for low, high in RANGES
        for point in (low - 1, low, low + 1, high - 1, high, high + 1)
    }
    # The ends of the planes and of the surrogates' neighbours.
    | {chr(p) for p in (0, 0x7F, 0x80, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF)}
    | {chr(p) for p in (0x1F600, 0x1FFFF, 0x20000, 0x2FFFF, 0x30000, 0x3FFFF, 0x40000)}
)


def test_the_ranges_are_the_published_ones():
    assert sorted(CJK_RANGES) == RANGES


@pytest.mark.parametrize("character", EDGES, ids=lambda c: f"U+{ord(c):04X}")
def test_every_edge_of_every_range(count, character):
    expected = Chars(1, 0) if is_cjk(character) else Chars(0, 1)
    assert count(character) == expected
    # Beside other characters, and across the blocks of the long way.
    text = "a" * 6 + character * 9 + "你"
    assert count(text) == Chars(1 + 9 * expected.cjk, 6 + 9 * expected.other)


@pytest.mark.parametrize("point", [0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xD840, 0xD8FF])
def test_a_lone_surrogate_is_one_other_character(count, point):
    assert count(chr(point)) == Chars(0, 1)
    assert count("你" + chr(point) + "好" * 20) == Chars(21, 1)


@given(st.text(alphabet=st.characters(), max_size=60))
def test_both_ways_agree_with_a_loop(text):
    assert count_chars(text) == count_slowly(text)
    if not text.isascii():
        assert tokens._count_cjk_short(text) == count_slowly(text).cjk
        assert tokens._count_cjk_long(text) == count_slowly(text).cjk


def test_a_long_mixed_text_counts_as_a_loop_does():
    draw = random.Random(5)
    letters = [chr(p) for low, high in RANGES for p in (low, high)] + list("abc \n") + EDGES
    text = "".join(draw.choices([c for c in letters if not 0xD800 <= ord(c) < 0xE000], k=300_000))
    assert len(text) > tokens._LONG_TEXT
    assert count_chars(text) == count_slowly(text)
    assert count_chars(text + "\ud800") == count_slowly(text + "\ud800")


def test_a_long_text_is_counted_fifty_times_faster_than_in_a_loop():
    def best_seconds(count, text, times):
        found = []
        for _ in range(times):
            start = time.process_time()
            count(text)
            found.append(time.process_time() - start)
        return min(found)

    text = ("你好，世界。Hello world, this is a line of text. def f(x): return 1\n" * 80_000)[
        :5_000_000
    ]
    count_chars(text)  # loads numpy
    part = text[:250_000]
    loop = best_seconds(count_slowly, part, 2) * len(text) / len(part)
    assert best_seconds(count_chars, text, 5) * 50 < loop


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HIRAGANA LETTER A", True),
        ("KATAKANA LETTER A", True),
        ("BOPOMOFO LETTER B", True),
        ("HANGUL SYLLABLE GA", True),
        ("HANGUL CHOSEONG KIYEOK", True),
        ("IDEOGRAPHIC FULL STOP", True),
        ("FULLWIDTH COLON", True),
        ("CJK UNIFIED IDEOGRAPH-20000", True),
        ("LATIN SMALL LETTER E WITH ACUTE", False),
        ("CYRILLIC SMALL LETTER A", False),
        ("ARABIC LETTER ALEF", False),
        ("THAI CHARACTER KO KAI", False),
        ("LEFT DOUBLE QUOTATION MARK", False),
        ("GRINNING FACE", False),
    ],
)
def test_characters_by_name(name, expected):
    assert count_chars(unicodedata.lookup(name)).cjk == int(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("hello world", 3),
        ("你", 1),
        ("你好 world", 4),
        ("你好", 2),
        ("a" * 400, 100),
        ("a" * 401, 101),
        ("é" * 4, 1),
        ("🙂" * 4, 1),
    ],
)
def test_estimate_is_rounded_up(text, expected):
    assert estimate(text) == expected


def test_estimate_with_another_table():
    assert estimate("你好 world", Coefficients(cjk=0.5, other=0.5)) == 4
    assert estimate("你好 world", Coefficients(0.6, 0.1)) == math.ceil(2 * 0.6 + 6 * 0.1)


def test_the_default_table():
    assert Coefficients(1.0, 0.25) == DEFAULT


@given(st.text(max_size=80), st.text(max_size=80))
def test_longer_text_is_never_cheaper(text, more):
    assert estimate(text) <= estimate(text + more) <= estimate(text) + estimate(more)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (user(""), 5),
        (user(None), 5),
        (user("a"), 6),
        (user("a" * 380), 100),
        (user("a" * 381), 101),
        (
            user([{"type": "image_url", "image_url": {"url": "x" * 10**6}}]),
            5 + IMAGE_TOKENS,
        ),
        (
            calls({"id": "c", "function": {"name": "f", "arguments": "{}"}}),
            6,
        ),
    ],
)
def test_heuristic(message, expected):
    assert heuristic(message) == expected


def test_an_image_costs_256():
    assert IMAGE_TOKENS == 256


def test_about_says_one_token_in_the_singular():
    assert about(86) == "about 86 tokens"
    assert about(1) == "about 1 token"
