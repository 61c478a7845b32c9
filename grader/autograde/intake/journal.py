"""Everything that was ever handed in, and what a person decided about it: kept across runs.

Notebooks lie under their digest in handed_in/files/, what is known of each in journal.json. Who
has handed in what is decided from all of it, every time: a roster that comes later, or a person's
word, settles what was held before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from compaction.files import write_whole
from grader.autograde.intake.names import Named
from grader.errors import BadInput


@dataclass(frozen=True)
class HandIn:
    """A notebook that somebody handed in, or a file that could not be taken in (``fault``).

    ``given`` is the name under which the platform gave it: its archive, and the outermost name in
    it. ``when`` is the time that the platform wrote, ``received`` that of the download or of the
    run that saw it first; both in UTC.
    """

    origin: str
    named: Named
    source: str = ""
    slug: str = ""
    digest: str = ""
    when: datetime | None = None
    received: datetime = datetime(1980, 1, 1)
    fault: str = ""
    in_place: Path | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What an assignment remembers: the same name with other bytes is another file."""
        return self.origin, self.digest

    @property
    def moment(self) -> datetime:
        """When it was handed in, as far as anybody but the learner says."""
        return self.when or self.received


NOBODY = "nobody"
"""Whom a file is assigned that is not to count."""


class Places:
    """Where a class's notebooks lie: ``submitted(student, slug)``, and all that was handed in."""

    def __init__(self, submitted: Callable[[str, str], Path], kept: Path) -> None:
        self.submitted = submitted
        self.kept = kept

    @property
    def submitted_folder(self) -> Path:
        """The folder of all that counts."""
        return self.submitted("student", "lab").parent.parent

    def file(self, digest: str) -> Path:
        """Return where the notebook with this digest is kept."""
        return self.kept / "files" / f"{digest}.ipynb"


@dataclass
class Journal:
    """What was handed in, by (origin, digest); whose a person said it is; what was laid.

    ``laid`` says of each (student/lab) in submitted/ which bytes lie there, from which file, and
    what its timestamp.txt said then.
    """

    hand_ins: dict[tuple[str, str], HandIn] = field(default_factory=dict)
    assigned: dict[tuple[str, str], str] = field(default_factory=dict)
    laid: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, fresh: Iterable[HandIn]) -> None:
        """Add what was read; a file that was seen before stays as old as it is."""
        for one in fresh:
            seen = self.hand_ins.get(one.key)
            # The same name with other bytes: what could not be read then can be read now.
            for key in [k for k, old in self.hand_ins.items() if k[0] == one.origin and old.fault]:
                del self.hand_ins[key]
            received = min(seen.received, one.received) if seen else one.received
            self.hand_ins[one.key] = replace(one, received=received)

    def find(self, origin: str) -> list[HandIn]:
        """Return what was handed in under a name, as the report prints it."""
        return [one for one in self.hand_ins.values() if one.origin == origin]


def read_journal(places: Places) -> Journal:
    """Read a class's journal; an empty one where nothing was handed in yet.

    Raises BadInput when it is damaged.
    """
    path = places.kept / "journal.json"
    if not path.is_file():
        return Journal()
    try:
        told = json.loads(path.read_bytes())
        hand_ins = [_hand_in(one) for one in told["hand_ins"]]
        assigned = {(o, d): learner for o, d, learner in told["assigned"]}
        return Journal({one.key: one for one in hand_ins}, assigned, told["laid"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path}: damaged ({error}); move it away to begin anew: notebooks stay in files/"
        ) from None


def write_journal(places: Places, journal: Journal) -> None:
    """Write a class's journal."""
    told = {
        "hand_ins": [_told(one) for one in journal.hand_ins.values()],
        "assigned": [[*key, learner] for key, learner in journal.assigned.items()],
        "laid": journal.laid,
    }
    places.kept.mkdir(parents=True, exist_ok=True)
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":")).replace(
        '{"origin"', '\n{"origin"'
    )
    write_whole(places.kept / "journal.json", text.encode(errors="replace"))


def _told(one: HandIn) -> dict[str, Any]:
    told = {k: v for k, v in asdict(one).items() if v and k != "in_place"}
    for part in (told, told["named"]):
        part |= {k: v.isoformat() for k, v in part.items() if isinstance(v, datetime)}
    told["named"] = {k: v for k, v in told["named"].items() if v}
    return told


def _hand_in(told: dict[str, Any]) -> HandIn:
    named = dict(told["named"])
    for part in (told, named):
        part |= {k: datetime.fromisoformat(part[k]) for k in ("when", "received") if part.get(k)}
    return HandIn(**{**told, "named": Named(**{"student": "", **named})})
