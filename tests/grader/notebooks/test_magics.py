"""A cell's text is read as IPython reads it, and in time in proportion to its length."""

from __future__ import annotations

import ast
import contextlib
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grader.notebooks.magics import MAX_FIELDS, NotPython, parse, without_magics

MAGICS = [
    "%matplotlib inline\nx = 1",
    "files = !ls\nx = 1",
    "here = %pwd",
    "a, b = !ls\n",
    "%%time\nx = 1",
    "\n\n%%time\nx = 1\ny = 2",
    "%%timeit\nx = 1",
    "%%prun\nx = 1\ndef f(): return x",
    "%%capture out\nprint(1)",
    "!ls \\\n  -l\nx = 1",
    "x = !ls \\\n  -l\ny = 1",
    "s = '''\n!not a command\n%nor this\n'''\n!ls",
    'def f():\n    """Say\n    !hello\n    """\n    return 1\n!ls',
    "if True:\n    !ls\n    x = 1",
    "for i in y:\n    %time f(i)",
    "?len\nx = 1",
    "len?\nx = 1",
    "x = (1\n     % 2)\n!ls",
    "x = 1  # is it?\n!echo it's \"\nz = 3",
    "print('a?')\n%pwd",
    "    x = 1\n    y = 2",
    "    !ls\n    x = 1",
    "!ls (\nx = 1",
    "x = {'a': 1,\n'b': '''\n!c'''}\n%pwd",
]


@pytest.mark.parametrize("source", MAGICS)
def test_a_cell_is_read_as_ipython_reads_it(source: str) -> None:
    transformer = pytest.importorskip("IPython.core.inputtransformer2").TransformerManager()
    body = source
    if source.lstrip().startswith("%%"):  # IPython hands the body on as a text
        body = source.lstrip().split("\n", 1)[1]
    expected = _without_calls_of_ipython(ast.parse(transformer.transform_cell(body)))
    assert ast.dump(parse(source)) == ast.dump(expected)


def _without_calls_of_ipython(tree: ast.Module) -> ast.Module:
    """Put what this reader puts in the place of a magic: pass, None, or the timed statement."""

    class Plain(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.stmt:
            call = ast.unparse(node)
            if not call.startswith("get_ipython()"):
                return node
            timed = re.match(r"get_ipython\(\).run_line_magic\('time', '(.*)'\)", call)
            return ast.parse(timed[1]).body[0] if timed else ast.Pass()

        def visit_Assign(self, node: ast.Assign | ast.AnnAssign) -> ast.stmt:
            if node.value is not None and ast.unparse(node.value).startswith("get_ipython()"):
                node.value = ast.Constant(None)
            return node

        visit_AnnAssign = visit_Assign

    made: ast.Module = Plain().visit(tree)
    return made


def test_a_byte_order_mark_is_no_part_of_the_code() -> None:
    assert ast.unparse(parse("\ufeffx = 1")) == "x = 1"
    assert ast.unparse(parse("\ufeff%%time\nx = 1")) == "x = 1"


PIECES = [
    "",
    "!ls",
    "!!ls",
    "!ls \\\n  -l",
    "!echo it's \" (",
    "%pwd",
    "%%pwd",
    "x = !ls",
    "x = %pwd",
    "x = %pwd \\\n  -l",
    "a, b = !ls",
    "x.y = !ls",
    "x['a'] = %pwd",
    "x: list = !ls",
    "%time y = 1",
    "?len",
    "len?",
    "len??",
    "x = 1",
    "x != 1",
    "y = (1\n  % 2)",
    "y = 5 \\\n  % 2",
    "s = '''\n!no\n%no\nx = !ls\n'''",
    'def f():\n    """Say\n    !no\n    """\n    !ls\n    return 1',
    "if x:\n    %pwd\n    z = !ls",
    "for i in x:\n    %time f(i)",
    "class C:\n    a = !ls",
    "# !no, it's",
    "z = 1  # is it?",
    "f'{x!r}' + \"%s\" % '!'",
    "w = {'a': 1,\n'b': [\n'!c']}",
    "@a\ndef g(): pass",
]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4), st.sampled_from(["\n", "\n\n"]))
@example(["!ls \\\n  -l", "x = !ls"], "\n")
def test_whatever_is_put_together_is_read_as_ipython_reads_it(pieces: list[str], end: str) -> None:
    source = end.join(pieces)
    if source.lstrip().startswith("%%"):
        source = f"0\n{source}"  # the beginning of a cell has magics of its own
    test_a_cell_is_read_as_ipython_reads_it(source)


@pytest.mark.parametrize("before", ["", "\n", "\n  \n", "\ufeff"])
@pytest.mark.parametrize("magic", ["%%time", "%%timeit -n 1", "%%capture out", "%%prun"])
@pytest.mark.parametrize("piece", PIECES)
def test_below_a_cell_magic_the_rest_is_read_the_same(before: str, magic: str, piece: str) -> None:
    piece = piece.replace("%%", "%")  # at the beginning of a cell it means something else
    read = parse(f"{before}{magic}\n{piece}")
    assert ast.dump(read) == ast.dump(parse(piece))
    above = before.count("\n") + 1
    for node, alone in zip(read.body, parse(piece).body, strict=True):
        assert node.lineno == alone.lineno + above


# --- time -------------------------------------------------------------------------------

WORST: dict[str, Callable[[int], str]] = {
    "shell lines": lambda n: "!ls\n" * (n // 4),
    "question marks": lambda n: "? " * (n // 2) + "x",
    "spaces": lambda n: " " * n + "x =",
    "names before a shell line": lambda n: "a b " * (n // 4) + "= !ls",
    "quotes": lambda n: "x = (" + "'" * n,
    "open brackets": lambda n: "(\n" * (n // 2) + "%pwd",
    "texts without an end": lambda n: "'''" * (n // 3) + "\n!ls",
    "a long list": lambda n: "x = [" + "1, " * (n // 3) + "]\n!ls",
    "a long sum": lambda n: "x = " + " + ".join(["1"] * (n // 4)) + "\n!ls",
    "continued lines": lambda n: "\\\n" * (n // 2) + "!ls",
    "continued shell lines": lambda n: "!a\\\n" * (n // 4),
    "brackets in a shell line": lambda n: "!" + "(" * n,
    "cell magics": lambda n: "%%time\n" * (n // 7),
    "timed statements": lambda n: "%time " * (n // 6),
    "a comment": lambda n: "#" * n + "\n!x",
    "fields of an f-string": lambda n: "x = f'" + "{x}" * (n // 3) + "'\n!ls",
    "half a surrogate pair": lambda n: "x = '" + "\ud800" * n + "'\n!ls",
}


def cpu_s(source: str) -> float:
    """Return the lesser of two times that reading a cell takes."""
    times = []
    for _ in range(2):
        began = time.process_time()
        with contextlib.suppress(NotPython):
            parse(source)
        without_magics(source)
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize("kind", WORST)
def test_reading_takes_time_in_proportion(kind: str) -> None:
    """Eight times the text takes far less than the 64 times of work that squares."""
    worst = WORST[kind]
    assert cpu_s(worst(40_000)) < 30 * max(cpu_s(worst(5_000)), 0.001)


@pytest.mark.parametrize("source", ["x != !ls", "x += !ls", "x == %pwd", "f(a= !ls)"])
def test_only_an_assignment_takes_the_value_of_a_magic(source: str) -> None:
    with pytest.raises(NotPython):
        parse(source)


def test_an_f_string_of_many_fields_is_not_read() -> None:
    """Python itself takes time by the square of their number."""
    assert ast.unparse(parse("x = f'" + "{x}" * MAX_FIELDS + "'"))
    for prefix in ("f", "Rf", "fR", "F"):
        with pytest.raises(NotPython, match="more than 1,000 fields in one f-string"):
            parse(f"x = {prefix}'" + "{x}" * (MAX_FIELDS + 1) + "'")


def test_many_braces_elsewhere_are_read() -> None:
    many = MAX_FIELDS + 1
    assert parse("x = '" + "{" * many + "'")
    assert parse("[" + "{}," * many + "]")
    assert parse("f'{x}'\n" * many)
