"""Values on one line, and where two of them part."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compaction.session import load
from compaction.tokens import Coefficients
from grader.checks import same
from grader.checks.show import difference, quote, show


def test_values_on_one_line() -> None:
    messages = load("long").messages
    assert show(messages) == "14 messages" and show(messages[:1]) == "1 message"
    assert show(None) == "None" and show(True) == "True" and show(86) == "86"
    assert show([]) == "[]" and show(()) == "()" and show({}) == "{}"
    assert show({"a": 1.0}) == '{"a": 1}'
    assert show(Coefficients()) == "Coefficients(cjk=1, other=0.25)"
    assert show(10**5000) == "a whole number of 16610 bits"
    assert show(list(range(500))).endswith("more]") and len(show(list(range(500)))) < 120


def test_quotes() -> None:
    assert quote("it's") == '"it\'s"'
    assert quote('say "hi"') == "'say \"hi\"'"
    assert quote("a\nb\x1b\ud800好") == '"a\\nb\\x1b\\ud800好"'
    assert quote("x" * 1000).endswith("(1000 characters)") and len(quote("x" * 1000)) < 130


def test_difference_shows_the_first_place() -> None:
    long = load("long").messages
    other = [dict(message) for message in long]
    other[9] = {**other[9], "content": other[9]["content"].replace("guard", "watch")}
    assert difference(long, long[:7]) == ("14 messages", "7 messages")
    expected, got = difference(long, other)
    place = next(i for i, pair in enumerate(zip(long, other, strict=True)) if pair[0] != pair[1])
    assert expected.startswith(f"[{place}]") and "guard" in expected and "watch" not in expected
    assert got.startswith(f"[{place}]") and "watch" in got and "guard" not in got


def test_difference_in_a_long_text_shows_its_surroundings() -> None:
    expected, got = difference("a" * 500 + "right" + "b" * 500, "a" * 500 + "wrong" + "b" * 500)
    assert expected == '"…' + "a" * 20 + "right" + "b" * 35 + '…"'
    assert got == '"…' + "a" * 20 + "wrong" + "b" * 35 + '…"'


def test_numbers_that_differ_far_behind_the_point() -> None:
    assert difference(0.12345678, 0.12345679) == ("0.12345678", "0.12345679")


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=20,
)


@given(plain_values, plain_values)
def test_values_that_differ_never_look_the_same(first: Any, second: Any) -> None:
    if same(first, second):
        return
    expected, got = difference(first, second)
    assert expected != got
    assert max(len(expected), len(got)) < 500
    assert expected.isprintable() and got.isprintable()


def test_long_dicts_part_at_a_key_or_within_its_value() -> None:
    long = {"text": "a" * 200, "size": {"rows": 1}}
    assert difference(long, {**long, "size": {"rows": 2}}) == (
        '["size"]: {"rows": 1}',
        '["size"]: {"rows": 2}',
    )
    assert difference(long, {"text": long["text"]}) == (
        '["size"]: {"rows": 1}',
        '["size"]: nothing',
    )
    assert difference({"text": long["text"]}, long) == (
        '["size"]: nothing',
        '["size"]: {"rows": 1}',
    )
