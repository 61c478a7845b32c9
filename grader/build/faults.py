"""What keeps something from being built, and what is no longer what its sources make of it."""

from __future__ import annotations

from typing import NamedTuple

from grader.errors import BadInput


class RegionError(Exception):
    """A solution region that cannot be used; the text says what is wrong, not where."""


class BuildError(BadInput):
    """What keeps a notebook from being built, one line a fault: notebook, cell, what is wrong."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Stale(NamedTuple):
    """A file that is not what its sources make of it, and why; ``left`` for a person to mend."""

    name: str
    why: str
    left: bool = False
