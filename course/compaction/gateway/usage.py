"""Usage by a rule: what the scripted gateway charges for a request and a reply."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from compaction.messages import Message, image_count, text_of, transcript
from compaction.tokens import IMAGE_TOKENS, count_chars

TOKENS_PER_CJK = 0.5
TOKENS_PER_OTHER = 0.5
"""What the scripted gateway charges for a character, whatever its kind.

Real tokenizers charge about 1 and 1/4. The rule differs from the default table on purpose:
only then has a calibration something to find out.
"""
TOKENS_PER_MESSAGE = 3
"""What it adds for a message's framing. No pair of coefficients fits this part exactly, so the
error after a calibration stays above zero, though far below that of a real gateway."""


def scripted_usage_of_chars(cjk: int, other: int, messages: int = 1) -> int:
    """Return the prompt tokens that the scripted gateway reports for so many characters.

    ``ceil(cjk / 2 + other / 2) + 3 * messages``: a rule of this course, not of any model.

    >>> scripted_usage_of_chars(cjk=4, other=7, messages=1)
    9
    """
    characters = TOKENS_PER_CJK * cjk + TOKENS_PER_OTHER * other
    return math.ceil(round(characters, 6)) + TOKENS_PER_MESSAGE * messages


def scripted_usage(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
) -> int:
    """Return the ``prompt_tokens`` that the scripted gateway reports for a request.

    The characters are those of the transcript, tool schemas included; an image costs the same
    flat 256 tokens as in the estimate.

    >>> scripted_usage([{"role": "user", "content": "hello"}])  # "user: hello" and a line break
    9
    """
    chars = count_chars(transcript(messages, tools))
    images = IMAGE_TOKENS * image_count(messages)
    return scripted_usage_of_chars(chars.cjk, chars.other, len(messages)) + images


def completion_usage(message: Message) -> int:
    """Return the ``completion_tokens`` of a reply: its characters by the same rule, no framing.

    >>> completion_usage({"role": "assistant", "content": "hello"})
    3
    """
    chars = count_chars(text_of(message))
    return scripted_usage_of_chars(chars.cjk, chars.other, messages=0)
