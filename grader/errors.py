"""What cannot be used, and how to name it: one line that no terminal obeys."""

from __future__ import annotations

from compaction.files import InputError


class BadInput(InputError):
    """Input that cannot be used; its text is one line: what, where, and what was expected."""


def printable(text: str) -> str:
    r"""Return a text whose control characters are escaped: nothing steers a reader's terminal.

    >>> print(printable("a\x1b[2Jb 好"))
    a\x1b[2Jb 好
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
