"""What the operating system forbids a learner's process: resources, places, system calls.

This file runs inside the sandbox only, as part of ``main.py``. All of it uses what Linux
grants an unprivileged process in a user namespace of its own; where something is missing (an
old kernel, another system), the functions say so and the caller makes do with less.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Callable
from typing import Any

# linux/sched.h, linux/mount.h, linux/prctl.h, linux/seccomp.h
_NEWNS, _NEWIPC, _NEWPID, _NEWNET = 0x0002_0000, 0x0800_0000, 0x2000_0000, 0x4000_0000
_NOSUID, _NODEV = 2, 4
_SET_DUMPABLE, _SET_SECCOMP, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS = 4, 22, 36, 38
_FILTER_MODE = 2
_CAPABILITY_VERSION_3 = 0x2008_0522

SCRATCH = "/scratch"
"""The one folder of a sandbox where a learner's process may write. Not /tmp: Python, or the
library's copy, may lie there."""


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _must(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


# --- resources --------------------------------------------------------------------------


def limit_resources(limits: dict[str, int], tasks_around: int) -> None:
    """Set the limits of this process and all that it starts; none of them can be raised again.

    ``tasks_around`` are the processes and threads of the same user that do not count as the
    learner's. CPU time ends with a signal that cannot be caught.
    """
    import resource

    wanted = {
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": limits["cpu_s"],
        "RLIMIT_FSIZE": limits["file_bytes"],
        "RLIMIT_NOFILE": limits["open_files"],
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    if sys.platform == "linux":
        wanted["RLIMIT_AS"] = limits["memory_bytes"]
        wanted["RLIMIT_NPROC"] = limits["processes"] + tasks_around
    for name, value in wanted.items():
        number = getattr(resource, name, None)
        if number is None:
            continue
        most = resource.getrlimit(number)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(number, (value, value))


def tasks_of_user() -> int:
    """Return how many processes and threads this user has, where the system says so."""
    count = 0
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return 0
    for name in names:
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def guard_supervisor() -> None:
    """Become the parent of what a learner's process leaves behind; let nobody look inside."""
    if sys.platform == "linux":
        _libc().prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc().prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def children() -> list[int]:
    """Return the process ids of this process's children, where the system says so."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


# --- places -----------------------------------------------------------------------------


class Namespaces:
    """Make processes in namespaces of their own, from within a sandbox.

    Raises OSError at once where the system does not allow it.
    """

    def __init__(self) -> None:
        self._libc = _libc()
        self._home = os.pidfd_open(os.getpid())
        status = os.waitstatus_to_exitcode(os.waitpid(self.fork(self._try), 0)[1])
        if status != 0:
            raise OSError("no namespaces within the sandbox")

    def fork(self, run: Callable[[], None]) -> int:
        """Fork a process that is the first of its own process namespace; return its id.

        When that process ends, the system ends all that it has started.
        """
        _must(self._libc.unshare(_NEWPID), "unshare")
        try:
            child = os.fork()
            if child == 0:
                _run_to_the_end(run)
        finally:
            _must(self._libc.setns(self._home, _NEWPID), "setns")
        return child

    def enclose(self, scratch_bytes: int) -> None:
        """In a forked process: an empty scratch folder, and nothing that others left in memory."""
        flags = _NEWNS | _NEWIPC
        if platform.machine() not in _CALLS:
            flags |= _NEWNET  # elsewhere the filter of system calls allows no socket at all
        _must(self._libc.unshare(flags), "unshare")
        mount_scratch(SCRATCH, scratch_bytes)

    def _try(self) -> None:
        self.enclose(1 << 20)


def fork(run: Callable[[], None]) -> int:
    """Fork a process that runs a function and ends; return its id."""
    child = os.fork()
    if child == 0:
        _run_to_the_end(run)
    return child


def _run_to_the_end(run: Callable[[], None]) -> None:
    status = 1
    try:
        run()
        status = 0
    finally:
        os._exit(status)


def mount_scratch(place: str, size_bytes: int) -> None:
    """Mount an empty folder of limited size."""
    options = f"size={size_bytes},nr_inodes=4096,mode=700"
    flags = _NOSUID | _NODEV
    _must(_libc().mount(b"tmpfs", place.encode(), b"tmpfs", flags, options.encode()), "mount")


# --- system calls -----------------------------------------------------------------------

# Numbers from the kernel's tables. What no solution needs: reaching into other processes,
# namespaces and mounts, the network, memory that no limit counts, and the kernel's own parts.
_CALLS = {
    "x86_64": {
        "architecture": 0xC000003E,
        "clone": 56,
        "clone3": 435,
        "refused": (
            41, 29, 30, 64, 68, 101, 155, 161, 165, 166, 175, 176, 240, 246, 248, 249, 250, 272,
            298, 303, 304, 308, 310, 311, 313, 319, 321, 323, 425, 426, 427, 428, 429, 430, 432,
            438, 442, 447,
        ),
    },
    "aarch64": {
        "architecture": 0xC00000B7,
        "clone": 220,
        "clone3": 435,
        "refused": (
            198, 194, 196, 190, 186, 117, 41, 51, 40, 39, 105, 106, 180, 104, 217, 218, 219, 97,
            241, 264, 265, 268, 270, 271, 273, 279, 280, 282, 425, 426, 427, 428, 429, 430, 432,
            438, 442, 447,
        ),
    },
}  # fmt: skip


def renounce() -> bool:
    """Give up all privileges and the system calls that no solution needs, for good.

    Returns whether the filter of system calls is in force.
    """
    if sys.platform != "linux":
        return False
    libc = _libc()
    libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24))
    numbers: Any = _CALLS.get(platform.machine())
    if numbers is None or sys.maxsize < 2**32:
        return False
    program = _filter(numbers)
    steps = ctypes.create_string_buffer(program)
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
    return bool(libc.prctl(_SET_SECCOMP, _FILTER_MODE, ctypes.c_char_p(head), 0, 0) == 0)


def _filter(numbers: Any) -> bytes:
    """Return a filter (classic BPF) that refuses some calls with an error and allows the rest."""
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, not_permitted, not_there = 0x7FFF0000, 0x00050001, 0x00050026
    refused = sorted(numbers["refused"])

    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, value)

    # (code, value, where to when true, where to when false); None is the next step.
    Jump = tuple[int, int, str | None, str | None]
    steps: list[bytes | Jump] = [
        step(load, 4),  # the architecture
        (equal, numbers["architecture"], None, "not permitted"),
        step(load, 0),  # the number of the call
        (at_least, 0x4000_0000, "not permitted", None),
        (equal, numbers["clone3"], "not there", None),
        *((equal, number, "not permitted", None) for number in refused),
        (equal, numbers["clone"], None, "allow"),
        step(load, 16),  # the low half of the first argument: flags
        (any_bit, 0x7E02_0000, "not permitted", "allow"),
    ]
    ends = ("allow", "not permitted", "not there")
    places = {name: len(steps) + number for number, name in enumerate(ends)}
    program = b""
    for place, entry in enumerate(steps):
        if isinstance(entry, bytes):
            program += entry
        else:
            code, value, *ways = entry
            program += step(code, value, *(places[w] - place - 1 if w else 0 for w in ways))
    return program + step(answer, allow) + step(answer, not_permitted) + step(answer, not_there)
