"""Start the program that runs learners' code, fenced in as well as this system allows.

Three levels of isolation, best first:

``bwrap``
    bubblewrap: namespaces of its own and a file system that holds Python, its packages and the
    library, all read-only, and an empty scratch folder.
``namespace``
    the same, made by our own few lines (``confine.build_jail``) where bubblewrap is missing.
``process``
    a process with limits and nothing else: the learner's code can read what this user can read.

As root, the user is changed before anything else, because the system does not limit the number
of root's processes; what that user could not reach is mounted where it can.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.sandbox.inside import protocol
from grader.sandbox.inside.confine import SCRATCH
from grader.sandbox.library import PRELOADED

LEVELS = ("bwrap", "namespace", "process")

INMATE = "program/grader/sandbox/inside/main.py"
"""Where the program lies in a sandbox's folder."""

_PROGRAM = (
    "notebooks/cells.py",
    "sandbox/inside/confine.py",
    "sandbox/inside/main.py",
    "sandbox/inside/protocol.py",
)

# What a notebook imports from `grader`: checks run elsewhere, so inside the calls do nothing.
_SILENT = '''\
"""Stands for the course's checks, which do not run here."""


def check(check_id, function):
    """Do nothing."""


def score():
    """Do nothing."""
'''

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


_START_S = 30.0  # a start takes a tenth of a second; this is for a machine that does not keep up
_END_S = 10.0

_REQUEST, _STARTED, _ENDED = struct.Struct("!ci"), struct.Struct("!i"), struct.Struct("!iid")

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


class JailError(Exception):
    """A level of isolation that does not work here; the text says why."""


@dataclass(frozen=True)
class Ending:
    """How a learner's process ended: exit code or minus the signal, 0 when it ran until now."""

    code: int
    peak_kib: int
    cpu_s: float


class Warden:
    """The program inside, loaded and waiting; it makes a process for each submission.

    ``lasting`` says whether it can serve many: each process is then in namespaces of its own, or
    none is fenced in at all. Otherwise it is ended with the one process that it made. ``user`` is
    the user that it runs as, where that is not this process's.
    """

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self.lasting = False
        self.user: int | None = None

    def greet(self, settings: dict[str, Any]) -> None:
        """Send the settings and wait until the library is loaded; raise JailError otherwise."""
        self._control.settimeout(_START_S)
        try:
            self._control.sendall(protocol.pack(settings))
            answer = protocol.unpack(
                self._read(protocol.frame_length(self._read(protocol.HEAD_BYTES)))
            )
        except (OSError, protocol.WireError) as error:
            raise JailError(self._last_words() or str(error)) from None
        self.lasting = bool(answer.get("nest")) or not settings["fenced"]
        self._control.settimeout(_END_S)

    def start(self, pipe: socket.socket) -> int:
        """Make a learner's process at the other end of a pipe; return its number.

        Raises JailError when the program is gone or the system refuses.
        """
        try:
            socket.send_fds(self._control, [_REQUEST.pack(b"S", 0)], [pipe.fileno()])
            number: int = _STARTED.unpack(self._read(_STARTED.size))[0]
        except OSError as error:
            raise JailError(f"the sandbox is gone: {error}") from None
        if number <= 0:
            raise JailError(f"no new process in the sandbox: {os.strerror(-number)}")
        return number

    def end(self, number: int, is_ending: bool = False) -> Ending | None:
        """End a learner's process and all that it has started; None if nobody knows how.

        With ``is_ending`` it gets a moment to end by itself, so that its exit code is known.
        """
        try:
            self._control.sendall(_REQUEST.pack(b"W" if is_ending else b"K", number))
            ending = Ending(*_ENDED.unpack(self._read(_ENDED.size)))
        except OSError:
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
        data = b""
        while len(data) < size:
            more = self._control.recv(size - len(data))
            if not more:
                raise ConnectionError("it has ended")
            data += more
        return data

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
    """Write what the sandbox needs into its folder: the program, and two places for mounts."""
    program, home = folder / "program" / "grader", Path(__file__).parents[1]
    for name in _PROGRAM:
        copy = program / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(home / name, copy)
        for package in copy.relative_to(program).parents:
            (program / package / "__init__.py").touch()
    (program / "__init__.py").write_text(_SILENT, "utf-8")
    for name in ("root", "stage"):
        (folder / name).mkdir()
    open_to_all(folder)


def open_to_all(folder: Path) -> None:
    """Let everybody read a folder, whatever the mask of this user: root becomes another one."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def start_warden(level: str, folder: Path, library: Path | None, scratch_bytes: int) -> Warden:
    """Start the program inside at a level of isolation.

    ``folder`` holds the program (see ``write_program``), ``library`` a copy of the library; with
    None, to see whether a level works. Raises JailError where it does not.
    """
    reasons = []
    for way in _ways(level, folder, library, scratch_bytes):
        key = (level, way.user, way.settings["nest"], way.command[0])
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
            reasons.append(f"{way.command[0]}: {error.strerror}")
            _useless.add(key)
            continue
        finally:
            theirs.close()
        warden = Warden(process, ours)
        warden.user = way.user
        try:
            warden.greet(way.settings)
            if way.settings["nest"] and not warden.lasting:
                raise JailError("no namespaces within the jail")
        except JailError as reason:
            warden.close()
            reasons.append(str(reason))
            _useless.add(key)
            continue
        return warden
    raise JailError("; ".join(dict.fromkeys(reasons)) or f"{level} does not work here")


_useless: set[Any] = set()  # ways that this process has tried in vain


@dataclass(frozen=True)
class _Way:
    """A command, the settings for the program in it, and the user to become before."""

    command: list[str]
    settings: dict[str, Any]
    user: int | None = None


def _ways(level: str, folder: Path, library: Path | None, scratch_bytes: int) -> Iterator[_Way]:
    """Yield the ways to reach a level, best first."""
    if sys.platform != "linux" and level != "process":
        raise JailError(f"{level}: only on Linux")
    program, packages = str(folder / "program"), package_folders()
    settings = {
        "library": str(library) if library else None,
        "packages": packages,
        "preload": list(PRELOADED),
        "fenced": level != "process",
        "nest": level != "process",
        # The first process of the namespace and the program; else all that the user has.
        "tasks_around": None if level == "process" else 2,
        "jail": None,
    }
    run = run_program(folder)
    user = spare_user() if os.geteuid() == 0 else None
    if level == "process":
        if user is not None:
            yield _Way(run, settings, user)
        yield _Way(run, settings)
        return
    places = [*system_places(), *packages, program, *([str(library)] if library else [])]
    if level == "namespace":
        build = {
            "root": str(folder / "root"),
            "read_only": [(place, place) for place in places],
            "devices": list(_DEVICES),
            "hidden": hidden_places(packages),
            "links": system_links(),
            "user": user,
        }
        yield _Way(run, {**settings, "jail": build})
        return
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise JailError("bwrap is not installed (the package is called bubblewrap)")
    for nest in NESTS:
        for prefix, becomes, sources in _reaching(places, folder, user):
            fenced = _bwrap(bwrap, sources, places, packages, nest, scratch_bytes)
            yield _Way([*prefix, *fenced, *run], {**settings, "nest": nest}, becomes)


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


def _stage(places: Sequence[str], folder: Path) -> str | None:
    """Return a folder that every user can reach and that holds none of the places.

    Mounts on it are seen by the jail only.
    """
    for stage in (folder / "stage", *map(Path, ("/mnt", "/media", "/opt", "/srv"))):
        if any(place.startswith(f"{stage}/") for place in places) or not stage.is_dir():
            continue
        if all(path.stat().st_mode & 0o001 for path in (stage, *stage.parents)):
            return str(stage)
    return None


NESTS = (True, False)
"""Whether a jail of bwrap's is to hold further namespaces: if that works, it serves many."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def _bwrap(
    bwrap: str,
    sources: Sequence[str],
    places: Sequence[str],
    packages: Sequence[str],
    nest: bool,
    scratch_bytes: int,
) -> list[str]:
    command = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    if nest:
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
    return [python(), "-I", "-S", "-B", "-X", "utf8", str(folder / INMATE)]


# --- what of the system is needed -------------------------------------------------------


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
