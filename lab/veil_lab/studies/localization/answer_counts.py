"""Answers to held-out photographs, counted against reference poses: localized, wrong, and inside the region that they claim.

A pose is wrong if its center is off by more than 5 % of the extent of the reference's cameras, or if it is turned by more than
5 degrees. The region of an answer is that of all six degrees of freedom which its covariance claims to hold the true pose with
probability 0.95 (docs/theory/localization.md, Eq. 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.special import chdtri

from veil.geometry.rigid import Rigid, pose_difference
from veil.geometry.similarity import Similarity, pose_error
from veil.places.poses.answer import Localization, NoPose

# A pose is wrong beyond this share of the extent of the reference's cameras, or beyond this turn.
WRONG_SHARE, WRONG_DEG = 0.05, 5.0
# Probability with which a claimed region holds the true pose.
LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class AnswerCounts:
    """Answers to `queries` photographs with reference poses.

    - `localized`: those with a pose that is not wrong; `wrong`: those with a wrong one. The others are refused.
    - `median_error`: of the centers of all poses, as a share of the extent of the reference's cameras; None without a pose.
    - `regions`: poses that claim a region; `covered`: those of them whose region holds the reference pose.
    """

    queries: int
    localized: int
    wrong: int
    median_error: float | None
    regions: int
    covered: int

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "queries": self.queries,
            "localized": self.localized,
            "wrong": self.wrong,
            "median_error": self.median_error,
            "regions": self.regions,
            "covered": self.covered,
        }


def counted(
    answers: Mapping[str, Localization | NoPose], reference: Mapping[str, Rigid], reference_from_map: Similarity
) -> AnswerCounts:
    """Counts of the `answers` by image name.

    - `reference`: poses (cam_from_reference) by image name, of the queries among others; all of them give the extent.
    - `reference_from_map`: aligns the map that answered.

    Raises KeyError for an answer to a photograph without a reference pose.
    """
    extent = extent_of(reference.values())
    map_from_reference = reference_from_map.inverse()
    shares, wrong, regions, covered = [], 0, 0, 0
    for name, answer in answers.items():
        truth = reference[name]
        if isinstance(answer, NoPose):
            continue
        position, turn_deg = pose_error(answer.cam_from_world, truth, reference_from_map)
        shares.append(position / extent)
        wrong += position > WRONG_SHARE * extent or turn_deg > WRONG_DEG
        if answer.covariance is not None:
            regions += 1
            error = pose_difference(answer.cam_from_world, map_from_reference.moved(truth))
            covered += squared_distance(error, answer.covariance) <= quantile(len(error))
    return AnswerCounts(
        queries=len(answers),
        localized=len(shares) - wrong,
        wrong=wrong,
        median_error=float(np.median(shares)) if shares else None,
        regions=regions,
        covered=covered,
    )


def extent_of(poses: Iterable[Rigid]) -> float:
    """Diagonal of the box about the centers of some cameras, in the unit of their world."""
    return float(np.linalg.norm(np.ptp([pose.center for pose in poses], axis=0)))


def quantile(freedom: int) -> float:
    """Squared Mahalanobis distance of the border of a region, by its degrees of freedom: a quantile of chi-square."""
    return float(chdtri(freedom, 1 - LEVEL))


def squared_distance(error: Float64[np.ndarray, "dim"], covariance: Float64[np.ndarray, "dim dim"]) -> float:
    """Squared Mahalanobis distance; infinite if the covariance has no extent towards the error."""
    values, vectors = np.linalg.eigh(covariance)
    along = (vectors.T @ error) ** 2
    with np.errstate(divide="ignore"):
        parts = along[along > 0] / np.maximum(values[along > 0], 0.0)
    return float(parts.sum())
