"""What a learner's code may use, and what can happen to it when it runs.

A fault's text is one line for a person: it goes into the learner's feedback as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from grader.errors import BadInput
from grader.sandbox.inside import protocol


@dataclass(frozen=True)
class Limits:
    """What a learner's code may use. Times are wall-clock seconds unless they say CPU.

    A call's time includes what it asks of this side (``calls_back``). ``processes`` counts
    processes and threads together. Memory is limited for each process, so
    ``processes * memory_bytes`` is the most that a submission can take.
    """

    call_s: float = 5.0
    cell_s: float = 10.0
    submission_s: float = 60.0
    cpu_s: int = 30
    memory_bytes: int = 512 * 2**20
    processes: int = 4
    open_files: int = 64
    file_bytes: int = 8 * 2**20
    scratch_bytes: int = 16 * 2**20
    output_chars: int = 20_000
    answer_bytes: int = 2**20
    calls_back: int = 5_000
    restarts: int = 6


# --- what can happen to a learner's code ------------------------------------------------


class LearnerFault(Exception):
    """Something in a learner's code that costs a point; the text is one line, for a person."""


class LearnerError(LearnerFault):
    """The learner's code raised. The class has the name of the learner's exception.

    ``trace`` is the learner's own traceback, as text.
    """

    trace = ""

    def _render_traceback_(self) -> list[str]:
        return self.trace.splitlines()


class OutOfMemory(LearnerFault):
    """The learner's code asked for more memory than it may have."""


class Absent(LearnerFault):
    """The function is not there, because a cell failed or nobody wrote it."""


class Unfit(LearnerFault):
    """A value that cannot cross: too deep, in itself, or a number of too many digits."""


class Forbidden(LearnerFault):
    """The learner's code reached for the library's own version of the exercise."""


class Ended(LearnerFault, protocol.PipeEnd):
    """The process with the learner's code had to be ended, or ended by itself."""


class TimedOut(Ended):
    """It took too long."""


class Died(Ended):
    """It ended, or was ended by the system."""


class TooMuchOutput(Ended):
    """It printed without end."""


class Garbled(Ended):
    """What came over the pipe is no answer: the code wrote there itself, or answered too much."""


# --- what can happen to the sandbox -----------------------------------------------------


class LaunchError(Exception):
    """The sandbox itself fails, or a level of isolation does not work here; the text says why."""


class SandboxMissing(BadInput):
    """The isolation that was asked for does not work on this system; the text says what to do."""
