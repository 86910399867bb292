"""Exact composition of the subset mechanism's privacy loss, rounded outward.

The loss of one feature is +epsilon, 0 or -epsilon, so that of n features is epsilon times a walk on the integers. Its
distribution is convolved from positive terms only, which costs no accuracy, and what is cut off or rounded is added to delta.

Theory: words.md#composition; docs/theory/words.md, Eq. 7-8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Float64

from veil.errors import RangeError
from veil.ldp.mechanism import SubsetMechanism

# Mass cut off each side of the walk at each convolution; all of it is counted in delta.
TAIL = 1e-30
_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivacyLoss:
    """Distribution of the loss of some features under the true input: `mass[i]` at (`low` + i) * `step`.

    `lost` is probability that was cut off above and counts as unlimited loss; `rounding` bounds the relative error of masses.
    """

    step: float
    low: int
    mass: Float64[np.ndarray, "_"]
    lost: float
    rounding: float

    def delta(self, epsilon: float) -> float:
        """Upper bound of the least delta with which `epsilon` holds: P(loss) (1 - e^(epsilon - loss)), over larger losses."""
        loss = self.step * (self.low + np.arange(len(self.mass)))
        above = loss > epsilon
        excess = self.mass[above] * -np.expm1(epsilon - loss[above])
        # One more rounding for each operation on a term, and one a term for the sum.
        slack = self.rounding + (len(excess) + 8) * _UNIT_ROUNDOFF
        return min(1.0, float(excess.sum()) * (1 + slack) + self.lost)

    def epsilon(self, delta: float) -> float:
        """The least epsilon with which `delta` suffices, never below the exact one and at most 1e-9 (relative) above it."""
        _require_delta(delta)
        if self.lost >= delta:
            raise RangeError(f"delta={delta:g} is below what this computation resolves ({self.lost:.1g}); use a larger delta")
        low, high = 0.0, max(0.0, self.step * (self.low + len(self.mass) - 1))
        if self.delta(0.0) <= delta:
            return 0.0
        while high - low > 1e-10 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        # What losses were rounded by moves the epsilon that satisfies delta by as much.
        return high * (1 + 1e-12) + 4 * math.ulp(self.step * max(abs(self.low), self.low + len(self.mass)))


def privacy_loss(mechanism: SubsetMechanism, features: int) -> PrivacyLoss:
    """The loss of `features` features at once. Raises RangeError for an infinite epsilon, which promises nothing."""
    if math.isinf(mechanism.epsilon):
        raise RangeError("an infinite epsilon composes to nothing; choose a finite one to have an account")
    if features < 1:
        raise RangeError(f"features must be at least 1, got {features!r}")
    ahead, behind = mechanism.loss
    step = np.array([float(behind), float(1 - ahead - behind), float(ahead)])
    one = PrivacyLoss(step=mechanism.epsilon, low=-1, mass=step, lost=0.0, rounding=2 * _UNIT_ROUNDOFF)
    # Square and multiply, from the highest binary digit down.
    total = one
    for digit in bin(features)[3:]:
        total = _added(total, total)
        if digit == "1":
            total = _added(total, one)
    return total


def _added(a: PrivacyLoss, b: PrivacyLoss) -> PrivacyLoss:
    """The loss of both together, for independent draws. What is cut off below is moved up, above it is lost: both outward."""
    mass = np.convolve(a.mass, b.mass)
    low = a.low + b.low
    upper = len(mass) - int(np.searchsorted(np.cumsum(mass[::-1]), TAIL))
    lower = int(np.searchsorted(np.cumsum(mass[:upper]), TAIL))
    lower = min(lower, upper - 1)
    cut_above, cut_below = float(mass[upper:].sum()), float(mass[:lower].sum())
    kept = mass[lower:upper].copy()
    kept[0] += cut_below
    rounding = a.rounding + b.rounding + (min(len(a.mass), len(b.mass)) + 2) * _UNIT_ROUNDOFF
    lost = a.lost + b.lost + cut_above * (1 + rounding)
    return PrivacyLoss(step=a.step, low=low + lower, mass=kept, lost=lost, rounding=rounding)


def composed_epsilon(spent: Mapping[SubsetMechanism, int], delta: float) -> float:
    """Epsilon at `delta` of all features in `spent` (features of each mechanism) together; never below the exact one.

    One mechanism is composed exactly. Several share delta equally and their epsilons add, which is an upper bound. The basic
    composition, the sum of all epsilons, is taken where it is less; it needs no delta.
    """
    _require_delta(delta)
    if any(math.isinf(mechanism.epsilon) for mechanism in spent):
        return math.inf
    charged = {mechanism: count for mechanism, count in spent.items() if count > 0}
    if not charged:
        return 0.0
    share = delta / len(charged)
    exact = math.fsum(privacy_loss(mechanism, count).epsilon(share) for mechanism, count in charged.items())
    return min(exact, basic_epsilon(charged))


def basic_epsilon(spent: Mapping[SubsetMechanism, int]) -> float:
    """The sum of all features' epsilons, which holds with delta = 0; rounded up, and exact where a float can hold it."""
    if any(math.isinf(mechanism.epsilon) and count for mechanism, count in spent.items()):
        return math.inf
    total = sum((Fraction(mechanism.epsilon) * count for mechanism, count in spent.items() if count), Fraction(0))
    nearest = float(total)
    return nearest if nearest >= total else math.nextafter(nearest, math.inf)


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a release promises for one feature, for an object of `object_features`, and for everything in it, at `delta`."""

    features: int
    object_features: int
    delta: float
    feature_epsilon: float
    object_epsilon: float
    total_epsilon: float
    basic_epsilon: float


def account(mechanism: SubsetMechanism, features: int, *, delta: float, object_features: int = 50) -> Account:
    """The account of `features` features under `mechanism`: an object is some features that change together.

    Theory: words.md#composition.
    """
    _require_delta(delta)
    part = min(features, object_features)
    return Account(
        features=features,
        object_features=part,
        delta=delta,
        feature_epsilon=mechanism.epsilon,
        object_epsilon=composed_epsilon({mechanism: part}, delta),
        total_epsilon=composed_epsilon({mechanism: features}, delta),
        basic_epsilon=basic_epsilon({mechanism: features}),
    )


def _require_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise RangeError(f"delta must lie between 0 and 1, got {delta!r}; 1e-6 is usual")
