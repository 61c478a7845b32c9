"""Read a cell's text as IPython would: Python, with magics and shell lines made harmless.

In goes the text of a cell; out comes its syntax tree, with each statement on its own line. Nothing
here executes a learner's code, and everything takes time in proportion to the text.

This file is also copied into the sandbox.
"""

from __future__ import annotations

import ast
import re

PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun")
"""Magics whose cell is Python all the same; the cells of all other magics are left out."""

# What a cell is made of, as far as it matters where a statement begins: texts (a long one may run
# on to the end), comments, brackets, line ends. Each alternative takes its text in one go.
_PART = re.compile(
    r"""(?P<text>\"\"\"(?:[^\\"]|\\.|"(?!""))*(?:\"\"\"|\Z)|\'\'\'(?:[^\\']|\\.|'(?!''))*(?:\'\'\'|\Z)
    |"(?:[^\\"\n]|\\.)*"?|'(?:[^\\'\n]|\\.)*'?)
    |(?P<comment>\#[^\n]*)|(?P<opening>[\[({])|(?P<closing>[\])}])|(?P<joined>\\\n)|(?P<end>\n)""",
    re.VERBOSE | re.DOTALL,
)
# A shell line or a magic whose value is assigned; `!=` and `+=` assign none.
_VALUE = re.compile(r"[\w*][^=\n#()]*(?<![-!<>+*/%&|^@~:])=[ \t]*[%!]")
_TIMED = re.compile(r"%time[ \t]+(?=\S)")


class NotPython(Exception):
    """A cell that cannot be read as Python; the text says why."""


def parse(source: str, name: str = "<cell>") -> ast.Module:
    """Read a cell as IPython would, leaving out magics and shell lines.

    >>> ast.unparse(parse("%matplotlib inline\\nx = 1\\n!ls"))
    'pass\\nx = 1\\npass'

    Raises NotPython.
    """
    source = source.removeprefix("\ufeff")
    first = source.lstrip().split("\n", 1)
    if first[0].startswith("%%"):
        if first[0].split()[0] not in PYTHON_MAGICS:
            return ast.Module(body=[], type_ignores=[])
        above = source[: len(source) - len(source.lstrip())].count("\n")
        source = "\n" * (above + 1) + (first[1] if len(first) > 1 else "")
    try:
        return _parsed(source, name)
    except NotPython:
        # Only code that Python refuses can have magics in it: all else stays untouched.
        without = without_magics(source)
        if without == source:
            raise
        return _parsed(without, name)


_ONLY_READ = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


MAX_FIELDS = 1000
"""More fields than this in one f-string are not read: Python takes time by their square."""


def _parsed(source: str, name: str) -> ast.Module:
    if source.count("{") > MAX_FIELDS and _most_fields(source) > MAX_FIELDS:
        raise NotPython(f"more than {MAX_FIELDS:,} fields in one f-string")
    try:
        tree = compile(source, name, "exec", _ONLY_READ, dont_inherit=True)
    except SyntaxError as error:
        raise NotPython(_in_words(error)) from None
    except (ValueError, OverflowError) as error:
        raise NotPython(f"{type(error).__name__}: {error}") from None
    except (RecursionError, MemoryError):
        raise NotPython("SyntaxError: nested too deep") from None
    assert isinstance(tree, ast.Module)
    return tree


def _most_fields(source: str) -> int:
    """Return how many fields the longest text may have that could be an f-string."""
    texts = (part for part in _PART.finditer(source) if part.lastgroup == "text")
    return max((text[0].count("{") for text in texts if _is_f_string(source, text)), default=0)


def _is_f_string(source: str, text: re.Match[str]) -> bool:
    return "f" in source[max(0, text.start() - 2) : text.start()].lower()


def without_magics(source: str) -> str:
    """Return a cell's text with each magic and shell line made harmless, line for line.

    >>> without_magics("files = !ls\\n%time x = 1\\ns = \'\'\'\\n!kept\\n\'\'\'")
    "files = None\\nx = 1\\ns = \'\'\'\\n!kept\\n\'\'\'"
    """
    indent = re.match(r"[ \t]*", source)[0]  # type: ignore[index]
    lines = source.split("\n")
    if indent:  # a cell that is indented as a whole runs as if it were not
        lines = [line.removeprefix(indent) for line in lines]
    starts = _statement_lines("\n".join(lines))
    number = 0
    while number < len(lines):
        plain = _harmless(lines[number]) if number in starts else None
        if plain is not None:
            lines[number] = plain[0]
            # A shell line goes on where it ends in a backslash.
            while plain[1].endswith("\\") and number + 1 < len(lines):
                number += 1
                plain = ("", lines[number])
                lines[number] = ""
        number += 1
    return "\n".join(lines)


def _harmless(line: str) -> tuple[str, str] | None:
    """Return what to put in the place of a magic line, and its own text; None for another line."""
    code = line.lstrip()
    indent = line[: len(line) - len(code)]
    timed = _TIMED.match(code)
    if timed is not None:
        return indent + code[timed.end() :], ""
    value = _VALUE.match(code)
    if value is not None:
        return f"{indent}{value[0][:-1].rstrip()} None", code
    asks = code.rstrip().endswith("?") and not {"#", "'", '"'} & set(code)
    if code.startswith(("%", "!", "?")) or asks:
        return f"{indent}pass", code
    return None


def _statement_lines(source: str) -> set[int]:
    """Return the numbers of the lines, from 0, at whose beginning a statement may begin."""
    starts, number, depth, at_start = {0}, 0, 0, False
    place = 0
    magic = _is_magic_at(source, 0)
    while (part := _PART.search(source, place)) is not None:
        place = part.end()
        if part.lastgroup in ("end", "joined"):
            number += 1
            at_start = part.lastgroup == "end" and (depth == 0 or magic)
            if at_start:
                starts.add(number)
                magic = _is_magic_at(source, place)
                depth = 0
        elif magic:  # in a shell line quotes and brackets mean nothing: on to its end
            end = source.find("\n", part.start())
            place = len(source) if end < 0 else end
            if end > 0 and source[end - 1] == "\\":
                number, place = number + 1, end + 1
        elif part.lastgroup == "text":
            number += part[0].count("\n")
        elif part.lastgroup in ("opening", "closing"):
            depth = max(0, depth + (1 if part.lastgroup == "opening" else -1))
    return starts


def _is_magic_at(source: str, place: int) -> bool:
    end = source.find("\n", place)
    return _harmless(source[place : len(source) if end < 0 else end]) is not None


def _in_words(error: SyntaxError) -> str:
    place = f" (line {error.lineno})" if error.lineno else ""
    return f"{type(error).__name__}: {error.msg}{place}"
