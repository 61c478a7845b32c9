"""Run the lessons in fresh kernels and keep their outputs, the same every time.

A lesson is committed with its outputs, so that it can be read on the web. What depends on the
moment or the machine (how a stream was cut into pieces, memory addresses, the folder of the
repository) is evened out; what depends on chance or on the clock must not be printed at all.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from compaction.files import write_whole
from grader.build.faults import BuildError, Stale
from grader.build.labs import METADATA, Notebook, read, render
from grader.build.place_starters import cell_name

ROOT = Path(__file__).resolve().parents[2]

TIMEOUT_S = 120
"""A cell that takes longer than this is broken."""

VARIES = "varies"
"""Tag of a cell that speaks about the machine it runs on: it must run, and what it has said in the
committed lesson stays."""

_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_SCRATCH = re.compile(re.escape(tempfile.gettempdir()) + r"[/\\][\w.-]+")  # of any name
_KERNEL_FILE = re.compile(r"[^\s\"'(]*ipykernel_\d+[/\\]\d+\.py")


def execute_lessons(
    names: Sequence[str] = (), *, check: bool = False, root: Path = ROOT
) -> list[Stale]:
    """Run the notebooks in course/ in fresh kernels and write them; return what was stale.

    With ``check`` nothing is written, and only what can be compared on any machine is: the
    texts of the outputs, and of pictures that they are there. ``names`` chooses lessons; none
    means all. Raises BuildError when a lesson fails.
    """
    paths = [path for path in lessons(root) if path.stem in names or not names]
    # A kernel mostly waits for its own start, so a few at a time.
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        results = list(pool.map(lambda path: _attempt(path, root), paths))
    failed = [result for result in results if isinstance(result, BuildError)]
    if failed:
        raise BuildError([fault for error in failed for fault in error.faults])
    stale = []
    for path, made in zip(paths, results, strict=True):
        assert isinstance(made, dict)  # none has failed
        why = _difference(path, made, exactly=not check)
        if why:
            stale.append(Stale(path.relative_to(root).as_posix(), why))
            if not check:
                write_whole(path, render(made).encode())
    return stale


def lessons(root: Path = ROOT) -> list[Path]:
    """Return the paths of all lessons, in order."""
    return sorted((root / "course").glob("day[0-9]*.ipynb"))


def _attempt(path: Path, root: Path) -> Notebook | BuildError:
    try:
        return execute(path, root)
    except BuildError as error:
        return error


def execute(path: Path, root: Path = ROOT) -> Notebook:
    """Return a lesson with the outputs of a fresh kernel, evened out.

    Raises BuildError when a cell that is not marked for it raises or takes too long.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    node = nbformat.from_dict({**_cleared(read(path)), "metadata": METADATA})
    running = 0

    def note(cell: Any, cell_index: int) -> None:
        nonlocal running
        running = cell_index

    client = NotebookClient(
        node,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        on_cell_start=note,
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        name = cell_name(node.cells[running], running)
        if isinstance(error, CellExecutionError):
            said = f"{error.ename}: {error.evalue}"
        else:
            said = str(error)
        raise BuildError([f"{path.name}, {name}: {said.splitlines()[0]}"]) from None
    made: Notebook = json.loads(nbformat.writes(node))
    for cell in made["cells"]:
        cell["source"] = "".join(cell["source"])
        cell.get("metadata", {}).pop("execution", None)
    _keep_what_varies(read(path), made)
    _count(made)
    folders = [(_folder(root), "."), (_folder(Path.home()), "~"), (_SCRATCH, "scratch")]
    return {**made, "cells": [_even_out(cell, folders) for cell in made["cells"]]}


def _folder(path: Path) -> re.Pattern[str]:
    """Return a pattern for a folder's name where it is not the beginning of a longer one."""
    return re.compile(re.escape(str(path)) + r"(?![\w.-])")


def _cleared(lesson: Notebook) -> Notebook:
    """Return a lesson as if it had never been run, with an id for each cell."""
    for index, cell in enumerate(lesson["cells"]):
        cell.setdefault("id", f"cell-{index + 1}")
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    return lesson


def _keep_what_varies(committed: Notebook, made: Notebook) -> None:
    """Give cells tagged VARIES the outputs that they were committed with, if there are any."""
    for before, cell in zip(committed["cells"], made["cells"], strict=True):
        if VARIES in cell.get("metadata", {}).get("tags", []) and before.get("outputs"):
            cell["outputs"] = before["outputs"]


def _count(lesson: Notebook) -> None:
    """Number the code cells from 1, the empty ones left out, as Run All in a fresh kernel does."""
    number = 0
    for cell in lesson["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += bool(cell["source"].strip())
        cell["execution_count"] = number if cell["source"].strip() else None
        for output in cell["outputs"]:
            if output["output_type"] == "execute_result":
                output["execution_count"] = number


def _even_out(value: Any, folders: list[tuple[re.Pattern[str], str]]) -> Any:
    """Take addresses and folders of this machine out of all texts."""
    if isinstance(value, str):
        value = _ADDRESS.sub("at 0x...", _KERNEL_FILE.sub("cell", value))
        for folder, name in folders:
            value = folder.sub(name, value)
        return value
    if isinstance(value, list):
        return [_even_out(item, folders) for item in value]
    if isinstance(value, dict):
        return {
            # A picture's data holds no such text, and is long.
            key: item if key.startswith("image/") else _even_out(item, folders)
            for key, item in value.items()
        }
    return value


# --- what has changed -------------------------------------------------------------------


def _difference(path: Path, made: Notebook, exactly: bool) -> str:
    """Say what is stale in the file, or nothing; ``exactly`` compares to the byte."""
    if exactly:
        return (
            "" if path.read_text(encoding="utf-8") == render(made) else "its outputs have changed"
        )
    old = read(path)
    if old["metadata"] != METADATA:
        return "its metadata are not the course's"
    for index, (before, after) in enumerate(zip(old["cells"], made["cells"], strict=True)):
        name = f"cell {index + 1} ({after['id']})"
        if before.get("execution_count") != after.get("execution_count"):
            return f"{name} was not run in order in a fresh kernel"
        texts = [list(_texts(cell)) for cell in (before, after)]
        for was, now in zip(*texts, strict=False):
            if was != now:
                return f"{name} shows {_brief(now)} where {_brief(was)} is committed"
        if len(texts[0]) != len(texts[1]):
            return f"{name} has {len(texts[1])} outputs where {len(texts[0])} are committed"
    return ""


def _texts(cell: dict[str, Any]) -> Iterator[str]:
    """Yield a cell's outputs as texts; of a picture, its kind."""
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream":
            yield _joined(output["text"])
        elif output["output_type"] == "error":
            yield _joined([line + "\n" for line in output["traceback"]])
        else:
            for kind, content in sorted(output["data"].items()):
                yield f"<{kind}>" if kind.startswith("image/") else _joined(content)


def _joined(text: Any) -> str:
    if isinstance(text, list):
        return "".join(map(str, text))
    return text if isinstance(text, str) else json.dumps(text, sort_keys=True)


def _brief(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
