"""Who is in the class: a CSV file of any platform's, and the names that each person goes by."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.errors import BadInput


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
            found = self._keys.get(folded(name), set())
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
            if folded(name):
                keys[folded(name)].add(person.student)
    return Roster(people, keys)


def folded(name: str) -> str:
    """Return a name without what platforms write in different ways: case, accents, marks."""
    letters = unicodedata.normalize("NFKD", name).casefold()
    return "".join(c for c in letters if c.isalnum())
