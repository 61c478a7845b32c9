"""Compare ways to count, side by side in one run: how far they are off, and how fast they are.

    python benchmarks/count.py [--pieces FILE] [--only errors|speed] [--megabytes 5] [--repeats 5]

First the errors (``accuracy.py``): the mean over the tokenizers, the worst tokenizer, the share
of requests that are counted too low, how much too high on average, and the worst kind of text.
They are measured on the package's own pieces, or on FILE: JSON lines with ``kind``, ``text`` and
``counts`` (tokenizer -> tokens). Then the speeds.

Three texts made of the pieces of the course's data: mixed text with 16 % CJK characters, ASCII
only, and Cyrillic (neither CJK nor ASCII). Megabytes are a million bytes of UTF-8. All ways run
in turn, and the best time of each counts. Exact tokenizers take part when the extra
``tokenizers`` is installed. The texts repeat their pieces, so a tokenizer that remembers words
it has met (splintr-rs) looks faster here than on text that is new to it. CPython keeps a flag
for ASCII in every string, so there ``count_chars`` looks at no character at all.
The exit code is 1 when two ways of counting characters disagree.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from compaction import features
from compaction.measurements import tokenizer_counts
from compaction.tokens import CJK_RANGES, Chars, count_chars

SEED = 20260218
CJK_SHARE = 0.16
LINE_OF_REPORT = "  {:<34} {:>12} {:>10} {:>18}"
OURS = "compaction.tokens.count_chars"


class Text(NamedTuple):
    """A text to count, and what it is called in the report."""

    name: str
    text: str


class Timing(NamedTuple):
    """How long one way takes on one text; ``ratio`` is times the time of ``count_chars``."""

    way: str
    seconds: float
    chars_per_second: float
    ratio: float


# --- the ways -----------------------------------------------------------------------------


def loop_over_ranges(text: str) -> Chars:
    """Count with a plain Python loop: every character against every range."""
    cjk = 0
    for character in text:
        code_point = ord(character)
        for low, high in CJK_RANGES:
            if low <= code_point <= high:
                cjk += 1
                break
    return Chars(cjk, len(text) - cjk)


def loop_unrolled(text: str) -> Chars:
    """Count with a tuned Python loop: comparisons written out, Latin text left at the first."""
    cjk = 0
    for character in text:
        c = ord(character)
        if c < 0x1100:
            continue
        if (
            0x4E00 <= c <= 0x9FFF
            or 0x3000 <= c <= 0x312F
            or 0xAC00 <= c <= 0xD7FF
            or 0x1100 <= c <= 0x11FF
            or 0x2E80 <= c <= 0x2FDF
            or 0x3130 <= c <= 0x318F
            or 0x31A0 <= c <= 0x31BF
            or 0x31F0 <= c <= 0x33FF
            or 0x3400 <= c <= 0x4DBF
            or 0xA960 <= c <= 0xA97F
            or 0xF900 <= c <= 0xFAFF
            or 0xFE30 <= c <= 0xFE4F
            or 0xFF00 <= c <= 0xFFEF
            or 0x20000 <= c <= 0x3FFFF
        ):
            cjk += 1
    return Chars(cjk, len(text) - cjk)


def features_short(text: str) -> object:
    """Count the features without numpy, in stretches of 100,000 characters."""
    return [
        features._count_short(text[start : start + 100_000])
        for start in range(0, len(text), 100_000)
    ]


FEATURE_WAYS: dict[str, Callable[[str], object]] = {
    "features, numpy": features.count_features,
    "features, without numpy": features_short,
}

CHARACTER_WAYS: dict[str, Callable[[str], Chars]] = {
    OURS: count_chars,
    "Python loop over the ranges": loop_over_ranges,
    "Python loop, comparisons unrolled": loop_unrolled,
}


def load_token_ways() -> dict[str, Callable[[str], object]]:
    """Return the exact tokenizers that are installed."""
    from record_tokenizers import load_tiktoken

    ways: dict[str, Callable[[str], object]] = {}
    with suppress(ModuleNotFoundError):
        ways["exact: tiktoken, o200k_base"] = load_tiktoken("o200k_base")
    with suppress(ModuleNotFoundError):
        from splintr import Tokenizer

        ways["exact: splintr-rs, qwen3"] = Tokenizer.from_pretrained("qwen3").encode_ordinary
    return ways


# --- the texts ----------------------------------------------------------------------------


def make_texts(megabytes: float) -> list[Text]:
    """Put the texts together from the pieces, the same in every run."""
    pieces = tokenizer_counts().pieces
    cjk = [p.text for p in pieces if p.kind in ("chinese", "japanese", "korean")]
    other = [p.text for p in pieces if p.chars.cjk == 0]
    russian = [p.text for p in pieces if p.kind == "russian"]
    limit = round(megabytes * 1_000_000)
    mixed = take_bytes(mix(cjk, other), limit)
    ascii_only = take_bytes(shuffled([text for text in other if text.isascii()]), limit)
    share = count_chars(mixed).cjk / len(mixed)
    return [
        Text(f"mixed, {100 * share:.0f} % CJK", mixed),
        Text("ASCII only", ascii_only),
        Text("Cyrillic", take_bytes(shuffled(russian), limit)),
    ]


def shuffled(texts: list[str]) -> Iterator[str]:
    """Yield the texts for ever, in an order drawn under the seed."""
    order = random.Random(SEED).sample(texts, len(texts))
    return cycle(order)


def mix(cjk: list[str], other: list[str]) -> Iterator[str]:
    """Yield texts for ever, a CJK one whenever the share of CJK characters has fallen short."""
    cjk_texts, other_texts = shuffled(cjk), shuffled(other)
    seen = Chars(0, 0)
    while True:
        short = seen.cjk < CJK_SHARE * sum(seen)
        text = next(cjk_texts if short else other_texts)
        added = count_chars(text)
        seen = Chars(seen.cjk + added.cjk, seen.other + added.other)
        yield text


def take_bytes(texts: Iterator[str], limit: int) -> str:
    """Join texts, a line each, up to ``limit`` bytes of UTF-8 (the last one may run over)."""
    taken, size = [], 0
    while size < limit:
        taken.append(next(texts) + "\n")
        size += len(taken[-1].encode())
    return "".join(taken)


# --- measuring ----------------------------------------------------------------------------


def time_all(text: str, ways: dict[str, Callable[[str], object]], repeats: int) -> dict[str, float]:
    """Return the best time of each way in seconds; the ways take turns."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for way, count in ways.items():
            start = time.perf_counter()
            count(text)
            best[way] = min(best[way], time.perf_counter() - start)
    return best


def compare(text: str, ways: dict[str, Callable[[str], object]], repeats: int) -> list[Timing]:
    """Time all ways on a text, relative to ``count_chars``."""
    best = time_all(text, ways, repeats)
    return [
        Timing(way, seconds, len(text) / seconds, seconds / best[OURS])
        for way, seconds in best.items()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description="Compare ways to count characters and tokens.")
    parser.add_argument("--megabytes", type=float, default=5.0, help="size of each text (5)")
    parser.add_argument("--repeats", type=int, default=5, help="runs; the best one counts (5)")
    parser.add_argument("--only", choices=("errors", "speed"), help="one half of the comparison")
    parser.add_argument("--pieces", type=Path, help="pieces with exact counts, JSON lines")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(arguments)
    if not 0 < options.megabytes <= 1000 or options.repeats < 1:
        parser.error("--megabytes must be above 0 (and at most 1000), --repeats 1 or more")

    report: dict[str, object] = {}
    if options.only != "speed":
        try:
            report["errors"] = compare_errors(options.pieces, quiet=options.json)
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"count: {options.pieces}: no usable pieces ({error})", file=sys.stderr)
            return 2
    if options.only != "errors":
        try:
            texts = compare_speeds(options.megabytes, options.repeats, quiet=options.json)
        except ValueError as error:
            print(f"count: {error}", file=sys.stderr)
            return 1
        report |= {"repeats": options.repeats, "texts": texts}
    if options.json:
        print(json.dumps(report, indent=2))
    return 0


def compare_errors(pieces: Path | None, *, quiet: bool) -> dict[str, object]:
    """Judge all ways, print the tables unless ``quiet``, return them."""
    from accuracy import judge_all, print_scores, read_texts

    scores = judge_all(read_texts(pieces))
    if not quiet:
        print_scores(scores)
    return {title: [score._asdict() for score in found] for title, found in scores.items()}


def compare_speeds(megabytes: float, repeats: int, *, quiet: bool) -> list[dict[str, object]]:
    """Time all ways, print the tables unless ``quiet``, return them.

    Raises ``ValueError`` when two ways of counting characters disagree.
    """
    token_ways = load_token_ways()
    ways: dict[str, Callable[[str], object]] = {**CHARACTER_WAYS, **FEATURE_WAYS, **token_ways}
    results: list[dict[str, object]] = []
    for name, text in make_texts(megabytes):
        counts = {way: count(text) for way, count in CHARACTER_WAYS.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"the ways disagree on {name}: {counts}")
        timings = compare(text, ways, repeats)
        results.append({"text": name, "bytes": len(text.encode()), "characters": len(text)})
        results[-1]["ways"] = [timing._asdict() for timing in timings]
        if not quiet:
            print_report(results[-1], timings)
    if not quiet and not token_ways:
        print("No exact tokenizer here: pip install -e '.[tokenizers]' adds two.")
    return results


def print_report(result: dict[str, object], timings: list[Timing]) -> None:
    """Print the lines of one text."""
    print(f"{result['text']}: {result['bytes']:,} bytes, {result['characters']:,} characters")
    print(LINE_OF_REPORT.format("way", "time", "Mchar/s", "count_chars is"))
    for way, seconds, per_second, ratio in timings:
        faster = "" if way == OURS else f"{ratio:,.{0 if ratio > 99 else 1}f} x as fast"
        milliseconds = f"{1000 * seconds:,.3f} ms"
        print(LINE_OF_REPORT.format(way, milliseconds, f"{per_second / 1e6:,.1f}", faster).rstrip())
    print()


if __name__ == "__main__":
    raise SystemExit(main())
