"""Text in a terminal's columns: how many it takes, cut to fit, and broken between words.

A column is not a character: an emoji or a Chinese character takes two, a combining mark none.
"""

from __future__ import annotations

from collections.abc import Callable


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes.

    >>> columns("日本"), columns("e\\u0301"), columns("👍"), columns("ｱ")
    (4, 1, 2, 1)
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shortened(text: str, width: int) -> str:
    """Return text of at most ``width`` columns; what is cut off is marked with three dots.

    >>> shortened("日本語日本語", 9), shortened("short", 9)
    ('日本語...', 'short')
    """
    if columns(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 3).rstrip() + "..."


def wrapped(line: str, width: int) -> list[str]:
    """Return a line in parts of at most ``width`` columns; the parts below are indented like it.

    >>> wrapped("* one two three", 9)
    ['* one two', '  three']
    """
    if columns(line) <= width:
        return [line]
    written: list[str] = []
    wrap = Wrap(width, written.append, indent=" " * (len(line) - len(line.lstrip(" *"))))
    wrap.add(line)
    wrap.end()
    return "".join(written).rstrip("\n").split("\n")


class Wrap:
    """Writes pieces of text as they come and breaks lines between words.

    ``indent`` begins every line after a break.
    """

    def __init__(self, width: int, write: Callable[[str], None], indent: str = "") -> None:
        self._width = width
        self._write = write
        self._indent = indent
        self._column = 0
        self._word = ""
        self._blanks = ""

    def add(self, piece: str) -> None:
        """Write a piece; its last word waits for the next one."""
        for character in piece.expandtabs(4):
            if character == "\n":
                self._flush()
                self._write("\n")
                self._column, self._blanks = 0, ""
            elif character == " ":
                self._flush()
                self._blanks += character
            else:
                longer = self._word + character
                # What adds no column belongs to the character before it.
                fits = columns(longer) <= self._width - len(self._indent)
                if not fits and columns(longer) > columns(self._word):
                    self._flush()
                    longer = character
                self._word = longer

    def end(self) -> None:
        """Write what waits, and end the line."""
        self._flush()
        if self._column:
            self._write("\n")

    def _flush(self) -> None:
        if not self._word:
            return
        width = columns(self._word)
        if self._column and self._column + len(self._blanks) + width > self._width:
            self._write("\n" + self._indent)
            self._column, self._blanks = len(self._indent), ""
        self._write(self._blanks + self._word)
        self._column += len(self._blanks) + width
        self._word = self._blanks = ""
