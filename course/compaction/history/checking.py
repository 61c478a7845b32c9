"""What a message must be so that counting and grouping can make sense of it."""

from __future__ import annotations

from typing import Any, NoReturn

from compaction.history.conversation import HistoryError
from compaction.history.json_text import brief, seen
from compaction.messages import ROLES, Message

_ROLES = f"{', '.join(ROLES[:-1])} or {ROLES[-1]}"


def checked(message: Any, place: str) -> Message:
    """Return the message, or refuse what no counting or grouping could make sense of.

    What an API would refuse but a person can work on (a result without its call, a missing
    content) is not refused here: ``compaction.messages.problems`` lists it.
    """

    def refuse(expected: str, value: object) -> NoReturn:
        raise HistoryError(f"{place}: expected {expected}, got {seen(value)}")

    if not isinstance(message, dict):
        refuse("an object", message)
    if "role" not in message:
        raise HistoryError(f"{place}: the message has no role; expected {_ROLES}")
    role = message["role"]
    if role not in ROLES:
        got = brief(role) if isinstance(role, str) else seen(role)
        raise HistoryError(f"{place}: expected the role {_ROLES}, got {got}")
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        refuse("text, a list of parts or null as content", content)
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, str | dict):
            refuse("text or an object as a part of the content", part)
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        refuse("a list as tool_calls", calls)
    for call in calls or ():
        if not isinstance(call, dict):
            refuse("an object as a tool call", call)
    return message
