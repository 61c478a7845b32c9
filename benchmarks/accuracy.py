"""How far ways to count are off: before any usage was seen, and after some requests were.

``count.py`` prints it beside the speeds. Requests are made of one to five pieces of text, a
message each, whose exact costs are known in several tokenizers; a message costs 4 tokens more.
The requests that a way learns from and those that judge it come from different halves of the
pieces.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from compaction.calibration import FeatureMeter, Sample, TokenMeter, fit, size_of
from compaction.measurements import tokenizer_counts
from compaction.messages import Message, transcript
from compaction.tokens import DEFAULT, Coefficients, estimate

SEED = 20260218
MESSAGE_TOKENS = 4
LINE = "  {:<34} {:>7} {:>7} {:>7} {:>7}  {}"


class Text(NamedTuple):
    """A piece of text, what it is, and its exact cost: tokenizer -> tokens."""

    kind: str
    text: str
    tokens: Mapping[str, int]


class Request(NamedTuple):
    """A request and what it really costs."""

    messages: list[Message]
    tokens: int


class Score(NamedTuple):
    """How far a way is off: fractions of the real count."""

    way: str
    error: float
    worst: float
    under: float
    over: float
    worst_kind: str


Count = Callable[[list[Message]], float]
Learn = Callable[[Sequence[Request]], Count]


# --- the ways: each takes the observed requests and hands back a counter -----------------------


def quarter(observed: Sequence[Request]) -> Count:
    """A quarter of a token a character."""
    return lambda messages: len(transcript(messages)) / 4


def two_terms(observed: Sequence[Request]) -> Count:
    """Day 1's estimate with its default table."""
    return lambda messages: estimate(transcript(messages))


def two_terms_fitted(observed: Sequence[Request]) -> Count:
    """Day 2's plain fit."""
    samples = []
    for request in observed:
        sizes = [size_of(message) for message in request.messages]
        samples.append(
            Sample(sum(size.cjk for size in sizes), sum(s.other for s in sizes), request.tokens)
        )
    table: Coefficients = fit(samples, DEFAULT).coefficients
    return lambda messages: estimate(transcript(messages), table)


def token_meter(observed: Sequence[Request]) -> Count:
    """The course's meter, which multiplies by its last ratio."""
    meter = TokenMeter()
    for request in observed:
        meter.observe(request.messages, request.tokens)
    meter.calibrate()
    return meter.count


def class_table(observed: Sequence[Request]) -> Count:
    """A table of classes of words, times the factor that fits the observed requests."""
    factor = 1.0
    if observed:
        ratios = sorted(r.tokens / max(1, classes_of(r.messages)) for r in observed)
        factor = ratios[len(ratios) // 2]
    return lambda messages: factor * classes_of(messages)


_SPLIT = re.compile(r"(\s+|[.,!?;(){}\[\]<>:/\\|@#$%^&*+=`~_-]+)")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
_ACCENTED = re.compile("[\u00c0-\u017f]")


def classes_of(messages: list[Message]) -> int:
    """Count by the rule of the tokenx package: words of six letters, CJK one by one."""
    return sum(map(_class_tokens, _SPLIT.split(transcript(messages))))


def _class_tokens(part: str) -> int:
    if not part or part.isspace():
        return 0
    if _CJK.search(part):
        return len(part)
    if part.isdigit() or len(part) <= 3:
        return 1
    if _SPLIT.fullmatch(part):
        return math.ceil(len(part) / 2)
    return math.ceil(len(part) / (3 if _ACCENTED.search(part) else 6))


def features(observed: Sequence[Request]) -> Count:
    """The meter for real histories."""
    return _feature_meter(observed).count


def features_at_most(observed: Sequence[Request]) -> Count:
    """Its upper bound."""
    return _feature_meter(observed).at_most


def _feature_meter(observed: Sequence[Request]) -> FeatureMeter:
    meter = FeatureMeter()
    for request in observed:
        meter.observe(request.messages, request.tokens)
    meter.calibrate()
    return meter


BEFORE: dict[str, Learn] = {
    "characters / 4": quarter,
    "two terms": two_terms,
    "class table": class_table,
    "FeatureMeter.count": features,
    "FeatureMeter.at_most": features_at_most,
}
AFTER: dict[str, Learn] = {
    "two terms, plain fit": two_terms_fitted,
    "TokenMeter": token_meter,
    "class table × factor": class_table,
    "FeatureMeter.count": features,
    "FeatureMeter.at_most": features_at_most,
}


def with_langchain(ways: dict[str, Learn]) -> dict[str, Learn]:
    """Return the ways and, where it is installed, LangChain's approximate count."""
    with suppress(ImportError):
        from langchain_core.messages.utils import count_tokens_approximately

        return {**ways, "LangChain, approximate": lambda observed: count_tokens_approximately}
    return ways


# --- judging -------------------------------------------------------------------------------------


def read_texts(path: Path | None) -> list[Text]:
    """Read pieces from JSON lines (``kind``, ``text``, ``counts``), or take the package's own."""
    if path is None:
        pieces = tokenizer_counts(more=True).pieces
        return [Text(piece.kind, piece.text, piece.tokens) for piece in pieces]
    rows = list(map(json.loads, path.read_text(encoding="utf-8").splitlines()))
    if len(rows) < 2:
        raise ValueError("two pieces are needed, one to learn from and one to judge by")
    return [Text(row["kind"], row["text"], row["counts"]) for row in rows]


def request_of(texts: Sequence[Text], tokenizer: str) -> Request:
    """Put texts together, a message each."""
    messages: list[Message] = [
        {"role": ("user", "assistant")[index % 2], "content": text.text}
        for index, text in enumerate(texts)
    ]
    return Request(messages, sum(text.tokens[tokenizer] + MESSAGE_TOKENS for text in texts))


def draw(rng: random.Random, texts: Sequence[Text], tokenizer: str) -> Request:
    """Draw a request of one to five texts."""
    return request_of([rng.choice(texts) for _ in range(rng.randint(1, 5))], tokenizer)


def judge(
    way: str, learn: Learn, texts: Sequence[Text], n: int, *, strange: bool = False, runs: int = 3
) -> Score:
    """Judge a way after ``n`` observed requests; with ``strange``, three absurd ones are added."""
    errors: dict[str, list[float]] = {}
    kinds: dict[str, list[float]] = {}
    for tokenizer in texts[0].tokens:
        # The same requests for every way.
        rng = random.Random(f"{SEED} {tokenizer} {n}")
        for _ in range(runs):
            order = rng.sample(texts, len(texts))
            seen, unseen = order[::2], order[1::2]
            observed = [draw(rng, seen, tokenizer) for _ in range(n)]
            for times in (5, 0.2, 12) if strange else ():
                odd = draw(rng, seen, tokenizer)
                observed.insert(n // 2, Request(odd.messages, round(times * odd.tokens)))
            count = learn(observed)
            for request in [draw(rng, unseen, tokenizer) for _ in range(40)]:
                off = count(request.messages) / request.tokens - 1
                errors.setdefault(tokenizer, []).append(off)
            for text in unseen:
                request = request_of([text], tokenizer)
                off = count(request.messages) / request.tokens - 1
                kinds.setdefault(text.kind, []).append(off)
    every = [off for offs in errors.values() for off in offs]
    means = [fmean(map(abs, offs)) for offs in errors.values()]
    kind = max(kinds, key=lambda name: fmean(map(abs, kinds[name])))
    return Score(
        way,
        fmean(means),
        max(means),
        fmean(off < 0 for off in every),
        fmean(every),
        f"{kind} {fmean(map(abs, kinds[kind])):.0%}",
    )


def judge_additions(texts: Sequence[Text], n: int = 20) -> Score:
    """Judge what ``FeatureMeter`` adds for one more text to a session of ``n`` requests."""
    errors: dict[str, list[float]] = {}
    for tokenizer in texts[0].tokens:
        rng = random.Random(f"{SEED} {tokenizer} session")
        for _ in range(3):
            order = rng.sample(texts, len(texts))
            meter, session = FeatureMeter(), []
            for _ in range(n):
                session.append(rng.choice(order[::2]))
                meter.observe(*request_of(session, tokenizer))
            meter.calibrate()
            known = request_of(session, tokenizer).tokens
            for text in order[1::2]:
                real = text.tokens[tokenizer] + MESSAGE_TOKENS
                added = meter.count(request_of([*session, text], tokenizer).messages) - known
                errors.setdefault(tokenizer, []).append(added / real - 1)
    every = [off for offs in errors.values() for off in offs]
    means = [fmean(map(abs, offs)) for offs in errors.values()]
    under = fmean(off < 0 for off in every)
    return Score("FeatureMeter, one text more", fmean(means), max(means), under, fmean(every), "")


def judge_all(texts: Sequence[Text]) -> dict[str, list[Score]]:
    """Judge all ways; title -> scores."""
    results = {
        "before any usage": [judge(w, f, texts, 0) for w, f in with_langchain(BEFORE).items()]
    }
    for n in (3, 20):
        results[f"after {n} requests"] = [judge(w, f, texts, n) for w, f in AFTER.items()]
    odd = judge("FeatureMeter.count", features, texts, 20, strange=True)
    results["after 20 requests and 3 absurd ones"] = [odd]
    results["a session of 20 requests"] = [judge_additions(texts)]
    return results


def print_scores(results: Mapping[str, Sequence[Score]]) -> None:
    """Print the tables."""
    for title, scores in results.items():
        print(LINE.format(title, "error", "worst", "under", "over", "worst kind"))
        for way, error, worst, under, over, kind in scores:
            figures = [f"{value:.1%}" for value in (error, worst, under, over)]
            print(LINE.format(way, *figures, kind).rstrip())
        print()
