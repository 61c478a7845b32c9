"""Columns of a terminal: wide, half-width and combining characters, emoji."""

from __future__ import annotations

import pytest

from compaction.agent.slash_commands import _beginning
from compaction.agent.terminal import _result_lines
from compaction.agent.wrapping import columns, shortened, wrapped
from compaction.messages import Call

TEXTS = {
    "plain": "the quick brown fox",
    "chinese": "敏捷的棕色狐狸跳过懒狗",
    "emoji": "👍👍👍👍👍👍👍👍👍👍",
    "combining": "e\u0301" * 20,
    "half-width": "ｱｲｳｴｵｱｲｳｴｵｱｲｳｴｵ",
    "a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467 " * 6,
}


@pytest.mark.parametrize(
    ("text", "width"),
    [("你好", 4), ("ｱｲｳ", 3), ("e\u0301", 1), ("👍", 2), ("한글", 4), ("ＡＢ", 4), ("ab", 2)],
)
def test_columns_are_not_characters(text: str, width: int) -> None:
    assert columns(text) == width


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("width", [7, 10, 11])
def test_no_line_is_wider_than_the_screen_and_nothing_is_lost(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(columns(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    # A mark stays with the character that it belongs to.
    assert not any(line.startswith(("\u0301", "\u200d")) for line in lines)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_cut_fits(text: str) -> None:
    assert columns(shortened(text, 10)) <= 10
    assert shortened(text, 10).endswith("...") == (columns(text) > 10)
    assert shortened(text, 200) == text


def test_tables_and_results_are_cut_by_columns() -> None:
    wide = "汉字" * 60
    assert columns(_beginning({"role": "user", "content": wide})) <= 38
    [line] = _result_lines(Call("c1", "run_command", "{}"), wide, 40)
    assert columns(line) <= 40
