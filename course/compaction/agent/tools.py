"""The agent's tools: read a file, edit a file, run a command, keep a checklist.

All of them work inside one folder. A command is a shell line of the model's choosing, so nothing
runs before a person has seen it and said yes; :mod:`compaction.agent.shell` runs it.
"""

from __future__ import annotations

import difflib
import itertools
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from compaction.agent.checklist import TODO_SCHEMA, count_items
from compaction.agent.shell import run_shell
from compaction.engine import call_functions
from compaction.files import InputError, write_whole
from compaction.messages import Call

TIME_LIMIT_S = 60.0
"""How long a command may run."""

RESULT_CHARACTERS = 12_000
"""Longest result of a tool; about 3,000 tokens of English text or code."""

OUTPUT_CHARACTERS = 8_000_000
"""Longest output of a command that is kept, where somebody keeps what is too long for a result."""

MAX_FILE_BYTES = 2_000_000
"""A larger file is no text that an agent edits."""

REFUSED = "refused: the person did not allow this command"
"""The result of a command that was not allowed."""

INTERRUPTED = (
    "interrupted: the agent was stopped while this command ran; it may have run, in part or whole, "
    "and was not run again"
)
"""The result of a command that was interrupted, where nobody wants it to run again."""


def _schema(name: str, description: str, **parameters: dict[str, Any]) -> dict[str, Any]:
    required = [key for key, value in parameters.items() if not value.pop("optional", False)]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": parameters, "required": required},
        },
    }


def _text_parameter(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


SCHEMAS: list[dict[str, Any]] = [
    _schema(
        "read_file",
        "Read a text file of the project.",
        path=_text_parameter("path inside the project folder"),
        start={"type": "integer", "description": "first line, from 1", "optional": True},
    ),
    _schema(
        "edit_file",
        "Replace a text in a file. The text must occur exactly once; give enough of the lines "
        "around it. An empty text makes a new file.",
        path=_text_parameter("path inside the project folder"),
        old=_text_parameter("the text to replace, letter by letter"),
        new=_text_parameter("what takes its place"),
    ),
    _schema(
        "run_command",
        "Run a shell command in the project folder, such as its tests. A person may refuse it.",
        command=_text_parameter("one command line"),
    ),
    TODO_SCHEMA,
]
"""The tools as they ride along on every request."""


class ToolError(Exception):
    """A call that cannot be done; the text tells the model why."""


class Toolbox:
    """The tools of one project folder; ``call`` is what the engine calls.

    ``allow(command)`` is asked before every command and must return True for it to run.
    ``before_run()`` is then called, if it is set. ``limit`` is the longest result in characters;
    ``output_limit``, the same at first, is that of a command's output. The texts in ``secrets``
    (keys) never get into a result. Raises NotADirectoryError when the folder is none.

    >>> import tempfile
    >>> toolbox = Toolbox(tempfile.gettempdir(), allow=lambda command: False)
    >>> toolbox.call(Call("c1", "run_command", '{"command": "ls"}'))
    'refused: the person did not allow this command'
    >>> toolbox.call(Call("c2", "read_file", '{"path": "/etc/passwd"}'))
    'error: /etc/passwd lies outside the project folder'
    """

    def __init__(
        self,
        folder: str | Path,
        allow: Callable[[str], bool],
        *,
        time_limit_s: float = TIME_LIMIT_S,
        limit: int = RESULT_CHARACTERS,
        secrets: Iterable[str] = (),
    ) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise NotADirectoryError(20, "it is no folder", str(folder))
        self.allow = allow
        self.time_limit_s = time_limit_s
        self.limit = self.output_limit = limit
        self.secrets = [secret for secret in secrets if secret]
        self.before_run: Callable[[], object] | None = None
        self._allowed = False
        self._call = call_functions(
            {
                "read_file": self.read_file,
                "edit_file": self.edit_file,
                "run_command": self.run_command,
                "todo": count_items,
            }
        )

    def call(self, call: Call, allowed: bool = False) -> str:
        """Run a tool call and return its result, or an error text that a model can act on.

        With ``allowed`` a command runs unasked: the question has been put already.
        """
        self._allowed = allowed
        try:
            result = self._call(call)
        except (ToolError, InputError, OSError) as error:
            result = f"error: {_reason(error)}"
        except TypeError as error:  # a missing or an unknown argument
            result = f"error: {str(error).removeprefix('Toolbox.').replace('()', '', 1)}"
        return self._redacted(result)

    # Files.

    def read_file(self, path: str, start: int = 1) -> str:
        """Return the text of a file from a line on, at most ``limit`` characters of it."""
        file = self._file(path)
        if not isinstance(start, int) or start < 1:
            raise ToolError(f"start must be a line number from 1 on, not {start!r}")
        text = _read_text(file, path)
        if not text:
            return f"[{path} is empty]"
        lines = text.splitlines(keepends=True)
        if start > len(lines):
            raise ToolError(f"{path} ends at line {len(lines)}")
        sizes = itertools.accumulate(len(line) for line in lines[start - 1 :])
        shown = sum(1 for size in sizes if size <= self.limit)
        if not shown:
            return lines[start - 1][: self.limit] + f"\n[line {start} of {path} is cut here]"
        end = start - 1 + shown
        piece = "".join(lines[start - 1 : end])
        if end == len(lines):
            return piece
        if not piece.endswith("\n"):
            piece += "\n"
        return piece + f"[lines {start} to {end} of {len(lines)}; read on with start={end + 1}]"

    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace the one place where ``old`` stands; return the change as a diff.

        An empty ``old`` makes a new file. Raises ToolError where the text is missing or stands
        there several times; the file is then as it was.
        """
        file = self._file(path, must_exist=old != "")
        if not isinstance(old, str) or not isinstance(new, str):
            raise ToolError("old and new must be text")
        if not old:
            if file.exists():
                raise ToolError(f"{path} exists; give the text to replace")
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, new)
            count = len(new.splitlines())
            return f"made {path}: {count} line{'s' * (count != 1)}"
        before = _read_text(file, path)
        if "\r\n" in before and "\r" not in old:
            # A model writes plain line breaks; the file keeps its own.
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        found = before.count(old)
        if found != 1:
            raise ToolError(_no_single_match(path, before, old, found))
        if old == new:
            raise ToolError("old and new are the same; nothing to change")
        after = before.replace(old, new)
        write_whole(file, after)
        return _diff(path, before, after, before.index(old), len(old), len(new))

    def _file(self, path: str, must_exist: bool = True) -> Path:
        """Return the path inside the folder, links followed."""
        if not isinstance(path, str) or not path or "\0" in path:
            raise ToolError("path must be the name of a file in the project folder")
        file = (self.folder / path).resolve()
        if not file.is_relative_to(self.folder):
            raise ToolError(f"{path} lies outside the project folder")
        if file.is_dir():
            names = sorted(entry.name + "/" * entry.is_dir() for entry in file.iterdir())
            listed = ", ".join(names[:50]) + (", ..." if len(names) > 50 else "")
            raise ToolError(f"{path} is a folder; it holds: {listed or 'nothing'}")
        if must_exist and not file.exists():
            raise ToolError(f"there is no file {path}")
        if file.exists() and not file.is_file():
            raise ToolError(f"{path} is no regular file")
        return file

    # Commands.

    def run_command(self, command: str) -> str:
        """Ask, run a shell command in the folder, and return its output and exit code."""
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            raise ToolError("command must be a command line")
        if not self._allowed and not self.allow(command):
            return REFUSED
        if self.before_run is not None:
            self.before_run()
        environment, limit = self._environment(), self.output_limit
        return run_shell(command, self.folder, environment, self.time_limit_s, limit)

    def _environment(self) -> dict[str, str]:
        """Return the environment of a command: without keys, without colours."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("OPENAI_") and value not in self.secrets
        }
        # `python` is this Python, in an environment that nobody activated too.
        here = os.path.dirname(sys.executable)
        path = os.pathsep.join([here, *filter(None, [kept.get("PATH")])])
        return kept | {"PATH": path, "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}

    def _redacted(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "[key]")
        return text


# --- files and their texts ------------------------------------------------------------------


def _read_text(file: Path, path: str) -> str:
    size = file.stat().st_size
    if size > MAX_FILE_BYTES:
        raise ToolError(f"{path} is too large to read: {size:,} bytes")
    data = file.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ToolError(f"{path} is no text in UTF-8 ({size:,} bytes)")
    return text


def _no_single_match(path: str, text: str, old: str, found: int) -> str:
    if found > 1:
        return f"the text stands in {path} {found} times; give more of the lines around it"
    if " ".join(old.split()) in " ".join(text.split()):
        return f"the text is not in {path} letter by letter: its white space differs"
    return f"the text is not in {path}; read the file again"


def _diff(path: str, before: str, after: str, position: int, removed: int, added: int) -> str:
    """Return the lines around one change; only these are compared, however long the file is."""
    first = before.count("\n", 0, position)
    start = max(0, first - 3)
    old_lines, new_lines = before.splitlines(), after.splitlines()
    old_end = before.count("\n", 0, position + removed) + 4
    new_end = after.count("\n", 0, position + added) + 4
    lines = difflib.unified_diff(
        old_lines[start:old_end], new_lines[start:new_end], lineterm="", n=3
    )
    body = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    if len(body) > 80:
        body = [*body[:60], f"[{len(body) - 80} lines of the change are left out]", *body[-20:]]
    return "\n".join([f"changed {path} at line {first + 1}", *body])


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        return name + error.strerror[:1].lower() + error.strerror[1:]
    return str(error)
