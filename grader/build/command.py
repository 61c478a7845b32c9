"""Notebooks from one source: solutions/ filled from the library, labs/ made from it by nbgrader.

``python -m grader build`` writes what is stale; with ``--check`` it only says so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compaction.files import write_whole
from grader.build.faults import BuildError, Stale
from grader.build.labs import fill_lab
from grader.build.lessons import execute_lessons, lessons
from grader.errors import BadInput
from grader.exercises import SLUGS

ROOT = Path(__file__).resolve().parents[2]


def build_labs(slugs: Sequence[str] = (), *, check: bool = False, root: Path = ROOT) -> list[Stale]:
    """Fill the notebooks in solutions/ and make labs/ from them; return what was stale.

    With ``check`` nothing is written. ``slugs`` chooses labs; none means all. Raises BuildError
    when a notebook cannot be built.
    """
    chosen = [slug for slug in labs(root) if slug in slugs or not slugs]
    filled: dict[str, str] = {}
    faults: list[str] = []
    for slug in chosen:
        try:
            filled[slug] = fill_lab(root / "solutions" / slug / f"{slug}.ipynb", root)
        except BuildError as error:
            faults += error.faults
    if faults:
        raise BuildError(faults)
    stale = []
    for slug, text in filled.items():
        path = root / "solutions" / slug / f"{slug}.ipynb"
        why = "library, imports or form have changed since it was filled"
        stale += _bring_up_to_date(path, text.encode(), why, root, check)
    for slug, files in _release(filled, root).items():
        stale += _compare_lab(slug, files, root, check)
    if not slugs:
        stale += _strangers(root, chosen)
    return stale


def labs(root: Path = ROOT) -> list[str]:
    """Return the names of all labs that have a folder in solutions/, in order."""
    return [slug for slug in SLUGS.values() if (root / "solutions" / slug).is_dir()]


def _bring_up_to_date(path: Path, data: bytes, why: str, root: Path, check: bool) -> list[Stale]:
    name = path.relative_to(root).as_posix()
    if path.is_file() and path.read_bytes() == data:
        return []
    if not path.exists():
        why = "it is not there"
    if not check:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    return [Stale(name, why)]


def _compare_lab(slug: str, files: dict[str, bytes], root: Path, check: bool) -> list[Stale]:
    stale = []
    for name, data in files.items():
        why = "its source in solutions/ or a starter has changed since it was made"
        stale += _bring_up_to_date(root / "labs" / slug / name, data, why, root, check)
    for path in sorted(_files(root / "labs" / slug)):
        if path.relative_to(root / "labs" / slug).as_posix() not in files:
            name = path.relative_to(root).as_posix()
            stale.append(Stale(name, "not made from solutions/; remove it", left=True))
    return stale


def _strangers(root: Path, known: Sequence[str]) -> list[Stale]:
    """Name folders in labs/ that have no notebook in solutions/."""
    return [
        Stale(f"labs/{folder.name}", "nothing of this name in solutions/; remove it", left=True)
        for folder in sorted((root / "labs").glob("[!.]*"))
        if folder.is_dir() and folder.name not in known
    ]


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and "__pycache__" not in path.parts:
            yield path


# --- nbgrader ---------------------------------------------------------------------------


def nbgrader_api(root: Path, gradebook: Path, traps: Path = ROOT / "grader" / "starters") -> Any:
    """Return nbgrader's own API with the settings of grader/nbgrader_config.py.

    ``root`` is the course's folder, ``gradebook`` the file of its database.
    """
    from nbgrader.apps.api import NbGraderAPI
    from traitlets.config.loader import PyFileConfigLoader

    config = PyFileConfigLoader("nbgrader_config.py", path=str(ROOT / "grader")).load_config()
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.db_url = f"sqlite:///{gradebook}"
    config.PlaceStarters.traps = str(traps)
    with own_commands_first():
        return NbGraderAPI(config=config)


@contextlib.contextmanager
def own_commands_first() -> Iterator[None]:
    """Put this environment's commands first on the path.

    nbgrader starts alembic by its bare name whenever it makes a gradebook, and the environment
    need not be activated.
    """
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _release(filled: dict[str, str], root: Path) -> dict[str, dict[str, bytes]]:
    """Let nbgrader make the learners' versions; return each lab's files by their names.

    It works in a folder of its own with a gradebook of its own, so the result depends on the
    sources only, and a gradebook with submissions is not in the way.
    """
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve()
        for slug, text in filled.items():
            folder = work / "solutions" / slug
            for path in _files(root / "solutions" / slug):
                copy = folder / path.relative_to(root / "solutions" / slug)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
            (folder / f"{slug}.ipynb").write_bytes(text.encode())
        # nbgrader asks another program for the version of a new gradebook, which takes longer than
        # all the rest. This one is thrown away, so it gets a table that says it is not new.
        with contextlib.closing(sqlite3.connect(work / "gradebook.db")) as database:
            database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        api = nbgrader_api(work, work / "gradebook.db", root / "grader" / "starters")
        made: dict[str, dict[str, bytes]] = {}
        for slug in filled:
            result = api.generate_assignment(slug)
            if not result["success"]:
                raise BuildError([f"{slug}: nbgrader: {_last_line(result)}"])
            folder = work / "labs" / slug
            made[slug] = {
                path.relative_to(folder).as_posix(): _with_plain_line_ends(path)
                for path in _files(folder)
            }
        return made


def _with_plain_line_ends(path: Path) -> bytes:
    """Return a file's bytes; a notebook's with the line ends that it has on every system."""
    data = path.read_bytes()
    return data.replace(b"\r\n", b"\n") if path.suffix == ".ipynb" else data


def _last_line(result: dict[str, Any]) -> str:
    said = (result.get("error") or result.get("log") or "it gave no reason").strip()
    return str(said.splitlines()[-1])


# --- the command line -------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="build only these, as in day1_estimate (default: all)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; say what is stale, and end with 1 if anything is",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--labs", action="store_true", help="solutions and labs only")
    only.add_argument("--lessons", action="store_true", help="lessons only")


def run(options: argparse.Namespace) -> int:
    """Build or check, and print a line for each stale file."""
    lab_names, lesson_names = labs(), [path.stem for path in lessons()]
    for name in options.names:
        if name not in lab_names + lesson_names:
            known = ", ".join(sorted({*lab_names, *lesson_names}))
            raise BadInput(f"{name}: no lab or lesson of this name; there are {known}")
    stale = []
    try:
        if not options.lessons:
            stale += build_labs(options.names, check=options.check)
        if not options.labs:
            stale += execute_lessons(options.names, check=options.check)
    except BuildError as error:
        for fault in error.faults:
            print(f"error: {fault}", file=sys.stderr)
        return 2
    for name, why, _ in stale:
        print(f"{name}: {why}")
    if options.check:
        print(f"{len(stale)} stale (python -m grader build)" if stale else "all is up to date")
        return 1 if stale else 0
    renewed = sum(not one.left for one in stale)
    print(f"{renewed} renewed" if renewed else "all was up to date")
    return 1 if renewed < len(stale) else 0
