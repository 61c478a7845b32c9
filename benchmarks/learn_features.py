"""Learn what each feature of a text costs, from exact counts of many tokenizers.

    python benchmarks/learn_features.py PIECES ... [--own] [--out FILE]

PIECES holds one JSON object a line: ``kind``, ``source``, ``text``, and ``counts`` (tokenizer ->
tokens); ``--own`` adds the pieces of this package. One weight a feature is fitted to all
tokenizers at once, by least squares of the relative error, none below zero. Each tokenizer's
factors on the weights are fitted in the same way, drawn towards 1. The margin is what keeps 95 of
100 requests below the upper bound when they are made of kinds that nothing was learned from.
The report says how well the weights do on what they were not learned from: each tokenizer, each
kind and each source in turn is left out. Without ``--out`` nothing is written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from compaction.feature_model import MESSAGE_TOKENS, FeatureModel
from compaction.features import FEATURES, count_features
from compaction.files import write_whole
from compaction.measurements import tokenizer_counts

RIDGE = 1e-4
"""Keeps a feature that hardly occurs from an absurd weight; relative to the mean square error."""

RARE, RARE_SHARE = ("european", "interface", "world"), 0.15
"""Kinds of our own that hold a language a piece: most of what agents carry is English and code."""

FOLDS, REQUESTS, SAFE = 8, 60, 0.95
"""Groups of kinds left out in turn, requests drawn from each for a tokenizer, and the share of
them that the margin keeps below the upper bound."""

PRIOR_SPREAD, COMMON_SPREAD, NOISE = 0.35, 0.13, 0.08
"""How far a tokenizer's weights are first thought to lie from the common ones (each, and all of
them together), and a piece's tokens from what any weights say: fractions."""


class Pieces(NamedTuple):
    """The pieces as arrays: features (pieces × features) and tokens (pieces × tokenizers).

    ``shares`` says how much each piece counts.
    """

    kinds: list[str]
    sources: list[str]
    tokenizers: list[str]
    features: Any
    tokens: Any
    shares: Any

    def where(self, chosen: Any) -> Pieces:
        """Return the chosen pieces (a mask)."""
        return self._replace(
            kinds=[kind for kind, taken in zip(self.kinds, chosen, strict=True) if taken],
            sources=[source for source, taken in zip(self.sources, chosen, strict=True) if taken],
            features=self.features[chosen],
            tokens=self.tokens[chosen],
            shares=self.shares[chosen],
        )


Row = tuple[str, str, str, Mapping[str, int]]


def read_rows(path: Path) -> list[Row]:
    """Read pieces; raises ``ValueError`` that names the line that cannot be used."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            rows.append((row["kind"], row["source"], row["text"], row["counts"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not a piece ({error})") from None
    return rows


def own_rows() -> list[Row]:
    """Return the pieces of this package."""
    pieces = tokenizer_counts(more=True).pieces
    return [(piece.kind, f"own {piece.kind}", piece.text, piece.tokens) for piece in pieces]


def arrays_of(rows: Sequence[Row]) -> Pieces:
    """Return the pieces as arrays; the tokenizers are those of the first one."""
    tokenizers = list(rows[0][3]) if rows else []
    return Pieces(
        [row[0] for row in rows],
        [row[1] for row in rows],
        tokenizers,
        np.array([count_features(row[2]) for row in rows], dtype=float),
        np.array([[row[3][name] for name in tokenizers] for row in rows], dtype=float),
        np.array([RARE_SHARE if row[0] in RARE else 1.0 for row in rows]),
    )


def learn(pieces: Pieces) -> Any:
    """Return the tokens a feature that minimise the mean square of the relative error."""
    features, tokens = pieces.features, pieces.tokens
    # One equation a piece and tokenizer: features / tokens times the weights is 1.
    rows = (features[:, None, :] / tokens[:, :, None]).reshape(-1, features.shape[1])
    shares = np.repeat(pieces.shares, tokens.shape[1])[:, None]
    scale = np.sqrt((shares * rows**2).mean(axis=0)) + 1e-12
    active = np.ones(len(scale), dtype=bool)
    while True:
        used = rows[:, active] / scale[active]
        gram = (shares * used).T @ used / len(used) + RIDGE * np.eye(used.shape[1])
        found = np.zeros(len(scale))
        found[active] = np.linalg.solve(gram, (shares * used).mean(axis=0)) / scale[active]
        if (found >= 0).all():
            return found
        # A feature that would pay back is left out, and the others are fitted anew.
        active &= found >= 0


def all_factors(pieces: Pieces, weights: Any) -> Any:
    """Return the factors of every tokenizer on the common weights (tokenizers × features)."""
    columns = pieces.tokens.T
    return np.array([factors_of(pieces, column, weights) for column in columns])


def factors_of(pieces: Pieces, tokens: Any, weights: Any) -> Any:
    """Return one tokenizer's factors on the common weights, drawn towards one another and 1."""
    features, shares = pieces.features, pieces.shares[:, None]
    costs = features * weights / tokens[:, None]
    # A column for the factor that all features share; the others deviate from it.
    rows = np.column_stack([costs.sum(axis=1), costs])
    spread = np.array([COMMON_SPREAD] + [PRIOR_SPREAD] * len(weights))
    gram = (shares * rows).T @ rows / NOISE**2 + np.diag(spread**-2.0)
    shift = np.linalg.solve(gram, (shares * rows).T @ (1 - costs.sum(axis=1)) / NOISE**2)
    return 1 + shift[0] + shift[1:]


def mean_error(features: Any, tokens: Any, weights: Any) -> float:
    """Return the mean of the relative error's size, as a fraction."""
    return float(np.abs((features @ weights)[:, None] / tokens - 1).mean())


def left_out_by_group(pieces: Pieces, groups: Sequence[str]) -> float:
    """Return the mean error on pieces whose group was left out when the weights were learned."""
    total = 0.0
    for group in dict.fromkeys(groups):
        out = np.array([name == group for name in groups])
        weights = learn(pieces.where(~out))
        total += out.sum() * mean_error(pieces.features[out], pieces.tokens[out], weights)
    return total / len(groups)


def left_out_by_tokenizer(pieces: Pieces) -> dict[str, float]:
    """Return the mean error for each tokenizer with weights learned from the others."""
    errors = {}
    for index, name in enumerate(pieces.tokenizers):
        others = pieces._replace(tokens=np.delete(pieces.tokens, index, axis=1))
        errors[name] = mean_error(pieces.features, pieces.tokens[:, [index]], learn(others))
    return errors


def safe_margin(pieces: Pieces) -> float:
    """Return how many standard deviations above the count 95 of 100 requests stay.

    The requests are one to five pieces of kinds that nothing was learned from; a piece's share
    is how often it is drawn.
    """
    rng = np.random.default_rng(20260218)
    kinds = np.array(pieces.kinds)
    folds = np.array_split(rng.permutation(np.unique(kinds)), min(FOLDS, len(set(kinds))))
    above: list[float] = []
    for fold in folds:
        out = np.isin(kinds, fold)
        rest, left = pieces.where(~out), pieces.where(out)
        weights = learn(rest)
        model = FeatureModel(tuple(weights), tuple(map(tuple, all_factors(rest, weights))))
        for column in left.tokens.T:
            for _ in range(REQUESTS):
                size = rng.integers(1, 6)
                drawn = rng.choice(len(column), size, p=left.shares / left.shares.sum())
                vector = (*map(float, left.features[drawn].sum(axis=0)), float(size), 0.0)
                real = column[drawn].sum() + MESSAGE_TOKENS * size
                above.append((real - model.tokens(vector)) / model.deviation(vector))
    return float(np.quantile(above, SAFE))


def record(pieces: Pieces, weights: Any, factors: Any, margin: float) -> str:
    """Return the data file's text: three digits are more than the data can tell."""
    learned = {
        "about": "Tokens a feature, what each tokenizer charges as a share of them, and the "
        "standard deviations to the upper bound. Written by benchmarks/learn_features.py; never "
        "edited.",
        "margin": round(margin, 2),
        "tokens": by_feature(weights, 3),
        "factors": {
            tokenizer: by_feature(row, 2)
            for tokenizer, row in zip(pieces.tokenizers, factors, strict=True)
        },
    }
    return json.dumps(learned, indent=1) + "\n"


def by_feature(values: Any, digits: int) -> dict[str, float]:
    """Return rounded values by the name of the feature."""
    rounded = (round(float(value), digits) for value in values)
    return dict(zip(FEATURES, rounded, strict=True))


def main(arguments: list[str] | None = None) -> int:
    """Learn the weights, report how well they do on what was left out, write them if asked."""
    parser = argparse.ArgumentParser(description="Learn what each feature of a text costs.")
    parser.add_argument("pieces", type=Path, nargs="*", help="exact counts, JSON lines")
    parser.add_argument("--own", action="store_true", help="the pieces of this package, too")
    parser.add_argument("--out", type=Path, help="write the weights to this file")
    options = parser.parse_args(arguments)
    try:
        rows = [row for path in options.pieces for row in read_rows(path)]
        pieces = arrays_of(rows + (own_rows() if options.own else []))
        if not pieces.kinds:
            raise ValueError(f"{', '.join(map(str, options.pieces))}: no pieces")
    except KeyError as error:
        print(f"learn_features: not every piece was counted with {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"learn_features: {error}", file=sys.stderr)
        return 2

    weights = learn(pieces)
    factors, margin = all_factors(pieces, weights), safe_margin(pieces)
    print(f"{len(pieces.kinds)} pieces, {len(pieces.tokenizers)} tokenizers")
    for index, name in enumerate(FEATURES):
        own = [row[index] for row in factors]
        print(f"  {name:<26} {weights[index]:6.3f} tokens, times {min(own):.2f} to {max(own):.2f}")
    everything = mean_error(pieces.features, pieces.tokens, weights)
    print(f"error a piece, learned from all:  {everything:.1%}")
    print(f"with its kind left out:           {left_out_by_group(pieces, pieces.kinds):.1%}")
    print(f"with its source left out:         {left_out_by_group(pieces, pieces.sources):.1%}")
    print(f"standard deviations to the upper bound: {margin:.2f}")
    for name, error in left_out_by_tokenizer(pieces).items():
        print(f"  {name:<10} left out: {error:.1%}")
    if options.out is not None:
        write_whole(options.out, record(pieces, weights, factors, margin))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
