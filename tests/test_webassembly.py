"""A browser edition stays possible: the checks run in WebAssembly on the standard library alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYODIDE = Path(sys.prefix) / "lib" / "node_modules" / "pyodide"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="WebAssembly is run by node")
@pytest.mark.skipif(not PYODIDE.is_dir(), reason="Pyodide is missing: make pyodide")
def test_the_self_test_runs_without_packages_and_without_child_processes() -> None:
    command = ["node", str(ROOT / "tests" / "webassembly.mjs"), str(PYODIDE), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["solutions"] == {"code": 0, "last": "15/15 passed", "error": ""}
    assert (said["labs"]["code"], said["labs"]["last"]) == (1, "6/15 passed"), said["labs"]
    assert "without a time limit" in said["labs"]["error"]
    assert not [name for name in said["foreign"] if not name.startswith("_")]
