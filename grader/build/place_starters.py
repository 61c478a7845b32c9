"""Solution regions of a lab's notebook: filled from the library, and replaced by the starter.

A code cell of a lab in solutions/ holds the library's function between two lines::

    # BEGIN SOLUTION compaction.tokens.estimate
    # END SOLUTION

``python -m grader build`` puts the function's source between them. When nbgrader makes the
learners' version, it replaces each region, lines and all, by one stub for every notebook;
:class:`PlaceStarters` replaces it by the starter function of the same name in grader/starters.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbgrader.preprocessors import ClearSolutions
from nbgrader.utils import is_solution
from traitlets import Unicode

from grader.build.faults import RegionError

ROOT = Path(__file__).resolve().parents[2]

BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"
_NAME = re.compile(r"#\s*BEGIN SOLUTION\s+(compaction(?:\.\w+)+)\s*")


@dataclass(frozen=True)
class Region:
    """A solution region: the line numbers (from 0) of its two markers, and what it names."""

    first: int
    last: int
    module: str
    function: str


def regions_of(source: str) -> list[Region]:
    """Return the solution regions of a code cell.

    >>> cell = "# BEGIN SOLUTION compaction.tokens.estimate\\n# END SOLUTION"
    >>> regions_of(cell)
    [Region(first=0, last=1, module='compaction.tokens', function='estimate')]

    Raises RegionError when a marker lacks its partner, or the first one names no function.
    """
    found: list[Region] = []
    opened: tuple[int, str, str] | None = None
    for number, line in enumerate(source.split("\n")):
        if BEGIN in line:
            if opened is not None:
                raise RegionError(f"a second {BEGIN} before the first one's {END}")
            match = _NAME.fullmatch(line)
            if match is None:
                raise RegionError(
                    f"{BEGIN} must name a function of the library, as in "
                    f"'# {BEGIN} compaction.tokens.estimate', not {line.strip()!r}"
                )
            module, _, function = match[1].rpartition(".")
            opened = number, module, function
        elif END in line:
            if opened is None:
                raise RegionError(f"{END} without {BEGIN}")
            found.append(Region(opened[0], number, opened[1], opened[2]))
            opened = None
    if opened is not None:
        raise RegionError(f"{BEGIN} without {END}")
    return found


def match_regions(source: str, is_solution_cell: bool) -> list[Region]:
    """Return a cell's regions; raise RegionError unless nbgrader's metadata of the cell agree."""
    regions = regions_of(source)
    if is_solution_cell and not regions:
        raise RegionError(f"a solution needs a region that begins with '# {BEGIN} compaction...'")
    if regions and not is_solution_cell:
        raise RegionError(f"{BEGIN} in a cell that nbgrader does not know as a solution")
    return regions


def fill(source: str, library: Path) -> str:
    """Return a cell's source with each region holding the library's function.

    ``library`` is the folder that holds the package ``compaction``.
    """
    lines = source.split("\n")
    for region in reversed(regions_of(source)):
        code = source_of(home_of(library, region.module, region.function), region.function)
        # Two empty lines, as the formatter wants them after a function.
        lines[region.first + 1 : region.last] = [*code.split("\n"), "", ""]
    return "\n".join(lines)


def home_of(library: Path, module: str, function: str) -> Path:
    """Return the file that defines a function which a module or package hands on.

    >>> home_of(ROOT / "course", "compaction.summary", "compact").name
    'one_pass.py'
    """
    path = library.joinpath(*module.split("."))
    defined = re.compile(rf"^(?:def|class) {function}\b", re.MULTILINE)
    for part in sorted(path.glob("*.py")):
        if defined.search(part.read_text(encoding="utf-8")):
            return part
    return path.with_suffix(".py")


def place(source: str, traps: Path, day: int) -> str:
    """Return a cell's source with each region, markers and all, replaced by the day's starter."""
    lines = source.split("\n")
    for region in reversed(regions_of(source)):
        code = source_of(traps / f"day{day}.py", region.function)
        lines[region.first : region.last + 1] = code.split("\n")
    return "\n".join(lines)


def source_of(path: Path, name: str) -> str:
    """Return the source of a module's function or class, character for character.

    Decorators and comment lines directly above belong to it. The file is read, not imported.
    Raises RegionError when there is no such file or name.

    >>> source_of(ROOT / "course" / "compaction" / "tokens.py", "count_chars").split("\\n")[0]
    'def count_chars(text: str) -> Chars:'
    """
    if not path.is_file():
        raise RegionError(f"there is no {path.name} to take {name} from")
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            while first > 1 and lines[first - 2].startswith("#"):
                first -= 1
            return "\n".join(lines[first - 1 : node.end_lineno])
    raise RegionError(f"there is no function {name} in {path.name}")


def day_of(slug: str) -> int:
    """Return the day of a lab by its name.

    >>> day_of("day3_trigger")
    3

    Raises RegionError for a name that is not of this form.
    """
    match = re.fullmatch(r"day(\d+)_\w+", slug)
    if match is None:
        raise RegionError(f"a lab is called dayN_verb, not {slug}")
    return int(match[1])


class PlaceStarters(ClearSolutions):  # type: ignore[misc]
    """nbgrader's ClearSolutions, with the day's starter function in the place of its stub."""

    traps = Unicode(
        str(ROOT / "grader" / "starters"), help="The folder with a module of starters for each day"
    ).tag(config=True)

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> tuple[Any, Any]:
        """Replace the regions of a code cell; an answer in words stays nbgrader's business."""
        if cell.cell_type != "code":
            return super().preprocess_cell(cell, resources, cell_index)
        lab = resources["nbgrader"]["assignment"]
        try:
            if match_regions(cell.source, is_solution(cell)):
                cell.source = place(cell.source, Path(self.traps), day_of(lab))
        except RegionError as error:
            name = resources["nbgrader"]["notebook"]
            raise RegionError(f"{name}.ipynb, {cell_name(cell, cell_index)}: {error}") from None
        return cell, resources


def cell_name(cell: Any, index: int) -> str:
    """Say which cell is meant: its position from 1, and its id where it has one.

    >>> cell_name({"id": "estimate"}, 4)
    'cell 5 (estimate)'
    """
    return f"cell {index + 1} ({cell['id']})" if cell.get("id") else f"cell {index + 1}"
