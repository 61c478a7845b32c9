"""A course's folders, seed and lock, as nbgrader's own settings describe them."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from compaction.files import write_whole
from grader.autograde.intake.journal import Places
from grader.autograde.results import ROOT
from grader.errors import BadInput


class Course:
    """A course as nbgrader's own settings describe it.

    ``folder`` holds nbgrader_config.py, and is this repository by default.
    """

    def __init__(self, folder: Path = ROOT) -> None:
        folder = folder.resolve()
        if not (folder / "nbgrader_config.py").is_file():
            raise BadInput(f"{folder}: no nbgrader_config.py in it; expected a course's folder")
        with _without_iri_grammar():
            from nbgrader.apps.baseapp import NbGrader
        with contextlib.chdir(folder):
            NbGrader.clear_instance()
            app = NbGrader()
            app.log_level = logging.ERROR
            app.initialize([])
        self.config = app.config
        self._directory = app.coursedir
        self.root = Path(self._directory.root)
        self.course_id = str(self._directory.course_id)
        self.db_url = str(self._directory.db_url)

    def submitted(self, student: str, slug: str) -> Path:
        """Return where nbgrader expects what was handed in."""
        return self._path(self._directory.submitted_directory, student, slug)

    def autograded(self, student: str, slug: str) -> Path:
        """Return where nbgrader expects what has been graded."""
        return self._path(self._directory.autograded_directory, student, slug)

    def feedback(self, student: str, slug: str) -> Path:
        """Return the page that nbgrader's generate_feedback writes for a learner."""
        folder = self._path(self._directory.feedback_directory, student, slug)
        return folder / f"{slug}.html"

    def release(self, slug: str) -> Path:
        """Return a lab's notebook as learners get it."""
        folder = self._path(self._directory.release_directory, ".", slug)
        return folder / f"{slug}.ipynb"

    def _path(self, step: str, student: str, slug: str) -> Path:
        return Path(os.path.normpath(self._directory.format_path(step, student, slug)))

    @property
    def submitted_folder(self) -> Path:
        """The folder of all that was handed in."""
        return self.root / str(self._directory.submitted_directory)

    @property
    def classroom(self) -> Path:
        """The folder of everything about this class; git does not see it."""
        return self.submitted_folder.parent

    @property
    def records(self) -> Path:
        """The folder of our own records: which bytes were graded, and the result."""
        return self.classroom / "records"

    @property
    def places(self) -> Places:
        """Where notebooks are laid that come from elsewhere."""
        return Places(self.submitted, self.classroom / "handed_in")

    @property
    def has_hand_ins(self) -> bool:
        """True once a download was taken in."""
        return (self.places.kept / "journal.json").is_file()

    @property
    def roster_file(self) -> Path:
        """The roster that was given last; it is used until another one is given."""
        return self.classroom / "roster.csv"

    def seed(self) -> int:
        """Return this class's seed."""
        return seed_of(self.classroom)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who writes; raise BadInput when somebody else is at it."""
        from filelock import FileLock, Timeout

        self.classroom.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.classroom / ".writer.lock", blocking=False):
                yield
        except Timeout:
            told = "another autograde is running in it; wait for it"
            raise BadInput(f"{self.classroom}: {told}") from None


def seed_of(classroom: Path) -> int:
    """Return a class's seed: ``GRADER_SEED``, else one drawn once and kept in its folder.

    A run that goes on, and a learner who hands in later, meet the same drawn cases.
    """
    from grader.checks import SEED_VARIABLE, seed_in_force

    if os.environ.get(SEED_VARIABLE, "").strip():
        return seed_in_force()
    path = classroom / "seed"
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        classroom.mkdir(parents=True, exist_ok=True)
        seed = secrets.randbits(48)
        write_whole(path, f"{seed}\n", mode=0o600)
        return seed


@contextlib.contextmanager
def _without_iri_grammar() -> Iterator[None]:
    """Let nbgrader load without a grammar of web addresses that nothing here asks for.

    Building it takes as long as loading all of nbgrader. jsonschema does without where it is
    not installed, and knows the same of everything that a notebook has.
    """
    name = "rfc3987_syntax"
    is_first = name not in sys.modules
    if is_first:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if is_first:
            del sys.modules[name]


def course_folder() -> Path:
    """Return the course that commands mean: this folder's, else the repository's own."""
    here = Path.cwd()
    return here if (here / "nbgrader_config.py").is_file() else ROOT
