"""Day 4, as it is handed out: each message is a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compaction.grouping import Group, is_checklist
from compaction.messages import Message


def group_messages(
    messages: Sequence[Message],
    keep_recent: int = 3,
    pinned: Callable[[Message], bool] = is_checklist,
) -> list[Group]:
    """Split a history into groups, in order, and say which of them stay."""
    groups = []
    for position, message in enumerate(messages):
        # One message, one group: nothing gets lost, and there is nothing to match up.
        if message["role"] in ("system", "developer"):
            keep = "system"
        elif message["role"] != "tool" and pinned(message):
            keep = "pinned"
        elif position >= len(messages) - keep_recent:
            keep = "recent"
        else:
            keep = "compressible"
        groups.append(Group(position, position + 1, keep))
    return groups
