"""Whose a file is, by the names that platforms make: a table of shapes, and one walk down a tree.

The outermost name that the platform made decides. What lies below it is the learner's own
(archives, folders, times) and says nothing about whose it is. Where no platform made a name, the
plain folder or file does; what names nobody, or perhaps two people, is held for a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from grader.exercises import SLUGS

MAX_NAME = 300
"""A longer name of a file or folder is no platform's, and no file system's."""

Parts = tuple[str, ...]


@dataclass(frozen=True)
class Named:
    """What a platform's name tells. ``given`` is that name: without it nothing can go back.

    ``sequence`` orders what one platform gave, ``doubt`` says why a person has to look.
    """

    platform: str
    student: str
    number: str = ""
    given: str = ""
    when: datetime | None = None
    sequence: int = 0
    late: bool = False
    doubt: str = ""


@dataclass(frozen=True)
class Shape:
    """A form of names that a platform makes, with an example, and where it is described."""

    platform: str
    pattern: re.Pattern[str]
    example: str
    source: str
    folders_only: bool = False


_MONTH = r"[^\W\d_]{3,12}\.?"
_CLOCK = r"\d{3,4}(?: [AaPp]\.?[Mm]\.?)?"


def _shape(
    platform: str, pattern: str, example: str, source: str, folders_only: bool = False
) -> Shape:
    return Shape(platform, re.compile(pattern, re.DOTALL), example, source, folders_only)


SHAPES = (
    _shape(
        "nbgrader",
        r"(?P<student>.+)\+(?P<lab>[^+]+)\+"
        r"(?P<when>\d{4}-\d\d-\d\d[ _T]\d\d[:_]\d\d[:_]\d\d[^+]*)(?:\+[^+]*)?",
        "ada+day1_estimate+2026-02-18 10:30:00.000000 UTC+random",
        "nbgrader 0.9.6, exchange/default/collect.py: split from the right, ids may hold a plus",
        folders_only=True,
    ),
    _shape(
        "moodle",
        r"(?P<student>.+?)_(?P<number>\d+)_assignsubmission_(?:file|onlinetext)(?:_.*)?",
        "Ada Lovelace_1001_assignsubmission_file/day5.ipynb",
        "moodle/moodle, mod/assign/feedback/file/importziplib.php; no underscore at the end "
        "since 4.1",
    ),
    _shape(
        "blackboard",
        r"(?P<student>.+?)_attempt_(?P<when>\d{4}(?:-\d\d){5})(?:_.+|\.txt|)",
        "Lab 5_a_lovelace_attempt_2026-01-02-10-11-12_day5.ipynb",
        "timdrysdale/gradexpath (tests); nbgrader, plugins/zipcollect.py",
    ),
    _shape(
        "canvas",
        r"(?P<anonymous>anon)_(?P<late>LATE_)?(?P<number>[0-9A-Za-z]+)_(?P<sequence>\d{1,18})_.+",
        "anon_Q7x2k_70001_day5.ipynb",
        "instructure/canvas-lms, lib/content_zipper.rb (get_filename)",
    ),
    _shape(
        "canvas",
        r"(?P<student>[^\W_A-Z][^\WA-Z]*?)_(?P<late>LATE_)?(?P<number>\d+)_(?P<sequence>\d{1,18})_.+",
        "lovelaceada_LATE_1001_70002_day5-1.ipynb",
        "instructure/canvas-lms, lib/content_zipper.rb (get_filename, sanitize_user_name)",
    ),
    _shape(
        "brightspace",
        r"(?P<number>\d+)-(?P<sequence>\d{1,18}) - (?P<student>.+?) ?- "
        rf"(?P<when>(?:{_MONTH} \d{{1,2}}|\d{{1,2}}\.? {_MONTH}),? \d{{4}},? {_CLOCK})(?: - .*)?",
        "100-200 - Ada Lovelace - Jan 2, 2026 304 PM/day5.ipynb, also 2 January, 2026 1504",
        "public graders that read <student>-<submission> - <name> - <time>; the organisation's "
        "locale decides the order of day and month",
    ),
    _shape(
        "sakai",
        r"[^,()]+, ?[^()]*\((?P<student>[^()]+)\)",
        "Lab 5/Lovelace, Ada(ada)/Submission attachment(s)/day5.ipynb",
        "archives in public repositories, as in Wilson, Jaedon(jawilson)",
        folders_only=True,
    ),
)
"""Names that decide by themselves. Of folders that make their content somebody's, see below:
Teams (learn.microsoft.com, Assignments admin documentation), Google Forms ("File responses"),
GitHub Classroom (docs.github.com, gh classroom clone student-repos)."""

_LABS = "|".join(slug.replace("_", "[ _-]") for slug in SLUGS.values())
_LAB = re.compile(rf"(?:{_LABS}|(?<![^\W_])(?:day|lab)[ _-]?\d{{1,2}}(?!\d))", re.IGNORECASE)
_WRAPPER = re.compile(
    rf"(?:{_LABS}|submissions?|submitted|inbound|notebooks|labs?|class|course|.* - student work"
    r"|submission attachment\(s\)|submitted files|.*-submissions|.*\(file responses\)"
    r"|(?:day|lab|assignment|homework|hw|exercises?|task|unit|week|section|group|class|course)"
    r"[ _-]?\w{0,2})",
    re.IGNORECASE,
)
_COPY = r"(?:[ _-]*\(\d{1,3}\)|[ _-]+(?:copy|kopie|final|neu|new|v)(?:[ _-]?\d{1,3})?|-\d{1,3})"
_MARKED_AS_COPY = re.compile(
    r"(?:[ _-]*\(\d{1,3}\)|[ _-]+(?:copy|kopie|final|v\d{1,3})[ _-]?\d{0,3})$", re.IGNORECASE
)
_COPY_OF = re.compile(r"(?:copy of|kopie von|copia de|copie de|kopia|cópia de)\s+", re.IGNORECASE)
_NOBODY = {
    "", "notebook", "lab", "day", "solution", "solved", "submission", "untitled", "final", "copy",
    "new", "my", "homework", "assignment",
}  # fmt: skip
_WORDS = re.compile(r"[^\W\d_]+")

GENERIC = "its name says nothing about whose it is"


def by_shape(name: str, is_folder: bool, zone: tzinfo | None = None) -> Named | None:
    """Read a name that a platform made; None for any other.

    >>> by_shape("Ada Lovelace_1001_assignsubmission_file", True).student
    'Ada Lovelace'
    >>> by_shape("lovelaceada_LATE_1001_70002_day5-1.ipynb", False).number
    '1001'
    """
    for shape in SHAPES:
        match = shape.pattern.fullmatch(name) if len(name) <= MAX_NAME else None
        if match is None or (shape.folders_only and not is_folder):
            continue
        told = match.groupdict()
        number = told.get("number") or ""
        student = (told.get("student") or "").strip()
        if told.get("anonymous") or (shape.platform == "moodle" and student == "Participant"):
            student = f"{told.get('anonymous') or 'Participant'} {number}"
        return Named(
            shape.platform,
            student,
            number,
            name,
            time_of(told.get("when") or "", zone),
            int(told.get("sequence") or 0),
            bool(told.get("late")),
        )
    return None


_TIMES = ("%Y-%m-%d-%H-%M-%S", "%b %d %Y %I%M %p", "%b %d %Y %H%M", "%d %b %Y %H%M",
          "%d %b %Y %I%M %p")  # fmt: skip


def time_of(text: str, zone: tzinfo | None = None) -> datetime | None:
    """Return a time that a platform wrote, in UTC without a zone; None for what is no time.

    Platforms write the time of the place: ``zone``, by default this machine's.

    >>> time_of("2 January, 2026 1504", UTC), time_of("Jan 2, 2026 304 PM", UTC)
    (datetime.datetime(2026, 1, 2, 15, 4), datetime.datetime(2026, 1, 2, 15, 4))
    """
    if len(text) > MAX_NAME:
        return None
    plain = re.sub(r"[,.]", "", text) if re.search(r"[^\W\d]{3}", text) else text
    words = [w[:3] if w.isalpha() and len(w) > 2 else w for w in plain.split()]
    words = [w.zfill(4) if w.isdigit() and len(w) == 3 else w for w in words]
    for form in _TIMES:
        try:
            told = datetime.strptime(" ".join(words), form)
            return told.replace(tzinfo=zone).astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            continue
    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\d)[ _T](\d\d)[:_](\d\d)[:_](\d\d(?:\.\d{1,6})?) ?(UTC|Z|[+-]\d\d:?\d\d)?",
        text.strip(),
    )
    if not match:
        return None
    day, hour, minute, second, offset = match.groups()
    offset = "+00:00" if offset in (None, "UTC", "Z") else offset
    try:
        told = datetime.fromisoformat(f"{day} {hour}:{minute}:{second}{offset}")
        return told.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def lab_named(parts: Iterable[str]) -> str:
    """Return the lab that names on the way to a file mention; "" when none does."""
    found = [slug for part in parts for slug in SLUGS.values() if slug in part]
    return found[-1] if found else ""


# --- plain names -------------------------------------------------------------------------


def plain_name(name: str) -> Named:
    """Read the name of a file that only a person has named.

    >>> plain_name("ada_day1_estimate (2).ipynb").student, plain_name("Ada Li - Day 1").student
    ('ada', 'Ada Li')
    >>> plain_name("Copy of day5.ipynb").doubt
    'its name says nothing about whose it is'
    """
    stem = re.sub(r"\.(ipynb|zip)$", "", name[:MAX_NAME], flags=re.IGNORECASE)
    rest, found = stem, _COPY_OF.match(stem)
    rest = rest[found.end() :] if found else rest
    # The lab's name goes with one separator on each side and the marks of copies behind it.
    lab = _LAB.search(rest)
    if lab:
        marks = re.compile(rf"(?:{_COPY})*", re.IGNORECASE).match(rest, lab.end())
        after = rest[marks.end() if marks else lab.end() :]
        before = rest[: lab.start()]
        before, after = _without_one(before[::-1])[::-1], _without_one(after)
        rest = f"{before} {after}" if before and after else before or after
    words = {word.casefold() for word in _WORDS.findall(rest)}
    if words <= _NOBODY and not re.search(r"[^\W_]{3}", _MARKED_AS_COPY.sub("", rest)):
        return Named("plain", "", given=name, doubt=GENERIC)
    if words and words <= _NOBODY:
        return Named("plain", "", given=name, doubt=GENERIC)
    doubt = ""
    if found or _MARKED_AS_COPY.search(rest):
        doubt = "a copy of a file, or somebody of this very name: its name does not say which"
    return Named("plain", rest, given=name, doubt=doubt)


def _without_one(text: str) -> str:
    """Return a text without the one separator at its beginning, and the blanks around it."""
    return re.sub(r"^\s*[-_+~,]?\s*", "", text)


def _plain_folder(name: str) -> Named:
    if _MARKED_AS_COPY.search(name):
        doubt = "a copy of a folder, or somebody of this very name: its name does not say which"
        return Named("plain", name, given=name, doubt=doubt)
    return Named("plain", name, given=name)


# --- the tree ----------------------------------------------------------------------------

Tree = dict[str, Any]
"""Folders by name; a file is None. An archive in a folder is a file: it is its owner's."""


def tree_of(paths: Iterable[Parts]) -> Tree:
    """Return the tree that files' paths span."""
    tree: Tree = {}
    for parts in paths:
        level = tree
        for part in parts[:-1]:
            below = level.get(part)
            if below is None:
                below = level[part] = {}
            level = below
        level.setdefault(parts[-1], None)
    return tree


def owners(
    tree: Tree,
    name: str = "",
    knows: Callable[[str], bool] = lambda name: False,
    zone: tzinfo | None = None,
) -> dict[Parts, Named]:
    """Return whose each part of a tree is, by its path.

    ``name`` is the tree's own name, ``knows`` says whether the roster has somebody of a name.
    """
    found = dict(_level(tree, (), name, knows, zone))
    return _with_logins(found)


def _level(
    tree: Tree, at: Parts, parent: str, knows: Callable[[str], bool], zone: tzinfo | None
) -> Iterator[tuple[Parts, Named]]:
    """Yield the owners of one level: of a platform's folders, or of plain names."""
    special = _below_special(tree, at, parent)
    if special is not None:
        yield from special
        return
    told = {name: by_shape(name, tree[name] is not None, zone) for name in tree}
    counted = [n for n in tree if told[n] or tree[n] is not None or _is_work(n)]
    made = [n for n in counted if told[n]]
    # A platform packs a level whole: one such name among many others is a learner's joke.
    if made and 2 * len(made) > len(counted):
        platforms = sorted({one.platform for one in told.values() if one})
        for name in counted:
            doubt = f"not a name that {' or '.join(platforms)} makes, as those beside it are"
            yield (*at, name), told[name] or Named("plain", "", given=name, doubt=doubt)
        return
    folders = [n for n in counted if tree[n] is not None]
    files = [n for n in counted if tree[n] is None]
    if len(folders) == 1 and not files:
        only = folders[0]
        if _wraps(only, tree[only]) and not knows(only):
            yield from _level(tree[only], (*at, only), only, knows, zone)
            return
    for name in folders:
        if _WRAPPER.fullmatch(name) and not knows(name):
            yield from _level(tree[name], (*at, name), name, knows, zone)
        else:
            yield (*at, name), _doubted(told[name]) or _plain_folder(name)
    for name in files:
        yield (*at, name), _doubted(told[name]) or plain_name(name)


def _is_work(name: str) -> bool:
    return not name.lower().endswith((".csv", ".txt", ".md", ".html", ".xls", ".json"))


def _doubted(named: Named | None) -> Named | None:
    if named is None:
        return None
    doubt = f"a name as {named.platform} makes it, among names that are not: who made it?"
    return replace(named, platform="plain", student="", doubt=doubt)


def _wraps(name: str, below: Tree) -> bool:
    """Say whether the only folder of a level is nobody's name, but holds a class."""
    if _WRAPPER.fullmatch(name):
        return True
    made = [n for n in below if by_shape(n, below[n] is not None)]
    if made and 2 * len(made) > len([n for n in below if below[n] is not None or _is_work(n)]):
        return True
    folders = [n for n in below if below[n] is not None]
    loose = [n for n in below if below[n] is None and _is_work(n)]
    return len(folders) > 1 and not loose and not any(map(_WRAPPER.fullmatch, folders))


def _below_special(tree: Tree, at: Parts, parent: str) -> Iterator[tuple[Parts, Named]] | None:
    """Return the owners below a folder whose own name says what its content is, if it does."""
    folded = parent.casefold()
    if folded.endswith("(file responses)"):
        return _form_uploads(tree, at)
    if folded == "submitted files":
        return (((*at, n), Named("teams", n, given=n)) for n in tree if tree[n] is not None)
    if folded == "working files":
        return iter(())
    # Teams packs both folders beside each other: drafts are not handed in.
    if {name.casefold() for name in tree} & {"submitted files"}:
        below = [n for n in tree if n.casefold() == "submitted files"]
        return (one for n in below for one in _below_special(tree[n], (*at, n), n) or ())
    if folded.endswith("-submissions") and any(below is not None for below in tree.values()):
        return _clones(tree, at, parent[: -len("submissions")])
    return None


def _form_uploads(tree: Tree, at: Parts) -> Iterator[tuple[Parts, Named]]:
    """Yield the owners of a Google Form's uploads: the form adds the name behind " - "."""
    for name in tree:
        stem, dot, _ = name.rpartition(".")
        title, dash, student = (stem if dot else name).rpartition(" - ")
        doubt = "" if dash and title else "a form adds ' - ' and a name, and this has none"
        student = re.sub(r" ?\(\d{1,3}\)$", "", student)
        yield (*at, name), Named("forms", "" if doubt else student, given=name, doubt=doubt)


def _clones(tree: Tree, at: Parts, prefix: str) -> Iterator[tuple[Parts, Named]]:
    """Yield the owners of clones of a classroom: the assignment's name, then the account."""
    for name in tree:
        account = name[len(prefix) :] if name.startswith(prefix) else ""
        doubt = "" if account else f"expected a folder {prefix}ACCOUNT, as a classroom clones it"
        yield (*at, name), Named("github", account, given=name, doubt=doubt)


def _with_logins(found: dict[Parts, Named]) -> dict[Parts, Named]:
    """Tell Blackboard's title from the login behind it: both may hold underscores.

    All names of a download begin with the same title, so it is a common beginning that ends in
    an underscore and leaves everybody a login; the longest is taken. A file that the platform
    adds ends behind the time, and stands for the same login.
    """
    mine = {path: one for path, one in found.items() if one.platform == "blackboard"}
    titles: dict[Parts, list[str]] = {}
    for path, one in mine.items():
        titles.setdefault(path[:-1], []).append(one.student)
    for path, one in mine.items():
        heads = sorted(set(titles[path[:-1]]))
        cut = [i + 1 for i, c in enumerate(one.student) if c == "_"]
        fits = [c for c in cut if all(h.startswith(one.student[:c]) and h[c:] for h in heads)]
        doubt = ""
        if len(heads) == 1 and len(cut) > 1:
            doubt = "where the title ends and the login begins cannot be seen in one name alone"
        login = one.student[fits[-1] :] if fits else one.student
        # The whole head goes on as the number: with a roster it decides.
        found[path] = replace(one, student=login, number=one.student, doubt=doubt)
    return found


def version_of(named: Named, inner: Parts) -> Named:
    """Return an owner with the version that Teams writes: NAME/ASSIGNMENT/Version N/file."""
    if named.platform != "teams" or len(inner) < 3:
        return named
    match = re.fullmatch(r"Version (\d{1,9})", inner[1])
    return replace(named, sequence=int(match.group(1))) if match else named
