"""Confidence intervals: of shares exactly, whatever their size, and of means."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import InputError, RangeError


def clopper_pearson(count: int, total: int, *, confidence: float) -> tuple[float, float]:
    """The Clopper-Pearson interval of a share: it holds the truth with at least `confidence`, whatever `count` in `total` is.

    Its ends are quantiles of beta distributions (Clopper and Pearson 1934). Raises RangeError for impossible counts.
    """
    if not 0 <= count <= total or total < 1:
        raise RangeError(f"a share needs a count between 0 and a total of at least 1, got {count!r} of {total!r}")
    if not 0 < confidence < 1:
        raise RangeError(f"confidence must be between 0 and 1, got {confidence!r}")
    low, high = clopper_pearson_ends(np.array([count]), total, confidence=confidence)
    return float(low[0]), float(high[0])


def clopper_pearson_ends(
    counts: Int64[np.ndarray, "counts"], total: int, *, confidence: float
) -> tuple[Float64[np.ndarray, "counts"], Float64[np.ndarray, "counts"]]:
    """The lower and upper ends of the Clopper-Pearson intervals of many counts in one total, which are not checked."""
    from scipy.stats import beta

    tail, some, rest = (1 - confidence) / 2, np.maximum(counts, 1), np.maximum(total - counts, 1)
    low = np.where(counts > 0, beta.ppf(tail, some, total - counts + 1), 0.0)
    high = np.where(counts < total, beta.ppf(1 - tail, counts + 1, rest), 1.0)
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


def _require(values: Float64[np.ndarray, "values"], confidence: float) -> None:
    if not np.isfinite(values).all():
        raise InputError("an interval of a mean needs finite values; leave out what is undecided")
    if not 0 < confidence < 1:
        raise RangeError(f"confidence must be between 0 and 1, got {confidence!r}")
