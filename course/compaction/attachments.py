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
from typing import Any, Literal

from compaction.messages import Attachment, attachments_of

LOW_DETAIL_TOKENS = 85
"""An image that is asked for in low detail (OpenAI)."""

TILE_TOKENS, TILE_PIXELS = 170, 512
"""Each square of an image in high detail, beside the price of low detail (OpenAI)."""

UNKNOWN_IMAGE = (1024, 1024)
"""The size of an image that does not say it, in pixels: 765 tokens."""

HEAD_CHARACTERS = 88_000
"""Base64 characters of an image that are looked at for its size: 66 kB."""

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
    """Return the width and height that an image's first bytes name; None where none is read.

    PNG, GIF, WebP and JPEG; in the last the size may stand behind a camera's notes of some kB.
    """
    try:
        head = base64.b64decode(data[:HEAD_CHARACTERS])
    except (binascii.Error, ValueError):
        return None
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        size = _number(head, 16, 4, "big"), _number(head, 20, 4, "big")
    elif head.startswith(b"GIF8"):
        size = _number(head, 6, 2), _number(head, 8, 2)
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        size = _webp_pixels(head)
    elif head.startswith(b"\xff\xd8"):
        size = _jpeg_pixels(head)
    else:
        return None
    return size if all(size) else None


def _number(
    head: bytes, start: int, length: int, order: Literal["little", "big"] = "little"
) -> int:
    return int.from_bytes(head[start : start + length], order)


def _webp_pixels(head: bytes) -> tuple[int, int]:
    if head[12:16] == b"VP8X":  # three bytes each, less one
        return _number(head, 24, 3) + 1, _number(head, 27, 3) + 1
    if head[12:16] == b"VP8L":  # 14 bits each, less one
        bits = _number(head, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return _number(head, 26, 2) & 0x3FFF, _number(head, 28, 2) & 0x3FFF


def _jpeg_pixels(head: bytes) -> tuple[int, int]:
    """Walk over the segments to the frame header, which holds height and width."""
    place = 2
    while head[place : place + 1] == b"\xff" and place + 9 <= len(head):
        marker = head[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _number(head, place + 7, 2, "big"), _number(head, place + 5, 2, "big")
        place += 2 + _number(head, place + 2, 2, "big")
    return 0, 0
