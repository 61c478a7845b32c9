"""Where a command's histories go: a file that appears whole at the end, or standard output."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import IO

from compaction.files import InputError, writing_whole
from compaction.history import Conversation, HistoryStream
from compaction.history.conversation import CHAT
from compaction.history.writing import rendered
from compaction.messages import Message


class Output:
    """Takes conversations one by one; only what is kept in the end is written.

    They lie in a temporary file meanwhile, so that many of them need no memory. Nothing ever
    takes the place of a file that another program wrote in its own form: InputError.
    """

    def __init__(self, path: str | None, origin: str, source: HistoryStream) -> None:
        self.path = path
        self._origin = origin
        self._source = source
        self._listed: list[tuple[Conversation, list[Message]]] = []
        self._draft: IO[bytes] | None = None
        self._refuse_to_overwrite(source.program)

    def __enter__(self) -> Output:
        if self.path is not None:
            self._draft = tempfile.TemporaryFile()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._draft is not None:
            self._draft.close()

    def add(self, conversation: Conversation, messages: list[Message]) -> None:
        """Add a conversation with its new messages."""
        if self._draft is None:
            return
        self._refuse_to_overwrite(conversation.program)
        if self._source.form == "conversation list":  # one value: written when all are there
            self._listed.append((conversation, messages))
        else:
            self._write([(conversation, messages)])

    def keep(self) -> None:
        """Put what was added where it belongs."""
        if self._draft is None or self.path is None:
            return
        if self._listed:
            self._write(self._listed)
        self._draft.seek(0)
        with ExitStack() as stack:
            if self.path == "-":
                # A history is UTF-8, whatever the terminal's encoding is.
                sys.stdout.flush()
                write = sys.stdout.buffer.write
            else:
                write = stack.enter_context(writing_whole(self.path))  # type: ignore[assignment]
            while piece := self._draft.read(1 << 20):
                write(piece)
        if self.path == "-":
            sys.stdout.buffer.flush()

    def _write(self, results: list[tuple[Conversation, list[Message]]]) -> None:
        assert self._draft is not None
        for text in rendered(self._source, results):
            self._draft.write(text.encode())

    def _refuse_to_overwrite(self, program: str) -> None:
        if program == CHAT or self.path in (None, "-"):
            return
        same = self.path == self._origin
        with suppress(OSError, ValueError):
            same = same or os.path.samefile(str(self.path), self._origin)
        if same:
            raise InputError(
                f"{self._source.name}: this is {program}'s own form, and would be replaced by "
                f"{CHAT} messages; give --out another name"
            )
