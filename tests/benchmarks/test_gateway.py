"""The gateway's timing script runs, names what it timed, and judges by its own limit."""

from __future__ import annotations

import json

import pytest

from benchmarks import gateway


def test_the_script_times_starts_and_requests(capsys):
    code = gateway.main(["--repeats", "1", "--requests", "2", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == (0 if report["in_time"] else 1)
    names = [timing["name"] for timing in report["timings"]]
    assert names[0].startswith("start from nothing") and len(names) == 5
    for timing in report["timings"]:
        assert 0 < timing["best_ms"] <= timing["median_ms"]


def test_a_start_over_the_limit_fails(monkeypatch, capsys):
    for start_ms, code, verdict in ((299.0, 0, "is under"), (300.0, 1, "is NOT under")):
        timings = [gateway.Timing("start", start_ms, start_ms)]
        monkeypatch.setattr(gateway, "measure", lambda *_, timings=timings: timings)
        assert gateway.main([]) == code
        assert verdict in capsys.readouterr().out


def test_nothing_to_repeat_is_refused(capsys):
    with pytest.raises(SystemExit):
        gateway.main(["--repeats", "0"])
    assert "at least 1 repeat" in capsys.readouterr().err
