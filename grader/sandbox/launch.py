"""Start the program that runs learners' code, confined as well as this system allows.

Two levels of isolation, best first:

``bwrap``
    bubblewrap: namespaces of its own and a file system that holds Python, its packages and the
    library, all read-only, and an empty scratch folder.
``limits``
    a process with limits, and a filter of system calls where the system has one: the learner's
    code can read what this user can read.

As root, the user is changed before anything else, because the system does not limit the number
of root's processes; what that user could not reach is mounted where it can.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.sandbox.inside import protocol
from grader.sandbox.inside.confine import SCRATCH
from grader.sandbox.library import loaded_first
from grader.sandbox.limits import LaunchError
from grader.sandbox.system import (
    hidden_places,
    package_folders,
    python,
    spare_user,
    system_links,
    system_places,
)

LEVELS = ("bwrap", "limits")
"""The levels of isolation, best first."""

PROGRAM = "program/grader/sandbox/inside/main.py"
"""Where the program lies in a sandbox's folder."""

_PROGRAM_FILES = (
    "notebooks/cells.py",
    "notebooks/magics.py",
    "sandbox/inside/confine.py",
    "sandbox/inside/main.py",
    "sandbox/inside/protocol.py",
)

# What a notebook imports from `grader`: checks run elsewhere, so inside the calls do nothing.
_SILENT = '''\
"""In the place of the course's checks, which do not run here."""


def check(check_id, function):
    """Do nothing."""


def score():
    """Do nothing."""
'''

_START_S = 30.0  # a start takes a tenth of a second; this is for a machine that does not keep up
_END_S = 10.0

_REQUEST, _STARTED, _ENDED = struct.Struct("!ci"), struct.Struct("!i"), struct.Struct("!id")

_STAGE = """\
set -eu
stage=$1 user=$2
shift 2
mount -t tmpfs -o mode=755,size=1m stage "$stage"
number=0
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir "$stage/$number"; else : >"$stage/$number"; fi
  mount --rbind "$1" "$stage/$number"
  number=$((number + 1))
  shift
done
shift
exec setpriv --reuid "$user" --regid "$user" --clear-groups -- "$@"
"""

# A folder that only root may enter ($1, up to the first --) is covered by an empty one, in this
# process's own view of the files, and the places below it that are needed are put back.
_UNCOVER = """\
set -eu
umask 022
stage=$1 user=$2
shift 2
covered=
while [ "$1" != -- ]; do covered="$covered $1"; shift; done
shift
mount -t tmpfs -o mode=755,size=1m stage "$stage"
number=0
for place; do
  if [ "$place" = -- ]; then break; fi
  if [ -d "$place" ]; then mkdir "$stage/$number"; else : >"$stage/$number"; fi
  mount --rbind "$place" "$stage/$number"
  number=$((number + 1))
done
for folder in $covered; do mount -t tmpfs -o mode=755,size=1m covered "$folder"; done
number=0
while [ "$1" != -- ]; do
  if [ -d "$stage/$number" ]; then mkdir -p "$1"; else mkdir -p "${1%/*}"; : >"$1"; fi
  mount --rbind "$stage/$number" "$1"
  number=$((number + 1))
  shift
done
shift
exec setpriv --reuid "$user" --regid "$user" --clear-groups -- "$@"
"""


@dataclass(frozen=True)
class Ending:
    """How a learner's process ended: exit code or minus the signal, 0 when it ran until now."""

    code: int
    cpu_s: float


class Supervisor:
    """The program inside, loaded and waiting; it makes a worker process for each submission.

    ``lasting`` says whether it can serve many: each process is then in namespaces of its own, or
    none is confined to places at all. Otherwise it is ended with the one process that it
    made. ``user`` is the user that it runs as, where that is not this process's.
    """

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._came = bytearray()
        self.lasting = False
        self.user: int | None = None

    def greet(self, settings: dict[str, Any]) -> None:
        """Send the settings and wait until the library is loaded; raise LaunchError otherwise."""
        self._control.settimeout(_START_S)
        try:
            self._control.sendall(protocol.pack(settings))
            answer = protocol.unpack(
                self._read(protocol.frame_length(self._read(protocol.HEAD_BYTES)))
            )
        except (OSError, EOFError, protocol.ProtocolError) as error:
            raise LaunchError(self._last_words() or str(error)) from None
        self.lasting = bool(answer.get("namespaces")) or not settings["is_confined"]
        self._control.settimeout(_END_S)

    def start(self, pipe: socket.socket) -> int:
        """Make a learner's process at the other end of a pipe; return its number.

        Raises LaunchError when the program is gone or the system refuses.
        """
        try:
            socket.send_fds(self._control, [_REQUEST.pack(b"S", 0)], [pipe.fileno()])
            number: int = _STARTED.unpack(self._read(_STARTED.size))[0]
        except (OSError, EOFError) as error:
            raise LaunchError(f"the sandbox is gone: {error}") from None
        if number <= 0:
            raise LaunchError(f"no new process in the sandbox: {os.strerror(-number)}")
        return number

    def end(self, number: int, is_ending: bool = False) -> Ending | None:
        """End a learner's process and all that it has started; None if nobody knows how.

        With ``is_ending`` it gets a moment to end by itself, so that its exit code is known.
        """
        try:
            self._control.sendall(_REQUEST.pack(b"W" if is_ending else b"K", number))
            ending = Ending(*_ENDED.unpack(self._read(_ENDED.size)))
        except (OSError, EOFError):
            ending = None
        if ending is None or not self.lasting:
            self.close()
        return ending

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def process_id(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the program and everything in it. May be called twice."""
        self._control.close()
        if self._process.poll() is None:
            # Without its control pipe it ends by itself; a process that hangs is killed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()

    def _read(self, size: int) -> bytes:
        return protocol.read_exactly(size, self._more, self._came)

    def _more(self) -> bytes:
        return self._control.recv(2**16)

    def _last_words(self) -> str:
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        if self._process.poll() is None:
            self._process.kill()
        assert self._process.stderr is not None
        lines = self._process.stderr.read(4000).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def write_program(folder: Path) -> None:
    """Write what the sandbox needs into its folder: the program, and a place for mounts."""
    program, home = folder / "program" / "grader", Path(__file__).parents[1]
    for name in _PROGRAM_FILES:
        copy = program / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(home / name, copy)
        for package in copy.relative_to(program).parents:
            (program / package / "__init__.py").touch()
    (program / "__init__.py").write_text(_SILENT, "utf-8")
    (folder / "stage").mkdir()
    open_to_all(folder)


def open_to_all(folder: Path) -> None:
    """Let everybody read a folder, whatever the mask of this user: root becomes another one."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def start_supervisor(
    level: str, folder: Path, library: Path | None, scratch_bytes: int
) -> Supervisor:
    """Start the program inside at a level of isolation.

    ``folder`` holds the program (see ``write_program``), ``library`` a copy of the library; with
    None, to see whether a level works. Raises LaunchError where it does not.
    """
    reasons = []
    for way in _ways(level, folder, library, scratch_bytes):
        key = (level, way.user, way.settings["namespaces"], way.command[0])
        if key in _useless:
            continue
        ours, theirs = socket.socketpair()
        nothing: dict[str, str] = {}
        try:
            process = subprocess.Popen(
                way.command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=nothing,
                cwd="/",
                start_new_session=True,
                user=way.user,
                group=way.user,
                extra_groups=None if way.user is None else [],
            )
        except OSError as error:
            ours.close()
            reasons.append(_cannot_start(way, error))
            _useless.add(key)
            continue
        finally:
            theirs.close()
        supervisor = Supervisor(process, ours)
        supervisor.user = way.runs_as
        try:
            supervisor.greet(way.settings)
            if way.settings["namespaces"] and not supervisor.lasting:
                raise LaunchError("no namespaces within the sandbox")
        except LaunchError as reason:
            supervisor.close()
            reasons.append(str(reason))
            _useless.add(key)
            continue
        return supervisor
    raise LaunchError("; ".join(dict.fromkeys(reasons)) or f"{level} does not work here")


def _cannot_start(way: _Way, error: OSError) -> str:
    """Say why a command does not start; root's rights are never kept instead."""
    if way.user is not None and isinstance(error, PermissionError):
        return (
            f"root's rights are given up first, and then {way.command[0]} cannot be read: grade as "
            "another user, or use a Python that everybody may read"
        )
    return f"{way.command[0]}: {error.strerror}"


_useless: set[Any] = set()  # ways that this process has tried in vain


@dataclass(frozen=True)
class _Way:
    """A command, the settings for the program in it, and the user to become before.

    ``runs_as`` is the user that learners' code runs as, where that is not this process's and a
    scratch folder has to be theirs.
    """

    command: list[str]
    settings: dict[str, Any]
    user: int | None = None
    runs_as: int | None = None


def _ways(level: str, folder: Path, library: Path | None, scratch_bytes: int) -> Iterator[_Way]:
    """Yield the ways to reach a level, best first."""
    if sys.platform != "linux" and level != "limits":
        raise LaunchError(f"{level}: only on Linux")
    program, packages = str(folder / "program"), package_folders()
    settings = {
        "library": str(library) if library else None,
        "packages": packages,
        "preload": loaded_first(),
        "is_confined": level != "limits",
        "namespaces": level != "limits",
        # The first process of the namespace and the program; else all that the user has.
        "tasks_around": None if level == "limits" else 2,
    }
    run = run_program(folder)
    user = spare_user() if os.geteuid() == 0 else None
    if level == "limits":
        needed = [*system_places(), *packages, str(folder), *([str(library)] if library else [])]
        yield from (
            _Way([*prefix, *run], settings, None, runs_as=user)
            for prefix in _uncovering(needed, folder, user)
        )
        yield _Way(run, settings, user, runs_as=user)
        return
    places = [*system_places(), *packages, program, *([str(library)] if library else [])]
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise LaunchError("bwrap is not installed (the package is called bubblewrap)")
    for inner in INNER_NAMESPACES:
        for prefix, becomes, sources in _reaching(places, folder, user):
            command = _bwrap(bwrap, sources, places, packages, inner, scratch_bytes)
            yield _Way([*prefix, *command, *run], {**settings, "namespaces": inner}, becomes)


def _reaching(
    places: Sequence[str], folder: Path, user: int | None
) -> Iterator[tuple[list[str], int | None, list[str]]]:
    """Yield a prefix, a user still to become, and where that user finds the places."""
    if user is None:
        yield [], None, list(places)
        return
    unshare, stage = shutil.which("unshare"), _stage(places, folder)
    if unshare and stage and shutil.which("setpriv") and shutil.which("mount"):
        shell = ["/bin/sh", "-c", _STAGE, "stage", stage, str(user), *places, "--"]
        sources = [f"{stage}/{number}" for number in range(len(places))]
        yield [unshare, "--mount", "--propagation", "private", *shell], None, sources
    yield [], user, list(places)


def _uncovering(places: Sequence[str], folder: Path, user: int | None) -> Iterator[list[str]]:
    """Yield a prefix under which that user reaches what lies in folders of root's own."""
    if user is None:
        return
    covered = sorted({top for top in map(_closed_to_others, places) if top is not None})
    below = [p for p in dict.fromkeys(places) if any(p.startswith(f"{top}/") for top in covered)]
    below = [p for p in below if not any(p.startswith(f"{other}/") for other in below)]
    unshare, stage = shutil.which("unshare"), _stage(below, folder)
    is_plain = all(part.isprintable() and " " not in part for part in covered)
    if covered and is_plain and unshare and stage and shutil.which("setpriv"):
        shell = ["/bin/sh", "-c", _UNCOVER, "uncover", stage, str(user)]
        shell += [*covered, "--", *below, "--"]
        yield [unshare, "--mount", "--propagation", "private", *shell]


def _closed_to_others(place: str) -> str | None:
    """Return the uppermost folder above a place that other users may not enter."""
    for folder in reversed(Path(place).parents):
        if not folder.stat().st_mode & 0o001:
            return str(folder)
    return None


def _stage(places: Sequence[str], folder: Path) -> str | None:
    """Return a folder that every user can reach and that holds none of the places.

    Mounts on it are seen by the sandbox only.
    """
    for stage in (folder / "stage", *map(Path, ("/mnt", "/media", "/opt", "/srv"))):
        if any(place.startswith(f"{stage}/") for place in places) or not stage.is_dir():
            continue
        if all(path.stat().st_mode & 0o001 for path in (stage, *stage.parents)):
            return str(stage)
    return None


INNER_NAMESPACES = (True, False)
"""Whether a sandbox of bwrap's is to hold further namespaces: if that works, it serves many."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def _bwrap(
    bwrap: str,
    sources: Sequence[str],
    places: Sequence[str],
    packages: Sequence[str],
    inner: bool,
    scratch_bytes: int,
) -> list[str]:
    command = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    if inner:
        # Within its own user namespace the program may make more namespaces: one for each
        # learner's process, which gives this right up before the learner's code comes.
        command += [
            "--unshare-user",
            "--uid",
            "1000",
            "--gid",
            "1000",
            "--cap-add",
            "CAP_SYS_ADMIN",
        ]
    for source, place in zip(sources, places, strict=True):
        command += ["--ro-bind", source, place]
    for target, place in system_links():
        command += ["--symlink", target, place]
    for device in _DEVICES:
        command += ["--dev-bind", device, device]
    for place in hidden_places(packages):
        command += ["--tmpfs", place, "--remount-ro", place]
    size = ["--size", str(scratch_bytes)] if _bwrap_can_size(bwrap) else []
    return [*command, *size, "--tmpfs", SCRATCH, "--remount-ro", "/", "--chdir", "/", "--"]


@functools.cache
def _bwrap_can_size(bwrap: str) -> bool:
    told = subprocess.run([bwrap, "--help"], capture_output=True, check=False)
    return b"--size" in told.stdout + told.stderr


def run_program(folder: Path) -> list[str]:
    """Return the command that runs the program: no packages, no user's files, no environment."""
    return [python(), "-I", "-S", "-B", "-X", "utf8", str(folder / PROGRAM)]
