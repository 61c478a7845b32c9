"""nbgrader's export of grades as a table that any spreadsheet reads right.

The columns are those of nbgrader's own plugin. That one quotes nothing, so a name with a comma
shifts a line, and a learner called ``=1+1`` is a formula.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbgrader.plugins import ExportPlugin

from compaction.files import write_whole
from grader.autograde.formulas import without_formula

COLUMNS = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email",
    "raw_score", "late_submission_penalty", "score", "max_score",
)  # fmt: skip


class PlainCsvExport(ExportPlugin):
    """Export grades as CSV, by default into the class's own folder, which git ignores."""

    def export(self, gradebook: Any) -> None:
        """Write a line for each lab and learner; who handed in nothing has 0."""
        path = Path(self.to) if self.to else self._folder() / "grades.csv"
        self.log.info("Exporting grades to %s", path)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(self._rows(gradebook))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, out.getvalue().encode(errors="replace"))

    def _folder(self) -> Path:
        directory = getattr(self.parent, "coursedir", None)
        if directory is None:
            return Path()
        return (Path(directory.root) / str(directory.submitted_directory)).parent

    def _rows(self, gradebook: Any) -> Iterator[list[Any]]:
        wanted = {str(student) for student in self.student}
        for assignment in gradebook.assignments:
            if self.assignment and assignment.name not in self.assignment:
                continue
            handed_in = {one.student_id: one for one in assignment.submissions}
            for student in gradebook.students:
                if wanted and student.id not in wanted:
                    continue
                one = handed_in.get(student.id)
                raw, cost = (one.score, one.late_submission_penalty) if one else (0.0, 0.0)
                who = (student.id, student.last_name, student.first_name, student.email)
                yield [
                    assignment.name,
                    assignment.duedate or "",
                    (one.timestamp or "") if one else "",
                    *(without_formula(text or "") for text in who),
                    raw,
                    cost,
                    max(0.0, raw - cost),
                    assignment.max_score,
                ]
