"""The archive for learners who do not use git: labs, lessons, the library and the checks."""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import compaction
from compaction.files import write_whole
from grader.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]

FILES = (
    "README.md",
    "LICENSE",
    "LICENSE-texts",
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
    "environment.yml",
)
FOLDERS = ("labs", "course", "grader")
"""What a learner needs; no solved notebooks, no tests."""

_NOT_FOR_LEARNERS = {"classroom", "__pycache__", "build"}
# The earliest date that a zip archive can hold: the same bytes whenever it is made.
_DATE = (1980, 1, 1, 0, 0, 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes: nothing."""


def run(options: argparse.Namespace) -> int:
    """Write the archive and say where it is."""
    path = pack_release()
    with zipfile.ZipFile(path) as archive:
        labs = sum(name.endswith(".ipynb") and "/labs/" in name for name in archive.namelist())
    size_kb = path.stat().st_size // 1000
    print(
        f"{path.relative_to(ROOT).as_posix()}: {labs} lab{'' if labs == 1 else 's'}, {size_kb} kB"
    )
    return 0


def pack_release(root: Path = ROOT) -> Path:
    """Write dist/context-compaction-VERSION.zip and return its path.

    The same files give the same bytes. Raises BadInput when there are no labs yet.
    """
    if not any((root / "labs").glob("*/*.ipynb")):
        raise BadInput(f"{root / 'labs'}: no labs there; python -m grader build makes them")
    name = f"context-compaction-{compaction.__version__}"
    path = root / "dist" / f"{name}.zip"
    path.parent.mkdir(exist_ok=True)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(_files(root), key=lambda file: file.relative_to(root).as_posix()):
            info = zipfile.ZipInfo(f"{name}/{file.relative_to(root).as_posix()}", _DATE)
            info.create_system, info.external_attr = 3, 0o644 << 16  # the same on every system
            # Stored, not deflated: compressors differ in their bytes from version to version.
            archive.writestr(info, file.read_bytes(), zipfile.ZIP_STORED)
    write_whole(path, packed.getvalue())
    return path


def _files(root: Path) -> Iterator[Path]:
    yield from (root / name for name in FILES if (root / name).is_file())
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            parts = path.relative_to(root).parts
            hidden = any(part.startswith(".") or part in _NOT_FOR_LEARNERS for part in parts)
            if path.is_file() and not hidden and not path.name.endswith((".pyc", ".tmp")):
                yield path
