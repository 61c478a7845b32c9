"""Write a page about a class: scores, which check fails for whom, which trap caught whom.

    python -m grader report --out report

One HTML file that needs nothing else, without scripts, and a CSV file with the same. Scores come
from nbgrader's gradebook, so what a person has graded or corrected counts; why a check failed
comes from the records that autograde keeps.
"""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from grader.autograde.results import Mark
from grader.checks import CHECKS
from grader.errors import printable
from grader.report.data import WORDS, Class, needing, outcomes, totals, traps, waiting

# --- what the page is about --------------------------------------------------------------


# --- the page ----------------------------------------------------------------------------

_CSS = """
:root { color-scheme: light dark; --line: #8888; --good: #2a7f62; --bad: #c26a00; --grey: #8885;
  --paper: #fff; --ink: #1b1b1b; --soft: #0000000a; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #e6e6e6; --good: #4cb491; --bad: #f0a04b; --soft: #ffffff10; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--paper); color: var(--ink); }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; } td, th { padding: .3rem .8rem .3rem 0; text-align: left;
  vertical-align: top; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; overflow-wrap: normal; }
td:first-child { min-width: 9rem; } td:nth-child(2) { min-width: 5rem; }
.wide { overflow-x: auto; } details { margin: .2rem 0; } summary { cursor: pointer; }
code, pre { font: .88em/1.45 ui-monospace, monospace; } pre { margin: .3rem 0 .6rem; padding: .5rem;
  background: var(--soft); overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--ink); font: 14px system-ui; }
.passed { fill: var(--good); } .wrong { fill: var(--bad); } .stopped { fill: url(#dots); }
.raised { fill: url(#lines); } .none { fill: var(--grey); }
.key { display: inline-block; margin-right: 1.2rem; white-space: nowrap; }
.soft { opacity: .8; } nav a { margin-right: 1rem; } a { color: inherit; }
"""

_PATTERNS = """<defs>
<pattern id="lines" width="6" height="6" patternUnits="userSpaceOnUse"
patternTransform="rotate(45)"><rect width="6" height="6" fill="var(--paper)"/>
<rect width="3" height="6" fill="var(--bad)"/></pattern>
<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">
<rect width="6" height="6" fill="var(--paper)"/>
<circle cx="3" cy="3" r="1.8" fill="var(--bad)"/></pattern></defs>"""


def _e(text: object) -> str:
    return html.escape(printable(str(text)))


def page(known: Class) -> str:
    """Return the page as HTML."""
    needs = list(needing(known))
    title = "Report about a class"
    counts = (
        said(len(known.students), "learner"),
        said(len(known.records), "submission"),
        said(len(known.slugs), "lab"),
    )
    places = {"labs": "Labs", "checks": "Checks", "traps": "Traps"}
    places |= {"person": "Needs a person", "scores": "Scores"}
    sections = [
        f"<h1>{title}</h1>",
        f'<p class="soft">{", ".join(counts)}</p>',
        "<nav>" + "".join(f'<a href="#{to}">{word}</a>' for to, word in places.items()) + "</nav>",
        '<h2 id="labs">Labs</h2>',
        _labs(known),
        '<h2 id="checks">Which check fails for whom</h2>',
        _picture(known),
        *_fails(known),
        '<h2 id="traps">Which trap caught whom</h2>',
        _traps(known),
        f'<h2 id="person">Needs a person ({len(needs)})</h2>',
        _needs(known, needs),
        '<h2 id="scores">Scores</h2>',
        _score_table(known),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_CSS}</style></head><body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def said(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 10**9) -> str:
    """Return a table; columns from ``numbers`` on hold numbers. Cells are HTML already."""
    kinds = [' class="n"' if place >= numbers else "" for place in range(len(titles))]
    head = "".join(f"<th{kind}>{title}</th>" for kind, title in zip(kinds, titles, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{k}>{c}</td>" for k, c in zip(kinds, row, strict=True)) + "</tr>\n"
        for row in rows
    )
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{whole}</div>'


def _labs(known: Class) -> str:
    rows = []
    by_hand = Counter(slug for slug, _ in waiting(known).elements())
    for slug in known.slugs:
        marked = [r for r in known.records if r.slug == slug and not r.reason]
        points = [sum(mark.passed for mark in record.marks) for record in marked]
        most = max((len(record.marks) for record in marked), default=0)
        mean = f"{sum(points) / len(points):.1f} of {most}" if points else "none"
        late = sum(record.late for record in known.records if record.slug == slug)
        there = sum(record.slug == slug for record in known.records)
        cells = (there, late, mean, sum(p == most for p in points), by_hand[slug])
        rows.append([_e(slug), *map(_e, cells)])
    titles = ("Lab", "Handed in", "Late", "Checks passed, mean", "All passed", "Answers to grade")
    return _table(titles, rows, 1)


def _picture(known: Class) -> str:
    """Draw one bar per check; words and numbers beside it say the same."""
    found = outcomes(known)
    if not found:
        return "<p>No check has run yet.</p>"
    most = max(sum(map(len, kinds.values())) for kinds in found.values())
    height, left, width = 30 * len(found) + 8, 190, 560
    parts = [f'<svg viewBox="0 0 960 {height}" role="img" aria-label="{_e(_in_words(found))}">']
    parts.append(_PATTERNS)
    for row, (name, kinds) in enumerate(found.items()):
        top, at = 30 * row + 4, float(left)
        parts.append(f'<text x="{left - 10}" y="{top + 16}" text-anchor="end">{_e(name)}</text>')
        for kind in WORDS:
            size = width * len(kinds.get(kind, ())) / most
            if size:
                parts.append(
                    f'<rect class="{kind}" x="{at:.1f}" y="{top}" width="{size:.1f}" height="22"/>'
                )
            at += size
        whole = sum(map(len, kinds.values()))
        told = f"{len(kinds.get('passed', ()))} of {whole} passed"
        parts.append(f'<text x="{left + width + 12}" y="{top + 16}">{told}</text>')
    parts.append("</svg>")
    keys = "".join(
        '<span class="key"><svg width="22" height="14" viewBox="0 0 22 14">'
        f'<rect class="{kind}" width="22" height="14"/></svg> {word}</span>'
        for kind, word in WORDS.items()
    )
    return f"<figure>{''.join(parts)}<figcaption>{keys}</figcaption></figure>"


def _in_words(found: dict[str, dict[str, list[tuple[str, Mark]]]]) -> str:
    lines = []
    for name, kinds in found.items():
        told = ", ".join(
            f"{len(kinds[kind])} {word}" for kind, word in WORDS.items() if kind in kinds
        )
        lines.append(f"{name}: {told}")
    return "Checks of the class. " + "; ".join(lines)


def _fails(known: Class) -> Iterator[str]:
    """Yield for each check what its failures look like, the most frequent first, and whose."""
    for name, kinds in outcomes(known).items():
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for kind in ("wrong", "raised", "stopped"):
            for student, mark in kinds.get(kind, ()):
                groups[mark.lines].append(student)
        count = sum(map(len, groups.values()))
        if not count:
            continue
        body = "".join(
            f"<pre>{_e_lines(lines)}</pre><p>{said(len(who), 'learner')}: {_names(who)}</p>"
            for lines, who in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0]))
        )
        sentence = (
            f" <span class='soft'>{_e(CHECKS[name].sentence)}</span>" if name in CHECKS else ""
        )
        yield (
            f"<details><summary><code>{_e(name)}</code>: {said(count, 'learner')} not yet."
            f"{sentence}</summary>{body}</details>"
        )


def _e_lines(lines: Sequence[str]) -> str:
    shown = [*lines[:12], "..."] if len(lines) > 12 else lines
    return "\n".join(_e(line[:300]) for line in shown)


def _names(students: Iterable[str]) -> str:
    return ", ".join(_e(name) for name in sorted(students, key=str.casefold))


def _traps(known: Class) -> str:
    caught = traps(known)
    if not caught:
        return "<p>No answer was one that a known trap gives.</p>"
    rows = [
        [
            str(len(who)),
            f"<code>{_e(name)}</code>",
            _e(why),
            f"<details><summary>{said(len(who), 'learner')}</summary>{_names(who)}</details>",
        ]
        for (name, why), who in caught.items()
    ]
    return _table(("Times", "Check", "Why", "Whom"), rows)


def _needs(known: Class, needs: Sequence[tuple[str, str, str]]) -> str:
    parts = []
    if needs:
        rows = [[_e(who), _e(what), _e(why)] for who, what, why in needs]
        parts.append(_table(("Learner", "Lab or file", "What is the matter"), rows))
    else:
        parts.append("<p>Everything that was handed in has a mark.</p>")
    by_hand = waiting(known)
    if by_hand:
        items = "".join(
            f"<li>{said(count, 'answer')} to <code>{_e(cell)}</code> in {_e(slug)}</li>"
            for (slug, cell), count in sorted(by_hand.items())
        )
        parts.append(f"<p>To grade by hand, in nbgrader's formgrader:</p><ul>{items}</ul>")
    if known.ledger.notes:
        parts.append(
            "<p>Notes:</p><ul>" + "".join(f"<li>{_e(n)}</li>" for n in known.ledger.notes) + "</ul>"
        )
    return "".join(parts)


def _score_table(known: Class) -> str:
    points_of = totals(known)
    reasons = {(r.student, r.slug): r for r in known.records}
    rows = []
    for student in known.students:
        cells, points = [], 0.0
        for slug in known.slugs:
            total, record = points_of.get((student, slug)), reasons.get((student, slug))
            text = "" if total is None else f"{total[0]:g} of {total[1]:g}"
            if record is not None and record.reason:
                text = f"{text} (no mark)".strip()
            if record is not None and record.late:
                text += " late"
            points += total[0] if total else 0
            cells.append(_e(text) or '<span title="not handed in">–</span>')
        rows.append([_e(student), f"{points:g}", *cells])
    told = "<p class='soft'>Points with what a person has given. –: not handed in.</p>"
    return told + _table(("Learner", "Points", *map(_e, known.slugs)), rows, 1)


# --- the table ---------------------------------------------------------------------------


# --- the command line --------------------------------------------------------------------
