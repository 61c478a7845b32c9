"""Markdown: a unit a section; what a fence or the front matter holds is no heading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from compaction.documents.lines import LINE, cut
from compaction.documents.units import (
    MARKED_DECISION,
    MARKED_RULE,
    RULE_TITLE,
    Unit,
    full_name,
)
from compaction.probes import fold

_FENCE = re.compile(r"^[ \t]*(?:(?:>|[-*+]|\d+[.)])[ \t]*)*(?P<mark>`{3,}|~{3,})(?P<info>[^\r\n]*)")
_HEADING = re.compile(r"^ {0,3}(?P<marks>#{1,6})(?=\s|$)")
_UNDERLINE = re.compile(r"^ {0,3}(?P<mark>=+|-{2,})[ \t]*[\r\n]*$")
_NO_TITLE = re.compile(r"^(?:\s*$| {4}|\t|\s*(?:[-*+>|#]|\d+[.)]\s))")


def markdown_units(text: str, prefix: str) -> list[Unit]:
    lines = LINE.findall(text)
    titles = dict(_headings(lines))
    path: list[tuple[int, str]] = []
    units = []
    for start, piece in cut(lines, titles):
        if start in titles:
            level, title = titles[start]
            path = [*((n, t) for n, t in path if n < level), (level, title)]
        kind = "section"
        prose = "".join(_outside_fences(LINE.findall(piece)))
        if MARKED_RULE.search(prose) or (path and RULE_TITLE.search(path[-1][1])):
            kind = "constraint"
        elif MARKED_DECISION.search(prose):
            kind = "decision"
        named = " > ".join(title or "(untitled)" for _, title in path) or "(beginning)"
        units.append(Unit(piece, kind, kind != "section", full_name(prefix, named)))
    return units


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield (line, (level, title)) of the headings outside code fences and front matter."""
    fenced = _fenced(lines)
    for position, line in enumerate(lines):
        if fenced[position]:
            continue
        heading = _HEADING.match(line)
        if heading:
            yield position, (len(heading["marks"]), _title_of(line[heading.end() :]))
            continue
        underline = _UNDERLINE.match(line)
        if underline and position and not fenced[position - 1]:
            title = lines[position - 1]
            if not _NO_TITLE.match(title):
                yield position - 1, (1 if underline["mark"][0] == "=" else 2, fold(title))


def _title_of(text: str) -> str:
    """Return a heading's title without the closing marks that may follow it."""
    title = fold(text)
    bare = title.rstrip("#")
    return bare.rstrip() if not bare or bare.endswith(" ") else title


def _fenced(lines: Sequence[str]) -> list[bool]:
    """Say of each line whether it belongs to a code fence or to the front matter."""
    inside = [False] * len(lines)
    mark = ""
    front = bool(lines) and lines[0].rstrip() == "---"
    if front:
        end = next((n for n, t in enumerate(lines) if n and t.rstrip() in ("---", "...")), 0)
        inside[: end + 1] = [True] * (end + 1)
    for position, line in enumerate(lines):
        if inside[position]:
            continue
        fence = _FENCE.match(line)
        if mark:
            inside[position] = True
            if fence and fence["mark"].startswith(mark) and not fence["info"].strip():
                mark = ""
        elif fence and not (fence["mark"][0] == "`" and "`" in fence["info"]):
            inside[position] = True
            mark = fence["mark"]
    return inside


def _outside_fences(lines: Sequence[str]) -> list[str]:
    return [line for line, inside in zip(lines, _fenced(lines), strict=True) if not inside]
