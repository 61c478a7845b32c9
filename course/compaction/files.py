"""Read files, and write them whole or not at all, for the library and the grader."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path


class InputError(ValueError):
    """Input that cannot be used, or a file that cannot be read or written.

    The message is one line for a person: what, where, and what was expected.
    """


def read_bytes(path: str | Path) -> tuple[bytes, str]:
    if str(path) == "-":
        return sys.stdin.buffer.read(), "standard input"
    name = shown(path)
    try:
        if Path(path).is_dir():
            raise IsADirectoryError(None, "it is a folder; expected a file")
        return Path(path).read_bytes(), name
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        raise InputError(f"{name}: cannot be read: {reason}") from error


def write_whole(path: str | Path, content: str | bytes, mode: int | None = None) -> None:
    """Write a file (text as UTF-8) whole or not at all.

    The content goes to a temporary file in the same folder, which then takes the place of the
    old one and keeps its permissions. With ``mode`` the file gets these permissions instead, and
    a read-only file is replaced too: its permissions are the caller's affair. Raises InputError.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        # Through a link, so that the link stays and the file behind it changes.
        target = Path(os.path.realpath(path))
        if target.is_symlink():  # what is still a link after all links were followed is a circle
            raise OSError(None, "its symbolic links lead in a circle")
        old = target.stat() if target.exists() else None
        if old is not None and not stat.S_ISREG(old.st_mode) and not target.is_dir():
            target.write_bytes(data)  # a device or a pipe has nothing to be replaced
            return
        if old is not None and mode is None and not os.access(target, os.W_OK):
            raise PermissionError(None, "the file is read-only")
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder; expected a file")
        if not target.parent.is_dir():
            raise FileNotFoundError(None, f"there is no folder {target.parent}")
        _replace(target, data, old, mode)
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot be written: {_reason(error)}") from error


def _replace(target: Path, data: bytes, old: os.stat_result | None, mode: int | None) -> None:
    temporary = target.with_name(f".{os.urandom(8).hex()}.tmp")
    wanted = mode or (stat.S_IMODE(old.st_mode) if old else 0o666)
    try:
        # Nobody may read it meanwhile who may not read it afterwards.
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, wanted)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if old is not None:
            if hasattr(os, "chown"):
                with suppress(OSError):  # only a privileged person may give a file away
                    os.chown(temporary, old.st_uid, old.st_gid)
            os.chmod(temporary, stat.S_IMODE(old.st_mode))
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):
        # So that the new name survives a power cut too.
        with suppress(OSError):
            folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def shown(path: str | Path) -> str:
    """Return a path as it is shown to a person: on one line, whatever characters it holds."""
    text = str(path)
    return text if text.isprintable() and text else repr(text)


def _reason(error: OSError) -> str:
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]
