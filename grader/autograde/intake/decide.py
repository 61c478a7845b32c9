"""Decide whose each notebook is, and which of several counts. Nothing is read or written here.

What is certain counts; what is doubtful is held, with the file, the reason and the command that
settles it. An assignment by a person is stronger than any name.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from grader.autograde.intake.journal import NOBODY, HandIn
from grader.autograde.intake.roster import Roster, student_id
from grader.errors import printable


@dataclass(frozen=True)
class Refused:
    """What needs a person before it can be graded, and why, in one line.

    ``held`` files could be graded if somebody said whose they are; ``settle`` is the command.
    """

    origin: str
    student: str
    slug: str
    reason: str
    held: bool = False

    @property
    def settle(self) -> str:
        """The command that settles it."""
        if not self.held:
            return ""
        return f"python -m grader assign {shlex.quote(self.origin)} LEARNER"

    @property
    def line(self) -> str:
        """File, reason and what settles it, in one line."""
        return f"{self.origin}: {self.reason}" + (f"; settle: {self.settle}" if self.held else "")


@dataclass
class Decision:
    """Which notebook counts for whom, and what needs a person. ``older`` ones are kept."""

    counting: dict[tuple[str, str], HandIn] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    older: int = 0
    owners: dict[tuple[str, str], str] = field(default_factory=dict)


def decide(
    hand_ins: Iterable[HandIn],
    roster: Roster | None,
    assigned: Mapping[tuple[str, str], str],
) -> Decision:
    """Return who has handed in what, of everything that was ever handed in."""
    hand_ins = list(hand_ins)
    decision = Decision()
    namesakes = _namesakes(hand_ins) if roster is None else {}
    lookalikes = _lookalikes(hand_ins) if roster is None else {}
    own: dict[tuple[str, str], list[HandIn]] = defaultdict(list)
    faults: list[tuple[HandIn, str]] = []
    for one in hand_ins:
        said = assigned.get(one.key, "")
        if said == NOBODY:
            continue
        learner, reason = (said, "") if said else _resolve(one, roster, namesakes, lookalikes)
        if one.fault:
            faults.append((one, "" if reason else learner))
        elif reason:
            decision.refused.append(_held(one, learner, reason))
        else:
            decision.owners[one.key] = learner
            own[learner, one.slug].append(one)
    for (learner, slug), several in sorted(own.items()):
        _choose(decision, learner, slug, several, assigned)
    for one, learner in faults:
        if not _is_settled(one, learner, own):
            decision.refused.append(Refused(one.origin, learner, one.slug, one.fault))
    for name, slug in sorted({place for place in namesakes if place[1]}):
        decision.notes.append(f"several people are called {printable(name)}: numbers added, {slug}")
    return decision


def _held(one: HandIn, learner: str, reason: str) -> Refused:
    return Refused(one.origin, learner, one.slug, reason, held=True)


def _resolve(
    one: HandIn,
    roster: Roster | None,
    namesakes: Mapping[tuple[str, str], set[str]],
    lookalikes: Mapping[str, list[str]],
) -> tuple[str, str]:
    """Return whose a hand-in is, or a name and why it is doubtful."""
    named = one.named
    name = student_id(named.student) if named.student else ""
    if roster is not None:
        found = roster.find(named) if named.student or named.number else set()
        # A roster settles what only a look at one name left open, but not who made a name.
        settled = len(found) == 1 and (named.platform == "blackboard" or not named.doubt)
        settled = settled or (bool(named.doubt) and found == roster.by_id(named.student) != set())
        if settled and len(found) == 1:
            return next(iter(found)), ""
        if named.doubt:
            return name, named.doubt
        if len(found) > 1:
            return name, "not one person alone in the roster"
        return name, "not in the roster"
    if named.doubt:
        return name, named.doubt
    if not name:
        return "", "whose it is is neither in its name nor in a folder's"
    place = _namesake_place(one)
    if named.number in namesakes.get(place, ()):
        name = student_id(f"{named.student} {named.number}")
    others = lookalikes.get(name.casefold(), [])
    if len(others) > 1:
        several = ", ".join(others)
        return name, f"{several}: one person or several? Names differ only in capitals"
    return name, ""


def _namesake_place(one: HandIn) -> tuple[str, str]:
    """Return where two numbers mean two people: Moodle's are new for each lab."""
    return one.named.student, one.slug if one.named.platform == "moodle" else ""


def _namesakes(hand_ins: Iterable[HandIn]) -> dict[tuple[str, str], set[str]]:
    """Return the numbers that must be added to names which several people have.

    Who was alone under a name when first graded keeps it.
    """
    first: dict[tuple[str, str], dict[str, HandIn]] = defaultdict(dict)
    for one in hand_ins:
        number = one.named.number
        if number and one.named.platform in ("moodle", "canvas", "brightspace"):
            seen = first[_namesake_place(one)]
            if number not in seen or one.received < seen[number].received:
                seen[number] = one
    found = {}
    for place, by_number in first.items():
        earliest = min(one.received for one in by_number.values())
        early = [number for number, one in by_number.items() if one.received == earliest]
        keeps = early[0] if len(early) == 1 else None
        if len(by_number) > 1:
            found[place] = {number for number in by_number if number != keeps}
    return found


def _lookalikes(hand_ins: Iterable[HandIn]) -> dict[str, list[str]]:
    """Return ids that differ only in capitals, by what they have in common."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in hand_ins:
        if one.named.student and not one.named.doubt:
            name = student_id(one.named.student)
            found[name.casefold()].add(name)
    return {folded: sorted(names) for folded, names in found.items()}


def _choose(
    decision: Decision,
    learner: str,
    slug: str,
    several: list[HandIn],
    assigned: Mapping[tuple[str, str], str],
) -> None:
    """Choose the newest of a learner's notebooks of a lab; hold what nothing tells apart."""
    current = _current(several)
    newest = max(one.moment for one in current)
    tied = [one for one in current if one.moment == newest]
    said = [one for one in tied if one.key in assigned]
    tied = said or tied
    if len({one.digest for one in tied}) > 1:
        tied = _canonical(tied, slug)
        if len(tied) == 1:
            name = printable(tied[0].origin.rpartition("/")[2])
            decision.notes.append(f"{learner}, {slug}: several notebooks; {name} counts")
    if len({one.digest for one in tied}) == 1:
        decision.counting[learner, slug] = tied[0]
    else:
        for one in tied:
            reason = f"one of {len(tied)} notebooks of this lab, and nothing says which is newer"
            decision.refused.append(_held(one, learner, reason))
        before = [one for one in several if one.moment < newest]
        if before:
            decision.counting[learner, slug] = max(before, key=lambda one: one.moment)
    decision.older += len({one.digest for one in several}) - 1


def _current(several: list[HandIn]) -> list[HandIn]:
    """Return what may count: of one platform's numbered hand-ins only the last."""
    last: dict[str, int] = defaultdict(int)
    for one in several:
        last[one.named.platform] = max(last[one.named.platform], one.named.sequence)
    return [one for one in several if one.named.sequence == last[one.named.platform]]


def _canonical(tied: list[HandIn], slug: str) -> list[HandIn]:
    """Return the one of several in a folder that has the lab's own name, where there is one."""
    folders = {one.origin.rpartition("/")[0] for one in tied}
    named = [one for one in tied if one.origin.rpartition("/")[2] == f"{slug}.ipynb"]
    return named if len(folders) == 1 and len(named) == 1 else tied


def _is_settled(fault: HandIn, learner: str, own: Mapping[tuple[str, str], list[HandIn]]) -> bool:
    """Return True if the learner has handed in something usable since."""
    if not learner:
        return False
    return any(
        one.received > fault.received or one.moment > fault.moment
        for (who, slug), several in own.items()
        if who == learner and fault.slug in ("", slug)
        for one in several
    )
