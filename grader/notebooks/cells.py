"""Read a notebook's cells as IPython would, and choose what one function needs of them.

In goes the text of the cells; out comes a plan: groups of statements to run, a group a cell.

A cell that plots something costs more than all checks together, and a cell that hangs should
not cost the function in another cell its points. So only what the function's code refers to is
run, statement by statement, in the order of the notebook; where that is not enough (the program
that runs the groups sees a name missing), everything is run.

This file is also copied into the sandbox. Nothing in it executes a learner's code.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

Source = tuple[str, str]
"""A cell: the name that messages call it by, and its source."""

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
_VALUE = re.compile(r"[\w.,\[\] *]+=[ \t]*[%!]")
_TIMED = re.compile(r"%time[ \t]+(?=\S)")


@dataclass(frozen=True)
class Group:
    """Statements of one cell to run together; ``cell`` counts from 0."""

    cell: int
    body: ast.Module


@dataclass(frozen=True)
class Plan:
    """What to run, which cells are no Python (cell and reason), and whether more could be run."""

    groups: tuple[Group, ...]
    faults: tuple[tuple[int, str], ...]
    left_out: bool


def plan(cells: Sequence[Source], function: str, whole: bool = False) -> Plan:
    """Choose what to run of the cells so that ``function`` is there; all of it when ``whole``.

    >>> cells = [("a", "import math, os"), ("b", "def up(x): return math.ceil(x)"), ("c", "up(1)")]
    >>> [ast.unparse(group.body) for group in plan(cells, "up").groups]
    ['import math', 'def up(x):\\n    return math.ceil(x)']
    """
    trees: dict[int, ast.Module] = {}
    faults = []
    for number, (name, source) in enumerate(cells):
        try:
            trees[number] = parse(source, name)
        except NotPython as reason:
            faults.append((number, str(reason)))
    chosen = {number: list(tree.body) for number, tree in trees.items()}
    if not whole:
        with suppress(RecursionError):  # lambdas in lambdas: then all of it
            chosen = _choose(trees, function)
    groups = tuple(
        Group(number, ast.Module(body=body, type_ignores=[]))
        for number, body in sorted(chosen.items())
        if body
    )
    runs = sum(len(group.body.body) for group in groups)
    return Plan(groups, tuple(faults), runs < sum(len(tree.body) for tree in trees.values()))


# --- reading a cell ---------------------------------------------------------------------


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


def _parsed(source: str, name: str) -> ast.Module:
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


# --- choosing statements ----------------------------------------------------------------


class _Statement:
    def __init__(self, cell: int, node: ast.stmt) -> None:
        self.cell, self.node, self.chosen = cell, node, False
        self.binds = set(bound_names(node))
        self.kind = _kind(node)  # import, definition, or other

    # Looked for only when asked for: most statements are never needed.

    @cached_property
    def uses(self) -> set[str]:
        return free_names(self.node)

    @cached_property
    def changes(self) -> set[str]:
        return set(_changed(self.node))


def _choose(trees: dict[int, ast.Module], function: str) -> dict[int, list[ast.stmt]]:
    statements = [_Statement(cell, node) for cell, tree in trees.items() for node in tree.body]
    # Who gives a name its value, who changes what it holds, who mentions it.
    binders: dict[str, list[_Statement]] = defaultdict(list)
    changers: dict[str, list[_Statement]] = defaultdict(list)
    users: dict[str, list[_Statement]] = defaultdict(list)
    for statement in statements:
        for name in statement.binds:
            binders[name].append(statement)
        # An import or a definition that nobody needs does nothing; another statement may fill a
        # list that is needed (``seen.append(1)``) or set an attribute of something that is.
        if statement.kind == "other":
            for name in statement.changes:
                changers[name].append(statement)
            for name in statement.uses:
                users[name].append(statement)
    waiting: list[_Statement] = []

    def choose(these: Iterable[_Statement]) -> None:
        for statement in these:
            if not statement.chosen:
                statement.chosen = True
                waiting.append(statement)

    # The function's own cells are run whole: what is beside it may be meant for it. And what
    # an import of everything binds is not known; one from __future__ holds for all cells below.
    home = {s.cell for s in binders[function] if s.kind != "import"}
    choose(s for s in statements if s.cell in home)
    choose(s for s in statements if s.kind == "import" and s.binds & {"*", "__future__"})
    needed: set[str] = {function}
    data: set[str] = set()  # names that hold data: who mentions one may change what it holds
    choose([*binders[function], *changers[function]])
    # A chosen statement needs names of its own, which choose others, above it or below. Each
    # statement and each name has its turn once, so this takes time in proportion to the code.
    while waiting:
        statement = waiting.pop()
        for name in statement.uses - needed:
            needed.add(name)
            choose([*binders[name], *changers[name]])
        if statement.kind == "other":  # a definition is not changed by who mentions it
            for name in statement.binds - data:
                data.add(name)
                choose(users[name])
    return _by_cell(statements, home, needed)


def _by_cell(
    statements: Iterable[_Statement], home: set[int], needed: set[str]
) -> dict[int, list[ast.stmt]]:
    """Return the chosen statements of each cell."""
    chosen: dict[int, list[ast.stmt]] = {}
    for statement in statements:
        if statement.chosen:
            node = statement.node
            # Of an import elsewhere only the names in need: the others may be slow, or not there.
            if statement.kind == "import" and statement.cell not in home:
                node = _only_needed(node, needed)
            chosen.setdefault(statement.cell, []).append(node)
    return chosen


def _kind(node: ast.stmt) -> str:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "import"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return "definition"
    return "other"


def _only_needed(node: ast.stmt, needed: set[str]) -> ast.stmt:
    assert isinstance(node, ast.Import | ast.ImportFrom)
    names = [alias for alias in node.names if _name_of(alias) in needed]
    if not names:  # import *, and from __future__
        return node
    if isinstance(node, ast.Import):
        return ast.copy_location(ast.Import(names=names), node)
    return ast.copy_location(ast.ImportFrom(node.module, names, node.level), node)


def _name_of(alias: ast.alias) -> str:
    return alias.asname or alias.name.split(".")[0]


def bound_names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a top-level statement binds in the notebook's namespace."""
    for part in _outside_functions(node):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            yield part.id
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield part.name
        elif isinstance(part, ast.Import | ast.ImportFrom):
            yield from map(_name_of, part.names)
            if isinstance(part, ast.ImportFrom) and part.module == "__future__":
                yield "__future__"
        elif isinstance(part, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and part.name:
            yield part.name
        elif isinstance(part, ast.MatchMapping) and part.rest:
            yield part.rest


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Walk through a statement, but not into the bodies of functions, classes and lambdas."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(part))


def _changed(node: ast.stmt) -> Iterable[str]:
    """Yield the names of which a statement sets an attribute or an item."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
            root: ast.expr = part
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name):
                yield root.id


# --- the names that code takes from around it -------------------------------------------

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def free_names(node: ast.AST, annotations: bool = True) -> set[str]:
    """Return the names that a piece of code takes from around it.

    Without ``annotations``, as if none was ever evaluated.

    >>> sorted(free_names(ast.parse("def f(x=y):\\n    z = len(x)\\n    return z")))
    ['len', 'y']
    """
    names: set[str] = set()
    for part in _in_scope(node, annotations):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Store):
            names.add(part.id)
        elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            names.add(part.target.id)
        elif isinstance(part, _FUNCTIONS):
            names |= _free_in_function(part, annotations)
    return names


def _free_in_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, annotations: bool
) -> set[str]:
    body: list[ast.AST] = [*node.body] if isinstance(node.body, list) else [node.body]
    around: list[ast.AST] = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    around += getattr(node, "decorator_list", [])
    parameters = [part for part in ast.walk(node.args) if isinstance(part, ast.arg)]
    if annotations:
        around += [part.annotation for part in parameters if part.annotation]
        around += filter(None, [getattr(node, "returns", None)])
    local = {part.arg for part in parameters}
    shared: set[str] = set()
    names: set[str] = set()
    for statement in body:
        names |= free_names(statement, annotations)
        for part in _outside_functions(statement):
            local.update(_stored(part))
            if isinstance(part, ast.Global):
                shared.update(part.names)
    return (names - (local - shared)).union(
        shared, *(free_names(part, annotations) for part in around)
    )


def _in_scope(node: ast.AST, annotations: bool) -> Iterator[ast.AST]:
    """Walk through code, but not into functions."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, _FUNCTIONS):
            continue
        for name, value in ast.iter_fields(part):
            if annotations or name != "annotation":
                values = value if isinstance(value, list) else [value]
                waiting.extend(child for child in values if isinstance(child, ast.AST))


def _stored(node: ast.AST) -> Iterable[str]:
    """Return the names that this one piece of a function's code binds in that function."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return (node.id,)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return map(_name_of, node.names)
    if isinstance(node, ast.ExceptHandler) and node.name:
        return (node.name,)
    return ()
