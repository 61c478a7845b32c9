"""The solutions with one thing changed, out of ``tests/cases/mutations.json``."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from grader.exercises import EXERCISES

CASES = Path(__file__).resolve().parents[2] / "cases"

Function = Callable[..., Any]


@dataclass(frozen=True)
class Mutation:
    """A solution of which one thing is changed, or which is written in another way."""

    function: str
    name: str
    passes: bool
    why: str
    code: str

    def __str__(self) -> str:
        return f"{self.function}/{self.name}"

    def made(self) -> Function:
        """Return the function, as a lab's cell defines it."""
        exercise = next(e for e in EXERCISES if e.function == self.function)
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(exercise.imports, names)
        exec(self.code, names)
        function: Function = names[self.function]
        return function


@cache
def mutations() -> dict[str, Mutation]:
    """Return all of them, by function and name; the references are among them."""
    held = json.loads((CASES / "mutations.json").read_text(encoding="utf-8"))
    references = held["references"]
    found = [Mutation(name, "reference", True, "", code) for name, code in references.items()]
    for case in held["mutations"]:
        code = case.get("code", references[case["function"]])
        for old, new in case.get("change", ()):
            assert old in code, case
            code = code.replace(old, new)
        found.append(
            Mutation(case["function"], case["name"], case["expect"] == "pass", case["why"], code)
        )
    return {str(mutation): mutation for mutation in found}
