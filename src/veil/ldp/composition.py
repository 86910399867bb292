"""Exact composition of the subset mechanism's privacy loss, rounded outward.

The loss of one feature is +epsilon, 0 or -epsilon, so that the loss of n features is epsilon times a walk on the integers. Its
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

# Mass that is cut off at each side of the walk at each convolution; delta counts all of it.
TAIL = 1e-30
_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivacyLoss:
    """Distribution of the privacy loss of some features under the true input.

    - `step`: epsilon of one feature; losses are multiples of it.
    - `low`, `mass`: the loss is (`low` + i) * `step` with probability `mass[i]`.
    - `lost`: probability that was cut off above; it counts as unlimited loss.
    - `rounding`: bound of the relative error of each mass.
    """

    step: float
    low: int
    mass: Float64[np.ndarray, "_"]
    lost: float
    rounding: float

    def delta(self, epsilon: float) -> float:
        """Upper bound of the least delta with which `epsilon` holds (docs/theory/words.md, Eq. 8).

        It is the sum of P(loss) (1 - e^(epsilon - loss)) over all losses above epsilon.
        """
        loss = self.step * (self.low + np.arange(len(self.mass)))
        above = loss > epsilon
        excess = self.mass[above] * -np.expm1(epsilon - loss[above])
        # One more rounding for each operation on a term, and one for each term of the sum.
        slack = self.rounding + (len(excess) + 8) * _UNIT_ROUNDOFF
        return min(1.0, float(excess.sum()) * (1 + slack) + self.lost)

    def epsilon(self, delta: float) -> float:
        """Least epsilon with which `delta` suffices, never below the exact one and at most 1e-9 (relative) above it.

        Raises RangeError for a delta outside (0, 1), or one that is too small for this computation to resolve.
        """
        _require_delta(delta)
        if self.lost >= delta:
            raise RangeError(f"delta={delta:g} is below what this computation resolves ({self.lost:.1g}); use a larger delta")
        low, high = 0.0, max(0.0, self.step * (self.low + len(self.mass) - 1))
        if self.delta(0.0) <= delta:
            return 0.0
        while high - low > 1e-10 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        # Rounded losses move the epsilon that satisfies delta by as much as they were rounded.
        return high * (1 + 1e-12) + 4 * math.ulp(self.step * max(abs(self.low), self.low + len(self.mass)))


def privacy_loss(mechanism: SubsetMechanism, features: int) -> PrivacyLoss:
    """Privacy loss of `features` draws of the mechanism together (docs/theory/words.md, Eq. 7).

    Raises RangeError for an infinite epsilon, which promises nothing, and for less than one feature.
    """
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
    """Privacy loss of both together, for independent draws.

    Mass that is cut off below moves up to the least loss, and mass that is cut off above counts as lost: both err outward.
    """
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


def composed_epsilon(spent: Mapping[SubsetMechanism, int], delta: float = 0.0) -> float:
    """Epsilon at `delta` of all features together, of which `spent` counts those of each mechanism; never below the exact one.

    At a delta of 0 this is the basic composition, the sum of all epsilons: rounded up, and exact where a float can hold it. At
    a larger one a mechanism is composed exactly. Several share delta equally and their epsilons add, which is an upper bound;
    the basic composition is taken where it is less. Infinite epsilons give infinity. Raises RangeError for a delta outside
    [0, 1), or one that is too small to be resolved.
    """
    if delta == 0:
        return _basic(spent)
    _require_delta(delta)
    if any(math.isinf(mechanism.epsilon) for mechanism in spent):
        return math.inf
    charged = {mechanism: count for mechanism, count in spent.items() if count > 0}
    if not charged:
        return 0.0
    share = delta / len(charged)
    exact = math.fsum(privacy_loss(mechanism, count).epsilon(share) for mechanism, count in charged.items())
    return min(exact, _basic(charged))


def _basic(spent: Mapping[SubsetMechanism, int]) -> float:
    """Sum of the epsilons of all features, rounded up, and exact where a float can hold it."""
    if any(math.isinf(mechanism.epsilon) and count for mechanism, count in spent.items()):
        return math.inf
    total = sum((Fraction(mechanism.epsilon) * count for mechanism, count in spent.items() if count), Fraction(0))
    nearest = float(total)
    return nearest if nearest >= total else math.nextafter(nearest, math.inf)


@dataclass(frozen=True, kw_only=True)
class Account:
    """Promises of a release of words: epsilons for one feature, for an object, and for everything in it.

    - `features`: number of features of the release.
    - `object_features`: number of features of an object, which change together; at most `features`.
    - `delta`: the delta at which `object_epsilon` and `total_epsilon` hold.
    - `feature_epsilon`, `object_epsilon`, `total_epsilon`: epsilon of one feature, of an object, and of all features.
    - `basic_epsilon`: sum of the epsilons of all features, which holds with delta = 0.
    """

    features: int
    object_features: int
    delta: float
    feature_epsilon: float
    object_epsilon: float
    total_epsilon: float
    basic_epsilon: float


def account(mechanism: SubsetMechanism, features: int, *, delta: float, object_features: int = 50) -> Account:
    """Account of a release of `features` features: its epsilons at `delta` (words.md#composition).

    `object_features` is the number of features of an object, which change together. Raises RangeError for a delta outside
    (0, 1), or one that is too small to be resolved.
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
        basic_epsilon=composed_epsilon({mechanism: features}),
    )


def _require_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise RangeError(f"delta must lie between 0 and 1, got {delta!r}; 1e-6 is usual")
