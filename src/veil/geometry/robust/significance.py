"""Number of false alarms (NFA) of a pose, with a background model taken from the query's own features.

If all matches are wrong, which keypoint is matched with which point is an accident, and a match agrees with a pose as often as
another feature of the same query would in its place (docs/theory/localization.md, Eq. 1-2). Where features crowd, that is
often. The NFA is the expected number of poses as good as a given one that such wrong matches give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.camera import Camera

# Keypoints, or lines, that differ by no more than this are one observation: SIFT repeats a place with several orientations.
SAME_PX = 1.0
# Number of pairs of near places that are listed at once; where there are more, features are thinned out row by row.
MOST_PAIRS = 1_000_000
# Number of lines that stand for all lines of a query that has more: the standard error of one share of 4 % is a fifth of it,
# and that of a mean over hundreds of places far less.
MOST_LINES = 512
# Share of `line_agreement`, an upper bound, that lines all over a picture reach at least.
LINE_FLOOR = 1 / 3


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Number of matches in a sample of a minimal solver, and the most poses that one sample gives: what the NFA counts."""

    size: int
    poses: int


P3P = Sampling(size=3, poses=4)
GP3P = Sampling(size=3, poses=8)  # rays with centers of their own
GP4PS = Sampling(size=4, poses=8)  # with the scale of the rig
P4PF = Sampling(size=4, poses=10)  # with the focal length
P6L = Sampling(size=6, poses=8)
UPRIGHT_LINES = Sampling(size=4, poses=2)
ALONG_ONE_WAY = Sampling(size=1, poses=1)  # a camera that is known but for how far it is along one ray


@dataclass(frozen=True, kw_only=True, eq=False)
class PointBackground:
    """Background model of keypoints: wrong matches are draws from the different places of the keypoints `xy`.

    Keypoints within `same` of each other are one place: repeats of an observation would speak against their own place. `limit`
    is the inlier threshold; `xy` and `same` are in its unit.
    """

    xy: Float64[np.ndarray, "features 2"]
    limit: float
    same: float = 0.0

    def shares(
        self, projected: Float64[np.ndarray, "pairs 2"], own: Int64[np.ndarray, "pairs"], part: float = 1.0
    ) -> Float64[np.ndarray, "pairs"]:
        """Share of all places that lie within `part` * `limit` of each projection, the place of keypoint `own[i]` left out.

        It is 0 for a projection that is NaN.
        """
        share = np.zeros(len(projected))
        rows = np.flatnonzero(np.isfinite(projected).all(axis=1))
        places, tree, place_of = self._places
        if len(places) < 2:
            share[rows] = 1.0
            return share
        counts = tree.query_ball_point(projected[rows], part * self.limit, return_length=True)
        mine = places[place_of[own[rows]]]
        itself = np.linalg.norm(mine - projected[rows], axis=1) <= part * self.limit
        share[rows] = (np.asarray(counts) - itself) / (len(places) - 1)
        return share

    @cached_property
    def _places(self) -> tuple[Float64[np.ndarray, "places 2"], Any, Int64[np.ndarray, "features"]]:
        """The different places, a search tree of them, and the row of the place of each keypoint."""
        from scipy.spatial import cKDTree

        places = self.xy[apart(self.xy, self.same)]
        tree = cKDTree(places)
        return places, tree, np.asarray(tree.query(self.xy)[1], dtype=np.int64) if len(places) else np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class LineBackground:
    """Background model of lines: wrong matches are draws from the query's lines, which have unit normals and differ.

    Of more than `MOST_LINES` lines an even choice stands for all. `limit` is the inlier threshold, in the lines' unit.
    """

    lines: Float64[np.ndarray, "features 3"]
    limit: float

    def shares(
        self, projected: Float64[np.ndarray, "pairs 2"], own: Int64[np.ndarray, "pairs"], part: float = 1.0
    ) -> Float64[np.ndarray, "pairs"]:
        """Share of all lines that pass within `part` * `limit` of each projection, its own line `own[i]` left out.

        It is 0 for a projection that is NaN.
        """
        rows = np.flatnonzero(np.isfinite(projected).all(axis=1))
        share = np.zeros(len(projected))
        if len(self.lines) < 2:
            share[rows] = 1.0
            return share
        step = -(-len(self.lines) // MOST_LINES)
        chosen = self.lines[::step]
        distance = projected[rows] @ chosen[:, :2].T
        distance += chosen[:, 2]
        near = np.count_nonzero(np.abs(distance, out=distance) <= part * self.limit, axis=1)
        among = own[rows] % step == 0
        mine = self.lines[own[rows]]
        itself = among & (np.abs((mine[:, :2] * projected[rows]).sum(axis=1) + mine[:, 2]) <= part * self.limit)
        share[rows] = (near - itself) / (len(chosen) - among)
        return share


@dataclass(frozen=True, kw_only=True, eq=False)
class FramesBackground:
    """Background model of pairs in several frames: each pair's keypoint is drawn from those of its own frame.

    `parts` holds the rows of the pairs of each frame, the background of its keypoints, and the row there of each pair's own.
    """

    parts: Sequence[tuple[Int64[np.ndarray, "_"], PointBackground, Int64[np.ndarray, "_"]]]

    def shares(
        self, projected: Float64[np.ndarray, "pairs 2"], own: Int64[np.ndarray, "pairs"], part: float = 1.0
    ) -> Float64[np.ndarray, "pairs"]:
        """Share of the places of its frame that lies near each projection, as `PointBackground.shares` has it.

        All pairs are asked for at once, in their order; which keypoint is each pair's `own` is known here.
        """
        share = np.zeros(len(projected))
        for rows, background, feature_of in self.parts:
            share[rows] = background.shares(projected[rows], feature_of, part)
        return share


Background = PointBackground | LineBackground | FramesBackground


def apart(places: Float64[np.ndarray, "inliers dim"], same: float) -> Bool[np.ndarray, "inliers"]:
    """Mask of rows that lie farther than `same` from each other: of rows at one place the first is kept.

    A row is dropped if it lies within `same` of an earlier one that is kept.
    """
    from scipy.spatial import cKDTree

    kept = np.ones(len(places), dtype=bool)
    if len(places) < 2:
        return kept
    tree = cKDTree(places)
    if same > 0 and tree.count_neighbors(tree, same) > 2 * MOST_PAIRS:  # counts whole nodes: quick however many there are
        return _apart_crowded(places, same)
    pairs = tree.query_pairs(same, output_type="ndarray")
    for first, second in pairs[np.lexsort(pairs.T[::-1])].tolist():
        if kept[first]:
            kept[second] = False
    return kept


def _apart_crowded(places: Float64[np.ndarray, "inliers dim"], same: float) -> Bool[np.ndarray, "inliers"]:
    """Mask of rows as `apart` has it, made row by row: kept rows stand apart, so few of them lie in the cells around a row."""
    kept = np.zeros(len(places), dtype=bool)
    cells = np.floor((places - places.min(axis=0)) / same).astype(np.int64)
    around = list(product((-1, 0, 1), repeat=places.shape[1]))
    held: dict[tuple[int, ...], list[list[float]]] = {}
    for row, (cell, place) in enumerate(zip(map(tuple, cells.tolist()), places.tolist(), strict=True)):
        near = (other for step in around for other in held.get(tuple(a + b for a, b in zip(cell, step, strict=True)), ()))
        if all(sum((a - b) ** 2 for a, b in zip(place, other, strict=True)) > same * same for other in near):
            kept[row] = True
            held.setdefault(cell, []).append(place)
    return kept


def apart_lines(lines: Float64[np.ndarray, "inliers 3"], reach: float, same: float) -> Bool[np.ndarray, "inliers"]:
    """Mask of lines that differ by more than `same` within `reach` of the origin: of equal lines the first is kept.

    Lines n . x + c = 0 have unit normals; `reach`, `same` and c have one unit.
    """
    sign = np.where((lines[:, 0] < 0) | ((lines[:, 0] == 0) & (lines[:, 1] < 0)), -1.0, 1.0)
    turned = lines * sign[:, None] * [reach, reach, 1.0]
    kept = apart(turned, same)
    # Directions wrap around: a line just below the vertical is near one just above it with the other sign.
    edge = kept & (np.abs(turned[:, 0]) <= same)
    rows = np.flatnonzero(edge)
    if len(rows) > 1:
        upright = turned[rows] * np.where(turned[rows, 1] < 0, -1.0, 1.0)[:, None]
        kept[rows] = apart(upright, same)
    return kept


def point_agreement(camera: Camera, max_error_px: float) -> float:
    """Probability that a keypoint at a random place lies within t = `max_error_px` of a given one: pi t^2 / (w h)."""
    return min(1.0, math.pi * max_error_px**2 / (camera.width_px * camera.height_px))


def line_agreement(camera: Camera, max_error_px: float) -> float:
    """Bound of the probability that a random line passes within t = `max_error_px` of a given point: 2 t diagonal / (w h).

    docs/theory/lines.md, Eq. 10.
    """
    diagonal = math.hypot(camera.width_px, camera.height_px)
    return min(1.0, 2 * max_error_px * diagonal / (camera.width_px * camera.height_px))


def pose_log10_nfa(inliers: int, matches: int, agreement: float, sampling: Sampling = P3P) -> float:
    """log10 of the number of false alarms (NFA) of a pose, by its numbers of inliers and of matches.

    The NFA is the expected number of poses as good as this one if all matches were accidents (Moisan and Stival 2004, Eq. 6;
    docs/theory/localization.md, Eq. 3): each of the C(n, s) samples gives up to `sampling.poses` poses, and of the other n - s
    matches a wrong one agrees with probability `agreement`, a mean where it differs. Infinite for no more inliers than a
    sample.
    """
    if inliers <= sampling.size:
        return math.inf
    others, agreeing = matches - sampling.size, inliers - sampling.size
    chance = _log_binomial(others, agreeing) + agreeing * math.log(agreement)
    return pose_log10_samples(matches, sampling) + chance / math.log(10)


def pose_log10_samples(matches: int, sampling: Sampling = P3P) -> float:
    """log10 of the number of tests of a search: poses of samples of the matches, times numbers of inliers they may have."""
    others = max(matches - sampling.size, 1)
    return (math.log(sampling.poses * others) + _log_binomial(max(matches, sampling.size), sampling.size)) / math.log(10)


def _log_binomial(n: int, k: int) -> float:
    """Natural logarithm of the binomial coefficient C(n, k)."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
