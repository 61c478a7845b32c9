"""What importing costs: the library is light, and loads what is heavy only when it is needed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("numpy", "openai", "matplotlib", "rich", "tornado", "IPython", "prompt_toolkit", "httpx")
LIGHT_MODULES = (
    "compaction",
    "compaction.messages",
    "compaction.tokens",
    "compaction.calibration",
    "compaction.budget",
    "compaction.grouping",
    "compaction.summary",
    "compaction.probes",
    "compaction.carrying",
    "compaction.session",
    "compaction.history",
    "compaction.measurements",
    "compaction.files",
    "compaction.cli",
)


def loaded_after(code: str) -> set[str]:
    """Return the packages that a fresh Python has loaded after running some code."""
    script = f"{code}\nimport json, sys\nprint()\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_importing_a_module_loads_nothing_heavy(module):
    assert loaded_after(f"import {module}").isdisjoint(HEAVY)


def test_importing_the_package_loads_no_module_of_it():
    loaded = {name for name in loaded_after("import compaction") if name.startswith("compaction")}
    assert loaded == {"compaction"}


WORK = """
from compaction.calibration import TokenMeter
from compaction.probes import pinned_probes
from compaction.session import load
from compaction.summary import compact
from compaction.budget import budget_table
history = load("long").messages
compact(history, probes=pinned_probes(history))
budget_table(history, 1800)
"""


def test_a_whole_compaction_of_a_short_history_needs_nothing_heavy():
    assert loaded_after(WORK).isdisjoint(HEAVY)


def test_short_mixed_text_is_counted_without_numpy():
    code = "from compaction.tokens import estimate\nestimate('你好 world' * 1000)"
    assert "numpy" not in loaded_after(code)


def test_long_mixed_text_is_counted_with_numpy():
    code = "from compaction.tokens import estimate\nestimate('你好 world' * 100_000)"
    assert "numpy" in loaded_after(code)


def test_long_ascii_text_is_counted_without_numpy():
    code = "from compaction.tokens import estimate\nestimate('hello world' * 100_000)"
    assert "numpy" not in loaded_after(code)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["estimate", "--help"]])
def test_the_command_line_answers_without_loading_the_heavy(arguments):
    code = (
        "from compaction import cli\n"
        f"try:\n    cli.main({arguments})\nexcept SystemExit:\n    pass\n"
    )
    loaded = loaded_after(code)
    assert loaded.isdisjoint(HEAVY)
    assert not {"compaction.agent", "compaction.gateway", "compaction.carrying"} & loaded
