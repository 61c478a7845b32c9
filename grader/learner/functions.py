"""Execute a learner's notebooks in this process and take their functions out.

For the learner's own machine: nothing is confined. What is run is what grading runs: of the cells
above a function's checks the statements that it needs, or all of them where that is not enough.
In go notebooks that have been read (:mod:`grader.notebooks.lab`), or a Python file, which is a
notebook of one cell; out come functions by name, and for each missing one the reason.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import inspect
import io
import linecache
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.checks import describe_error
from grader.errors import BadInput
from grader.exercises import EXERCISES
from grader.notebooks.cells import NotPython, Plan, bound_names, parse, plan
from grader.notebooks.lab import LabNotebook, read_workbook

Function = Callable[..., Any]

_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


# --- one function -----------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Where a function comes from: the cells above its checks (name, text), and their folder.

    ``file`` is set where the one cell is a Python file.
    """

    function: str
    cells: tuple[tuple[str, str], ...]
    folder: Path
    file: Path | None = None


@dataclass(frozen=True)
class Taken:
    """What executing gave: the function, or ``fault`` why there is none.

    ``errors`` says, by the cell's name, what stopped it; ``left_out`` whether more could be run.
    """

    function: Function | None
    fault: str
    errors: dict[str, str]
    left_out: bool


def sources_of(notebook: LabNotebook) -> dict[str, Source]:
    """Return where each function of a lab comes from; cells are named as tracebacks show them."""
    folder = notebook.path.resolve().parent
    return {
        name: Source(
            name, tuple((f"{notebook.path.name}, {cell}", text) for cell, text in cells), folder
        )
        for name, cells in notebook.cells_above_checks().items()
    }


def sources_of_file(path: Path) -> dict[str, Source]:
    """Return where each function of the course comes from in a Python file; nothing is executed.

    Raises BadInput when it cannot be read, or is not Python.
    """
    try:
        text = decode_source(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: expected a Python file: {error.strerror}") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: expected Python code that can be read: {error}") from None
    try:
        compile(text, str(path), "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        line = getattr(error, "lineno", None)
        place = f"{path}, line {line}" if line else str(path)
        raise BadInput(f"{place}: expected Python code that can be read: {reason}") from None
    except (RecursionError, MemoryError):
        raise BadInput(f"{path}: expected Python code that is less deeply nested") from None
    folder, cells = path.resolve().parent, ((str(path), text),)
    names = dict.fromkeys(exercise.function for exercise in EXERCISES)
    return {name: Source(name, cells, folder, path) for name in names}


def take(
    source: Source, whole: bool = False, on_cell: Callable[[str], None] = lambda name: None
) -> Taken:
    """Execute what a function needs of its cells, and return it.

    ``whole`` executes all cells; so does a function that is not there otherwise. A cell that fails
    stops only itself. Cells run in their folder, with nothing on standard input, and what they
    print is dropped. ``on_cell`` is told each cell's name before it runs.
    """
    chosen = plan(source.cells, source.function, whole)
    space = ModuleType("__main__" if source.file is None else "learner")
    if source.file is not None:
        space.__file__ = str(source.file)
        sys.modules[space.__name__] = space  # dataclasses look their module up
    space.__dict__["display"] = lambda *shown, **how: None
    errors = {source.cells[cell][0]: reason for cell, reason in chosen.faults}
    with _surroundings(source.folder):
        errors |= _execute(source.cells, chosen, space.__dict__, on_cell)
    value = space.__dict__.get(source.function)
    if callable(value):
        return Taken(value, "", errors, chosen.left_out)
    if chosen.left_out and not whole:
        return take(source, True, on_cell)
    fault = _why_missing(source, errors, source.function in space.__dict__)
    return Taken(None, fault, errors, chosen.left_out)


def _execute(
    cells: Sequence[tuple[str, str]],
    chosen: Plan,
    space: dict[str, Any],
    on_cell: Callable[[str], None],
) -> dict[str, str]:
    """Execute the groups of a plan; return what stopped which cell."""
    errors = {}
    flags = 0
    for group in chosen.groups:
        name, text = cells[group.cell]
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        on_cell(name)
        try:
            code = compile(group.body, name, "exec", flags, dont_inherit=True)
            # As in a notebook, `from __future__ import ...` holds for the cells below.
            flags |= code.co_flags & _FUTURE
            if code.co_flags & inspect.CO_COROUTINE:
                import asyncio

                asyncio.run(eval(code, space))
            else:
                exec(code, space)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            errors[name] = _describe(error, name)
    return errors


@contextlib.contextmanager
def _surroundings(folder: Path) -> Iterator[None]:
    """Work in the notebook's folder, with output dropped and no input."""
    stdin, path = sys.stdin, list(sys.path)
    sys.stdin = io.StringIO("")
    sys.path.insert(0, str(folder))
    os.environ.setdefault("MPLBACKEND", "agg")  # a picture must not open a window
    dropped = io.StringIO()
    try:
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(dropped),
            contextlib.redirect_stderr(dropped),
        ):
            yield
    finally:
        sys.stdin, sys.path[:] = stdin, path


def _describe(error: BaseException, filename: str) -> str:
    """Say in which line of the cell what went wrong."""
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return (f"line {line}: " if line else "") + describe_error(error)


def _why_missing(source: Source, errors: dict[str, str], is_there: bool) -> str:
    if is_there:
        place = f" in {source.file}" if source.file else ""
        return f"{source.function}{place} is not a function"
    if source.file is not None:
        return f"{source.function} is missing in {source.file}"
    texts = dict(source.cells)
    for name in reversed(errors):  # the last one counts, as in the notebook
        if f"({source.function})" in name or re.search(rf"\b{source.function}\b", texts[name]):
            return f"{name.rpartition(', ')[2]} does not run: {errors[name]}"
    return f"no cell defines {source.function}"


# --- a notebook, or a folder of them ----------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """What executing a notebook gave: functions by name, and for each missing one the reason.

    ``errors`` says, by the cell's name, what stopped it.
    """

    functions: dict[str, Function]
    missing: dict[str, str]
    errors: dict[str, str]


def load_functions(notebook: LabNotebook) -> Loaded:
    """Execute a notebook's code in this process and return the learner's functions."""
    functions: dict[str, Function] = {}
    missing: dict[str, str] = {}
    errors: dict[str, str] = {}
    for name, source in sources_of(notebook).items():
        taken = take(source)
        errors |= {cell.rpartition(", ")[2]: why for cell, why in taken.errors.items()}
        if taken.function is not None:
            functions[name] = taken.function
        else:
            missing[name] = reason_for(notebook, name, taken.fault)
    return Loaded(functions, missing, errors)


def reason_for(notebook: LabNotebook, name: str, fault: str) -> str:
    """Return why a function is missing; one that stands below its checks is said to do so."""
    if fault.startswith("no cell defines") and any(
        name in bound_names(node)
        for cell in notebook.cells
        if cell.kind in ("solution", "added")
        for node in _statements(cell.source)
    ):
        return f"{name} is defined only below its checks"
    return fault


def _statements(source: str) -> list[ast.stmt]:
    with contextlib.suppress(NotPython):
        return parse(source).body
    return []


@dataclass(frozen=True)
class Own:
    """A learner's own functions of all days; for each missing one the reason; all problems."""

    functions: dict[str, Function]
    missing: dict[str, str]
    problems: tuple[str, ...]


def functions_of(where: str | Path, leave_out: Collection[str] = ()) -> Own:
    """Return the learner's own functions from a notebook or a folder of notebooks.

    The labs in ``leave_out`` are not executed. Raises BadInput when there is no notebook at all.
    """
    workbook = read_workbook(where)
    functions: dict[str, Function] = {}
    missing: dict[str, str] = {}
    problems = list(workbook.problems)
    for exercise in EXERCISES:
        absent = f"no notebook of {exercise.slug} in {workbook.where}"
        missing[exercise.function] = workbook.faults.get(exercise.slug, absent)
    for slug, notebook in workbook.notebooks.items():
        if slug in leave_out:
            continue
        loaded = load_functions(notebook)
        functions |= loaded.functions
        for name in notebook.functions:
            missing.pop(name, None)
        missing |= {name: f"{slug}: {why}" for name, why in loaded.missing.items()}
        solved = {cell.name for cell in notebook.cells if cell.kind == "solution"}
        problems += [
            f"{notebook.path}: {name}: {why}"
            for name, why in loaded.errors.items()
            if name not in solved and "SyntaxError" not in why
        ]
    return Own(functions, missing, tuple(problems))
