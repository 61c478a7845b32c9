"""Text with lines: a line ends where an editor and Python's parser see an end, nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def cut(lines: Sequence[str], starts: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) of the pieces that begin at the given lines and at 0."""
    borders = sorted({0, *starts})
    for start, end in zip(borders, [*borders[1:], len(lines)], strict=True):
        if start < end:
            yield start, "".join(lines[start:end])
