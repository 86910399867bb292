"""Intervals for what an audit measures: of shares exactly, whatever their size, and of means."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError, RangeError


def share_interval(count: int, total: int, *, confidence: float) -> tuple[float, float]:
    """The Clopper-Pearson interval of a share: it holds the truth with at least `confidence`, of any `count` in `total`.

    Its ends are quantiles of beta distributions (Clopper and Pearson 1934). Raises RangeError for impossible counts.
    """
    from scipy.stats import beta

    if not 0 <= count <= total or total < 1:
        raise RangeError(f"a share needs a count between 0 and a total of at least 1, got {count!r} of {total!r}")
    if not 0 < confidence < 1:
        raise RangeError(f"confidence must be between 0 and 1, got {confidence!r}")
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, count, total - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, total - count)) if count < total else 1.0
    return low, high


def mean_interval(values: Float64[np.ndarray, "values"], *, confidence: float) -> tuple[float, float]:
    """Student's t interval of a mean: exact for normal values, near enough for means of many others.

    One value, or none, says nothing of its spread: the interval is then everything. Raises InputError for values not finite.
    """
    from scipy.stats import t

    _require(values, confidence)
    if len(values) < 2:
        return -math.inf, math.inf
    half = float(values.std(ddof=1) / math.sqrt(len(values)) * t.ppf((1 + confidence) / 2, len(values) - 1))
    return float(values.mean()) - half, float(values.mean()) + half


def bootstrap_interval(
    values: Float64[np.ndarray, "values"], *, confidence: float, seed: int, resamples: int = 2000
) -> tuple[float, float]:
    """The percentile bootstrap interval of a mean (Efron 1979): for values so skewed that Student's is wrong.

    It never leaves the range of the values, and is too short for fewer than about 20 of them. Raises InputError for values that
    are not finite or none.
    """
    _require(values, confidence)
    if not len(values):
        raise InputError("the bootstrap needs at least one value")
    if resamples < 1:
        raise RangeError(f"resamples must be at least 1, got {resamples!r}")
    random = np.random.default_rng(seed)
    means = np.empty(resamples)
    for start in range(0, resamples, max(1, (1 << 22) // len(values))):
        part = means[start : start + max(1, (1 << 22) // len(values))]
        part[:] = values[random.integers(0, len(values), (len(part), len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return low, high


def _require(values: Float64[np.ndarray, "values"], confidence: float) -> None:
    if not np.isfinite(values).all():
        raise InputError("an interval of a mean needs finite values; leave out what is undecided")
    if not 0 < confidence < 1:
        raise RangeError(f"confidence must be between 0 and 1, got {confidence!r}")
