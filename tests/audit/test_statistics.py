"""Intervals: coverage by enumeration of all outcomes, and by planted means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from veil.audit.statistics import clopper_pearson, mean_interval
from veil.errors import InputError, RangeError
from worlds import generator


@pytest.mark.parametrize("total", [1, 7, 40])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_of_a_share_covers_every_truth(total: int, confidence: float) -> None:
    ends = [clopper_pearson(count, total, confidence=confidence) for count in range(total + 1)]
    for truth in np.linspace(0.005, 0.995, 67):
        chance = binom.pmf(np.arange(total + 1), total, truth)
        covered = sum(p for p, (low, high) in zip(chance, ends, strict=True) if low <= truth <= high)
        below = sum(p for p, (_, high) in zip(chance, ends, strict=True) if high < truth)
        assert covered >= confidence - 1e-12
        assert below <= (1 - confidence) / 2 + 1e-12  # each side by itself


def test_ends_of_a_share_are_where_the_tails_are() -> None:
    # Clopper and Pearson's definition: at the low end a count as large or larger has probability (1 - confidence) / 2.
    low, high = clopper_pearson(13, 50, confidence=0.9)
    assert binom.sf(12, 50, low) == pytest.approx(0.05, rel=1e-9)
    assert binom.cdf(13, 50, high) == pytest.approx(0.05, rel=1e-9)
    assert clopper_pearson(0, 40, confidence=0.9) == (0.0, pytest.approx(1 - 0.05 ** (1 / 40)))
    assert clopper_pearson(40, 40, confidence=0.9) == (pytest.approx(0.05 ** (1 / 40)), 1.0)


def test_intervals_of_means_cover_as_often_as_they_say() -> None:
    """Nine times in ten; 79 % and 97 % would be seen."""
    random, covered, games = generator("means t"), 0, 1500
    for _ in range(games):
        values = random.gamma(2.0, 0.5, 60)  # skewed, mean 1
        low, high = mean_interval(values, confidence=0.9)
        assert low < values.mean() < high
        covered += low <= 1 <= high
    # Too often would be as wrong as too seldom; the method is a little short for skewed values.
    least, most = binom.ppf(1e-6, games, 0.87), binom.isf(1e-6, games, 0.91)
    assert least <= covered <= most
    assert binom.sf(least, games, 0.79) < 1e-3 and binom.cdf(most, games, 0.97) < 1e-3


def test_intervals_of_means_shrink_with_the_root_of_the_count() -> None:
    values = generator("shrink").normal(size=4000)
    widths = [np.ptp(mean_interval(values[:count], confidence=0.95)) for count in (1000, 4000)]
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.1)


def test_what_says_nothing_of_its_spread_gets_no_end() -> None:
    assert mean_interval(np.array([3.0]), confidence=0.95) == (-math.inf, math.inf)
    assert mean_interval(np.empty(0), confidence=0.95) == (-math.inf, math.inf)


def test_bad_input_is_refused() -> None:
    for count, total in ((-1, 5), (6, 5), (0, 0)):
        with pytest.raises(RangeError, match="share"):
            clopper_pearson(count, total, confidence=0.9)
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(RangeError, match="confidence"):
            clopper_pearson(1, 5, confidence=confidence)
        with pytest.raises(RangeError, match="confidence"):
            mean_interval(np.ones(3), confidence=confidence)
    with pytest.raises(InputError, match="finite"):
        mean_interval(np.array([1.0, math.nan]), confidence=0.9)
