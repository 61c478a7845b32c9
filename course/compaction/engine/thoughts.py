"""Tell what a model says from what it thinks aloud: ``<think>...</think>`` is no answer."""

from __future__ import annotations

import re

_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
# Some templates open the thought themselves: then only its end is in the text, on its own line.
_LONE_CLOSE = re.compile(r"^[ \t]*</think(?:ing)?>[ \t]*$", re.IGNORECASE | re.MULTILINE)
_LONGEST_TAG = len("</thinking>")


class Visible:
    """Let the answer through as it streams in, and hold back what is thought.

    ``feed`` returns the text that can be shown so far, ``finish`` what was still held back. A
    tag in code (a fence, or backticks on the line) is what the answer talks about, not a thought.

    >>> visible = Visible()
    >>> "".join(map(visible.feed, ["<thi", "nk>Let me see.</think>\\n\\nIt is", " 4."]))
    'It is 4.'
    """

    def __init__(self) -> None:
        self._held = ""  # the end of the text so far, which may be the beginning of a tag
        self._thinking = False
        self._tag = ""  # that opened the thought
        self._shown = False  # whether anything but white space was let through
        self._fences = 0
        self._line = ""  # the line of the answer that is being written

    def feed(self, piece: str) -> str:
        self._held += piece
        return self._let_through(end=False)

    def finish(self) -> str:
        return self._let_through(end=True)

    def _let_through(self, end: bool) -> str:
        shown = ""
        while True:
            tag = (_CLOSE if self._thinking else _OPEN).search(self._held)
            if tag is None:
                break
            before, self._held = self._held[: tag.start()], self._held[tag.end() :]
            if self._thinking:
                self._thinking = False
                if not self._shown:
                    self._held = self._held.lstrip()
                continue
            shown += self._show(before)
            if self._in_code():
                shown += self._show(tag.group())
            else:
                self._thinking, self._tag = True, tag.group()
        if self._thinking:
            if end and self._shown:  # in the midst of an answer, and never closed: only a word
                shown += self._tag + self._held
            elif not self._shown:
                # Only the end can still belong to the closing tag; the thought is let go.
                self._held = self._held[-_LONGEST_TAG:]
            return shown
        keep = 0 if end else self._possible_tag()
        ready, self._held = (
            self._held[: len(self._held) - keep],
            self._held[len(self._held) - keep :],
        )
        return shown + self._show(ready)

    def _possible_tag(self) -> int:
        """Return how many characters at the end may be the beginning of an opening tag."""
        start = self._held.rfind("<")
        if start < 0:
            return 0
        rest = self._held[start:].lower()
        return len(rest) if "<thinking>".startswith(rest) or "<think>".startswith(rest) else 0

    def _show(self, text: str) -> str:
        if not self._shown:
            text = text.lstrip()
            self._shown = bool(text)
        *lines, self._line = (self._line + text).split("\n")
        self._fences += sum(line.lstrip().startswith(("```", "~~~")) for line in lines)
        return text

    def _in_code(self) -> bool:
        return self._fences % 2 == 1 or self._line.count("`") % 2 == 1


def without_thoughts(text: str) -> str:
    """Return an answer without what the model thought aloud around it.

    A text that is one thought without an end says nothing. Text without thoughts comes back as
    it is.

    >>> without_thoughts("<think>Confirmed facts: hm...</think>Confirmed facts:\\n- a")
    'Confirmed facts:\\n- a'
    >>> without_thoughts("First I look.\\n</think>\\n\\nIt is 4.")
    'It is 4.'
    """
    if not (_OPEN.search(text) or _CLOSE.search(text)):
        return text
    visible = Visible()
    answer = visible.feed(text) + visible.finish()
    ends = [end for end in _LONE_CLOSE.finditer(answer) if not _fenced(answer[: end.start()])]
    return answer[ends[-1].end() :].lstrip() if ends else answer


def _fenced(text: str) -> bool:
    return sum(line.lstrip().startswith(("```", "~~~")) for line in text.split("\n")) % 2 == 1
