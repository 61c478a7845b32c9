"""Find notebooks in folders and archives: nothing is unpacked, links are not followed."""

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
from pathlib import Path, PurePosixPath

from grader.autograde.intake.names import NOISE, is_hidden
from grader.errors import BadInput, printable
from grader.notebooks.lab import MAX_BYTES

MAX_TOTAL_BYTES = 4 * 2**30
"""All notebooks of one archive together."""

MAX_FILES = 100_000

MAX_BRACKETS = 1_000_000
"""A notebook with more brackets than this is made to fill the memory of whoever reads it."""

MAX_DEPTH = 8


@dataclass(frozen=True)
class Found:
    """A file somewhere in what was handed in; ``read`` gives its bytes, or raises a Refusal."""

    parts: tuple[str, ...]
    read: Callable[[], bytes]
    modified: datetime
    fault: str = ""
    path: Path | None = None

    @property
    def origin(self) -> str:
        return printable("/".join(self.parts))


class Refusal(Exception):
    """Why a file is not taken in."""


def walk(folder: Path, parts: tuple[str, ...] = (), archives: bool = True) -> Iterator[Found]:
    """Yield the files below a folder, links as faults, and with ``archives`` what is in those."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        nothing = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
        yield Found((*parts, ""), bytes, nothing, f"cannot be looked into: {error.strerror}")
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in NOISE - {"timestamp.txt"}:
            continue
        here = (*parts, entry.name)
        status = entry.stat(follow_symlinks=False)
        modified = datetime.fromtimestamp(status.st_mtime, UTC).replace(tzinfo=None)
        path = Path(entry.path)
        if entry.is_symlink():
            yield Found(here, bytes, modified, "a link to somewhere else; it is not followed")
        elif entry.is_dir(follow_symlinks=False):
            if len(here) <= MAX_DEPTH:
                yield from walk(path, here, archives)
        elif not stat.S_ISREG(status.st_mode):
            yield Found(here, bytes, modified, "no file; expected a notebook (.ipynb)")
        elif archives and entry.name.lower().endswith(".zip"):
            yield from unzip(path, here)
        else:
            yield Found(here, partial(read_bounded, path), modified, path=path)


def read_bounded(path: Path) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            return _within(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise Refusal(f"cannot be read: {error.strerror}") from None


def _within(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise Refusal(f"larger than {MAX_BYTES // 1_000_000} MB; clear its outputs and save it")
    return data


def unzip(source: Path | bytes, parts: tuple[str, ...] = (), depth: int = 0) -> Iterator[Found]:
    """Yield the files in an archive, and in the archives in it; whatever its names say."""
    now = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
    try:
        archive = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        yield Found(parts, bytes, now, f"no zip archive that can be read: {error}")
        return
    with archive:
        left = MAX_TOTAL_BYTES
        for count, member in enumerate(archive.infolist()):
            name = _member_name(member)
            pieces = [piece for piece in re.split(r"[/\\]", name) if piece not in ("", ".")]
            here = (*parts, *pieces)
            if member.is_dir() or not pieces or any(is_hidden(piece) for piece in pieces):
                continue
            modified = _member_time(member)
            fault = _member_fault(member, name, pieces)
            if count >= MAX_FILES or left <= 0:
                yield Found((*parts, "…"), bytes, now, "the archive holds more than a class does")
                return
            suffix = PurePosixPath(name).suffix.lower()
            if fault or suffix not in (".ipynb", ".zip", ".txt"):
                yield Found(here, bytes, modified, fault)
                continue
            try:
                data = _read_member(archive, member)
            except Refusal as refusal:
                left -= MAX_BYTES
                yield Found(here, bytes, modified, str(refusal))
                continue
            left -= len(data)
            if suffix != ".zip":
                yield Found(here, partial(bytes, data), modified)
            elif depth < 1:
                yield from unzip(data, here, depth + 1)
            else:
                yield Found(here, bytes, modified, "an archive in an archive in an archive")


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
        return datetime(1980, 1, 1)


def _member_fault(member: zipfile.ZipInfo, name: str, pieces: list[str]) -> str:
    if ".." in pieces or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        return "its name in the archive leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "a link in the archive; it is not followed"
    if member.flag_bits & 0x1:
        return "encrypted; pack it without a password"
    return ""


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member up to the limit, whatever size the archive says it has."""
    try:
        with archive.open(member) as stream:
            data = stream.read(MAX_BYTES + 1)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
        raise Refusal(f"damaged in the archive: {error}") from None
    except Exception as error:  # zlib's and lzma's own errors
        raise Refusal(f"damaged in the archive: {type(error).__name__}") from None
    return _within(data)


def names_in(source: Path) -> list[tuple[str, ...]]:
    try:
        with zipfile.ZipFile(source) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()][:MAX_FILES]
            pieces = [re.split(r"[/\\]", _member_name(member)) for member in members]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise BadInput(f"{source}: no zip archive that can be read: {error}") from None
    return [tuple(p for p in piece if p not in ("", ".")) for piece in pieces]


def read_file(path: Path) -> bytes:
    """Return a notebook's bytes. Raises ValueError, in one line, for what is not taken in."""
    try:
        return read_bounded(path)
    except Refusal as refusal:
        raise ValueError(str(refusal)) from None


def filling_fault(data: bytes) -> str:
    """Say what is wrong with bytes that are made to fill the memory of whoever reads them."""
    if data.count(b"[") + data.count(b"{") > MAX_BRACKETS:
        return "made of brackets, not of text: no notebook of a lab"
    return ""
