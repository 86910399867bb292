"""Check of a finished map from lines against its own observations, and when such a map is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from veil.geometry.bundle.adjustment import LineProblem, camera_information
from veil.mapping.lines.problem import MappingProblem
from veil.mapping.lines.reconstruction import Reconstruction, line_distances, mapped_tracks, upright
from veil.one_line import one_line

# Readings of gravity disagree if they are off by more degrees than this; at least this share must agree.
GRAVITY_DEG, MIN_GRAVITY = 15.0, 0.5
# Noise alone may move the cameras by this share of their extent.
MAX_UNCERTAINTY = 0.02
# Lines beyond the number of unknowns that a map must have; a wrong map is bent to fit few more lines than it has unknowns.
MIN_CHECKS = 30
MIN_CLOSE = 0.5
MAX_CAMERAS = 300
SMALLEST_NOISE_PX = 0.05


@dataclass(frozen=True, kw_only=True)
class LineMapCheck:
    """Numbers that speak for and against a map from lines (docs/theory/mapping.md, How sure a map is).

    `checks` counts the lines beyond those that any cameras and points would fit; `close` is the share of agreeing lines within
    a quarter of `LineMapOptions.point_error_px`; `explained_tracks` is the share of tracks over four or more of the map's
    images that have a point. `uncertainty` is the median standard deviation of camera centers as a share of their extent.
    `gravity_deg` is the median angle between readings of gravity and their mean in the map, `gravity_agreeing` the share within
    15 degrees. None stands for a number that is not known. `left_out` says why images are not in the map, by name.
    """

    checks: int
    close: float
    explained_tracks: float
    uncertainty: float | None
    gravity_deg: float | None
    gravity_agreeing: float | None
    left_out: Mapping[str, str] = field(default_factory=dict)

    __repr__ = one_line

    def as_json(self) -> dict[str, Any]:
        """JSON record of the check, as docs/reference/json.md describes it."""
        return {
            "checks": self.checks,
            "close": self.close,
            "explained_tracks": self.explained_tracks,
            "uncertainty": self.uncertainty,
            "gravity_deg": self.gravity_deg,
            "gravity_agreeing": self.gravity_agreeing,
            "left_out": dict(self.left_out),
        }

    def described(self) -> str:
        """Summary of the check in one line, for people."""
        parts = [
            f"{self.checks} lines check it, {self.close:.0%} of all agree closely, {self.explained_tracks:.0%} of long tracks"
        ]
        if self.uncertainty is not None:
            parts.append(f"noise moves its cameras by {self.uncertainty:.2%} of their extent")
        if self.gravity_deg is not None and self.gravity_agreeing is not None:
            parts.append(f"gravity agrees to {self.gravity_deg:.1f} deg in {self.gravity_agreeing:.0%} of its readings")
        return "; ".join(parts)

    @property
    def doubts(self) -> list[str]:
        """Reasons to refuse the map, as sentences; empty if nothing speaks against it."""
        found = []
        if self.checks < MIN_CHECKS:
            found.append(f"only {self.checks} lines check it, fewer than {MIN_CHECKS}")
        if self.close < MIN_CLOSE:
            found.append(f"only {self.close:.0%} of its lines agree closely, as in a map that is bent")
        if self.uncertainty is not None and not self.uncertainty <= MAX_UNCERTAINTY:
            found.append(f"noise alone moves its cameras by {self.uncertainty:.1%} of their extent")
        if self.gravity_agreeing is not None and self.gravity_agreeing < MIN_GRAVITY:
            found.append(f"{1 - self.gravity_agreeing:.0%} of the readings of gravity contradict it")
        return found


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
