"""Confidence intervals for shares (Clopper-Pearson, exact for every share) and for means (Student's t)."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import InputError, RangeError


def clopper_pearson(count: int, total: int, *, confidence: float) -> tuple[float, float]:
    """Clopper-Pearson confidence interval (low, high) of the share that `count` hits among `total` draws estimate.

    The interval contains the true share with probability at least `confidence`, whatever that share is. Its ends are quantiles
    of beta distributions (Clopper and Pearson 1934; docs/theory/audit.md, Eq. 2). Raises RangeError for impossible counts, or
    for a `confidence` outside (0, 1).
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
    """Lower and upper ends of the Clopper-Pearson intervals of many counts that share one `total`.

    Nothing is checked: the caller must pass 0 <= counts <= total, total >= 1 and 0 < confidence < 1.
    """
    from scipy.stats import beta

    tail, hits, misses = (1 - confidence) / 2, np.maximum(counts, 1), np.maximum(total - counts, 1)
    low = np.where(counts > 0, beta.ppf(tail, hits, total - counts + 1), 0.0)
    high = np.where(counts < total, beta.ppf(1 - tail, counts + 1, misses), 1.0)
    return low, high


def mean_interval(values: Float64[np.ndarray, "values"], *, confidence: float) -> tuple[float, float]:
    """Student's t confidence interval (low, high) of the mean of `values`.

    It is exact for normal values, and near enough for means of many other values. Fewer than two values say nothing about the
    spread: the interval is then (-inf, inf). Raises InputError for values that are not finite, RangeError for a `confidence`
    outside (0, 1).
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
