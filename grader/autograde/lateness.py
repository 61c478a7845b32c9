"""How late a hand-in was, and what that costs: by course.toml, else by nbgrader's own plugin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grader.autograde.course import Course
from grader.autograde.results import GradedSubmission
from grader.autograde.rules import Rules


@dataclass(frozen=True)
class Late:
    """How late a hand-in was, and whether a rule says what that costs."""

    cause: str
    by_rule: bool

    @property
    def without_rule(self) -> str:
        """What a person is told where no rule says what being late costs."""
        return f"{self.cause}; no rule says what that costs (late = ... in course.toml)"


def give_penalties(
    book: Any,
    course: Course,
    rules: Rules,
    batch: Sequence[tuple[GradedSubmission, datetime | None, bool]],
) -> dict[tuple[str, str], Late]:
    """Enter extensions and penalties of a batch, whose grades are in the open gradebook.

    Return which submissions (student, lab) are late. Where the platform said when, the time
    decides; where it only said "late", that word is taken, and no share a day can be counted.
    """
    from nbgrader.preprocessors.latesubmissions import AssignLatePenalties

    late: dict[tuple[str, str], Late] = {}
    plugin = AssignLatePenalties(config=course.config)
    plugin.init_plugin()
    for graded, when, is_said in batch:
        if when is None and not is_said:
            continue
        submission = book.find_submission(graded.slug, graded.student)
        submission.extension = rules.extension(graded.student, graded.slug)
        late_s = submission.total_seconds_late if when is not None else 0.0
        for notebook in submission.notebooks:
            notebook.late_submission_penalty = None
        place = graded.student, graded.slug
        if late_s > 0:
            late[place] = _by_time(plugin, rules, graded, submission, late_s)
        elif is_said:
            late[place] = _as_said(rules, graded.slug, submission)
    return late


def _as_said(rules: Rules, slug: str, submission: Any) -> Late:
    """Take the platform's word that a hand-in was late; it does not say by how much."""
    rule = rules.lab(slug).late
    told = "late, says the platform, but not by how much"
    if rule == "zero":
        cost = 0.0
        for notebook in submission.notebooks:
            notebook.late_submission_penalty = notebook.score
            cost += notebook.score
        told += f", {cost:g} points off"
    return Late(told, rule in ("none", "zero"))


def _by_time(
    plugin: Any, rules: Rules, graded: GradedSubmission, submission: Any, late_s: float
) -> Late:
    cost, by_rule = 0.0, rules.lab(graded.slug).late is not None
    for notebook in submission.notebooks:
        penalty = rules.penalty(graded.slug, notebook.score, late_s)
        if penalty is None:
            penalty = plugin.plugin_inst.late_submission_penalty(
                graded.student, notebook.score, late_s
            )
            by_rule = by_rule or penalty is not None
        if penalty is not None:
            notebook.late_submission_penalty = plugin._check_late_penalty(notebook, penalty)
            cost += notebook.late_submission_penalty
    return Late(f"{span(late_s)} late" + (f", {cost:g} points off" if cost else ""), by_rule)


def span(seconds: float) -> str:
    """Return a span of time in words.

    >>> span(90_000), span(30)
    ('1 d 1 h', '0 h 1 min')
    """
    minutes = int(-(-seconds // 60))
    days, hours = minutes // 1440, minutes % 1440 // 60
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min"
