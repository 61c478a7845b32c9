"""Write a copy of the library that lacks the functions which are the day's exercise.

Types, constants and the functions of all other days stay. A function of the library that calls
a withheld one would hand the answer out, so it stays in name only and raises when it is called.
Nothing of a withheld function is in the copy: neither source nor compiled code.
"""

from __future__ import annotations

import ast
import py_compile
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import compaction
from grader.exercises import EXERCISES
from grader.notebooks.cells import free_names

LIBRARY = Path(compaction.__file__).parent

PRELOADED = (
    "messages",
    "tokens",
    "calibration",
    "budget",
    "grouping",
    "probes",
    "summary",
    "session",
    "carrying",
    "engine",
    "documents",
)
"""The modules that are loaded before a learner's code comes."""

_HOOK = '''\
"""Tell which of the withheld functions were reached for."""

reached = []


def absent(module, name, withheld):
    if name in withheld:
        reached.append(f"{module}.{name}")
        raise AttributeError(f"{module}.{name} is this day's exercise: here the library lacks it")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def stand_in(name, needs):
    def unavailable(*args, **kwargs):
        raise RuntimeError(f"{name} needs {needs}, and here the library lacks it")

    unavailable.__name__ = unavailable.__qualname__ = name
    return unavailable
'''


def write_library(target: Path, names: Collection[str] = ()) -> None:
    """Write the package ``compaction`` into a folder.

    ``names`` are the withheld functions, exercises of the course. Raises ValueError for a name
    that is none of them.
    """
    modules = {e.function: e.module.removeprefix("compaction.") for e in EXERCISES}
    unknown = sorted(set(names) - set(modules))
    if unknown:
        raise ValueError(f"no exercise is called {', '.join(unknown)}")
    sources = _needed_modules(modules[name] for name in names)
    homes = {name: _definer(name, modules[name], sources) for name in names}
    modules = withhold(sources, homes)
    package = target / "compaction"
    package.mkdir(parents=True)
    for name, text in {**modules, "_withheld": _HOOK}.items():
        is_package = any(other.startswith(f"{name}.") for other in modules)
        path = package.joinpath(*name.split("."), *["__init__"] * is_package).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        _write(path, text, compiled=name.split(".")[0] in (*PRELOADED, "_withheld"))
    data = LIBRARY / "data"
    if data.is_dir():
        shutil.copytree(data, package / "data")


def _definer(name: str, module: str, sources: Mapping[str, str]) -> str:
    """Return the module that defines a function which a module or package hands on."""
    defined = re.compile(rf"^(?:def|class) {name}\b", re.MULTILINE)
    inside = (part for part in sources if part.startswith(f"{module}."))
    return next((part for part in inside if defined.search(sources[part])), module)


def _needed_modules(homes: Iterable[str]) -> dict[str, str]:
    """Return the sources of the modules that a notebook may need, with all that they import.

    Command line, agent and terminal are not among them.
    """
    sources = {
        ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text("utf-8")
        )
        for path in sorted([*LIBRARY.glob("*.py"), *LIBRARY.glob("*/*.py")])
    }
    waiting = [*PRELOADED, "plots", *homes]
    found = {"__init__": sources["__init__"]}  # imports the others only when it is asked to
    while waiting:
        module = waiting.pop()
        if module not in found and module in sources:
            found[module] = sources[module]
            waiting += _IMPORTED.findall(sources[module])
            if "." in module:  # a module of a package is not loaded without it
                waiting.append(module.rpartition(".")[0])
    return found


_IMPORTED = re.compile(r"^\s*(?:from|import) compaction\.([\w.]+)", re.MULTILINE)


def _write(path: Path, text: str, compiled: bool) -> None:
    path.write_text(text, "utf-8")
    if not compiled:
        return
    # Once and here: in the sandbox nobody can write into the folder.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), dfile=path.name, doraise=True, invalidation_mode=mode)


# --- taking functions out ---------------------------------------------------------------


@dataclass
class _Module:
    name: str
    tree: ast.Module
    gone: set[str] = field(default_factory=set)
    """Names that the module no longer has, under which it imported or defined them."""
    stand_ins: dict[str, str] = field(default_factory=dict)
    """Functions and classes that stay in name only, and which missing name they need."""


def withhold(sources: Mapping[str, str], homes: Mapping[str, str]) -> dict[str, str]:
    """Return the sources of a package's modules without some functions.

    ``homes`` says in which module each of the functions stands. Raises ValueError for a function
    that is not there.

    >>> source = "def f(): pass\\ndef g(): return f()\\ndef h(): pass"
    >>> print(withhold({"a": source}, {"f": "a"})["a"].split("def h")[0])
    from compaction._withheld import absent as _absent, stand_in as _stand_in
    g = _stand_in('g', 'f')
    <BLANKLINE>
    """
    modules = {
        module: _Module(module, ast.parse(text))
        for module, text in sources.items()
        if any(name in text for name in homes)
    }
    withheld: dict[str, frozenset[str]] = {}
    for name, home in homes.items():
        defined = {n for node in modules[home].tree.body for n in _defined(node)}
        if name not in defined:
            raise ValueError(f"the library has no {home}.{name}")
        # A package hands on what its module defines: it is missing there as well.
        for place in (home, home.rpartition(".")[0]):
            if place:
                withheld[place] = withheld.get(place, frozenset()) | {name}
        modules[home].gone.add(name)
    for module in modules.values():
        _take_out(module, withheld)
    changed = {
        name: _write_out(module, withheld.get(name, frozenset()))
        for name, module in modules.items()
        if module.gone or module.stand_ins
    }
    return {**sources, **changed}


def _take_out(module: _Module, withheld: dict[str, frozenset[str]]) -> None:
    """Drop what is withheld from one module, and what cannot be without it."""
    body = [_without_imports(node, module, withheld) for node in module.tree.body]
    kept = [node for node in body if node is not None]
    dropping = True
    while dropping:  # a constant that is made by a dropped function goes as well
        dropping = False
        for node in list(kept):
            defined = set(_defined(node))
            if defined & module.gone and isinstance(node, _DEFINITIONS):
                kept.remove(node)
                continue
            missing = _missing(node, module.gone, withheld)
            if missing is None:
                continue
            kept.remove(node)
            dropping = True
            if isinstance(node, _DEFINITIONS):
                module.stand_ins[node.name] = missing
            else:
                module.gone |= defined
    module.tree.body = kept


_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _without_imports(
    node: ast.stmt, module: _Module, withheld: dict[str, frozenset[str]]
) -> ast.stmt | None:
    """Take withheld names out of an import and out of ``__all__``."""
    if isinstance(node, ast.ImportFrom) and node.module:
        absent = withheld.get(node.module.removeprefix("compaction."), frozenset())
        module.gone |= {a.asname or a.name for a in node.names if a.name in absent}
        node.names = [alias for alias in node.names if alias.name not in absent]
        return node if node.names else None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and _is_all(node):
        node.value.elts = [
            item
            for item in node.value.elts
            if not (isinstance(item, ast.Constant) and item.value in module.gone)
        ]
    return node


def _is_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, _DEFINITIONS):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _missing(node: ast.stmt, gone: set[str], withheld: dict[str, frozenset[str]]) -> str | None:
    """Return the missing name that a statement cannot do without, or None.

    Annotations do not count: they are never evaluated.
    """
    for part in ast.walk(node):
        if isinstance(part, ast.ImportFrom) and part.module:
            absent = withheld.get(part.module.removeprefix("compaction."), frozenset())
            for alias in part.names:
                if alias.name in absent:
                    return alias.name
    return next(iter(sorted(free_names(node, annotations=False) & gone)), None)


def _write_out(module: _Module, withheld: frozenset[str]) -> str:
    """Return the module's source; reaching for a withheld name is noticed."""
    body = list(module.tree.body)
    start = 0
    while start < len(body) and (_is_docstring(body[start]) or _is_future(body[start])):
        start += 1
    lines = ["from compaction._withheld import absent as _absent, stand_in as _stand_in"]
    lines += [f"{name} = _stand_in({name!r}, {need!r})" for name, need in module.stand_ins.items()]
    end = [
        "def __getattr__(name):",
        f"    _absent({f'compaction.{module.name}'!r}, name, {tuple(sorted(withheld))!r})",
    ]
    body[start:start] = ast.parse("\n".join(lines)).body
    body += ast.parse("\n".join(end)).body
    module.tree.body = body
    return ast.unparse(module.tree) + "\n"


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
