"""Evidence for a pose from all keypoints of a query: how many lie beside a visible point, against chance, and their words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.camera import as_colmap
from veil.geometry.rigid import Rigid, rigid_from_colmap
from veil.geometry.robust.significance import P3P, SAME_PX, apart, pose_log10_samples
from veil.localization.upright_problem import UprightProblem

# Points are shown so many pixels beside their true places, in so many directions, to count the pairs that chance gives there.
SHIFTS_PX, DIRECTIONS = (12.0, 20.0, 30.0), 6
# Evidence is counted within these parts of the largest distance of a pair.
PARTS = (1.0, 0.5)
# A pair of a keypoint and a point near it is taken to be right with this probability when its words are weighed.
RIGHT = 0.5
# Rounds in which the pairs of a pose are gathered anew and the pose is fitted to them; the first ones reach farther.
ROUNDS, WIDE_ROUNDS, WIDE = 8, 3, 2.0
LEAST_FITTED = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class UprightEvidence:
    """A pose with the keypoints that lie beside points it shows.

    `keypoint_rows[i]` lies beside `point_rows[i]`, each of both at most once. `expected` is how many such pairs chance gives.
    `log10_nfa` is the expected number of poses as good by chance.
    """

    pose: Rigid
    keypoint_rows: Int64[np.ndarray, "pairs"]
    point_rows: Int64[np.ndarray, "pairs"]
    expected: float
    log10_nfa: float

    def __len__(self) -> int:
        return len(self.keypoint_rows)

    @property
    def above_chance(self) -> int:
        """Number of pairs beyond those that chance gives."""
        return max(0, round(len(self) - self.expected))


@dataclass(frozen=True, kw_only=True, eq=False)
class UprightWeighing:
    """Weighs poses of one problem by all keypoints.

    - `unshared`: log likelihood ratio of each feature's words and a point with which they share none.
    """

    problem: UprightProblem
    unshared: Float64[np.ndarray, "features"]

    @cached_property
    def _log_odds(self) -> dict[tuple[int, int], float]:
        """Log likelihood ratio of the words of each pair that shares one."""
        candidates = self.problem.candidates
        pairs = zip(candidates.keypoint_rows.tolist(), candidates.point_rows.tolist(), strict=True)
        return dict(zip(pairs, candidates.log_odds.tolist(), strict=True))

    @cached_property
    def _places(self) -> Bool[np.ndarray, "features"]:
        """Mask of the keypoints that count if those at one place count once."""
        return apart(self.problem.seen, SAME_PX / self.problem.camera.focal_px)

    def weighed(
        self,
        pose: Rigid,
        *,
        keypoints: Bool[np.ndarray, "features"] | None = None,
        points: Bool[np.ndarray, "points"] | None = None,
    ) -> UprightEvidence:
        """Evidence for a pose among the `keypoints` and `points` (masks), by default all (words_upright.md#evidence).

        Of the numbers of pairs within the `PARTS` of the limit the least likely one counts.
        """
        problem = self.problem
        allowed = np.flatnonzero(self._places if keypoints is None else self._places & keypoints)
        seen = problem.seen[allowed]
        rows, projected = self._visible(pose)
        if points is not None:
            rows, projected = rows[points[rows]], projected[points[rows]]
        limit = problem.options.match_px / problem.camera.focal_px
        most = -math.inf
        widest: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        expected = 1.0
        for part in PARTS:
            first, second = _mutual(projected, seen, part * limit)
            chance = max(1.0, self._by_chance(projected, seen, part * limit))
            deviance = _deviance(len(first), chance) + self._words(allowed[first], rows[second])
            if part == PARTS[0]:
                widest, expected = (allowed[first], rows[second]), chance
            most = max(most, deviance)
        count = len(widest[0])
        # Each pose is one of those of three pairs, and each number of pairs one more test.
        tests = (
            pose_log10_samples(len(seen), P3P)
            + P3P.size * math.log10(max(len(problem.scene.points), 1))
            + math.log10(len(PARTS))
        )
        log10_nfa = tests - most / math.log(10) if count > P3P.size else math.inf
        return UprightEvidence(pose=pose, keypoint_rows=widest[0], point_rows=widest[1], expected=expected, log10_nfa=log10_nfa)

    def improved(self, evidence: UprightEvidence) -> UprightEvidence:
        """The best evidence of a pose and of those that the refinement leads to from it."""
        rows, _ = self._visible(evidence.pose)
        others = [self.weighed(self.fitted(pose)) for pose in self.problem.retried(evidence.pose, rows)]
        return min([evidence, *others], key=lambda one: one.log10_nfa)

    def fitted(self, pose: Rigid) -> Rigid:
        """The pose of least squares over the pairs of keypoints and points near it, gathered anew in each round."""
        match_px = self.problem.options.match_px
        for index in range(ROUNDS):
            keypoint_rows, point_rows = self.pairs(pose, match_px * (WIDE if index < WIDE_ROUNDS else 1.0))
            found = self.least_squares(pose, keypoint_rows, point_rows)
            if found is None:
                break
            pose = rigid_from_colmap(found["cam_from_world"])
        return pose

    def pairs(self, pose: Rigid, limit_px: float) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """Rows of keypoints and of points that a pose shows nearest to each other, within `limit_px`."""
        rows, projected = self._visible(pose)
        first, second = _mutual(projected, self.problem.seen, limit_px / self.problem.camera.focal_px)
        return first, rows[second]

    def least_squares(
        self, pose: Rigid, keypoint_rows: Int64[np.ndarray, "pairs"], point_rows: Int64[np.ndarray, "pairs"]
    ) -> dict[str, Any] | None:
        """COLMAP's record of the pose of least squares over pairs, with its covariance; None where there is none."""
        from veil.colmap import pycolmap

        if len(keypoint_rows) < LEAST_FITTED:
            return None
        problem = self.problem
        start = pycolmap.Rigid3d(np.hstack([pose.rotation, pose.translation[:, None]]))
        pixels, xyz = problem.keypoints[keypoint_rows].astype(np.float64), problem.scene.points[point_rows]
        inlier, camera = np.ones(len(pixels), dtype=bool), as_colmap(problem.camera)
        return pycolmap.refine_absolute_pose(start, pixels, xyz, inlier, camera, return_covariance=True)

    def _visible(self, pose: Rigid) -> tuple[Int64[np.ndarray, "visible"], Float64[np.ndarray, "visible 2"]]:
        """Rows of the map's points that a camera at `pose` could see, and their places in the normalized plane."""
        problem = self.problem
        in_camera = pose.apply(problem.scene.points)
        ahead = np.flatnonzero(in_camera[:, 2] > 1e-9)
        xy = in_camera[ahead, :2] / in_camera[ahead, 2:]
        within = (np.abs(xy) <= problem.half).all(axis=1)
        ahead, xy = ahead[within], xy[within]
        possible = problem.scene.views.possible(problem.camera, pose, problem.scene.points, ahead)
        return ahead[possible], xy[possible]

    def _by_chance(self, projected: np.ndarray, seen: np.ndarray, limit: float) -> float:
        """Mean number of pairs where all points are shown beside their places."""
        angles = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
        counts = [
            len(
                _mutual(projected + shift / self.problem.camera.focal_px * np.array([math.cos(a), math.sin(a)]), seen, limit)[0]
            )
            for shift in SHIFTS_PX
            for a in angles
        ]
        return float(np.mean(counts))

    def log_odds_of_words(self, evidence: UprightEvidence) -> float:
        """Log likelihood ratio of the words of a pose's pairs, if those beyond chance are right (words_upright.md, Eq. 12)."""
        if not len(evidence):
            return 0.0
        right = max(0.0, 1.0 - evidence.expected / len(evidence))
        return self._words(evidence.keypoint_rows, evidence.point_rows, right)

    def _words(self, keypoint_rows: np.ndarray, point_rows: np.ndarray, right: float = RIGHT) -> float:
        """Log likelihood ratio of the words of pairs, each of which is right with probability `right`."""
        total = 0.0
        for keypoint, point in zip(keypoint_rows.tolist(), point_rows.tolist(), strict=True):
            odds = self._log_odds.get((keypoint, point), float(self.unshared[keypoint]))
            total += math.log(1 - right + right * math.exp(min(odds, 600.0)))
        return total


def _mutual(
    projected: Float64[np.ndarray, "visible 2"], seen: Float64[np.ndarray, "keypoints 2"], limit: float
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Rows of keypoints and of projections that are nearest to each other, within `limit`."""
    from scipy.spatial import cKDTree

    if not len(projected) or not len(seen):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    nearest_seen = cKDTree(seen).query(projected, distance_upper_bound=limit)[1]
    gap, nearest = cKDTree(projected).query(seen, distance_upper_bound=limit)
    keypoints = np.flatnonzero(np.isfinite(gap))
    chosen = nearest[keypoints]
    mutual = nearest_seen[chosen] == keypoints
    return keypoints[mutual].astype(np.int64), chosen[mutual].astype(np.int64)


def _deviance(count: int, expected: float) -> float:
    """Bound of -log of the probability of at least `count` pairs where `expected` are (Chernoff's, of a Poisson law)."""
    return count * math.log(count / expected) - (count - expected) if count > expected else 0.0
