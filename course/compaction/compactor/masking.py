"""Masks: secrets of known shapes are hidden before a summary, or a request for one, is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from compaction.messages import Message

Mask = Callable[[str], str]
"""From a text to the text without its secrets."""

HIDDEN = "[hidden]"

_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, Stripe
    r"|\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}"
    r"|\bxox[abeprs]-[\w-]{10,}|\bnpm_[A-Za-z0-9]{20,}|\bpypi-[\w-]{20,}|\bhf_[A-Za-z0-9]{20,}"
    r"|\bSG\.[\w-]{16,}\.[\w-]{16,}|\bdop_v1_[a-f0-9]{32,}|\bsq0\w{3}-[\w-]{20,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",  # JSON web tokens
    re.DOTALL,
)
_NAMED = re.compile(
    r"(?P<name>\b[\w.-]*(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|client[_-]?secret|auth[_-]?key|credentials?)\b[\"']?\s*(?:[:=]|=>|\bis\b)\s*\\?"
    r"[\"']?)(?P<value>[^\s\"'\\,;&<>{}\[\]()]{6,})",
    re.IGNORECASE,
)
_NAMED_ZH = re.compile(
    r"(?P<name>(?:密码|口令|密钥|令牌)\s*(?:是|为|[:：=])?\s*)(?P<value>[\w!@#$%^&*+=./-]{6,})"
)
_BEARER = re.compile(r"(?P<name>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9+/=._~-]{12,})")
_IN_ADDRESS = re.compile(r"(?P<name>\b[a-z][a-z0-9+.-]*://[^\s/:@]+:)(?P<value>[^\s/@]+)(?=@)")
_HARMLESS = re.compile(
    r"^(?:none|null|true|false|undefined|required|optional|missing|invalid|string|str|\$\w+|\*+|x+"
    r"|os\.\w+.*|process\.\w+.*|getenv.*|env\..*|config\..*|self\..*|settings\..*|<.*|\.\.\.)$",
    re.IGNORECASE,
)


def mask_secrets(text: str) -> str:
    """Hide secrets of known shapes: keys of services, tokens, passwords, private keys.

    >>> mask_secrets("export API_KEY=hunter2hunter2 and go on")
    'export API_KEY=[hidden] and go on'
    >>> mask_secrets("postgres://shop:s3cr3t@db.local/shop")
    'postgres://shop:[hidden]@db.local/shop'
    """
    text = _SHAPES.sub(HIDDEN, text)
    for pattern in (_BEARER, _IN_ADDRESS, _NAMED, _NAMED_ZH):
        text = pattern.sub(_hide, text)
    return text


def _hide(match: re.Match[str]) -> str:
    return match[0] if _HARMLESS.match(match["value"]) else f"{match['name']}{HIDDEN}"


def masked(message: Message, mask: Mask) -> Message:
    """Return a copy of a message whose every text, arguments included, went through the mask."""
    hidden = {
        key: _masked(value, mask) if key in _TEXT_FIELDS else value
        for key, value in message.items()
    }
    if isinstance(message.get("tool_calls"), list):
        hidden["tool_calls"] = [_masked_call(call, mask) for call in message["tool_calls"]]
    return hidden


_TEXT_FIELDS = ("content", "reasoning_content", "refusal", "function_call")
_DATA_FIELDS = ("data", "file_data", "url", "type", "id", "tool_use_id")


def _masked(value: Any, mask: Mask) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [_masked(part, mask) for part in value]
    if isinstance(value, Mapping):
        return {
            key: part if key in _DATA_FIELDS and _is_data(part) else _masked(part, mask)
            for key, part in value.items()
        }
    return value


def _is_data(value: object) -> bool:
    return isinstance(value, str) and (value.startswith("data:") or " " not in value[:200])


def _masked_call(call: Any, mask: Mask) -> Any:
    if not isinstance(call, Mapping):
        return call
    hidden = dict(call)
    for kind in ("function", "custom"):
        if isinstance(call.get(kind), Mapping):
            hidden[kind] = {
                key: _masked(value, mask) if key in ("arguments", "input") else value
                for key, value in call[kind].items()
            }
    return hidden
