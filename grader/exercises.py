"""What the learner writes: which functions, on which day, and what the lab imports for them.

The solution of an exercise is the library's function, its starter the function of the same name
in ``grader.starters``. Both are copied into notebooks as source, so both must do with the imports
listed here.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SLUGS = {
    1: "day1_estimate",
    2: "day2_calibrate",
    3: "day3_trigger",
    4: "day4_group",
    5: "day5_summarize",
    6: "day6_probe",
    7: "day7_carry",
    8: "day8_ship",
}
"""The name of each day's lesson and lab."""

LESSONS_FOLDER = "lessons"
START_HERE = "start_here.ipynb"
"""In a learner's folder: what is read there, beside the labs."""


@dataclass(frozen=True)
class Exercise:
    """One function to write; ``module`` is where the library has it."""

    day: int
    function: str
    module: str

    @property
    def slug(self) -> str:
        """The lab that the exercise belongs to."""
        return SLUGS[self.day]

    @property
    def imports(self) -> str:
        """The lab's import cell."""
        return IMPORTS[self.day]

    def solution(self) -> Callable[..., Any]:
        """Return the library's function."""
        found: Callable[..., Any] = getattr(importlib.import_module(self.module), self.function)
        return found

    def starter(self) -> Callable[..., Any]:
        """Return the starter function."""
        module = importlib.import_module(f"grader.starters.day{self.day}")
        found: Callable[..., Any] = getattr(module, self.function)
        return found


EXERCISES = (
    Exercise(1, "estimate", "compaction.tokens"),
    Exercise(2, "fit", "compaction.calibration"),
    Exercise(3, "should_compact", "compaction.budget"),
    Exercise(3, "budget_table", "compaction.budget"),
    Exercise(4, "group_messages", "compaction.grouping"),
    Exercise(5, "compact", "compaction.summary"),
    Exercise(6, "verify", "compaction.probes"),
    Exercise(7, "fields_to_drop", "compaction.carrying"),
    Exercise(8, "next_step", "compaction.engine"),
    Exercise(8, "make_room", "compaction.engine"),
    Exercise(8, "pack", "compaction.documents"),
)
"""All exercises, in the order of the course."""

IMPORTS = {
    1: """\
import math

from compaction.tokens import DEFAULT, Coefficients, count_chars
""",
    2: """\
from collections.abc import Iterable

from compaction.calibration import (
    UNIFORM_NOTE,
    Fit,
    Sample,
    limit_coefficient,
    mean_error,
    usable_samples,
)
from compaction.tokens import DEFAULT, Coefficients
""",
    3: """\
from collections.abc import Mapping, Sequence
from typing import Any

from compaction.budget import PATHS, Counter, Row, line_tokens, share_out, sizes_by_path
from compaction.calibration import meter
from compaction.messages import Message
from compaction.tokens import DEFAULT, Coefficients
""",
    4: """\
from collections.abc import Callable, Sequence

from compaction.grouping import Group, is_checklist, pair_results
from compaction.messages import Message
""",
    5: """\
import copy
from collections.abc import Callable, Iterable

from compaction.budget import Counter
from compaction.calibration import meter
from compaction.grouping import Group, group_messages, segments
from compaction.messages import Message
from compaction.probes import Probe, verify
from compaction.summary import (
    Compaction,
    Summarizer,
    SummaryError,
    carry_facts,
    extract,
    replace_stretches,
    tidy_summary,
)
""",
    6: """\
from collections.abc import Callable, Iterable, Sequence

from compaction.messages import Message, text_of
from compaction.probes import Probe, ProbeReport, fold
""",
    7: "",
    8: """\
from collections.abc import Callable, Sequence

from compaction.budget import line_tokens
from compaction.documents import Packing
from compaction.engine import Decision, Room
from compaction.messages import Message
from compaction.summary import Compaction
""",
}
"""The import cell of each day's lab: everything that its solutions and starters use."""


def exercises_of(day: int) -> list[Exercise]:
    """Return a day's exercises.

    >>> [exercise.function for exercise in exercises_of(3)]
    ['should_compact', 'budget_table']
    """
    return [exercise for exercise in EXERCISES if exercise.day == day]


def source_of(function: Callable[..., Any]) -> str:
    """Return a function's source, as it goes into a notebook's cell.

    >>> from grader.starters.day1 import estimate
    >>> source_of(estimate).splitlines()[0]
    'def estimate(text: str, coefficients: Coefficients = DEFAULT) -> int:'
    """
    return inspect.getsource(function).strip() + "\n"
