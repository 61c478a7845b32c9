"""Day 7, as it is handed out: dropping the oldest field, whatever the next steps need."""

from __future__ import annotations


def fields_to_drop(state: dict[str, object], keep: int, needed: list[str]) -> list[str]:
    """Return the fields to drop so that ``keep`` remain."""
    # A dict keeps its order, so the oldest fields come first. What is old is done with.
    surplus = max(0, len(state) - keep)
    return list(state)[:surplus]
