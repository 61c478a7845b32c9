"""Which statements of a notebook are run for one function."""

from __future__ import annotations

import ast
import textwrap

import pytest

from grader.notebooks import cells
from grader.notebooks.cells import NotPython, free_names, parse, plan


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


def test_choosing_looks_at_each_statement_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement needs the one below it, the worst order; the work grows in proportion."""
    looked: list[ast.AST] = []

    def counted(node: ast.AST, annotations: bool = True) -> set[str]:
        looked.append(node)
        return free_names(node, annotations)

    monkeypatch.setattr(cells, "free_names", counted)
    chain = "\n".join(f"def f{n}(): return f{n + 1}()" for n in range(2_000))
    chosen = plan([("a", chain), ("b", "def f(): return f0()")], "f")
    assert len(chosen.groups[0].body.body) == 2_000
    assert len(looked) < 10 * 2_001
