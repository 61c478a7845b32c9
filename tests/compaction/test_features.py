"""What is counted in a text, by hand and by two ways that must agree."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction import features
from compaction.features import ENCODED_RUN, FEATURES, LONG_RUN, count_features, learned
from compaction.measurements import tokenizer_counts


def named(text):
    return {
        name: count for name, count in zip(FEATURES, count_features(text), strict=True) if count
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("hello", {"letter runs": 1}),
        ("camelCaseName", {"letter runs": 1, "humps": 2, "upper-case runs": 2}),
        ("HTTP", {"letter runs": 1, "upper-case runs": 1}),
        ("2026", {"digits": 4, "digit runs": 1}),
        ("a b", {"letter runs": 2, "white-space runs": 1}),
        ("a  b", {"letter runs": 2, "white-space runs": 1, "wide white space": 1}),
        ("a\n    b", {"letter runs": 2, "white-space runs": 1, "wide white space": 1}),
        ("a\n", {"letter runs": 1, "white-space runs": 1, "wide white space": 1}),
        (" ", {"white-space runs": 1}),
        ("x" * 20, {"letter runs": 1, "letters of long runs": 20 - LONG_RUN}),
        ("f(x);", {"letter runs": 2, "punctuation": 3, "punctuation runs": 2}),
        (
            "a = 7",
            {"letter runs": 1, "digits": 1, "digit runs": 1, "digits after white space": 1}
            | {"punctuation": 1, "punctuation runs": 1, "punctuation after white space": 1}
            | {"white-space runs": 2},
        ),
        ("việc", {"letter runs": 1}),
        ("你好", {"Han": 2}),
        ("あ", {"kana": 1}),
        ("한", {"Hangul": 1}),
        ("да", {"Cyrillic": 2}),
        ("größe", {"letter runs": 1, "other Latin": 2}),
        ("שלום", {"Greek, Hebrew, Arabic": 4}),
        ("ไทย", {"Indic, Thai": 3}),
        ("→", {"symbols": 1}),
        ("🙂", {"beyond the basic plane": 1}),
        ("\ud800", {"Hangul": 1}),  # a lone surrogate: strange, and no reason to fail
    ],
)
def test_counts_by_hand(text, expected):
    assert named(text) == expected


def ends_encoded(index, text):
    """Say whether the character ends a stretch of base64 with all three kinds in it."""
    stretch = text[max(0, index + 1 - ENCODED_RUN) : index + 1]
    whole = re.fullmatch(f"[a-zA-Z0-9+/]{{{ENCODED_RUN}}}", stretch)
    return bool(whole) and all(re.search(kind, stretch) for kind in ("[a-z]", "[A-Z]", "[0-9]"))


def by_regular_expressions(text):
    """Count the features that are runs, the slow way."""
    letters = "[a-zA-Z\u00c0-\u033f]"
    return {
        "letter runs": len(re.findall(f"{letters}+", text)),
        "letters of long runs": sum(
            len(run) - LONG_RUN for run in re.findall("[a-z]+", text) if len(run) > LONG_RUN
        ),
        "encoded letters": sum(map(ends_encoded, range(len(text)), [text] * len(text))),
        "humps": len(re.findall("[a-z][A-Z]", text)),
        "upper-case runs": len(re.findall("[A-Z]+", text)),
        "digits": len(re.findall("[0-9]", text)),
        "digit runs": len(re.findall("[0-9]+", text)),
        "digits after white space": len(re.findall(r"(?<=[ \t\n\r\v\f])[0-9]", text)),
        "punctuation after white space": len(re.findall(r"(?<=[ \t\n\r\v\f])[!-/]", text)),
        "white-space runs": len(re.findall("[ \t\n\r\v\f]+", text)),
        "wide white space": len(re.findall("[ \t\n\r\v\f]{2,}|(?<![ \t])[\n\r\v\f]", text)),
    }


@settings(max_examples=200)
@given(st.text("abcXYZ019 \t\n.,é你あ한д🙂", max_size=80) | st.text("abX0+/", max_size=60))
def test_runs_agree_with_regular_expressions(text):
    counted = dict(zip(FEATURES, count_features(text), strict=True))
    expected = by_regular_expressions(text)
    assert {name: counted[name] for name in expected} == expected


@pytest.mark.parametrize("block", [1, 7, 40, 10**6])
def test_numpy_counts_the_same_over_the_edges_of_blocks(block, monkeypatch):
    monkeypatch.setattr(features, "_BLOCK", block)
    for piece in tokenizer_counts().pieces[:: 1 if block > 40 else 12]:
        short = count_features(piece.text)
        monkeypatch.setattr(features, "_LONG_TEXT", 0)
        assert count_features(piece.text) == short, piece.id
        monkeypatch.setattr(features, "_LONG_TEXT", 200_000)


def test_a_long_text_with_a_lone_surrogate_is_counted(monkeypatch):
    monkeypatch.setattr(features, "_LONG_TEXT", 5)
    assert named("hello \ud800") == {"letter runs": 1, "white-space runs": 1, "Hangul": 1}


@pytest.mark.parametrize("make", [count_features, features._count_long])
def test_base64_is_told_from_words_and_numbers(make):
    key = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRW"
    for text, encoded in (
        (key, len(key) + 1 - ENCODED_RUN),
        ("internationalisation", 0),
        ("4829104829104829104829", 0),
        ("8f14e45fceea167a5a36dedd4bea2543", 0),
        ("src/tests/unit/calc/test", 0),
    ):
        counted = dict(zip(FEATURES, make(text), strict=True))
        assert counted["encoded letters"] == encoded, text


def test_what_was_learned_is_whole():
    tokens, factors, margin = learned()
    assert len(tokens) == len(FEATURES)
    assert all(weight > 0 for weight in tokens)
    for row in factors:
        assert len(row) == len(FEATURES)
        assert all(0.2 < factor < 4 for factor in row)
    for index in range(len(FEATURES)):  # a weight lies among what the tokenizers charge
        assert min(row[index] for row in factors) <= 1 <= max(row[index] for row in factors)
    assert 1.3 < margin < 2.5
