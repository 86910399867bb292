"""Robust fit of a pose and the log of its focal length together, under the prior of the focal length, and their covariance.

Theory: docs/theory/localization.md#pose-and-focal-length-together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.compiled import compiled
from veil.geometry.bundle.schur import moved_cameras
from veil.geometry.camera import FocalPrior
from veil.geometry.free_calibration import Descent, Sights, damped_step, descended
from veil.geometry.rigid import Rigid

# A search with the declared focal length finds what the fit puts right, up to this deviation; with a larger one the focal
# length is searched for as well (localization.md#pose-and-focal-length-together).
MOST_HELD = 0.15
PARAMETERS = 7  # three of the turn, three of the shift, the log of the focal length
# Scale of the Cauchy loss in standard deviations (95 % efficient for one normal residual; Holland and Welsch 1977).
LOSS_SIGMAS = 2.385
# Median of the distance of a normal error of unit deviation along each axis: to a point, and to a line.
MEDIAN_OF_POINTS, MEDIAN_OF_LINES = 1.17741, 0.67449
# Estimates of the noise, iterations with each, the first damping, and the relative change of the cost at which they end.
NOISES, ITERATIONS, DAMPING, TOL = 8, 20, 1e-4, 1e-7
# Share of a sight that the fit leaves to itself, at least, where it is judged without it.
LEAST_OUTSIDE = 0.01
# Least noise in the loss, as a share of that in the covariance: exact data must not make the loss infinitely narrow.
LEAST_SHARE = 0.1


def is_searched(prior: FocalPrior) -> bool:
    """Whether a focal length is known so little that poses are searched for with several."""
    return prior.deviation > MOST_HELD


@dataclass(frozen=True, kw_only=True)
class FocalLaw:
    """Normal law of the log of a focal length, as a ratio to that of the plane of the sights."""

    mean: float
    deviation: float


@dataclass(frozen=True, kw_only=True, eq=False)
class JointFit:
    """A pose, the log ratio of its focal length to that of the plane of the sights, and how far both are known.

    - `pose`: cam_from_world.
    - `log_focal`: log of the ratio of the focal lengths.
    - `covariance`, float64 (7, 7): of (rotation in radians, translation in units of the world) in the camera frame, then of the
      log of the focal length. It is infinite where the sights leave a parameter free.
    - `noise`: standard deviation of what was seen, along each axis of the normalized plane.
    """

    pose: Rigid
    log_focal: float
    covariance: Float64[np.ndarray, "7 7"]
    noise: float

    @property
    def is_bound(self) -> bool:
        """Whether the sights leave no parameter free."""
        return bool(np.isfinite(self.covariance).all())

    @property
    def pose_covariance(self) -> Float64[np.ndarray, "6 6"]:
        """Covariance of the pose alone, whatever the focal length."""
        return self.covariance[:6, :6]

    @property
    def focal_deviation(self) -> float:
        """Standard deviation of the log of the focal length."""
        return math.sqrt(float(self.covariance[6, 6]))

    @property
    def turn_deviation(self) -> float:
        """Standard deviation in radians of the rotation about its least certain axis."""
        return turn_deviation(self.covariance)


def turn_deviation(covariance: Float64[np.ndarray, "size size"]) -> float:
    """Standard deviation in radians about the least certain axis, of a covariance whose first three rows are of a rotation.

    It is infinite where it exceeds half a turn.
    """
    turn = covariance[:3, :3]
    variance = float(np.linalg.eigvalsh(turn)[-1]) if np.isfinite(turn).all() else math.inf
    return math.sqrt(max(variance, 0.0)) if variance <= math.pi**2 else math.inf


def fit_jointly(sights: Sights, start: Rigid, law: FocalLaw, *, log_focal: float = 0.0, least_noise: float) -> JointFit:
    """The pose and the focal length of least robust residuals and of the focal length's law, and their covariance.

    The loss is Cauchy's; its scale follows the noise, which is estimated anew from the median of the residuals. The covariance
    is that of an M-estimator (Huber and Ronchetti 2009, Sec. 7.6) whose residuals have variances of their own, with a
    noise of at least `least_noise` (normalized plane).

    - `sights`: what a camera saw, those that count as right.
    - `start`, `log_focal`: where the search begins.
    - `law`: that of the log ratio of the focal length to that of the sights' plane.
    """
    problem = _Problem(sights=sights, law=law, middle=sights.points.mean(axis=0))
    state = _Zoomed(pose=start, log_focal=log_focal)
    least = LEAST_SHARE * least_noise
    for _ in range(NOISES):
        noise = max(problem.noise(state), least)
        if not math.isfinite(noise):
            break
        before, state = state, problem.optimum(state, noise)
        if abs(problem.noise(state) / noise - 1) < 0.05 or state is before:
            break
    influence = problem.influence(state, max(problem.noise(state), least))
    noise = max(influence.noise, least_noise)
    covariance = problem.covariance(state, influence, noise)
    return JointFit(pose=state.pose, log_focal=state.log_focal, covariance=covariance, noise=noise)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Zoomed:
    """A pose, and the log ratio of its focal length to that of the sights' plane."""

    pose: Rigid
    log_focal: float


@dataclass(frozen=True, kw_only=True)
class _Influence:
    """What the loss of scale `loss` (normalized plane) makes of the residuals.

    `slope` is the mean derivative of their influence. `noise` is the standard deviation of normal noise that leaves least
    squares as uncertain as the loss leaves these residuals.
    """

    loss: float
    slope: float
    noise: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Problem:
    """Residuals of the sights and their derivatives, about the point `middle`."""

    sights: Sights
    law: FocalLaw
    middle: Float64[np.ndarray, "3"]

    @property
    def dimension(self) -> int:
        """Number of residuals of one sight."""
        return 1 if self.sights.as_lines else 2

    def squares(self, state: _Zoomed) -> Float64[np.ndarray, "sights"]:
        """Squared distances of projections from what was seen; infinite behind the camera."""
        squares = np.empty(len(self.sights.points))
        _square_gaps(self._of_sights, self._of_camera(state), squares)
        return squares

    @property
    def _of_sights(self) -> tuple[np.ndarray, np.ndarray, bool, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        rig = self.sights.rig
        if rig is None:
            frames = np.zeros(len(self.sights.points), dtype=np.int64), np.eye(3)[None], np.zeros((1, 3))
        else:
            frames = rig.frame_of, rig.rotations, rig.translations
        return self.sights.points, self.sights.seen, self.sights.as_lines, frames

    def _of_camera(self, state: _Zoomed) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        return state.pose.rotation, state.pose.translation, self.middle, math.exp(state.log_focal)

    def noise(self, state: _Zoomed) -> float:
        """Standard deviation along each axis, by the median of the residuals."""
        median = MEDIAN_OF_LINES if self.sights.as_lines else MEDIAN_OF_POINTS
        return math.sqrt(float(np.median(self.squares(state)))) / median

    def influence(self, state: _Zoomed, noise: float) -> _Influence:
        """The influence of residuals with the loss for a noise; infinite noise where too few are left."""
        loss = LOSS_SIGMAS * noise
        squared = self.squares(state) / loss**2
        squared = squared[np.isfinite(squared)]
        freedoms = self.dimension * len(squared) - PARAMETERS
        if freedoms <= 0:
            return _Influence(loss=loss, slope=1.0, noise=math.inf)
        psi = float((squared / (1 + squared) ** 2).sum()) * loss**2 / freedoms
        # Derivative of each residual's influence; in the plane, the mean of those along its direction and across it.
        slopes = (1 - squared) / (1 + squared) ** 2 if self.sights.as_lines else 1 / (1 + squared) ** 2
        slope = float(slopes.mean())
        if not slope > 0:
            return _Influence(loss=loss, slope=1.0, noise=math.inf)
        few = 1 + PARAMETERS / (self.dimension * len(squared)) * float(slopes.var()) / slope**2
        return _Influence(loss=loss, slope=slope, noise=few * math.sqrt(psi) / slope)

    def cost(self, state: _Zoomed, noise: float) -> float:
        """Negative log likelihood of the residuals and of the focal length."""
        squared = self.squares(state) / (LOSS_SIGMAS * noise) ** 2
        loss = 0.5 * LOSS_SIGMAS**2 * float(np.log1p(squared).sum())
        return loss + 0.5 * ((state.log_focal - self.law.mean) / self.law.deviation) ** 2

    def optimum(self, state: _Zoomed, noise: float) -> _Zoomed:
        """The state of least cost that Levenberg and Marquardt's steps lead to; the same one if none lowers the cost."""

        def stepped(state: _Zoomed, damping: float) -> _Zoomed:
            normal, gradient = self.equations(state, noise)
            return self.moved(state, damped_step(normal, gradient, damping))

        limits = Descent(damping=DAMPING, iterations=ITERATIONS, tolerance=TOL)
        return descended(state, lambda state: self.cost(state, noise), stepped, limits)

    def equations(self, state: _Zoomed, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """Normal matrix (7, 7) and gradient of the cost."""
        rows, gaps = self.derivatives(state)
        weights = 1 / (1 + (gaps**2).sum(axis=1) / (LOSS_SIGMAS * noise) ** 2)
        flat = rows.reshape(-1, PARAMETERS)
        weighted = flat * (np.repeat(weights, self.dimension) / noise**2)[:, None]
        normal = weighted.T @ flat + self.known
        gradient = weighted.T @ gaps.ravel()
        gradient[6] += (state.log_focal - self.law.mean) / self.law.deviation**2
        return normal, gradient

    @property
    def known(self) -> Float64[np.ndarray, "7 7"]:
        """Inverse covariance of what is known beforehand, the focal length."""
        known = np.zeros((PARAMETERS, PARAMETERS))
        known[6, 6] = 1 / self.law.deviation**2
        return known

    def derivatives(self, state: _Zoomed) -> tuple[Float64[np.ndarray, "sights axes 7"], Float64[np.ndarray, "sights axes"]]:
        """Derivatives of all residuals by a turn about the middle, a shift and the log focal length, and the residuals."""
        count, axes = len(self.sights.points), self.dimension
        rows, gaps = np.empty((count, axes, PARAMETERS)), np.empty((count, axes))
        _derive(self._of_sights, self._of_camera(state), rows, gaps)
        return rows, gaps

    def seen_middle(self, state: _Zoomed) -> Float64[np.ndarray, "3"]:
        """The middle of the points in the camera frame."""
        return state.pose.rotation @ self.middle + state.pose.translation

    def moved(self, state: _Zoomed, step: np.ndarray) -> _Zoomed:
        """The state after a step: a turn about the middle, a shift, and a change of the log of the focal length."""
        seen = self.seen_middle(state)
        rotations, places = moved_cameras(state.pose.rotation[None], seen[None], np.zeros(1, dtype=np.int64), step[None, :6])
        pose = Rigid(rotation=rotations[0], translation=places[0] - rotations[0] @ self.middle)
        return _Zoomed(pose=pose, log_focal=state.log_focal + float(np.clip(step[6], -0.5, 0.5)))

    def covariance(self, state: _Zoomed, influence: _Influence, noise: float) -> Float64[np.ndarray, "7 7"]:
        """Covariance of (rotation, translation, log focal length); infinite where a parameter is free.

        Each residual counts as it would be without it in the fit (docs/theory/localization.md, Eq. 8). What a noise of `noise`
        has more than the residuals show is added to each.
        """
        free = np.diag(np.full(PARAMETERS, np.inf))
        if not math.isfinite(noise):
            return free
        rows, gaps = self.derivatives(state)
        rows = rows / noise
        weights = 1 / (1 + (gaps**2).sum(axis=1) / influence.loss**2)
        shares = weights / weights.mean()
        plain = np.einsum("s,sai,saj->ij", shares, rows, rows)
        normal = plain + self.known
        scale = np.sqrt(np.diag(normal))
        if not (np.isfinite(scale).all() and scale.all()):
            return free
        values, vectors = np.linalg.eigh(normal / np.outer(scale, scale))
        if not values[0] > 1e-12:
            return free
        root = (vectors / np.sqrt(values)) / scale[:, None]
        leverage = shares * ((rows @ root) ** 2).sum(axis=(1, 2)) / self.dimension
        outside = influence.slope * np.maximum(1 - leverage, LEAST_OUTSIDE)
        pulls = np.einsum("sai,sa->si", rows, gaps * (weights / (noise * outside))[:, None])
        residuals = gaps.size
        apart = residuals / (residuals - PARAMETERS) * pulls.T @ pulls
        missing = max(1 - (influence.noise / noise) ** 2, 0.0)
        # A turn about the middle moves the translation by its cross product with the middle's place in the turned world.
        x, y, z = state.pose.rotation @ self.middle
        inverse = root @ root.T
        inverse[3:6] += np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) @ inverse[:3]
        return np.asarray(inverse @ (apart + missing * plain + self.known) @ inverse.T)


@compiled
def _to_camera(frames, n, in_rig, place):
    """Write the place (3,) in the camera of sight `n` of a place in the rig (3,); `frames` are those of `_derive`."""
    frame_of, turns, shifts = frames
    turn, shift = turns[frame_of[n]], shifts[frame_of[n]]
    for i in range(3):
        place[i] = turn[i, 0] * in_rig[0] + turn[i, 1] * in_rig[1] + turn[i, 2] * in_rig[2] + shift[i]


@compiled
def _square_gaps(of_sights, of_camera, squares):
    """Write the squared distances of projections from what was seen (see `_derive`); infinite behind the camera."""
    points, seen, as_lines, frames = of_sights
    rotation, translation, _, zoom = of_camera
    in_rig, place = np.zeros(3), np.zeros(3)
    for n in range(len(points)):
        for i in range(3):
            in_rig[i] = translation[i]
            for j in range(3):
                in_rig[i] += rotation[i, j] * points[n, j]
        _to_camera(frames, n, in_rig, place)
        if place[2] <= 1e-9:
            squares[n] = np.inf
            continue
        x, y = zoom * place[0] / place[2], zoom * place[1] / place[2]
        if as_lines:
            squares[n] = (seen[n, 0] * x + seen[n, 1] * y + seen[n, 2]) ** 2
        else:
            squares[n] = (x - seen[n, 0]) ** 2 + (y - seen[n, 1]) ** 2


@compiled
def _derive(of_sights, of_camera, rows, gaps):
    """Write the residuals (sights, axes) and their derivatives (sights, axes, 7); zeros behind the camera.

    `of_sights` holds points (sights, 3), what was seen of them (sights, 3), whether that are lines, of one axis, and the frame
    of each with the motions cam_from_rig of all frames; `of_camera` a rotation, a translation, the point that turns are about,
    and the ratio of the focal length.
    """
    points, seen, as_lines, frames = of_sights
    rotation, translation, middle, zoom = of_camera
    frame_of, turns, _ = frames
    arm, in_rig, place, both, shown = np.zeros(3), np.zeros(3), np.zeros(3), np.zeros((2, 7)), np.zeros(2)
    by_camera, by_rig = np.zeros(3), np.zeros(3)
    for n in range(len(points)):
        for i in range(3):
            arm[i] = in_rig[i] = 0.0
            for j in range(3):
                arm[i] += rotation[i, j] * (points[n, j] - middle[j])
                in_rig[i] += rotation[i, j] * points[n, j]
            in_rig[i] += translation[i]
        _to_camera(frames, n, in_rig, place)
        turn = turns[frame_of[n]]
        if place[2] <= 1e-9:
            rows[n], gaps[n] = 0.0, 0.0
            continue
        inverse = zoom / place[2]
        # By the place in the camera, then the turn (cross product with the arm), the shift, and the log of the focal length.
        for axis in range(2):
            shown[axis] = place[axis] * inverse
            by_camera[0], by_camera[1], by_camera[2] = inverse * (axis == 0), inverse * (axis == 1), -shown[axis] / place[2]
            for j in range(3):
                by_rig[j] = by_camera[0] * turn[0, j] + by_camera[1] * turn[1, j] + by_camera[2] * turn[2, j]
            b0, b1, b2 = by_rig
            both[axis, 0], both[axis, 1], both[axis, 2] = (
                arm[1] * b2 - arm[2] * b1,
                arm[2] * b0 - arm[0] * b2,
                arm[0] * b1 - arm[1] * b0,
            )
            both[axis, 3], both[axis, 4], both[axis, 5], both[axis, 6] = b0, b1, b2, shown[axis]
        if as_lines:
            gaps[n, 0] = seen[n, 0] * shown[0] + seen[n, 1] * shown[1] + seen[n, 2]
            for i in range(7):
                rows[n, 0, i] = seen[n, 0] * both[0, i] + seen[n, 1] * both[1, i]
        else:
            for axis in range(2):
                gaps[n, axis] = shown[axis] - seen[n, axis]
                for i in range(7):
                    rows[n, axis, i] = both[axis, i]
