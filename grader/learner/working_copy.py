"""The learner's working copy: the labs, laid at workbook/ where they are not there yet."""

from __future__ import annotations

import argparse
import os
import secrets
from contextlib import suppress
from pathlib import Path

from grader.errors import BadInput
from grader.exercises import SLUGS
from grader.notebooks.lab import NotebookError, notebook_files, read_notebook

ROOT = Path(__file__).resolve().parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes: nothing."""


def run(options: argparse.Namespace) -> int:
    """Lay what is missing, and say in one line what was done."""
    laid, kept = lay_workbook()
    if not laid:
        print(f"workbook/ is complete: {_labs(kept)}, all as you left them")
    elif not kept:
        print(f"workbook/ now holds {_labs(laid)}")
    else:
        print(f"workbook/ now also holds {', '.join(laid)}; {_labs(kept)} stay as you left them")
    return 0


def _labs(slugs: list[str]) -> str:
    return f"{len(slugs)} lab{'' if len(slugs) == 1 else 's'}"


def lay_workbook(root: Path = ROOT) -> tuple[list[str], list[str]]:
    """Copy each lab that workbook/ lacks; return the labs laid and those that were there.

    Nothing that is there is ever written to. A lab counts as there under any file name, so that
    a notebook that the learner has renamed does not get a fresh one beside it. A notebook
    appears whole or not at all. Raises BadInput when there are no labs, or nowhere to lay them.
    """
    labs = [slug for slug in SLUGS.values() if (root / "labs" / slug / f"{slug}.ipynb").is_file()]
    if not labs:
        raise BadInput(f"{root / 'labs'}: no labs there; python -m grader build makes them")
    workbook = root / "workbook"
    laid: list[str] = []
    kept: list[str] = []
    try:
        workbook.mkdir(exist_ok=True)
        there = _labs_in(workbook)
        for slug in labs:
            new = _lay(root / "labs" / slug, workbook / slug, slug in there)
            (laid if new else kept).append(slug)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"{error.filename or workbook}: cannot be written: {reason}") from None
    return laid, kept


def _labs_in(workbook: Path) -> set[str]:
    found = set()
    for path in notebook_files(workbook):
        found.add(path.stem)
        with suppress(NotebookError):
            found.add(read_notebook(path).slug)
    return found


def _lay(lab: Path, folder: Path, has_notebook: bool) -> bool:
    """Copy a lab's files that are not there; return whether its notebook was among them."""
    new = False
    for source in sorted(path for path in lab.rglob("*") if path.is_file()):
        name = source.relative_to(lab)
        if any(part.startswith(".") for part in name.parts):
            continue
        is_notebook = name.suffix == ".ipynb"
        if is_notebook and has_notebook:
            continue
        if _copy_if_absent(source, folder / name) and is_notebook:
            new = True
    return new


def _copy_if_absent(source: Path, target: Path) -> bool:
    """Copy a file whole, unless there is something of its name; return whether it was copied."""
    if target.is_symlink() or target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(source.read_bytes())
        try:
            os.link(temporary, target)  # unlike a rename, this never replaces anything
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            if target.exists():
                return False
            os.rename(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return True
