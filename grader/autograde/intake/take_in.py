"""Take in what a class handed in: what is new goes to the journal, what counts to submitted/.

A folder or a zip archive, as learning platforms pack it, and nbgrader's own folder of what was
collected. Nothing is executed or unpacked. Every notebook is kept; the newest counts, whichever
way it came.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from compaction.files import write_whole
from grader.autograde.intake.decide import Decision, Refused, decide
from grader.autograde.intake.files import Found, Refusal, read_bounded, walk
from grader.autograde.intake.journal import (
    HandIn,
    Journal,
    Places,
    read_journal,
    write_journal,
)
from grader.autograde.intake.names import Named
from grader.autograde.intake.read import read_download, same_folder
from grader.autograde.intake.roster import Roster, student_id
from grader.exercises import SLUGS


@dataclass(frozen=True)
class HandedIn:
    """A notebook that counts: the newest of this learner for this lab.

    ``when`` is the time of handing in, in UTC without a zone as nbgrader keeps it; None where
    no platform wrote it down.
    """

    student: str
    slug: str
    path: Path
    origin: str
    when: datetime | None = None
    late: bool = False


@dataclass
class Intake:
    """What came in. ``older`` counts notebooks that a newer one replaces; they are kept."""

    counting: list[HandedIn] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    older: int = 0
    decision: Decision = field(default_factory=Decision)


def take_in(
    source: Path | None,
    places: Places,
    roster: Roster | None = None,
    *,
    dry_run: bool = False,
    zone: tzinfo | None = None,
) -> Intake:
    """Take in a download, or what was collected alone; return what counts for whom.

    With ``dry_run`` nothing is written. Raises BadInput when there is no such folder, no archive,
    or nothing in it.
    """
    journal = read_journal(places)
    with tempfile.TemporaryDirectory(prefix="dry-run-") as aside:
        keep = Path(aside) if dry_run else places.kept / "files"
        if source is not None and not same_folder(source, places.submitted_folder):
            knows = roster.knows if roster is not None else (lambda name: False)
            journal.add(read_download(source, keep, knows, zone))
        lying, faults, notes = _collected(places, journal)
        here = [*journal.hand_ins.values(), *lying, *faults]
        decision = decide(here, roster, journal.assigned)
        intake = Intake([], decision.refused, [*notes, *decision.notes], decision.older, decision)
        moved = _withdraw(places, journal, decision, dry_run)
        intake.notes += moved
        for (student, slug), one in sorted(decision.counting.items()):
            path = one.in_place or places.file(one.digest)
            late = one.named.late
            counts = HandedIn(student, slug, path, one.origin, one.when, late)
            if not dry_run:
                counts = replace(counts, path=_lay(places, journal, counts, one, lying))
            intake.counting.append(counts)
        if not dry_run and (journal.hand_ins or journal.laid):
            write_journal(places, journal)
    return intake


# --- what was collected ------------------------------------------------------------------


def collected(places: Places, journal: Journal) -> list[HandIn]:
    """Return the notebooks in submitted/ that nbgrader collected, or somebody laid there."""
    return _collected(places, journal)[0]


def _collected(places: Places, journal: Journal) -> tuple[list[HandIn], list[HandIn], list[str]]:
    """Return what lies in submitted/ and was not laid by us; nothing is copied.

    student/lab/notebook.ipynb. Its time is that of the folder: what timestamp.txt says there was
    written by the learner's own program.
    """
    by_place: dict[tuple[str, str], list[Found]] = defaultdict(list)
    faults: list[HandIn] = []
    notes: list[str] = []
    root = places.submitted_folder
    for found in walk(root) if root.is_dir() else ():
        student, slug = found.parts[0], found.parts[1] if len(found.parts) > 2 else ""
        if not found.is_notebook and not found.fault:
            continue
        if slug in SLUGS.values() and not found.fault and len(found.parts) == 3:
            by_place[student, slug].append(found)
        else:
            reason = found.fault or "expected in a folder of its lab, as in ada/day1_estimate"
            named = Named("plain", student, given=student)
            faults.append(HandIn(_origin(found), named, root.name, slug, fault=reason))
    hand_ins = []
    for (student, slug), several in sorted(by_place.items()):
        folder = root / student / slug
        laid = journal.laid.get(f"{student}/{slug}")
        stamp = _text(folder / "timestamp.txt")
        if laid and laid.get("file") and laid["stamp"] == stamp and not _has_secret(folder):
            continue
        own = [found for found in several if found.parts[-1] == f"{slug}.ipynb"]
        chosen = max(own or several, key=lambda found: (found.modified, found.parts))
        if len(several) > 1:
            counts = f"{len(several)} notebooks; {chosen.parts[-1]} counts"
            notes.append(f"{student_id(student)}, {slug}: {counts}")
        hand_in = _hand_in(chosen, folder, stamp, journal)
        if hand_in is not None:
            hand_ins.append(hand_in)
    return hand_ins, faults, notes


def _hand_in(found: Found, folder: Path, stamp: str, journal: Journal) -> HandIn | None:
    student, slug = found.parts[0], found.parts[1]
    place = f"{student}/{slug}"
    changed = datetime.fromtimestamp(folder.stat().st_mtime, UTC).replace(tzinfo=None)
    seen = journal.laid.get(place)
    # Somebody may mend a notebook there: its folder's time is the one first seen.
    if seen is None or seen["stamp"] != stamp or seen.get("file"):
        seen = journal.laid[place] = {"stamp": stamp, "when": changed.isoformat()}
    when = datetime.fromisoformat(seen["when"]) if stamp or _has_secret(folder) else None
    named = Named("collected", student, given=student)
    assert found.path is not None
    digest = _digest(found.path)
    return HandIn(_origin(found), named, "submitted", slug, digest, when, changed,
                  in_place=found.path)  # fmt: skip


def _origin(found: Found) -> str:
    return "submitted/" + "/".join(found.parts)


def _has_secret(folder: Path) -> bool:
    return (folder / "submission_secret.txt").is_file()


def _text(path: Path) -> str:
    try:
        return read_bounded(path)[:200].decode(errors="replace")
    except Refusal:
        return ""


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_bounded(path)).hexdigest()
    except Refusal:
        return ""


# --- laying ------------------------------------------------------------------------------


def _lay(
    places: Places,
    journal: Journal,
    counts: HandedIn,
    one: HandIn,
    lying: Iterable[HandIn],
) -> Path:
    """Lay a notebook where nbgrader expects it, unless it is there already; return its path."""
    folder = places.submitted(counts.student, counts.slug)
    target = folder / f"{counts.slug}.ipynb"
    # What was collected stays where it is, whatever its file or its folder is called.
    if one.in_place is not None and student_id(one.in_place.parts[-3]) == counts.student:
        return one.in_place
    place = f"{counts.student}/{counts.slug}"
    laid = journal.laid.get(place, {})
    # An instructor may have mended what was laid before: it stays until a newer one comes.
    if target.exists() and (laid.get("file"), laid.get("digest")) == (one.origin, one.digest):
        return target
    for old in lying:
        if old.in_place is not None and old.in_place.parent == folder:
            _keep(places, journal, old)
    data = read_bounded(one.in_place or places.file(one.digest))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "submission_secret.txt").unlink(missing_ok=True)
    stamp = f"{one.when:%Y-%m-%d %H:%M:%S.%f} UTC\n" if one.when else ""
    write_whole(target, data)
    if stamp:
        write_whole(folder / "timestamp.txt", stamp)
    else:
        (folder / "timestamp.txt").unlink(missing_ok=True)
    journal.laid[place] = {"file": one.origin, "digest": one.digest, "stamp": stamp}
    return target


def _keep(places: Places, journal: Journal, one: HandIn) -> None:
    """Keep what was collected before something newer takes its place."""
    assert one.in_place is not None
    path = places.file(one.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, read_bounded(one.in_place))
    journal.add([replace(one, in_place=None)])


def _withdraw(places: Places, journal: Journal, decision: Decision, dry_run: bool) -> list[str]:
    """Take back what was laid for somebody whose file it is not any more; say so."""
    notes = []
    for place, laid in list(journal.laid.items()):
        student, slug = place.rsplit("/", 1)
        if not laid.get("file") or (student, slug) in decision.counting:
            continue
        owner = decision.owners.get((laid["file"], laid["digest"]))
        if owner == student:
            continue
        now = f"counts for {owner} now" if owner else "counts for nobody now"
        told = f"taken back from {student}, whose grade stays in the gradebook until you remove it"
        notes.append(f"{laid['file']}, {slug}: {now}; {told}")
        if not dry_run:
            folder = places.submitted(student, slug)
            (folder / f"{slug}.ipynb").unlink(missing_ok=True)
            del journal.laid[place]
    return notes
