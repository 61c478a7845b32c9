"""The learner's working copy: lessons and labs, laid in workbook/ and renewed until touched.

The committed notebooks flow in; ``workbook/`` flows out: a lab is copied as it is, a lesson
without its outputs, so that its questions are still open, and with links that stay inside the
working copy. A stamp file remembers what was laid. A notebook whose cells still say the same is
renewed when the course is; one that the learner has written in is never written to again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compaction.files import write_whole
from grader.errors import BadInput
from grader.exercises import LESSONS_FOLDER, SLUGS, START_HERE
from grader.notebooks.lab import NotebookError, notebook_files, read_notebook

ROOT = Path(__file__).resolve().parents[2]
STAMPS = Path(".jupyter", "laid.json")
"""Below workbook/: for each notebook laid, a hash of what its cells said."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes: nothing."""


def run(options: argparse.Namespace) -> int:
    """Lay what is missing, renew what is untouched, and say in a few lines what was done."""
    print("\n".join(lay_workbook().lines()))
    return 0


@dataclass
class Laid:
    """What was done in workbook/; paths are relative to it, those of ``outdated`` to the clone."""

    new: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    outdated: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Say it: one line, and one more per notebook of yours that has a newer version.

        >>> Laid(kept=["lessons/day1_lesson.ipynb"]).lines()
        ['workbook/ is complete: 1 notebook, as you left it']
        """
        kept = _notebooks(len(self.kept))
        if self.new and not (self.renewed or self.kept):
            lines = [f"workbook/ now holds {_notebooks(len(self.new))}"]
        elif self.new or self.renewed:
            done = [f"{len(self.new)} new"] * bool(self.new)
            done += [f"{len(self.renewed)} renewed"] * bool(self.renewed)
            lines = [f"workbook/: {', '.join(done)}; {kept} as you left {_them(self.kept)}"]
        else:
            lines = [f"workbook/ is complete: {kept}, as you left {_them(self.kept)}"]
        for mine, newer in self.outdated.items():
            lines.append(
                f"workbook/{mine} is yours and stays; the course has a newer one in {newer} "
                "(to work in it, rename yours and run this again)"
            )
        return lines


def _notebooks(count: int) -> str:
    return f"{count} notebook{'' if count == 1 else 's'}"


def _them(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"


def lay_workbook(root: Path = ROOT) -> Laid:
    """Lay what workbook/ lacks, renew what nobody has touched, and return what was done.

    A lab counts as there under any file name, so that a notebook that the learner has renamed
    does not get a fresh one beside it. A file appears whole or not at all. Raises BadInput when
    there are no labs, or nowhere to lay them.
    """
    labs = [slug for slug in SLUGS.values() if (root / "labs" / slug / f"{slug}.ipynb").is_file()]
    if not labs:
        raise BadInput(f"{root / 'labs'}: no labs there; python -m grader build makes them")
    workbook = root / "workbook"
    done = Laid()
    try:
        (workbook / STAMPS).parent.mkdir(parents=True, exist_ok=True)
        stamps = _read_stamps(workbook / STAMPS)
        elsewhere = _labs_by_content(workbook)
        for source, name, content in _notebooks_to_lay(root, labs):
            renamed = elsewhere.get(Path(name).stem)
            if renamed is not None and not (workbook / name).exists():
                done.kept.append(renamed)
            else:
                newer = source.relative_to(root).as_posix()
                _lay_notebook(workbook, name, content, newer, stamps, done)
        for slug in labs:
            _lay_other_files(root / "labs" / slug, workbook / slug)
        write_whole(workbook / STAMPS, json.dumps(stamps, indent=1).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"{error.filename or workbook}: cannot be written: {reason}") from None
    return done


def _notebooks_to_lay(root: Path, labs: list[str]) -> Iterable[tuple[Path, str, bytes]]:
    """Yield each notebook: where the course has it, its name in workbook/, and its bytes."""
    start = root / "course" / START_HERE
    if start.is_file():
        yield start, START_HERE, start.read_bytes()
    for lesson in sorted((root / "course").glob("day[0-9]*.ipynb")):
        name = f"{LESSONS_FOLDER}/{lesson_name(lesson.stem)}"
        yield lesson, name, working_lesson(lesson.read_text(encoding="utf-8"))
    for slug in labs:
        lab = root / "labs" / slug / f"{slug}.ipynb"
        yield lab, f"{slug}/{slug}.ipynb", lab.read_bytes()


def _lay_notebook(
    workbook: Path,
    name: str,
    content: bytes,
    newer: str,
    stamps: dict[str, str],
    done: Laid,
) -> None:
    """Lay or renew one notebook, or keep the learner's."""
    path, fresh = workbook / name, fingerprint(content)
    if not (path.exists() or path.is_symlink()):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
        done.new.append(name)
        stamps[name] = fresh
        return
    mine = fingerprint(path.read_bytes())
    if mine == fresh:
        stamps[name] = fresh
        done.kept.append(name)
    elif mine == stamps.get(name):  # as it was laid, and the course has changed since
        write_whole(path, content)
        done.renewed.append(name)
        stamps[name] = fresh
    else:
        done.kept.append(name)
        if stamps.get(name) not in (None, fresh):
            done.outdated[name] = newer


def _lay_other_files(lab: Path, folder: Path) -> None:
    """Copy a lab's data and modules that are not there."""
    for source in sorted(path for path in lab.rglob("*") if path.is_file()):
        name = source.relative_to(lab)
        target = folder / name
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or name.suffix == ".ipynb" or target.exists() or target.is_symlink():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, source.read_bytes())


def _labs_by_content(workbook: Path) -> dict[str, str]:
    """Return where each lab lies in workbook/, by what is in the notebooks."""
    found = {}
    for path in notebook_files(workbook):
        with suppress(NotebookError):
            found[read_notebook(path).slug] = path.relative_to(workbook).as_posix()
    return found


# --- a lesson's working form ------------------------------------------------------------


def lesson_name(stem: str) -> str:
    """Return the file name of a lesson's working copy, which is what a tab shows.

    >>> lesson_name("day2_calibrate")
    'day2_lesson.ipynb'
    """
    return f"{stem.partition('_')[0]}_lesson.ipynb"


def working_lesson(text: str) -> bytes:
    """Return a committed lesson as a learner gets it: no outputs, links within workbook/."""
    lesson = json.loads(text)
    for cell in lesson["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
        else:
            cell["source"] = working_links("".join(cell["source"])).splitlines(keepends=True)
    return (json.dumps(lesson, ensure_ascii=False, indent=1) + "\n").encode()


_LINK = re.compile(r"(\]\()([^)#\s]+)")


def working_links(markdown: str) -> str:
    """Point a lesson's links to the working copies.

    >>> working_links("[lab](../labs/day2_calibrate/day2_calibrate.ipynb)")
    '[lab](../day2_calibrate/day2_calibrate.ipynb)'
    >>> working_links("[tomorrow](day3_trigger.ipynb)")
    '[tomorrow](day3_lesson.ipynb)'
    >>> working_links("[syllabus](README.md) [web](https://example.org/x)")
    '[syllabus](../../course/README.md) [web](https://example.org/x)'
    """

    def turned(match: re.Match[str]) -> str:
        target = match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        if target.startswith("../labs/"):
            target = "../" + target.removeprefix("../labs/")
        elif re.fullmatch(r"day\d\w*\.ipynb", target):
            target = lesson_name(target)
        elif target.startswith("../"):
            target = "../" + target
        else:
            target = "../../course/" + target
        return match[1] + target

    return _LINK.sub(turned, markdown)


def fingerprint(notebook: bytes) -> str:
    """Return a hash of what the cells say; outputs and metadata do not count.

    What is no notebook gets the hash of its bytes.
    """
    try:
        cells = json.loads(notebook)["cells"]
        said: Any = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError, RecursionError):
        return hashlib.sha256(notebook).hexdigest()
    return hashlib.sha256(json.dumps(said).encode("utf-8", "surrogatepass")).hexdigest()


def _read_stamps(path: Path) -> dict[str, str]:
    """Return what was laid; a stamp file that is missing or spoiled remembers nothing."""
    try:
        stamps = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(stamps, dict):
        return {}
    return {str(name): value for name, value in stamps.items() if isinstance(value, str)}
