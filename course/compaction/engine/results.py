"""Results that are too large for the window: whole on disk, head and tail in the history.

In goes a tool's result, and how many tokens are free; out comes the message that the history gets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from compaction.engine.decide import Decision, Lines
from compaction.engine.measuring import Measuring
from compaction.messages import Message, content_of

SMALLEST_EXCERPT_TOKENS = 150
"""An excerpt of less than about this many tokens says too little to be worth it."""

_LEFT_OUT = "[left out here: "
_LONG_LINE = 400  # characters; in longer lines, a part is named by characters, not by lines


RESULT_LEEWAY = 500
"""Characters by which a result may be too long: what a tool says about its result comes on top."""


class ResultFolder:
    """A folder that keeps whole results, each in a file of its own that only its owner can read.

    >>> import tempfile
    >>> folder = ResultFolder(Path(tempfile.mkdtemp()))
    >>> kept = folder.keep("read_file", "all of it")
    >>> kept.name, kept.read_text()
    ('read_file_1.txt', 'all of it')
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def keep(self, name: str, text: str) -> Path:
        """Write a result to a new file, and return where; raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        stem = re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:40] or "result"
        for number in count(1):
            path = self.path / f"{stem}_{number}.txt"
            try:
                with open(path, "x", encoding="utf-8", errors="replace", newline="") as file:
                    path.chmod(0o600)
                    file.write(text)
            except FileExistsError:
                continue
            return path.resolve()
        raise AssertionError("the loop ends by returning")


def excerpt(text: str, path: Path, share: float) -> str:
    r"""Return about ``share`` of a text: its head, its tail, and how to read what is between.

    Three parts in four are head. Text of many lines is cut between lines.

    >>> text = "".join(f"line {number}\n" for number in range(1, 101))
    >>> print(excerpt(text, Path("/tmp/log.txt"), 0.04))
    line 1
    line 2
    line 3
    [left out here: lines 4 to 99 of 100; all of it: sed -n '4,99p' /tmp/log.txt]
    line 100
    """
    characters = max(1, int(len(text) * share))
    head, tail = text[: characters * 3 // 4], text[len(text) - characters // 4 :]
    quoted = shlex.quote(str(path))
    lines = text.split("\n")[: -1 if text.endswith("\n") else None]
    if len(text) <= len(lines) * _LONG_LINE:
        above = max(1, head.count("\n"))
        below = max(1, tail.rstrip("\n").count("\n"))
        first, last = above + 1, len(lines) - below
        shown = sum(len(line) + 1 for line in [*lines[:above], *lines[last:]])
        # A line far longer than the others would be most of the text again.
        if first <= last and shown <= characters + 2 * _LONG_LINE:
            where = f"lines {first} to {last} of {len(lines)}"
            how = f"sed -n '{first},{last}p' {quoted}"
            between = f"{_LEFT_OUT}{where}; all of it: {how}]"
            return "\n".join([*lines[:above], between, *lines[last:]])
    where = f"{len(text) - len(head) - len(tail):,} of {len(text):,} characters"
    how = f"tail -c +{len(head.encode()) + 1} {quoted} | head -c 2000"
    return f"{head}\n{_LEFT_OUT}{where}; the first of them: {how}]\n{tail}"


def largest_result(
    messages: Sequence[Message], tokens_of: Callable[[Message], int]
) -> tuple[int, int] | None:
    """Return position and tokens of the largest result that could be cut down; None without one."""
    sizes = [
        (tokens_of(message), position)
        for position, message in enumerate(messages)
        if message.get("role") == "tool" and isinstance(message.get("content"), str)
    ]
    tokens, position = max(sizes, default=(0, 0))
    return (position, tokens) if tokens > 2 * SMALLEST_EXCERPT_TOKENS else None


class Results:
    """Cuts results down to what is free, and keeps them whole in a folder.

    One of more than ``most_characters`` is cut down however much is free. ``note`` is told a line.
    """

    def __init__(
        self,
        folder: Path,
        measuring: Measuring,
        most_characters: int | None,
        note: Callable[[str], object],
    ) -> None:
        self._folder = ResultFolder(folder)
        self._measuring = measuring
        self._most = most_characters
        self._note = note

    def fitting(
        self, message: Message, name: str, history: list[Message], lines: Lines, waiting: int
    ) -> Message:
        """Return a result as it is where it fits, else its head and tail.

        ``waiting`` calls of the same round are still to be answered.
        """
        tokens = self._measuring.tokens_of(message)
        if tokens <= 2 * SMALLEST_EXCERPT_TOKENS:
            return message
        line = lines.line_of(Decision.COMPACT_EMERGENCY)
        # The calls that wait for their turn need some room as well.
        used = self._measuring.at_most(history) + (waiting + 1) * SMALLEST_EXCERPT_TOKENS
        free = int(line - used)
        room = free // 2 if tokens > free else tokens
        length = len(content_of(message))
        if self._most is not None and length > self._most + RESULT_LEEWAY:
            room = min(room, tokens * self._most // length)
        return message if room == tokens else self._cut_down(message, name, room, lines)

    def shortened(self, history: list[Message], lines: Lines) -> list[Message] | None:
        """Return a history with its largest result cut down; None where that frees nothing."""
        found = largest_result(history, self._measuring.tokens_of)
        if found is None:
            return None
        position, tokens = found
        shorter = self._cut_down(history[position], "result", tokens // 8, lines)
        if self._measuring.tokens_of(shorter) >= tokens:
            return None
        return [*history[:position], shorter, *history[position + 1 :]]

    def _cut_down(self, message: Message, name: str, room: int, lines: Lines) -> Message:
        """Keep a result whole on disk, and return its head and tail of about ``room`` tokens."""
        text, tokens = str(message["content"]), self._measuring.tokens_of(message)
        room = max(SMALLEST_EXCERPT_TOKENS, min(room, lines.room // 8))
        try:
            path = self._folder.keep(name, text)
        except OSError as error:
            self._note(f"a result of {tokens:,} tokens could not be kept: {error.strerror}")
            path = Path("(it could not be kept)")
        self._note(f"a result of {tokens:,} tokens is cut down; all of it: {path}")
        return {**message, "content": excerpt(text, path, min(1.0, room / tokens))}
