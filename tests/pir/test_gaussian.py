"""The noise has exactly the law of a discrete Gaussian, in its common and in its rare paths."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest

from veil.pir import gaussian
from veil.pir.layout import SIGMA
from worlds import generator
from worlds.discrete_gaussian import DIGITS, law, require_discrete_gaussian


def digits_of(name: str) -> Callable[[int], bytes]:
    """Reproducible random bytes."""
    random = generator(name)
    return random.bytes


@pytest.mark.slow
def test_samples_have_the_law() -> None:
    """Oracle: chi-square against the definition, bounded on both sides. Broken twins: a rounded normal of 6.3, and its half."""
    require_discrete_gaussian(gaussian.sample(1_000_000, digits_of("law")), sees=0.012)
    random = generator("twins")
    for twin in (np.round(random.normal(0, 6.3, 1_000_000)), np.round(random.normal(0, SIGMA, 1_000_000)) // 2 * 2):
        with pytest.raises(AssertionError, match="p ="):
            require_discrete_gaussian(twin.astype(np.int64), sees=0.012)


@pytest.mark.slow
def test_samples_that_need_more_digits_have_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: as above, with 8 digits searched at once, which leave four of ten samples to the exact decision.

    Broken twin: a decision on the next cell.
    """
    count, decided = 100_000, []
    decide = gaussian.decide
    monkeypatch.setattr(gaussian, "decide", lambda *arguments: decided.append(1) or decide(*arguments))
    require_discrete_gaussian(gaussian.sample(count, digits_of("few digits"), digits=8), sees=0.04)
    assert 0.1 * count < len(decided) < 0.9 * count
    monkeypatch.setattr(gaussian, "decide", lambda cell, digits, draw: decide(min(cell + 1, 254), digits, draw))
    with pytest.raises(AssertionError, match="p ="):
        require_discrete_gaussian(gaussian.sample(count, digits_of("few digits"), digits=8), sees=0.04)


@pytest.mark.parametrize("digits", [72, 128, 192])
def test_bounds_hold_the_distribution_function_closely(digits: int) -> None:
    """Oracle: the distribution function in 100 decimal digits."""
    reach, low, high = gaussian.bounds(digits)
    below = Decimal(0)
    with localcontext() as context:
        context.prec = DIGITS
        for x, probability in law().items():
            below += probability
            if -reach <= x < reach:
                assert low[x + reach] <= below * 2**digits <= high[x + reach] <= low[x + reach] + 4


def test_a_cell_that_holds_a_value_of_the_distribution_function_is_split_there() -> None:
    """Oracle: the distribution function in 100 decimal digits, just below and just above each of its values in the middle."""
    below = Decimal(0)
    with localcontext() as context:
        context.prec = DIGITS
        for x, probability in law().items():
            below += probability
            if abs(x) <= 30:
                first = int(below * 2**192)
                for real, expected in ((first - 1, x), (first + 1, x + 1)):
                    rest = [(real >> 64) & (2**64 - 1), real & (2**64 - 1), 0]
                    draw = iter(rest).__next__
                    assert gaussian.decide(real >> 128, 64, lambda _, draw=draw: draw().to_bytes(8, "little")) == expected


def test_the_ends_of_the_unit_interval_are_decided_by_more_digits() -> None:
    """Oracle: the tail in 100 decimal digits. The first 64 digits are all 0 or all 1; the sampler stops at neither."""
    for cell, sign in ((0, -1), (2**64 - 1, 1)):
        rest = iter([7 << 60, 0] if sign < 0 else [2**64 - 1 - (7 << 60), 0])
        value = gaussian.decide(cell, 64, lambda _, rest=rest: next(rest).to_bytes(8, "little"))
        tail = sum(probability for x, probability in law().items() if sign * x > abs(value))
        assert tail < Decimal(7) / 2**68 < tail + law()[value]
        assert np.sign(value) == sign


def test_the_common_path_is_the_exact_decision() -> None:
    """Oracle: the exact decision, for samples at the edges of all cells and in the middle."""
    cells = {int(edge) + step for edge in gaussian._cells(16).first for step in (-1, 0, 1)} & set(range(1, 2**16 - 1))
    for cell in sorted(cells):
        digits = [cell.to_bytes(2, "little"), *[(1 << 63).to_bytes(8, "little")] * 4]
        first, second = iter(digits), iter(digits[1:])
        sampled = gaussian.sample(1, lambda _, it=first: next(it), digits=16)
        assert sampled.tolist() == [gaussian.decide(cell, 16, lambda _, it=second: next(it))]


def test_no_samples_and_fresh_ones() -> None:
    assert gaussian.sample(0).shape == (0,)
    assert not np.array_equal(gaussian.sample(100), gaussian.sample(100))
