"""Positions from lines whose features are known to be neighbors, after Chelani et al. (2024).

A neighbor's line passes near the hidden keypoint, other lines cross anywhere: the position is where a line comes closest to
most of the lines of its neighbors. Neighborhoods are an input, so that the bound with true neighborhoods can be run;
`veil.attacks.positions.colocated_keypoints` finds some from the descriptors alone.

Theory: docs/theory/position_attacks.md, Eq. 5-7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.attacks.claims import Estimates
from veil.attacks.positions.segments import Segments, focal_px, pixels, segments
from veil.errors import InputError, RangeError
from veil.forms import Lines
from veil.geometry.camera import Camera
from veil.progress import Progress

CHUNK_NUMBERS = 4_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighborhoods:
    """Rows of the features believed to be near each feature in the image (-1: none), and the probability of each of them.

    `weights` are these probabilities, in [0, 1]; 0 where there is no neighbor.
    """

    rows: Int64[np.ndarray, "_ _"]
    weights: Float64[np.ndarray, "_ _"]

    def __post_init__(self) -> None:
        if self.rows.shape != self.weights.shape:
            raise InputError(f"neighborhoods need one weight a neighbor, got {self.rows.shape} and {self.weights.shape}")
        if not ((self.weights >= 0) & (self.weights <= 1)).all():
            raise InputError("the weight of a neighbor is a probability between 0 and 1")
        if not ((self.rows >= -1) & (self.rows < len(self.rows))).all():
            raise InputError(f"neighbors are rows 0..{len(self.rows) - 1}, or -1 for none")

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, kw_only=True)
class LineNeighborOptions:
    """Options of the neighbor attack on lines; defaults were tuned on photographs of an ImageNet sample.

    `radius_px` is the scale of the Cauchy distribution of the distances at which neighbors' lines pass a keypoint
    (docs/theory/position_attacks.md, Eq. 5). A position is certified if enough lines meet in it, to within `meet_px`, that at
    most `accident` such meetings are expected by accident over the neighborhoods of the whole image (Eq. 7 there).
    `refinements` is the number of least-squares steps from the best crossing.
    """

    radius_px: float = 1.0
    meet_px: float = 2e-4
    accident: float = 1e-3
    refinements: int = 5

    def __post_init__(self) -> None:
        if not 1e-3 <= self.radius_px <= 1e4:
            raise RangeError(f"radius_px must be between 0.001 and 10000 pixels, got {self.radius_px!r}")
        if not 0 < self.meet_px <= 1:
            raise RangeError(f"meet_px must be above 0 and at most 1 pixel, got {self.meet_px!r}")
        if not 0 < self.accident <= 0.1:
            raise RangeError(f"accident must be above 0 and at most 0.1, got {self.accident!r}")
        if not 0 <= self.refinements <= 100:
            raise RangeError(f"refinements must be between 0 and 100, got {self.refinements!r}")


def neighbor_positions(
    lines: Lines,
    neighborhoods: Neighborhoods,
    *,
    camera: Camera,
    options: LineNeighborOptions | None = None,
    progress: Progress | None = None,
) -> Estimates:
    """Estimated positions (pixels), one on each line, where it best meets most of its neighbors' lines.

    Lines that no neighbor's line crosses inside the image are undecided: those without neighbors, and those whose neighbors all
    have (nearly) the same line or one along gravity like their own. The confidence is the share of the neighbors' weight that
    agrees. Two lines always meet, so a position that rests on one neighbor is never certified.
    Raises InputError if the neighborhoods are of another number of features.

    Theory: docs/theory/position_attacks.md, Eq. 5-7.
    """
    options = options or LineNeighborOptions()
    if len(neighborhoods) != len(lines):
        raise InputError(f"{len(lines)} lines need as many neighborhoods, got {len(neighborhoods)}")
    where, scale = segments(lines, camera), focal_px(camera)
    needed = _lines_needed(neighborhoods, camera, options)
    chosen, confidence = np.full(len(lines), np.nan), np.zeros(len(lines))
    certified = np.zeros(len(lines), dtype=bool)
    chunk = max(1, CHUNK_NUMBERS // max(neighborhoods.rows.shape[1], 1) ** 2)
    for start in range(0, len(lines), chunk):
        rows = np.arange(start, min(start + chunk, len(lines)))
        block = _Block.of(where, neighborhoods, rows)
        s, agreed, meeting = block.best(where, rows, options, scale)
        chosen[rows], confidence[rows], certified[rows] = s, agreed, meeting >= needed
        if progress is not None:
            progress(int(rows[-1]) + 1, len(lines))
    points = pixels(where.foot + chosen[:, None] * where.direction, camera)
    known = np.isfinite(points).all(axis=1)
    return Estimates(points=points, confidence=np.where(known, confidence, 0.0), certified=certified & known)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Block:
    """Geometry of some lines and their neighbors' lines.

    The point at s on line i has the signed distance slope[i, k] * s + level[i, k] (normalized units) to its k-th neighbor's
    line; `weight[i, k]` is the probability that this is a neighbor.
    """

    slope: Float64[np.ndarray, "_ _"]
    level: Float64[np.ndarray, "_ _"]
    weight: Float64[np.ndarray, "_ _"]
    line_id: Int64[np.ndarray, "_ _"]  # equal for neighbors with one and the same line

    @staticmethod
    def of(where: Segments, neighborhoods: Neighborhoods, rows: np.ndarray) -> _Block:
        """Block of the lines `rows`. Neighbors with the same line as the feature itself say nothing and get weight 0."""
        others = neighborhoods.rows[rows]
        normal = np.stack([where.direction[:, 1], -where.direction[:, 0]], axis=1)
        offset = -(normal * where.foot).sum(axis=1)
        slope = np.einsum("fkd,fd->fk", normal[others], where.direction[rows])
        level = np.einsum("fkd,fd->fk", normal[others], where.foot[rows]) + offset[others]
        parallel = np.abs(slope) < 1e-6
        absent = (others < 0) | (others == rows[:, None]) | (parallel & (np.abs(level) < 1e-6))
        weight = np.where(absent, 0.0, neighborhoods.weights[rows])
        _, line_id = np.unique(np.round(np.hstack([normal, offset[:, None]]), 6), axis=0, return_inverse=True)
        return _Block(slope=slope, level=level, weight=weight, line_id=np.asarray(line_id).reshape(-1)[others])

    def best(
        self, where: Segments, rows: np.ndarray, options: LineNeighborOptions, scale: float
    ) -> tuple[Float64[np.ndarray, "lines"], Float64[np.ndarray, "lines"], Int64[np.ndarray, "lines"]]:
        """Parameters s of the positions on their lines, the agreement of the neighbors, and how many of their lines meet there.

        `scale` is the focal length in pixels. Where the lines of two or more neighbors meet, the position is their common
        point. Elsewhere it is the likeliest of all crossings inside the image (Eq. 5), refined by reweighted least squares
        (Eq. 6). A common point is not refined: that would pull it towards other lines that pass nearby.
        """
        radius, low, high = options.radius_px / scale, where.low[rows, None], where.high[rows, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = -self.level / self.slope
            # Neighbors whose lines cross outside the image are no neighbors: a keypoint near both would lie there, too.
            inside = (self.weight > 0) & (np.abs(self.slope) >= 1e-6) & (crossing >= low) & (crossing <= high)
        crossing = np.where(inside, crossing, 0.0)
        outlier = 1.0 / np.maximum(high - low, 1e-12)
        distance = self.slope[:, None, :] * crossing[:, :, None] + self.level[:, None, :]
        meeting = np.where(inside, self._meeting(distance, options.meet_px / scale), 0)
        likelihood = np.log(self._mixture(distance, radius, outlier[:, :, None])).sum(axis=2)
        order = np.where(inside, likelihood, -np.inf)
        sharp = meeting.max(axis=1, initial=0) >= 2
        winner = np.where(
            sharp, np.where(meeting >= meeting.max(axis=1, keepdims=True), order, -np.inf).argmax(1), order.argmax(1)
        )
        every = np.arange(len(rows))
        s = np.where(inside.any(axis=1), crossing[every, winner], np.nan)
        s = np.where(sharp, s, self._refined(s, low[:, 0], high[:, 0], radius, outlier, options.refinements))
        agreeing = (self.weight * self._responsibility(s, radius, outlier)).sum(axis=1)
        share = agreeing / np.maximum(self.weight.sum(axis=1), 1e-300)
        return s, np.clip(np.where(np.isfinite(s), share, 0.0), 0.0, 1.0), np.where(sharp, meeting[every, winner], 0)

    def _mixture(self, distance: np.ndarray, radius: float, outlier: np.ndarray) -> np.ndarray:
        """Likelihood w Cauchy(distance) + (1 - w) uniform, divided by the uniform (Eq. 5); 1 where the weight w is 0."""
        cauchy = radius / (np.pi * (radius**2 + distance**2))
        weight = self.weight if distance.ndim == 2 else self.weight[:, None, :]
        return 1 + weight * (cauchy / outlier - 1) * (1 - 1e-9)

    def _responsibility(self, s: np.ndarray, radius: float, outlier: np.ndarray) -> np.ndarray:
        """Probability that each supposed neighbor is one, given the position s."""
        distance = self.slope * s[:, None] + self.level
        cauchy = radius / (np.pi * (radius**2 + distance**2))
        inlier = self.weight * cauchy
        return inlier / np.maximum(inlier + (1 - self.weight) * outlier, 1e-300)

    def _refined(
        self, s: np.ndarray, low: np.ndarray, high: np.ndarray, radius: float, outlier: np.ndarray, refinements: int
    ) -> np.ndarray:
        """Parameters s after some steps of reweighted least squares (Eq. 6), kept inside the image."""
        for _ in range(refinements):
            distance = self.slope * s[:, None] + self.level
            weight = self._responsibility(s, radius, outlier) / (radius**2 + distance**2)
            weight = np.where(np.isfinite(weight), weight, 0.0)
            curvature = (weight * self.slope**2).sum(axis=1)
            step = (weight * self.slope * distance).sum(axis=1) / np.maximum(curvature, 1e-300)
            s = np.where(curvature > 0, np.clip(s - step, low, high), s)
        return s

    def _meeting(
        self, distance: Float64[np.ndarray, "lines crossings neighbors"], tolerance: float
    ) -> Int64[np.ndarray, "lines crossings"]:
        """Number of different lines of neighbors that pass within `tolerance` of each crossing."""
        near = (np.abs(distance) <= tolerance) & (self.weight > 0)[:, None]
        ids = np.sort(np.where(near, self.line_id[:, None], -1), axis=2)
        fresh = np.diff(ids, axis=2, prepend=-1) != 0
        return (fresh & (ids >= 0)).sum(axis=2)


def _lines_needed(neighborhoods: Neighborhoods, camera: Camera, options: LineNeighborOptions) -> int:
    """Number of neighbors' lines that must meet a line in one point to prove it (Eq. 7).

    It is at least 2, since two lines, the feature's own and one neighbor's, always meet.
    """
    strip = 2 * options.meet_px * float(np.hypot(camera.width_px, camera.height_px)) / (camera.width_px * camera.height_px)
    counts = (neighborhoods.weights > 0).sum(axis=1).astype(np.float64)
    needed, ways = 2, counts * (counts - 1) / 2
    expected = 2 * float(ways.sum()) * strip
    while expected > options.accident and needed < 64:
        needed += 1
        ways = ways * np.maximum(counts - needed + 1, 0) / needed
        expected = needed * float(ways.sum()) * strip ** (needed - 1)
    return needed
