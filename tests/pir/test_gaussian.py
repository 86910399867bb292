"""The noise has exactly the law of a discrete Gaussian, in its common and in its rare paths."""

from __future__ import annotations

from collections import Counter
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


def given(*numbers: int, size: int = 8) -> Callable[[int], bytes]:
    """The first number in `size` bytes, then each of the others in 8."""
    first, *others = numbers
    pieces = iter([first.to_bytes(size, "little"), *(number.to_bytes(8, "little") for number in others)])
    return lambda _: next(pieces)


def test_samples_have_the_law() -> None:
    """Oracle: chi-square against the definition, bounded on both sides. Broken twins: a rounded normal of 6.3, and its half."""
    require_discrete_gaussian(gaussian.sample(1_000_000, digits_of("law")), sees=0.012)
    random = generator("twins")
    for twin in (np.round(random.normal(0, 6.3, 1_000_000)), np.round(random.normal(0, SIGMA, 1_000_000)) // 2 * 2):
        with pytest.raises(AssertionError, match="p ="):
            require_discrete_gaussian(twin.astype(np.int64), sees=0.012)


def test_samples_that_need_more_digits_have_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: as above, with 8 digits searched at once, which leave a part of the samples to the exact decision.

    Broken twin: a decision on the next cell.
    """
    count, decide, decided = 100_000, gaussian.decide, Counter[int]()

    def counted(cell: int, digits: int, draw: gaussian.Draw) -> int:
        decided[cell] += 1
        return decide(cell, digits, draw)

    monkeypatch.setattr(gaussian, "decide", counted)
    require_discrete_gaussian(gaussian.sample(count, digits_of("few digits"), digits=8), sees=0.04)
    assert 0.1 * count < decided.total() < 0.9 * count
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
                    rest = given((real >> 64) & (2**64 - 1), real & (2**64 - 1), 0)
                    assert gaussian.decide(real >> 128, 64, rest) == expected


def test_the_ends_of_the_unit_interval_are_decided_by_more_digits() -> None:
    """Oracle: the tail in 100 decimal digits. The first 64 digits are all 0 or all 1; the sampler stops at neither."""
    for cell, sign in ((0, -1), (2**64 - 1, 1)):
        value = gaussian.decide(cell, 64, given(7 << 60 if sign < 0 else 2**64 - 1 - (7 << 60), 0))
        tail = sum(probability for x, probability in law().items() if sign * x > abs(value))
        assert tail < Decimal(7) / 2**68 < tail + law()[value]
        assert np.sign(value) == sign


def test_the_common_path_is_the_exact_decision() -> None:
    """Oracle: the exact decision, for samples at the edges of all cells and in the middle."""
    cells = {int(edge) + step for edge in gaussian._cells(16).first for step in (-1, 0, 1)} & set(range(1, 2**16 - 1))
    for cell in sorted(cells):
        more = [1 << 63] * 4
        assert gaussian.sample(1, given(cell, *more, size=2), digits=16).tolist() == [gaussian.decide(cell, 16, given(*more))]


def test_no_samples_and_fresh_ones() -> None:
    assert gaussian.sample(0).shape == (0,)
    assert not np.array_equal(gaussian.sample(100), gaussian.sample(100))
