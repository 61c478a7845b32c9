"""Write the copy of the library that a learner's code may import, with the day's exercise stubbed.

In goes the folder of the package ``compaction``; out comes another one that holds the modules
which exercises and checks need, and no more. In it the functions that are the day's exercise, and
those that do the exercise under another name, have a stub for a body: it notes the name and raises.
Whatever calls them meets the stub. Types, constants and the functions of other days stay as they
are, and nothing of a stubbed function's body is in the copy: neither source nor compiled code.
"""

from __future__ import annotations

import ast
import importlib
import py_compile
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

import compaction
from grader.exercises import EXERCISES, IMPORTS

LIBRARY = Path(compaction.__file__).parent

ALSO_STUBBED: Mapping[str, tuple[str, ...]] = {
    "compact": ("compaction.compactor.compact_history",),
}
"""Functions that do an exercise under another name, by the exercise."""

_SHOWN_IN_LABS = ("session", "plots", "measurements")
"""Modules that the labs' free cells import beside those of the exercises."""

_IMPORTED = re.compile(
    r"^\s*(?:from compaction\.([\w.]+) import|import compaction\.([\w.]+)"
    r"|from compaction import \(?([\w, ]+))",
    re.MULTILINE,
)

_HOOK = '''\
"""The stubs: a function that is this day's exercise notes that it was called, and raises."""

reached = []


def stub(name):
    reached.append(name)
    raise RuntimeError(f"{name} is this day's exercise: here the library lacks it")
'''


def write_library(target: Path, stubbed: Collection[str] = ()) -> None:
    """Write the package ``compaction`` into a folder; ``stubbed`` are exercises of the course.

    Raises ValueError for a name that is not an exercise.
    """
    texts = {path: (LIBRARY / path).read_text("utf-8") for path in needed_modules()}
    for name in sorted(_full_names(stubbed)):
        home, function = definition(name)
        if home in texts:  # else the copy has it nowhere
            texts[home] = with_stub(texts[home], function, name)
    first = {name.split(".")[1] for name in loaded_first()} | {"_stubbed"}
    for path, text in {**texts, "_stubbed.py": _HOOK}.items():
        top = path.split("/")[0].removesuffix(".py")
        _write(target / "compaction" / path, text, compiled=top in first)
    data = LIBRARY / "data"
    if data.is_dir():
        shutil.copytree(data, target / "compaction" / "data")


def definition(name: str) -> tuple[str, str]:
    """Return the file, below the library's folder, and the name under which a function is defined.

    The function itself says so, wherever its name is handed on: what is stubbed there is a stub
    under every other name, too.

    >>> definition("compaction.tokens.estimate")
    ('tokens.py', 'estimate')
    """
    module, _, function = name.rpartition(".")
    found = getattr(importlib.import_module(module), function)
    file = Path(str(importlib.import_module(found.__module__).__file__))
    return file.relative_to(LIBRARY).as_posix(), found.__name__


def loaded_first() -> list[str]:
    """Return the modules to load before a learner's code comes: those of the exercises."""
    return sorted({*_exercise_modules(), "compaction.session"})


@cache
def needed_modules() -> tuple[str, ...]:
    """Return the files of the modules that a notebook may need, below the library's folder.

    A package comes whole, with its initial file. Command line, agent and terminal are not among
    them.
    """
    waiting = [*(name.removeprefix("compaction.") for name in _exercise_modules()), *_SHOWN_IN_LABS]
    found = {"__init__.py"}  # imports the others only when it is asked to
    while waiting:
        for path in _files_of(waiting.pop()):
            if path not in found:
                found.add(path)
                text = (LIBRARY / path).read_text("utf-8")
                for dotted, plain, several in _IMPORTED.findall(text):
                    waiting += [dotted or plain] if dotted or plain else several.split(",")
    return tuple(sorted(found))


def state_of_library() -> str:
    """Return a digest that changes when a module of the library does."""
    stats = [(path, (LIBRARY / path).stat()) for path in needed_modules()]
    state = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    return sha256(repr((str(LIBRARY), state)).encode()).hexdigest()


def stubbed_names(functions: Collection[str]) -> dict[str, str]:
    """Return the last words of what is stubbed for these exercises, each with its exercise.

    >>> stubbed_names(["estimate"])
    {'estimate': 'estimate'}
    """
    names = {function: function for function in functions}
    for function in functions:
        names |= {other.rpartition(".")[2]: function for other in ALSO_STUBBED.get(function, ())}
    return names


def _exercise_modules() -> set[str]:
    imported = {
        f"compaction.{dotted}"
        for cell in IMPORTS.values()
        for dotted, _, _ in _IMPORTED.findall(cell)
    }
    return imported | {exercise.module for exercise in EXERCISES}


def _full_names(functions: Collection[str]) -> set[str]:
    modules = {exercise.function: exercise.module for exercise in EXERCISES}
    unknown = sorted(set(functions) - set(modules))
    if unknown:
        raise ValueError(f"no exercise is called {', '.join(unknown)}")
    return {f"{modules[name]}.{name}" for name in functions} | _others(functions)


def _others(functions: Collection[str]) -> set[str]:
    return {name for function in functions for name in ALSO_STUBBED.get(function, ())}


def _files_of(module: str) -> Iterator[str]:
    """Yield the files that are loaded with a module: of a part of a package, the whole package."""
    top = module.strip().split(".")[0]
    if (LIBRARY / top).is_dir():
        for path in (LIBRARY / top).rglob("*.py"):
            yield path.relative_to(LIBRARY).as_posix()
    elif (LIBRARY / f"{top}.py").is_file():
        yield f"{top}.py"


def with_stub(source: str, function: str, name: str) -> str:
    """Return a module's source in which a function's body is one line: its stub.

    >>> print(with_stub("def f(x):\\n    return 2 * x\\ny = 1", "f", "a.f"))
    def f(x):
        from compaction._stubbed import stub; stub('a.f')
    y = 1
    """
    lines = source.split("\n")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            first, last = node.body[0].lineno, node.body[-1].end_lineno
            if first == node.lineno:
                raise ValueError(f"the body of {function} begins on the line of its name")
            lines[first - 1 : last] = [f"    from compaction._stubbed import stub; stub({name!r})"]
            return "\n".join(lines)
    raise ValueError(f"there is no function {function} here")


def _write(path: Path, text: str, compiled: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    if not compiled:
        return
    # Once and here: in the sandbox nobody can write into the folder.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), dfile=path.name, doraise=True, invalidation_mode=mode)
