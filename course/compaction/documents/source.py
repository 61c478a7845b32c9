"""Source files: one unit per function or class; elsewhere, one per block between blank lines."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence

from compaction.documents.units import LINE, Unit, cut, first_words, full_name

PYTHON_KINDS = ("python", "py")
_COMMENT = re.compile(r"^\s*(?:#|//|/\*|\*|--|;|<!--|\"{3}|'{3})")
_CLOSING = re.compile(r"^\s*(?:[)\]}]|end\b|fi\b|done\b|esac\b)")


def source_units(text: str, family: str, prefix: str) -> list[Unit]:
    lines = LINE.findall(text)
    defined: dict[int, tuple[str, str]] = {}
    if family in (*PYTHON_KINDS, "source", "code"):
        defined, starts = _python_starts(text, lines)
    if not defined:
        starts = _block_starts(lines)
    units = []
    for start, piece in cut(lines, starts):
        kind, name = defined.get(start, ("", ""))
        if not kind:
            kind = _block_kind(piece, family)
            name = f"{kind} at line {start + 1}: {first_words(piece)}"
        prose = family in ("text", "plain", "log", "txt")
        units.append(Unit(piece, kind, not prose and kind != "comment", full_name(prefix, name)))
    return units


def _python_starts(text: str, lines: Sequence[str]) -> tuple[dict[int, tuple[str, str]], list[int]]:
    """Return the (kind, name) of each definition by its first line, and where pieces begin."""
    try:
        with warnings.catch_warnings():  # about the text, such as an odd escape in a string
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}, []
    defined: dict[int, tuple[str, str]] = {}
    starts = []
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)]) - 1
        # A comment right above a definition belongs to it.
        while first and lines[first - 1].startswith("#"):
            first -= 1
        defined[first] = ("class" if isinstance(node, ast.ClassDef) else "function", node.name)
        after = node.end_lineno or node.lineno
        while after < len(lines) and not lines[after].strip():
            after += 1
        starts += [first, after]
    return defined, [start for start in starts if start < len(lines)]


def _block_starts(lines: Sequence[str]) -> list[int]:
    """Return where blocks begin: after blank lines, at a line that stands as far left as any.

    A blank line inside a function's body starts none, because an indented line or a closing
    bracket follows it.
    """
    written = [line for line in lines if line.strip()]
    margin = min((_indent(line) for line in written), default=0)
    return [
        position
        for position, line in enumerate(lines)
        if position
        and line.strip()
        and not lines[position - 1].strip()
        and _indent(line) <= margin
        and not _CLOSING.match(line)
    ]


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip(" "))


def _block_kind(text: str, family: str) -> str:
    if family in ("text", "plain", "log", "txt"):
        return "text"
    written = [line for line in text.splitlines() if line.strip()]
    return "comment" if all(_COMMENT.match(line) for line in written) else "code"
