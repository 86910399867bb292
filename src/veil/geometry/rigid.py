"""Rigid motions named by where they lead: `b_from_a` takes coordinates of frame a to frame b."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.one_line import line


@dataclass(frozen=True, eq=False)
class Rigid:
    """A rigid motion b_from_a: x_b = rotation @ x_a + translation.

    - `rotation`, float64 (3, 3): a rotation matrix; it is not checked.
    - `translation`, float64 (3,): in units of the frames, for a map the map's own unit.

    A variable's name gives the frames: `cam_from_world` takes world coordinates to the camera frame (x right, y down,
    z forward).
    """

    rotation: Float64[np.ndarray, "3 3"]
    translation: Float64[np.ndarray, "3"]

    def __repr__(self) -> str:
        return line(self, [("center", self.center), ("heading", self.heading)])

    def inverse(self) -> Rigid:
        """The inverse motion, a_from_b."""
        return Rigid(rotation=self.rotation.T.copy(), translation=-self.rotation.T @ self.translation)

    def __matmul__(self, other: Rigid) -> Rigid:
        """The composed motion: c_from_a = c_from_b @ b_from_a."""
        return Rigid(
            rotation=self.rotation @ other.rotation,
            translation=self.rotation @ other.translation + self.translation,
        )

    def apply(self, points: Float64[np.ndarray, "points 3"]) -> Float64[np.ndarray, "points 3"]:
        """Points of frame a in coordinates of frame b: camera coordinates of world points for `cam_from_world`."""
        return points @ self.rotation.T + self.translation

    @property
    def center(self) -> Float64[np.ndarray, "3"]:
        """Origin of frame b in coordinates of a: the camera center in the world for `cam_from_world`."""
        return -self.rotation.T @ self.translation

    @property
    def heading(self) -> Float64[np.ndarray, "3"]:
        """The z-axis of frame b in coordinates of a: where the camera looks in the world, of length 1, for `cam_from_world`."""
        return self.rotation[2].copy()


def rotation_angle_deg(rotation: Float64[np.ndarray, "3 3"]) -> float:
    """The angle of a rotation in degrees, accurate near 0 (the arc cosine of the trace is not)."""
    sine = float(np.linalg.norm(rotation - rotation.T)) / (2 * math.sqrt(2))
    cosine = (float(np.trace(rotation)) - 1) / 2
    return math.degrees(math.atan2(sine, cosine))


def about_center(cam_from_world: Rigid) -> Float64[np.ndarray, "6 6"]:
    """Matrix that takes a turn w about the camera's center and a movement of that in the camera frame to (w, u).

    (w, u) are as `center_covariance` has them.
    """
    x, y, z = cam_from_world.translation
    matrix = -np.eye(6)
    matrix[:3, :3] = np.eye(3)
    matrix[3:, :3] = -np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return matrix


def center_covariance(cam_from_world: Rigid, covariance: Float64[np.ndarray, "6 6"]) -> Float64[np.ndarray, "3 3"]:
    """Covariance of a camera's center in the world, from that of (rotation in radians, translation) in the camera frame.

    The center is -R^T t; where R turns by a small w to exp([w]) R and t becomes t + u, it moves by -R^T ([t] w + u).
    """
    x, y, z = cam_from_world.translation
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    moved = -cam_from_world.rotation.T @ np.hstack([cross, np.eye(3)])
    return moved @ covariance @ moved.T


def pose_difference(first: Rigid, second: Rigid) -> Float64[np.ndarray, "6"]:
    """The turn w (radians) and the shift u in the camera frame that take one cam_from_world to another.

    The rotation is exp([w]) R, and the center moves by -R^T ([t] w + u), as `center_covariance` has it, also for large turns.
    """
    turn = second.rotation @ first.rotation.T
    axis = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    sine = float(np.linalg.norm(axis)) / 2
    angle = math.atan2(sine, (float(np.trace(turn)) - 1) / 2)
    turned = axis * (angle / (2 * sine) if sine > 1e-12 else 0.5)
    shift = -first.rotation @ (second.center - first.center) - np.cross(first.translation, turned)
    return np.concatenate([turned, shift])


def rigid_from_colmap(cam_from_world: Any) -> Rigid:
    """The motion of pycolmap's `Rigid3d` as a `Rigid`."""
    matrix = np.asarray(cam_from_world.matrix(), dtype=np.float64)
    return Rigid(rotation=matrix[:, :3].copy(), translation=matrix[:, 3].copy())
