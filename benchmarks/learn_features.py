"""Learn what each feature of a text costs, from exact counts of many tokenizers.

    python benchmarks/learn_features.py PIECES [--out FILE] [--check]

PIECES holds one JSON object a line: ``kind``, ``source``, ``text``, and ``counts`` (tokenizer ->
tokens). One weight a feature is fitted to all tokenizers at once, by least squares of the
relative error, none below zero; one that the pieces are too few for is given. A weight's spread
is how far each tokenizer's own lies from it.
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

PRIOR_SPREAD, COMMON_SPREAD = 0.35, 0.13
"""How far one tokenizer's weights are first thought to lie from the common ones."""

LEAST_SPREAD, MOST_SPREAD = 0.10, 0.60


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
    noise = 0.08
    gram = rows.T @ rows / noise**2 + np.diag(spread**-2.0)
    shift = np.linalg.solve(gram, rows.T @ (1 - costs.sum(axis=1)) / noise**2)
    return 1 + shift[0] + shift[1:]


def spreads(pieces: Pieces, weights: Any) -> Any:
    """Return how far the tokenizers' own weights lie from the common ones, as fractions."""
    factors = np.array([factors_of(pieces.features, column, weights) for column in pieces.tokens.T])
    return np.clip(np.sqrt(((factors - 1) ** 2).mean(axis=0)), LEAST_SPREAD, MOST_SPREAD)


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


def record(weights: Any, spread: Any) -> str:
    """Return the data file's text: three significant digits are more than the data can tell."""
    learned = {
        name: {"tokens": round(float(weight), 3), "spread": round(float(deviation), 2)}
        for name, weight, deviation in zip(FEATURES, weights, spread, strict=True)
    }
    about = "Tokens a feature, and the spread between tokenizers; see data/README.md."
    return json.dumps({"about": about, "features": learned}, indent=1) + "\n"


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
    spread = spreads(pieces, weights)
    print(f"{len(pieces.kinds)} pieces, {len(pieces.tokenizers)} tokenizers")
    for name, weight, deviation in zip(FEATURES, weights, spread, strict=True):
        print(f"  {name:<26} {weight:7.3f} tokens, spread {deviation:.2f}")
    everything = mean_error(pieces.features, pieces.tokens, weights)
    print(f"error a piece, learned from all:  {everything:.1%}")
    print(f"with its kind left out:           {left_out_by_group(pieces, pieces.kinds):.1%}")
    print(f"with its source left out:         {left_out_by_group(pieces, pieces.sources):.1%}")
    for name, error in left_out_by_tokenizer(pieces).items():
        print(f"  {name:<10} left out: {error:.1%}")
    if options.out is not None:
        write_whole(options.out, record(weights, spread))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
