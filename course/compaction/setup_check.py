"""Day 0: say what is ready and what is not, and for each thing that is not, what to do.

The lines of a machine that is ready hold no versions and no folders, so they read the same
everywhere. Nothing outside the standard library is imported before it is known to be there.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

DISTRIBUTION = "context-compaction"
OLDEST_PYTHON = (3, 11)

SET_UP = "in the folder of the repository: make lab (the README has lines for Windows and conda)"

_LABEXTENSION = Path("@jupyter/nbgrader")
_SERVER_EXTENSION = "nbgrader.server_extensions.validate_assignment"
_VALIDATE_PLUGIN = "@jupyter/nbgrader:validate-assignment"


@dataclass(frozen=True)
class Finding:
    """One requirement: what it says when it is met, or what is wrong and what to do."""

    ok: bool
    text: str
    what_to_do: str = ""

    def __str__(self) -> str:
        """Return the line, or two lines, that a person sees."""
        mark = "[OK]  " if self.ok else "[FAIL]"
        return f"{mark} {self.text}" + (f"\n       {self.what_to_do}" if self.what_to_do else "")


def check_setup() -> None:
    """Print a line for each requirement, and what to do next.

    A check that breaks is a requirement that is not met; nothing is raised.
    """
    print(report(findings()))


def findings(root: Path = ROOT, here: Path | None = None) -> list[Finding]:
    """Check all requirements; ``root`` is the repository, ``here`` the notebook's folder."""
    here = Path.cwd() if here is None else here
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("the Python version", check_python),
        ("the packages", check_packages),
        ("the library", lambda: check_library(root, here)),
        ("the labs", lambda: check_labs(root)),
        ("the Validate button", check_validate),
        ("write access", lambda: check_writing(root)),
    ]
    return [_attempt(what, check) for what, check in checks]


def report(found: Iterable[Finding]) -> str:
    """Return the lines that a person sees.

    >>> print(report([Finding(True, "Python is new enough")]))
    [OK]   Python is new enough
    <BLANKLINE>
    Everything is ready. Go on to day 1.
    """
    found = list(found)
    failed = sum(not finding.ok for finding in found)
    closing = (
        f"{failed} of {len(found)} not ready. Mend them, restart the kernel, and run this again."
        if failed
        else "Everything is ready. Go on to day 1."
    )
    return "\n".join([*map(str, found), "", closing])


def _attempt(what: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # whatever it is, the other requirements are still to be seen
        return Finding(False, f"{what} cannot be checked: {type(error).__name__}: {error}", SET_UP)


def check_python(version: tuple[int, ...] | None = None) -> Finding:
    """Say whether Python is new enough.

    >>> print(check_python((3, 9, 2)))
    [FAIL] this kernel is Python 3.9; the course needs 3.11 or newer
           name a newer one: make lab PYTHON=python3.12
    """
    found = tuple(sys.version_info[:2]) if version is None else version[:2]
    if found >= OLDEST_PYTHON:
        return Finding(True, "Python is new enough")
    is_, needs = ".".join(map(str, found)), ".".join(map(str, OLDEST_PYTHON))
    return Finding(
        False,
        f"this kernel is Python {is_}; the course needs {needs} or newer",
        "name a newer one: make lab PYTHON=python3.12",
    )


def check_packages(requirements: list[str] | None = None) -> Finding:
    """Say whether everything that the course depends on is installed, and new enough.

    >>> print(check_packages(["surely-not-there>=2"]))
    [FAIL] not as the course needs them: surely-not-there (missing)
           in the folder of the repository: make lab (the README has lines for Windows and conda)
    """
    if requirements is None:
        try:
            requirements = metadata.requires(DISTRIBUTION) or []
        except metadata.PackageNotFoundError:
            return Finding(False, "the course is not installed in this kernel's Python", SET_UP)
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return Finding(False, "not as the course needs them: packaging (missing)", SET_UP)
    wrong = []
    for requirement in map(Requirement, requirements):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} (missing)")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} ({version}, needs {requirement.specifier})")
    if wrong:
        return Finding(False, f"not as the course needs them: {', '.join(wrong)}", SET_UP)
    return Finding(True, "all packages are installed")


def check_library(root: Path = ROOT, here: Path | None = None) -> Finding:
    """Say whether library and checks can be imported, from the repository that is open.

    The checks are another package's: they are found as the agent finds what reads notebooks.
    """
    wanted: list[tuple[str, Callable[[], object]]] = [
        (name, partial(importlib.import_module, name))
        for name in ("compaction.tokens", "compaction.session", "compaction.plots")
    ]
    readers = metadata.entry_points(group="compaction.functions")
    wanted += [(reader.module, reader.load) for reader in readers]
    for name, load in wanted:
        try:
            load()
        except Exception as error:
            text = f"{name} cannot be imported: {type(error).__name__}: {error}"
            return Finding(False, text, SET_UP)
    if not readers:
        return Finding(False, "the course's checks are not installed", SET_UP)
    opened = _repository_of(here) if here is not None else None
    if opened is not None and opened != root:
        return Finding(
            False,
            f"this notebook lies in {opened}, but the library comes from {root}",
            f"start JupyterLab from the first one: make lab in {opened}",
        )
    return Finding(True, "library and checks can be imported")


def _repository_of(folder: Path) -> Path | None:
    """Return the repository that a folder lies in, or None."""
    folder = folder.resolve()
    for parent in (folder, *folder.parents):
        if (parent / "course" / "compaction" / "tokens.py").is_file():
            return parent
    return None


def check_labs(root: Path = ROOT) -> Finding:
    """Say whether the learner's copy of every lab is in ``workbook/``, under any file name."""
    labs = sorted(path.parent.name for path in (root / "labs").glob("*/*.ipynb"))
    if not labs:
        return Finding(False, f"there are no labs in {root / 'labs'}", "fetch the repository anew")
    there = {
        name
        for path in (root / "workbook").rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts
        for name in (path.stem, path.parent.name)
    }
    missing = [slug for slug in labs if slug not in there]
    if missing:
        return Finding(
            False,
            f"not in workbook/ yet: {', '.join(missing)}",
            "in the folder of the repository: python -m grader workbook (make lab does it, too)",
        )
    return Finding(True, "your copy of the labs is in workbook/")


def check_validate(
    data_folders: Iterable[str] | None = None, settings_folders: Iterable[str] | None = None
) -> Finding:
    """Say whether JupyterLab will show nbgrader's Validate button, which runs a lab's checks.

    ``data_folders`` and ``settings_folders`` are where Jupyter looks, first match first.
    """
    from jupyter_core import paths

    data = [Path(p) for p in (paths.jupyter_path() if data_folders is None else data_folders)]
    settings = [
        Path(p)
        for p in (paths.jupyter_config_path() if settings_folders is None else settings_folders)
    ]
    if not any((folder / "labextensions" / _LABEXTENSION).is_dir() for folder in data):
        return Finding(False, "nbgrader's Validate button is not installed", SET_UP)
    if not _server_extension_is_on(settings):
        command = f"python -m jupyter server extension enable {_SERVER_EXTENSION} --sys-prefix"
        return Finding(False, "nbgrader's Validate button is switched off in the server", command)
    for folder in settings:
        disabled = _read_json(folder / "labconfig" / "page_config.json").get("disabledExtensions")
        if isinstance(disabled, list):
            disabled = dict.fromkeys(disabled, True)
        if isinstance(disabled, dict) and any(
            disabled.get(name) for name in (_VALIDATE_PLUGIN, _LABEXTENSION.as_posix())
        ):
            command = f"python -m jupyter labextension enable {_VALIDATE_PLUGIN}"
            return Finding(False, "nbgrader's Validate button is switched off", command)
    return Finding(True, "JupyterLab has the Validate button")


def _server_extension_is_on(folders: Iterable[Path]) -> bool:
    for folder in folders:
        files = sorted((folder / "jupyter_server_config.d").glob("*.json"))
        for path in (folder / "jupyter_server_config.json", *files):
            extensions = _read_json(path).get("ServerApp", {}).get("jpserver_extensions", {})
            if _SERVER_EXTENSION in extensions:
                return bool(extensions[_SERVER_EXTENSION])
    return False


def _read_json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def check_writing(root: Path = ROOT) -> Finding:
    """Say whether notebooks can be saved: in ``workbook/``, or where it will be laid."""
    workbook = root / "workbook"
    folder = workbook if workbook.is_dir() else root
    try:
        handle, name = tempfile.mkstemp(prefix=".setup-check-", dir=folder)
        os.close(handle)
        os.unlink(name)
    except OSError as error:
        return Finding(
            False,
            f"nothing can be saved in {folder}: {error.strerror or error}",
            "make the folder writable, or put the repository where you may write",
        )
    return Finding(True, "your work can be saved")
