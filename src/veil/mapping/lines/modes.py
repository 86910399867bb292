"""Planar poses of four views from gravity-aligned lines: all that many tracks agree with (Geppert et al. 2020, Sec. 3.1).

Hundreds of samples are solved at once; the best are adjusted and those that end in the same place are merged. Several modes
are kept, because the mirror solution of the tensor (docs/theory/lines.md, Eq. 8) and flat scenes leave wrong ones that the
plane alone cannot refuse: the third dimension decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.solvers.planar import PlanarViews, planar_residuals, triangulate_planar
from veil.geometry.solvers.resection_planar import resect_planar
from veil.geometry.solvers.trifocal import MINIMAL_POINTS, three_planar_views
from veil.kernels.bundle import AdjustOptions, LineProblem, adjust

SAMPLE = MINIMAL_POINTS + 2  # two more than minimal steady the tensor against half a pixel of noise
MAX_TRACKS = 400  # more say nothing new of eight unknowns
MERGE_DEG = 2.0
BATCH = 96
HOMOGRAPHY_SAMPLES = 60  # of three points, half of which may stand out of the plane


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanarTracks:
    """Tracks over four views with three or more aligned lines: `x[v, t]` where `given[v, t]`, in the normalized plane."""

    x: Float64[np.ndarray, "_ _"]
    given: Bool[np.ndarray, "_ _"]
    focal_px: Float64[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Mode:
    """Poses of the four views, the tracks that agree with all their aligned lines, and their score."""

    views: PlanarViews
    inliers: Bool[np.ndarray, "_"]
    score: float


def planar_modes(tracks: PlanarTracks, *, error_px: float, samples: int, keep: int, seed: int) -> list[Mode]:
    """Up to `keep` distinct modes, best first; deterministic in `seed`."""
    random = np.random.default_rng(seed)
    complete = np.flatnonzero(tracks.given.all(axis=0))
    if len(complete) < SAMPLE:
        return []
    rows = np.stack([random.choice(complete, SAMPLE, replace=False) for _ in range(samples)])
    some = random.permutation(tracks.x.shape[1])[:MAX_TRACKS]
    scored = PlanarTracks(x=tracks.x[:, some], given=tracks.given[:, some], focal_px=tracks.focal_px)
    trials, scores = _sampled(tracks.x, rows, scored, error_px)
    modes: list[Mode] = []
    for index in _distinct(trials, scores, 2 * keep):
        mode = adjusted_mode(trials.take(index), tracks, error_px)
        if mode is not None and not any(_gap_deg(mode.views, other.views) < MERGE_DEG for other in modes):
            modes.append(mode)
    return sorted(modes, key=lambda mode: -mode.score)[:keep]


def _sampled(
    x: np.ndarray, rows: Int64[np.ndarray, "samples 7"], scored: PlanarTracks, error_px: float
) -> tuple[PlanarViews, Float64[np.ndarray, "candidates"]]:
    """All four-view poses that the samples allow, with their scores."""
    of_sample = np.moveaxis(x[:, rows], 0, 1)
    three, problem = three_planar_views(of_sample[:, :3], min_in_front=0.99)
    points = triangulate_planar(three, of_sample[problem, :3])
    fourth = resect_planar(points, of_sample[problem, 3])
    views = PlanarViews(
        angle=np.concatenate([three.angle, fourth.angle], axis=-1),
        translation=np.concatenate([three.translation, fourth.translation], axis=-2),
    )
    parts = [score_views(views.take(slice(i, i + BATCH)), scored, error_px)[0] for i in range(0, len(problem), BATCH)]
    return views, np.concatenate(parts) if parts else np.empty(0)


def score_views(
    views: PlanarViews, tracks: PlanarTracks, error_px: float
) -> tuple[Float64[np.ndarray, "..."], Bool[np.ndarray, "... tracks"]]:
    """(score, which tracks agree): each counts by its redundant lines, less the more of the limit it uses."""
    points = triangulate_planar(views, np.broadcast_to(tracks.x, (*views.angle.shape, tracks.x.shape[1])), tracks.given)
    residual = np.abs(planar_residuals(views, points, tracks.x)) * (tracks.focal_px / error_px)[:, None]
    worst = np.where(tracks.given, residual, 0.0).max(axis=-2)
    redundant = tracks.given.sum(axis=0) - 2
    return np.asarray((np.maximum(1 - np.minimum(worst, 1.0) ** 2, 0) * redundant).sum(axis=-1)), worst < 1


def _distinct(views: PlanarViews, scores: np.ndarray, count: int) -> list[int]:
    """Indices of the best candidates no two of which turn alike, while they score a third of the best or more."""
    chosen: list[int] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) == count or scores[index] <= scores.max() / 3:
            break
        if not any(_gap_deg(views.take(index), views.take(other)) < MERGE_DEG for other in chosen):
            chosen.append(index)
    return chosen


def _gap_deg(a: PlanarViews, b: PlanarViews) -> float:
    """Largest difference of an angle between two modes."""
    return math.degrees(float(np.abs(np.angle(np.exp(1j * (a.angle - b.angle)))).max()))


def adjusted_mode(views: PlanarViews, tracks: PlanarTracks, error_px: float) -> Mode | None:
    """Planar bundle adjustment on the tracks that agree, twice; None if almost none do.

    The spatial line adjustment does it: with vertical lines (1, 0, -x), heights and tilts have neither gradient nor
    curvature, and stay zero.
    """
    for _ in range(2):
        inliers = score_views(views, tracks, error_px)[1]
        if inliers.sum() < SAMPLE:
            return None
        points = triangulate_planar(views, tracks.x, tracks.given)[inliers]
        track, view = np.nonzero(tracks.given[:, inliers].T)
        x = tracks.x[:, inliers]
        lines = np.stack([np.ones(len(track)), np.zeros(len(track)), -x[view, track]], axis=1)
        found = adjust(
            LineProblem(
                rotations=lifted(views),
                translations=np.insert(views.translation, 1, 0.0, axis=1),
                points=np.insert(points, 1, 0.0, axis=1),
                lines=lines * tracks.focal_px[view, None],
                camera_of=view,
                point_of=track,
            ),
            constant=np.array([True, False, False, False]),
            options=AdjustOptions(loss_px=error_px / 2, max_iterations=15, tol=1e-4),
        ).problem
        views = PlanarViews(
            angle=np.arctan2(found.rotations[:, 0, 2], found.rotations[:, 0, 0]), translation=found.translations[:, [0, 2]]
        )
    score, inliers = score_views(views, tracks, error_px)
    return Mode(views=views, inliers=inliers, score=float(score))


def lifted(views: PlanarViews) -> Float64[np.ndarray, "... 3 3"]:
    """Rotations about the y-axis in space."""
    c, s = np.cos(views.angle), np.sin(views.angle)
    zero, one = np.zeros_like(c), np.ones_like(c)
    rows = [[c, zero, s], [zero, one, zero], [-s, zero, c]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def flat_share(mode: Mode, tracks: PlanarTracks, error_px: float) -> float:
    """Share of the mode's tracks that one vertical plane, or a camera that only turned, explains as well.

    Points on a line of the plane are seen through 1D homographies x' (c x + d) = a x + b, which leave the poses open.
    """
    rows = np.flatnonzero(mode.inliers & tracks.given.all(axis=0))
    if len(rows) < SAMPLE:
        return 0.0
    x = tracks.x[:, rows]
    agree = [_homography_residuals(x[0], x[view]) * tracks.focal_px[view] < error_px for view in (1, 2, 3)]
    return float(np.all(agree, axis=0).mean())


def _homography_residuals(x: np.ndarray, y: np.ndarray) -> Float64[np.ndarray, "points"]:
    """|y - h(x)| of the 1D homography that most points agree with: least median over samples, then reweighted by residual."""
    rows = np.stack([x, np.ones_like(x), -x * y, -y], axis=1)
    random = np.random.default_rng(0)
    trials = np.linalg.svd(rows[random.integers(0, len(x), (HOMOGRAPHY_SAMPLES, 3))])[2][:, -1]
    h = trials[np.median([_transfer(trial, x, y)[0] for trial in trials], axis=1).argmin()]
    for _ in range(3):
        residual, depth = _transfer(h, x, y)
        weight = 1 / np.abs(depth) / (1 + (residual / (1.5 * np.median(residual) + 1e-12)) ** 2)
        h = np.linalg.svd(rows * weight[:, None], full_matrices=False)[2][-1]
    return _transfer(h, x, y)[0]


def _transfer(h: Float64[np.ndarray, "4"], x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(|y - h(x)|, denominator) for h = (a, b, c, d)."""
    depth = h[2] * x + h[3]
    depth = np.where(np.abs(depth) > 1e-9, depth, 1e-9)
    return np.abs((h[0] * x + h[1]) / depth - y), depth
