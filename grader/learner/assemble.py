"""Put a learner's own functions of all days into the engine, and run the session through it.

The end of the course, offline and the same every time. A function counts as the learner's own
when it passes its checks; where one does not, or a notebook is missing, the library's is used
and the reason is named.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compaction import session
from compaction.agent.demo import recall
from compaction.agent.functions import OwnLines, OwnMeter, Parts
from compaction.budget import Row
from compaction.calibration import Fit
from compaction.carrying import Run, simulate
from compaction.engine import Engine, Event, Lines, trace
from compaction.messages import Message
from compaction.probes import Probe, ProbeReport
from compaction.summary import Compaction
from grader.checks import CHECKS, run_check
from grader.errors import BadInput
from grader.exercises import EXERCISES, SLUGS
from grader.learner.functions import functions_of

Function = Callable[..., Any]

# --- finding the functions --------------------------------------------------------------


@dataclass(frozen=True)
class Assembly:
    """The functions of all days by name, the learner's own where they pass their checks.

    ``missing`` says of every other one why the library's is used its place. ``where`` is the
    folder of notebooks, None where none was found.
    """

    where: Path | None
    functions: Mapping[str, Function]
    missing: Mapping[str, str]

    @property
    def own(self) -> tuple[str, ...]:
        """The names of the functions that are the learner's, in the order of the course."""
        return tuple(name for name in self.functions if name not in self.missing)

    def __str__(self) -> str:
        place = f"in {self.where.name}/" if self.where else "here; no folder of labs was found"
        lines = [f"{len(self.own)} of {len(self.functions)} functions are yours, {place}"]
        for exercise in EXERCISES:
            why = self.missing.get(exercise.function)
            whose = "yours" if why is None else f"the library's ({why})"
            lines.append(f"  day {exercise.day}  {exercise.function:15} {whose}")
        return "\n".join(lines)


def labs_beside(start: Path) -> Path | None:
    """Return the folder with the learner's labs, seen from a notebook's own folder.

    From ``workbook/day8_ship`` that is ``workbook``, and ``labs`` or ``solutions`` likewise; the
    folder itself where all notebooks lie in one; ``workbook`` from beside or above it. None
    where there is no lab of an earlier day.
    """
    up = start.parent
    for folder in (start / "workbook", up / "workbook", start, up):
        if any(_holds(folder, SLUGS[day]) for day in range(1, 8)):
            return folder
    return None


def _holds(folder: Path, slug: str) -> bool:
    # A notebook may have been renamed, but hardly ever its folder as well.
    return (folder / slug).is_dir() or (folder / f"{slug}.ipynb").is_file()


_is_running = False


def assemble(where: str | Path | None = None, **here: Function) -> Assembly:
    """Return the functions of all days from the notebooks in ``where`` and those defined here.

    ``where`` is a folder of notebooks; by default the one that holds the folder we are in.
    ``here`` are functions by name, such as those of a notebook that is open and not saved yet:
    they count in place of that notebook's. Whatever is missing, or fails a check, is the
    library's.

    >>> from compaction.tokens import estimate
    >>> assemble("/nowhere", estimate=estimate).own
    ('estimate',)

    Raises BadInput for a name that is not an exercise, and when a notebook that is read calls this.
    """
    global _is_running
    known = {exercise.function: exercise for exercise in EXERCISES}
    for name in here:
        if name not in known:
            raise BadInput(f"{name}: no function of this course; there are {', '.join(known)}")
    if _is_running:
        raise BadInput("assemble() reads notebooks; it cannot be called in one of them meanwhile")
    folder = labs_beside(Path.cwd()) if where is None else Path(where)
    others = {known[name].slug for name in known if name not in here}
    _is_running = True
    try:
        found, missing = _read(folder, leave_out=set(SLUGS.values()) - others)
        found |= here
        missing = {name: why for name, why in missing.items() if name not in here}
        for name, function in found.items():
            fault = _unsolved(name, function)
            if fault:
                missing[name] = fault
    finally:
        _is_running = False
    missing = {name: missing[name] for name in known if name in missing}
    functions = {
        name: exercise.solution() if name in missing else found[name]
        for name, exercise in known.items()
    }
    return Assembly(folder if folder and folder.is_dir() else None, functions, missing)


def _read(
    folder: Path | None, leave_out: Collection[str]
) -> tuple[dict[str, Function], dict[str, str]]:
    """Return the functions in a folder's notebooks, and why others are not there."""
    try:
        if folder is None:
            raise BadInput("no notebook")
        own = functions_of(folder, leave_out)
    except BadInput:
        absent = {e.function: f"no notebook of {e.slug}" for e in EXERCISES}
        found: dict[str, Function] = {}
    else:
        found, absent = own.functions, own.missing
    return dict(found), {name: why.removesuffix(f" in {folder}") for name, why in absent.items()}


def _unsolved(name: str, function: Function) -> str:
    """Say which of its checks a function fails; "" when it passes them all."""
    failed = []
    with contextlib.redirect_stdout(io.StringIO()):  # what a function prints is of no use here
        for check in CHECKS.values():
            if check.function == name and not run_check(check, function).passed:
                failed.append(check.id)
    return f"not solved yet: {', '.join(failed)}" if failed else ""


# --- running the session ----------------------------------------------------------------

QUESTION = "How do I build it, and what did the first test expect?"
"""What the user asks after the fourteen messages."""

THRESHOLD = 0.70


@dataclass(frozen=True)
class SessionRun:
    """What came out of the session's run through the engine.

    ``before`` and ``after`` are the session's own messages, ``tokens_before`` and
    ``tokens_after`` what they cost; the question and its answer come on top. ``over`` are the
    paths over their allowance before. ``packed`` is what packing whole groups into
    ``tokens_after`` keeps of the pinned facts instead. ``fit`` is the calibration on the course's
    five samples, ``carried`` the simulator's run at three fields.
    """

    before: list[Message]
    after: list[Message]
    tokens_before: int
    tokens_after: int
    over: list[Row]
    events: list[Event]
    lines: Lines
    kept: ProbeReport
    answer: str
    packed: ProbeReport
    fit: Fit
    carried: Run

    def __str__(self) -> str:
        messages = f"{len(self.before)} -> {len(self.after)}"
        tokens = f"{self.tokens_before} -> {self.tokens_after}"
        over = ", ".join(f"{row.path} {row.tokens} of {row.allowance}" for row in self.over)
        packed = f"packing whole groups into {self.tokens_after} tokens instead would lose"
        carried = f"{self.carried.tokens} tokens instead of {simulate().tokens}"
        lines = [
            trace(self.events),
            "",
            f"the session: {messages} messages, {tokens} tokens",
            f"over their allowance before: {over or 'no path'}",
            f"facts kept: {_facts(self.kept.kept)}; lost: {_facts(self.kept.lost)}",
            f"the answer: {self.answer}",
            f"{packed}: {_facts(self.packed.lost)}",
            f"calibrated: error {self.fit.error_before:.1%} -> {self.fit.error_after:.1%}",
            f"three fields carried: {carried}, {self.carried.success:.4f} of the tasks solved",
        ]
        return "\n".join(lines)


def _facts(probes: Sequence[Probe]) -> str:
    return ", ".join(probe.fact for probe in probes) or "none"


def run_session(assembly: Assembly) -> SessionRun:
    """Run the fourteen-message session and one question through an engine made of these functions.

    The model follows a script and answers from what it is sent alone, so that a fact which the
    compaction loses is lost to the answer too.

    >>> run = run_session(assemble("/nowhere"))
    >>> run.tokens_before, run.tokens_after
    (1368, 571)
    """
    use = assembly.functions
    long = session.load("long")
    counter = OwnMeter(use["estimate"], use["fit"])
    summarize = session.replay(long.replies)

    def compact(messages: list[Message]) -> Compaction:
        done: Compaction = use["compact"](
            messages,
            summarize,
            group=use["group_messages"],
            meter=counter,
            probes=engine.probes,
        )
        return done

    engine = Engine(
        lambda messages, tools: recall(messages),
        OwnLines(
            long.window,
            THRESHOLD,
            parts=Parts(
                counter=counter, next_step=use["next_step"], should_compact=use["should_compact"]
            ),
            history=lambda: engine.history,
        ),
        long.messages,
        counter=counter,
        compact=compact,
        probes=long.probes,
        budget_table=use["budget_table"],
        make_room=use["make_room"],
    )
    over = [row for row in engine.budget() if row.over]
    answer = engine.run(QUESTION)
    after = engine.history[:-2]  # without the question and its answer
    groups = use["group_messages"](long.messages)
    stretches = [long.messages[group.start : group.end] for group in groups]
    tokens_after = counter.count(after)
    fitting = use["pack"]([counter.count(messages) for messages in stretches], tokens_after).kept
    packed = [message for position in fitting for message in stretches[position]]
    return SessionRun(
        before=long.messages,
        after=after,
        tokens_before=counter.count(long.messages),
        tokens_after=tokens_after,
        over=over,
        events=engine.events,
        lines=engine.lines,
        kept=use["verify"](long.probes, after),
        answer=answer,
        packed=use["verify"](long.probes, packed),
        fit=use["fit"](session.calibration_samples()),
        carried=simulate(3, use["fields_to_drop"]),
    )
