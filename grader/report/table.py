"""The report as CSV: a line a graded cell, and a line for what has no grade."""

from __future__ import annotations

import csv
import io

from grader.autograde.formulas import without_formula
from grader.errors import printable
from grader.report.data import WORDS, Class, needing

COLUMNS = ("learner", "lab", "cell", "outcome", "score", "max_score", "why", "line", "late")


def table(known: Class) -> str:
    """Return the same as CSV: a line a graded cell, and a line for what has no grade."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    marks = {(r.student, r.slug, m.id): (m, r) for r in known.records for m in r.marks}
    for place, score in sorted(known.scores.items()):
        mark, record = marks.get(place, (None, None))
        outcome = WORDS[mark.kind] if mark else ("to grade by hand" if score.waits else "answer")
        if score.by_hand:
            outcome += ", graded by hand"
        line, why = (mark.lines[0], mark.why) if mark else ("", "")
        late = (record.cause or "late") if record is not None and record.late else ""
        numbers = f"{score.score:g}", f"{score.max_score:g}"
        writer.writerow(
            [*map(_plain, (*place, outcome)), *numbers, _plain(why), _plain(line), _plain(late)]
        )
    for who, what, why in needing(known):
        cells = map(_plain, (who, what, "", "needs a person"))
        writer.writerow([*cells, "", "", _plain(why), "", ""])
    return out.getvalue()


def _plain(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return without_formula(printable(text))
