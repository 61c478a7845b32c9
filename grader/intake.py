"""Take in what a class handed in: whose notebook it is, which lab, which of several counts.

A folder or a zip archive, in nbgrader's own layout or as learning platforms pack it. Nothing is
executed or unpacked: only notebooks are read, each up to a limit, links are not followed, and
no name that stands in an archive becomes a path. Every notebook is kept; the newest counts.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import shutil
import stat
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath

from compaction.files import write_whole
from grader.exercises import SLUGS
from grader.feedback import BadInput, printable
from grader.notebooks.lab import MAX_BYTES, NotebookError, lab_of

MAX_TOTAL_BYTES = 4 * 2**30
"""All notebooks of one archive together."""
MAX_FILES = 100_000
MAX_BRACKETS = 1_000_000
"""A notebook with more brackets than this is made to fill the memory of whoever reads it."""
MAX_DEPTH = 8

UNRECOGNISED = "unrecognised"
"""The folder of what is no lab, among what is kept."""

_NOISE = {"__macosx", "__pycache__", "thumbs.db", "desktop.ini", "timestamp.txt", "index.html"}
_WRAPPERS = {"submissions", "submitted", "submission attachment(s)", "labs", "notebooks", "inbound"}


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


def student_id(name: str) -> str:
    """Return a name that can be a folder, a key of a gradebook and a word in a terminal.

    What had to be changed is told apart by a few letters at the end.

    >>> student_id("  José  Núñez ")
    'José Núñez'
    >>> student_id("../../etc/passwd")
    'etc_passwd-3754'
    """
    text = " ".join(unicodedata.normalize("NFC", name).split())
    clean = "".join("_" if c in '/\\:*?"<>|[]{}' or not c.isprintable() else c for c in text)
    clean = clean.strip("._ -~")
    if clean and clean == text and len(clean) <= 80 and len(clean.encode()) <= 160:
        return clean
    clean = clean[:75].encode(errors="replace")[:155].decode(errors="ignore").strip("._ -~")
    mark = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:4]
    return f"{clean or 'student'}-{mark}"


@dataclass(frozen=True)
class Person:
    """A line of the roster."""

    student: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""


class Roster:
    """Who is in the class, and by which names and numbers each is known."""

    def __init__(self, people: Iterable[Person], keys: dict[str, set[str]]) -> None:
        self.people = {person.student: person for person in people}
        self._keys = keys

    def find(self, *names: str) -> str | None:
        """Return the id of the one person who goes by one of these names, None otherwise."""
        for name in names:
            found = self._keys.get(_folded(name), set())
            if len(found) == 1:
                return next(iter(found))
        return None


_COLUMNS = {
    "student": ("studentid", "student", "username", "sisloginid", "loginid", "login", "userid"),
    "first_name": ("firstname", "givenname", "vorname", "prénom", "nombre"),
    "last_name": ("lastname", "surname", "familyname", "nachname", "apellidos"),
    "email": ("email", "emailaddress", "mail", "emailadresse"),
    "name": ("name", "fullname", "displayname"),
}


def read_roster(path: Path) -> Roster:
    """Read a CSV file with a line a learner.

    Columns are known by their titles: an id (``student_id``, ``username``, ``login``), names and
    ``email``; where there is no id, the beginning of the email or the name is one. Whatever else
    stands in a line (a number of the platform's) is a name that the learner goes by, too.

    Raises BadInput when it cannot be read, or two lines have the same id.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path}: expected a roster (CSV): {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: expected a roster in UTF-8; save it as CSV UTF-8") from None
    first_line = text.partition("\n")[0]
    separator = max(",;\t", key=first_line.count)
    try:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator) if any(row)]
    except csv.Error as error:
        raise BadInput(f"{path}: not CSV: {error}") from None
    titles = [re.sub(r"[^\w]|_", "", title.lower()) for title in rows[0]] if rows else []
    places = {
        field_name: titles.index(title)
        for field_name, known in _COLUMNS.items()
        for title in reversed(known)
        if title in titles
    }
    if not places or len(rows) < 2:
        raise BadInput(
            f"{path}: expected a line of titles (student_id, first_name, last_name, email) "
            "and a line a learner"
        )
    people: list[Person] = []
    keys: dict[str, set[str]] = defaultdict(set)
    for number, row in enumerate(rows[1:], 2):
        cells = {name: row[at].strip() if at < len(row) else "" for name, at in places.items()}
        first, last = cells.get("first_name", ""), cells.get("last_name", "")
        full = cells.get("name") or f"{first} {last}".strip()
        email = cells.get("email", "")
        own = cells.get("student") or email.partition("@")[0] or full
        if not own:
            raise BadInput(f"{path}, line {number}: no id, name or email")
        person = Person(student_id(own), first, last, email)
        if any(other.student == person.student for other in people):
            raise BadInput(f"{path}, line {number}: {own} stands in two lines")
        people.append(person)
        known = {*row, full, f"{first} {last}", f"{last} {first}", f"{last}{first}", own}
        for name in {*known, email.partition("@")[0], person.student}:
            if _folded(name):
                keys[_folded(name)].add(person.student)
    return Roster(people, keys)


def _folded(name: str) -> str:
    """Return a name without what platforms write in different ways: case, accents, marks."""
    letters = unicodedata.normalize("NFKD", name).casefold()
    return "".join(c for c in letters if c.isalnum())


# --- names of files and folders ----------------------------------------------------------


@dataclass(frozen=True)
class _Named:
    """What the name of a file or folder tells. ``sequence`` orders what one platform gave."""

    student: str
    number: str = ""
    rest: str = ""
    when: datetime | None = None
    sequence: int = 0
    late: bool = False
    folder: tuple[str, ...] = ()


_SCHEMES = (
    # nbgrader's inbound folder: ada+day1_estimate+2026-02-18 10:30:00.000000 UTC+random
    r"(?P<student>[^+]+)\+[^+]+\+(?P<when>\d{4}-\d\d-\d\d[ _T]\d\d[:_]\d\d[:_]\d\d[^+]*)(\+.*)?",
    # Moodle: Ada Lovelace_123_assignsubmission_file (a folder), or the same and _lab.ipynb
    r"(?P<student>.+?)_(?P<number>\d+)_assignsubmission_(file|onlinetext)_?(?P<rest>.*)",
    # Blackboard: Lab 1_alovelace_attempt_2026-02-18-10-30-00_lab.ipynb
    r".*?_(?P<student>[^_]+)_attempt_(?P<when>\d{4}(-\d\d){5})(_(?P<rest>.*))?",
    # Canvas: lovelaceada_LATE_12345_67890_lab-1.ipynb
    r"(?P<student>[^_]+)_(?P<late>LATE_)?(?P<number>\d+)_(?P<sequence>\d+)_(?P<rest>.+)",
    # Brightspace: 12345-67890 - Ada Lovelace - Feb 18, 2026 1030 AM - lab.ipynb
    r"\d+-\d+ - (?P<student>.+?) ?- (?P<when>\w{3} \d{1,2}, \d{4} \d{3,4} [AP]M)( - (?P<rest>.*))?",
    # Sakai: Lovelace, Ada(alovelace)
    r"[^,]+, [^(]+\((?P<student>[^()]+)\)",
)
_PATTERNS = tuple(re.compile(scheme, re.DOTALL) for scheme in _SCHEMES)
_TIMES = ("%Y-%m-%d-%H-%M-%S", "%b %d, %Y %I%M %p")
_COPY = re.compile(r"([ _-]*(\(\d+\)|copy ?\d*|kopie ?\d*|final|v\d+))+$", re.IGNORECASE)
_SLUG = re.compile(
    "|".join(slug.replace("_", "[ _-]") for slug in SLUGS.values()) + r"|\bday ?[1-8]\b", re.I
)


def _by_scheme(name: str) -> _Named | None:
    """Read a name that a platform made."""
    for pattern in _PATTERNS:
        match = pattern.fullmatch(name)
        if match:
            told = match.groupdict()
            sequence = int(told.get("sequence") or 0) if len(told.get("sequence") or "") < 19 else 0
            return _Named(
                told["student"].strip(),
                told.get("number") or "",
                told.get("rest") or "",
                _time(told.get("when") or ""),
                sequence,
                bool(told.get("late")),
            )
    return None


def _time(text: str) -> datetime | None:
    """Return a time that somebody wrote down, in UTC; None for what is no time."""
    for form in _TIMES:
        try:
            # Platforms write the time of the place, as far as one can know.
            return datetime.strptime(text, form).astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            continue
    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\d)[ _T](\d\d)[:_](\d\d)[:_](\d\d(?:\.\d{1,6})?) ?(UTC|Z|[+-]\d\d:?\d\d)?",
        text.strip(),
    )
    if not match:
        return None
    day, hour, minute, second, zone = match.groups()
    zone = "+00:00" if zone in (None, "UTC", "Z") else zone
    try:
        told = datetime.fromisoformat(f"{day} {hour}:{minute}:{second}{zone}")
        return told.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _without_slug(stem: str) -> str:
    """Return what a file's name says beside the lab: the student, or nothing."""
    rest = _COPY.sub("", _SLUG.sub(" ", _COPY.sub("", stem))).strip(" ._-+~()[],")
    return " ".join(re.sub(r"(?<=\s)[-_]+|[-_]+(?=\s)", " ", rest).split())


def _is_student_folder(name: str) -> bool:
    return name.lower() not in _WRAPPERS and not _SLUG.fullmatch(name)


# --- finding notebooks -------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A file somewhere in what was handed in; ``read`` gives its bytes, or raises a _Refusal."""

    parts: tuple[str, ...]
    read: Callable[[], bytes]
    modified: datetime
    fault: str = ""
    path: Path | None = None

    @property
    def origin(self) -> str:
        return printable("/".join(self.parts))


class _Refusal(Exception):
    """Why a file is not taken in."""


def _walk(folder: Path, parts: tuple[str, ...] = (), archives: bool = True) -> Iterator[_Found]:
    """Yield the files below a folder, links as faults, and with ``archives`` what is in those."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        nothing = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
        yield _Found((*parts, ""), bytes, nothing, f"cannot be looked into: {error.strerror}")
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in _NOISE - {"timestamp.txt"}:
            continue
        here = (*parts, entry.name)
        status = entry.stat(follow_symlinks=False)
        modified = datetime.fromtimestamp(status.st_mtime, UTC).replace(tzinfo=None)
        path = Path(entry.path)
        if entry.is_symlink():
            yield _Found(here, bytes, modified, "a link to somewhere else; it is not followed")
        elif entry.is_dir(follow_symlinks=False):
            if len(here) <= MAX_DEPTH:
                yield from _walk(path, here, archives)
        elif not stat.S_ISREG(status.st_mode):
            yield _Found(here, bytes, modified, "no file; expected a notebook (.ipynb)")
        elif archives and entry.name.lower().endswith(".zip"):
            yield from _unzip(path, here)
        else:
            yield _Found(here, partial(_read_file, path), modified, path=path)


def _read_file(path: Path) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            return _within(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise _Refusal(f"cannot be read: {error.strerror}") from None


def _within(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise _Refusal(f"larger than {MAX_BYTES // 1_000_000} MB; clear its outputs and save it")
    return data


def _unzip(source: Path | bytes, parts: tuple[str, ...] = (), depth: int = 0) -> Iterator[_Found]:
    """Yield the files in an archive, and in the archives in it; whatever its names say."""
    now = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
    try:
        archive = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        yield _Found(parts, bytes, now, f"no zip archive that can be read: {error}")
        return
    with archive:
        left = MAX_TOTAL_BYTES
        for count, member in enumerate(archive.infolist()):
            name = _member_name(member)
            pieces = [piece for piece in re.split(r"[/\\]", name) if piece not in ("", ".")]
            here = (*parts, *pieces)
            if member.is_dir() or not pieces or any(_is_hidden(piece) for piece in pieces):
                continue
            modified = _member_time(member)
            fault = _member_fault(member, name, pieces)
            if count >= MAX_FILES or left <= 0:
                yield _Found((*parts, "…"), bytes, now, "the archive holds more than a class does")
                return
            suffix = PurePosixPath(name).suffix.lower()
            if fault or suffix not in (".ipynb", ".zip", ".txt"):
                yield _Found(here, bytes, modified, fault)
                continue
            try:
                data = _read_member(archive, member)
            except _Refusal as refusal:
                left -= MAX_BYTES
                yield _Found(here, bytes, modified, str(refusal))
                continue
            left -= len(data)
            if suffix != ".zip":
                yield _Found(here, partial(bytes, data), modified)
            elif depth < 1:
                yield from _unzip(data, here, depth + 1)
            else:
                yield _Found(here, bytes, modified, "an archive in an archive in an archive")


def _is_hidden(piece: str) -> bool:
    return (piece.startswith(".") and piece != "..") or piece.lower() in _NOISE - {"timestamp.txt"}


def _member_name(member: zipfile.ZipInfo) -> str:
    """Return a member's name; older packers wrote UTF-8 and did not say so."""
    if not member.flag_bits & 0x800:
        try:
            return member.filename.encode("cp437").decode("utf-8")
        except UnicodeError:
            pass
    return member.filename


def _member_time(member: zipfile.ZipInfo) -> datetime:
    try:
        return datetime(*member.date_time).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return datetime(1980, 1, 1)


def _member_fault(member: zipfile.ZipInfo, name: str, pieces: list[str]) -> str:
    if ".." in pieces or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        return "its name in the archive leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "a link in the archive; it is not followed"
    if member.flag_bits & 0x1:
        return "encrypted; pack it without a password"
    return ""


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member up to the limit, whatever size the archive says it has."""
    try:
        with archive.open(member) as stream:
            data = stream.read(MAX_BYTES + 1)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
        raise _Refusal(f"damaged in the archive: {error}") from None
    except Exception as error:  # zlib's and lzma's own errors
        raise _Refusal(f"damaged in the archive: {type(error).__name__}") from None
    return _within(data)


# --- taking in ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Claim:
    """A notebook with the name of its student as found; ``data`` lies in a waiting file."""

    origin: str
    named: _Named
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
        names, files = [found.parts for found in _walk(source, archives=False)], _walk(source)
    elif source.is_file():
        names, files = _names_in(source), _unzip(source)
    else:
        raise BadInput(f"{source}: no such folder; expected a folder or a zip archive of notebooks")
    wrapped = _wrapper_depth(names)
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
    by_place: dict[tuple[str, str], list[_Found]] = defaultdict(list)
    times: dict[tuple[str, str], datetime | None] = {}
    intake = Intake()
    for found in _walk(folder, archives=False):
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


def _stamp(found: _Found) -> datetime | None:
    try:
        return _time(found.read()[:200].decode(errors="replace"))
    except _Refusal:
        return None


def _names_in(source: Path) -> list[tuple[str, ...]]:
    try:
        with zipfile.ZipFile(source) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()][:MAX_FILES]
            pieces = [re.split(r"[/\\]", _member_name(member)) for member in members]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise BadInput(f"{source}: no zip archive that can be read: {error}") from None
    return [tuple(p for p in piece if p not in ("", ".")) for piece in pieces]


def _wrapper_depth(names: Iterable[tuple[str, ...]]) -> int:
    """Return how many folders only wrap all others: they are nobody's name.

    >>> _wrapper_depth([("class", "ada", "day1.ipynb"), ("class", "ben", "day1.ipynb")])
    1
    >>> _wrapper_depth([("ada", "day1_estimate", "x.ipynb"), ("ada", "day3_trigger", "x.ipynb")])
    0
    """
    names = [parts for parts in names if parts and not any(map(_is_hidden, parts))]
    depth = 0
    while names:
        loose = any(len(parts) < depth + 3 for parts in names)
        tops = {parts[depth] for parts in names if len(parts) > depth}
        below = {parts[depth + 1] for parts in names if len(parts) > depth + 2}
        if len(tops) != 1 or loose or len(below) < 2 or any(map(_SLUG.fullmatch, below)):
            break
        depth += 1
    return depth


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

    def add(self, found: _Found) -> None:
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
            self._refuse(found, named, _slug_in(found.parts), found.fault)
            return
        try:
            slug, waiting = self._keep(found.read(), named)
        except _Refusal as refusal:
            self._refuse(found, named, _slug_in(found.parts), str(refusal))
            return
        named = replace(named, folder=found.parts[:-1])
        self._claims.append(_Claim(found.origin, named, slug, waiting, found.modified))

    def _refuse(self, found: _Found, named: _Named, slug: str, reason: str) -> None:
        student = (self._resolve(named) or student_id(named.student)) if named.student else ""
        self._intake.refused.append(Refused(found.origin, student, slug, reason))

    def _name(self, found: _Found) -> _Named:
        """Say whose file it is, by the names on the way to it."""
        stem, *folders = [_without_suffix(part) for part in reversed(found.parts)]
        for part in [*folders, stem]:
            named = _by_scheme(part)
            if named:
                return named
        candidates = [folder for folder in reversed(folders) if _is_student_folder(folder)]
        alone = _without_slug(stem)
        if self.roster is not None:
            for candidate in [*candidates, alone, *map(_without_slug, candidates)]:
                if self.roster.find(candidate):
                    return _Named(candidate)
        for candidate in candidates:
            return _Named(_without_slug(candidate) or candidate)
        return _Named(alone)

    def _keep(self, data: bytes, named: _Named) -> tuple[str, Path]:
        """Lay a notebook in the waiting folder; return its lab, and where it lies."""
        if not named.student:
            raise _Refusal("whose it is stands neither in its name nor in a folder's")
        fault = filling_fault(data)
        if fault:
            raise _Refusal(fault)
        self.waiting.mkdir(parents=True, exist_ok=True)
        waiting = self.waiting / f"{hashlib.sha256(data).hexdigest()}.ipynb"
        waiting.write_bytes(data)
        try:
            return lab_of(waiting), waiting
        except NotebookError as error:
            self._lay_aside(waiting)
            raise _Refusal(fault_of(error, waiting)) from None

    def _lay_aside(self, waiting: Path) -> None:
        """Keep what belongs to nobody, or to no lab."""
        folder = self.places.kept / UNRECOGNISED
        folder.mkdir(exist_ok=True)
        shutil.copyfile(waiting, folder / waiting.name)

    def _resolve(self, named: _Named) -> str | None:
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
            student = (self._resolve(_Named(name)) if name else None) or student_id(name)
            if student not in students | refused:
                listed = ", ".join(map(printable, files[:3])) + (" …" if len(files) > 3 else "")
                reason = f"handed in, but no notebook: {listed}; expected .ipynb"
                self._intake.refused.append(Refused(printable(name), student, "", reason))


def read_file(path: Path) -> bytes:
    """Return a notebook's bytes. Raises ValueError, in one line, for what is not taken in."""
    try:
        return _read_file(path)
    except _Refusal as refusal:
        raise ValueError(str(refusal)) from None


def fault_of(error: NotebookError, path: Path) -> str:
    """Return what is wrong with a notebook, without its path and the advice to its learner."""
    return str(error).removeprefix(f"{path}: ").partition("; move this file away")[0]


def filling_fault(data: bytes) -> str:
    """Say what is wrong with bytes that are made to fill the memory of whoever reads them."""
    if data.count(b"[") + data.count(b"{") > MAX_BRACKETS:
        return "made of brackets, not of text: no notebook of a lab"
    return ""


def _time_of_name(name: str) -> datetime | None:
    _, moment, mark, _ = name.split("-")
    return datetime.strptime(moment, "%Y%m%dT%H%M%S%f") if mark == "told" else None


def _without_suffix(part: str) -> str:
    return re.sub(r"\.(ipynb|zip)$", "", part, flags=re.IGNORECASE)


def _slug_in(parts: Iterable[str]) -> str:
    found = [slug for part in parts for slug in SLUGS.values() if slug in part]
    return found[-1] if found else ""
