"""Files that look like histories and are none: refused by name, with what to do.

Event dumps tell what happened, not what the model was shown, and Markdown and databases cannot be
taken apart faithfully.
"""

from __future__ import annotations

from compaction.history.formats.traits import Traits

_CHAT = 'a JSON list of Chat Completions messages, or {"messages": [...]}'

_AIDER = (
    "this is aider's chat history in Markdown, which cannot be taken apart faithfully; give "
    f"{_CHAT} (aider --llm-history-file keeps what is sent)"
)
_SQLITE = (
    "this is a SQLite database, not a history; export the session as JSON "
    "(opencode: opencode export SESSION > session.json)"
)
_ZIP = (
    "this is a zip archive, not a history; unpack it, and give a JSON file from it (from a SQLite "
    "database such as opencode's, export the session as JSON first)"
)
_GZIP = "this is compressed with gzip; unpack it (gunzip) and give the JSON file"
_OPENHANDS = (
    "these are OpenHands' events, which are not messages; give the messages of a completion "
    f"(log_completions = true keeps them), or convert them to {_CHAT}"
)
_CLINE = (
    "these are the messages of Cline's screen; give api_conversation_history.json, which lies "
    "beside it"
)
_CHATGPT = (
    "this is ChatGPT's export of an account, not an agent's history; convert a conversation to "
    f"{_CHAT}"
)
_TELEMETRY = f"these are OpenTelemetry traces; export the messages of a request as {_CHAT}"
_STREAM = f"this is a recorded stream of events; give the request's body, or {_CHAT}"


def refusal(traits: Traits) -> str | None:
    """Return why data with these traits is refused by name, or None."""
    fields = traits.fields
    is_event = "source" in fields and bool(fields & {"action", "observation", "kind"})
    if is_event and not traits.roles and not traits.types:
        return _OPENHANDS
    if {"ts", "type"} <= fields and traits.types & {"say", "ask"}:
        return _CLINE
    if "mapping" in traits.outer or {"mapping", "create_time"} <= fields:
        return _CHATGPT
    if "resourceSpans" in traits.outer or "resourceSpans" in fields:
        return _TELEMETRY
    return None


def refusal_of_bytes(start: bytes) -> str | None:
    """Return why a file that begins so is refused by name, or None.

    >>> refusal_of_bytes(b"SQLite format 3\\0")[:25]
    'this is a SQLite database'
    """
    for beginning, reason in (
        (b"SQLite format 3\0", _SQLITE),
        (b"PK\x03\x04", _ZIP),
        (b"\x1f\x8b", _GZIP),
    ):
        if start.startswith(beginning):
            return reason
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"# aider chat started at"):
        return _AIDER
    if text.startswith((b"data: {", b"event: ")):
        return _STREAM
    return None
