"""The former home of these names, for imports that have not moved yet."""

from typing import Any

from grader.errors import BadInput as BadInput
from grader.errors import printable as printable

_MOVED = dict.fromkeys(("CheckFailure", "learners_part"), "grader.checks.failure")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name.startswith("__"):  # what the import system asks every module
        raise AttributeError(name)

    return getattr(import_module(_MOVED.get(name, "grader.learner.in_notebook")), name)
