"""The door: lay the working copy, and open JupyterLab with the next day's lesson and lab.

Nothing is written into the environment: the interface is set by a folder of settings beside this
module, which Jupyter is told of, and the arrangement of the page lies in ``workbook/.jupyter``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compaction.files import write_whole
from grader.errors import BadInput
from grader.exercises import LESSONS_FOLDER, SLUGS, START_HERE
from grader.learner.progress import next_day, progress_of
from grader.learner.working_copy import ROOT, lay_workbook, lesson_name

SETTINGS = Path(__file__).resolve().parent
"""Its folder labconfig/ takes the instructor's tools and the news out of the interface."""

WORKSPACE = "start"
LOOK_AT_PROGRESS_S = 20
"""Longer than this nobody waits for a page to open; then day 1 is shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes: what is handed to JupyterLab as it is."""
    parser.add_argument(
        "jupyter",
        nargs="*",
        metavar="FLAG",
        help="after -- flags for JupyterLab, as in: lab -- --port 9999; with BROWSER=none in the "
        "environment no browser is opened, and the address is printed",
    )


def run(options: argparse.Namespace) -> int:
    """Lay workbook/, arrange the page, and run JupyterLab until it is ended."""
    print("\n".join(lay_workbook().lines()), flush=True)
    workbook = ROOT / "workbook"
    day = _day_to_open(workbook)
    write_workspace(workbook, day)
    return subprocess.call(lab_command(options.jupyter), cwd=ROOT, env=lab_environment(workbook))


def _day_to_open(workbook: Path) -> int:
    try:
        return next_day(progress_of(workbook, LOOK_AT_PROGRESS_S)).number
    except BadInput:  # "Start here" says what is wrong
        return 1


def lab_command(given: Sequence[str]) -> list[str]:
    """Return the command that opens JupyterLab on the arranged page."""
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--LabApp.default_url=/lab/workspaces/{WORKSPACE}",
    ]
    command.append("--ServerApp.preferred_dir=workbook")
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # a container
        command.append("--allow-root")
    if os.environ.get("BROWSER") == "none":
        command.append("--no-browser")
    return [*command, *given]


def lab_environment(workbook: Path) -> dict[str, str]:
    """Return the environment in which JupyterLab finds our settings and our own commands."""
    paths = {
        "JUPYTER_CONFIG_PATH": str(SETTINGS),
        "PATH": str(Path(sys.executable).parent),
    }
    environment = dict(os.environ)
    for name, first in paths.items():
        rest = environment.get(name)
        environment[name] = os.pathsep.join([first, rest] if rest else [first])
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(workbook / ".jupyter" / "workspaces")
    return environment


def write_workspace(workbook: Path, day: int) -> Path:
    """Write the arrangement of the page for a day: start page and lesson beside the lab."""
    from jupyterlab_server.workspaces_handler import WORKSPACE_EXTENSION, slugify

    folder = workbook / ".jupyter" / "workspaces"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (slugify(WORKSPACE) + WORKSPACE_EXTENSION)
    write_whole(path, json.dumps(workspace(day), indent=1))
    return path


def workspace(day: int) -> dict[str, Any]:
    """Return a JupyterLab workspace: the lesson's tab in front at the left, the lab at the right.

    >>> sorted(name for name in workspace(2)["data"] if name.startswith("notebook:"))[0]
    'notebook:workbook/day2_calibrate/day2_calibrate.ipynb'
    """
    start = f"workbook/{START_HERE}"
    lesson = f"workbook/{LESSONS_FOLDER}/{lesson_name(SLUGS[day])}"
    lab = f"workbook/{SLUGS[day]}/{SLUGS[day]}.ipynb"
    left, right = [f"notebook:{start}", f"notebook:{lesson}"], [f"notebook:{lab}"]
    areas = [
        {"type": "tab-area", "currentIndex": len(widgets) - 1, "widgets": widgets}
        for widgets in (left, right)
    ]
    dock = {
        "type": "split-area",
        "orientation": "horizontal",
        "sizes": [0.5, 0.5],
        "children": areas,
    }
    layout = {
        "main": {"dock": dock, "current": left[-1]},
        "down": {"size": 0, "widgets": []},
        "left": {"collapsed": True, "current": "filebrowser", "widgets": ["filebrowser"]},
        "right": {"collapsed": True, "widgets": []},
        "relativeSizes": [0, 1, 0],
    }
    opened = {
        f"notebook:{path}": {"data": {"path": path, "factory": "Notebook"}}
        for path in (start, lesson, lab)
    }
    return {
        "data": {"layout-restorer:data": layout, **opened},
        "metadata": {"id": WORKSPACE},
    }
