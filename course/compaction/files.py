"""Write files whole or not at all, for the library and the grader."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class InputError(Exception):
    """Input that cannot be used, or a file that cannot be read or written.

    The message is one line for a person: what, where, and what was expected. It is no ValueError:
    a reader that catches those (JSON's are) must not swallow a line that was meant for a person.
    """


def write_whole(path: str | Path, content: str | bytes, mode: int | None = None) -> None:
    """Write a file (text as UTF-8) whole or not at all; see :func:`writing_whole`."""
    with writing_whole(path, mode) as write:
        write(content)


@contextmanager
def writing_whole(
    path: str | Path, mode: int | None = None
) -> Iterator[Callable[[str | bytes], None]]:
    """Give a function that adds text or bytes to a file, which appears at the end, whole.

    What is written goes to a temporary file in the same folder. At the end it takes the place of
    the old file and keeps its permissions; where the work ends with an error, the old file stays
    as it was. With ``mode`` the file gets these permissions instead, and a read-only file is
    replaced too: its permissions are the caller's affair. Raises InputError.
    """
    with _refusing(path):
        target = _target(path, mode)
        old = target.stat() if target.exists() else None
        if old is not None and not stat.S_ISREG(old.st_mode):
            temporary = target  # a device or a pipe has nothing to be replaced
        else:
            temporary = target.with_name(f".{os.urandom(8).hex()}.tmp")
        # Nobody may read it meanwhile who may not read it afterwards.
        allowed = mode or (stat.S_IMODE(old.st_mode) if old else 0o666)
        file = open(  # noqa: SIM115 - closed below
            temporary, "wb", opener=lambda name, flags: os.open(name, flags, allowed)
        )

    def write(content: str | bytes) -> None:
        with _refusing(path):
            file.write(content.encode() if isinstance(content, str) else content)

    try:
        with file:
            yield write
            with _refusing(path):
                file.flush()
                if temporary != target:
                    os.fsync(file.fileno())
        if temporary != target:
            with _refusing(path):
                _take_place(temporary, target, old, mode)
    finally:
        if temporary != target:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _target(path: str | Path, mode: int | None) -> Path:
    """Return the file behind the path, or raise OSError where none can be written."""
    # Through a link, so that the link stays and the file behind it changes.
    target = Path(os.path.realpath(path))
    if target.is_symlink():  # what is still a link after all links were followed is a circle
        raise OSError(None, "its symbolic links lead in a circle")
    if target.is_dir():
        raise IsADirectoryError(None, "it is a folder; expected a file")
    if target.exists() and mode is None and not os.access(target, os.W_OK):
        raise PermissionError(None, "the file is read-only")
    if not target.parent.is_dir():
        raise FileNotFoundError(None, f"there is no folder {target.parent}")
    return target


def _take_place(
    temporary: Path, target: Path, old: os.stat_result | None, mode: int | None
) -> None:
    if old is not None:
        if hasattr(os, "chown"):
            with suppress(OSError):  # only a privileged person may give a file away
                os.chown(temporary, old.st_uid, old.st_gid)
        os.chmod(temporary, stat.S_IMODE(old.st_mode))
    if mode is not None:
        os.chmod(temporary, mode)
    os.replace(temporary, target)
    if hasattr(os, "O_DIRECTORY"):
        # So that the new name survives a power cut too.
        with suppress(OSError):
            folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


@contextmanager
def _refusing(path: str | Path) -> Iterator[None]:
    """Turn the system's error into the one line for a person."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot be written: {reason_of(error)}") from error


def shown(path: str | Path) -> str:
    """Return a path as it is shown to a person: on one line, whatever characters it holds."""
    text = str(path)
    return text if text.isprintable() and text else repr(text)


def reason_of(error: Exception) -> str:
    """Say in a few words why a file could not be read or written."""
    reason = getattr(error, "strerror", None) or str(error)
    return reason[:1].lower() + reason[1:]
