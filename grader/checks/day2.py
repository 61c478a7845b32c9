"""Day 2: coefficients out of real usage, and when not to report a pair of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from compaction.calibration import UNIFORM_NOTE, Fit, Sample, limit_coefficient, mean_error
from compaction.calibration import fit as library_fit
from compaction.session import calibration_samples
from compaction.tokens import DEFAULT, Coefficients
from grader.checks.check import Check, Function
from grader.checks.trial import Given, Known, Trial, given
from grader.starters import day2 as starter

_ASCII = [Sample(0, 480, 131), Sample(0, 1210, 318), Sample(0, 77, 24), Sample(0, 2600, 689)]


def _call(samples: Sequence[Sample], active: Coefficients = DEFAULT, name: str = "") -> Given:
    listed = ", ".join(f"Sample({s.cjk}, {s.other}, {s.tokens})" for s in samples)
    shown = name or f"[{listed}]"
    if active == DEFAULT:
        return given(f"fit({shown})", list(samples))
    return given(f"fit({shown}, Coefficients({active.cjk}, {active.other}))", list(samples), active)


def _without_note(given: Given, fit: Fit) -> dict[str, object]:
    """The note is for a person, in anybody's words."""
    return {
        "coefficients": fit.coefficients,
        "samples": fit.samples,
        "before": fit.error_before,
        "after": fit.error_after,
        "degenerate": fit.degenerate,
        "calibrated": fit.calibrated,
    }


def _without_errors(given: Given, fit: Fit) -> dict[str, object]:
    view = _without_note(given, fit)
    del view["before"], view["after"]
    return view


def _tell(given: Given, right: dict[str, object], seen: dict[str, object]) -> tuple[str, str]:
    for digits in (2, 6, 12):
        told = _in_words(right, digits), _in_words(seen, digits)
        if told[0] != told[1]:
            break
    return told


def _in_words(view: dict[str, object], digits: int) -> str:
    words = [
        "calibrated" if view["calibrated"] else "not calibrated",
        "degenerate" if view["degenerate"] else "not degenerate",
        f"{view['samples']} samples",
        _coefficients(view["coefficients"], digits),
    ]
    if "after" in view:
        words.append(_errors(view["before"], view["after"], digits - 1))
    return ", ".join(words)


def _coefficients(found: object, digits: int = 2) -> str:
    assert isinstance(found, Coefficients)
    return f"coefficients CJK {found.cjk:.{digits}f} / other {found.other:.{digits}f}"


def _errors(before: object, after: object, digits: int = 1) -> str:
    return f"error {before:.{digits}%} -> {after:.{digits}%}"


def _solved(samples: Sequence[Sample], active: Coefficients) -> tuple[Coefficients, float]:
    """Solve for the pair without any limits; return the determinant too."""
    xx = sum(s.cjk * s.cjk for s in samples)
    xy = sum(s.cjk * s.other for s in samples)
    yy = sum(s.other * s.other for s in samples)
    xt = sum(s.cjk * s.tokens for s in samples)
    yt = sum(s.other * s.tokens for s in samples)
    determinant = xx * yy - xy * xy
    if not determinant:
        return active, 0.0
    a, b = (xt * yy - yt * xy) / determinant, (xx * yt - xy * xt) / determinant
    return Coefficients(a, b), determinant


def _with(fit: Fit, samples: Sequence[Sample], found: Coefficients, degenerate: bool) -> Fit:
    after = mean_error(samples, found)
    return replace(fit, coefficients=found, error_after=after, degenerate=degenerate)


def _without_limits(samples: Sequence[Sample], active: Coefficients = DEFAULT) -> Fit:
    return _with(library_fit(samples, active), samples, _solved(samples, active)[0], False)


def _fixed_bound(samples: Sequence[Sample], active: Coefficients = DEFAULT) -> Fit:
    """Compare the determinant with a bound that does not grow with the texts."""
    fit, (found, determinant) = library_fit(samples, active), _solved(samples, active)
    if not determinant:
        return fit
    limited = Coefficients(limit_coefficient(found.cjk), limit_coefficient(found.other))
    return _with(fit, samples, limited, False)


def _fixed_bound_without_limits(samples: Sequence[Sample], active: Coefficients = DEFAULT) -> Fit:
    fit, (found, determinant) = library_fit(samples, active), _solved(samples, active)
    return _with(fit, samples, found, False) if determinant else fit


def _by_totals(samples: Sequence[Sample], active: Coefficients = DEFAULT) -> Fit:
    """Divide all tokens by all characters."""
    fit = library_fit(samples, active)
    each = sum(s.tokens for s in samples) / sum(s.cjk + s.other for s in samples)
    return _with(fit, samples, Coefficients(each, each), True) if fit.degenerate else fit


def _three_are_too_few(samples: Sequence[Sample], active: Coefficients = DEFAULT) -> Fit:
    return library_fit(samples, active, min_samples=4)


def _active_where_degenerate(samples: Sequence[Sample], active: Coefficients = DEFAULT) -> Fit:
    fit = library_fit(samples, active)
    return _with(fit, samples, active, True) if fit.degenerate else fit


def _uncalibrated_where_degenerate(
    samples: Sequence[Sample], active: Coefficients = DEFAULT
) -> Fit:
    return replace(_active_where_degenerate(samples, active), calibrated=False)


def calibrate_fit(fit: Function, rng: Random) -> str:
    """Five samples with different ratios: least squares finds both coefficients."""
    known = [
        Known(
            starter.fit,
            "these are the coefficients that were in force: the samples were counted, not fitted",
        ),
        Known(_three_are_too_few, "three usable samples are enough, only fewer are too few"),
        Known(_without_limits, "no text has such prices: each is limited to 0.01 to 4"),
    ]
    trial = Trial(fit, library_fit, Fit, known=known, view=_without_note, tell=_tell)
    found = trial.on(_call(calibration_samples(), name="calibration_samples()"))
    for _ in range(5):
        trial.on(_call(_samples(rng, rng.randint(3, 6))))
    active = Coefficients(rng.choice((0.5, 1.5)), rng.choice((0.125, 0.5)))
    trial.on(_call(_samples(rng, 4), active))
    # Usage that no text has: each coefficient stays within its limits.
    trial.on(_call([Sample(s.cjk, s.other, 40 * s.tokens) for s in _samples(rng, 3)]))
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


def calibrate_singular(fit: Function, rng: Random) -> str:
    """Samples of one kind of text: no pair is reported, but one per-character coefficient."""
    kept = "no pair is not no price: one for every character is due, and it is calibrated"
    bound = "large sums have a large determinant: the bound is measured against Sxx · Syy"
    known = [
        Known(
            starter.fit,
            "a pair is reported as if it had been fitted: these samples cannot tell the two "
            "coefficients apart",
        ),
        Known(_active_where_degenerate, kept),
        Known(_uncalibrated_where_degenerate, kept),
        Known(_by_totals, "all tokens by all characters is no least squares: it is Σ t·n / Σ n²"),
        Known(_fixed_bound, bound),
        Known(_fixed_bound_without_limits, bound),
    ]
    trial = Trial(fit, library_fit, Fit, known=known, fault=_silent, view=_without_note, tell=_tell)
    trial.on(_call(_ASCII))
    for cjk, other in ((0, 1), (1, 0), (1, rng.randint(1, 9)), (rng.randint(2, 9), 1)):
        per_character = rng.uniform(0.2, 1.2)
        sizes = rng.sample(range(20, 400), rng.randint(3, 5))
        samples = [
            Sample(cjk * n, other * n, round(per_character * (cjk + other) * n)) for n in sizes
        ]
        trial.on(_call(samples))
    # Long texts, nearly in one ratio: a large determinant, small beside the sums' product.
    size = rng.randint(100_000, 200_000)
    near = [Sample(size * k, size * k + k % 2, round(0.7 * size * k)) for k in (1, 2, 3)]
    trial.on(_call(near))
    return f"✓ an all-ASCII sample judged unsolvable: {UNIFORM_NOTE}"


def _silent(given: Given, fit: Fit) -> tuple[str, str] | None:
    if fit.degenerate and not fit.note.strip():
        return "a Fit whose .note says that one coefficient stands for both", "an empty .note"
    return None


def calibrate_few(fit: Function, rng: Random) -> str:
    """Fewer than three samples: not calibrated, and the table stays as it is."""
    known = Known(
        _fit_whatever_comes,
        "fitted all the same: two samples always have an exact solution, so nothing shows "
        "whether it holds",
    )
    trial = Trial(fit, library_fit, Fit, known=[known], view=_without_errors, tell=_tell)
    pair = [Sample(40, 310, 118), Sample(220, 30, 232)]
    kept = trial.on(_call(pair))
    for number in (0, 1, 2, 2):
        active = Coefficients(rng.choice((0.6, 1.1, 1.4)), rng.choice((0.2, 0.3)))
        trial.on(_call(_samples(rng, number), active))
    return (
        f"✓ {kept.samples} samples are too few to calibrate: "
        f"{_coefficients(kept.coefficients)} stay in force"
    )


def _fit_whatever_comes(samples: Iterable[Sample], active: Coefficients = DEFAULT) -> Fit:
    return library_fit(samples, active, min_samples=1)


CHECKS = (
    Check(
        "calibrate-fit",
        2,
        "fit",
        "Five samples with different ratios give both coefficients by least squares.",
        calibrate_fit,
    ),
    Check(
        "calibrate-singular",
        2,
        "fit",
        "Where all samples have one ratio, no pair is reported: one coefficient stands for both.",
        calibrate_singular,
    ),
    Check(
        "calibrate-few",
        2,
        "fit",
        "With fewer than three samples nothing is calibrated and the table stays unchanged.",
        calibrate_few,
    ),
)
