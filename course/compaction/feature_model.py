"""What features cost: a distribution that begins with nine known tokenizers and learns from usage.

A vector of features goes in; the tokens that it costs and how far they may be off come out.
Samples of usage move the distribution towards the tokenizer at hand.

Each feature costs its learned weight times ``1 + shift``. Before any sample the shifts are 0 on
average, and vary together as they do between the nine tokenizers that the weights were learned
from: who charges more for a Thai letter tends to charge more for a Greek one. A sample of either
then says something of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from compaction.features import Vector, learned

Matrix = list[list[float]]

MESSAGE_TOKENS, MESSAGE_SPREAD = 4.0, 0.5
"""Tokens of the marks around a message, and how far chat templates differ in it, as a fraction."""

ATTACHMENT_SPREAD = 0.5
"""How far gateways differ in what an image costs, as a fraction."""

KINSHIP, OWN_SPREAD = 1.5, 0.12
"""How far a tokenizer may go beyond the nine in their directions (a factor on the variance), and
in any feature by itself (a fraction)."""

SCATTER, SCATTER_SAMPLES = 0.08, 6
"""Relative error of a sample that no weights explain, and how many samples that guess is worth."""

SHORT = 60
"""Tokens at which a sample's variance is twice that of a long one."""

HALF_LIFE = 20
"""Samples after which an older one counts half: another model may answer by then."""


class FeatureSample(NamedTuple):
    """One observation: the features that went out, and the tokens that they cost."""

    features: Vector
    tokens: int


class FeatureModel:
    """Tokens a feature as a normal distribution, moved by samples.

    Vectors hold the counts of ``FEATURES``, then the messages, then the tokens of attachments.

    >>> from compaction.features import count_features
    >>> model = FeatureModel()
    >>> hello = (*map(float, count_features("Hello, world")), 1.0, 0.0)
    >>> round(model.tokens(hello)), round(model.deviation(hello))
    (7, 2)
    """

    def __init__(
        self, weights: Vector | None = None, factors: tuple[Vector, ...] | None = None
    ) -> None:
        """Begin with the packaged weights and factors, or with others that were learned."""
        self._costs = (*(weights or learned().tokens), MESSAGE_TOKENS, 1.0)
        self._shifts = [0.0] * len(self._costs)
        self._scatter = SCATTER
        self._precision = _prior_precision(factors or learned().factors)
        self._root = _root(self._precision)

    def tokens(self, features: Vector) -> float:
        """Return the unrounded count of a vector of features."""
        terms = self._terms(features)
        return sum(terms) + _dot(self._shifts, terms)

    def deviation(self, features: Vector) -> float:
        """Return the standard deviation of that count, in tokens."""
        unknown = _squares(_solve_lower(self._root, self._terms(features)))
        return math.sqrt(unknown + (self._scatter * self.tokens(features)) ** 2)

    def _terms(self, features: Vector) -> list[float]:
        """Return what each feature costs by the learned weights alone."""
        return [cost * count for cost, count in zip(self._costs, features, strict=True)]

    def fit(self, samples: Sequence[FeatureSample]) -> None:
        """Fit the shifts to the samples, oldest first: relative, robust, and drawn towards the
        known tokenizers.

        A ridge regression (A. E. Hoerl and R. W. Kennard, 1970) whose ridge is the precision of
        the shifts, inside iteratively reweighted least squares with Cauchy's weights (P. W.
        Holland and R. E. Welsch, Robust regression using iteratively reweighted least-squares,
        1977).
        """
        rows, wanted, trust = [], [], []
        for features, tokens in samples:
            terms = self._terms(features)
            # Relative, so that a long text does not outvote the others; to the larger of usage
            # and estimate, which bounds what an absurd usage can weigh.
            size = max(float(tokens), sum(terms), 1.0)
            rows.append([term / size for term in terms])
            wanted.append((tokens - sum(terms)) / size)
            # The marks around a message and the like disturb a short sample more.
            trust.append(1 / (1 + SHORT / size))
        # What was seen long ago may have been another model's.
        fresh = [0.5 ** (age / HALF_LIFE) for age in reversed(range(len(rows)))]
        scatter, kept = SCATTER, fresh
        for _ in range(12):
            root, shifts = self._solve(rows, wanted, trust, kept, scatter)
            # How far each sample is from what all others say of it: a sample that had pulled
            # the fit to itself would look closer than the next request will be.
            residuals = []
            for row, want, belief, weight in zip(rows, wanted, trust, kept, strict=True):
                pull = _squares(_solve_lower(root, row)) * belief * weight / scatter**2
                left = want - _dot(shifts, row)
                residuals.append(math.sqrt(belief) * left / max(0.2, 1 - pull))
            # The median deviation, in the unit of a standard deviation. A few samples say
            # little of it, so the guess counts as a few more.
            found = 1.4826 * sorted(map(abs, residuals))[len(rows) // 2]
            share = len(rows) / (len(rows) + SCATTER_SAMPLES)
            following = math.sqrt(share * found**2 + (1 - share) * SCATTER**2)
            # A sample two deviations off has half its weight, a strange one next to none.
            kept = [
                new / (1 + (residual / (2 * following)) ** 2)
                for new, residual in zip(fresh, residuals, strict=True)
            ]
            settled, scatter = abs(following - scatter) < 1e-4, following
            if settled:
                break
        self._root, self._shifts = self._solve(rows, wanted, trust, kept, scatter)
        self._scatter = scatter

    def _solve(
        self,
        rows: Matrix,
        wanted: list[float],
        trust: list[float],
        kept: list[float],
        scatter: float,
    ) -> tuple[Matrix, list[float]]:
        """Solve the weighted normal equations; return their root and the shifts."""
        gram = [line[:] for line in self._precision]
        right = [0.0] * len(gram)
        for row, want, belief, weight in zip(rows, wanted, trust, kept, strict=True):
            factor = belief * weight / scatter**2
            # Most texts have few of the features; the others add nothing. The lower triangle
            # is enough: the matrix is symmetric.
            present = [i for i, value in enumerate(row) if value]
            for index, i in enumerate(present):
                scaled, line = factor * row[i], gram[i]
                right[i] += scaled * want
                for j in present[: index + 1]:
                    line[j] += scaled * row[j]
        root = _root(gram)
        return root, _solve_upper(root, _solve_lower(root, right))


@cache
def _prior_precision(known: tuple[Vector, ...]) -> Matrix:
    """Return the inverse covariance of the shifts before any sample, by the known factors."""
    size = len(known[0])
    covariance = [[0.0] * (size + 2) for _ in range(size + 2)]
    for i in range(size):
        for j in range(size):
            together = sum((row[i] - 1) * (row[j] - 1) for row in known) / len(known)
            covariance[i][j] = KINSHIP * together + (OWN_SPREAD**2 if i == j else 0.0)
    covariance[size][size] = MESSAGE_SPREAD**2
    covariance[size + 1][size + 1] = ATTACHMENT_SPREAD**2
    root = _root(covariance)
    units = [[float(i == j) for j in range(size + 2)] for i in range(size + 2)]
    return [_solve_upper(root, _solve_lower(root, unit)) for unit in units]


# --- linear algebra on lists: the matrices are small, and numpy takes longer to load than to use


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(map(float.__mul__, left, right))


def _squares(values: Sequence[float]) -> float:
    return sum(value * value for value in values)


def _root(matrix: Matrix) -> Matrix:
    """Return Cholesky's lower triangle of a positive matrix, given by its lower triangle."""
    root: Matrix = []
    for i, row in enumerate(matrix):
        line: list[float] = []
        for j in range(i):
            line.append((row[j] - _dot(line, root[j])) / root[j][j])
        line.append(math.sqrt(row[i] - _squares(line)))
        root.append(line)
    return root


def _solve_lower(root: Matrix, right: Sequence[float]) -> list[float]:
    found: list[float] = []
    for row, value in zip(root, right, strict=True):
        found.append((value - _dot(found, row)) / row[-1])
    return found


def _solve_upper(root: Matrix, right: Sequence[float]) -> list[float]:
    found = list(right)
    for i in range(len(root) - 1, -1, -1):
        found[i] /= root[i][i]
        for j in range(i):
            found[j] -= root[i][j] * found[i]
    return found
