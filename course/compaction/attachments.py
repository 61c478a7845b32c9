"""What the parts of a message other than text cost: images, files, recordings.

A message goes in, tokens come out. Nothing is decoded but the first bytes of an image: base64 is
not counted as if it were written, but as what it is. The prices are those that providers publish
(OpenAI, "Images and vision"; Anthropic, "Vision" and "PDF support"; Google, "Understand and count
tokens"); where they differ, the higher one of a common case is taken.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

from compaction.messages import Attachment, attachments_of

LOW_DETAIL_TOKENS = 85
"""An image that is asked for in low detail (OpenAI)."""

TILE_TOKENS, TILE_PIXELS = 170, 512
"""Each square of an image in high detail, beside the price of low detail (OpenAI)."""

UNKNOWN_IMAGE = (1024, 1024)
"""The size of an image that does not say it, in pixels: 765 tokens."""

PAGE_TOKENS, PAGE_BYTES = 2_000, 50_000
"""A page of a document: 1,500 to 3,000 tokens of text (Anthropic), and about how many bytes."""

SECOND_TOKENS = 32
"""A second of a recording: 32 tokens (Google), 10 (OpenAI)."""

SECOND_BYTES = {"wav": 48_000, "pcm16": 48_000}
"""Bytes a second of speech without compression; with it, 16,000."""

TEXT_TOKENS = 0.25
"""A character of a text file: day 1's quarter."""


def attachment_tokens(message: Mapping[str, Any]) -> int:
    """Return the tokens of a message's images, files and recordings; 0 without any.

    >>> file = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:;base64,AAAA"}}
    >>> attachment_tokens({"role": "user", "content": [file]})
    2000
    """
    return sum(map(_tokens, attachments_of(message)))


def file_tokens(message: Mapping[str, Any]) -> int:
    """Return the tokens of a message's files and recordings, without its images.

    >>> file_tokens({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})
    0
    """
    return sum(_tokens(found) for found in attachments_of(message) if found.kind != "image")


def _tokens(attachment: Attachment) -> int:
    if attachment.kind == "image":
        return _image_tokens(attachment)
    n_bytes = len(attachment.data) * 3 // 4  # base64: four characters are three bytes
    if attachment.kind == "audio":
        seconds = n_bytes / SECOND_BYTES.get(attachment.form, 16_000)
        return math.ceil(SECOND_TOKENS * max(1.0, seconds))
    if attachment.form.startswith("text/"):
        return math.ceil(TEXT_TOKENS * n_bytes)
    return PAGE_TOKENS * max(1, math.ceil(n_bytes / PAGE_BYTES))


def _image_tokens(image: Attachment) -> int:
    """Return OpenAI's price: the image is fitted into 2048 × 2048, its short side into 768."""
    if image.form == "low":
        return LOW_DETAIL_TOKENS
    width, height = _pixels(image.data) or UNKNOWN_IMAGE
    scale = min(1.0, 2048 / max(width, height), 768 / min(width, height))
    tiles = math.ceil(width * scale / TILE_PIXELS) * math.ceil(height * scale / TILE_PIXELS)
    return LOW_DETAIL_TOKENS + TILE_TOKENS * tiles


def _pixels(data: str) -> tuple[int, int] | None:
    """Return the width and height that a PNG's first bytes name, or None for all else."""
    try:
        head = base64.b64decode(data[:32])
    except (binascii.Error, ValueError):
        return None
    if len(head) < 24 or not head.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    return (width, height) if width and height else None
