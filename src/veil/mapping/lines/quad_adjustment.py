"""Spatial step of a seed: tracks of four views, their points, the heights of the cameras, and a joint adjustment."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError
from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust, residuals
from veil.geometry.rigid import Rigid
from veil.geometry.solvers.out_of_plane import MINIMAL_TRACKS, determinant_rows, solve_out_of_plane
from veil.geometry.solvers.planes import triangulate_planes
from veil.mapping.lines.gravity import upright_of

VIEWS = 4
FEW_TRACKS = 250  # quads of fewer tracks are adjusted for longer


@dataclass(frozen=True, kw_only=True, eq=False)
class QuadTracks:
    """Tracks of four images: the line of each track in each image, and which lines follow gravity.

    `lines[t, v]` (normalized image plane, unit normal) and `aligned[t, v]` count where `seen[t, v]`. A track is seen by all
    four images or, with aligned lines, by three of them. `gravity` (unit vectors down in the camera frames) and `focal_px` have
    a row for each image. Raises InputError for other shapes.
    """

    lines: Float64[np.ndarray, "_ _ _"]
    aligned: Bool[np.ndarray, "_ _"]
    seen: Bool[np.ndarray, "_ _"]
    gravity: Float64[np.ndarray, "_ 3"]
    focal_px: Float64[np.ndarray, "_"]

    def __post_init__(self) -> None:
        count = len(self.lines)
        shapes = self.lines.shape, self.aligned.shape, self.seen.shape, self.gravity.shape, self.focal_px.shape
        if shapes != ((count, VIEWS, 3), (count, VIEWS), (count, VIEWS), (VIEWS, 3), (VIEWS,)):
            raise InputError(f"a seed needs tracks over {VIEWS} views with gravity and focal length, got shapes {shapes}")

    def take(self, rows: np.ndarray) -> QuadTracks:
        """Tracks `rows` (indices or a mask)."""
        return replace(self, lines=self.lines[rows], aligned=self.aligned[rows], seen=self.seen[rows])


def camera_heights(
    lines: np.ndarray, rotations: np.ndarray, translations: np.ndarray, *, samples: int, seed: int
) -> Float64[np.ndarray, "3"] | None:
    """Heights of views 2 to 4: the best of many three-track samples, then least squares on the tracks that agree with it.

    `lines[t, v]` are those of gravity-aligned views, of tracks with two or more random lines; `rotations` and `translations`
    are the planar poses in space, whose heights are not used. None if no sample determines the heights. Samples are scored by
    their median absolute determinant residual (docs/theory/lines.md, Eq. 9).
    """
    random = np.random.default_rng(seed)
    matrix, right = determinant_rows(lines, rotations, translations)
    rows = random.integers(0, len(lines), (samples, MINIMAL_TRACKS))
    regular = np.abs(np.linalg.det(matrix[rows])) > 1e-9
    if not regular.any():
        return None
    trials = np.linalg.solve(matrix[rows[regular]], right[rows[regular]][..., None])[..., 0]
    deviation = np.abs(matrix @ trials.T - right[:, None])
    scores = np.median(deviation, axis=0)
    best = int(scores.argmin())
    good = deviation[:, best] <= 2 * max(float(scores[best]), 1e-12)
    refined = solve_out_of_plane(lines[good], rotations, translations) if good.sum() >= MINIMAL_TRACKS else None
    return trials[best] if refined is None else refined


def adjusted_cameras(cameras: list[Rigid], tracks: QuadTracks, limit_px: float, *, min_tracks: int) -> list[Rigid] | None:
    """Cameras after joint adjustment with the points of the tracks whose four lines agree within `limit_px` pixels.

    None if fewer than `min_tracks` tracks agree. The first camera stays; gravity is a part of the cost.
    """
    few = len(tracks.lines) < FEW_TRACKS  # few tracks leave a long valley
    points, worst = quad_points(cameras, tracks)
    rows = np.flatnonzero(worst < limit_px)
    if len(rows) < min_tracks:
        return None
    found = adjust(
        _problem(cameras, points[rows], tracks.lines[rows], tracks.focal_px),
        constant=np.array([True, False, False, False]),
        upright=upright_of(np.array([camera.rotation for camera in cameras]), tracks.gravity),
        options=AdjustOptions(loss_px=limit_px / 4, max_iterations=30 if few else 15, tol=1e-5 if few else 1e-4),
    ).problem
    return [Rigid(rotation=r, translation=t) for r, t in zip(found.rotations, found.translations, strict=True)]


def _problem(cameras: list[Rigid], points: np.ndarray, lines: np.ndarray, focal_px: np.ndarray) -> LineProblem:
    count = len(points)
    return LineProblem(
        rotations=np.array([camera.rotation for camera in cameras]),
        translations=np.array([camera.translation for camera in cameras]),
        points=points,
        lines=(lines * focal_px[None, :, None]).reshape(-1, 3),
        camera_of=np.tile(np.arange(VIEWS), count),
        point_of=np.repeat(np.arange(count), VIEWS),
    )


def quad_points(cameras: list[Rigid], tracks: QuadTracks) -> tuple[np.ndarray, Float64[np.ndarray, "tracks"]]:
    """Points of all tracks, and the largest distance of each to one of its lines in pixels (infinite behind a camera)."""
    normals = np.stack([tracks.lines[:, v] @ camera.rotation for v, camera in enumerate(cameras)], axis=1)
    offsets = np.stack([tracks.lines[:, v] @ camera.translation for v, camera in enumerate(cameras)], axis=1)
    points = triangulate_planes(normals, offsets)
    usable = np.isfinite(points).all(axis=1)
    points = np.where(usable[:, None], points, 0.0)
    distance = np.abs(residuals(_problem(cameras, points, tracks.lines, tracks.focal_px))).reshape(-1, VIEWS)
    return points, np.where(usable, distance.max(axis=1), np.inf)


def median_angle_deg(cameras: list[Rigid], points: np.ndarray) -> float:
    """Median over points of the largest angle in degrees between two rays to it, in the three views where that is least.

    Three views from one place make a ray of their three lines, and any fourth line meets it: such a quad checks nothing but
    rotations, and a camera that only turned passes with an arbitrary fourth pose.
    """
    rays = np.stack([points - camera.center for camera in cameras], axis=1)
    rays /= np.linalg.norm(rays, axis=2, keepdims=True)
    cosines = np.einsum("pvi,pwi->pvw", rays, rays)
    threes = [np.delete(np.delete(cosines, v, axis=1), v, axis=2).reshape(len(points), -1).min(axis=1) for v in range(VIEWS)]
    return min(float(np.degrees(np.median(np.arccos(np.clip(three, -1, 1))))) for three in threes)
