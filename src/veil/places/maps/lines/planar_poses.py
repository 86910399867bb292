"""Planar poses of four views from gravity-aligned lines: every candidate that many tracks agree with.

Geppert et al. 2020, Sec. 3.1. Hundreds of samples are solved at once; the best are adjusted and those that end in the same
place are merged. Several candidates (modes of the score, docs/theory/mapping.md) are kept, because the mirror solution of the
tensor (docs/theory/lines.md, Eq. 8) and flat scenes leave wrong ones that the plane alone cannot refuse: the third dimension
decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust
from veil.geometry.solvers.planar import PlanarViews, planar_residuals, triangulate_planar
from veil.geometry.solvers.resection_planar import resect_planar
from veil.geometry.solvers.trifocal import MINIMAL_POINTS, three_planar_views

SAMPLE = MINIMAL_POINTS + 2  # two more than minimal steady the tensor against half a pixel of noise
MAX_TRACKS = 400  # more say nothing new of eight unknowns
MANY_COMPLETE = 20  # purely aligned tracks; with fewer, samples come from three views
FOURTH_SAMPLE = 4  # one more than minimal
SCALES = (1.0, 1 / 4, 1 / 16)  # of the limit: where gravity is exact the finest tells poses apart that all fit the widest
MERGE_DEG = 2.0  # poses whose angles differ by less are one candidate
BATCH = 96  # candidates that are scored at a time
HOMOGRAPHY_SAMPLES = 60  # of three points, half of which may stand out of the plane


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanarTracks:
    """Horizontal coordinates of tracks that have three or more gravity-aligned lines over four views.

    `x[v, t]` is the coordinate of track t in view v in the normalized image plane of the gravity-aligned view, where
    `given[v, t]` says that the line is aligned; `focal_px` has an entry for each view.
    """

    x: Float64[np.ndarray, "_ _"]
    given: Bool[np.ndarray, "_ _"]
    focal_px: Float64[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanarPoses:
    """Candidate poses of the four views, mask of the tracks whose aligned lines all agree, and the score of these."""

    views: PlanarViews
    inliers: Bool[np.ndarray, "_"]
    score: float


def planar_poses(tracks: PlanarTracks, *, error_px: float, samples: int, keep: int, seed: int) -> list[PlanarPoses]:
    """Up to `keep` distinct candidates for the poses of four views, best first; deterministic in `seed`.

    A line agrees within `error_px` pixels; `samples` samples of tracks are drawn for each choice of the view left out. Empty if
    no three views share enough tracks, or almost no tracks agree. Geppert et al. 2020, Sec. 3.1; docs/theory/mapping.md, Eq. 1.
    """
    random = np.random.default_rng(seed)
    draws = _draws(tracks.given, samples, random)
    if not draws:
        return []
    some = random.permutation(tracks.x.shape[1])[:MAX_TRACKS]
    scored = PlanarTracks(x=tracks.x[:, some], given=tracks.given[:, some], focal_px=tracks.focal_px)
    sampled = [_sampled(tracks, draw, scored, error_px) for draw in draws]
    trials = PlanarViews(
        angle=np.concatenate([views.angle for views, _ in sampled]),
        translation=np.concatenate([views.translation for views, _ in sampled]),
    )
    scores = np.concatenate([score for _, score in sampled])
    candidates: list[PlanarPoses] = []
    for index in _distinct(trials, scores, 2 * keep):
        poses = adjusted_poses(trials.take(index), tracks, error_px)
        if poses is not None and not any(_gap_deg(poses.views, other.views) < MERGE_DEG for other in candidates):
            candidates.append(poses)
    return sorted(candidates, key=lambda poses: -poses.score)[:keep]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Draw:
    """Samples of tracks: those that give the poses of three views, and those that then give the pose of the view left out."""

    left_out: int
    three: Int64[np.ndarray, "samples _"]
    fourth: Int64[np.ndarray, "samples _"]


def _draws(given: Bool[np.ndarray, "4 tracks"], samples: int, random: np.random.Generator) -> list[_Draw]:
    """Samples of purely aligned tracks if there are many, else of any three views, each of which may be left out.

    A track is aligned in three given views twice as often as in all four, it may be seen by those three only, and the view
    left out needs no more than points of the plane, which two aligned lines give (docs/theory/mapping.md, Eq. 5).
    """
    complete = np.flatnonzero(given.all(axis=0))
    if len(complete) >= MANY_COMPLETE:
        rows = np.stack([random.choice(complete, SAMPLE, replace=False) for _ in range(samples)])
        return [_Draw(left_out=3, three=rows, fourth=rows)]
    draws = []
    for left_out in range(len(given)):
        others = np.delete(given, left_out, axis=0)
        mine = np.flatnonzero(others.all(axis=0))
        fourth = np.flatnonzero(given[left_out] & (others.sum(axis=0) >= 2))
        if len(mine) >= MINIMAL_POINTS and len(fourth) >= FOURTH_SAMPLE:
            size = int(np.clip(len(mine) // 2, MINIMAL_POINTS, SAMPLE))
            three = np.stack([random.choice(mine, size, replace=False) for _ in range(samples)])
            rest = np.stack([random.choice(fourth, FOURTH_SAMPLE, replace=False) for _ in range(samples)])
            draws.append(_Draw(left_out=left_out, three=three, fourth=rest))
    return draws


def _sampled(
    tracks: PlanarTracks, draw: _Draw, scored: PlanarTracks, error_px: float
) -> tuple[PlanarViews, Float64[np.ndarray, "candidates"]]:
    """Poses of four views that the samples allow, and their scores on the tracks `scored`."""
    three = [view for view in range(len(tracks.x)) if view != draw.left_out]
    triples, problem = three_planar_views(np.moveaxis(tracks.x[three][:, draw.three], 0, 1), min_in_front=0.99)
    rows = draw.fourth[problem]
    given = np.moveaxis(tracks.given[three][:, rows], 0, 1)
    points = triangulate_planar(triples, np.moveaxis(tracks.x[three][:, rows], 0, 1), given)
    fourth = resect_planar(points, tracks.x[draw.left_out][rows])
    views = first_fixed(
        PlanarViews(
            angle=np.insert(triples.angle, draw.left_out, fourth.angle[..., 0], axis=-1),
            translation=np.insert(triples.translation, draw.left_out, fourth.translation[..., 0, :], axis=-2),
        )
    )
    parts = [score_views(views.take(slice(i, i + BATCH)), scored, error_px)[0] for i in range(0, len(problem), BATCH)]
    return views, np.concatenate(parts) if parts else np.empty(0)


def first_fixed(views: PlanarViews) -> PlanarViews:
    """Poses `views` in the frame of the first view: R_i R_1^T and t_i - R_i R_1^T t_1."""
    turned = PlanarViews(angle=views.angle - views.angle[..., :1], translation=views.translation)
    moved = np.einsum("...vij,...j->...vi", turned.rotation, views.translation[..., 0, :])
    return PlanarViews(angle=turned.angle, translation=views.translation - moved)


def score_views(
    views: PlanarViews, tracks: PlanarTracks, error_px: float
) -> tuple[Float64[np.ndarray, "..."], Bool[np.ndarray, "... tracks"]]:
    """Scores of poses, and masks of the tracks whose aligned lines all agree within `error_px` (docs/theory/mapping.md, Eq. 1).

    A track counts by its lines beyond two, less the more of the limit it uses, at each of `SCALES`.
    """
    points = triangulate_planar(views, np.broadcast_to(tracks.x, (*views.angle.shape, tracks.x.shape[1])), tracks.given)
    residual = np.abs(planar_residuals(views, points, tracks.x)) * (tracks.focal_px / error_px)[:, None]
    worst = np.where(tracks.given, residual, 0.0).max(axis=-2)
    redundant = tracks.given.sum(axis=0) - 2
    value = sum(np.maximum(1 - np.minimum(worst / scale, 1.0) ** 2, 0) for scale in SCALES)
    return np.asarray((value * redundant).sum(axis=-1)), worst < 1


def _distinct(views: PlanarViews, scores: np.ndarray, count: int) -> list[int]:
    """Indices of up to `count` best candidates, no two of which turn alike, that score more than a third of the best."""
    chosen: list[int] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) == count or scores[index] <= scores.max() / 3:
            break
        if not any(_gap_deg(views.take(index), views.take(other)) < MERGE_DEG for other in chosen):
            chosen.append(index)
    return chosen


def _gap_deg(a: PlanarViews, b: PlanarViews) -> float:
    """Largest difference in degrees between the angles of two candidates, over the views."""
    return math.degrees(float(np.abs(np.angle(np.exp(1j * (a.angle - b.angle)))).max()))


def adjusted_poses(views: PlanarViews, tracks: PlanarTracks, error_px: float) -> PlanarPoses | None:
    """Poses after rounds of planar bundle adjustment on the tracks that agree; None if almost none do.

    The spatial line adjustment does it: with vertical lines (1, 0, -x), heights and tilts have neither gradient nor
    curvature, and stay zero.
    """
    for scale in (1.0, *SCALES):
        inliers = score_views(views, tracks, error_px)[1]
        if inliers.sum() < SAMPLE:
            return None
        points = triangulate_planar(views, tracks.x, tracks.given)[inliers]
        track, view = np.nonzero(tracks.given[:, inliers].T)
        x = tracks.x[:, inliers]
        lines = np.stack([np.ones(len(track)), np.zeros(len(track)), -x[view, track]], axis=1)
        adjusted = adjust(
            LineProblem(
                rotations=lifted(views),
                translations=np.insert(views.translation, 1, 0.0, axis=1),
                points=np.insert(points, 1, 0.0, axis=1),
                lines=lines * tracks.focal_px[view, None],
                camera_of=view,
                point_of=track,
            ),
            constant=np.array([True, False, False, False]),
            options=AdjustOptions(loss_px=scale * error_px / 2, max_iterations=15, tol=1e-4),
        ).problem
        views = PlanarViews(
            angle=np.arctan2(adjusted.rotations[:, 0, 2], adjusted.rotations[:, 0, 0]),
            translation=adjusted.translations[:, [0, 2]],
        )
    score, inliers = score_views(views, tracks, error_px)
    return PlanarPoses(views=views, inliers=inliers, score=float(score))


def lifted(views: PlanarViews) -> Float64[np.ndarray, "... 3 3"]:
    """Rotations about the y-axis in space, 3 x 3, by the angles of `views`."""
    c, s = np.cos(views.angle), np.sin(views.angle)
    zero, one = np.zeros_like(c), np.ones_like(c)
    rows = [[c, zero, s], [zero, one, zero], [-s, zero, c]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def flat_share(poses: PlanarPoses, tracks: PlanarTracks, error_px: float) -> float:
    """Share of the inliers of `poses` that one vertical plane, or a camera that only turned, explains as well.

    Points on a line of the plane are seen through 1D homographies x' (c x + d) = a x + b, which leave the poses open.
    """
    complete = poses.inliers & tracks.given.all(axis=0)
    judged = complete if complete.sum() >= MANY_COMPLETE else poses.inliers & tracks.given[0]
    agrees = judged.copy()
    for view in range(1, len(tracks.x)):
        rows = np.flatnonzero(judged & tracks.given[view])
        if len(rows) < SAMPLE:
            return 0.0
        off = _homography_residuals(tracks.x[0, rows], tracks.x[view, rows]) * tracks.focal_px[view] >= error_px
        agrees[rows[off]] = False
    return float(agrees.sum() / judged.sum())


def _homography_residuals(x: np.ndarray, y: np.ndarray) -> Float64[np.ndarray, "points"]:
    """Residuals |y - h(x)| of the 1D homography h that most points agree with.

    It is the one of least median residual over samples, then reweighted by residual.
    """
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
    """Residuals |y - h(x)| for h = (a, b, c, d), and the denominators c x + d."""
    depth = h[2] * x + h[3]
    depth = np.where(np.abs(depth) > 1e-9, depth, 1e-9)
    return np.abs((h[0] * x + h[1]) / depth - y), depth
