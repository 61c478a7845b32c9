"""Day 2: coefficients out of real usage, and when not to report a pair of them.

What the statement promises, and which cases look at it (every one under every seed):

| property | fixed | drawn |
|---|---|---|
| only samples with characters and tokens count | UNUSABLE among the five | among others |
| every one of these counts, equal ones each for itself | TWINS | a twin among others |
| fewer than ``min_samples``: nothing changes; as many will do | PAIR, ODD | 1 to 7 wanted |
| the pair is that of least squares through the origin | the five, TINY | samples of all ratios |
| each price is limited, the one price too | NEGATIVE, dear and cheap texts | dear and cheap |
| errors: before by the active prices, after by the returned | the five | active prices |
| the bound is relative, 1e-6 of Sxx · Syy | long texts | a hair on both sides of it |
| below it one price by least squares, degenerate and calibrated | all ASCII | one ratio each |
| the note is never empty | each of the three ends | each of the three ends |
| the samples stay as they are | all | all |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from compaction.calibration import (
    UNIFORM_NOTE,
    Fit,
    Sample,
    fit,
    limit_coefficient,
    mean_error,
    usable_samples,
)
from compaction.session import calibration_samples
from compaction.tokens import DEFAULT, Coefficients
from grader.checks.check import check
from grader.checks.spell import Named
from grader.checks.trial import Function, Given, Known, Trial
from grader.starters import day2 as starter

_ASCII = [Sample(0, 480, 131), Sample(0, 1210, 318), Sample(0, 77, 24), Sample(0, 2600, 689)]
_PAIR = [Sample(40, 310, 118), Sample(220, 30, 232)]
# Two of them are equal, and say the same thing twice.
_TWINS = [*_PAIR, Sample(90, 400, 230), Sample(40, 310, 118)]
# Prices that no fit gives: without one they stay all the same.
_ODD = Coefficients(6.0, 0.005)
_TINY = [Sample(1, 0, 1), Sample(0, 4, 1), Sample(1, 1, 2)]
# By least squares alone a character of other text would cost less than nothing.
_NEGATIVE = [Sample(100, 10, 150), Sample(10, 100, 5), Sample(60, 60, 70)]
_UNUSABLE = [Sample(0, 0, 40), Sample(12, 80, 0), Sample(0, 0, 0), Sample(5, 5, -3)]

# --- what is compared, and in which words -----------------------------------------------


def _figures(given: Given, fit: Fit) -> dict[str, object]:
    """Return all but the note, which is for a person, in anybody's words."""
    return {
        "coefficients": fit.coefficients,
        "samples": fit.samples,
        "before": fit.error_before,
        "after": fit.error_after,
        "degenerate": fit.degenerate,
        "calibrated": fit.calibrated,
    }


def _silent(given: Given, fit: Fit) -> tuple[str, str] | None:
    if not fit.note.strip():
        return "a Fit whose .note is a sentence for a person", "an empty .note"
    return None


def _say(given: Given, view: dict[str, object]) -> str:
    return _in_words(view, 2)


def _tell(given: Given, right: dict[str, object], seen: dict[str, object]) -> tuple[str, str]:
    for digits in (2, 6, 12):
        told = _in_words(right, digits), _in_words(seen, digits)
        if told[0] != told[1]:
            break
    return told


def _in_words(view: dict[str, object], digits: int) -> str:
    return ", ".join(
        [
            "calibrated" if view["calibrated"] else "not calibrated",
            "degenerate" if view["degenerate"] else "not degenerate",
            f"{view['samples']} samples",
            _coefficients(view["coefficients"], digits),
            _errors(view["before"], view["after"], digits - 1),
        ]
    )


def _coefficients(found: object, digits: int = 2) -> str:
    assert isinstance(found, Coefficients)
    return f"coefficients CJK {found.cjk:.{digits}f} / other {found.other:.{digits}f}"


def _errors(before: object, after: object, digits: int = 1) -> str:
    return f"error {before:.{digits}%} -> {after:.{digits}%}"


# --- known mistakes ---------------------------------------------------------------------


def _determinant(samples: Sequence[Sample]) -> tuple[int, int]:
    """Return the determinant, and the product that it is measured against."""
    xx = sum(s.cjk * s.cjk for s in samples)
    xy = sum(s.cjk * s.other for s in samples)
    yy = sum(s.other * s.other for s in samples)
    return xx * yy - xy * xy, xx * yy


def _least_squares(samples: Sequence[Sample]) -> float:
    """Return the one price that explains the samples best."""
    sizes = [s.cjk + s.other for s in samples]
    together = sum(s.tokens * n for s, n in zip(samples, sizes, strict=True))
    return together / sum(n * n for n in sizes)


def _variant(
    *,
    bound: Function = lambda det, product: det < 1e-6 * max(1, product),
    limit: Function = limit_coefficient,
    usable: Function = usable_samples,
    one_price: Function = _least_squares,
    enough: Function = lambda number, wanted: number >= wanted,
) -> Function:
    """Return a fit that does one of its steps in another way."""

    def wrong(
        samples: Iterable[Sample], active: Coefficients = DEFAULT, min_samples: int = 3
    ) -> Fit:
        used = usable(samples)
        before = mean_error(used, active)
        if not enough(len(used), min_samples):
            return Fit(active, len(used), before, before, False, False, "too few")
        determinant, product = _determinant(used)
        degenerate = bound(determinant, product)
        if degenerate:
            price = limit(one_price(used))
            found = Coefficients(price, price)
        else:
            xt = sum(s.cjk * s.tokens for s in used)
            yt = sum(s.other * s.tokens for s in used)
            xx, xy = sum(s.cjk**2 for s in used), sum(s.cjk * s.other for s in used)
            yy = sum(s.other**2 for s in used)
            found = Coefficients(
                limit((xt * yy - yt * xy) / determinant), limit((yt * xx - xt * xy) / determinant)
            )
        after = mean_error(used, found)
        return Fit(found, len(used), before, after, degenerate, True, "calibrated")

    return wrong


def _after(change: Function) -> Function:
    """Return a fit whose result is changed: ``change(right, samples, active)``."""

    def wrong(
        samples: Iterable[Sample], active: Coefficients = DEFAULT, min_samples: int = 3
    ) -> Fit:
        listed = list(samples)
        found: Fit = change(fit(listed, active, min_samples), listed, active)
        return found

    return wrong


def _where(condition: Function, change: Function) -> Function:
    return _after(lambda fit, ss, a: change(fit, ss, a) if condition(fit) else fit)


def _priced(fit: Fit, samples: Sequence[Sample], found: Coefficients) -> Fit:
    after = mean_error(usable_samples(samples), found)
    return replace(fit, coefficients=found, error_after=after)


def _calibrated(fit: Fit) -> bool:
    return fit.calibrated


def _degenerate(fit: Fit) -> bool:
    return fit.degenerate


def _few(fit: Fit) -> bool:
    return not fit.calibrated


_IN_FORCE = "the prices in force stay as they are, and those need not be the default ones"
_KEPT = "no pair is not no price: one for every character is due, and it is calibrated"
_BOUND = "large sums have a large determinant: the bound is measured against Sxx · Syy"
_LIMITS = "no text has such prices: each is limited to 0.01 to 4, the single price too"
_KNOWN = [
    Known(
        _variant(enough=lambda number, wanted: number >= 3),
        "min_samples was not looked at: that many usable samples are wanted",
    ),
    Known(
        _variant(enough=lambda number, wanted: number > wanted),
        "as many usable samples as min_samples are enough, only fewer are too few",
    ),
    Known(
        _variant(enough=lambda number, wanted: number >= 1),
        "fitted all the same: two samples always have an exact solution, so nothing shows "
        "whether it holds",
    ),
    Known(
        _after(lambda fit, ss, a: replace(fit, samples=len(ss))),
        "all samples were counted: .samples is the number of usable ones",
    ),
    Known(
        _variant(usable=lambda ss: [s for s in ss if s.tokens > 0]),
        "a sample without characters was used: it says nothing about a price",
    ),
    Known(
        _after(lambda fit, ss, a: replace(fit, error_after=fit.error_before)),
        "error_after is that of the prices that are returned, not of the active ones",
    ),
    Known(
        _after(
            lambda fit, ss, a: replace(
                fit, error_before=fit.error_after, error_after=fit.error_before
            )
        ),
        "the two errors were swapped: before is by the active prices, after by the returned",
    ),
    Known(
        _after(
            lambda fit, ss, a: replace(fit, error_before=mean_error(usable_samples(ss), DEFAULT))
        ),
        "error_before is by the active prices, which need not be the default ones",
    ),
]
_KNOWN_FIT = [
    Known(
        starter.fit,
        "these are the coefficients that were in force: the samples were counted, not fitted",
    ),
    *_KNOWN,
    Known(
        _variant(limit=lambda price: price),
        _LIMITS,
    ),
    Known(
        _variant(bound=lambda det, product: det < 1e-3 * max(1, product)),
        "these samples can be told apart: the bound is 1e-6 · Sxx · Syy",
    ),
    Known(
        _where(
            _calibrated,
            lambda f, ss, a: _priced(f, ss, Coefficients(f.coefficients.other, f.coefficients.cjk)),
        ),
        "the two prices were swapped: the first is that of a CJK character",
    ),
    Known(
        _where(
            _calibrated,
            lambda f, ss, a: _priced(
                f, ss, Coefficients(round(f.coefficients.cjk, 2), round(f.coefficients.other, 2))
            ),
        ),
        "the prices were rounded: round where you show them, not where you count with them",
    ),
]
_KNOWN_SINGULAR = [
    Known(
        starter.fit,
        "a pair is reported as if it had been fitted: these samples cannot tell the two "
        "coefficients apart",
    ),
    Known(_where(_degenerate, lambda f, ss, a: _priced(f, ss, a)), _KEPT),
    Known(
        _where(_degenerate, lambda f, ss, a: replace(_priced(f, ss, a), calibrated=False)), _KEPT
    ),
    Known(_where(_degenerate, lambda f, ss, a: replace(f, calibrated=False)), _KEPT),
    Known(
        _variant(one_price=lambda ss: sum(s.tokens for s in ss) / sum(s.cjk + s.other for s in ss)),
        "all tokens by all characters is no least squares: it is Σ t·n / Σ n²",
    ),
    Known(_variant(bound=lambda det, product: not det), _BOUND),
    Known(_variant(bound=lambda det, product: det < 1e-6), _BOUND),
    Known(_variant(bound=lambda det, product: not det, limit=lambda price: price), _BOUND),
    Known(
        _variant(limit=lambda price: price),
        _LIMITS,
    ),
    *_KNOWN,
]
_KNOWN_FEW = [
    *_KNOWN,
    Known(
        _where(_few, lambda f, ss, a: _priced(f, ss, DEFAULT)),
        _IN_FORCE,
    ),
    Known(_where(_few, lambda f, ss, a: replace(f, coefficients=DEFAULT)), _IN_FORCE),
    Known(
        _where(_few, lambda f, ss, a: replace(f, calibrated=True)),
        "nothing was fitted, so nothing is calibrated",
    ),
]

# --- the checks -------------------------------------------------------------------------


@check(
    "calibrate-fit",
    day=2,
    of=fit,
    returns=Fit,
    known=_KNOWN_FIT,
    fault=_silent,
    view=_figures,
    say=_say,
    tell=_tell,
)
def calibrate_fit(trial: Trial, rng: Random) -> str:
    """Five samples with different ratios give both coefficients by least squares."""
    five = calibration_samples()
    found = trial(Named(five, "calibration_samples()"))
    for fixed in (_TINY, _NEGATIVE, _TWINS):
        trial(fixed)
    for number in (3, 6):
        trial(_samples(rng, number))
    # As many as are wanted are enough, whatever that number is.
    trial(_PAIR, min_samples=2)
    for wanted in (1, 4, 5):
        trial(_samples(rng, max(2, wanted)), min_samples=wanted)
    for cjk, other in ((0.5, 0.125), (rng.choice((0.75, 1.25, 1.5)), 0.375)):
        samples = _samples(rng, 4)
        trial([*samples, rng.choice(samples)], Coefficients(cjk, other))
    # Usage that no text has: each coefficient stays within its limits.
    trial([Sample(s.cjk, s.other, 40 * s.tokens) for s in _samples(rng, 3)])
    trial([Sample(900 + s.cjk, 900 - s.other, 1 + s.tokens // 90) for s in _samples(rng, 3)])
    # Hardly apart, and yet apart.
    trial(_near(rng, above=True))
    # Samples that say nothing, among others that do.
    trial(five[:3] + _UNUSABLE)
    mixed = [*_samples(rng, 4), *_UNUSABLE[: rng.randint(1, 4)], Sample(0, 0, rng.randint(1, 99))]
    rng.shuffle(mixed)
    trial(mixed, Coefficients(1.5, 0.5))
    return (
        f"✓ calibrated on {found.samples} samples: {_coefficients(found.coefficients)}, "
        f"{_errors(found.error_before, found.error_after)}"
    )


def _samples(rng: Random, number: int) -> list[Sample]:
    """Return samples whose CJK-to-other ratios lie far apart, with some noise in the usage."""
    a, b = rng.uniform(0.4, 1.4), rng.uniform(0.15, 0.5)
    samples = []
    for index in range(number):
        share = (index + rng.uniform(0.1, 0.9)) / number
        size = rng.randint(200, 900)
        cjk, other = round(size * share), round(size * (1 - share))
        noise = rng.uniform(0.9, 1.1)
        samples.append(Sample(cjk, other, round((a * cjk + b * other) * noise) + 1))
    rng.shuffle(samples)
    return samples


def _near(rng: Random, *, above: bool) -> list[Sample]:
    """Return samples of nearly one ratio, whose determinant lies just beside the bound."""
    # Small enough that no sum leaves 64 bits, large enough that a character makes little of it.
    size, ratio = rng.randrange(4000, 7000, 2), rng.choice((0.5, 1, 1.5, 2))

    def nearly(apart: int) -> list[Sample]:
        others = [round(size * k * ratio) + apart * (k == 2) for k in (1, 2, 3)]
        sizes = zip((size, 2 * size, 3 * size), others, strict=True)
        return [Sample(x, y, round(0.7 * x + 0.2 * y)) for x, y in sizes]

    apart, bound = 0, 1.05e-6 if above else 0.95e-6
    while True:
        determinant, product = _determinant(nearly(apart))
        if determinant > bound * product:
            return nearly(apart if above else apart - 1)
        apart += 1


@check(
    "calibrate-singular",
    day=2,
    of=fit,
    returns=Fit,
    known=_KNOWN_SINGULAR,
    fault=_silent,
    view=_figures,
    say=_say,
    tell=_tell,
)
def calibrate_singular(trial: Trial, rng: Random) -> str:
    """Where all samples have one ratio, no pair is reported: one coefficient stands for both."""
    trial(_ASCII)
    for cjk, other in ((0, 1), (1, 0), (1, rng.randint(1, 9)), (rng.randint(2, 9), 1)):
        per_character = rng.uniform(0.2, 1.2)
        trial(_one_ratio(rng, cjk, other, per_character), Coefficients(1.5, 0.5))
    # The one price has limits, too.
    for per_character in (rng.uniform(5, 40), rng.uniform(0.001, 0.005)):
        trial(_one_ratio(rng, rng.randint(0, 1), 1, per_character))
    # Long texts, nearly in one ratio: a large determinant, small beside the sums' product.
    size = rng.randint(3000, 6000)
    trial([Sample(size * k, size * k + k % 2, round(0.7 * size * k)) for k in (1, 2, 3)])
    trial(_near(rng, above=False))
    trial(_one_ratio(rng, 1, 2, 0.5) + _UNUSABLE)
    return f"✓ an all-ASCII sample judged unsolvable: {UNIFORM_NOTE}"


def _one_ratio(rng: Random, cjk: int, other: int, per_character: float) -> list[Sample]:
    sizes = rng.sample(range(200, 2000), rng.randint(3, 5))
    return [Sample(cjk * n, other * n, round(per_character * (cjk + other) * n) + 1) for n in sizes]


@check(
    "calibrate-few",
    day=2,
    of=fit,
    returns=Fit,
    known=_KNOWN_FEW,
    fault=_silent,
    view=_figures,
    say=_say,
    tell=_tell,
)
def calibrate_few(trial: Trial, rng: Random) -> str:
    """With fewer than three samples nothing is calibrated and the table stays unchanged."""
    kept = trial(_PAIR)
    trial(_PAIR + _UNUSABLE, _ODD)
    for number in (0, 1, 2):
        active = Coefficients(rng.choice((0.6, 1.1, 1.4)), rng.choice((0.2, 0.3)))
        trial(_samples(rng, number), active)
    # Three are too few where more are wanted, and one ratio changes nothing about that.
    for wanted in (4, rng.randint(5, 7)):
        trial(_samples(rng, wanted - 1), Coefficients(1.4, 0.3), min_samples=wanted)
    trial(_ASCII, Coefficients(1.4, 0.3), min_samples=5)
    trial([*_samples(rng, 3), *_UNUSABLE], min_samples=4)
    return (
        f"✓ {kept.samples} samples are too few to calibrate: "
        f"{_coefficients(kept.coefficients)} stay in force"
    )
