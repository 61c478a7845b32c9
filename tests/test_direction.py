"""Which way imports run: the contracts in pyproject.toml refuse each wrong one; so do strings."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = {"compaction": ROOT / "course" / "compaction", "grader": ROOT / "grader"}
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "tool"
]["importlinter"]["contracts"]


def modules_of(package: str) -> dict[str, Path]:
    """Return the file of each module; a package is under its own name."""
    folder = PLACES[package]
    found = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[0] in ("classroom", "data", "hub"):
            continue
        found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules_of("compaction") | modules_of("grader")

# --- the contracts refuse what they name ----------------------------------------------------

# One wrong import for each contract, in a file of its own, and late: inside a function.
WRONG = {
    "the library knows nothing of the grader": ("compaction.tokens", "grader.errors"),
    "the library: from messages up to the command line": ("compaction.grouping", "compaction.cli"),
    "console stands on files alone": ("compaction.console", "compaction.grouping"),
    "the simulator, the setup check and the lesson's helpers stand alone": (
        "compaction.carrying.policy",
        "compaction.tokens",
    ),
    "the grader: from errors up to the report": ("grader.checks.day1", "grader.report.page"),
    "what is copied into a sandbox needs nothing else of the grader": (
        "grader.sandbox.inside.confine",
        "grader.sandbox.limits",
    ),
    "no circles": ("compaction.summary.format", "compaction.summary.gather"),
}

LINT = "from importlinter.cli import lint_imports_command as lint; lint()"


def test_every_contract_refuses_a_late_import_against_it(tmp_path: Path) -> None:
    assert list(WRONG) == [contract["name"] for contract in CONTRACTS]
    for package, folder in PLACES.items():
        nothing = shutil.ignore_patterns("data", "classroom", "hub", "__pycache__")
        shutil.copytree(folder, tmp_path / package, ignore=nothing)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "compaction" / "homeless.py").write_text('"""No line of a contract names it."""\n')
    for importer, imported in WRONG.values():
        file = tmp_path / MODULES[importer].relative_to(
            ROOT / "course" if importer.startswith("compaction") else ROOT
        )
        with file.open("a", encoding="utf-8") as code:
            code.write(f"\n\ndef late() -> None:\n    import {imported}  # noqa\n")
    done = subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert set(re.findall(r"^(.*) BROKEN", done.stdout, re.MULTILINE)) == set(WRONG)
    assert "homeless" in done.stdout
    for name, (importer, imported) in WRONG.items():
        if name == "no circles":
            assert "allowed in compaction.summary" in done.stdout
        else:
            assert f"{importer} -> {imported}" in done.stdout


# --- lists are whole ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "contract",
    [c for c in CONTRACTS if len(c.get("forbidden_modules", ())) > 10],
    ids=lambda c: c["name"],
)
def test_a_list_of_what_is_forbidden_leaves_nothing_out(contract: dict[str, Any]) -> None:
    own, forbidden = contract["source_modules"], contract["forbidden_modules"]
    package = own[0].split(".")[0]

    def within(name: str, names: list[str]) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in names)

    free = {"compaction.__main__", "grader.__main__", *own}
    for name in MODULES:
        holds_own = any(one.startswith(f"{name}.") for one in own)
        if name.split(".")[0] == package and name not in free and not holds_own:
            assert within(name, own) or within(name, forbidden), f"{name} may be imported"


# --- names in strings -----------------------------------------------------------------------


def names_in_strings(path: Path) -> set[str]:
    """Return the modules that a file names in a string, as ``import_module`` takes them."""
    strings = (n.value for n in ast.walk(ast.parse(path.read_text("utf-8"))) if hasattr(n, "value"))
    named = {text.partition(":")[0] for text in strings if isinstance(text, str)}
    return (named & MODULES.keys()) - PLACES.keys()


def layer_of(name: str) -> int:
    """Return how high a module lies in its package; the higher, the greater."""
    package, _, rest = name.partition(".")
    layers = next(c["layers"] for c in CONTRACTS if c.get("containers") == [package])
    for height, line in enumerate(reversed(layers)):
        if rest.split(".")[0] in re.split(r" [|:] ", line):
            return height
    raise AssertionError(f"{name} has no layer")


# What is named here is copied into a sandbox, or looked up when somebody asks for it by name.
DATA = {"grader.sandbox.inside.protocol"}


def test_a_module_named_in_a_string_lies_no_higher() -> None:
    wrong = []
    for name, path in MODULES.items():
        for other in names_in_strings(path):
            if name.startswith("compaction"):
                bad = other.startswith("grader") or layer_of(other) > layer_of(name)
            else:
                bad = other.startswith("grader") and layer_of(other) > layer_of(name)
            if bad and name not in DATA:
                wrong.append(f"{name} names {other}")
    assert wrong == []


def test_a_name_in_a_string_is_found(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text('load("grader.checks")\nload("grader.learner.functions:functions_of")\n')
    assert names_in_strings(file) == {"grader.checks", "grader.learner.functions"}
