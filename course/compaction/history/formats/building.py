"""Put Chat Completions messages together from what other programs recorded.

A reader says in order what was said, thought, called and returned; :class:`Builder` makes the
messages: calls made at once are one message, and every result follows the message that asked
for it, wherever its record lies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compaction.messages import SUMMARY_PREFIX, Message

Part = dict[str, Any]


@dataclass
class _Entry:
    """A message under construction, with the results that will follow it."""

    role: str
    key: object = None
    parts: list[Part] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)
    unanswered: int = 0

    def message(self) -> Message:
        built: Message = {"role": self.role, "content": content_from(self.parts)}
        if self.calls:
            built["tool_calls"] = self.calls
            built["content"] = built["content"] or None
        if self.thoughts:
            built["reasoning_content"] = "\n".join(self.thoughts)
        return built


class Builder:
    """Collects a conversation in order; :meth:`messages` gives the result.

    >>> builder = Builder()
    >>> builder.say("user", [text_part("Add 2 and 3.")])
    >>> builder.call("c1", "add", {"a": 2, "b": 3})
    >>> builder.say("user", [text_part("Please.")])
    >>> builder.result("c1", "5")
    >>> [message["role"] for message in builder.messages()]
    ['user', 'assistant', 'tool', 'user']
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._asked: dict[str, _Entry] = {}
        self._open: dict[str, str] = {}  # the calls without a result, oldest first, and their names
        self._made = 0

    def say(self, role: str, parts: Iterable[Part]) -> None:
        """Add a message of anybody but the assistant; nothing at all said is no message."""
        if parts := list(parts):
            self._entries.append(_Entry(role, parts=parts))

    def summary(self, text: str) -> None:
        """Start again from the summary that a program left of everything before it."""
        self._entries.clear()
        self._asked.clear()
        self._open.clear()
        self.say("user", [text_part(f"{SUMMARY_PREFIX}\n{text}")])

    def think(self, text: str, key: object = None) -> None:
        """Add readable reasoning; it belongs to what the assistant says or calls next."""
        if not text:
            return
        entry = self._assistant(key)
        if (entry.parts or entry.calls) and not entry.unanswered and key is None:
            entry = self._new(key)
        entry.thoughts.append(text)

    def answer(self, parts: Iterable[Part], key: object = None) -> None:
        """Add what the assistant said. Records with one ``key`` are one message."""
        if parts := list(parts):
            self._assistant(key).parts += parts

    def call(self, call_id: object, name: object, arguments: object, key: object = None) -> None:
        """Add a tool call; one without an id gets one. ``arguments`` is JSON or its text."""
        entry = self._assistant(key)
        known = call_id if isinstance(call_id, str) and call_id else self._new_id()
        function = {"name": str(name or "tool"), "arguments": arguments_text(arguments)}
        entry.calls.append({"id": known, "type": "function", "function": function})
        entry.unanswered += 1
        self._asked[known] = entry
        self._open[known] = function["name"]

    def result(self, call_id: object, content: str | list[Part], failed: bool = False) -> None:
        """Add what a call returned; without an id it answers the oldest call that is open."""
        known = call_id if isinstance(call_id, str) and call_id else self.oldest_open()
        content = mark_failed(content) if failed else content
        message: Message = {"role": "tool", "content": content}
        entry = None
        if known is not None:
            message["tool_call_id"] = known
            entry = self._asked.get(known)
        if entry is None:
            self._entries.append(_Entry("tool", results=[message]))
            return
        entry.results.append(message)
        entry.unanswered -= self._open.pop(known or "", None) is not None

    def oldest_open(self, name: str | None = None) -> str | None:
        """Return the id of the oldest call, of this name if given, that has no result yet."""
        return next((known for known, of in self._open.items() if name in (None, of)), None)

    def answer_open_calls(self, text: str) -> None:
        """Give every open call but those of the last message the result a program sends for it."""
        for call_id in list(self._open):
            if self._asked[call_id] is not self._entries[-1]:
                self.result(call_id, text, failed=True)

    def has_call(self, call_id: object) -> bool:
        """Say whether a call of this id was made."""
        return call_id in self._asked

    def messages(self) -> list[Message]:
        """Return the messages, each followed by its results."""
        built: list[Message] = []
        for entry in self._entries:
            if entry.role != "tool":
                built.append(entry.message())
            built += entry.results
        return built

    def _assistant(self, key: object) -> _Entry:
        """Return the assistant's message that is still being added to, or begin one."""
        last = self._entries[-1] if self._entries else None
        if last is not None and last.role == "assistant":
            # Results close a message, unless its own program says that it goes on.
            if (key is not None and key == last.key) or (not last.results and key is None):
                return last
            if not last.results and last.unanswered:
                return last
        return self._new(key)

    def _new(self, key: object) -> _Entry:
        self._entries.append(_Entry("assistant", key))
        return self._entries[-1]

    def _new_id(self) -> str:
        self._made += 1
        while (made := f"call_{self._made}") in self._asked:
            self._made += 1
        return made


# --- parts ------------------------------------------------------------------------------


def text_part(text: str) -> Part:
    """Return a part that holds text."""
    return {"type": "text", "text": text}


def text_parts(text: object) -> list[Part]:
    """Return a text as a list of one part; what is not text, or empty, gives none."""
    return [text_part(text)] if isinstance(text, str) and text else []


def image_part(url: str, filename: object = None) -> Part:
    """Return an image at an address, which may be a ``data:`` one, with its name if known."""
    part: Part = {"type": "image_url", "image_url": {"url": url}}
    if isinstance(filename, str) and filename:
        part["filename"] = filename
    return part


def file_part(filename: object, data: object = None, mime: object = None) -> Part:
    """Return a file; ``data`` is base64 text or an address, ``mime`` its type."""
    file: dict[str, Any] = {"filename": filename if isinstance(filename, str) else "file"}
    if isinstance(data, str) and data:
        file["file_data"] = as_url(data, mime)
    return {"type": "file", "file": file}


def audio_part(data: object, mime: object = None) -> Part:
    """Return recorded sound, base64 text."""
    sound = str(mime or "audio/wav").rpartition("/")[2]
    return {"type": "input_audio", "input_audio": {"data": str(data), "format": sound}}


def media_part(data: object, mime: object, filename: object = None) -> list[Part]:
    """Return whatever a program attached, by its type: an image, sound, or a file."""
    kind = str(mime or "")
    if not isinstance(data, str) or not data:
        return [file_part(filename)] if filename else []
    if kind.startswith("image"):
        return [image_part(as_url(data, kind if "/" in kind else "image/png"), filename)]
    if kind.startswith("audio/") and not is_url(data):
        return [audio_part(data, mime)]
    name = filename or (data.rpartition("/")[2] if is_url(data) and data[:5] != "data:" else None)
    return [file_part(name, data, mime)]


def is_url(data: str) -> bool:
    """Say whether a text is an address rather than base64."""
    return data.partition(":")[0] in ("data", "http", "https", "gs", "file", "s3")


def as_url(data: str, mime: object = None) -> str:
    """Return an address as it is, and base64 text as a ``data:`` address.

    >>> as_url("aGk=", "text/plain")
    'data:text/plain;base64,aGk='
    """
    return data if is_url(data) else f"data:{mime or 'application/octet-stream'};base64,{data}"


def content_from(parts: list[Part]) -> str | list[Part]:
    """Return parts as a message's content: one text where there is nothing but text.

    >>> content_from([text_part("a"), text_part("b")])
    'a\\nb'
    """
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def mark_failed(content: str | list[Part]) -> str | list[Part]:
    """Return a failed call's result so that it reads as one."""
    if isinstance(content, str):
        told = content.lstrip().lower().startswith(("error", "failed", "traceback"))
        return content if told else f"Error: {content}".rstrip()
    return [text_part("Error:"), *content]


def arguments_text(arguments: object) -> str:
    """Return a call's arguments as JSON text; free text goes in as ``input``.

    >>> arguments_text({"path": "a.py"}), arguments_text('{"path": "a.py"}'), arguments_text("ls")
    ('{"path": "a.py"}', '{"path": "a.py"}', '{"input": "ls"}')
    """
    if isinstance(arguments, str):
        if arguments.lstrip()[:1] == "{":  # what a model began as JSON stays as it wrote it
            return arguments
        arguments = {"input": arguments} if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    return json.dumps(arguments, ensure_ascii=False)


def value_text(value: object) -> str:
    """Return what a tool gave back as text; a lone field that only wraps a text is unwrapped.

    >>> value_text({"output": "3 files"}), value_text({"lines": 30})
    ('3 files', '{"lines": 30}')
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, inner),) = value.items()
        if name in ("output", "result", "content", "error", "text") and isinstance(inner, str):
            return inner
    return json.dumps(value, ensure_ascii=False)


def mapping(value: object) -> Mapping[str, Any]:
    """Return an object's fields, and no fields for anything else."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def function_tool(name: object, description: object, parameters: object) -> dict[str, Any]:
    """Return a tool schema as Chat Completions has it."""
    function = {"name": name, "description": description, "parameters": parameters}
    kept = {key: value for key, value in function.items() if value is not None}
    return {"type": "function", "function": kept}
