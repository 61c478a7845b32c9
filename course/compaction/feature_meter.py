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
from typing import Any

from compaction.attachments import attachment_tokens
from compaction.feature_model import FeatureModel, FeatureSample
from compaction.features import Vector, count_features, learned
from compaction.messages import Message, text_of, thoughts_of, tools_text
from compaction.observing import GrowingHistory, prompt_tokens
from compaction.tokens import DEFAULT, Coefficients

MIN_SAMPLES, MAX_SAMPLES = 3, 120
"""Calibration begins with three samples and looks at the newest hundred and twenty."""

CALIBRATED_MARGIN = 1.645
"""Standard deviations between the count and the count to decide with, once calibrated."""

MIN_RATIO, MAX_RATIO = 0.5, 2.0
"""Limits of the ratio of usage to estimate, which serves until the meter is calibrated."""


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


def vector_of(message: Mapping[str, Any]) -> Vector:
    """Return the features of one message: of its text and thoughts, then 1, then attachments."""
    text, thoughts = text_of(message), thoughts_of(message)
    features = count_features(f"{thoughts}\n{text}" if thoughts else text)
    return (*map(float, features), 1.0, float(attachment_tokens(message)))


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
        self._fitted = 0
        self._model = FeatureModel()
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
        margin = CALIBRATED_MARGIN if self.calibrated else learned().margin
        estimate = self._model.tokens(features) + margin * self._model.deviation(features)
        return max(0, known + math.ceil(round(estimate * max(1.0, self._ratio(known)), 6)))

    def estimate(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the count without the last observation: one unit for any two histories.

        Whether a compaction helped is judged by the estimates of both histories.
        """
        return math.ceil(round(self._model.tokens(self._features(messages, tools)), 6))

    def basis(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str:
        """Say what the count of a history rests on, for a person.

        >>> meter = FeatureMeter()
        >>> history = [{"role": "user", "content": "How long is this sentence in tokens?"}]
        >>> meter.basis(history)
        'estimated, no usage seen yet'
        >>> meter.observe(history, 12)
        >>> meter.basis(history)
        'as the last reply reported'
        >>> meter.basis([*history, {"role": "assistant", "content": "Twelve tokens."}])
        'the last reply reported 12, the 7 since are estimated'
        """
        known, features = self._split(messages, tools)
        if known and not any(features):
            return "as the last reply reported"
        if known:
            added = self.count(messages, tools) - known
            return f"the last reply reported {known:,}, the {added:,} since are estimated"
        if self.calibrated:
            return f"estimated, calibrated on {self._fitted} requests"
        if self._anchor:
            return "estimated, in proportion to the last reply's usage"
        return "estimated, no usage seen yet"

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
        model = FeatureModel()
        model.fit(samples)
        self._model, self.calibrated, self._fitted = model, True, len(samples)
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
