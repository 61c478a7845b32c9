"""Images, files and audio in a message: their names or kinds, for a summary that has only text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_KINDS = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "file": "file",
    "input_file": "file",
    "document": "document",
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "video",
    "video": "video",
}


def attachments_of(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line per part other than text: its kind, its name, its address if it has one.

    >>> part = {"type": "file", "file": {"filename": "invoice-0417.pdf", "file_data": "..."}}
    >>> list(attachments_of({"role": "user", "content": [part]}))
    ['file: invoice-0417.pdf']
    """
    content = message.get("content")
    if not isinstance(content, list):
        return
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and kind in _KINDS:
            name = _name_of(part, kind)
            yield f"{_KINDS[kind]}: {name}" if name else f"{_KINDS[kind]} (not in this text)"


def _name_of(part: Mapping[str, Any], kind: str) -> str:
    inner = part.get(kind, part.get("source"))
    fields = {**part, **inner} if isinstance(inner, Mapping) else dict(part)
    if isinstance(inner, str):
        fields["url"] = inner
    for key in ("filename", "file_name", "name", "title", "path", "file_id", "url", "image_url"):
        value = fields.get(key)
        # The data itself is no address.
        if isinstance(value, str) and value and not value.startswith("data:") and len(value) <= 200:
            return " ".join(value.split())
    return ""
