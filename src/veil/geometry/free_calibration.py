"""Fit of a camera with free calibration to points that it saw as points or as lines.

A photograph of a photograph is seen by such a camera: the picture's own camera, followed by the homography that lays the print
or the screen into the second picture. Every camera with a center is of this form (Hartley and Zisserman, *Multiple View
Geometry*, 2nd ed., Sec. 6.1): six numbers for the pose, five for the calibration. Coordinates are those of the declared
camera's normalized plane, where the calibration that was declared is the identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.bundle.schur import moved_cameras
from veil.geometry.rigid import Rigid

ITERATIONS, DAMPING, TOL = 30, 1e-3, 1e-5
POSE = 6  # the pose's parameters come first
MOST_DAMPING = 1e6
State = TypeVar("State")


@dataclass(frozen=True, kw_only=True)
class Descent:
    """First damping, most iterations, and the relative change of the cost at which a descent ends."""

    damping: float
    iterations: int
    tolerance: float


def descended(
    start: State, cost_of: Callable[[State], float], stepped: Callable[[State, float], State], limits: Descent
) -> State:
    """The state of least cost that Levenberg and Marquardt's steps lead to; the start itself if none lowers the cost.

    `stepped` gives the state after a step from a state with a damping.
    """
    state, cost, damping = start, cost_of(start), limits.damping
    for _ in range(limits.iterations):
        tried = stepped(state, damping)
        new = cost_of(tried)
        if new < cost:
            done = cost - new <= limits.tolerance * cost
            state, cost, damping = tried, new, damping / 10
            if done:
                break
        else:
            damping *= 10
            if damping > MOST_DAMPING:
                break
    return state


def damped_step(
    normal: Float64[np.ndarray, "size size"], gradient: Float64[np.ndarray, "size"], damping: float
) -> Float64[np.ndarray, "size"]:
    """Levenberg and Marquardt's step; zero where the damped equations have no single solution, so that more damping follows."""
    try:
        return np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -gradient)
    except np.linalg.LinAlgError:
        return np.zeros_like(gradient)


@dataclass(frozen=True, kw_only=True, eq=False)
class FreeCamera:
    """A pose (cam_from_world), and offsets of the calibration from the declared one.

    The five offsets are the log of the focal ratio, the principal point (x, y) in declared focal lengths, the log of the root
    of the aspect ratio, and the skew.
    """

    pose: Rigid
    offsets: Float64[np.ndarray, "5"] = field(default_factory=lambda: np.zeros(5))


def calibrated(xy: Float64[np.ndarray, "points 2"], offsets: Float64[np.ndarray, "5"]) -> Float64[np.ndarray, "points 2"]:
    """Places in the declared camera's normalized plane of directions (x, y, 1), by the offsets of a `FreeCamera`."""
    wide, high = math.exp(offsets[0] + offsets[3]), math.exp(offsets[0] - offsets[3])
    x, y = xy.T
    return np.stack([wide * x + offsets[4] * y + offsets[1], high * y + offsets[2]], axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class RigFrames:
    """The frame in which each of some sights was seen, and the motions cam_from_rig of all frames (theory/sequences.md, Eq. 1).

    Motions are in units of the world.
    """

    frame_of: Int64[np.ndarray, "sights"]
    rotations: Float64[np.ndarray, "frames 3 3"]
    translations: Float64[np.ndarray, "frames 3"]

    def take(self, rows: Int64[np.ndarray, "_"]) -> RigFrames:
        """Those of the sights at `rows`."""
        return replace(self, frame_of=self.frame_of[rows])

    def in_cameras(self, in_rig: Float64[np.ndarray, "sights 3"]) -> Float64[np.ndarray, "sights 3"]:
        """Points of the rig in the camera of the frame that saw each."""
        return np.einsum("sij,sj->si", self.rotations[self.frame_of], in_rig) + self.translations[self.frame_of]

    def to_rig(self, by_place: Float64[np.ndarray, "sights 3"]) -> Float64[np.ndarray, "sights 3"]:
        """Derivatives by places in the cameras as derivatives by places in the rig."""
        return np.einsum("si,sij->sj", by_place, self.rotations[self.frame_of])


@dataclass(frozen=True, kw_only=True, eq=False)
class Sights:
    """Points of the world and what a camera saw of them, in the declared camera's normalized plane.

    `seen[i]` is where `points[i]` was seen: (x, y, 1), or with `as_lines` a line of unit normal through it. With `rig` each was
    seen in one of several frames; a pose is then rig_from_world, and an offset of the calibration is that of all frames.
    """

    points: Float64[np.ndarray, "sights 3"]
    seen: Float64[np.ndarray, "sights 3"]
    as_lines: bool
    rig: RigFrames | None = None

    def take(self, rows: Int64[np.ndarray, "_"]) -> Sights:
        """The sights at `rows`."""
        rig = None if self.rig is None else self.rig.take(rows)
        return Sights(points=self.points[rows], seen=self.seen[rows], as_lines=self.as_lines, rig=rig)

    def in_cameras(self, in_rig: Float64[np.ndarray, "sights 3"]) -> Float64[np.ndarray, "sights 3"]:
        """Places in the cameras of places in the frame of the pose: the same where there is one camera."""
        return in_rig if self.rig is None else self.rig.in_cameras(in_rig)

    def residuals(self, camera: FreeCamera) -> Float64[np.ndarray, "sights"]:
        """Distance (normalized plane) of each projection to its point or line; infinite behind the camera."""
        in_camera = self.in_cameras(camera.pose.apply(self.points))
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = self._gap(in_camera, camera.offsets)
        return np.where(in_camera[:, 2] > 1e-9, np.linalg.norm(gap, axis=1), np.inf)

    def _gap(self, in_camera: np.ndarray, offsets: np.ndarray) -> Float64[np.ndarray, "sights dim"]:
        """Differences of the projections of camera coordinates (sights, 3) from what was seen: two a point, one a line."""
        u, v = calibrated(in_camera[:, :2] / in_camera[:, 2:], offsets).T
        if self.as_lines:
            return (self.seen[:, 0] * u + self.seen[:, 1] * v + self.seen[:, 2])[:, None]
        return np.stack([u - self.seen[:, 0], v - self.seen[:, 1]], axis=1)

    def fitted(
        self, start: FreeCamera, reach: Float64[np.ndarray, "5"], least: Float64[np.ndarray, "5"] | None = None
    ) -> FreeCamera:
        """The camera of least robust residuals whose offsets lie between `least` (default: -`reach`) and `reach`.

        Levenberg-Marquardt from `start` on the pseudo-Huber loss at the median residual of the start; offsets at their bounds
        are held.
        """
        least = -reach if least is None else least
        camera = FreeCamera(pose=start.pose, offsets=np.clip(start.offsets, least, reach))
        middle = self.points.mean(axis=0)
        scale = max(float(np.median(self.residuals(camera))), 1e-9)
        if not math.isfinite(scale):
            return camera

        def stepped(camera: FreeCamera, damping: float) -> FreeCamera:
            normal, gradient = self._equations(camera, middle, scale)
            offsets = camera.offsets
            held = ((offsets >= reach) & (gradient[POSE:] < 0)) | ((offsets <= least) & (gradient[POSE:] > 0))
            moving = np.concatenate([np.arange(POSE), POSE + np.flatnonzero(~held)])
            step = np.zeros(len(gradient))
            step[moving] = damped_step(normal[np.ix_(moving, moving)], gradient[moving], damping)
            return _moved(camera, step, middle, least, reach)

        limits = Descent(damping=DAMPING, iterations=ITERATIONS, tolerance=TOL)
        return descended(camera, lambda camera: self._cost(camera, scale), stepped, limits)

    def _cost(self, camera: FreeCamera, scale: float) -> float:
        """Sum of the pseudo-Huber loss of the residuals in units of `scale`."""
        residuals = self.residuals(camera)
        return float((np.sqrt(1 + (residuals / scale) ** 2) - 1).sum())

    def _equations(self, camera: FreeCamera, middle: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """Normal matrix and gradient of one weighted step: turn about the point `middle`, shift, offsets (11 parameters)."""
        arm = (self.points - middle) @ camera.pose.rotation.T
        in_camera = self.in_cameras(arm + (camera.pose.rotation @ middle + camera.pose.translation))
        depth = np.maximum(in_camera[:, 2], 1e-9)
        x, y = in_camera[:, 0] / depth, in_camera[:, 1] / depth
        wide = math.exp(camera.offsets[0] + camera.offsets[3])
        high = math.exp(camera.offsets[0] - camera.offsets[3])
        skew, count = camera.offsets[4], len(arm)
        # By the place in camera coordinates, then by the turn (cross product with the arm) and the shift.
        by_x = np.stack([1 / depth, np.zeros(count), -x / depth], axis=1)
        by_y = np.stack([np.zeros(count), 1 / depth, -y / depth], axis=1)
        if self.rig is not None:
            by_x, by_y = self.rig.to_rig(by_x), self.rig.to_rig(by_y)
        rows = []
        for by_place, by_offsets in (
            (wide * by_x + skew * by_y, [wide * x, np.ones(count), np.zeros(count), wide * x, y]),
            (high * by_y, [high * y, np.zeros(count), np.ones(count), -high * y, np.zeros(count)]),
        ):
            rows.append(np.hstack([np.cross(arm, by_place), by_place, np.stack(by_offsets, axis=1)]))
        gap = self._gap(in_camera, camera.offsets)
        weight = 1 / np.sqrt(1 + (gap**2).sum(axis=1) / scale**2)
        if self.as_lines:
            rows = [self.seen[:, :1] * rows[0] + self.seen[:, 1:2] * rows[1]]
        normal = sum((row.T * weight) @ row for row in rows)
        gradient = sum(row.T @ (weight * gap[:, axis]) for axis, row in enumerate(rows))
        return np.asarray(normal), np.asarray(gradient)


def _moved(camera: FreeCamera, step: np.ndarray, middle: np.ndarray, least: np.ndarray, reach: np.ndarray) -> FreeCamera:
    """The camera after a step of `Sights._equations`, its offsets clipped to their bounds."""
    seen = camera.pose.rotation @ middle + camera.pose.translation
    rotations, places = moved_cameras(camera.pose.rotation[None], seen[None], np.zeros(1, dtype=np.int64), step[None, :POSE])
    pose = Rigid(rotation=rotations[0], translation=places[0] - rotations[0] @ middle)
    return FreeCamera(pose=pose, offsets=np.clip(camera.offsets + step[POSE:], least, reach))
