"""Statistical tests of draws that say what they would see: none may pass because its sample is small.

Each asserts that the sample fits the law, at a level of 1e-6 on both sides where a fit can be too good, and that a law that is
off by `sees` would have been refused with probability 0.999.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

LEVEL, MISSED = 1e-6, 1e-3


def require_even(counts: np.ndarray, *, sees: float, spread: float = 1.0) -> None:
    """Chi-square of `counts` against equal shares; cells that are off by `sees` of their share (root mean square) are seen.

    With N draws in k cells the statistic of such a law is noncentral chi-square of k - 1 degrees with noncentrality N sees^2.
    `spread` is the variance of a count over that of independent draws: for q of n distinct ones each time, (n - q) / (n - 1).
    """
    cells, total = len(counts), float(np.sum(counts)) / spread
    limit = stats.chi2.isf(LEVEL, cells - 1)
    missed = float(stats.ncx2.cdf(limit, cells - 1, total * sees**2))
    assert missed <= MISSED, (
        f"{total:.0f} draws in {cells} cells miss shares that are {sees:.1%} off with probability {missed:.2g}"
    )
    p = float(stats.chi2.sf(stats.chisquare(counts).statistic / spread, cells - 1))
    assert LEVEL < p < 1 - LEVEL, f"p = {p:.2g}: {np.asarray(counts).tolist()}"


def require_share(hits: int, trials: int, probability: float, *, sees: float) -> None:
    """Binomial `hits`; a probability that is off by `sees` (a difference, not a ratio) to either side is seen."""
    low, high = stats.binom.ppf(LEVEL / 2, trials, probability), stats.binom.isf(LEVEL / 2, trials, probability)
    for other in (probability - sees, probability + sees):
        if 0 <= other <= 1:
            missed = float(stats.binom.cdf(high, trials, other) - stats.binom.cdf(low - 1, trials, other))
            assert missed <= MISSED, f"{trials} trials miss {other:.4g} for {probability:.4g} with probability {missed:.2g}"
    assert low <= hits <= high, f"{hits} of {trials}, and {low:.0f} to {high:.0f} are expected"


def require_law(values: np.ndarray, law: str | Callable[[np.ndarray], np.ndarray], *, sees: float) -> None:
    """Kolmogorov-Smirnov of `values` against a law of scipy or a distribution function; one that is off by `sees` is seen.

    The empirical function is within e of the true one but for 2 exp(-2 N e^2) (Massart 1990).
    """
    count = values.size
    limit = math.sqrt(math.log(2 / LEVEL) / (2 * count))
    least = limit + math.sqrt(math.log(2 / MISSED) / (2 * count))
    assert sees >= least, f"{count} values see distribution functions that are off by {least:.2g}, not {sees:.2g}"
    p = float(stats.kstest(values.ravel(), law).pvalue)
    assert LEVEL < p < 1 - LEVEL, f"p = {p:.2g}"


def require_mean(values: np.ndarray, expected: float, *, sees: float) -> None:
    """The mean of independent `values` against `expected`, by the normal limit; one that is off by `sees` is seen."""
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    limit = float(stats.norm.isf(LEVEL / 2)) * error
    least = limit + float(stats.norm.isf(MISSED)) * error
    assert sees >= least, f"{values.size} values see means that are off by {least:.2g}, not {sees:.2g}"
    assert abs(values.mean() - expected) < limit, f"mean {values.mean():.6g} for {expected:.6g}, allowed {limit:.2g}"


def require_unrelated(first: np.ndarray, second: np.ndarray, *, sees: float) -> None:
    """Spearman's rank correlation against none; one of `sees` is seen (Fisher's z, standard error 1 / sqrt(N - 3))."""
    error = 1 / math.sqrt(len(first) - 3)
    limit = float(stats.norm.isf(LEVEL / 2)) * error
    least = math.tanh(limit + 1.03 * float(stats.norm.isf(MISSED)) * error)
    assert sees >= least, f"{len(first)} pairs see correlations of {least:.2g}, not {sees:.2g}"
    correlation = float(stats.spearmanr(first, second).statistic)
    assert abs(math.atanh(correlation)) < limit, f"correlation {correlation:.3g}, allowed {math.tanh(limit):.2g}"


def require_counts(counts: np.ndarray, probabilities: np.ndarray, *, sees: float) -> None:
    """Chi-square of `counts` against a law; one whose cells are off by `sees` (root mean square, weighted by it) is seen."""
    total, freedom = float(np.sum(counts)), len(counts) - 1
    limit = stats.chi2.isf(LEVEL, freedom)
    missed = float(stats.ncx2.cdf(limit, freedom, total * sees**2))
    assert missed <= MISSED, f"{total:.0f} draws miss a law that is {sees:.1%} off with probability {missed:.2g}"
    statistic = float(((counts - total * probabilities) ** 2 / (total * probabilities)).sum())
    p = float(stats.chi2.sf(statistic, freedom))
    assert LEVEL < p < 1 - LEVEL, f"p = {p:.2g}: {np.asarray(counts).tolist()}"
