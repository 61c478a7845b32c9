"""Recognise "too long" in the words of many gateways, and read what they say about the window.

In goes an error: an exception of the ``openai`` client, an error event, or its text. Out comes an
:class:`Overflow`, or None for every other fault. The wordings are a table, one
line each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Overflow:
    """A refusal because the request is longer than the model's window; all in tokens.

    ``window`` is what the gateway says it holds, ``excess`` by how much the request is over it,
    ``reply`` the part of it that was asked for the reply; None where it does not say. ``said``
    is the gateway's own text.
    """

    window: int | None = None
    excess: int | None = None
    reply: int | None = None
    said: str = ""

    @property
    def request(self) -> int | None:
        """The tokens of the refused request, where the text names more than the window."""
        if self.window is None:
            return None
        figures = [_whole(figure) for figure in re.findall(r"\d[\d,]*", self.said)]
        return min((n for n in figures if self.window < n < 100 * self.window), default=None)

    def target(self, estimate: int, reserve: int = 0) -> int:
        """Return to how many tokens a request has to come down, counted as ``estimate`` was.

        Where the gateway counts more than the estimate, the target shrinks by the same ratio;
        where it names the excess alone, two thirds go at most; without a figure, a fifth.

        >>> Overflow(window=8000).target(estimate=9000, reserve=1000)
        7000
        >>> Overflow(window=8000, said="you requested 10000 tokens").target(estimate=5000)
        4000
        """
        if self.window is None:
            if self.excess is not None:
                # A gateway that counts more than the estimate names more than there is to give.
                return max(1, estimate // 3, estimate - self.excess - reserve)
            return max(1, estimate * 4 // 5)
        room = max(1, self.window - max(reserve, self.reply or 0))
        scale = min(1.0, estimate / self.request) if self.request else 1.0
        return max(1, min(int(room * scale), estimate - 1))


_N = r"\(?(?P<{}>\d[\d,_.]*)"
_WINDOW, _EXCESS = _N.format("window"), _N.format("excess")

WORDINGS = (
    # (where it comes from, what the text holds; the window or the excess where it is named)
    ("OpenAI, vLLM, OpenRouter", rf"maximum context length (?:is|of) {_WINDOW}"),
    ("OpenAI", r"exceeds? the (?:model'?s )?context window"),
    ("LiteLLM", rf"exceeds? (?:the )?(?:model'?s )?maximum context length\D{{0,12}}{_WINDOW}"),
    ("vLLM", rf"maximum model length(?: of)? {_WINDOW}"),
    ("llama.cpp", rf"exceeds the available context size(?: \({_WINDOW} tokens)?"),
    ("Ollama", rf"exceeded (?:max )?context length(?: by {_EXCESS})?"),
    ("Anthropic", rf"prompt is too long(?:: [\d,]+ tokens? > {_WINDOW})?"),
    ("Anthropic", rf"input length and `?max_tokens`? exceed context limit: [^>]*> {_WINDOW}"),
    ("Anthropic", r"request_too_large|Request exceeds the maximum size"),
    ("Gemini", rf"input token count.*exceeds the maximum(?: number of tokens allowed {_WINDOW})?"),
    ("Bedrock", r"input is too long for requested model"),
    ("xAI", rf"maximum prompt length is {_WINDOW}"),
    ("Groq", r"reduce the length of the (?:messages|prompt)"),
    ("Poolside", rf"maximum allowed input length of {_WINDOW}"),
    ("Together", rf"longer than the model'?s context length {_WINDOW}"),
    ("LM Studio", r"greater than the context length"),
    ("Copilot", rf"token count of [\d,]+ exceeds the limit of {_WINDOW}"),
    ("MiniMax", r"context window exceeds limit"),
    ("Kimi", rf"exceeded model token limit(?:: {_WINDOW})?"),
    ("Mistral", rf"too large for model with {_WINDOW} maximum context length"),
    ("z.ai", r"model_context_window_exceeded"),
    ("several", r"context[_ ](?:length|size|window)[_ ](?:is )?exceeded|exceed_context_size"),
    ("several", r"exceed(?:s|ed)? (?:the )?(?:maximum )?(?:context (?:length|limit|size|window))"),
    ("several", r"too many (?:input |prompt )?tokens|token limit exceeded"),
)
"""How gateways say "too long": collected from their own sources and from reports about them
(earendil-works/pi ``packages/ai/src/utils/overflow.ts``, ggml-org/llama.cpp#15780,
vllm-project/vllm#20409). The first wording that names a figure gives it."""

_READ = [re.compile(wording, re.IGNORECASE) for _, wording in WORDINGS]

# Words about how much is asked in a minute, which waiting mends and compaction does not.
_ABOUT_RATE = re.compile(
    r"rate.?limit|too many requests|per (?:minute|min|day|hour|second)\b|please wait|throttl|quota",
    re.IGNORECASE,
)
_IN_THE_REPLY = re.compile(
    rf"{_N.format('reply')} (?:in|for) the completion"
    rf"|requested {_N.format('output')} output tokens",
    re.IGNORECASE,
)
_OTHER_FAULTS = (401, 403, 404, 429)


def read_overflow(error: object) -> Overflow | None:
    """Return what an error says about a request that is too long; None for any other fault.

    ``error`` is an exception, the object of an error event, or a text.

    >>> read_overflow("prompt is too long: 213,462 tokens > 200,000 maximum").window
    200000
    >>> read_overflow({"error": {"type": "exceed_context_size_error", "n_ctx": 4096}}).window
    4096
    >>> read_overflow("Too many tokens, please wait before trying again.") is None
    True
    """
    status = getattr(error, "status_code", None)
    said = _text_of(error)
    if status in _OTHER_FAULTS or (_ABOUT_RATE.search(said) and status != 413):
        return None
    matches = [match for wording in _READ if (match := wording.search(said))]
    if not matches and status != 413:
        return None
    named: dict[str, int] = {}
    for match in matches:
        for name, figure in match.groupdict().items():
            if figure is not None:
                named.setdefault(name, _whole(figure))
    fields = _fields(error)
    window = named.get("window") or fields.get("n_ctx")
    reply = _IN_THE_REPLY.search(said)
    return Overflow(
        window=window,
        excess=named.get("excess"),
        reply=_whole(reply["reply"] or reply["output"]) if reply else None,
        said=said.strip(),
    )


def _whole(figure: str) -> int:
    return int(re.sub(r"\D", "", figure))


def _text_of(error: object) -> str:
    """Return all that an error says: its own text, and that of the body behind it."""
    body = error if isinstance(error, Mapping) else getattr(error, "body", None)
    said = [] if isinstance(error, Mapping) else [str(error)]
    if isinstance(body, Mapping):
        said.append(json.dumps(body, ensure_ascii=False, default=str))
    elif body is not None:
        said.append(str(body))
    return "\n".join(said)


def _fields(error: object) -> dict[str, int]:
    """Return the numbers that stand as fields in an error's body, however deep."""
    found: dict[str, int] = {}
    waiting: list[Any] = [error if isinstance(error, Mapping) else getattr(error, "body", None)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
            found |= {
                str(name): figure
                for name, figure in value.items()
                if isinstance(figure, int) and not isinstance(figure, bool) and figure > 0
            }
    return found
