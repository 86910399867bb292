"""Weights by which the attack `matched candidates` reads distances to other views: constants that an attacker fits.

A file of its own: learned models carry them, their files store them, and the laboratory fits them.

Theory: release.md#matched-candidates, Eq. 15.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from jaxtyping import Float64

from veil.errors import RangeError


class DistanceRatioJson(TypedDict):
    """Constants of one ratio of Eq. 15; `even` is relative to the length of a descriptor."""

    even: float
    slope: float
    largest: float


class ViewWeightsJson(TypedDict):
    """Constants of the attack `matched candidates`."""

    nearest: DistanceRatioJson
    verified: DistanceRatioJson
    sharpness: float


@dataclass(frozen=True, kw_only=True)
class DistanceRatio:
    """Likelihood ratio of a candidate by its distance to a view (Eq. 15).

    It is the odds that the view shows the descriptor here, plus 1 as it may not show it at all. The logarithm of the odds falls
    with the `slope`, is 0 at the distance `even`, and at most `largest`. Distances are relative to the length of a descriptor.
    Raises RangeError for values outside their range.
    """

    even: float
    slope: float
    largest: float

    def __post_init__(self) -> None:
        if not (0 <= self.even <= 2 and 0 < self.slope < 1e4 and 0 < self.largest < 100):
            raise RangeError(
                "a ratio of distances needs an even distance from 0 to 2, and a slope and largest logarithm that are positive "
                f"and below 10,000 and 100, got {self!r}"
            )

    def as_json(self) -> DistanceRatioJson:
        """The record in files of networks, and of `veil lab tune`."""
        return {"even": self.even, "slope": self.slope, "largest": self.largest}

    @staticmethod
    def from_json(record: DistanceRatioJson) -> DistanceRatio:
        """The ratio of a record. Raises LookupError or TypeError for another one, and RangeError for values out of range."""
        return DistanceRatio(
            even=float(record["even"]),
            slope=float(record["slope"]),
            largest=float(record["largest"]),
        )

    def log_ratios(self, distance: Float64[np.ndarray, "*candidates"]) -> Float64[np.ndarray, "*candidates"]:
        """Logarithm of the ratio at each distance, which may be infinite."""
        return np.log1p(np.exp(np.minimum(self.slope * (self.even - distance), self.largest)))


@dataclass(frozen=True, kw_only=True)
class ViewWeights:
    """Weights of the attack `matched candidates`.

    `nearest` reads the distance to the nearest subspace of a view, `verified` that to a partner which positions verify. Where
    no network of context weighs the density, its log ratios count `sharpness` times. The defaults are those that ship with
    veil. Raises RangeError for a sharpness that is not positive and finite.
    """

    nearest: DistanceRatio = field(default_factory=lambda: DistanceRatio(even=0.277, slope=24.0, largest=6.15))
    verified: DistanceRatio = field(default_factory=lambda: DistanceRatio(even=0.452, slope=52.0, largest=11.0))
    sharpness: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.sharpness < 100:
            raise RangeError(f"sharpness must be positive and finite, got {self.sharpness!r}")

    def as_json(self) -> ViewWeightsJson:
        """The record in files of networks, and of `veil lab tune`."""
        return {"nearest": self.nearest.as_json(), "verified": self.verified.as_json(), "sharpness": self.sharpness}

    @staticmethod
    def from_json(record: ViewWeightsJson) -> ViewWeights:
        """Weights of a record. Raises LookupError or TypeError for another one, and RangeError for values out of range."""
        return ViewWeights(
            nearest=DistanceRatio.from_json(record["nearest"]),
            verified=DistanceRatio.from_json(record["verified"]),
            sharpness=float(record["sharpness"]),
        )
