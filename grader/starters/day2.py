"""Day 2, as it is handed out: coefficients are reported, and nothing was calibrated."""

from __future__ import annotations

from collections.abc import Iterable

from compaction.calibration import Fit, Sample, mean_error, usable_samples
from compaction.tokens import DEFAULT, Coefficients


def fit(samples: Iterable[Sample], active: Coefficients = DEFAULT, min_samples: int = 3) -> Fit:
    """Say which coefficients hold for the samples, and how far off they are."""
    usable = usable_samples(samples)
    error = mean_error(usable, active)
    enough = len(usable) >= min_samples
    if enough:
        note = f"calibrated on {len(usable)} samples"
    else:
        note = f"{len(usable)} of {min_samples} samples needed"
    # The table has served well so far: with enough samples behind it, it counts as calibrated.
    return Fit(active, len(usable), error, error, False, enough, note)
