"""The bytes of a history, line by line, so that a large file need not lie in memory."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from compaction.files import InputError, reason_of, shown

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the size of the file, now and then."""

_EVERY = 4 << 20  # bytes between two calls


class Source:
    """A file or standard input as lines; :meth:`whole` gives what has not been read as one."""

    def __init__(
        self, file: BinaryIO, name: str, size: int = 0, progress: Progress | None = None
    ) -> None:
        self.name = name
        self._file = file
        self._size = size
        self._progress = progress
        self._done = self._told = 0
        self._line = 0

    @classmethod
    def open(cls, path: str | Path, progress: Progress | None = None) -> Source:
        """Open a file, or standard input for ``-``; raises InputError."""
        if str(path) == "-":
            return cls(sys.stdin.buffer, "standard input")
        name = shown(path)
        try:
            if Path(path).is_dir():
                raise IsADirectoryError(None, "it is a folder; expected a file")
            file = open(path, "rb")  # noqa: SIM115 - closed when it has been read
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            raise InputError(f"{name}: cannot be read: {reason_of(error)}") from error
        return cls(file, name, os.fstat(file.fileno()).st_size, progress)

    @classmethod
    def of_bytes(cls, data: bytes, name: str) -> Source:
        """Read bytes that are already there."""
        return cls(io.BytesIO(data), name)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, each with its number."""
        while line := self._read(self._file.readline):
            self._line += 1
            text = line.removeprefix(codecs.BOM_UTF8) if self._line == 1 else line
            if text.strip(b" \t\r\n"):
                yield self._line, text

    def whole(self) -> bytes:
        """Return everything that has not been read yet."""
        return self._read(self._file.read)

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._file is not getattr(sys.stdin, "buffer", None):
            self._file.close()

    def _read(self, read: Callable[[], bytes]) -> bytes:
        try:
            data = read()
        except OSError as error:
            raise InputError(f"{self.name}: cannot be read: {reason_of(error)}") from error
        self._done += len(data)
        if self._progress is not None and self._done - self._told >= _EVERY:
            self._told = self._done
            self._progress(self._done, self._size)
        return data
