"""The page about a class: scores, which check fails for whom, who made which known mistake.

One HTML file that needs nothing else, without scripts. What is on it is put together here, as
plain values; ``report.html.j2`` lays it out and escapes every one of them. Scores come from
nbgrader's gradebook, so what a person has graded or corrected counts; why a check failed comes from
the records that autograde keeps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from grader.autograde.results import Mark
from grader.checks import CHECKS
from grader.errors import printable
from grader.report.data import (
    WORDS,
    Class,
    is_missing,
    known_mistakes,
    needing,
    outcomes,
    totals,
    waiting,
)

PLACES = {
    "person": "Needs a person",
    "labs": "Labs",
    "checks": "Checks",
    "mistakes": "Known mistakes",
    "scores": "Scores",
}
LEFT, WIDTH, ROW = 190, 560, 30
"""Where the bars of the picture begin, how long they are, and how far apart."""


def page(known: Class) -> str:
    """Return the page as HTML."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("grader.report", ""),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    return environment.get_template("report.html.j2").render(view(known))


def view(known: Class) -> dict[str, Any]:
    """Return everything that the page shows, as plain values."""
    counts = (
        said(len(known.students), "learner"),
        said(len(known.records), "submission"),
        said(len(known.slugs), "lab"),
    )
    found = outcomes(known)
    bars = list(_bars(found))
    return {
        "counts": ", ".join(counts),
        "places": PLACES,
        "names": known.ledger.people,
        "needs": list(needing(known)),
        "by_hand": [
            (said(count, "answer"), cell, slug)
            for (slug, cell), count in sorted(waiting(known).items())
        ],
        "notes": known.ledger.notes,
        "labs": list(_labs(known)),
        "bars": bars,
        "height": ROW * len(bars) + 8,
        "in_words": _in_words(found),
        "words": WORDS,
        "fails": list(_fails(known)),
        "mistakes": [
            (name, why, said(len(who), "learner"), _sorted(who))
            for (name, why), who in known_mistakes(known).items()
        ],
        "slugs": known.slugs,
        "scores": list(_scores(known)),
        "late": [(r.student, r.slug, r.cause or "late") for r in known.records if r.late],
    }


def said(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> said(1, "lab"), said(1200, "learner")
    ('1 lab', '1,200 learners')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _sorted(students: list[str]) -> list[str]:
    return sorted(students, key=str.casefold)


def _labs(known: Class) -> Iterator[tuple[str, ...]]:
    """Yield a lab's numbers: handed in, late, checks passed, all passed, answers to grade."""
    by_hand = Counter(slug for slug, _ in waiting(known).elements())
    for slug in known.slugs:
        graded = [r for r in known.records if r.slug == slug and not r.reason]
        points = [sum(mark.passed for mark in record.marks) for record in graded]
        most = max((len(record.marks) for record in graded), default=0)
        mean = f"{sum(points) / len(points):.1f} of {most}" if points else "none"
        late = sum(record.late for record in known.records if record.slug == slug)
        there = sum(record.slug == slug for record in known.records)
        cells = (there, late, mean, sum(p == most for p in points), by_hand[slug])
        yield (slug, *map(str, cells))


Outcomes = dict[str, dict[str, list[tuple[str, Mark]]]]


def _bars(found: Outcomes) -> Iterator[dict[str, Any]]:
    """Yield a bar for each check; what it shows is beside it in words and numbers."""
    most = max((sum(map(len, kinds.values())) for kinds in found.values()), default=1)
    for row, (name, kinds) in enumerate(found.items()):
        at, parts = float(LEFT), []
        for kind in WORDS:
            size = WIDTH * len(kinds.get(kind, ())) / most
            if size:
                parts.append((kind, f"{at:.1f}", f"{size:.1f}"))
            at += size
        whole = sum(map(len, kinds.values()))
        told = f"{len(kinds.get('passed', ()))} of {whole} passed"
        yield {"name": name, "top": ROW * row + 4, "parts": parts, "told": told}


def _in_words(found: Outcomes) -> str:
    lines = []
    for name, kinds in found.items():
        told = ", ".join(
            f"{len(kinds[kind])} {word}" for kind, word in WORDS.items() if kind in kinds
        )
        lines.append(f"{name}: {told}")
    return "Checks of the class. " + "; ".join(lines)


def _fails(known: Class) -> Iterator[dict[str, Any]]:
    """Yield for each check what its failures look like, the most frequent first, and whose."""
    for name, kinds in outcomes(known).items():
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for kind in ("wrong", "raised", "stopped"):
            for student, mark in kinds.get(kind, ()):
                groups[mark.lines].append(student)
        count = sum(map(len, groups.values()))
        if count:
            told = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
            yield {
                "name": name,
                "count": said(count, "learner"),
                "sentence": CHECKS[name].sentence if name in CHECKS else "",
                "groups": [
                    (_lines(lines), said(len(who), "learner"), _sorted(who)) for lines, who in told
                ],
            }


def _lines(lines: tuple[str, ...]) -> str:
    """Return what a learner read as a text, each line made printable by itself."""
    shown = [*lines[:12], "..."] if len(lines) > 12 else lines
    return "\n".join(printable(line[:300]) for line in shown)


def _scores(known: Class) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield each learner's total, and for each lab the points and why they are less."""
    points_of = totals(known)
    records = {(record.student, record.slug): record for record in known.records}
    for student in known.students:
        cells, points = [], 0.0
        for slug in known.slugs:
            total, record = points_of.get((student, slug)), records.get((student, slug))
            text = "" if total is None else f"{total[0]:g} of {total[1]:g}"
            if record is not None and record.reason:
                text = f"{text} (no grade)".strip()
            if record is not None and record.late:
                text += " late"
            points += known.weights.get(slug, 1.0) * (total[0] if total else 0.0)
            none = "–" if is_missing(known, student, slug) else "held"
            cells.append((text or none, record.cause if record else ""))
        yield student, f"{points:g}", cells
