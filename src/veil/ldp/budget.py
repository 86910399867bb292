"""Hard budgets of epsilon: sums of what was spent, and refusals, with numbers, of releases that would exceed a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from veil.errors import RangeError, ReleaseRefused, Remedy
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward
from veil.one_line import one_line

BudgetUnit = Literal["image", "point", "session"]
UNITS: tuple[BudgetUnit, ...] = ("image", "point", "session")
# What a budget of each unit limits, for people.
LIMITED: Mapping[BudgetUnit, str] = {
    "image": "each image",
    "point": "a point that every photograph of the session shows",
    "session": "the session",
}
# Composition cuts its tails at 1e-30 a step; a delta far above that is resolved for any number of features.
MIN_DELTA = 1e-15


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A release of words, as a budget counts it: `features` draws of `mechanism`."""

    mechanism: SubsetMechanism
    features: int

    __repr__ = one_line


@dataclass(frozen=True)
class Budget:
    """A limit of epsilon for everything that is released in words of one image, of one point, or of the whole ledger.

    - `unit`: "image" (each image by itself), "session" (all that the ledger holds) or "point" (one feature of every release of
      the session: what a point of the place loses that all photographs show; an object of g points loses at most g times that).
    - `epsilon`: the most that may be spent, as the exact composition of all features at `delta` (words.md#composition).
    - `delta`: the delta of that composition; 1e-6 is usual.

    Raises RangeError unless epsilon is finite and >= 0 and delta lies between 1e-15 and 1.
    """

    unit: BudgetUnit
    epsilon: float
    delta: float

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise RangeError(f"a budget's epsilon must be finite and >= 0, got {self.epsilon!r}; infinity limits nothing")
        if not MIN_DELTA <= self.delta < 1:
            raise RangeError(f"a budget's delta must lie between {MIN_DELTA:g} and 1, got {self.delta!r}; 1e-6 is usual")

    def spent(self, charges: Iterable[Charge]) -> float:
        """Epsilon of all `charges` together at this budget's delta; never below the exact one."""
        return composed_epsilon(total(charges, of_each=1 if self.unit == "point" else None), self.delta)

    def left(self, charges: Iterable[Charge]) -> float:
        """Epsilon that is left beside `charges`, never below 0.

        Composition is not additive: more features may fit than this number suggests (`affordable` counts them).
        """
        return max(0.0, math.nextafter(self.epsilon - self.spent(charges), 0.0))

    def affordable(self, mechanism: SubsetMechanism, charges: Iterable[Charge], most: int) -> int:
        """Number of features of `mechanism` that still fit beside `charges`, at most `most`."""
        before = list(charges)

        def fits(features: int) -> bool:
            return self.spent([*before, Charge(mechanism=mechanism, features=features)]) <= self.epsilon

        if not fits(0):
            return 0
        low, high = 0, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def require(self, charges: Iterable[Charge], more: Charge, name: str) -> None:
        """Raise ReleaseRefused if the release `more` of the image called `name` would exceed this budget beside `charges`."""
        before = list(charges)
        then = self.spent([*before, more])
        if then <= self.epsilon:
            return
        what, on = LIMITED[self.unit], {"image": "on this one", "point": "on it", "session": "in it"}[self.unit]
        mechanism = more.mechanism
        limit, each = outward(self.epsilon, 6), outward(mechanism.epsilon, 6)
        law = f"{more.features} features at epsilon {each} (K={mechanism.dictionary_size}, m={mechanism.m})"
        if math.isinf(more.mechanism.epsilon):
            raise ReleaseRefused(
                f"{name}: an infinite epsilon exceeds every budget, and one of epsilon {limit} is set for {what}; "
                "nothing was released",
                facts={"unit": self.unit, "budget": self.epsilon, "epsilon": math.inf},
                remedy=(Remedy("lower", "HideInWords.epsilon"), Remedy("leave out", "budget", self.unit)),
            )
        facts = {"unit": self.unit, "budget": self.epsilon, "spent": self.spent(before), "then": then}
        if self.unit == "point":
            raise ReleaseRefused(
                f"{name}: the budget of {what} is epsilon {limit} at delta {self.delta:g}. Spent {on} so far: "
                f"{outward(self.spent(before))}. With one more photograph at epsilon {each} it would be "
                f"{outward(then)}; nothing was released",
                facts=facts,
                remedy=(Remedy("give", "fewer photographs of one place"), Remedy("lower", "HideInWords.epsilon")),
            )
        room = self.affordable(more.mechanism, before, more.features)
        fewer = (Remedy("lower", "HideInWords.features_sent", str(room)),) if room else ()
        raise ReleaseRefused(
            f"{name}: the budget of {what} is epsilon {limit} at delta {self.delta:g}. Spent {on} so far: "
            f"{outward(self.spent(before))}. With {law} it would be {outward(then)}; nothing was released"
            + ("" if room else ". Not one more fits"),
            facts=facts | {"features_left": room},
            remedy=(*fewer, Remedy("lower", "HideInWords.epsilon")),
        )


def total(charges: Iterable[Charge], *, of_each: int | None = None) -> Mapping[SubsetMechanism, int]:
    """Number of draws of each mechanism in all releases together, counting at most `of_each` draws of every release.

    An object of g features is g features of each release.
    """
    sums: dict[SubsetMechanism, int] = {}
    for charge in charges:
        part = charge.features if of_each is None else min(charge.features, of_each)
        sums[charge.mechanism] = sums.get(charge.mechanism, 0) + part
    return sums
