"""Bundle adjustment from lines: Levenberg-Marquardt on the Schur complement, compiled by numba.

    r_ij = l_ij . Y / Y_z,   Y = R_i X_j + t_i        (Geppert et al. 2020, Eq. 12-13)

with l_ij = K^T l_pix and l_pix of unit normal, so r is the distance in pixels of the projected point to its line. A point
feature is two orthogonal lines through it, so the same code adjusts points. The reduced camera system (Eq. 19-20) is solved
densely, or as a sparse matrix where there are many cameras. Formulas: docs/theory/lines.md, Eq. 12-23.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import InputError, RangeError
from veil.geometry.bundle import schur
from veil.geometry.bundle.upright import Upright
from veil.threads import cores, shared, single_blas

# Beyond this many free cameras the reduced camera system is factored as a sparse matrix.
DENSE_CAMERAS = 300


@dataclass(frozen=True, kw_only=True, eq=False)
class CameraPairs:
    """Camera pairs with a block in the lower triangle: block k couples free cameras `first[k]` >= `second[k]`.

    `slots[first[k], second[k]]` is k, and -1 where there is no block.
    """

    first: Int64[np.ndarray, "pairs"]
    second: Int64[np.ndarray, "pairs"]
    slots: Int64[np.ndarray, "cameras cameras"]


def camera_pairs(shared: np.ndarray) -> CameraPairs:
    """One block for each camera and for each two that share a point, from the mask (cameras, cameras) of such pairs."""
    first, second = np.nonzero(shared)
    slots = np.full(shared.shape, -1, dtype=np.int64)
    slots[first, second] = np.arange(len(first))
    return CameraPairs(first=first, second=second, slots=slots)


def solved_cameras(
    which: CameraPairs,
    blocks: Float64[np.ndarray, "pairs 6 6"],
    right: Float64[np.ndarray, "cameras 6"],
) -> Float64[np.ndarray, "cameras 6"] | None:
    """The step of the free cameras (turn in radians, translation), or None where the system has no solution.

    `blocks` are those of `which`, damped, and `right` is the right side (Eq. 19-20).
    """
    cameras = len(right)
    if cameras == 0:
        return np.zeros((0, 6))
    # Where other work shares the cores, BLAS threads that wait for each other make this a hundred times slower.
    with single_blas():
        step = (_dense if cameras <= DENSE_CAMERAS else _sparse)(which, blocks, right.ravel())
    return step.reshape(-1, 6) if step is not None and np.isfinite(step).all() else None


def _dense(which: CameraPairs, blocks: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The solution (6 cameras,) by LAPACK's Cholesky factorization, or None where the matrix is not positive definite."""
    from scipy.linalg.lapack import dposv

    matrix = np.zeros((len(right) // 6, 6, len(right) // 6, 6))
    matrix[which.first, :, which.second, :] = blocks
    # The lower triangle of a C matrix is the upper one of its transpose, which LAPACK takes without a copy.
    _, step, failed = dposv(matrix.reshape(len(right), -1).T, right, lower=False, overwrite_a=True)
    return None if failed else step


def _sparse(which: CameraPairs, blocks: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The solution (6 cameras,) by SuperLU, or None where the matrix is singular."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import splu

    inner = np.arange(6)
    rows = np.broadcast_to(6 * which.first[:, None, None] + inner[:, None], blocks.shape).ravel()
    columns = np.broadcast_to(6 * which.second[:, None, None] + inner, blocks.shape).ravel()
    values, mirror = blocks.ravel(), np.repeat(which.first != which.second, 36)
    matrix = coo_matrix(
        (
            np.concatenate([values, values[mirror]]),
            (np.concatenate([rows, columns[mirror]]), np.concatenate([columns, rows[mirror]])),
        ),
        shape=(len(right), len(right)),
    )
    try:
        factor = splu(matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:  # exactly singular
        return None
    return factor.solve(right)


FIRST_DAMPING = 1e-4
# Below this damping saves no step, while it still keeps an open gauge (the scale) solvable in double precision.
MIN_DAMPING = 1e-10
MAX_DAMPING = 1e16
# A step that gains less than this share of what the linear model predicts is refused.
MIN_GAIN = 1e-3
# The work is cut by the size of the problem alone, so that sums and results do not depend on the number of threads.
CHUNK_OBSERVATIONS = 50_000
MAX_CHUNKS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class LineProblem:
    """Cameras, points and the lines that were seen of the points, sorted by point: what bundle adjustment starts from.

    Observation k is `lines[k]` = K^T l_pix, with l_pix of unit normal in pixels, seen by camera `camera_of[k]` of point
    `point_of[k]`. Rotations and translations are cam_from_world. Raises InputError if there are no observations, if they
    are not sorted, or if one names a camera or point that is not there.
    """

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
    """Settings of bundle adjustment: loss, stopping rule, whether points move, and threads. Raises RangeError for bad values.

    `loss_px` is the scale of the Cauchy loss in pixels (infinity: least squares). Steps stop at relative decrease `tol` of the
    cost, and `max_iterations` bounds the steps tried. `threads` limits the threads (None: one a core); results do not depend on
    it.
    """

    loss_px: float = 2.0
    max_iterations: int = 50
    tol: float = 1e-8
    adjust_points: bool = True
    threads: int | None = None

    def __post_init__(self) -> None:
        if not self.loss_px > 0:
            raise RangeError(f"loss_px must be positive, got {self.loss_px!r}")
        if not (self.max_iterations >= 1 and 0 < self.tol < 1):
            raise RangeError("max_iterations must be at least 1 and tol between 0 and 1")
        if self.threads is not None and self.threads < 1:
            raise RangeError(f"threads must be at least 1, got {self.threads!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Adjusted:
    """Result of adjustment: the adjusted problem, its robust cost (px^2, Eq. 13) before and after, and the steps taken."""

    problem: LineProblem
    initial_cost: float
    final_cost: float
    iterations: int


def residuals(problem: LineProblem) -> Float64[np.ndarray, "observations"]:
    """Signed distance in pixels of each projected point from its line (Eq. 12); infinite where it is behind its camera."""
    cameras = schur.Cameras(problem.rotations, problem.translations)
    return schur.residuals(cameras, problem.points, problem.lines, problem.camera_of, problem.point_of)


def adjust(
    problem: LineProblem,
    *,
    constant: Bool[np.ndarray, "cameras"],
    constant_points: Bool[np.ndarray, "points"] | None = None,
    upright: Upright | None = None,
    options: AdjustOptions | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Adjusted:
    """Minimize the robust cost over the cameras that are not `constant` and the points that are not `constant_points`.

    `options` with `adjust_points=False` hold all points. `upright` adds readings of gravity to the cost. `progress` is called
    after each step taken, with the number of steps and the cost.

    With one constant camera the scale is left to the damping, which keeps it near where it was (no gauge is fixed by
    force). Raises InputError if a point starts behind a camera that sees it.
    """
    options = options or AdjustOptions()
    held = np.full(len(problem.points), not options.adjust_points)
    if constant_points is not None:
        held |= constant_points
    threads = min(_chunks(len(problem.lines)), options.threads or cores())
    with single_blas():
        work = _Buffers(problem, constant=constant, held=held, loss=options.loss_px, threads=threads, upright=upright)
        return _descend(problem, work, options, progress)


def camera_information(problem: LineProblem, *, loss_px: float) -> Float64[np.ndarray, "cameras 6 cameras 6"]:
    """Information matrix of (rotation, translation) of all cameras, the points eliminated, in 1 / px^2 (Eq. 19).

    Its inverse, where seven directions are left out (the map's own frame and scale), is the cameras' covariance for lines of
    unit variance (px^2), with rotations in radians about the camera's axes. Lines count with the weights of a Cauchy loss of
    `loss_px` pixels at the problem's state. The matrix is dense: for some hundreds of cameras.
    """
    count = len(problem.rotations)
    with single_blas():
        free, held = np.zeros(count, dtype=bool), np.zeros(len(problem.points), dtype=bool)
        work = _Buffers(problem, constant=free, held=held, loss=loss_px, threads=min(_chunks(len(problem.lines)), cores()))
        work.linearize(_state(problem))
        pairs = work.pairs
        parts = work.spread(schur.reduce, work.jacobian, pairs.slots, len(pairs.first), MIN_DAMPING, work.factors)
    blocks = sum((part[0] for part in parts[1:]), start=parts[0][0])
    matrix = np.zeros((count, 6, count, 6))
    matrix[pairs.first, :, pairs.second, :] = blocks
    lower = pairs.first != pairs.second
    matrix[pairs.second[lower], :, pairs.first[lower], :] = np.swapaxes(blocks[lower], 1, 2)
    return matrix


def _descend(
    problem: LineProblem, work: _Buffers, options: AdjustOptions, progress: Callable[[int, float], None] | None
) -> Adjusted:
    """Minimize by Levenberg-Marquardt; the damping follows the ratio of actual to predicted decrease (Eq. 23)."""
    state = _state(problem)
    initial = cost = work.cost(state, fallback=state)
    if not np.isfinite(cost):
        raise InputError("a point lies behind a camera that sees it; remove such observations first")
    damping, growth, taken, accepted = FIRST_DAMPING, 2.0, 0, True
    for _ in range(options.max_iterations):
        if accepted:
            work.linearize(state)
        step = work.step(damping)
        trial = work.moved(state, step)
        trial_cost = work.cost(trial, fallback=state)
        decrease = cost - trial_cost
        accepted = decrease > max(MIN_GAIN * step.predicted, 0.0)
        if accepted:
            gain = min(decrease / max(step.predicted, 1e-300), 1.0)
            damping, growth = max(damping * max(1 / 3, 1 - (2 * gain - 1) ** 3), MIN_DAMPING), 2.0
            state, cost, taken = trial, trial_cost, taken + 1
            if progress is not None:
                progress(taken, cost)
        else:
            damping, growth = damping * growth, 2 * growth
        exhausted = step.predicted <= options.tol * cost or (accepted and decrease <= options.tol * cost)
        if exhausted or damping > MAX_DAMPING:
            break
    rotations, translations = state.cameras
    adjusted = replace(problem, rotations=rotations, translations=translations, points=state.points)
    return Adjusted(problem=adjusted, initial_cost=initial, final_cost=cost, iterations=taken)


@dataclass(frozen=True, kw_only=True, eq=False)
class _State:
    """Poses of all cameras and all points: the variables of the adjustment."""

    cameras: schur.Cameras
    points: Float64[np.ndarray, "points 3"]


def _state(problem: LineProblem) -> _State:
    """The state that a problem starts from, in arrays that compiled loops may write to."""
    return _State(cameras=schur.Cameras(_plain(problem.rotations), _plain(problem.translations)), points=_plain(problem.points))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Step:
    """Steps of free cameras (turn in radians, translation) and of points, and the decrease (px^2) that the model predicts."""

    cameras: Float64[np.ndarray, "free 6"]
    points: Float64[np.ndarray, "points 3"]
    predicted: float


class _Buffers:
    """Constant arrays and buffers of one problem; each method spreads a compiled loop over chunks of points."""

    def __init__(
        self,
        problem: LineProblem,
        *,
        constant: np.ndarray,
        held: np.ndarray,
        loss: float,
        threads: int,
        upright: Upright | None = None,
    ) -> None:
        lines, camera_of = _plain(problem.lines), _plain(problem.camera_of, np.int64)
        starts = np.searchsorted(problem.point_of, np.arange(len(problem.points) + 1)).astype(np.int64)
        self.observations = schur.Observations(lines, camera_of, starts)
        self.free = np.flatnonzero(~constant)
        index = np.full(len(constant), -1, dtype=np.int64)
        index[self.free] = np.arange(len(self.free))
        self.jacobian = schur.Jacobian(np.empty((len(lines), schur.ROW)), starts, index[camera_of], held)
        self.held, self.loss, self.factors = held, float(loss), np.empty((len(held), 6))
        self.pairs = camera_pairs(schur.shared_points(self.jacobian.free_camera, starts, held, len(self.free)))
        chunks = _chunks(len(lines))
        cuts = np.searchsorted(starts, np.arange(1, chunks) * (len(lines) // chunks)).tolist()
        self.begins, self.ends, self.threads = [0, *cuts], [*cuts, len(held)], threads
        self.upright = upright
        self.upright_px = 0.0 if upright is None else self.loss / 2 / upright.sigma_rad

    def spread(self, loop: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Results of a compiled loop for each chunk of points, in order."""
        if len(self.begins) == 1:  # small problems have thousands of such loops, shorter than it takes to share them out
            return [loop(*arguments, self.begins[0], self.ends[0])]
        return list(shared(lambda part: loop(*arguments, *part), zip(self.begins, self.ends, strict=True), self.threads))

    def cost(self, state: _State, *, fallback: _State) -> float:
        """Cost of a state (px^2), Eq. 13; its points behind a camera are moved back toward where they are in `fallback`."""
        tilt = 0.0 if self.upright is None else self.upright.cost(state.cameras.rotations, self.upright_px)
        where = state.cameras, state.points, fallback.points
        return tilt + sum(self.spread(schur.cost, *where, self.observations, self.loss))

    def linearize(self, state: _State) -> None:
        """Fill the Jacobian's rows, and the gravity terms of the normal equations, at this state."""
        self.spread(schur.fill_rows, state.cameras, state.points, self.observations, self.loss, self.jacobian.rows)
        if self.upright is not None:
            normal, descent = self.upright.linear(state.cameras.rotations, self.upright_px)
            self.turns, self.descent = normal[self.free], descent[self.free]

    def step(self, damping: float) -> _Step:
        """Damped step from the last linearization; without a solution a zero step of infinite prediction, which is refused."""
        pairs = self.pairs
        parts = self.spread(schur.reduce, self.jacobian, pairs.slots, len(pairs.first), damping, self.factors)
        blocks, right, diagonal = (sum(part[1:], start=part[0]) for part in zip(*parts, strict=True))
        diagonals = np.diagonal(pairs.slots)
        if self.upright is not None:
            blocks[diagonals, :3, :3] += self.turns
            right[:, :3] += self.descent
            diagonal[:, :3] += np.diagonal(self.turns, axis1=1, axis2=2)
        blocks[diagonals[:, None], range(6), range(6)] += damping * diagonal + 1e-12
        cameras = solved_cameras(pairs, blocks, right)
        points = np.zeros((len(self.held), 3))
        if cameras is None:
            return _Step(cameras=np.zeros((len(self.free), 6)), points=points, predicted=np.inf)
        predicted = sum(self.spread(schur.point_steps, self.jacobian, self.factors, cameras, points))
        if self.upright is not None:
            turn = cameras[:, :3]
            predicted += float((turn * (self.descent - 0.5 * np.einsum("cij,cj->ci", self.turns, turn))).sum())
        return _Step(cameras=cameras, points=points, predicted=predicted)

    def moved(self, state: _State, step: _Step) -> _State:
        """State after a step: R <- exp(omega) R, t <- t + dt, X <- X + dX."""
        rotations, translations = schur.moved_cameras(*state.cameras, self.free, step.cameras)
        return _State(cameras=schur.Cameras(rotations, translations), points=state.points + step.points)


def _plain(values: np.ndarray, dtype: type = np.float64) -> np.ndarray:
    """The values as a contiguous, writable array, so that one compiled form of each loop serves every caller."""
    return np.require(values, dtype=dtype, requirements=["C", "W"])


def _chunks(observations: int) -> int:
    """The number of chunks into which the work on a number of observations is cut."""
    return min(MAX_CHUNKS, 1 + observations // CHUNK_OBSERVATIONS)
