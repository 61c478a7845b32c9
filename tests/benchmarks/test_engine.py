"""The engine's benchmark counts characters, and fails when counting is not linear."""

from __future__ import annotations

import json

import pytest

from benchmarks import engine
from compaction.calibration import TokenMeter


def test_the_script_shows_what_the_meter_saves(capsys):
    assert engine.main(["--turns", "600", "300", "--megabytes", "0.1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["linear"]
    times = {(s["name"], s["turns"]): s["times"] for s in report["sessions"]}
    assert len(times) == 5
    assert times["no pass", 600] == pytest.approx(times["no pass", 300], rel=0.05)
    assert times["all anew each time", 100] > 20 * times["no pass", 300]
    passes = {(s["name"], s["turns"]): s["passes"] for s in report["sessions"]}
    assert passes["no pass", 600] == 0 < passes["with passes", 300]
    assert 0 < report["document"]["tokens"] <= report["document"]["budget"]


def test_a_counter_that_forgets_is_found_out():
    sessions = [
        engine.run_session(name, turns, engine.LARGE_WINDOW, counter)
        for name, counter in (("no pass", engine.Forgetful()), ("with passes", TokenMeter()))
        for turns in (20, 60)
    ]
    assert not engine.is_linear(sessions)


def test_the_table_is_for_people(capsys):
    assert engine.main(["--turns", "40", "--megabytes", "0.05"]) == 0
    printed = capsys.readouterr().out
    assert "counting is linear in the text" in printed
    assert "ms a turn" in printed and "sections named as dropped" in printed


@pytest.mark.parametrize("wrong", [["--turns", "0"], ["--megabytes", "0"]])
def test_sizes_that_make_no_sense_are_refused(wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        engine.main(wrong)
    assert caught.value.code == 2
    assert "expected at least 1 turn" in capsys.readouterr().err
