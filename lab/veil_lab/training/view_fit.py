"""Fit of the weights of `matched candidates` to candidates of which the right one is known, by maximum likelihood.

A candidate of a feature is believed in proportion to the exponential of its score: the density's log ratio, `sharpness` times,
and the log ratios of all views (Eq. 15). The fit maximizes the belief in the right candidates of all features. Behind lines no
partner is verified, and gives `sharpness` and `nearest`. Positions then give `verified`.

A factor of all candidates of a feature changes no belief, so that Eq. 15 needs no further constant.

Theory: release.md#matched-candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import minimize

from veil.attacks.matches.view_weights import DistanceRatio, ViewWeights
from veil.errors import InputError

# Constants in the order of a vector: the sharpness, those of the nearest subspace, and those of verified partners.
RATIO = ("even", "slope", "largest")
NEAREST, VERIFIED = slice(1, 4), slice(4, 7)
CONSTANTS = 7
# Values beyond which no constant is sought, of the sharpness and of a ratio.
BOUNDS = ((0.01, 10.0), *2 * ((0.0, 1.0), (1.0, 300.0), (0.5, 20.0)))
# Largest distance between two descriptors, for candidates without any subspace.
FARTHEST = 2.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RatedCandidates:
    """Candidates of the features of one photograph, and which of them are right.

    `log_ratios` are those of the density, -inf where there is no candidate. `distance` to each view is infinite where there is
    none. `is_verified` says of which features positions verify the partner in a view.
    """

    log_ratios: Float64[np.ndarray, "features candidates"]
    distance: Float64[np.ndarray, "views features candidates"]
    is_verified: Bool[np.ndarray, "views features"]
    is_right: Bool[np.ndarray, "features candidates"]

    def take(self, rows: Int64[np.ndarray, "_"]) -> RatedCandidates:
        """The features of some rows."""
        return RatedCandidates(
            log_ratios=self.log_ratios[rows],
            distance=self.distance[:, rows],
            is_verified=self.is_verified[:, rows],
            is_right=self.is_right[rows],
        )


@dataclass(frozen=True, kw_only=True)
class FittedWeights:
    """Weights of largest likelihood and their standard errors.

    The errors are in the order sharpness, `nearest`, `verified`. An error is NaN where the data say nothing of the constant.
    `features` is the number of features that have a right candidate behind lines, `verified_features` of those with positions
    that have a verified partner beside.
    """

    weights: ViewWeights
    errors: tuple[float, ...]
    features: int
    verified_features: int

    @property
    def values(self) -> tuple[float, ...]:
        """The constants in the order of their errors."""
        return tuple(map(float, as_vector(self.weights)))


def as_vector(weights: ViewWeights) -> Float64[np.ndarray, "constants"]:
    """The constants in the order sharpness, `nearest`, `verified`."""
    ratios = [getattr(of, name) for of in (weights.nearest, weights.verified) for name in RATIO]
    return np.array([weights.sharpness, *ratios])


def as_weights(vector: Float64[np.ndarray, "constants"]) -> ViewWeights:
    """The weights whose constants `as_vector` gives."""
    nearest, verified = (
        DistanceRatio(**dict(zip(RATIO, map(float, vector[part]), strict=True))) for part in (NEAREST, VERIFIED)
    )
    return ViewWeights(nearest=nearest, verified=verified, sharpness=float(vector[0]))


def log_beliefs(
    weights: Float64[np.ndarray, "constants"], rated: RatedCandidates
) -> tuple[Float64[np.ndarray, "features"], Float64[np.ndarray, "features constants"]]:
    """Logarithm of the belief in the right candidates of each feature, and its derivative by each constant.

    Every feature needs a right candidate.
    """
    known = np.isfinite(rated.log_ratios)
    ratios = np.where(known, rated.log_ratios, 0.0)
    scores, slopes = weights[0] * ratios, np.zeros((CONSTANTS, *known.shape))
    slopes[0] = ratios
    for distance, is_verified in zip(rated.distance, rated.is_verified, strict=True):
        for part, mask in ((NEAREST, ~is_verified), (VERIFIED, is_verified)):
            values, changes = _log_ratios(weights[part], np.minimum(distance[mask], FARTHEST))
            scores[mask] += values
            slopes[part, mask] += changes
    every, right = _shares(np.where(known, scores, -np.inf)), _shares(np.where(known & rated.is_right, scores, -np.inf))
    derivative = np.einsum("fc,pfc->fp", right[1] - every[1], slopes)
    return right[0] - every[0], derivative


def fit_weights(
    lines: Sequence[RatedCandidates], positions: Sequence[RatedCandidates], *, start: ViewWeights | None = None
) -> FittedWeights:
    """Weights that the candidates of releases behind `lines`, and of those with `positions`, support most.

    Raises InputError where no feature has a right candidate, or none of those has a verified partner.
    """
    behind = [item.take(np.flatnonzero(item.is_right.any(axis=1))) for item in lines]
    beside = [item.take(np.flatnonzero(item.is_right.any(axis=1) & item.is_verified.any(axis=0))) for item in positions]
    counts = [sum(len(item.is_right) for item in of) for of in (behind, beside)]
    if not min(counts):
        raise InputError(
            "no photographs of one place match each other, so that nothing tells how near views are; give others, of which "
            "several show the same"
        )
    vector = as_vector(start or ViewWeights())
    errors = np.full(CONSTANTS, np.nan)
    for data, free in ((behind, np.arange(4)), (beside, np.arange(4, CONSTANTS))):
        vector = _highest(vector, data, free)
        gradients = np.concatenate([log_beliefs(vector, item)[1] for item in data])[:, free]
        information = gradients.T @ gradients
        errors[free] = np.where(np.diag(information) > 0, np.sqrt(np.diag(np.linalg.pinv(information))), np.nan)
    return FittedWeights(
        weights=as_weights(vector), errors=tuple(map(float, errors)), features=counts[0], verified_features=counts[1]
    )


def _highest(
    vector: Float64[np.ndarray, "constants"], data: Sequence[RatedCandidates], free: np.ndarray
) -> Float64[np.ndarray, "constants"]:
    """The vector of largest likelihood of those that differ from `vector` in the entries `free` alone."""
    scale, count = np.maximum(vector[free], 0.01), sum(len(item.is_right) for item in data)

    def moved(inside: np.ndarray) -> np.ndarray:
        whole = vector.copy()
        whole[free] = inside * scale
        return whole

    def cost(inside: np.ndarray) -> tuple[float, np.ndarray]:
        parts = [log_beliefs(moved(inside), item) for item in data]
        slope = np.sum([part[1].sum(axis=0) for part in parts], axis=0)[free] * scale
        return -sum(float(part[0].sum()) for part in parts) / count, -slope / count

    bounds = [(low / unit, high / unit) for (low, high), unit in zip((BOUNDS[k] for k in free), scale, strict=True)]
    begun = np.clip(vector[free] / scale, *np.transpose(bounds))
    return moved(minimize(cost, begun, jac=True, bounds=bounds, method="L-BFGS-B").x)


def _log_ratios(
    ratio: Float64[np.ndarray, "3"], distance: Float64[np.ndarray, "features candidates"]
) -> tuple[Float64[np.ndarray, "features candidates"], Float64[np.ndarray, "3 features candidates"]]:
    """Logarithm of Eq. 15 at each distance, and its derivative by each constant."""
    even, slope, largest = ratio
    logs = slope * (even - distance)
    is_capped = logs >= largest
    odds = np.exp(np.minimum(logs, largest))
    within = odds / (1 + odds)
    free = np.where(is_capped, 0.0, within)
    return np.log1p(odds), np.stack([free * slope, free * (even - distance), np.where(is_capped, within, 0.0)])


def _shares(scores: Float64[np.ndarray, "features candidates"]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the sum of the exponentials of the scores of each feature, and the share of each in it."""
    highest = scores.max(axis=1, keepdims=True)
    parts = np.exp(scores - highest)
    sums = parts.sum(axis=1, keepdims=True)
    return (highest + np.log(sums))[:, 0], parts / sums
