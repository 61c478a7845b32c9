"""Which statements of a notebook are run for one function."""

from __future__ import annotations

import ast
import contextlib
import re
import textwrap
import time

import pytest

from grader.notebooks.cells import NotPython, free_names, parse, plan, without_magics


def run_of(*cells: str, function: str = "f", whole: bool = False) -> list[str]:
    """Return what is run, cell by cell, as source."""
    named = [(str(number), textwrap.dedent(cell)) for number, cell in enumerate(cells)]
    return [ast.unparse(group.body) for group in plan(named, function, whole).groups]


def test_the_functions_own_cell_is_run_whole() -> None:
    cell = "seen = []\nprint(1)\ndef f(x): return x\nf(2)"
    assert run_of(cell) == [ast.unparse(ast.parse(cell))]


def test_of_other_cells_only_what_is_referred_to() -> None:
    assert run_of(
        "import os, math\nfrom json import dumps, loads as read",
        "import matplotlib.pyplot as plt\nplt.plot([1])",
        "LIMIT = 3\nOTHER = 4\ndef helper(x): return math.floor(x) + LIMIT",
        "def f(x): return read(helper(x))",
        "print(f(3))\nwhile True: pass",
    ) == [
        "import math\nfrom json import loads as read",
        "LIMIT = 3\ndef helper(x):\n    return math.floor(x) + LIMIT".replace("\ndef", "\n\ndef"),
        "def f(x):\n    return read(helper(x))",
    ]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ("T = {}\nT['a'] = 1", True),
        ("T = []\nfor x in range(3):\n    T.append(x)", True),
        ("T = []\nT += [1]", True),
        ("T = [3, 1]\nT.sort()", True),
        ("T = []\ndef fill(): T.append(1)\nfill()", False),
        ("T = 1\nif T > 0:\n    T = 2", True),
        ("try:\n    T = 1\nexcept ValueError:\n    T = 2", True),
        ("with open('x') as T:\n    pass", True),
        ("(T := 3)", True),
        ("T, U = 1, 2", True),
        ("from os.path import *", True),
    ],
)
def test_what_makes_or_changes_a_table_is_run(others: str, expected: bool) -> None:
    run = run_of(others, "def f(): return T")
    last = ast.unparse(ast.parse(others).body[-1])
    assert any(group.endswith(last) for group in run[:-1]) is expected


def test_a_local_name_is_no_reference() -> None:
    assert run_of("from a import table", "def f():\n    table = 1\n    return table") == [
        "def f():\n    table = 1\n    return table"
    ]


def test_all_is_run_when_that_is_asked() -> None:
    cells = ("x = 1", "def f(): pass", "f()")
    assert run_of(*cells, whole=True) == [ast.unparse(ast.parse(cell)) for cell in cells]
    assert plan([("a", "x = 1"), ("b", "def f(): pass")], "f").left_out
    assert not plan([("b", "def f(): pass")], "f").left_out


def test_a_cell_that_is_no_python_is_named_and_the_others_count() -> None:
    made = plan([("a", "def f(:"), ("b", "def f(): pass")], "f")
    assert made.faults == ((0, "SyntaxError: invalid syntax (line 1)"),)
    assert [group.cell for group in made.groups] == [1]


def test_every_definition_of_the_name_is_run_in_order() -> None:
    assert run_of("def f(): return 1", "x = f", "def f(): return 2") == [
        "def f():\n    return 1",
        "def f():\n    return 2",
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("!rm -rf /\nx = 1", "pass\nx = 1"),
        ("?print\nx = 1", "pass\nx = 1"),
        ("x = 1\nprint?", "x = 1\npass"),
        ("if True:\n    !ls\nx = 1", "if True:\n    pass\nx = 1"),
        ("files = !ls\n", "files = None"),
        ("x = %pwd\n", "x = None"),
        ("%%time\nx = 1", "x = 1"),
        ("\n\n%%capture out\nx = 1", "x = 1"),
        ("%%bash\nrm -rf /", ""),
        ("%%writefile x.py\nx = 1", ""),
        ("text = '''\n!no magic\n%s\n''' % 1", "text = '\\n!no magic\\n%s\\n' % 1"),
        ("x = (7\n% 4)", "x = 7 % 4"),
        ("\ufeffx = 1", "x = 1"),
        ("\fx = 1\r\ny = 2", "x = 1\ny = 2"),
        ("await g()", "await g()"),
    ],
)
def test_cells_are_read_as_a_notebook_would(source: str, expected: str) -> None:
    assert ast.unparse(parse(source)) == expected


def test_after_a_cell_magic_lines_keep_their_numbers() -> None:
    assert parse("%%time\nx = 1").body[0].lineno == 2


@pytest.mark.parametrize(
    "source",
    [
        "def f(:",
        "x = '\ud800'",
        "x = \0",
        "(" * 5000,
        "-" * 100_000 + "1",
    ],
)
def test_what_cannot_be_read_says_why(source: str) -> None:
    with pytest.raises(NotPython) as error:
        parse(source)
    assert str(error.value) and "\n" not in str(error.value)


def test_long_sums_are_no_deep_recursion() -> None:
    total = " + ".join(["x"] * 900)
    made = plan([("a", "x = 1\ny = 2"), ("b", f"def f(): return {total}")], "f")
    assert ast.unparse(made.groups[0].body) == "x = 1"


def test_code_nested_too_deep_to_look_through_is_run_whole() -> None:
    nested = "lambda: " * 90 + "x"
    for _ in range(3):
        nested = f"({nested})(lambda: " + "lambda: " * 80 + "x)"
    assert len(plan([("a", "x = 1"), ("b", f"def f(): return {nested}")], "f").groups) == 2


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a.b[c]", {"a", "c"}),
        ("x += 1", {"x"}),
        ("del x", {"x"}),
        ("def f(a, *b, c=d, **e): return a, b, c, e, g", {"d", "g"}),
        ("def f():\n    import os\n    return os.path, sys", {"sys"}),
        ("def f():\n    global g\n    g = 1", {"g"}),
        ("def f():\n    def g(): return h, f2\n    f2 = 1", {"h"}),
        ("lambda x: x + y", {"y"}),
        ("@cache\ndef f(x: int) -> str: pass", {"cache", "int", "str"}),
        ("class C(B):\n    y: T = z\n    def m(self): return y", {"B", "T", "z", "y"}),
        ("def f():\n    try: pass\n    except E as e: print(e)", {"E", "print"}),
        ("async def f():\n    async with a as b: await b", {"a"}),
    ],
)
def test_free_names(source: str, expected: set[str]) -> None:
    assert free_names(ast.parse(source)) == expected


def test_annotations_count_only_when_asked() -> None:
    tree = ast.parse("def f(x: A = d) -> B:\n    y: C = x\n    return y\nz: D = e")
    assert free_names(tree) == {"A", "B", "C", "D", "d", "e"}
    assert free_names(tree, annotations=False) == {"d", "e"}


# --- IPython's own reading is the reference ---------------------------------------------

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

        def visit_Assign(self, node: ast.Assign) -> ast.stmt:
            if ast.unparse(node.value).startswith("get_ipython()"):
                node.value = ast.Constant(None)
            return node

    made: ast.Module = Plain().visit(tree)
    return made


def test_a_byte_order_mark_is_no_part_of_the_code() -> None:
    assert ast.unparse(parse("\ufeffx = 1")) == "x = 1"
    assert ast.unparse(parse("\ufeff%%time\nx = 1")) == "x = 1"


@pytest.mark.parametrize(
    "source",
    [
        "!ls\n" * 50_000,
        "? " * 100_000 + "x",
        " " * 200_000 + "x =",
        "a b " * 50_000 + "= !ls",
        "x = (" + "'" * 100_000,
        "(\n" * 50_000 + "%pwd",
        "'''" * 33_333 + "\n!ls",
        "x = [" + "1, " * 100_000 + "]\n!ls",
        "x = " + " + ".join(["1"] * 400) + "\n!ls",
        "\\\n" * 50_000 + "!ls",
        "x = '\ud800'\n!ls",
    ],
)
def test_reading_takes_time_in_proportion(source: str) -> None:
    """Of the worst kinds, 200 kB take no more than some seconds, and nothing else is raised."""
    began = time.process_time()
    with contextlib.suppress(NotPython):
        parse(source)
    without_magics(source)
    assert time.process_time() - began < 10
