"""How certain a finished map from lines is: its check against its own observations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float64

from veil.geometry.bundle.adjustment import LineProblem, camera_information
from veil.places.maps.lines.problem import MappingProblem
from veil.places.maps.lines.reconstruction import Reconstruction, line_distances, mapped_tracks, upright
from veil.scene import GRAVITY_DEG, LineMapCheck

MAX_CAMERAS = 300
SMALLEST_NOISE_PX = 0.05


def checked(
    problem: MappingProblem, reconstruction: Reconstruction, *, limit_px: float, left_out: Mapping[str, str]
) -> LineMapCheck:
    """Check of a finished map that was begun with lines that agree within `limit_px` pixels (`close`: a quarter of it).

    `left_out` is the reason for each image that is not in the map, by name.
    """
    tracks = problem.tracks
    rows = np.flatnonzero(reconstruction.observed)
    distance = line_distances(
        problem, reconstruction, tracks.image[rows], tracks.feature[rows], reconstruction.points[tracks.track[rows]]
    )
    mapped = mapped_tracks(problem, reconstruction)
    length = np.bincount(tracks.track[reconstruction.registered[tracks.image]], minlength=len(tracks))
    checks = len(rows) - 3 * int(mapped.sum()) - (6 * int(reconstruction.registered.sum()) - 7)
    angle, agreeing = _gravity(problem, reconstruction)
    noise_px = max(1.4826 * float(np.median(distance)) if len(rows) else math.inf, SMALLEST_NOISE_PX)
    return LineMapCheck(
        checks=checks,
        close=float((distance < limit_px / 4).mean()) if len(rows) else 0.0,
        explained_tracks=float(mapped[length >= 4].mean()) if (length >= 4).any() else 0.0,
        uncertainty=_uncertainty(problem, reconstruction, rows, noise_px) if len(rows) else None,
        gravity_deg=angle,
        gravity_agreeing=agreeing,
        left_out=left_out,
    )


def _gravity(problem: MappingProblem, reconstruction: Reconstruction) -> tuple[float | None, float | None]:
    """Median angle in degrees between readings of gravity and their mean in the map, and the share within 15 degrees.

    Both are None for fewer than three readings.
    """
    known = upright(problem, reconstruction)
    read: Bool[np.ndarray, "images"] = reconstruction.registered & np.isfinite(problem.gravity).all(axis=1)
    if known is None or read.sum() < 3:
        return None, None
    cosine = np.einsum("cij,j,ci->c", reconstruction.rotations[read], known.down_world, problem.gravity[read])
    angles = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    return float(np.median(angles)), float((angles <= GRAVITY_DEG).mean())


def _uncertainty(problem: MappingProblem, reconstruction: Reconstruction, rows: np.ndarray, noise_px: float) -> float | None:
    """Median over cameras of the standard deviation of their centers, as a share of the extent of the centers.

    The seven directions that no line sees, of the map's own frame and scale, are left out. With C = -R^T t, R <- exp(w) R and
    t <- t + d: dC = -R^T (d + t x w).
    """
    cameras, camera_of = np.unique(problem.tracks.image[rows], return_inverse=True)
    points, point_of = np.unique(problem.tracks.track[rows], return_inverse=True)
    if not 3 <= len(cameras) <= MAX_CAMERAS:
        return None
    rotations, translations = reconstruction.rotations[cameras], reconstruction.translations[cameras]
    centers = -np.einsum("cji,cj->ci", rotations, translations)
    extent = float(np.linalg.norm(np.ptp(centers, axis=0)))
    if not extent > 0:
        return math.inf
    information = camera_information(
        LineProblem(
            rotations=rotations,
            translations=(translations + rotations @ centers.mean(axis=0)) / extent,
            points=(reconstruction.points[points] - centers.mean(axis=0)) / extent,
            lines=problem.lines[rows] * problem.focal_px[problem.tracks.image[rows], None],
            camera_of=camera_of.astype(np.int64),
            point_of=point_of.astype(np.int64),
        ),
        loss_px=math.inf,
    )
    moved = (translations + rotations @ centers.mean(axis=0)) / extent
    jacobian = np.zeros((len(cameras), 3, 6))
    for camera, (rotation, shift) in enumerate(zip(rotations, moved, strict=True)):
        cross = np.array([[0, -shift[2], shift[1]], [shift[2], 0, -shift[0]], [-shift[1], shift[0], 0]])
        jacobian[camera] = -rotation.T @ np.concatenate([cross, np.eye(3)], axis=1)
    return noise_px * float(np.median(_spreads(information, jacobian)))


def _spreads(
    information: Float64[np.ndarray, "cameras 6 cameras 6"], jacobian: Float64[np.ndarray, "cameras 3 6"]
) -> Float64[np.ndarray, "cameras"]:
    """Standard deviation of each camera center (root of the trace of its covariance), for lines of unit variance."""
    count = len(jacobian)
    values, vectors = np.linalg.eigh(information.reshape(6 * count, 6 * count))
    values, vectors = values[7:], vectors[:, 7:].reshape(count, 6, -1)
    if not values[0] > 0:
        return np.full(count, np.inf)
    moves = np.einsum("cij,cjk->cik", jacobian, vectors)
    return np.sqrt((moves**2 / values).sum(axis=(1, 2)))
