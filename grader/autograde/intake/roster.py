"""Who is in the class: a CSV file of any platform's, and the names that each person goes by."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.autograde.intake.names import Named
from grader.errors import BadInput, printable


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

    @property
    def name(self) -> str:
        """The full name; "" where the roster has none."""
        return f"{self.first_name} {self.last_name}".strip()


@dataclass
class Roster:
    """Who is in the class, and by which ids and names each is known."""

    people: dict[str, Person] = field(default_factory=dict)
    _ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _sortable: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    has_canvas_ids: bool = False

    def add(self, person: Person, ids: Iterable[str], full: str = "") -> None:
        """Add a person with everything that a platform may call them."""
        self.people[person.student] = person
        for text in {person.student, person.email, *ids}:
            if text.strip():
                self._ids[text.strip().casefold()].add(person.student)
        for name in {person.name, full}:
            if name.strip():
                self._names[_folded(_surname_last(name))].add(person.student)
        if person.last_name:
            self._sortable[_run_together(f"{person.last_name} {person.first_name}")].add(
                person.student
            )

    def knows(self, name: str) -> bool:
        """Return True if somebody goes by this id or name."""
        return bool(self.by_id(name) or self.by_name(name))

    def by_id(self, text: str) -> set[str]:
        """Return who has this id, login, number or address."""
        return self._ids.get(text.strip().casefold(), set())

    def by_name(self, name: str) -> set[str]:
        """Return who has this name, given name first or "Last, First"."""
        return self._names.get(_folded(_surname_last(name)), set())

    def find(self, named: Named) -> set[str]:
        """Return who may be meant: one person, none, or several."""
        number, name = named.number, named.student
        if named.platform == "canvas":
            if self.has_canvas_ids or self.by_id(number):
                return self.by_id(number)
            return self._sortable.get(_run_together(name), set()) or self.by_id(name)
        if named.platform == "moodle":
            people = self.by_name(name) or self.by_id(name)
            return self._agreeing(people, self.by_id(f"Participant {number}")) or self.by_id(number)
        if named.platform == "brightspace":
            people, numbered = self.by_name(name), self.by_id(number)
            return people & numbered or people or numbered
        if named.platform == "blackboard":
            heads = [number[at:] for at, c in enumerate(f"_{number}") if c == "_"]
            found = [self.by_id(login) for login in heads]
            # Several ends of the name may be logins: then only the title can tell.
            told = {one for people in found for one in people}
            return told if len(told) < 2 or named.doubt else self.by_id(name) or told
        if named.platform in ("nbgrader", "sakai", "github"):
            return self.by_id(name)
        return self.by_id(name) or self.by_name(name)

    @staticmethod
    def _agreeing(by_name: set[str], by_number: set[str]) -> set[str]:
        """Return who name and number mean together; both when they mean different people."""
        if by_name and by_number:
            return by_name & by_number or by_name | by_number
        return by_name or by_number


def _surname_last(name: str) -> str:
    last, comma, first = name.partition(",")
    return f"{first.strip()} {last.strip()}" if comma else name


def _folded(name: str) -> str:
    """Return a name without what platforms write in different ways: case, accents, marks."""
    letters = unicodedata.normalize("NFKD", name).casefold()
    kept = "".join(c for c in letters if not unicodedata.combining(c) and c not in "'’`.")
    return " ".join(re.sub(r"[\W_]+", " ", kept).split())


def _run_together(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


# --- the file ----------------------------------------------------------------------------

_IDS = (
    "studentid", "username", "sisloginid", "loginid", "login", "userid", "sisuserid",
    "orgdefinedid",
)  # fmt: skip
_COLUMNS = {
    "first_name": ("firstname", "givenname", "vorname", "prénom", "nombre"),
    "last_name": ("lastname", "surname", "familyname", "nachname", "apellidos", "apellido"),
    "email": ("email", "emailaddress", "mail", "emailadresse", "correo"),
    "name": ("name", "fullname", "displayname", "studentname"),
}
_IDENTIFYING = re.compile(r"id$|^id|identifier|number|nummer|login|user|account|handle|github|^sis")
_NOBODY = re.compile(r"\s*(points possible|student, test|test student|manual posting|muted)", re.I)


def read_roster(path: Path) -> Roster:
    """Read a CSV file with a line a learner, as any of the platforms exports it.

    Columns are known by their titles: an id (``student_id``, ``username``, ``login``), names and
    ``email``; where there is no id, the beginning of the email or the name is one. Numbers and
    ids of a platform are names that the learner goes by, too.

    Raises BadInput when it cannot be read, or two lines have the same id.
    """
    rows = _rows_of(path)
    titles = [re.sub(r"[^\w]|_", "", title.lower()) for title in rows[0][1]] if rows else []
    is_canvas = "student" in titles and bool({"sisloginid", "sisuserid", "id"} & set(titles))
    places = {
        name: titles.index(title)
        for name, known in _COLUMNS.items()
        for title in reversed(known)
        if title in titles
    }
    if is_canvas:
        places["name"] = titles.index("student")
    known_ids = [t for t in (*_IDS, *(("id",) if is_canvas else ("student",))) if t in titles]
    if not (places or known_ids) or len(rows) < 2:
        raise BadInput(
            f"{path}: expected a line of titles (student_id, first_name, last_name, email) "
            "and a line a learner"
        )
    roster = Roster(has_canvas_ids=is_canvas and "id" in titles)
    taken: dict[str, int] = {}
    for number, row in rows[1:]:
        cell = dict(zip(titles, (text.strip().removeprefix("#") for text in row), strict=False))
        told = {name: cell.get(titles[at], "") for name, at in places.items()}
        if _NOBODY.match(row[0]) or (is_canvas and not told["name"]):
            continue
        person, full = _person(path, number, cell, told, known_ids, taken)
        ids = [text for title, text in cell.items() if _IDENTIFYING.search(title)]
        roster.add(person, [*ids, person.email.partition("@")[0]], full)
    return roster


def _person(
    path: Path,
    number: int,
    cell: dict[str, str],
    told: dict[str, str],
    known_ids: Sequence[str],
    taken: dict[str, int],
) -> tuple[Person, str]:
    """Return the person of a line, and the full name as the line has it."""
    first, last = told.get("first_name", ""), told.get("last_name", "")
    full, email = told.get("name", ""), told.get("email", "")
    if not (first or last) and full:
        if "," in full:
            last, _, first = (part.strip() for part in full.partition(","))
        else:
            first, _, last = (part.strip() for part in full.rpartition(" "))
    local = email.partition("@")[0]
    own = next((cell[title] for title in known_ids if cell.get(title)), "")
    if not own:
        own = (email if student_id(local) in taken else local) or full or f"{first} {last}".strip()
    if not own:
        raise BadInput(f"{path}, line {number}: no id, name or email")
    student = student_id(own)
    if student in taken:
        raise BadInput(
            f"{path}, line {number}: {printable(own)} is in two lines, as in {taken[student]}"
        )
    taken[student] = number
    return Person(student, first, last, email), full


def _rows_of(path: Path) -> list[tuple[int, list[str]]]:
    """Return the lines of a table that are not empty, with their numbers."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: expected a roster (CSV): {error.strerror}") from None
    # Blackboard's .xls is a table in UTF-16; Excel writes UTF-8 with a mark.
    is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data[:200]
    try:
        text = data.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path}: expected a roster in UTF-8; save it as CSV UTF-8") from None
    first_line, rest = text.partition("\n")[::2]
    told = re.fullmatch(r"\ufeff?\"?sep=(.)\"?\s*", first_line)
    if told:
        text, first_line = rest, rest.partition("\n")[0]
    separator = told.group(1) if told else max(",;\t", key=first_line.count)
    try:
        reader = csv.reader(io.StringIO(text), delimiter=separator)
        return [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise BadInput(f"{path}: not CSV: {error}") from None
