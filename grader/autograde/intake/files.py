"""Find notebooks in folders and archives: nothing is unpacked, links are not followed.

No name that an archive holds becomes a path. Everything has a bound: the files of a class and of
one hand-in, their bytes, the depth of folders, the length of names, archives in archives.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from grader.autograde.intake.names import MAX_NAME, Parts
from grader.errors import BadInput, printable
from grader.notebooks.lab import MAX_BYTES

MAX_TOTAL_BYTES = 4 * 2**30
"""All notebooks of one archive together."""
MAX_FILES = 100_000
MAX_HANDED_IN_FILES = 2_000
"""All files of one hand-in; a lab is one, a clone of the course some hundreds."""
MAX_HANDED_IN_BYTES = 100_000_000
MAX_BRACKETS = 1_000_000
"""A notebook with more brackets than this is made to fill the memory of whoever reads it."""
MAX_DEPTH = 12

_NOISE = {
    "__macosx", "__pycache__", "thumbs.db", "desktop.ini", "index.html", ".git", ".ds_store",
    ".ipynb_checkpoints", ".venv", "node_modules",
}  # fmt: skip
_NEVER = datetime(1980, 1, 1)


@dataclass(frozen=True)
class Found:
    """A file somewhere in what was handed in; ``read`` gives its bytes, or raises a Refusal.

    ``modified`` is the time that the file system or the archive has: the learner's word.
    """

    parts: Parts
    read: Callable[[], bytes]
    modified: datetime
    fault: str = ""
    path: Path | None = None

    @property
    def is_notebook(self) -> bool:
        """True for a notebook by its name."""
        return self.parts[-1].lower().endswith(".ipynb")

    @property
    def is_archive(self) -> bool:
        """True for a zip archive by its name."""
        return self.parts[-1].lower().endswith(".zip")


class Refusal(Exception):
    """Why a file is not taken in."""


def walk(source: Path) -> Iterator[Found]:
    """Yield the files of a folder or an archive; what cannot be used, with its fault."""
    if source.is_dir():
        yield from _folder(source, ())
    else:
        yield from unzip(source)


def paths_of(source: Path) -> list[Parts]:
    """Return the paths of all files in a folder or an archive.

    Raises BadInput when there is no such folder, or no archive that can be read.
    """
    if source.is_dir():
        return [found.parts for found in _folder(source, ())]
    if not source.is_file():
        raise BadInput(f"{source}: no such folder; expected a folder or a zip archive of notebooks")
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()[:MAX_FILES]
            pieces = [_pieces(_member_name(m)) for m in members if not m.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise BadInput(f"{source}: not a zip archive that can be read: {error}") from None
    return [parts for parts in pieces if parts and not any(map(is_noise, parts))]


def is_noise(name: str) -> bool:
    """Return True for what programs leave behind: nobody hands that in."""
    return name.lower() in _NOISE or name.startswith("._")


def _folder(folder: Path, parts: Parts) -> Iterator[Found]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        yield Found((*parts, ""), bytes, _NEVER, f"cannot be looked into: {error.strerror}")
        return
    for entry in entries:
        if is_noise(entry.name):
            continue
        here = (*parts, entry.name)
        status = entry.stat(follow_symlinks=False)
        modified = datetime.fromtimestamp(status.st_mtime, UTC).replace(tzinfo=None)
        path = Path(entry.path)
        fault = _fault_of_name(here)
        if entry.is_symlink():
            yield Found(here, bytes, modified, "a link to somewhere else; it is not followed")
        elif entry.is_dir(follow_symlinks=False):
            if len(here) <= MAX_DEPTH + 1:
                yield from _folder(path, here)
            else:
                yield Found((*here, ""), bytes, modified, "lies too deep in folders to be taken in")
        elif not stat.S_ISREG(status.st_mode):
            yield Found(here, bytes, modified, "not a file; expected a notebook (.ipynb)")
        else:
            yield Found(here, partial(read_bounded, path), modified, fault, path)


def _fault_of_name(parts: Parts) -> str:
    """Say why a notebook is not taken in for the place where it lies."""
    if not parts[-1].lower().endswith((".ipynb", ".zip")):
        return ""
    if any(part.startswith(".") for part in parts):
        return "lies under a hidden name; rename it to be graded"
    if len(parts) > MAX_DEPTH:
        return "lies too deep in folders to be taken in"
    if max(map(len, parts)) > MAX_NAME:
        return f"a name of more than {MAX_NAME} characters"
    return ""


def read_bounded(path: Path) -> bytes:
    """Return a file's bytes up to the limit; raise a Refusal for more, for a link, for a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            return _within(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise Refusal(f"cannot be read: {error.strerror}") from None


def read_file(path: Path) -> bytes:
    """Return a notebook's bytes. Raises ValueError, in one line, for what is not taken in."""
    try:
        return read_bounded(path)
    except Refusal as refusal:
        raise ValueError(str(refusal)) from None


def _within(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise Refusal(f"larger than {MAX_BYTES // 1_000_000} MB; clear its outputs and save it")
    return data


def filling_fault(data: bytes) -> str:
    """Say what is wrong with bytes that are made to fill the memory of whoever reads them."""
    if data.count(b"[") + data.count(b"{") > MAX_BRACKETS:
        return "made of brackets, not of text: not a notebook of a lab"
    return ""


# --- archives ----------------------------------------------------------------------------


def unzip(source: Path | bytes, parts: Parts = ()) -> Iterator[Found]:
    """Yield the files in an archive, whatever its names say; each is read when it is asked for."""
    most = MAX_FILES
    if isinstance(source, bytes):
        most = MAX_HANDED_IN_FILES
        if source.count(b"PK\x01\x02") > most:  # counted before a list of them is made
            yield Found(parts, bytes, _NEVER, f"an archive of more than {most:,} files")
            return
    try:
        archive = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
    except Exception as error:  # zipfile raises what the bytes provoke
        told = str(error) or type(error).__name__
        yield Found(parts, bytes, _NEVER, f"not a zip archive that can be read: {printable(told)}")
        return
    with archive:
        left = [MAX_TOTAL_BYTES]
        seen: set[Parts] = set()
        for count, member in enumerate(archive.infolist()):
            name = _member_name(member)
            pieces = _pieces(name)
            if member.is_dir() or any(map(is_noise, pieces)):
                continue
            here = (*parts, *(pieces or ("",)))
            if count >= most or left[0] <= 0:
                held = "than a class does" if most == MAX_FILES else f"than {most:,} files"
                yield Found((*parts, "…"), bytes, _NEVER, f"the archive holds more {held}")
                return
            fault = _member_fault(member, name, pieces) or _fault_of_name(here)
            if not fault and here in seen and here[-1].lower().endswith(".ipynb"):
                fault = "is twice in the archive under this name"
            seen.add(here)
            read = partial(_read_member, archive, member, left)
            yield Found(here, read, _member_time(member), fault)


def _pieces(name: str) -> Parts:
    return tuple(piece for piece in re.split(r"[/\\]", name) if piece not in ("", "."))


def _member_name(member: zipfile.ZipInfo) -> str:
    """Return a member's name; older packers wrote UTF-8 and did not say so."""
    if not member.flag_bits & 0x800:
        try:
            return member.filename.encode("cp437").decode("utf-8")
        except UnicodeError:
            pass
    return member.filename


def _member_time(member: zipfile.ZipInfo) -> datetime:
    try:
        return datetime(*member.date_time).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return _NEVER


def _member_fault(member: zipfile.ZipInfo, name: str, pieces: Parts) -> str:
    if not pieces:
        return "a file without a name in the archive"
    if ".." in pieces or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        return "its name in the archive leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "a link in the archive; it is not followed"
    if member.flag_bits & 0x1:
        return "encrypted; pack it without a password"
    return ""


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, left: list[int]) -> bytes:
    """Read a member up to the limit, whatever size the archive says it has."""
    try:
        with archive.open(member) as stream:
            data = stream.read(MAX_BYTES + 1)
    except Exception as error:  # zlib's and lzma's own errors, and what a false header provokes
        left[0] -= MAX_BYTES
        known = isinstance(error, zipfile.BadZipFile | OSError | EOFError)
        told = str(error) if known and str(error) else type(error).__name__
        raise Refusal(f"damaged in the archive: {printable(told)}") from None
    left[0] -= len(data)
    return _within(data)
