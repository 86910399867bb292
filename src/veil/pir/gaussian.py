"""Discrete Gaussian noise, sampled exactly from the operating system's generator (docs/theory/pir.md#exact-noise).

A uniform real U is drawn as a binary fraction, digits at a time; the sample is the least x with U < F(x), for the distribution
function F. The first 64 digits leave a cell for U, which mostly holds no F(x): a sorted search decides all samples at once.
Where it holds one, more digits and closer bounds on F, in integers, decide.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt64

# exp(-x^2 / (2 sigma^2)) = exp(-RATE x^2), for sigma = 6.4.
RATE = Fraction(25, 2048)
_GUARD = 64  # binary digits of the bounds on F beyond those of U

Draw = Callable[[int], bytes]


class Bounds(NamedTuple):
    """Integers `low` <= F(x) 2^digits <= `high` for x = -reach, ..., reach - 1, where F(x) is the probability of at most x."""

    reach: int
    low: list[int]
    high: list[int]


class _Cells(NamedTuple):
    """The cells of U that hold the lower and upper bounds on F(x), for the same x as in `Bounds`."""

    reach: int
    first: UInt64[np.ndarray, "values"]
    last: UInt64[np.ndarray, "values"]


def sample(count: int, draw: Draw = os.urandom, digits: int = 64) -> Int64[np.ndarray, "count"]:
    """`count` independent integers with probabilities proportional to exp(-x^2 / (2 sigma^2)), exactly.

    `draw` gives random bytes, and `digits` (8, 16, 32 or 64) are searched at once: arguments for tests, as few digits
    leave many samples to `decide`.
    """
    cells = np.frombuffer(draw(count * digits // 8), dtype=f"<u{digits // 8}").astype(np.uint64)
    reach, first, last = _cells(digits)
    surely = np.searchsorted(last, cells, side="left")  # how many F(x) lie below the cell
    perhaps = np.searchsorted(first, cells, side="right")  # how many lie below it or in it
    values = surely - reach
    undecided = (surely != perhaps) | (surely == 0) | (surely == len(last))
    for place in np.flatnonzero(undecided).tolist():
        values[place] = decide(int(cells[place]), digits, draw)
    return values


def decide(cell: int, digits: int, draw: Draw = os.urandom) -> int:
    """The sample for a U with `cell` <= U 2^digits < `cell` + 1, with further digits drawn as they are needed."""
    while True:
        reach, low, high = bounds(digits + _GUARD)
        surely = bisect_right(high, cell << _GUARD)
        if 0 < surely < len(low) and (cell + 1) << _GUARD <= low[surely]:
            return surely - reach
        cell = cell << 64 | int.from_bytes(draw(8), "little")
        digits += 64


@cache
def _cells(digits: int) -> _Cells:
    reach, low, high = bounds(digits + _GUARD)
    top = (1 << digits) - 1
    first = np.array([bound >> _GUARD for bound in low], dtype=np.uint64)
    last = np.array([min(bound >> _GUARD, top) for bound in high], dtype=np.uint64)
    return _Cells(reach=reach, first=first, last=last)


@cache
def bounds(digits: int) -> Bounds:
    """Bounds on the distribution function in units of 2^-digits, as far out as the weights are larger than that."""
    low, high = _weights(digits)
    reach = len(low) - 1
    # Beyond 28 each weight is below half of the one before, so that all weights beyond `reach` sum to less than its own.
    tail = high[reach]
    places = range(-reach, reach)
    sums_low = list(accumulate(low[abs(x)] for x in places))
    sums_high = list(accumulate((high[abs(x)] for x in places), initial=tail))[1:]
    total_low, total_high = sums_low[-1], sums_high[-1] + 2 * tail
    return Bounds(
        reach=reach,
        low=[(part << digits) // total_high for part in sums_low],
        high=[-((-part << digits) // total_low) for part in sums_high],
    )


def _weights(digits: int) -> tuple[list[int], list[int]]:
    """Integers that bound exp(-RATE x^2) 2^(digits + 32) for x = 0, 1, ... until it falls below 2^32."""
    shift = digits + 32
    low, high = [1 << shift], [1 << shift]
    ratio_low, ratio_high = _exponential(shift)  # of two successive weights: exp(-RATE (2 x + 1))
    step_low, step_high = _down(ratio_low, ratio_low, shift), _up(ratio_high, ratio_high, shift)
    while high[-1] >> 32 or len(high) <= 28:
        low.append(_down(low[-1], ratio_low, shift))
        high.append(_up(high[-1], ratio_high, shift))
        ratio_low, ratio_high = _down(ratio_low, step_low, shift), _up(ratio_high, step_high, shift)
    return low, high


def _exponential(shift: int) -> tuple[int, int]:
    """Integers that bound exp(-RATE) 2^shift: successive partial sums of its series, which alternates, lie on either side."""
    term, total, order = Fraction(1), Fraction(1), 0
    while order % 2 or term * (1 << shift) > 1:
        order += 1
        term *= RATE / order
        total += term if order % 2 == 0 else -term
    # The last term that was added is positive: `total` lies above, and without that term below.
    return _floor((total - term) * (1 << shift)), -_floor(-total * (1 << shift))


def _floor(value: Fraction) -> int:
    return value.numerator // value.denominator


def _down(left: int, right: int, shift: int) -> int:
    return left * right >> shift


def _up(left: int, right: int, shift: int) -> int:
    return -(-left * right >> shift)
