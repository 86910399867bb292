"""Privacy losses and attacks' success as text for people, rounded so that none is told smaller than it is."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from veil.errors import RangeError


def outward(value: float, digits: int = 4) -> str:
    """Privacy loss, or an attack's probability of success, as text for people, rounded up to a number of digits.

    It is never less than what was lost. A value with no more digits than that is told as it is typed: 0.1 is "0.1".
    Raises RangeError unless the value is >= 0: NaN is no loss.
    """
    return _rounded(value, digits, ROUND_CEILING)


def outward_percent(share: float, digits: int = 3) -> str:
    """Probability or share as a number of percent for people, rounded up to a number of digits, without the unit.

    The decimal point is moved: 100 * 0.07 is 7.000000000000001 in binary, which would be told as 7.01.
    Raises RangeError unless the share is >= 0.
    """
    return _rounded(share, digits, ROUND_CEILING, moved=2)


def inward(value: float, digits: int = 4) -> str:
    """Rest of a budget, or a lower bound, as text for people, rounded down to a number of digits.

    Raises RangeError unless the value is >= 0.
    """
    return _rounded(value, digits, ROUND_FLOOR)


def interval_ends(low: float, high: float, digits: int = 1) -> tuple[str, str]:
    """Ends of an interval of shares, in percent with `digits` digits behind the point: the lower rounded down, the upper up.

    An upper end of an attack's share is a bound on what it recovers. The interval that is told holds the one that was computed.
    """
    grid = Decimal(1).scaleb(-digits)
    ends = ((low, ROUND_FLOOR), (high, ROUND_CEILING))
    told_low, told_high = (Decimal(repr(float(end))).scaleb(2).quantize(grid, rounding) for end, rounding in ends)
    return f"{told_low:f}", f"{told_high:f}"


def _rounded(value: float, digits: int, rounding: str, *, moved: int = 0) -> str:
    """Value times 10 ** `moved` as text with a number of digits; "infinite" if it is. Digits before the point are all kept."""
    if not value >= 0:
        raise RangeError(
            f"a privacy loss or a probability is >= 0, got {float(value)!r}; check the numbers it was computed from"
        )
    if math.isinf(value):
        return "infinite"
    # The shortest decimal that reads back as the value: the exact binary one of 0.1 would be rounded up to 0.1001.
    decimal = Decimal(repr(abs(float(value)))).scaleb(moved)
    context = Context(prec=max(digits, decimal.adjusted() + 1), rounding=rounding)
    return f"{context.create_decimal(decimal).normalize():f}"
