"""nbgrader's own autograde made safe: the step that runs a learner's code, in our sandbox.

``nbgrader autograde`` and formgrader's button execute notebooks with the rights of whoever grades.
In this course's settings this preprocessor takes the place of that step (``Execute``): the same
checks run in the same sandbox as with ``python -m grader autograde``, and where no sandbox works
nothing is run at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Unicode

from grader.errors import BadInput


class GradeInSandbox(NbGraderPreprocessor):
    """Fill a submission's check cells with the results of the checks; execute nothing here."""

    isolation = Unicode("auto", help="The level of isolation: auto, bwrap or limits.").tag(
        config=True
    )

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Return the notebook with results as outputs; raise BadInput where it has none."""
        from nbgrader.api import Gradebook

        from grader.autograde.course import seed_of
        from grader.autograde.grade_one import grade_one
        from grader.autograde.lab_rows import source_cells, texts_of
        from grader.autograde.results import Job
        from grader.autograde.workers import Setting, open_sandbox
        from grader.sandbox import level_of

        told = resources["nbgrader"]
        release, classroom = self._places(told["assignment"])
        with Gradebook(told["db_url"]) as book:
            row = book.find_notebook(told["notebook"], told["assignment"])
            cells = source_cells(row, nb.cells)
        job = Job(
            told["student"],
            told["notebook"],
            nbformat.writes(nb).encode(errors="replace"),
            cells,
            seed_of(classroom),
            texts=texts_of(release),
        )
        graded = grade_one(job, open_sandbox(Setting(level_of(self.isolation))))
        if graded.reason:
            raise BadInput(f"{told['student']}, {told['assignment']}: {graded.reason}")
        for line in graded.attention:
            self.log.warning("%s, %s: %s", told["student"], told["assignment"], line)
        return nbformat.reads(graded.notebook, as_version=nbformat.NO_CONVERT), resources

    def _places(self, slug: str) -> tuple[Path, Path]:
        """Return where a lab's released notebook is, and the folder of the class."""
        from nbgrader.coursedir import CourseDirectory

        directory = CourseDirectory(config=self.config)
        release = Path(directory.format_path(directory.release_directory, ".", slug))
        classroom = Path(directory.root) / str(directory.submitted_directory)
        return release / f"{slug}.ipynb", classroom.parent
