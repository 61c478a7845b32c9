"""The source of a lab: its notebook in solutions/, filled from the library and verified.

Text, checks and answers in words are written in the notebook. Three things are put there by
``python -m grader build``, so that each has one source: the import cell
(:data:`grader.exercises.IMPORTS`), the solution regions (the library's functions), and the
notebook's own metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grader.build.faults import BuildError, RegionError
from grader.build.place_starters import cell_name, fill, match_regions, place
from grader.checks import CHECKS
from grader.exercises import IMPORTS, SLUGS
from grader.notebooks.write import METADATA as METADATA
from grader.notebooks.write import render as render

Notebook = dict[str, Any]
Cell = dict[str, Any]

GOES_ON, TRY_IT = "raises-exception", "try-it"
"""Tags: after an error Run All goes on; and the cell is there to look, not to define."""


def fill_lab(path: Path, root: Path) -> str:
    """Return a lab's notebook, filled and verified, as the text of its file.

    ``path`` is solutions/<slug>/<slug>.ipynb, ``root`` the folder of the repository. Raises
    BuildError with all that is wrong.
    """
    notebook = read(path)
    days = {slug: day for day, slug in SLUGS.items() if day in IMPORTS}
    if path.stem not in days:
        raise BuildError([f"{path.name}: no lab of this name; there are {', '.join(days)}"])
    day = days[path.stem]
    faults = list(_fill_cells(notebook, day, root)) or list(_faults_of(notebook, day, root))
    if faults:
        raise BuildError([f"{path.name}, {fault}" for fault in faults])
    return render(notebook)


def read(path: Path) -> Notebook:
    """Read a notebook of the course; raise BuildError in one line when it is not one."""
    try:
        notebook = json.loads(path.read_bytes())
        cells = notebook["cells"]
        version = notebook["nbformat"], notebook["nbformat_minor"]
        texts = [cell["source"] for cell in cells]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BuildError([f"{path.name}: expected a notebook: {error}"]) from error
    if version < (4, 5):
        raise BuildError([f"{path.name}: format {version[0]}.{version[1]}; save it as 4.5"])
    for cell, text in zip(cells, texts, strict=True):
        cell["source"] = text if isinstance(text, str) else "".join(text)
    result: Notebook = notebook
    return result


def grade_id_of(cell: Cell) -> str:
    """Return a cell's grade id; empty when nbgrader has nothing to do with the cell."""
    return str(cell["metadata"].get("nbgrader", {}).get("grade_id", ""))


def is_marked(cell: Cell, key: str) -> bool:
    """Say whether nbgrader's metadata of a cell has "grade", "solution" or "locked"."""
    return bool(cell["metadata"].get("nbgrader", {}).get(key))


def _fill_cells(notebook: Notebook, day: int, root: Path) -> Iterator[str]:
    """Put into the cells what has its source elsewhere; yield what is wrong."""
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        cell["outputs"], cell["execution_count"] = [], None
        if grade_id_of(cell) == "imports":
            cell["source"] = f"{IMPORTS[day]}from grader import check, score"
        try:
            match_regions(cell["source"], is_marked(cell, "solution"))
            cell["source"] = fill(cell["source"], root / "course")
        except RegionError as error:
            yield f"{cell_name(cell, index)}: {error}"


def _faults_of(notebook: Notebook, day: int, root: Path) -> Iterator[str]:
    """Yield what would go wrong later, in nbgrader or in a learner's hands."""
    cells: list[Cell] = notebook["cells"]
    ids = [str(cell.get("id")) for cell in cells]
    expected = [check.id for check in CHECKS.values() if check.day == day]
    graded = [grade_id_of(cell) for cell in cells]
    for index, cell in enumerate(cells):
        for fault in _cell_faults(cell, expected):
            yield f"{cell_name(cell, index)}: {fault}"
        if ids[index] in ids[:index]:
            yield f"{cell_name(cell, index)}: the same id as an earlier cell"
        if graded[index] and graded[index] in graded[:index]:
            yield f"{cell_name(cell, index)}: the same grade id as an earlier cell"
    for name in [*expected, "imports", "score"]:
        if name not in graded:
            yield f"grade id {name}: there is no such cell"
    for index, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            try:
                place(cell["source"], root / "grader" / "starters", day)
            except RegionError as error:
                yield f"{cell_name(cell, index)}: the starter: {error}"


def _cell_faults(cell: Cell, checks: list[str]) -> Iterator[str]:
    grade_id, tags = grade_id_of(cell), cell["metadata"].get("tags", [])
    if not cell.get("id"):
        yield "a cell needs an id"
    if grade_id and grade_id != cell.get("id"):
        yield f"id and grade id differ: {cell.get('id')}, {grade_id}"
    if re.search(r"BEGIN (HIDDEN TESTS|MARK SCHEME)", cell["source"]):
        yield "no hidden regions: they show in the feedback"
    if cell["cell_type"] != "code":
        return
    is_check = is_marked(cell, "grade")
    if is_check and grade_id not in checks:
        yield f"no check of this day; expected one of {', '.join(checks)}"
    if is_check and cell["metadata"]["nbgrader"].get("points") != 1:
        yield "a check gives 1 point"
    if is_check and not cell["source"].startswith(f'check("{grade_id}", {_function(grade_id)})'):
        yield f'a check cell is check("{grade_id}", {_function(grade_id)})'
    if grade_id not in ("imports", "score") and GOES_ON not in tags:
        yield f"the tag {GOES_ON} is missing"
    if not grade_id and TRY_IT not in tags:
        yield f"the tag {TRY_IT} is missing"


def _function(check_id: str) -> str:
    return CHECKS[check_id].function if check_id in CHECKS else "..."
