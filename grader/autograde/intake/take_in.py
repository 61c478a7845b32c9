"""Take in what a class handed in: whose notebook it is, which lab, which of several counts.

A folder or a zip archive, in nbgrader's own layout or as learning platforms pack it. Nothing is
executed or unpacked: only notebooks are read, each up to a limit, links are not followed, and
no name that stands in an archive becomes a path. Every notebook is kept; the newest counts.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from compaction.files import write_whole
from grader.autograde.intake.files import (
    Found,
    Refusal,
    filling_fault,
    names_in,
    unzip,
    walk,
)
from grader.autograde.intake.names import (
    Named,
    by_scheme,
    is_student_folder,
    slug_in,
    time_of,
    without_slug,
    without_suffix,
    wrapper_depth,
)
from grader.autograde.intake.roster import Roster, student_id
from grader.errors import BadInput, printable
from grader.exercises import SLUGS
from grader.notebooks.lab import NotebookError, lab_of

UNRECOGNISED = "unrecognised"
"""The folder of what is no lab, among what is kept."""


@dataclass(frozen=True)
class HandedIn:
    """A notebook that counts: the newest of this learner for this lab.

    ``when`` is the time of handing in, in UTC without a zone as nbgrader keeps it; None where
    nobody wrote it down.
    """

    student: str
    slug: str
    path: Path
    origin: str
    when: datetime | None = None
    late: bool = False


@dataclass(frozen=True)
class Refused:
    """What could not be taken in, and why, in one line for a person."""

    origin: str
    student: str
    slug: str
    reason: str


@dataclass
class Intake:
    """What came in. ``older`` counts notebooks that a newer one replaces; they are kept."""

    counting: list[HandedIn] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    older: int = 0


# --- who ---------------------------------------------------------------------------------


# --- names of files and folders ----------------------------------------------------------


# --- finding notebooks -------------------------------------------------------------------


# --- taking in ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Claim:
    """A notebook with the name of its student as found; ``data`` lies in a waiting file."""

    origin: str
    named: Named
    slug: str
    waiting: Path
    modified: datetime


class Places:
    """Where a class's notebooks lie: ``submitted(student, slug)``, and all that was handed in."""

    def __init__(self, submitted: Callable[[str, str], Path], kept: Path) -> None:
        self.submitted = submitted
        self.kept = kept


def take_in(source: Path, places: Places, roster: Roster | None = None) -> Intake:
    """Take in a folder or a zip archive: keep every notebook, and lay the newest to be graded.

    The newest of a learner for a lab is laid where nbgrader expects it, unless it lies there
    already. Raises BadInput when there is no such folder, no archive, or nothing in it.
    """
    if source.is_dir():
        names, files = [found.parts for found in walk(source, archives=False)], walk(source)
    elif source.is_file():
        names, files = names_in(source), unzip(source)
    else:
        raise BadInput(f"{source}: no such folder; expected a folder or a zip archive of notebooks")
    wrapped = wrapper_depth(names)
    taken = _Taken(places, roster)
    try:
        for found in files:
            taken.add(replace(found, parts=found.parts[wrapped:] or found.parts))
        if not taken.seen:
            expected = "expected .ipynb files, or folders of them"
            raise BadInput(f"{source}: no notebook in it; {expected}")
        return taken.finish()
    finally:
        shutil.rmtree(taken.waiting, ignore_errors=True)


def survey(folder: Path, roster: Roster | None = None) -> Intake:
    """Return what lies in a folder that has nbgrader's layout already; nothing is copied.

    student/lab/notebook.ipynb, with the time of handing in beside it in timestamp.txt.
    """
    by_place: dict[tuple[str, str], list[Found]] = defaultdict(list)
    times: dict[tuple[str, str], datetime | None] = {}
    intake = Intake()
    for found in walk(folder, archives=False):
        student = student_id(found.parts[0])
        slug = found.parts[1] if len(found.parts) > 2 else ""
        place = student, slug
        if found.parts[-1] == "timestamp.txt" and len(found.parts) == 3 and not found.fault:
            times[place] = _stamp(found)
        elif not found.parts[-1].endswith(".ipynb") and not found.fault:
            continue
        elif slug in SLUGS.values() and not found.fault and len(found.parts) == 3:
            by_place[place].append(found)
        else:
            reason = found.fault or "expected in a folder of its lab, as in ada/day1_estimate"
            intake.refused.append(Refused(found.origin, student, slug, reason))
    for (student, slug), several in sorted(by_place.items()):
        named = [found for found in several if found.parts[-1] == f"{slug}.ipynb"]
        chosen = max(named or several, key=lambda found: (found.modified, found.parts))
        if len(several) > 1:
            intake.older += len(several) - 1
            counts = f"{len(several)} notebooks; {printable(chosen.parts[-1])} counts"
            intake.notes.append(f"{student}, {slug}: {counts}")
        assert chosen.path is not None
        when = times.get((student, slug))
        intake.counting.append(HandedIn(student, slug, chosen.path, chosen.origin, when))
    if roster is not None:
        strangers = {student for student, _ in by_place} - set(roster.people)
        intake.notes += [f"{student}: not in the roster" for student in sorted(strangers)]
    return intake


def _stamp(found: Found) -> datetime | None:
    try:
        return time_of(found.read()[:200].decode(errors="replace"))
    except Refusal:
        return None


class _Taken:
    """What has been found so far."""

    def __init__(self, places: Places, roster: Roster | None) -> None:
        self.places, self.roster = places, roster
        self.seen = 0
        self.waiting = places.kept / ".waiting"
        self._claims: list[_Claim] = []
        self._times: dict[tuple[str, ...], datetime | None] = {}
        self._others: dict[str, list[str]] = defaultdict(list)
        self._intake = Intake()

    def add(self, found: Found) -> None:
        """Look at one file: keep a notebook, remember a time or a foreign file."""
        name = found.parts[-1]
        if name == "timestamp.txt":
            self._times[found.parts[:-1]] = _stamp(found)
            return
        if name.lower().endswith((".csv", ".txt", ".md", ".html")) and not found.fault:
            return
        named = self._name(found)
        if not found.fault and not name.lower().endswith(".ipynb"):
            self._others[named.student].append(name)
            return
        self.seen += 1
        if found.fault:
            self._refuse(found, named, slug_in(found.parts), found.fault)
            return
        try:
            slug, waiting = self._keep(found.read(), named)
        except Refusal as refusal:
            self._refuse(found, named, slug_in(found.parts), str(refusal))
            return
        named = replace(named, folder=found.parts[:-1])
        self._claims.append(_Claim(found.origin, named, slug, waiting, found.modified))

    def _refuse(self, found: Found, named: Named, slug: str, reason: str) -> None:
        student = (self._resolve(named) or student_id(named.student)) if named.student else ""
        self._intake.refused.append(Refused(found.origin, student, slug, reason))

    def _name(self, found: Found) -> Named:
        """Say whose file it is, by the names on the way to it."""
        stem, *folders = [without_suffix(part) for part in reversed(found.parts)]
        for part in [*folders, stem]:
            named = by_scheme(part)
            if named:
                return named
        candidates = [folder for folder in reversed(folders) if is_student_folder(folder)]
        alone = without_slug(stem)
        if self.roster is not None:
            for candidate in [*candidates, alone, *map(without_slug, candidates)]:
                if self.roster.find(candidate):
                    return Named(candidate)
        for candidate in candidates:
            return Named(without_slug(candidate) or candidate)
        return Named(alone)

    def _keep(self, data: bytes, named: Named) -> tuple[str, Path]:
        """Lay a notebook in the waiting folder; return its lab, and where it lies."""
        if not named.student:
            raise Refusal("whose it is stands neither in its name nor in a folder's")
        fault = filling_fault(data)
        if fault:
            raise Refusal(fault)
        self.waiting.mkdir(parents=True, exist_ok=True)
        waiting = self.waiting / f"{hashlib.sha256(data).hexdigest()}.ipynb"
        waiting.write_bytes(data)
        try:
            return lab_of(waiting), waiting
        except NotebookError as error:
            self._lay_aside(waiting)
            raise Refusal(fault_of(error, waiting)) from None

    def _lay_aside(self, waiting: Path) -> None:
        """Keep what belongs to nobody, or to no lab."""
        folder = self.places.kept / UNRECOGNISED
        folder.mkdir(exist_ok=True)
        shutil.copyfile(waiting, folder / waiting.name)

    def _resolve(self, named: Named) -> str | None:
        """Return the student's id; None when there is a roster and it knows nobody like this."""
        if self.roster is None:
            return student_id(named.student)
        surname_first = " ".join(reversed(named.student.split(", ")))
        numbers = [named.number, f"Participant {named.number}"] if named.number else []
        return self.roster.find(*numbers, named.student, surname_first)

    def finish(self) -> Intake:
        """Tell namesakes apart, choose the newest of each, and lay it to be graded."""
        numbers: dict[tuple[str, str], set[str]] = defaultdict(set)
        for claim in self._claims:
            numbers[claim.named.student, claim.slug].add(claim.named.number)
        own: dict[tuple[str, str], list[_Claim]] = defaultdict(list)
        for claim in self._claims:
            named = claim.named
            student = self._resolve(named)
            if student is None:
                name = student_id(named.student)
                reason = "not in the roster, or not one person alone there"
                self._intake.refused.append(Refused(claim.origin, name, claim.slug, reason))
                self._lay_aside(claim.waiting)
                continue
            if self.roster is None and len(numbers[named.student, claim.slug]) > 1:
                student = student_id(f"{named.student} {named.number}")
                told = f"several people are called {printable(named.student)}: numbers added"
                if told not in self._intake.notes:
                    self._intake.notes.append(told)
            own[student, claim.slug].append(claim)
        for (student, slug), claims in sorted(own.items()):
            self._lay(student, slug, claims)
        self._name_the_missing({student for student, _ in own})
        return self._intake

    def _lay(self, student: str, slug: str, claims: list[_Claim]) -> None:
        """Keep all of a student's notebooks of a lab, and lay the newest to be graded."""
        shelf = self.places.kept / student / slug
        shelf.mkdir(parents=True, exist_ok=True)
        names = {}
        for claim in claims:
            names[self._shelf_name(claim)] = claim
        for name, claim in names.items():
            if not (shelf / name).exists():
                write_whole(shelf / name, claim.waiting.read_bytes())
        kept = sorted(path.name for path in shelf.glob("*.ipynb"))
        newest = kept[-1]
        self._intake.older += len(kept) - 1
        when = _time_of_name(newest)
        folder = self.places.submitted(student, slug)
        laid, mark = folder / f"{slug}.ipynb", shelf / "laid"
        # An instructor may have mended what was laid before: it stays until a newer one comes.
        if not laid.exists() or not mark.exists() or mark.read_text() != newest:
            folder.mkdir(parents=True, exist_ok=True)
            mark.unlink(missing_ok=True)
            write_whole(laid, (shelf / newest).read_bytes())
            stamp = folder / "timestamp.txt"
            if when is None:
                stamp.unlink(missing_ok=True)
            else:
                write_whole(stamp, f"{when:%Y-%m-%d %H:%M:%S.%f} UTC\n".encode())
            write_whole(mark, newest.encode())
        latest = names.get(newest, claims[-1])
        self._intake.counting.append(
            HandedIn(student, slug, laid, latest.origin, when, latest.named.late)
        )

    def _shelf_name(self, claim: _Claim) -> str:
        """Return a name whose order is: the platform's own count, then the time."""
        told = claim.named.when or self._times.get(claim.named.folder)
        moment, mark = (told, "told") if told else (claim.modified, "file")
        # The mark comes last but one: a time that was told and one of a file sort alike.
        stamp = f"{moment:%Y%m%dT%H%M%S%f}"
        return f"{claim.named.sequence:019}-{stamp}-{mark}-{claim.waiting.stem[:16]}.ipynb"

    def _name_the_missing(self, students: set[str]) -> None:
        """Name the people who handed in files, but no notebook."""
        refused = {refusal.student for refusal in self._intake.refused}
        for name, files in sorted(self._others.items()):
            student = (self._resolve(Named(name)) if name else None) or student_id(name)
            if student not in students | refused:
                listed = ", ".join(map(printable, files[:3])) + (" …" if len(files) > 3 else "")
                reason = f"handed in, but no notebook: {listed}; expected .ipynb"
                self._intake.refused.append(Refused(printable(name), student, "", reason))


def fault_of(error: NotebookError, path: Path) -> str:
    """Return what is wrong with a notebook, without its path and the advice to its learner."""
    return str(error).removeprefix(f"{path}: ").partition("; move this file away")[0]


def _time_of_name(name: str) -> datetime | None:
    _, moment, mark, _ = name.split("-")
    return datetime.strptime(moment, "%Y%m%dT%H%M%S%f") if mark == "told" else None
