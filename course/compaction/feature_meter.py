"""Count real histories: learned weights a feature, calibrated on usage, with a safe upper bound.

A history becomes a vector of features (``compaction.features``), two more for its messages and
its images, and the vector a number of tokens. Usage that comes back is a sample; ``calibrate``
moves the weights towards the samples as far as both deserve trust. ``at_most`` is the count to
decide with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from compaction.features import Vector, Weight, count_features, weights
from compaction.messages import Message, image_count, text_of, tools_text
from compaction.observing import GrowingHistory, prompt_tokens
from compaction.tokens import DEFAULT, IMAGE_TOKENS, Coefficients

MESSAGE = Weight(4.0, 0.5)
"""Tokens of the marks around a message, and how far chat templates differ in it."""

IMAGE = Weight(IMAGE_TOKENS, 1.0)

COMMON_SPREAD = 0.13
"""How far one tokenizer is from the common weights in all features at once, as a fraction."""

SCATTER, SCATTER_SAMPLES = 0.08, 6
"""Relative error of a request that no weights explain, and how many samples that is worth."""

SHORT = 60
"""Tokens at which a sample's variance is twice that of a long one."""

MIN_SAMPLES, MAX_SAMPLES = 3, 120
"""Calibration begins with three samples and looks at the newest hundred and twenty."""

MARGIN, CALIBRATED_MARGIN = 1.645, 1.645
"""Standard deviations between the count and the count to decide with."""

MIN_RATIO, MAX_RATIO = 0.5, 2.0
"""Limits of the ratio of usage to estimate, which serves until the meter is calibrated."""


class FeatureSample(NamedTuple):
    """One observation: the features that went out, and the tokens that they cost."""

    features: Vector
    tokens: int


@dataclass(frozen=True)
class Calibration:
    """What a calibration found, field by field as in ``compaction.calibration.Fit``.

    ``coefficients`` are the two of day 1, which no feature changes. Errors are mean absolute
    percentage errors of the samples, as fractions.
    """

    coefficients: Coefficients
    samples: int
    error_before: float
    error_after: float
    degenerate: bool
    calibrated: bool
    note: str


class Model:
    """Tokens a feature as a normal distribution: the learned weights, and what samples add.

    Each feature's cost is its learned weight times ``1 + common + own``: ``common`` is what a
    tokenizer differs in all of them, ``own`` what it differs in this one. Both are 0 before any
    sample, with the learned spreads (A. E. Hoerl and R. W. Kennard, Ridge regression, 1970).

    >>> model = Model()
    >>> round(model.tokens(vector_of({"role": "user", "content": "Hello, world"})))
    7
    """

    def __init__(self) -> None:
        self._costs = (*weights(), MESSAGE, IMAGE)
        self._shifts = [0.0] * (len(self._costs) + 1)
        spreads = [COMMON_SPREAD, *(cost.spread for cost in self._costs)]
        self._precisions = [spread**-2 for spread in spreads]
        self._scatter = SCATTER
        self._root = _root_of_diagonal(self._precisions)

    def tokens(self, features: Vector) -> float:
        """Return the unrounded count of a vector of features."""
        costs = self._terms(features)
        return costs[0] + sum(map(float.__mul__, self._shifts, costs))

    def deviation(self, features: Vector) -> float:
        """Return the standard deviation of that count, in tokens."""
        costs = self._terms(features)
        known = sum(value * value for value in _solve_lower(self._root, costs))
        return math.sqrt(known + (self._scatter * self.tokens(features)) ** 2)

    def _terms(self, features: Vector) -> list[float]:
        """Return the learned cost of all features together, then of each."""
        own = [cost.tokens * count for cost, count in zip(self._costs, features, strict=True)]
        return [sum(own), *own]

    def fit(self, samples: Sequence[FeatureSample]) -> None:
        """Fit the shifts to the samples: relative, robust, drawn towards 0.

        Iteratively reweighted least squares with Cauchy's weights (P. W. Holland and R. E.
        Welsch, Robust regression using iteratively reweighted least-squares, 1977).
        """
        # Relative to the larger of usage and estimate, which bounds what an absurd one weighs.
        rows, wanted, trust = [], [], []
        for features, tokens in samples:
            terms = self._terms(features)
            size = max(float(tokens), terms[0])
            rows.append([term / size for term in terms])
            wanted.append((tokens - terms[0]) / size)
            trust.append(1 / (1 + SHORT / size))
        scatter, robust = SCATTER, [1.0] * len(rows)
        for _ in range(12):
            root, shifts = self._solve(rows, wanted, trust, robust, scatter)
            # How far each sample is from what the others say of it, in units of a long one.
            residuals = []
            for row, want, weight, kept in zip(rows, wanted, trust, robust, strict=True):
                leverage = sum(v * v for v in _solve_lower(root, row)) * weight * kept / scatter**2
                residual = want - sum(map(float.__mul__, shifts, row))
                residuals.append(math.sqrt(weight) * residual / max(0.2, 1 - leverage))
            # The median deviation, in the unit of a standard deviation, beside what is expected.
            found = 1.4826 * sorted(map(abs, residuals))[len(rows) // 2]
            share = len(rows) / (len(rows) + SCATTER_SAMPLES)
            following = math.sqrt(share * found**2 + (1 - share) * SCATTER**2)
            robust = [1 / (1 + (residual / (2 * following)) ** 2) for residual in residuals]
            done, scatter = abs(following - scatter) < 1e-4, following
            if done:
                break
        self._root, self._shifts = self._solve(rows, wanted, trust, robust, scatter)
        self._scatter = scatter

    def _solve(
        self,
        rows: list[list[float]],
        wanted: list[float],
        trust: list[float],
        robust: list[float],
        scatter: float,
    ) -> tuple[list[list[float]], list[float]]:
        """Solve the weighted normal equations; return their root and the shifts."""
        size = len(self._precisions)
        gram = [[0.0] * size for _ in range(size)]
        right = [0.0] * size
        for i, precision in enumerate(self._precisions):
            gram[i][i] = precision
        for row, want, weight, kept in zip(rows, wanted, trust, robust, strict=True):
            factor = weight * kept / scatter**2
            # Most texts have few of the features; the others add nothing.
            present = [i for i, value in enumerate(row) if value]
            for i in present:
                scaled, line = factor * row[i], gram[i]
                right[i] += scaled * want
                for j in present:
                    if j > i:
                        break
                    line[j] += scaled * row[j]
        root = _root(gram)
        return root, _solve_upper(root, _solve_lower(root, right))


def _root(matrix: list[list[float]]) -> list[list[float]]:
    """Return Cholesky's lower triangle of a positive matrix, given by its lower triangle."""
    root: list[list[float]] = []
    for i, row in enumerate(matrix):
        line: list[float] = []
        for j in range(i):
            left = row[j] - sum(map(float.__mul__, line, root[j]))
            line.append(left / root[j][j])
        line.append(math.sqrt(row[i] - sum(value * value for value in line)))
        root.append(line)
    return root


def _root_of_diagonal(diagonal: Sequence[float]) -> list[list[float]]:
    return [[0.0] * i + [math.sqrt(value)] for i, value in enumerate(diagonal)]


def _solve_lower(root: list[list[float]], right: Sequence[float]) -> list[float]:
    found: list[float] = []
    for row, value in zip(root, right, strict=True):
        found.append((value - sum(map(float.__mul__, row, found))) / row[-1])
    return found


def _solve_upper(root: list[list[float]], right: Sequence[float]) -> list[float]:
    found = list(right)
    for i in range(len(root) - 1, -1, -1):
        found[i] /= root[i][i]
        for j in range(i):
            found[j] -= root[i][j] * found[i]
    return found


def vector_of(message: Mapping[str, Any]) -> Vector:
    """Return the features of one message: its text's, then one message, then its images."""
    return (*map(float, count_features(text_of(message))), 1.0, float(image_count([message])))


def vector_of_tools(tools: Sequence[Mapping[str, Any]] | None) -> Vector:
    """Return the features of the tool schemas as they ride along on a request."""
    return (*map(float, count_features(tools_text(tools))), 0.0, 0.0)


def _plus(left: Vector, right: Vector) -> Vector:
    return tuple(map(float.__add__, left, right))


def _minus(left: Vector, right: Vector) -> Vector:
    return tuple(map(float.__sub__, left, right))


@dataclass(frozen=True)
class _Anchor:
    """The last observed request: its messages, its tools, its features and what it cost."""

    messages: list[Message]
    tools: Vector
    features: Vector
    tokens: int


class FeatureMeter:
    """Count the tokens of real histories, and how many they may be at most.

    A history that begins with the messages last observed costs what they really cost plus the
    estimate of what follows. Any other is estimated; until the meter is calibrated, its estimate
    is multiplied by the ratio of usage to estimate at the last observation.

    >>> meter = FeatureMeter()
    >>> history = [{"role": "user", "content": "How long is this sentence in tokens?"}]
    >>> meter.count(history), meter.at_most(history)
    (13, 17)
    >>> meter.observe(history, {"prompt_tokens": 12})
    >>> meter.count(history), meter.at_most(history)
    (12, 12)
    """

    coefficients = DEFAULT

    def __init__(self) -> None:
        self.samples: list[FeatureSample] = []
        self.calibrated = False
        self._model = Model()
        self._anchor: _Anchor | None = None
        zero = vector_of_tools(None)
        self._history: GrowingHistory[Vector] = GrowingHistory(vector_of, zero, _plus)
        # The schemas are measured like a message that holds them.
        self._tools: GrowingHistory[Vector] = GrowingHistory(
            lambda holder: vector_of_tools(holder["tools"]), zero, _plus
        )

    def count(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the prompt tokens that a request with these messages and tools would cost."""
        known, features = self._split(messages, tools)
        return max(
            0, known + math.ceil(round(self._model.tokens(features) * self._ratio(known), 6))
        )

    def at_most(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the count to decide with: hardly ever too low.

        The real count is higher for about one request in twenty before any observation, and for
        at most one in ten once calibrated.
        """
        known, features = self._split(messages, tools)
        margin = CALIBRATED_MARGIN if self.calibrated else MARGIN
        estimate = self._model.tokens(features) + margin * self._model.deviation(features)
        return max(0, known + math.ceil(round(estimate * max(1.0, self._ratio(known)), 6)))

    def estimate(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the count without the last observation: one unit for any two histories.

        Whether a compaction helped is judged by the estimates of both histories.
        """
        return math.ceil(round(self._model.tokens(self._features(messages, tools)), 6))

    def observe(
        self,
        messages: Sequence[Message],
        usage: Any,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Take in the usage that came back for a request.

        ``usage`` is a number of prompt tokens, or an object or dict with ``prompt_tokens``
        (cached tokens are already inside). Usage that cannot be is ignored. The sample is what
        was added since the last observation where the history goes on from it, else the whole.
        """
        features = self._features(messages, tools)
        tokens = prompt_tokens(usage, self._model.tokens(features))
        if tokens is None:
            return
        anchor, schemas = self._anchor, self._features([], tools)
        sample = FeatureSample(features, tokens)
        if anchor and anchor.tools == schemas and self._goes_on_from(anchor, messages):
            sample = FeatureSample(_minus(features, anchor.features), tokens - anchor.tokens)
        # A growth may be nothing at all, or less than nothing where the gateway changed.
        if prompt_tokens(sample.tokens, self._model.tokens(sample.features)) is not None:
            self.samples.append(sample)
        self._anchor = _Anchor(self._history.beginning(len(messages)), schemas, features, tokens)

    def calibrate(self) -> Calibration:
        """Fit the weights to the newest samples, and use them from now on."""
        samples = [s for s in self.samples[-MAX_SAMPLES:] if any(s.features)]
        before = self._error(samples)
        if len(samples) < MIN_SAMPLES:
            note = f"{len(samples)} of {MIN_SAMPLES} samples needed: the weights stay as they are"
            return Calibration(DEFAULT, len(samples), before, before, False, False, note)
        model = Model()
        model.fit(samples)
        self._model, self.calibrated = model, True
        note = f"calibrated on {len(samples)} samples"
        after = self._error(samples)
        return Calibration(DEFAULT, len(samples), before, after, False, True, note)

    def _error(self, samples: Sequence[FeatureSample]) -> float:
        """Return the mean absolute percentage error of the samples, as a fraction."""
        if not samples:
            return 0.0
        return fmean(abs(self._model.tokens(s.features) - s.tokens) / s.tokens for s in samples)

    def _features(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None
    ) -> Vector:
        features = self._history.size(messages)
        if not tools:
            return features
        return _plus(features, self._tools.size([{"tools": list(tools)}]))

    def _goes_on_from(self, anchor: _Anchor, messages: Sequence[Message]) -> bool:
        return self._history.begins_with(anchor.messages, len(messages))

    def _split(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None
    ) -> tuple[int, Vector]:
        """Return the tokens known from the last observation, and the features of the rest."""
        features, anchor = self._features(messages, tools), self._anchor
        if anchor and self._goes_on_from(anchor, messages):
            return anchor.tokens, _minus(features, anchor.features)
        return 0, features

    def _ratio(self, known: int) -> float:
        """Return the factor on an estimate: 1 beside known tokens and once calibrated."""
        if known or self._anchor is None or self.calibrated:
            return 1.0
        estimated = self._model.tokens(self._anchor.features)
        return min(MAX_RATIO, max(MIN_RATIO, self._anchor.tokens / max(1.0, estimated)))
