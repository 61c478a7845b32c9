"""A class to be graded, in a folder of its own: its settings, labs, and what people hand in."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

from grader.build.command import ROOT

DAY1, DAY2 = "day1_estimate", "day2_calibrate"
STARTER_WHY = "one rule for all text: a CJK character costs about a whole token, not a quarter"


def make_course(root: Path, db_url: str = "") -> Path:
    """Lay a course's folder with two labs, and nbgrader's settings for it."""
    root = root.resolve()
    for slug in (DAY1, DAY2):
        for part in ("labs", "solutions"):
            shutil.copytree(ROOT / part / slug, root / part / slug)
    lines = [
        f"load_subconfig({str(ROOT / 'grader' / 'nbgrader_config.py')!r})",
        "c = get_config()",
        f"c.CourseDirectory.root = {str(root)!r}",
        f"c.CourseDirectory.db_url = {db_url or f'sqlite:///{root}/gradebook.db'!r}",
    ]
    (root / "nbgrader_config.py").write_text("\n".join(lines) + "\n")
    if not db_url:
        # nbgrader asks another program for the version of a new gradebook, which takes seconds.
        with contextlib.closing(sqlite3.connect(root / "gradebook.db")) as database:
            database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    return root


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def starter(slug: str = DAY1) -> dict[str, Any]:
    """Return a lab as it is handed out."""
    return read(ROOT / "labs" / slug / f"{slug}.ipynb")


def by_grade_id(notebook: dict[str, Any]) -> dict[str, dict[str, Any]]:
    marked = [cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
    return {cell["metadata"]["nbgrader"]["grade_id"]: cell for cell in marked}


def solved(slug: str = DAY1) -> dict[str, Any]:
    """Return a lab as somebody hands it in who has typed in the solution and the answers."""
    mine = copy.deepcopy(starter(slug))
    cells = by_grade_id(read(ROOT / "solutions" / slug / f"{slug}.ipynb"))
    for grade_id, cell in by_grade_id(mine).items():
        if cell["metadata"]["nbgrader"]["solution"]:
            cell["source"] = cells[grade_id]["source"]
    return mine


def with_code(source: str, grade_id: str = "estimate", slug: str = DAY1) -> dict[str, Any]:
    """Return a lab with this code in a solution cell."""
    mine = starter(slug)
    by_grade_id(mine)[grade_id]["source"] = source
    return mine


def text_of(notebook: dict[str, Any]) -> str:
    return json.dumps(notebook, ensure_ascii=False)


def hand_in(
    root: Path,
    student: str,
    notebook: dict[str, Any] | str,
    slug: str = DAY1,
    when: str = "2026-02-18 10:30:00.000000 UTC",
) -> Path:
    """Lay a notebook where nbgrader collects it; return its path."""
    folder = root / "grader" / "classroom" / "submitted" / student / slug
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{slug}.ipynb"
    path.write_text(notebook if isinstance(notebook, str) else text_of(notebook), encoding="utf-8")
    if when:
        (folder / "timestamp.txt").write_text(when)
        told = datetime.fromisoformat(when.replace(" UTC", "+00:00")).timestamp()
        os.utime(folder, (told, told))  # the time that counts: the folder's own
    return path
