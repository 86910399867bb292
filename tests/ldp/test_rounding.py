"""Numbers for people: no loss, and no bound on what an attacker recovers, is told smaller than it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veil.errors import RangeError
from veil.ldp.rounding import interval_ends, inward, outward, outward_percent


@given(st.floats(1e-12, 1e12))
def test_losses_are_printed_upward_and_what_is_left_downward(value: float) -> None:
    """Oracle: fractions of the decimal that Python writes for the value. Broken twin: rounding to nearest (below)."""
    exact, up, down = Fraction(repr(value)), Fraction(outward(value)), Fraction(inward(value))
    assert down <= exact <= up
    assert up - down <= exact / 1000


def test_numbers_for_people() -> None:
    assert [outward(v) for v in (0.0, 0.1, 10.0, 657.31, 20196.2, 3709.9, math.inf)] == [
        *("0", "0.1", "10", "657.4", "20197", "3710", "infinite")
    ]
    assert float(f"{657.3400001:.4g}") < 657.3400001 < float(outward(657.3400001))


@given(st.integers(0, 9999), st.integers(-9, 0))
def test_percentages_have_the_digits_of_their_shares(count: int, exponent: int) -> None:
    """Oracle: fractions of the decimal as it is written. Four digits are told as they are, fewer are rounded up from them."""
    share = f"{count}e{exponent - 4}"
    assert Fraction(outward_percent(float(share), 4)) == 100 * Fraction(share)
    assert 100 * Fraction(share) <= Fraction(outward_percent(float(share), 2)) <= Fraction(share) * 110


def test_a_percentage_is_no_binary_product() -> None:
    """Broken twin: 100 * 0.07 is above 7."""
    assert [outward_percent(share) for share in (0.07, 0.29, 0.57, 0.123401, 1.0, 0.0)] == ["7", "29", "57", "12.4", "100", "0"]
    assert [outward(100 * share, 3) for share in (0.07, 0.57)] == ["7.01", "57"]


@pytest.mark.parametrize("value", [math.nan, -1.0, -5e-324, -math.inf])
@pytest.mark.parametrize("told", [outward, inward])
def test_what_is_no_loss_is_refused_and_not_printed(told: Callable[[float], str], value: float) -> None:
    """NaN was told as "NaN" here and as "infinite" by the client in TypeScript, which has the same vectors."""
    with pytest.raises(RangeError, match=f"is >= 0, got {value!r}; check the numbers"):
        told(value)
    assert told(-0.0) == "0"


@given(st.floats(0, 1), st.floats(0, 1), st.sampled_from([0, 1, 2]))
def test_the_interval_that_is_told_holds_the_computed_one(one: float, other: float, digits: int) -> None:
    """Oracle: fractions of the decimals as they are written. Each end moves by less than one step of the last digit."""
    low, high = sorted((one, other))
    ends = interval_ends(low, high, digits)
    told_low, told_high = (Fraction(end) / 100 for end in ends)
    step = Fraction(1, 100 * 10**digits)
    assert told_low <= Fraction(repr(low)) < told_low + step and told_high - step < Fraction(repr(high)) <= told_high
    assert [len(end.partition(".")[2]) for end in ends] == [digits, digits]


def test_ends_of_intervals() -> None:
    """Broken twin: to the nearest number, these ends were told as 12.4 and 25.4."""
    assert interval_ends(0.1238, 0.2541) == ("12.3", "25.5")
    assert interval_ends(0.07, 0.29) == ("7.0", "29.0"), "binary products are 7.000000000000001 and 28.999999999999996"
    assert interval_ends(0.0, 1.0, 0) == ("0", "100")
    assert interval_ends(-0.0551, 0.001, 0) == ("-6", "1"), "a gain may be negative"
