"""The speed comparison compares like with like, and says so when it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import count
from compaction.tokens import CJK_RANGES, Chars, count_chars

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "count.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("way", list(count.CHARACTER_WAYS.values()))
def test_every_way_counts_every_code_point_alike(way):
    inside = sum(high - low + 1 for low, high in CJK_RANGES)
    everything = "".join(map(chr, range(0x110000)))
    assert way(everything) == Chars(inside, 0x110000 - inside)


def test_texts_are_what_they_are_called():
    mixed, ascii_only, cyrillic = count.make_texts(0.3)
    assert mixed.name == "mixed, 16 % CJK"
    assert count_chars(mixed.text).cjk / len(mixed.text) == pytest.approx(0.16, abs=0.005)
    assert ascii_only.text.isascii()
    assert not cyrillic.text.isascii() and count_chars(cyrillic.text).cjk == 0
    for _, text in (mixed, ascii_only, cyrillic):
        assert 300_000 <= len(text.encode()) < 303_000
    assert count.make_texts(0.3) == [mixed, ascii_only, cyrillic]


def test_the_script_prints_the_ratios():
    done = run("--only", "speed", "--megabytes", "0.3", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Python loop over the ranges") == 3
    assert done.stdout.count("x as fast") >= 6


def test_json_holds_the_same_figures():
    done = run("--only", "speed", "--megabytes", "0.3", "--repeats", "2", "--json")
    texts = json.loads(done.stdout)["texts"]
    assert [text["text"] for text in texts] == ["mixed, 16 % CJK", "ASCII only", "Cyrillic"]
    for text in texts:
        ours, loop, *_ = text["ways"]
        assert (ours["way"], ours["ratio"]) == (count.OURS, 1.0)
        assert loop["ratio"] == pytest.approx(loop["seconds"] / ours["seconds"])
        # The true ratio is above 50; this bound holds on a machine that is busy as well.
        assert loop["ratio"] > 10


def test_ways_that_disagree_stop_the_comparison(monkeypatch, capsys):
    monkeypatch.setitem(count.CHARACTER_WAYS, "wrong", lambda text: Chars(0, len(text)))
    monkeypatch.setattr(count, "load_token_ways", dict)
    assert count.main(["--only", "speed", "--megabytes", "0.05", "--repeats", "1"]) == 1
    assert "the ways disagree on mixed" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--megabytes", "0"), ("--repeats", "0")])
def test_sizes_that_make_no_sense_are_refused(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert "must be above 0" in done.stderr


def test_errors_of_all_ways_stand_side_by_side(tmp_path):
    kinds = {"prose": "The survey took nine days. ", "figures": "4711, 0815; ", "Han": "九天。"}
    rows = [
        {"kind": kind, "text": text * n, "counts": {"exact": 6 * n, "other": 7 * n}}
        for kind, text in kinds.items()
        for n in (10, 20, 30, 40)
    ]
    path = tmp_path / "pieces.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = run("--only", "errors", "--pieces", str(path), "--json")
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)["errors"]
    assert {"before any usage", "after 3 requests", "after 20 requests"} < set(errors)
    for scores in errors.values():
        for score in scores:
            assert 0 <= score["error"] <= score["worst"]
            assert 0 <= score["under"] <= 1
    before = {score["way"]: score for score in errors["before any usage"]}
    assert before["FeatureMeter.at_most"]["under"] < before["two terms"]["under"]


@pytest.mark.parametrize("text", ["", "{}", '{"kind": "a"}', "no JSON"])
def test_pieces_that_cannot_be_used_are_named(tmp_path, text):
    path = tmp_path / "pieces.jsonl"
    path.write_text(text, encoding="utf-8")
    done = run("--only", "errors", "--pieces", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "pieces.jsonl" in done.stderr and "Traceback" not in done.stderr
