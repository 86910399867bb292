"""Robust resection of a camera from many lines, some of them wrong: six-line samples, refined by the line adjustment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust
from veil.geometry.rigid import Rigid
from veil.geometry.robust.ransac import Consensus, RansacOptions, ransac
from veil.geometry.robust.significance import SAME_PX, LineBackground, apart_lines
from veil.geometry.solvers.p6lp import MINIMAL_LINES, pose_from_six_lines

# Lines through one point, that of gravity or a public one, do not fix the camera's distance to it: others are needed
# (lines.md#points-and-cameras).
MIN_OTHER_LINES = 2
# Ranked correspondences are sampled from pools of the best 20, ..., all of them, in this many steps of equal ratio.
SMALLEST_POOL, POOLS = 20, 8
# Loss of refinements within the search (pixels), that of the final ones in medians of the residuals, and their number
# (docs/theory/lines.md, Eq. 25).
LOSS_PX, LOSS_MEDIANS, POLISHES = 2.0, 2.0, 3
SMALLEST_LOSS_PX = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class LineResection:
    """Correspondences of one view: `lines[i]` (normalized plane, unit normals) passes through the image of `points[i]`.

    `aligned` marks lines along gravity, `pencil` numbers the public point that a line passes through (-1: none). `focal_px`
    turns distances of the normalized plane into pixels; `half_extent` bounds |x|, |y| of projections that count as inside the
    image (lines.md#points-and-cameras). With `best_first` the rows are sorted from the most to the least trusted, and samples
    come as often from the best 20 as from all (docs/theory/lines.md, Eq. 24).
    """

    lines: Float64[np.ndarray, "pairs 3"]
    points: Float64[np.ndarray, "pairs 3"]
    aligned: Bool[np.ndarray, "pairs"]
    focal_px: float
    half_extent: Float64[np.ndarray, "2"]
    best_first: bool = False
    pencil: Int64[np.ndarray, "pairs"] | None = None

    def sample(self, random: np.random.Generator) -> Int64[np.ndarray, "6"]:
        """Six distinct rows of one pool, at least two of them not aligned with gravity, two not through each public point."""
        pool = self._pools[random.integers(len(self._pools))]
        first: list[int] = []  # a few rows at a time, in a search of thousands of samples: lists are faster than arrays
        for pencil, others in zip(self.pencils, self._others, strict=True):
            missing = MIN_OTHER_LINES - sum(not pencil[row] for row in first)
            if missing > 0:
                among = others[: max(np.searchsorted(others, pool), MIN_OTHER_LINES)]
                among = among[~np.isin(among, first)] if first else among
                first += random.choice(among, missing, replace=False).tolist()
        rest = random.choice(pool, MINIMAL_LINES, replace=False).tolist()
        rest = [row for row in rest if row not in first]
        return np.array([*first, *rest[: MINIMAL_LINES - len(first)]], dtype=np.int64)

    def clean_share(self, inliers: Bool[np.ndarray, "pairs"]) -> float:
        """Share of samples that hold inliers only, its mean over the pools (docs/theory/lines.md, Eq. 24)."""
        counts = np.cumsum(inliers)[self._pools - 1]
        return float(((counts / self._pools) ** MINIMAL_LINES).mean())

    @cached_property
    def _pools(self) -> Int64[np.ndarray, "pools"]:
        """Sizes of the pools: the number of first rows from which samples are drawn."""
        count = len(self.lines)
        if not self.best_first or count <= SMALLEST_POOL:
            return np.array([count])
        return np.round(np.geomspace(SMALLEST_POOL, count, POOLS)).astype(np.int64)

    @cached_property
    def pencils(self) -> list[Bool[np.ndarray, "pairs"]]:
        """Masks of the lines through one point each: those along gravity, and those through each public one, if any."""
        masks = [self.aligned]
        if self.pencil is not None:
            masks += [self.pencil == number for number in np.unique(self.pencil[self.pencil >= 0])]
        return masks

    @cached_property
    def _others(self) -> list[Int64[np.ndarray, "_"]]:
        """Rows of the lines that do not run through the point of each pencil."""
        return [np.flatnonzero(~pencil) for pencil in self.pencils]

    def determines(self, inliers: Bool[np.ndarray, "pairs"]) -> bool:
        """Whether lines are enough for a pose: six, and two beside those through any one point."""
        others = min(int((inliers & ~pencil).sum()) for pencil in self.pencils)
        return bool(inliers.sum() >= MINIMAL_LINES) and others >= MIN_OTHER_LINES

    def models(self, rows: Int64[np.ndarray, "6"]) -> list[Rigid]:
        """All poses (cam_from_world) that six lines allow."""
        return pose_from_six_lines(self.lines[rows], self.points[rows])

    def residuals(self, pose: Rigid) -> Float64[np.ndarray, "pairs"]:
        """Distance in pixels of each projected point from its line; infinite behind the camera or outside the image."""
        x, y, depth = pose.rotation @ self.points.T + pose.translation[:, None]
        ahead = depth > 1e-9
        inverse = 1 / np.where(ahead, depth, 1.0)
        x, y = x * inverse, y * inverse
        inside = ahead & (np.abs(x) <= self.half_extent[0]) & (np.abs(y) <= self.half_extent[1])
        a, b, c = self.lines.T
        return np.where(inside, np.abs(a * x + b * y + c) * self.focal_px, np.inf)

    def refine(self, pose: Rigid, inliers: Bool[np.ndarray, "pairs"], loss_px: float = LOSS_PX) -> Rigid | None:
        """The pose of robust least squares over the inliers, or None if they are too few to determine a pose.

        `loss_px` is the scale of the Cauchy loss in pixels.
        """
        if inliers.sum() <= MINIMAL_LINES or not self.determines(inliers):
            return None
        rows = np.flatnonzero(inliers)
        problem = LineProblem(
            rotations=pose.rotation[None],
            translations=pose.translation[None],
            points=self.points[rows],
            lines=self.lines[rows] * self.focal_px,
            camera_of=np.zeros(len(rows), dtype=np.int64),
            point_of=np.arange(len(rows)),
        )
        adjusted = adjust(
            problem,
            constant=np.zeros(1, dtype=bool),
            options=AdjustOptions(loss_px=loss_px, max_iterations=20, tol=1e-6, adjust_points=False),
        ).problem
        return Rigid(rotation=adjusted.rotations[0], translation=adjusted.translations[0])


def resect_from_lines(problem: LineResection, options: RansacOptions) -> Consensus[Rigid] | None:
    """The pose that most lines agree with, or None without any pose.

    There is none, either, without six lines, two of them beside those along gravity and beside those through each public point.

    `options.max_error` is in pixels.
    """
    if not problem.determines(np.ones(len(problem.lines), dtype=bool)):
        return None
    consensus = ransac(problem, MINIMAL_LINES, options, clean_share=problem.clean_share)
    return (
        None
        if consensus is None
        else _polished(problem, _not_flipped(problem, consensus, options.max_error), options.max_error)
    )


def weighed(problem: LineResection, pose: Rigid, inliers: Bool[np.ndarray, "pairs"], max_error: float) -> tuple[int, float]:
    """Number of different lines among the inliers of a pose, and the probability that a wrong line agrees with it.

    The probability is the mean share of the other lines that pass within `max_error` (pixels) of a projected point; where lines
    crowd, it is more than lines all over the picture would give (docs/theory/localization.md, Eq. 1).
    """
    x, y, depth = pose.rotation @ problem.points.T + pose.translation[:, None]
    inverse = 1 / np.where(depth > 1e-9, depth, np.nan)
    xy = np.stack([x * inverse, y * inverse], axis=1)
    xy[~(np.abs(xy) <= problem.half_extent).all(axis=1)] = np.nan
    background = LineBackground(lines=problem.lines, limit=max_error / problem.focal_px)
    agreement = float(background.shares(xy, np.arange(len(xy))).mean())
    reach = float(np.linalg.norm(problem.half_extent))
    different = apart_lines(problem.lines[inliers], reach, SAME_PX / problem.focal_px)
    return int(different.sum()), agreement


def _polished(problem: LineResection, consensus: Consensus[Rigid], max_error: float) -> Consensus[Rigid]:
    """The consensus refined with a loss at the scale of its residuals: a wide loss weighs lines of moved keypoints too much."""
    pose = consensus.model
    for _ in range(POLISHES):
        residuals = problem.residuals(pose)
        inlier = residuals < max_error
        scale = LOSS_MEDIANS * float(np.median(residuals[inlier])) if inlier.any() else 0.0
        refined = problem.refine(pose, inlier, max(scale, SMALLEST_LOSS_PX))
        if refined is None:
            return consensus
        pose = refined
    residuals = problem.residuals(pose)
    score = float((np.minimum(residuals, max_error) ** 2).sum())
    return Consensus(model=pose, inliers=residuals < max_error, score=score, iterations=consensus.iterations)


def _not_flipped(problem: LineResection, consensus: Consensus[Rigid], max_error: float) -> Consensus[Rigid]:
    """The better of a pose and its mirror image about the points' plane.

    Nearly planar points leave two minima, tilted to either side of the line of sight (Schweighofer and Pinz 2006); samples
    find one of them, and which one is better shows only with a loss at the scale of the residuals.
    """
    other = mirrored(consensus.model, problem.points[consensus.inliers])
    for _ in range(3):
        other = None if other is None else problem.refine(other, problem.residuals(other) < 2 * max_error)
    if other is None:
        return consensus
    residuals = problem.residuals(other)
    scale = max(float(np.median(problem.residuals(consensus.model)[consensus.inliers])), 1e-9)

    def cost(values: np.ndarray) -> float:
        """Cauchy cost of truncated residuals in units of `scale`."""
        return float(np.log1p((np.minimum(values, max_error) / scale) ** 2).sum())

    if cost(residuals) >= cost(problem.residuals(consensus.model)):
        return consensus
    score = float((np.minimum(residuals, max_error) ** 2).sum())
    return Consensus(model=other, inliers=residuals < max_error, score=score, iterations=consensus.iterations)


def relief(pose: Rigid, points: Float64[np.ndarray, "points 3"]) -> float:
    """Root mean square distance of points from their plane, as a share of their median depth at a pose (cam_from_world)."""
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)[-1] / np.sqrt(len(points))
    return float(spread / abs(np.median(points @ pose.rotation[2] + pose.translation[2])))


def mirrored(pose: Rigid, points: Float64[np.ndarray, "points 3"]) -> Rigid | None:
    """The pose whose view of the points' plane is tilted to the other side of the line of sight.

    None for six points or fewer.
    """
    if len(points) <= MINIMAL_LINES:
        return None
    center = points.mean(axis=0)
    normal = pose.rotation @ np.linalg.svd(points - center, full_matrices=False)[2][-1]
    seen = pose.rotation @ center + pose.translation
    sight = seen / np.linalg.norm(seen)
    target = 2 * (sight @ normal) * sight - normal
    if target @ normal < 0:
        target = -target
    axis = np.cross(normal, target)
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    turn = np.eye(3) + cross + cross @ cross / (1 + float(normal @ target))
    return Rigid(rotation=turn @ pose.rotation, translation=turn @ (pose.translation - seen) + seen)
