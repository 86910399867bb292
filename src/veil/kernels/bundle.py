"""Bundle adjustment from lines: Levenberg-Marquardt on the Schur complement, compiled by numba.

    r_ij = l_ij . Y / Y_z,   Y = R_i X_j + t_i        (Geppert et al. 2020, Eq. 12-13)

with l_ij = K^T l_pix and l_pix of unit normal, so r is the distance in pixels of the projected point to its line. A point
feature is two orthogonal lines through it, so the same code adjusts points. Jacobians with g = (l - r e3) / Y_z:
dr/dX = R^T g, dr/domega = (R X) x g for R <- exp(omega) R, dr/dt = g (docs/theory/lines.md, Eq. 14-16).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import bsr_matrix
from scipy.sparse.linalg import splu

from veil.errors import InputError, RangeError
from veil.kernels import schur

# Beyond this many free cameras the reduced camera system is factored as a sparse matrix.
DENSE_CAMERAS = 300


@dataclass(frozen=True, kw_only=True, eq=False)
class LineProblem:
    """Observations sorted by point: observation k is `lines[k]` seen in camera `camera_of[k]` of point `point_of[k]`."""

    rotations: Float64[np.ndarray, "cameras 3 3"]
    translations: Float64[np.ndarray, "cameras 3"]
    points: Float64[np.ndarray, "points 3"]
    lines: Float64[np.ndarray, "observations 3"]
    camera_of: Int64[np.ndarray, "observations"]
    point_of: Int64[np.ndarray, "observations"]

    def __post_init__(self) -> None:
        if len(self.lines) == 0:
            raise InputError("bundle adjustment needs observations")
        if (np.diff(self.point_of) < 0).any():
            raise InputError("observations must be sorted by point")
        if self.camera_of.max() >= len(self.rotations) or self.point_of.max() >= len(self.points):
            raise InputError("an observation names a camera or point that is not there")


@dataclass(frozen=True, kw_only=True)
class AdjustOptions:
    """`loss_px` is the scale of the Cauchy loss (infinity: least squares); steps stop at relative decrease `tol`."""

    loss_px: float = 2.0
    max_iterations: int = 50
    tol: float = 1e-8
    adjust_points: bool = True

    def __post_init__(self) -> None:
        if not self.loss_px > 0:
            raise RangeError(f"loss_px must be positive, got {self.loss_px!r}")
        if not (self.max_iterations >= 1 and 0 < self.tol < 1):
            raise RangeError("max_iterations must be at least 1 and tol between 0 and 1")


@dataclass(frozen=True, kw_only=True, eq=False)
class Adjusted:
    """The adjusted problem, its robust cost (half sum) before and after, and the steps that were taken."""

    problem: LineProblem
    initial_cost: float
    final_cost: float
    iterations: int


def residuals(problem: LineProblem) -> Float64[np.ndarray, "observations"]:
    """Signed pixel distances; infinite where a point is behind its camera."""
    return schur.residuals(
        problem.rotations, problem.translations, problem.points, problem.lines, problem.camera_of, problem.point_of
    )


def adjust(
    problem: LineProblem,
    *,
    constant: Bool[np.ndarray, "cameras"],
    options: AdjustOptions | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Adjusted:
    """Minimize the robust cost over all cameras that are not `constant` and, unless told otherwise, all points.

    With one constant camera the scale is left to the damping, which keeps it near where it was (no gauge is fixed by
    force). Raises InputError if a point starts behind a camera that sees it.
    """
    options = options or AdjustOptions()
    loss = min(options.loss_px, 1e150)
    free = np.where(constant, -1, np.cumsum(~constant) - 1).astype(np.int64)
    current, cost = problem, _cost(residuals(problem), loss)
    if not np.isfinite(cost):
        raise InputError("a point lies behind a camera that sees it; remove such observations first")
    initial, damping, taken = cost, 1e-4, 0
    for iteration in range(options.max_iterations):
        system = _linearize(current, free, loss)
        step = None
        while damping < 1e12:
            step = _step(system, current, free, damping, options.adjust_points)
            trial = _apply(current, step, free) if step is not None else current
            trial_cost = _cost(residuals(trial), loss) if step is not None else np.inf
            if trial_cost < cost:
                break
            damping *= 8
            step = None
        if step is None:
            break
        decrease = (cost - trial_cost) / max(cost, 1e-300)
        current, cost, taken, damping = trial, trial_cost, iteration + 1, max(damping / 5, 1e-12)
        if progress is not None:
            progress(taken, cost)
        if decrease < options.tol:
            break
    return Adjusted(problem=current, initial_cost=initial, final_cost=cost, iterations=taken)


@dataclass(frozen=True, kw_only=True, eq=False)
class _System:
    """Normal equations by blocks: cameras U, points V, coupling W an observation, gradients."""

    u: np.ndarray
    v: np.ndarray
    w: np.ndarray
    camera_gradient: np.ndarray
    point_gradient: np.ndarray


def _linearize(problem: LineProblem, free: np.ndarray, loss: float) -> _System:
    parts = schur.normal_blocks(
        problem.rotations,
        problem.translations,
        problem.points,
        problem.lines,
        problem.camera_of,
        problem.point_of,
        free,
        int(free.max() + 1),
        loss,
    )
    return _System(u=parts[0], v=parts[1], w=parts[2], camera_gradient=parts[3], point_gradient=parts[4])


def _step(
    system: _System, problem: LineProblem, free: np.ndarray, damping: float, adjust_points: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Damped step (cameras, points), or None where the system cannot be solved."""
    cameras = len(system.u)
    u = system.u.copy()
    u[:, range(6), range(6)] *= 1 + damping
    u[:, range(6), range(6)] += 1e-12
    if not adjust_points:
        step = np.linalg.solve(u, -system.camera_gradient[..., None])[..., 0] if cameras else np.zeros((0, 6))
        return step, np.zeros_like(problem.points)
    inverse = _damped_inverses(system.v, damping)
    if cameras == 0:
        return np.zeros((0, 6)), -np.einsum("pij,pj->pi", inverse, system.point_gradient)
    starts = np.searchsorted(problem.point_of, np.arange(len(problem.points) + 1))
    camera = free[problem.camera_of]
    right = -system.camera_gradient + schur.coupled_right(
        system.w, inverse, system.point_gradient, problem.point_of, camera, cameras
    )
    if cameras <= DENSE_CAMERAS:
        reduced = schur.dense_schur(u, system.w, inverse, starts, camera)
        try:
            factor = cho_factor(reduced, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        camera_step = cho_solve(factor, right.ravel(), check_finite=False).reshape(-1, 6)
    else:
        camera_step = _sparse_solve(u, system.w, inverse, starts, camera, right)
    if not np.isfinite(camera_step).all():
        return None
    return camera_step, schur.back_substitute(system.w, inverse, system.point_gradient, starts, camera, camera_step)


def _sparse_solve(
    u: np.ndarray, w: np.ndarray, inverse: np.ndarray, starts: np.ndarray, camera: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """The reduced camera system with only the blocks of cameras that share a point."""
    rows, columns, blocks = schur.sparse_schur(u, w, inverse, starts, camera)
    order = np.lexsort((columns, rows))
    rows, columns, blocks = rows[order], columns[order], blocks[order]
    first = np.flatnonzero(np.r_[True, (np.diff(rows) != 0) | (np.diff(columns) != 0)])
    summed = np.add.reduceat(blocks, first, axis=0)
    pointers = np.searchsorted(rows[first], np.arange(len(u) + 1))
    matrix = bsr_matrix((summed, columns[first], pointers), shape=(6 * len(u), 6 * len(u)))
    return splu(matrix.tocsc()).solve(right.ravel()).reshape(-1, 6)


def _apply(problem: LineProblem, step: tuple[np.ndarray, np.ndarray], free: np.ndarray) -> LineProblem:
    camera_step, point_step = step
    moving = np.flatnonzero(free >= 0)
    rotations, translations = problem.rotations.copy(), problem.translations.copy()
    rotations[moving] = _exponential(camera_step[:, :3]) @ rotations[moving]
    translations[moving] += camera_step[:, 3:]
    return replace(problem, rotations=rotations, translations=translations, points=problem.points + point_step)


def _exponential(omega: np.ndarray) -> np.ndarray:
    """Rodrigues' formula for each row."""
    angle = np.linalg.norm(omega, axis=1)[:, None, None]
    x, y, z = omega.T
    zero = np.zeros_like(x)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)
    small = np.maximum(angle, 1e-12)
    return np.eye(3) + np.sin(small) / small * cross + (1 - np.cos(small)) / small**2 * cross @ cross


def _cost(r: np.ndarray, loss: float) -> float:
    """Half the sum of loss^2 log(1 + r^2 / loss^2)."""
    if not np.isfinite(r).all():
        return float("inf")
    return float(0.5 * loss**2 * np.log1p((r / loss) ** 2).sum()) if loss < 1e100 else float(0.5 * (r**2).sum())


def _damped_inverses(v: np.ndarray, damping: float) -> np.ndarray:
    """(V + damping diag V)^-1 of each point; a point seen in too few directions is held by a small floor."""
    damped = v.copy()
    floor = 1e-12 * np.maximum(np.trace(v, axis1=1, axis2=2), 1e-12)[:, None]
    damped[:, range(3), range(3)] = v[:, range(3), range(3)] * (1 + damping) + floor
    return np.linalg.inv(damped)
