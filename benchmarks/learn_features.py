"""Learn what each feature of a text costs, from exact counts of many tokenizers.

    python benchmarks/learn_features.py PIECES [--out FILE] [--check]

PIECES holds one JSON object a line: ``kind``, ``source``, ``text``, and ``counts`` (tokenizer ->
tokens). One weight a feature is fitted to all tokenizers at once, by least squares of the
relative error, none below zero; one that the pieces are too few for is given. Each tokenizer's
factors on the weights are fitted in the same way, drawn towards 1.
The report says how well the weights do on what they were not learned from: each tokenizer, each
kind and each source in turn is left out. Without ``--out`` nothing is written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from compaction.features import FEATURES, count_features
from compaction.files import write_whole

RIDGE = 1e-4
"""Keeps a feature that hardly occurs from an absurd weight; relative to the mean square error."""

GIVEN = {"letters of long runs": 0.25}
"""Too rare in the pieces to be learned: what no vocabulary holds costs a quarter a letter."""

PRIOR_SPREAD, COMMON_SPREAD, NOISE = 0.35, 0.13, 0.08
"""How far a tokenizer's weights are first thought to lie from the common ones (each, and all of
them together), and a piece's tokens from what any weights say: fractions."""


class Pieces(NamedTuple):
    """The pieces as arrays: features (pieces × features) and tokens (pieces × tokenizers)."""

    kinds: list[str]
    sources: list[str]
    tokenizers: list[str]
    features: Any
    tokens: Any


def read_pieces(path: Path) -> Pieces:
    """Read the pieces; raises ``ValueError`` that names the line that cannot be used."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            rows.append((row["kind"], row["source"], row["text"], row["counts"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not a piece ({error})") from None
    tokenizers = list(rows[0][3]) if rows else []
    return Pieces(
        [row[0] for row in rows],
        [row[1] for row in rows],
        tokenizers,
        np.array([count_features(row[2]) for row in rows], dtype=float),
        np.array([[row[3][name] for name in tokenizers] for row in rows], dtype=float),
    )


def learn(features: Any, tokens: Any) -> Any:
    """Return the tokens a feature that minimise the mean square of the relative error."""
    # One equation a piece and tokenizer: features / tokens times the weights is 1.
    rows = (features[:, None, :] / tokens[:, :, None]).reshape(-1, features.shape[1])
    scale = np.sqrt((rows**2).mean(axis=0)) + 1e-12
    given = np.array([GIVEN.get(name, 0.0) for name in FEATURES])
    left = 1 - rows @ given
    active = given == 0
    while True:
        used = rows[:, active] / scale[active]
        gram = used.T @ used / len(used) + RIDGE * np.eye(used.shape[1])
        found = given.copy()
        found[active] = np.linalg.solve(gram, used.T @ left / len(used)) / scale[active]
        if (found >= 0).all():
            return found
        # A feature that would pay back is left out, and the others are fitted anew.
        active &= found >= 0
        found[~active] = 0


def factors_of(features: Any, tokens: Any, weights: Any) -> Any:
    """Return one tokenizer's factors on the common weights, drawn towards one another and 1."""
    costs = features * weights / tokens[:, None]
    # A column for the factor that all features share; the others deviate from it.
    rows = np.column_stack([costs.sum(axis=1), costs])
    spread = np.array([COMMON_SPREAD] + [PRIOR_SPREAD] * len(weights))
    gram = rows.T @ rows / NOISE**2 + np.diag(spread**-2.0)
    shift = np.linalg.solve(gram, rows.T @ (1 - costs.sum(axis=1)) / NOISE**2)
    return 1 + shift[0] + shift[1:]


def mean_error(features: Any, tokens: Any, weights: Any) -> float:
    """Return the mean of the relative error's size, as a fraction."""
    return float(np.abs((features @ weights)[:, None] / tokens - 1).mean())


def left_out_by_group(pieces: Pieces, groups: Sequence[str]) -> float:
    """Return the mean error on pieces whose group was left out when the weights were learned."""
    total = 0.0
    for group in dict.fromkeys(groups):
        out = np.array([name == group for name in groups])
        weights = learn(pieces.features[~out], pieces.tokens[~out])
        total += out.sum() * mean_error(pieces.features[out], pieces.tokens[out], weights)
    return total / len(groups)


def left_out_by_tokenizer(pieces: Pieces) -> dict[str, float]:
    """Return the mean error for each tokenizer with weights learned from the others."""
    errors = {}
    for index, name in enumerate(pieces.tokenizers):
        others = np.delete(pieces.tokens, index, axis=1)
        weights = learn(pieces.features, others)
        errors[name] = mean_error(pieces.features, pieces.tokens[:, [index]], weights)
    return errors


def record(pieces: Pieces, weights: Any, factors: Any) -> str:
    """Return the data file's text: three significant digits are more than the data can tell."""
    learned = {
        "about": "Tokens a feature, and what each tokenizer charges as a share of them. "
        "Written by benchmarks/learn_features.py; never edited.",
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
    parser.add_argument("pieces", type=Path, help="pieces with exact counts, JSON lines")
    parser.add_argument("--out", type=Path, help="write the weights to this file")
    options = parser.parse_args(arguments)
    try:
        pieces = read_pieces(options.pieces)
        if not pieces.kinds:
            raise ValueError(f"{options.pieces}: no pieces")
    except (OSError, ValueError) as error:
        print(f"learn_features: {error}", file=sys.stderr)
        return 2

    weights = learn(pieces.features, pieces.tokens)
    factors = [factors_of(pieces.features, column, weights) for column in pieces.tokens.T]
    print(f"{len(pieces.kinds)} pieces, {len(pieces.tokenizers)} tokenizers")
    for index, name in enumerate(FEATURES):
        own = [row[index] for row in factors]
        print(f"  {name:<26} {weights[index]:6.3f} tokens, times {min(own):.2f} to {max(own):.2f}")
    everything = mean_error(pieces.features, pieces.tokens, weights)
    print(f"error a piece, learned from all:  {everything:.1%}")
    print(f"with its kind left out:           {left_out_by_group(pieces, pieces.kinds):.1%}")
    print(f"with its source left out:         {left_out_by_group(pieces, pieces.sources):.1%}")
    for name, error in left_out_by_tokenizer(pieces).items():
        print(f"  {name:<10} left out: {error:.1%}")
    if options.out is not None:
        write_whole(options.out, record(pieces, weights, factors))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
