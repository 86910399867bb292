"""Four views from lines and gravity: planar poses, heights, points, and a joint adjustment (Geppert et al. 2020, Sec. 3.1).

Aligned tracks give the planar poses, all modes of which are kept (docs/theory/lines.md, Eq. 8); tracks with two or more
random lines give the heights; the mode that most tracks agree with after adjustment in 3D is the seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError, RangeError
from veil.geometry.gravity import aligned_from_cam, gravity_spread_px
from veil.geometry.rigid import Rigid
from veil.geometry.solvers.out_of_plane import MINIMAL_TRACKS, determinant_rows, solve_out_of_plane
from veil.geometry.solvers.planar import IDENTITY, PlanarPose, planar_residuals, triangulate_planar
from veil.geometry.solvers.resection_planar import resect_planar
from veil.geometry.solvers.triangulate import triangulate_planes
from veil.geometry.solvers.trifocal import MINIMAL_POINTS, three_planar_views
from veil.kernels.bundle import AdjustOptions, LineProblem, adjust, residuals

VIEWS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class QuadTracks:
    """Four-view tracks of four images: lines in the normalized plane with unit normals, and which are along gravity."""

    lines: Float64[np.ndarray, "_ _ _"]
    aligned: Bool[np.ndarray, "_ _"]
    gravity: Float64[np.ndarray, "_ 3"]
    focal_px: Float64[np.ndarray, "_"]

    def __post_init__(self) -> None:
        count = len(self.lines)
        shapes = self.lines.shape, self.aligned.shape, self.gravity.shape, self.focal_px.shape
        if shapes != ((count, VIEWS, 3), (count, VIEWS), (VIEWS, 3), (VIEWS,)):
            raise InputError(f"a seed needs tracks over {VIEWS} views with gravity and focal length, got shapes {shapes}")


@dataclass(frozen=True, kw_only=True)
class SeedOptions:
    """Thresholds in pixels; the planar one grows with the gravity's standard deviation as f tan(sigma)."""

    planar_error_px: float = 2.0
    line_error_px: float = 4.0
    gravity_sigma_deg: float = 0.0
    min_tracks: int = 20
    iterations: int = 300
    min_angle_deg: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("planar_error_px", "line_error_px", "min_angle_deg"):
            if not 0 < getattr(self, name) < math.inf:
                raise RangeError(f"{name} must be positive and finite, got {getattr(self, name)!r}")
        if not 0 <= self.gravity_sigma_deg < 20:
            raise RangeError(f"gravity_sigma_deg must lie in [0, 20), got {self.gravity_sigma_deg!r}")
        if self.min_tracks < MINIMAL_POINTS or self.iterations < 1:
            raise RangeError(f"a seed needs min_tracks >= {MINIMAL_POINTS} and iterations >= 1")


@dataclass(frozen=True, kw_only=True, eq=False)
class Seed:
    """Poses of the four views in the frame of the first, points of the inlier tracks, and the evidence."""

    cam_from_world: tuple[Rigid, Rigid, Rigid, Rigid]
    points: Float64[np.ndarray, "inliers 3"]
    inliers: Bool[np.ndarray, "tracks"]
    inlier_share: float
    median_angle_deg: float


@dataclass(frozen=True, kw_only=True)
class NoSeed:
    """These four views give no seed, and why."""

    reason: str


def seed_from_quad(tracks: QuadTracks, options: SeedOptions | None = None) -> Seed | NoSeed:
    """The best seed of four views, or the reason why there is none."""
    options = options or SeedOptions()
    upright = np.array([aligned_from_cam(down) for down in tracks.gravity])
    lines = np.einsum("vij,tvj->tvi", upright, tracks.lines)  # a line is a covector: (A l)^T (A x) = l^T x
    vertical = tracks.aligned.all(axis=1)
    random = (~tracks.aligned).sum(axis=1) >= 2
    for name, count in (("purely gravity-aligned", int(vertical.sum())), ("partly random", int(random.sum()))):
        if count < options.min_tracks:
            return NoSeed(reason=f"{count} {name} four-view tracks, a seed needs {options.min_tracks}; more overlap helps")
    x = -lines[vertical, :, 2] / lines[vertical, :, 0]  # n_x x + c = 0 for a vertical line
    modes = _planar_modes(x.T, tracks.focal_px, options)
    if not modes:
        return NoSeed(reason="no planar poses explain the gravity-aligned tracks; is gravity right, and did the camera move?")
    found = [seed for mode in modes if (seed := _upgrade(mode, lines, random, tracks, upright, options)) is not None]
    found = [seed for seed in found if seed.median_angle_deg >= options.min_angle_deg]
    if not found:
        return NoSeed(reason="no heights fit the planar poses, or the views are too close together to triangulate")
    return max(found, key=lambda seed: seed.inliers.sum())


def _planar_modes(x: np.ndarray, focal_px: np.ndarray, options: SeedOptions) -> list[list[PlanarPose]]:
    """Distinct planar poses of four views, best first: samples of five, a fourth view by resection, refinement."""
    random = np.random.default_rng(options.seed)
    error = options.planar_error_px + gravity_spread_px(options.gravity_sigma_deg, float(focal_px.mean()))
    limits = error / focal_px[:, None]
    kept: list[tuple[int, list[PlanarPose]]] = []
    for _ in range(options.iterations):
        rows = random.choice(x.shape[1], min(MINIMAL_POINTS + 2, x.shape[1]), replace=False)
        for second, third in three_planar_views(x[:3, rows], min_in_front=0.99):
            poses = _with_fourth([IDENTITY, second, third], x[:, rows])
            if poses is None:
                continue
            poses, count = _refined_planar(poses, x, limits)
            if count >= options.min_tracks // 2:
                _keep_mode(kept, count, poses)
    return [poses for _, poses in sorted(kept, key=lambda item: -item[0])[:4]]


def _with_fourth(poses: list[PlanarPose], x: np.ndarray) -> list[PlanarPose] | None:
    fourth = resect_planar(triangulate_planar(poses, x[:3]), x[3])
    return None if fourth is None else [*poses, fourth]


def _refined_planar(poses: list[PlanarPose], x: np.ndarray, limits: np.ndarray) -> tuple[list[PlanarPose], int]:
    """Linear re-estimation on the inliers, twice; the count is that of tracks within the limit in all views."""
    best, best_count = poses, int(_planar_inliers(poses, x, limits).sum())
    for _ in range(2):
        inlier = _planar_inliers(best, x, limits)
        if inlier.sum() < MINIMAL_POINTS:
            break
        candidates = three_planar_views(x[:3, inlier], min_in_front=0.9)
        trials = [trial for pair in candidates if (trial := _with_fourth([IDENTITY, *pair], x[:, inlier])) is not None]
        counts = [int(_planar_inliers(trial, x, limits).sum()) for trial in trials]
        if not counts or max(counts) <= best_count:
            break
        best, best_count = trials[int(np.argmax(counts))], max(counts)
    return best, best_count


def _planar_inliers(poses: list[PlanarPose], x: np.ndarray, limits: np.ndarray) -> Bool[np.ndarray, "tracks"]:
    return (np.abs(planar_residuals(poses, triangulate_planar(poses, x), x)) < limits).all(axis=0)


def _keep_mode(kept: list[tuple[int, list[PlanarPose]]], count: int, poses: list[PlanarPose]) -> None:
    """Replace a mode of nearly equal angles if this one is better, else add it."""
    for index, (other_count, other) in enumerate(kept):
        gap = max(abs(math.remainder(a.angle - b.angle, 2 * math.pi)) for a, b in zip(poses, other, strict=True))
        if gap < math.radians(3):
            if count > other_count:
                kept[index] = (count, poses)
            return
    kept.append((count, poses))


def _upgrade(
    planar: list[PlanarPose],
    lines: np.ndarray,
    random: np.ndarray,
    tracks: QuadTracks,
    upright: np.ndarray,
    options: SeedOptions,
) -> Seed | None:
    """Heights by RANSAC over determinants, then points, and an adjustment of everything that agrees."""
    rotations = np.array([_lifted(pose) for pose in planar])
    translations = np.array([[pose.translation[0], 0.0, pose.translation[1]] for pose in planar])
    heights = _heights(lines[random], rotations, translations, options)
    if heights is None:
        return None
    translations[1:, 1] = heights
    cameras = [
        Rigid(rotation=up.T @ turn, translation=up.T @ shift)
        for up, turn, shift in zip(upright, rotations, translations, strict=True)
    ]
    for limit in (4 * options.line_error_px, 2 * options.line_error_px, options.line_error_px):
        adjusted = _adjusted(cameras, tracks, limit, options)
        if adjusted is None:
            return None
        cameras, points, inliers = adjusted
    usable = int((~tracks.aligned).any(axis=1).sum())
    return Seed(
        cam_from_world=(cameras[0], cameras[1], cameras[2], cameras[3]),
        points=points[inliers],
        inliers=inliers,
        inlier_share=float(inliers.sum() / usable),
        median_angle_deg=_median_angle(cameras, points[inliers]),
    )


def _lifted(pose: PlanarPose) -> np.ndarray:
    c, s = math.cos(pose.angle), math.sin(pose.angle)
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])


def _heights(
    lines: np.ndarray, rotations: np.ndarray, translations: np.ndarray, options: SeedOptions
) -> Float64[np.ndarray, "3"] | None:
    """Three-track samples scored by the median absolute determinant residual, then least squares on the better half."""
    random = np.random.default_rng(options.seed)
    matrix, right = determinant_rows(lines, rotations, translations)
    best, best_score = None, math.inf
    for _ in range(options.iterations):
        rows = random.choice(len(lines), MINIMAL_TRACKS, replace=False)
        trial = solve_out_of_plane(lines[rows], rotations, translations)
        if trial is not None:
            score = float(np.median(np.abs(matrix @ trial - right)))
            if score < best_score:
                best, best_score = trial, score
    if best is None:
        return None
    good = np.abs(matrix @ best - right) <= 2 * max(best_score, 1e-12)
    refined = solve_out_of_plane(lines[good], rotations, translations) if good.sum() >= MINIMAL_TRACKS else None
    return best if refined is None else refined


def _adjusted(
    cameras: list[Rigid], tracks: QuadTracks, limit_px: float, options: SeedOptions
) -> tuple[list[Rigid], np.ndarray, np.ndarray] | None:
    """Triangulate, keep what agrees within `limit_px` in all four views, adjust cameras and points."""
    points, inliers = _triangulated(cameras, tracks, limit_px)
    if inliers.sum() < options.min_tracks:
        return None
    rows = np.flatnonzero(inliers)
    count = len(rows)
    problem = LineProblem(
        rotations=np.array([camera.rotation for camera in cameras]),
        translations=np.array([camera.translation for camera in cameras]),
        points=points[rows],
        lines=(tracks.lines[rows] * tracks.focal_px[None, :, None]).reshape(-1, 3),
        camera_of=np.tile(np.arange(VIEWS), count),
        point_of=np.repeat(np.arange(count), VIEWS),
    )
    constant = np.array([True, False, False, False])
    found = adjust(problem, constant=constant, options=AdjustOptions(loss_px=limit_px / 2, max_iterations=30)).problem
    cameras = [Rigid(rotation=r, translation=t) for r, t in zip(found.rotations, found.translations, strict=True)]
    points, inliers = _triangulated(cameras, tracks, limit_px)
    return (cameras, points, inliers) if inliers.sum() >= options.min_tracks else None


def _triangulated(cameras: list[Rigid], tracks: QuadTracks, limit_px: float) -> tuple[np.ndarray, np.ndarray]:
    """Points of all tracks with a random line, and which of them lie before all cameras and within the limit of all lines."""
    normals = np.stack([tracks.lines[:, v] @ camera.rotation for v, camera in enumerate(cameras)], axis=1)
    offsets = np.stack([tracks.lines[:, v] @ camera.translation for v, camera in enumerate(cameras)], axis=1)
    points = triangulate_planes(normals, offsets)
    usable = np.isfinite(points).all(axis=1) & (~tracks.aligned).any(axis=1)
    points = np.where(usable[:, None], points, 0.0)
    count = len(points)
    problem = LineProblem(
        rotations=np.array([camera.rotation for camera in cameras]),
        translations=np.array([camera.translation for camera in cameras]),
        points=points,
        lines=(tracks.lines * tracks.focal_px[None, :, None]).reshape(-1, 3),
        camera_of=np.tile(np.arange(VIEWS), count),
        point_of=np.repeat(np.arange(count), VIEWS),
    )
    distance = np.abs(residuals(problem)).reshape(count, VIEWS)
    return points, usable & (distance < limit_px).all(axis=1)


def _median_angle(cameras: list[Rigid], points: np.ndarray) -> float:
    """Median over points of the largest angle between two rays to it, degrees."""
    rays = np.stack([points - camera.center for camera in cameras], axis=1)
    rays /= np.linalg.norm(rays, axis=2, keepdims=True)
    cosines = np.einsum("pvi,pwi->pvw", rays, rays).reshape(len(points), -1).min(axis=1)
    return float(np.degrees(np.median(np.arccos(np.clip(cosines, -1, 1)))))
