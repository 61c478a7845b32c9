"""Day 2: calibrate the estimator on the usage that every reply carries.

``fit`` is the plain least squares of the lesson, with the check that refuses a solution
which only looks calibrated. ``fit_robust`` is what the meter uses on real traffic.
``TokenMeter`` is the one place where a process counts tokens; ``FeatureMeter`` has the same face
and is closer on real histories.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from compaction.attachments import file_tokens
from compaction.feature_meter import FeatureMeter as FeatureMeter  # handed on
from compaction.messages import Message, image_count, marked_text, tools_text
from compaction.observing import GrowingHistory, prompt_tokens
from compaction.tokens import DEFAULT, IMAGE_TOKENS, Coefficients, count_chars

MIN_COEFFICIENT, MAX_COEFFICIENT = 0.01, 4.0
"""Every coefficient is limited to this range (tokens a character)."""

MIN_RATIO, MAX_RATIO = 0.25, 4.0
"""Limits of the ratio of real usage to estimate that survives a compaction."""

UNIFORM_NOTE = (
    "the CJK-to-other ratio is too uniform to separate the two coefficients; "
    "falling back to one per-character coefficient"
)


@dataclass(frozen=True)
class Sample:
    """One observation: the characters that went out and the tokens that were billed."""

    cjk: int
    other: int
    tokens: int


@dataclass(frozen=True)
class Fit:
    """What a calibration found. Errors are mean absolute percentage errors, as fractions."""

    coefficients: Coefficients
    samples: int
    error_before: float
    error_after: float
    degenerate: bool
    calibrated: bool
    note: str


def fit(samples: Iterable[Sample], active: Coefficients = DEFAULT, min_samples: int = 3) -> Fit:
    """Fit both coefficients by least squares through the origin.

    Two unknowns, two normal equations. Where the samples' CJK-to-other ratio barely varies,
    the equations cannot tell the coefficients apart; then one per-character coefficient is
    fitted instead and the result is marked degenerate. With fewer than ``min_samples`` samples
    the active coefficients are returned, not calibrated.

    Errors compare the unrounded estimate with the real tokens, before (``active``) and after.

    >>> texts = [Sample(100, 0, 60), Sample(0, 100, 30), Sample(100, 100, 90)]
    >>> fit(texts).coefficients
    Coefficients(cjk=0.6, other=0.3)
    """
    usable = usable_samples(samples)
    before = mean_error(usable, active)
    if len(usable) < min_samples:
        note = f"{len(usable)} of {min_samples} samples needed: the coefficients stay as they are"
        return Fit(active, len(usable), before, before, False, False, note)

    sxx = sum(s.cjk * s.cjk for s in usable)
    sxy = sum(s.cjk * s.other for s in usable)
    syy = sum(s.other * s.other for s in usable)
    sxt = sum(s.cjk * s.tokens for s in usable)
    syt = sum(s.other * s.tokens for s in usable)
    determinant = sxx * syy - sxy * sxy

    # Relative to the size of the sums: an absolute bound would depend on the texts' length.
    degenerate = abs(determinant) < 1e-6 * max(1, sxx * syy)
    if degenerate:
        both = limit_coefficient((sxt + syt) / (sxx + 2 * sxy + syy))
        found = Coefficients(both, both)
        note = UNIFORM_NOTE
    else:
        found = Coefficients(
            limit_coefficient((sxt * syy - syt * sxy) / determinant),
            limit_coefficient((syt * sxx - sxt * sxy) / determinant),
        )
        note = f"calibrated on {len(usable)} samples"
    after = mean_error(usable, found)
    return Fit(found, len(usable), before, after, degenerate, True, note)


def usable_samples(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples that say something: some characters, and tokens above zero.

    >>> usable_samples([Sample(0, 40, 10), Sample(0, 40, 0)])
    [Sample(cjk=0, other=40, tokens=10)]
    """
    return [s for s in samples if s.tokens > 0 and s.cjk + s.other > 0]


def mean_error(samples: Sequence[Sample], coefficients: Coefficients) -> float:
    """Return the mean absolute percentage error as a fraction; 0.0 without samples.

    >>> mean_error([Sample(0, 40, 20)], DEFAULT)
    0.5
    """
    if not samples:
        return 0.0
    return fmean(
        abs(coefficients.cjk * s.cjk + coefficients.other * s.other - s.tokens) / s.tokens
        for s in samples
    )


def limit_coefficient(value: float) -> float:
    """Limit a coefficient to 0.01 ... 4 tokens a character.

    >>> limit_coefficient(-0.3)
    0.01
    """
    return min(MAX_COEFFICIENT, max(MIN_COEFFICIENT, value))


def fit_robust(
    samples: Iterable[Sample],
    active: Coefficients = DEFAULT,
    min_samples: int = 3,
    *,
    prior: Coefficients = DEFAULT,
    prior_deviation: float = 0.3,
) -> Fit:
    """Fit both coefficients so that few, one-sided or odd samples do no harm.

    Three changes against :func:`fit`: residuals are relative, so that a long text does not
    outvote the others; a ridge pulls each coefficient towards ``prior``, so that one which the
    samples hardly touch stays where it was; and a sample far from the rest loses its weight
    (iteratively reweighted least squares with Cauchy's weights: P. W. Holland and R. E.
    Welsch, Robust regression using iteratively reweighted least-squares, 1977).

    The ridge weighs the samples' own scatter against ``prior_deviation``, the spread expected
    of the factor between prior and truth: samples that agree outvote the prior, noisy ones do
    not (A. E. Hoerl and R. W. Kennard, Ridge regression, 1970).

    >>> latin = [Sample(0, n, n // 2) for n in (400, 800, 1200)]
    >>> found = fit_robust(latin).coefficients
    >>> round(found.other, 1), found.cjk
    (0.5, 1.0)
    """
    usable = usable_samples(samples)
    before = mean_error(usable, active)
    if len(usable) < min_samples:
        note = f"{len(usable)} of {min_samples} samples needed: the coefficients stay as they are"
        return Fit(active, len(usable), before, before, False, False, note)
    rows = [_Row.of(sample, prior) for sample in usable]
    factors = _reweighted(rows, prior_deviation)
    found = Coefficients(
        limit_coefficient(prior.cjk * factors[0]), limit_coefficient(prior.other * factors[1])
    )
    cjk_share = sum(row.cjk for row in rows) / sum(row.cjk + row.other for row in rows)
    degenerate = not 0.001 < cjk_share < 0.999
    note = f"calibrated on {len(usable)} samples"
    if degenerate:
        note += "; they hold one kind of text, so the other coefficient stays near its prior"
    after = mean_error(usable, found)
    return Fit(found, len(usable), before, after, degenerate, True, note)


class _Row(NamedTuple):
    """A sample in the prior's unit: each term's tokens, relative to the sample's size."""

    cjk: float
    other: float
    tokens: float

    @classmethod
    def of(cls, sample: Sample, prior: Coefficients) -> _Row:
        cjk, other = prior.cjk * sample.cjk, prior.other * sample.other
        # The larger of estimate and usage as the unit bounds what an absurd usage can weigh.
        size = max(sample.tokens, cjk + other)
        return cls(cjk / size, other / size, sample.tokens / size)


_LEAST_SCATTER = 0.02
"""Below a relative scatter of 2 % samples count as equally exact."""


def _reweighted(rows: Sequence[_Row], prior_deviation: float) -> tuple[float, float]:
    """Return the two factors on the prior that minimise the robust relative error.

    Each round measures how far every sample is off, gives those far off less weight, and solves
    the weighted problem again, until the factors rest (forty rounds are plenty).
    """
    # To begin with all samples count alike, and the prior hardly at all.
    factors = _ridge(rows, [1.0] * len(rows), 0.001)
    for _ in range(40):
        residuals = [factors[0] * r.cjk + factors[1] * r.other - r.tokens for r in rows]
        # The median deviation, in the unit of a normal distribution's standard deviation.
        scatter = max(_LEAST_SCATTER, 1.4826 * sorted(map(abs, residuals))[len(rows) // 2])
        # Cauchy's weights: a sample two deviations off counts half, an absurd one next to nothing.
        weights = [1 / (1 + (residual / (2 * scatter)) ** 2) for residual in residuals]
        # The ridge in the unit of the samples' scatter: samples that agree outvote the prior.
        following = _ridge(rows, weights, (scatter / prior_deviation) ** 2)
        change = max(abs(a - b) for a, b in zip(factors, following, strict=True))
        factors = following
        if change < 1e-9:
            break
    return factors


def _ridge(
    rows: Sequence[_Row], weights: Sequence[float], prior_weight: float
) -> tuple[float, float]:
    """Solve the weighted normal equations with a ridge towards the factors (1, 1)."""
    # The ridge is a sample of its own for each term: "the factor is 1", with the prior's weight.
    # It adds to the diagonal and to the right side, so a term without samples comes out as 1.
    pairs = list(zip(rows, weights, strict=True))
    xx = prior_weight + sum(w * r.cjk * r.cjk for r, w in pairs)
    yy = prior_weight + sum(w * r.other * r.other for r, w in pairs)
    xy = sum(w * r.cjk * r.other for r, w in pairs)
    xt = prior_weight + sum(w * r.cjk * r.tokens for r, w in pairs)
    yt = prior_weight + sum(w * r.other * r.tokens for r, w in pairs)
    determinant = xx * yy - xy * xy  # positive: the ridge is on the diagonal
    first = (xt * yy - yt * xy) / determinant
    second = (yt * xx - xt * xy) / determinant
    # Non-negative: where one factor would be below zero, the best pair lies on that edge.
    if first < 0:
        return 0.0, yt / yy
    if second < 0:
        return xt / xx, 0.0
    return first, second


class Size(NamedTuple):
    """What a stretch of history measures: characters, images, and the tokens of its files."""

    cjk: int = 0
    other: int = 0
    images: int = 0
    file_tokens: int = 0

    def plus(self, more: Size) -> Size:
        return Size(*map(int.__add__, self, more))

    def minus(self, less: Size) -> Size:
        return Size(*map(int.__sub__, self, less))

    def tokens(self, coefficients: Coefficients) -> float:
        """Return the unrounded estimate, images and files included."""
        text_tokens = coefficients.cjk * self.cjk + coefficients.other * self.other
        return text_tokens + self.attached

    @property
    def attached(self) -> int:
        """The tokens of images, at their flat price, and of files."""
        return IMAGE_TOKENS * self.images + self.file_tokens


def size_of(message: Mapping[str, Any]) -> Size:
    """Measure one message as the transcript shows it.

    >>> size_of({"role": "user", "content": "你好"})
    Size(cjk=2, other=7, images=0, file_tokens=0)
    """
    cjk, other = count_chars(marked_text(message))
    if isinstance(message.get("content"), str):  # the common case: nothing can be attached
        return Size(cjk, other)
    return Size(cjk, other, image_count([message]), file_tokens(message))


def size_of_tools(tools: Sequence[Mapping[str, Any]] | None) -> Size:
    """Measure the tool schemas as the transcript shows them."""
    chars = count_chars(tools_text(tools))
    return Size(chars.cjk, chars.other)


@dataclass(frozen=True)
class _Anchor:
    """The last observed request: its messages, its size and what it really cost."""

    messages: list[Message]
    size: Size
    tokens: int


class TokenMeter:
    """Count the tokens of histories with one table, kept honest by observed usage.

    Before the first observation ``count`` is the plain estimate. Afterwards a history that
    begins with the messages last observed costs what they really cost plus the estimate of
    what follows; any other history is its estimate times the ratio of usage to estimate at
    that observation, so that the counts before and after a compaction are in one unit.

    Only messages that were not there at the last count are measured. Messages are recognised
    by equality with a snapshot that shares their texts, so that an unchanged message costs no
    look at its characters, and one that was changed in place is measured anew.

    >>> meter = TokenMeter()
    >>> history = [{"role": "user", "content": "hello"}]
    >>> meter.count(history)
    3
    >>> meter.observe(history, {"prompt_tokens": 9})
    >>> meter.count(history + [{"role": "assistant", "content": "hello"}])
    14
    """

    def __init__(self, coefficients: Coefficients = DEFAULT) -> None:
        self.coefficients = coefficients
        self.samples: list[Sample] = []
        self._prior = coefficients
        self._anchor: _Anchor | None = None
        self._history: GrowingHistory[Size] = GrowingHistory(size_of, Size(), Size.plus)
        # The schemas are measured like a message that holds them.
        self._tools: GrowingHistory[Size] = GrowingHistory(
            lambda holder: size_of_tools(holder["tools"]), Size(), Size.plus
        )

    def count(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Return the prompt tokens that a request with these messages and tools would cost."""
        whole = self._history.size(messages).plus(self._size_of_tools(tools))
        anchor = self._anchor
        if anchor is None:
            return math.ceil(whole.tokens(self.coefficients))
        # What was observed is known; only what follows it (tools that came or went, too) is
        # estimated, so the error of the estimate does not grow with the history.
        if self._history.begins_with(anchor.messages, len(messages)):
            added = whole.minus(anchor.size).tokens(self.coefficients)
            return max(0, anchor.tokens + math.ceil(added))
        # Another history, such as the compacted one: its estimate in the unit of real usage, so
        # that the counts before and after can be compared. Rounded, lest noise in the last digit
        # of a float add a token.
        return math.ceil(round(self._ratio(anchor) * whole.tokens(self.coefficients), 6))

    def observe(
        self,
        messages: Sequence[Message],
        usage: Any,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Take in the usage that came back for a request.

        ``usage`` is a number of prompt tokens, or an object or dict with ``prompt_tokens``
        (cached tokens are already inside). Usage that is absent or cannot be is ignored.
        """
        size = self._history.size(messages).plus(self._size_of_tools(tools))
        tokens = prompt_tokens(usage, size.tokens(self._prior))
        if tokens is None:
            return
        # Images and files have prices of their own; a sample is about characters.
        text_tokens = max(1, tokens - size.attached)
        self.samples.append(Sample(size.cjk, size.other, text_tokens))
        self._anchor = _Anchor(self._history.beginning(len(messages)), size, tokens)

    def calibrate(self) -> Fit:
        """Fit the table to all samples so far, and use it from now on."""
        found = fit_robust(self.samples, self.coefficients, prior=self._prior)
        self.coefficients = found.coefficients
        return found

    def _ratio(self, anchor: _Anchor) -> float:
        estimated = anchor.size.tokens(self.coefficients)
        if estimated <= 0:
            return 1.0
        return min(MAX_RATIO, max(MIN_RATIO, anchor.tokens / estimated))

    def _size_of_tools(self, tools: Sequence[Mapping[str, Any]] | None) -> Size:
        return self._tools.size([{"tools": list(tools)}]) if tools else Size()


meter = TokenMeter()
"""The one table of the process; everything that counts uses it unless told otherwise."""
