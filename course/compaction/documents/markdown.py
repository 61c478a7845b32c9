"""Markdown: one unit per section; nothing in a fence or in the front matter is a heading."""

from __future__ import annotations

from collections.abc import Sequence

from compaction.documents.units import (
    LINE,
    MARKED_DECISION,
    MARKED_RULE,
    RULE_TITLE,
    Unit,
    cut,
    full_name,
)
from compaction.probes import fold

_FRONT_MATTER_END = ("---", "...")


def markdown_units(text: str, prefix: str) -> list[Unit]:
    """Return a unit for each section; a fence, a comment or the front matter opens none.

    >>> [unit.name for unit in markdown_units("# A\\n```\\n# no\\n```\\n## B\\n", "")]
    ['A', 'A > B']
    """
    lines = LINE.findall(text)
    titles, hidden = _headings_and_code(lines)
    path: list[tuple[int, str]] = []
    units = []
    for start, piece in cut(lines, titles):
        if start in titles:
            level, title = titles[start]
            path = [*((n, t) for n, t in path if n < level), (level, title)]
        end = start + len(LINE.findall(piece))
        prose = "".join(lines[n] for n in range(start, end) if n not in hidden)
        kind = "section"
        if MARKED_RULE.search(prose) or (path and RULE_TITLE.search(path[-1][1])):
            kind = "constraint"
        elif MARKED_DECISION.search(prose):
            kind = "decision"
        named = " > ".join(title or "(untitled)" for _, title in path) or "(beginning)"
        units.append(Unit(piece, kind, kind != "section", full_name(prefix, named)))
    return units


def _headings_and_code(
    lines: Sequence[str],
) -> tuple[dict[int, tuple[int, str]], set[int]]:
    """Return the (level, title) of the headings by line, and the lines that are not prose."""
    from markdown_it import MarkdownIt

    front = _front_matter(lines)
    # Blank lines in the place of the front matter: a parser would see a heading in it.
    bare = ["\n" if n < front else line.rstrip("\r\n") + "\n" for n, line in enumerate(lines)]
    tokens = MarkdownIt("commonmark").parse("".join(bare))
    titles: dict[int, tuple[int, str]] = {}
    hidden = set(range(front))
    for number, token in enumerate(tokens):
        if token.map is None:
            continue
        if token.type == "heading_open" and token.level == 0:
            titles[token.map[0]] = int(token.tag[1:]), fold(tokens[number + 1].content)
        elif token.type in ("fence", "code_block", "html_block"):
            hidden.update(range(*token.map))
    return titles, hidden


def _front_matter(lines: Sequence[str]) -> int:
    """Return how many lines the front matter takes: 0 where it is not closed."""
    if not lines or lines[0].rstrip() != "---":
        return 0
    ends = (n for n, line in enumerate(lines) if n and line.rstrip() in _FRONT_MATTER_END)
    return next(ends, -1) + 1
