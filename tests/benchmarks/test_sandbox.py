"""The sandbox's script runs, names what it measured, and judges by its own limit."""

from __future__ import annotations

import json
import os

import pytest

from benchmarks import sandbox


@pytest.mark.skipif(os.name == "nt", reason="the system's account is read from /proc")
def test_the_script_measures_submission_start_and_checks(capsys):
    code = sandbox.main("--repeats 2 --days 1 2 --isolation limits --json".split())
    report = json.loads(capsys.readouterr().out)
    assert (report["isolation"], report["repeats"]) == ("limits", 2)
    assert list(report["days"]) == ["day1_estimate", "day2_calibrate"]
    for costs in report["days"].values():
        assert list(costs) == ["submission", "start", "checks"]
        assert 0 < costs["checks"]["wall_ms"] < costs["submission"]["wall_ms"]
    dearest = max(costs["submission"]["cpu_ms"] for costs in report["days"].values())
    assert code == (0 if dearest < sandbox.LIMIT_MS else 1)


def test_a_dear_submission_fails(monkeypatch, capsys):
    for cpu_ms, code in ((149.0, 0), (150.0, 1)):
        cost = sandbox.Cost(cpu_ms, 300.0)
        row = sandbox.Row("day1_estimate", cost, cost, cost)
        monkeypatch.setattr(sandbox, "measure", lambda *_, row=row: row)
        assert sandbox.main("--days 1 --isolation process".split()) == code
        assert f"day1_estimate          {cpu_ms}     300.0" in capsys.readouterr().out


def test_a_day_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit):
        sandbox.main(["--days", "9"])
    assert "invalid choice: 9" in capsys.readouterr().err
