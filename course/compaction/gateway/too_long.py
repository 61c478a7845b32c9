"""Refusals for length as real gateways word them, for the scripted gateway to give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compaction.gateway.validate import Refusal

WORDINGS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "openai": (
        "This model's maximum context length is {window} tokens. Your messages have {tokens}.",
        {"param": "messages", "code": "context_length_exceeded"},
    ),
    "openai-without-figures": (
        "Your input exceeds the context window of this model. Please adjust your input.",
        {"param": "input", "code": "context_length_exceeded"},
    ),
    "vllm": (
        "This model's maximum context length is {window} tokens. Your input has {tokens} tokens.",
        {"param": "input_tokens", "type": "BadRequestError", "code": 400},
    ),
    "llama.cpp": (
        "the request exceeds the available context size, try increasing it",
        {"type": "exceed_context_size_error", "code": 400},
    ),
    "ollama": ("prompt too long; exceeded max context length by {excess} tokens", {}),
    "anthropic": ("prompt is too long: {tokens} tokens > {window} maximum", {}),
    "gemini": (
        "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window}).",
        {"type": "INVALID_ARGUMENT", "code": 400},
    ),
    "413": ("Request Entity Too Large", {}),
}
"""The text of each refusal and the fields of its error object; only "413" has that status."""


def too_long(wording: str, tokens: int, window: int) -> Refusal:
    """Return the refusal of a request of ``tokens`` by a window of ``window``.

    >>> too_long("anthropic", 9000, 8000).body["error"]["message"]
    'prompt is too long: 9000 tokens > 8000 maximum'
    """
    text, fields = WORDINGS[wording]
    message = text.format(tokens=tokens, window=window, excess=tokens - window)
    refusal = Refusal(413 if wording == "413" else 400, message)
    refusal.body["error"] |= fields
    if wording == "llama.cpp":
        refusal.body["error"] |= {"n_prompt_tokens": tokens, "n_ctx": window}
    return refusal
