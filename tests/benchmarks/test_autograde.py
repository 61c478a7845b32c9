"""The measurement of grading a class: a class as it is described, and figures that are there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import autograde


def test_a_class_has_all_kinds_and_no_two_are_the_same(tmp_path: Path) -> None:
    handed_in = autograde.make_class(tmp_path, 12)
    paths = sorted(tmp_path.glob("grader/classroom/submitted/*/*/*.ipynb"))
    assert len(paths) == len(handed_in) == 12
    texts = [path.read_text() for path in paths]
    assert len(set(texts)) == 12
    broken = [text for text in texts if "def broken(:" in text]
    cut = [text for text in texts if not text.rstrip().endswith("}")]
    assert (len(broken), len(cut)) == (1, 1)


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_figures_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert autograde.main(["--submissions", "4", "--stock", "1", "--jobs", "1", "--json"]) == 0
    stock, ours = json.loads(capsys.readouterr().out)
    assert (stock["submissions"], stock["graded"]) == (1, 1)
    assert (ours["submissions"], ours["graded"]) == (4, 4)
    for run in (stock, ours):
        assert run["seconds"] > 0 and run["cpu_s"] > 0 and run["largest_mib"] > 10
        assert run["a_minute"] == pytest.approx(60 * run["submissions"] / run["seconds"])
    assert ours["ratio"] == pytest.approx(ours["a_minute"] / stock["a_minute"])
