"""Read a learner's notebooks: which lab each one is, and the learner's own functions in it.

Reading executes nothing. A fault is one line that says what is wrong and what to do; what can
still be used is used, and the other days count whatever happens to one of them.

Check cells are recognised and left out: checks come from :mod:`grader.checks`, so a notebook
that lacks them, or holds others, is scored the same.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import io
import json
import linecache
import os
import symtable
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.checks import CHECKS, describe_error
from grader.errors import BadInput
from grader.exercises import EXERCISES, LESSONS_FOLDER, SLUGS, START_HERE

MAX_BYTES = 20_000_000
"""A notebook larger than this is not read; a lab with its outputs has a hundredth of it."""

DAYS = {slug: day for day, slug in SLUGS.items()}

_FRESH = "move this file away, run python -m grader workbook, and copy your code into the fresh lab"


class NotebookError(BadInput):
    """A notebook that cannot be used at all; its text is one line: file, fault, what to do."""


@dataclass(frozen=True)
class Cell:
    """A code cell: its name in messages, what it is for, and its source as plain Python.

    ``kind`` is ``setup`` (the imports), ``solution``, ``check``, ``show`` (the score, and checks
    that a learner added), ``try`` (the free cells of the lab) or ``added``.
    """

    name: str
    kind: str
    grade_id: str
    source: str


@dataclass(frozen=True)
class Step:
    """One piece of a notebook to execute; afterwards these functions are taken."""

    name: str
    source: str
    takes: tuple[str, ...]


@dataclass(frozen=True)
class LabNotebook:
    """A learner's notebook of one lab: its code cells in order, and what is wrong with it.

    The problems, one line each, are such that the notebook still counts.
    """

    path: Path
    slug: str
    cells: tuple[Cell, ...]
    problems: tuple[str, ...]

    @property
    def day(self) -> int:
        """The day of the lab."""
        return DAYS[self.slug]

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions that the lab asks for."""
        return functions_of_day(self.day)

    @property
    def sources(self) -> dict[str, str]:
        """The source of each solution cell by grade id; of copies, the last one."""
        return {cell.grade_id: cell.source for cell in self.cells if cell.kind == "solution"}

    @property
    def steps(self) -> tuple[Step, ...]:
        """What to execute, in order, to have the learner's functions.

        As in the notebook itself, a check sees what stands above it: a function is taken after
        the last step before the last of its checks, and at the end where it has none.
        """
        runs: list[Cell] = []
        taken_after: dict[str, int] = {}
        for cell in self.cells:
            if cell.kind == "check":
                taken_after[CHECKS[cell.grade_id].function] = len(runs) - 1
            elif cell.kind != "show" and cell.source.strip():
                runs.append(cell)
        last = len(runs) - 1
        return tuple(
            Step(
                cell.name,
                cell.source,
                tuple(name for name in self.functions if taken_after.get(name, last) == index),
            )
            for index, cell in enumerate(runs)
        )

    def cells_above_checks(self) -> dict[str, list[tuple[str, str]]]:
        """Return, for each function of the lab, name and source of the cells above its checks."""
        steps = [(step.name, step.source) for step in self.steps]
        end = {name: index + 1 for index, step in enumerate(self.steps) for name in step.takes}
        return {name: steps[: end.get(name, 0)] for name in self.functions}


def functions_of_day(day: int) -> tuple[str, ...]:
    """Return the names of the functions to write on a day.

    >>> functions_of_day(3)
    ('should_compact', 'budget_table')
    """
    return tuple(exercise.function for exercise in EXERCISES if exercise.day == day)


# --- reading one notebook ---------------------------------------------------------------


@dataclass(frozen=True)
class _Raw:
    """A cell as it stands in the file, and what nbgrader's metadata say about it."""

    name: str
    type: str
    grade_id: str
    tags: tuple[str, ...]
    source: str


def read_notebook(path: str | Path) -> LabNotebook:
    """Read a learner's notebook without executing anything.

    The lab is recognised by the grade ids in the cells' metadata and, where these are gone, by
    the functions that the cells define; the file may have any name. Raises NotebookError for
    what is no notebook, in an old format, or no lab of this course.
    """
    path = Path(path)
    raws = _read_cells(path)
    slug, problems = _recognise(path, raws)
    names = functions_of_day(DAYS[slug])
    stripped = not any(raw.grade_id for raw in raws)
    cells, broken = [], []
    for raw in raws:
        if raw.type == "code":
            source = plain_python(raw.source)
            kind, grade_id = _kind(raw, source, names, stripped)
            cells.append(Cell(raw.name, kind, grade_id, source))
            if _tree(source) is None and kind != "try":
                broken.append(f"{raw.name} cannot be read as Python: {_syntax_fault(source)}")
    problems += _copies(raws) + broken + list(_missing(cells, names, stripped))
    return LabNotebook(path, slug, tuple(_only_needed(cells, names)), tuple(problems))


def lab_of(path: Path) -> str:
    """Return which lab a notebook is, whatever its file is called.

    Raises NotebookError for what is no notebook, in an old format, or no lab of this course.
    """
    return _recognise(path, _read_cells(path))[0]


def _read_cells(path: Path) -> list[_Raw]:
    """Return the cells of a notebook file; raise NotebookError when it is none."""

    def fault(text: str) -> NotebookError:
        return NotebookError(f"{path}: {text}")

    try:
        if path.is_dir():
            raise fault("a folder; expected a notebook (.ipynb)")
        if path.exists() and not path.is_file():
            raise fault("no file; expected a notebook (.ipynb)")
        if path.stat().st_size > MAX_BYTES:
            raise fault(f"larger than {MAX_BYTES // 1_000_000} MB; clear its outputs and save it")
        data = path.read_bytes()
    except OSError as error:
        raise fault(f"expected a notebook: {error.strerror or error}") from None
    try:
        notebook = json.loads(data)
    except UnicodeDecodeError:
        raise fault(f"not UTF-8, so no notebook; {_FRESH}") from None
    except (ValueError, RecursionError) as error:
        if b"<<<<<<< " in data:
            raise fault("git has left marks of a conflict in it; choose one version") from None
        place = (
            f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise fault(f"not JSON, so no notebook ({place or 'damaged'}); {_FRESH}") from None
    version = notebook.get("nbformat") if isinstance(notebook, dict) else None
    if not isinstance(version, int):
        raise fault(f"JSON, but no notebook: it has no nbformat; {_FRESH}")
    if version < 4:
        raise fault(f"in the old format {version}; open it in JupyterLab and save it, then again")
    cells = notebook.get("cells")
    if version > 4 or not isinstance(cells, list):
        raise fault(f"format {version} is not known here; expected format 4 with cells")
    raws = []
    for number, cell in enumerate(cells, 1):
        try:
            raws.append(_raw(cell, number))
        except (TypeError, AttributeError, KeyError):
            raise fault(f"cell {number} is no notebook cell; {_FRESH}") from None
    return raws


def _raw(cell: Any, number: int) -> _Raw:
    source, metadata = cell["source"], cell.get("metadata") or {}
    text = source if isinstance(source, str) else "".join(source)
    mark = metadata.get("nbgrader")
    grade_id = mark.get("grade_id", "") if isinstance(mark, dict) else ""
    grade_id = grade_id if isinstance(grade_id, str) else ""
    tags = tuple(tag for tag in metadata.get("tags") or () if isinstance(tag, str))
    name = f"cell {number} ({grade_id})" if grade_id else f"cell {number}"
    return _Raw(name, str(cell["cell_type"]), grade_id, tags, text)


def _recognise(path: Path, raws: Sequence[_Raw]) -> tuple[str, list[str]]:
    """Return the lab that a notebook is, and what is wrong with how that had to be found out."""
    homes = {check.id: SLUGS[check.day] for check in CHECKS.values()}
    homes |= {exercise.function: exercise.slug for exercise in EXERCISES}
    votes = Counter(homes[raw.grade_id] for raw in raws if raw.grade_id in homes)
    problems = []
    if not votes:
        foreign = sorted({raw.grade_id for raw in raws if raw.grade_id} - {"imports", "score"})
        if foreign:
            found = ", ".join(foreign[:3])
            raise NotebookError(f"{path}: no lab of this course; nbgrader calls its cells {found}")
        defined = [name for raw in raws if raw.type == "code" for name in _defines(raw.source)]
        votes = Counter(homes[name] for name in defined if name in homes)
        if not votes:
            raise NotebookError(
                f"{path}: no lab of this course; none of its cells has a name or a function of one"
            )
        problems.append(
            "nbgrader's names of the cells are gone; your functions were found by their own. "
            f"Before you hand in: {_FRESH}"
        )
    slug = max(votes, key=lambda name: (votes[name], name == path.stem))
    if path.stem != slug:
        problems.append(f"this is the lab {slug}; call it {slug}.ipynb before you hand it in")
    return slug, problems


def _kind(raw: _Raw, source: str, names: Sequence[str], stripped: bool) -> tuple[str, str]:
    """Return what a code cell is for, and its grade id."""
    if raw.grade_id in CHECKS:
        return "check", raw.grade_id
    if raw.grade_id in ("imports", "score"):
        return ("setup" if raw.grade_id == "imports" else "show"), raw.grade_id
    if raw.grade_id in names:
        return "solution", raw.grade_id
    asked = _checks_asked(source)
    if asked is not None:
        return ("check", asked) if stripped and asked in CHECKS else ("show", "")
    if "try-it" in raw.tags:
        return "try", ""
    own = [name for name in _defines(source) if name in names]
    return ("solution", own[0]) if stripped and own else ("added", "")


def _checks_asked(source: str) -> str | None:
    """Return the check that a cell asks for, when it does nothing else; "" for the score."""
    tree = _tree(source)
    if tree is None or not tree.body:
        return None
    asked = None
    for node in tree.body:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return None
        if call.func.id not in ("check", "score"):
            return None
        first = call.args[0] if call.args else None
        asked = str(first.value) if isinstance(first, ast.Constant) else ""
    return asked


def _copies(raws: Sequence[_Raw]) -> list[str]:
    """Name the cells that have been copied with their metadata."""
    problems = []
    for grade_id, count in Counter(raw.grade_id for raw in raws if raw.grade_id).items():
        if count > 1:
            numbers = [raw.name.split()[1] for raw in raws if raw.grade_id == grade_id]
            listed = ", ".join(numbers[:-1]) + f" and {numbers[-1]}"
            counts = "" if grade_id in CHECKS else f"; cell {numbers[-1]} counts"
            problems.append(
                f"cells {listed} are copies of {grade_id}{counts}. "
                "Delete all but one before you hand in: nbgrader stops at copies"
            )
    return problems


def _missing(cells: Sequence[Cell], names: Sequence[str], stripped: bool) -> Iterator[str]:
    there = {cell.grade_id for cell in cells if cell.kind == "check"}
    lacking = [c.id for c in CHECKS.values() if c.function in names and c.id not in there]
    if lacking and not stripped:
        some = "check cells are" if len(lacking) > 1 else "check cell is"
        yield f"the {some} missing: {', '.join(lacking)}; grading puts them back"
    for name in names:
        if not any(
            _binds(cell.source, name) for cell in cells if cell.kind not in ("check", "try")
        ):
            yield f"no cell defines {name}; {_FRESH}"


def _binds(source: str, name: str) -> bool:
    """Say whether a cell gives something this name; of broken code, whether it might."""
    tree = _tree(source)
    if tree is None:
        return name in source
    return any(name in _stored(node) for node in ast.walk(tree) if isinstance(node, ast.stmt))


# --- source of cells --------------------------------------------------------------------


def plain_python(source: str) -> str:
    """Return a cell's source with IPython's magics left out, line for line.

    >>> print(plain_python("%matplotlib inline\\nx = 1"))
    pass  # %matplotlib inline
    x = 1
    >>> plain_python("%%bash\\nls")
    ''
    """
    if _tree(source) is not None:
        return source
    lines = source.split("\n")
    if lines[0].startswith("%%"):
        if lines[0].split()[0] not in ("%%time", "%%timeit", "%%capture"):
            return ""
        lines[0] = f"# {lines[0]}"
    for number, line in enumerate(lines):
        code = line.strip()
        if code.startswith(("%", "!", "?")) or (code.endswith("?") and "#" not in code):
            lines[number] = line[: len(line) - len(line.lstrip())] + f"pass  # {code}"
    return "\n".join(lines)


def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _syntax_fault(source: str) -> str:
    try:
        ast.parse(source)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return describe_error(error)
    return ""


def _defines(source: str) -> list[str]:
    """Return the names that a cell defines as functions, at its top level."""
    tree = _tree(plain_python(source))
    body = tree.body if tree is not None else []
    return [n.name for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def _only_needed(cells: Sequence[Cell], names: Sequence[str]) -> Iterator[Cell]:
    """Cut the free cells down to the definitions that the learner's other code uses.

    They are there to look at, may be slow, and draw pictures; but a helper may have been
    written in one. What they define under the name of an exercise stays theirs.
    """
    needed = set()
    for cell in cells:
        if cell.kind in ("solution", "added"):
            needed |= _loaded(_tree(cell.source))
    needed -= set(names)
    statements = [
        node
        for cell in cells
        if cell.kind == "try"
        for node in getattr(_tree(cell.source), "body", [])
        if _is_definition(node)
    ]
    kept: set[int] = set()
    grown = True
    while grown:
        grown = False
        for node in statements:
            if id(node) not in kept and _stored(node) & needed:
                kept.add(id(node))
                needed |= _loaded(node) - set(names)
                grown = True
    wanted = {ast.dump(node) for node in statements if id(node) in kept}
    for cell in cells:
        if cell.kind != "try":
            yield cell
            continue
        body = getattr(_tree(cell.source), "body", [])
        chosen = [node for node in body if ast.dump(node) in wanted]
        yield Cell(cell.name, cell.kind, cell.grade_id, "\n".join(map(ast.unparse, chosen)))


def _is_definition(node: ast.AST) -> bool:
    """Say whether a statement only defines: a function, a class, an import, a plain constant."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return not any(isinstance(part, ast.Call | ast.Await) for part in ast.walk(node))
    return isinstance(
        node,
        ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom,
    )


def _loaded(tree: ast.AST | None) -> set[str]:
    """Return the names that a piece of code reads and does not bind in a function of its own."""
    if tree is None:
        return set()
    try:
        return set(_globals_of(symtable.symtable(ast.unparse(tree), "", "exec")))
    except SyntaxError:  # such as a break that stands in no loop
        return {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_global() and symbol.is_referenced():
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals_of(child)


def _stored(node: ast.AST) -> set[str]:
    """Return the names that a definition binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


# --- executing one notebook -------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """What executing a notebook gave: functions by name, and for each missing one the reason.

    ``errors`` says, by the cell's name, what stopped it; ``printed`` is what the cells printed.
    """

    functions: dict[str, Callable[..., Any]]
    missing: dict[str, str]
    errors: dict[str, str]
    printed: str


def load_functions(notebook: LabNotebook) -> Loaded:
    """Execute a notebook's code in this process and return the learner's functions.

    For the learner's own machine: nothing is confined. A cell that fails stops only itself.
    Cells run in the notebook's folder, with nothing on standard input.
    """
    namespace: dict[str, Any] = {"__name__": "__main__", "display": lambda *shown, **how: None}
    functions: dict[str, Callable[..., Any]] = {}
    errors: dict[str, str] = {}
    printed = io.StringIO()
    flags = 0
    with _surroundings(notebook.path.resolve().parent, printed):
        for step in notebook.steps:
            filename = f"{notebook.path.name}, {step.name}"
            lines = step.source.splitlines(keepends=True)
            linecache.cache[filename] = (len(step.source), None, lines, filename)
            try:
                code = compile(step.source, filename, "exec", flags, dont_inherit=True)
                # As in a notebook, `from __future__ import ...` holds for the cells below.
                flags |= code.co_flags & _FUTURE
                exec(code, namespace)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                errors[step.name] = _describe(error, filename)
            for name in step.takes:
                if callable(namespace.get(name)):
                    functions[name] = namespace[name]
    missing = {
        name: _why_missing(name, notebook, errors, namespace)
        for name in notebook.functions
        if name not in functions
    }
    return Loaded(functions, missing, errors, printed.getvalue())


_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


@contextlib.contextmanager
def _surroundings(folder: Path, printed: io.StringIO) -> Iterator[None]:
    """Stand in the notebook's folder, with output kept and no input."""
    stdin, path = sys.stdin, list(sys.path)
    sys.stdin = io.StringIO("")
    sys.path.insert(0, str(folder))
    os.environ.setdefault("MPLBACKEND", "agg")  # a picture must not open a window
    try:
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            yield
    finally:
        sys.stdin, sys.path[:] = stdin, path


def _describe(error: BaseException, filename: str) -> str:
    """Say in which line of the cell what went wrong."""
    if isinstance(error, SyntaxError) and error.filename == filename:
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return (f"line {line}: " if line else "") + describe_error(error)


def _why_missing(
    name: str, notebook: LabNotebook, errors: dict[str, str], namespace: dict[str, Any]
) -> str:
    for cell in notebook.cells:
        if cell.grade_id == name and cell.kind == "solution" and cell.name in errors:
            return f"{cell.name} does not run: {errors[cell.name]}"
    if callable(namespace.get(name)):
        return f"{name} is defined only below its checks"
    if name in namespace:
        return f"{name} is not a function"
    return f"no cell defines {name}"


# --- many notebooks ---------------------------------------------------------------------


@dataclass(frozen=True)
class Workbook:
    """A learner's notebooks by lab, and one line for everything that is wrong with them.

    ``faults`` says, for a lab whose notebook cannot be used, why not.
    """

    where: str
    notebooks: dict[str, LabNotebook]
    faults: dict[str, str]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Own:
    """A learner's own functions of all days; for each missing one the reason; all problems."""

    functions: dict[str, Callable[..., Any]]
    missing: dict[str, str]
    problems: tuple[str, ...]


def functions_of(where: str | Path, leave_out: Collection[str] = ()) -> Own:
    """Return the learner's own functions from a notebook or a folder of notebooks.

    The labs in ``leave_out`` are not executed. Raises BadInput when there is no notebook at all.
    """
    workbook = read_workbook(where)
    functions: dict[str, Callable[..., Any]] = {}
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


def read_workbook(where: str | Path) -> Workbook:
    """Read the notebook, or all notebooks in the folder and two folders deep.

    Two notebooks of one lab: the one with the lab's own name counts. Raises BadInput when there
    is no notebook.
    """
    path = Path(where)
    if path.is_file():
        alone = read_notebook(path)
        problems = tuple(f"{path}: {problem}" for problem in alone.problems)
        return Workbook(str(where), {alone.slug: alone}, {}, problems)
    if not path.is_dir():
        raise BadInput(f"{where}: no such file or folder; expected a notebook or a folder of them")
    read: dict[str, list[LabNotebook]] = {}
    broken: dict[str, str] = {}
    for file in notebook_files(path):
        try:
            notebook = read_notebook(file)
            read.setdefault(notebook.slug, []).append(notebook)
        except NotebookError as error:
            broken[str(file)] = str(error)
    if not read and not broken:
        raise BadInput(f"{where}: no notebook in it; python -m grader workbook lays the labs")
    notebooks, faults, notes = {}, {}, list(broken.values())
    for slug, candidates in sorted(read.items()):
        chosen, several = _choose(slug, candidates)
        notes += several
        if chosen is None:
            faults[slug] = several[0]
        else:
            notebooks[slug] = chosen
            notes += [f"{chosen.path}: {problem}" for problem in chosen.problems]
    for name, fault in broken.items():
        if Path(name).stem in DAYS and Path(name).stem not in read:
            faults[Path(name).stem] = fault
    return Workbook(str(where), notebooks, faults, tuple(notes))


def notebook_files(folder: Path, depth: int = 2) -> Iterator[Path]:
    """Yield the notebooks in a folder and so many folders deep, the hidden ones left out."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:  # a folder that this person may not look into holds none of their labs
        return
    for path in paths:
        if path.name.startswith("."):
            continue
        if path.name in (LESSONS_FOLDER, START_HERE):  # read, not handed in
            continue
        if path.suffix == ".ipynb" and path.is_file():
            yield path
        elif depth and path.is_dir() and not path.is_symlink():
            yield from notebook_files(path, depth - 1)


def _choose(slug: str, candidates: Sequence[LabNotebook]) -> tuple[LabNotebook | None, list[str]]:
    """Choose the notebook of a lab; say so when there are several."""
    if len(candidates) < 2:
        return (candidates[0] if candidates else None), []
    names = ", ".join(str(notebook.path) for notebook in candidates)
    named = [notebook for notebook in candidates if notebook.path.stem == slug]
    at_home = [notebook for notebook in named if notebook.path.parent.name == slug]
    for best in (named, at_home):
        if len(best) == 1:
            counts = f"{best[0].path} counts"
            return best[0], [f"{len(candidates)} notebooks of {slug}: {names}; {counts}"]
    return None, [f"{len(candidates)} notebooks of {slug}: {names}; keep one as {slug}.ipynb"]
