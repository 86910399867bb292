"""Least-squares similarities between point sets and between a map and reference poses, and pose errors after alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.one_line import one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class Similarity:
    """A similarity, x_b = scale * rotation @ x_a + translation, in any number of dimensions.

    - `scale`: units of frame b in a unit of frame a.
    - `rotation`, float64 (dim, dim), and `translation`, float64 (dim,), in units of frame b.
    """

    scale: float
    rotation: Float64[np.ndarray, "dim dim"]
    translation: Float64[np.ndarray, "dim"]

    __repr__ = one_line

    def apply(self, points: Float64[np.ndarray, "*batch dim"]) -> Float64[np.ndarray, "*batch dim"]:
        """Points of frame a in coordinates of frame b."""
        return self.scale * points @ self.rotation.T + self.translation

    def inverse(self) -> Similarity:
        """Similarity a_from_b."""
        return Similarity(
            scale=1 / self.scale,
            rotation=self.rotation.T.copy(),
            translation=-self.rotation.T @ self.translation / self.scale,
        )

    def __matmul__(self, other: Similarity) -> Similarity:
        """Composed similarity: c_from_a = c_from_b @ b_from_a."""
        return Similarity(
            scale=self.scale * other.scale,
            rotation=self.rotation @ other.rotation,
            translation=self.apply(other.translation),
        )

    def moved(self, cam_from_a: Rigid) -> Rigid:
        """Pose cam_from_b of a camera, in three dimensions: its center and its axes move, lengths in its frame grow."""
        rotation = cam_from_a.rotation @ self.rotation.T
        return Rigid(rotation=rotation, translation=-rotation @ self.apply(cam_from_a.center))


def align_points(a: Float64[np.ndarray, "n dim"], b: Float64[np.ndarray, "n dim"]) -> Similarity:
    """Similarity b_from_a of least squared distance between corresponding points (Umeyama 1991, Eq. 40-42).

    It is never a reflection. Raises InputError if the points of a frame coincide.
    """
    from_a, from_b = a - a.mean(axis=0), b - b.mean(axis=0)
    if not (from_a**2).sum() > 0 or not (from_b**2).sum() > 0:
        raise InputError("the points coincide; no scale follows from them")
    left, singular, right = np.linalg.svd(from_b.T @ from_a)
    signs = np.ones(a.shape[1])
    signs[-1] = np.sign(np.linalg.det(left @ right))
    rotation = left @ np.diag(signs) @ right
    scale = float((singular * signs).sum() / (from_a**2).sum())
    return Similarity(scale=scale, rotation=rotation, translation=b.mean(axis=0) - scale * rotation @ a.mean(axis=0))


def align_poses(cam_from_map: Sequence[Rigid], cam_from_reference: Sequence[Rigid]) -> Similarity:
    """Similarity reference_from_map that aligns corresponding poses, rotations included.

    The rotation is the chordal mean of the relative rotations (Hartley et al., IJCV 2013, Sec. 5.3), so cameras along
    a line leave nothing undetermined; scale and translation are least squares over the camera centers.
    Raises InputError for fewer than two poses or coinciding centers.
    """
    if len(cam_from_map) < 2 or len(cam_from_map) != len(cam_from_reference):
        raise InputError(f"aligning needs two or more corresponding poses, got {len(cam_from_map)}")
    total = sum(ref.rotation.T @ est.rotation for est, ref in zip(cam_from_map, cam_from_reference, strict=True))
    left, _, right = np.linalg.svd(total)
    rotation = left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right
    source = np.array([pose.center for pose in cam_from_map]) @ rotation.T
    target = np.array([pose.center for pose in cam_from_reference])
    a, b = source - source.mean(axis=0), target - target.mean(axis=0)
    if not (a**2).sum() > 0 or not (a * b).sum() > 0:
        raise InputError("the camera centers coincide or contradict the reference; no scale follows from them")
    scale = float((a * b).sum() / (a**2).sum())
    return Similarity(scale=scale, rotation=rotation, translation=target.mean(axis=0) - scale * source.mean(axis=0))


def align_centers(cam_from_map: Sequence[Rigid], cam_from_reference: Sequence[Rigid]) -> Similarity:
    """Similarity reference_from_map of least squared distance between camera centers (Umeyama 1991), as benchmarks use it.

    Cameras along a line leave the rotation about it undetermined: judge rotations by `pairwise_rotation_deg` as well.
    Raises InputError for fewer than three poses or coinciding centers.
    """
    if len(cam_from_map) < 3 or len(cam_from_map) != len(cam_from_reference):
        raise InputError(f"aligning centers needs three or more corresponding poses, got {len(cam_from_map)}")
    source = np.array([pose.center for pose in cam_from_map])
    target = np.array([pose.center for pose in cam_from_reference])
    return align_points(source, target)


def pairwise_rotation_deg(cam_from_map: Sequence[Rigid], cam_from_reference: Sequence[Rigid]) -> float:
    """Mean error in degrees of the relative rotation over all pairs of cameras; it needs no alignment."""
    errors = [
        rotation_angle_deg(
            (cam_from_map[i].rotation @ cam_from_map[j].rotation.T)
            @ (cam_from_reference[i].rotation @ cam_from_reference[j].rotation.T).T
        )
        for i in range(len(cam_from_map))
        for j in range(i)
    ]
    return float(np.mean(errors)) if errors else 0.0


def pose_error(estimate: Rigid, reference: Rigid, reference_from_map: Similarity) -> tuple[float, float]:
    """Errors of a pose in the map: distance of camera centers in the reference's unit, and rotation angle in degrees.

    `estimate` is cam_from_map and `reference` cam_from_reference.
    """
    position = float(np.linalg.norm(reference_from_map.apply(estimate.center) - reference.center))
    in_reference = estimate.rotation @ reference_from_map.rotation.T
    return position, rotation_angle_deg(in_reference @ reference.rotation.T)
