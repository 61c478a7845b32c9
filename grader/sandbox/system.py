"""What of this system a sandbox needs: Python, its packages, shared libraries, and a spare user."""

from __future__ import annotations

import functools
import os
import secrets
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path


def python() -> str:
    """Return the interpreter itself, not the link or launcher of a virtual environment."""
    if sys.platform == "win32":
        return str(getattr(sys, "_base_executable", sys.executable))
    return os.path.realpath(sys.executable)


@functools.cache
def package_folders() -> list[str]:
    """Return the folders of installed packages (numpy lies there), as this Python has them."""
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    found += [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return list(dict.fromkeys(os.path.realpath(path) for path in found if os.path.isdir(path)))


@functools.cache
def system_places() -> list[str]:
    """Return what Python needs of the system: itself, its modules, shared libraries."""
    base = os.path.realpath(sys.base_prefix)
    wanted = [python(), f"{base}/lib", f"{base}/lib64", sysconfig.get_path("stdlib")]
    wanted += ["/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/nix/store"]
    wanted += [f"/{name}" for name in _LIBRARIES if not os.path.islink(f"/{name}")]
    wanted += ["/etc/ld.so.cache"]
    found = sorted({path for path in wanted if os.path.exists(path)})
    return [p for p in found if not any(p.startswith(f"{other}/") for other in found)]


_LIBRARIES = ("lib", "lib32", "lib64")


def system_links() -> list[tuple[str, str]]:
    """Return the links at the root that the dynamic loader needs, as (target, place)."""
    return [
        (os.readlink(f"/{name}"), f"/{name}") for name in _LIBRARIES if os.path.islink(f"/{name}")
    ]


def hidden_places(packages: Sequence[str]) -> list[str]:
    """Return where the library and the checks are installed: there an answer could be read."""
    home = sysconfig.get_path("stdlib")
    folders = [*packages, f"{home}/site-packages", f"{home}/dist-packages"]
    folders += [path.replace("/lib/python", "/local/lib/python") for path in folders]
    folders += ["/usr/lib/python3/dist-packages"]
    return [
        place
        for folder in dict.fromkeys(map(os.path.realpath, folders))
        for place in (f"{folder}/compaction", f"{folder}/grader")
        if os.path.isdir(place)
    ]


# --- a user for root to become ---------------------------------------------------------

_SPARE_USERS = (range(1_000_000_000, 1_900_000_000), range(61_184, 65_520), range(65_534, 65_535))
"""Users that nobody has, best first: a container may know only the first 65,536."""


def spare_user() -> int:
    """Return a user with no rights and no processes, for root to become.

    The kernel counts processes by user. If all sandboxes shared one, a fork bomb in one of them
    would leave the others no process to start.
    """
    known = [users for users in _SPARE_USERS if _exist(users, "uid") and _exist(users, "gid")]
    users = [*known, _SPARE_USERS[-1]][0]
    return users.start + secrets.randbelow(len(users))


def _exist(numbers: range, kind: str) -> bool:
    """Say whether this container can have these users (uid) or groups (gid)."""
    try:
        lines = Path(f"/proc/self/{kind}_map").read_text().splitlines()
    except OSError:
        return True  # not Linux
    for line in lines:
        first, _, count = map(int, line.split())
        if first <= numbers.start and numbers.stop <= first + count:
            return True
    return False
