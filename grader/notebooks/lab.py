"""Read a learner's notebooks: which lab each one is, what its cells are for, what is wrong with it.

In goes a file or a folder; out come a lab's code cells in order. Reading executes nothing. A fault
is one line that says what is wrong and what to do; what can still be used is used, and the other
days count whatever happens to one of them.

Check cells are recognised and left out: checks come from :mod:`grader.checks`, so a notebook
that lacks them, or holds others, is scored the same.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.checks import CHECKS
from grader.errors import BadInput
from grader.exercises import EXERCISES, LESSONS_FOLDER, SLUGS, START_HERE
from grader.notebooks.cells import NotPython, bound_names, parse

MAX_BYTES = 20_000_000
"""A notebook larger than this is not read; a lab with its outputs has a hundredth of it."""

DAYS = {slug: day for day, slug in SLUGS.items()}

_FRESH = "move this file away, run python -m grader workbook, and copy your code into the fresh lab"


class NotebookError(BadInput):
    """A notebook that cannot be used at all; its text is one line: file, fault, what to do."""


@dataclass(frozen=True)
class Cell:
    """A code cell: its name in messages, what it is for, and its source.

    ``kind`` is ``setup`` (the imports), ``solution``, ``check``, ``show`` (the score, and checks
    that a learner added), ``try`` (the free cells of the lab) or ``added``. Of a free cell
    the source is what it defines, line for line: it is there to look at, may be slow, and draws
    pictures; but a helper may have been written in one.
    """

    name: str
    kind: str
    grade_id: str
    source: str


@dataclass(frozen=True)
class Step:
    """One cell of a notebook to execute; afterwards these functions are taken."""

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

        As in the notebook itself, a check sees what is above it: a function is taken after
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
    """A cell as it is in the file, and what nbgrader's metadata say about it."""

    name: str
    type: str
    grade_id: str
    tags: tuple[str, ...]
    source: str
    tree: ast.Module | None
    fault: str = ""


def read_notebook(path: str | Path, data: bytes | None = None) -> LabNotebook:
    """Read a learner's notebook without executing anything; ``data`` in the place of the file's.

    The lab is recognised by the grade ids in the cells' metadata and, where these are gone, by
    the functions that the cells define; the file may have any name. Raises NotebookError for
    what is no notebook, in an old format, or no lab of this course.
    """
    path = Path(path)
    raws = _read_cells(path, _bytes_of(path) if data is None else data)
    slug, problems = _recognise(path, raws)
    names = functions_of_day(DAYS[slug])
    stripped = not any(raw.grade_id for raw in raws)
    cells, broken = [], []
    for raw in raws:
        if raw.type == "code":
            kind, grade_id = _kind(raw, names, stripped)
            source = _definitions(raw, names) if kind == "try" else raw.source
            cells.append(Cell(raw.name, kind, grade_id, source))
            if raw.tree is None and kind != "try":
                broken.append(f"{raw.name} cannot be read as Python: {raw.fault}")
    problems += _copies(raws) + broken + list(_missing(raws, cells, names, stripped))
    return LabNotebook(path, slug, tuple(cells), tuple(problems))


def lab_of(path: Path) -> str:
    """Return which lab a notebook is, whatever its file is called.

    Raises NotebookError for what is no notebook, in an old format, or no lab of this course.
    """
    return _recognise(path, _read_cells(path, _bytes_of(path)))[0]


def _bytes_of(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise NotebookError(f"{path}: a folder; expected a notebook (.ipynb)")
        if path.exists() and not path.is_file():
            raise NotebookError(f"{path}: not a file; expected a notebook (.ipynb)")
        if path.stat().st_size > MAX_BYTES:
            most = f"{MAX_BYTES // 1_000_000} MB"
            raise NotebookError(f"{path}: larger than {most}; clear its outputs and save it")
        return path.read_bytes()
    except OSError as error:
        raise NotebookError(f"{path}: expected a notebook: {error.strerror or error}") from None


def _read_cells(path: Path, data: bytes) -> list[_Raw]:
    """Return a notebook's cells; raise NotebookError when it is not a notebook."""

    def fault(text: str) -> NotebookError:
        return NotebookError(f"{path}: {text}")

    try:
        notebook = json.loads(data)
    except UnicodeDecodeError:
        raise fault(f"not UTF-8, so no notebook; {_FRESH}") from None
    except (ValueError, RecursionError) as error:
        if b"<<<<<<< " in data:
            raise fault(
                "git has left the markers of a conflict in it; choose one version"
            ) from None
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
    nbgrader = metadata.get("nbgrader")
    grade_id = nbgrader.get("grade_id", "") if isinstance(nbgrader, dict) else ""
    grade_id = grade_id if isinstance(grade_id, str) else ""
    tags = tuple(tag for tag in metadata.get("tags") or () if isinstance(tag, str))
    name = f"cell {number} ({grade_id})" if grade_id else f"cell {number}"
    if cell["cell_type"] != "code":
        return _Raw(name, str(cell["cell_type"]), grade_id, tags, text, None)
    try:
        return _Raw(name, "code", grade_id, tags, text, parse(text, name))
    except NotPython as reason:
        return _Raw(name, "code", grade_id, tags, text, None, str(reason))


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
        defined = [name for raw in raws if raw.type == "code" for name in _defines(raw)]
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


def _kind(raw: _Raw, names: Sequence[str], stripped: bool) -> tuple[str, str]:
    """Return what a code cell is for, and its grade id."""
    if raw.grade_id in CHECKS:
        return "check", raw.grade_id
    if raw.grade_id in ("imports", "score"):
        return ("setup" if raw.grade_id == "imports" else "show"), raw.grade_id
    if raw.grade_id in names:
        return "solution", raw.grade_id
    asked = _checks_asked(raw)
    if asked is not None:
        return ("check", asked) if stripped and asked in CHECKS else ("show", "")
    if "try-it" in raw.tags:
        return "try", ""
    own = [name for name in _defines(raw) if name in names]
    return ("solution", own[0]) if stripped and own else ("added", "")


def _checks_asked(raw: _Raw) -> str | None:
    """Return the check that a cell asks for, when it does nothing else; "" for the score."""
    asked = None
    for node in raw.tree.body if raw.tree else []:
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


def _missing(
    raws: Sequence[_Raw], cells: Sequence[Cell], names: Sequence[str], stripped: bool
) -> Iterator[str]:
    there = {cell.grade_id for cell in cells if cell.kind == "check"}
    lacking = [c.id for c in CHECKS.values() if c.function in names and c.id not in there]
    if lacking and not stripped:
        some = "check cells are" if len(lacking) > 1 else "check cell is"
        yield f"the {some} missing: {', '.join(lacking)}; grading puts them back"
    code = [raw for raw in raws if raw.type == "code"]
    counting = [
        raw for raw, cell in zip(code, cells, strict=True) if cell.kind not in ("check", "try")
    ]
    for name in names:
        if not any(_binds(raw, name) for raw in counting):
            yield f"no cell defines {name}; {_FRESH}"


def _binds(raw: _Raw, name: str) -> bool:
    """Return True if a cell gives something this name; of broken code, if it might."""
    if raw.tree is None:
        return name in raw.source
    return any(name in bound_names(node) for node in raw.tree.body)


def _defines(raw: _Raw) -> list[str]:
    """Return the names that a cell defines as functions, at its top level."""
    body = raw.tree.body if raw.tree else []
    return [n.name for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def _definitions(raw: _Raw, names: Sequence[str]) -> str:
    """Return a free cell's source with only its definitions left, each on its own line.

    What it defines under the name of an exercise is left out, too: that stays with the free cell.
    """
    lines = raw.source.split("\n")
    kept: set[int] = set()
    for node in raw.tree.body if raw.tree else []:
        if _is_definition(node) and not set(bound_names(node)) & set(names):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            kept.update(range(first - 1, node.end_lineno or first))
    return "\n".join(line if number in kept else "" for number, line in enumerate(lines)).rstrip()


def _is_definition(node: ast.stmt) -> bool:
    """Return True if a statement only defines: a function, a class, imports, a plain constant."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return not any(isinstance(part, ast.Call | ast.Await) for part in ast.walk(node))
    return isinstance(
        node,
        ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom,
    )


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
