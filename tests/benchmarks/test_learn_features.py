"""Weights are learned again from pieces whose tokens obey known weights."""

from __future__ import annotations

import json
import random
from importlib.resources import files

import pytest

from benchmarks import learn_features
from compaction.features import FEATURES, count_features, learned

ATOMS = [
    *("word", "a" * 11, "aB", "aB7" * 8, " 7", "4711", " ;", ");", "  ", "\n"),
    *"abAB74,;  你好あ한дéשไ→🙂",
]


def pieces(n=60):
    """Return pieces that cost exactly what the packaged weights say, in two tokenizers."""
    rng = random.Random(4)
    for index in range(n):
        text = "".join(rng.choices(ATOMS, weights=[rng.random() for _ in ATOMS], k=400))
        cost = sum(w * c for w, c in zip(learned().tokens, count_features(text), strict=True))
        counts = {"one": cost, "two": cost}
        yield {"kind": str(index % 5), "source": str(index % 3), "text": text, "counts": counts}


def written(tmp_path, rows):
    path = tmp_path / "pieces.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_known_weights_come_back(tmp_path, capsys):
    out = tmp_path / "weights.json"
    rows = list(pieces())
    assert learn_features.main([str(written(tmp_path, rows)), "--out", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert list(found["tokens"]) == list(FEATURES)
    for name, weight in zip(FEATURES, learned().tokens, strict=True):
        assert found["tokens"][name] == pytest.approx(weight, rel=0.1, abs=0.05), name
    assert list(found["factors"]) == ["one", "two"]
    report = capsys.readouterr().out
    assert "error a piece, learned from all:" in report and "two        left out:" in report


def test_own_pieces_are_learned_from_and_margin_comes_of_what_was_left_out(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(learn_features, "REQUESTS", 8)
    monkeypatch.setattr(learn_features, "FOLDS", 3)
    out = tmp_path / "weights.json"
    assert learn_features.main(["--own", "--out", str(out)]) == 0
    report = capsys.readouterr().out
    assert "9 tokenizers" in report and "standard deviations to the upper bound:" in report
    found = json.loads(out.read_text(encoding="utf-8"))
    packaged = (files("compaction") / "data" / "feature_weights.json").read_text(encoding="utf-8")
    assert found.keys() == json.loads(packaged).keys()
    assert 1 < found["margin"] < 4


@pytest.mark.parametrize("line", ["", "{", '{"kind": "a"}', "[1]"])
def test_pieces_that_cannot_be_used_are_named(tmp_path, capsys, line):
    path = tmp_path / "pieces.jsonl"
    path.write_text(line, encoding="utf-8")
    assert learn_features.main([str(path)]) == 2
    assert "pieces.jsonl" in capsys.readouterr().err
