"""One session, one writer: a lock beside the session's file that dies with its process."""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from compaction.history import HistoryError

if sys.platform == "win32":
    import msvcrt

    _FAR = 2**30  # beyond what is written, so that others can read who holds it

    def _lock(fd: int) -> None:
        os.lseek(fd, _FAR, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        os.lseek(fd, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


_HELD = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK}


class SessionLock:
    """Keeps a session's file for this process, until ``release()`` or the process's end.

    The system itself gives the lock back when the process is gone, killed or not, so none is ever
    left over. The lock's file stays behind: taking it away could leave two writers, each with the
    lock of a file of that name. A place that cannot hold a lock (read-only, or a network drive
    without locks) goes without. Raises HistoryError where another agent has it, and says which.

    >>> import tempfile
    >>> lock = SessionLock(Path(tempfile.mkdtemp()) / "s.json")
    >>> lock.release()
    """

    def __init__(self, path: Path) -> None:
        self._fd: int | None = None
        place = Path(os.path.realpath(path))
        try:
            fd = os.open(place.with_name(f".{place.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return
        try:
            _lock(fd)
        except OSError as error:
            holder = _holder(fd)
            os.close(fd)
            if error.errno not in _HELD:
                return
            raise HistoryError(
                f"{path}: another agent has this session open{holder}; "
                "with --fork, --resume goes on with a copy"
            ) from None
        self._fd = fd
        with suppress(OSError):
            os.ftruncate(fd, 0)
            os.write(fd, _this_process().encode())

    def release(self) -> None:
        """Let others have the file; safe to call twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _this_process() -> str:
    here = f" on {os.uname().nodename}" if hasattr(os, "uname") else ""
    return f"process {os.getpid()}{here}, since {time.strftime('%Y-%m-%d %H:%M')}"


def _holder(fd: int) -> str:
    """Return what the holder wrote about itself, in brackets; "" where it has not yet."""
    with suppress(OSError):
        text = os.read(fd, 200).decode(errors="replace")
        return f" ({text})" if text and text.isprintable() else ""
    return ""
