"""Bundle adjustment from lines: Levenberg-Marquardt on the Schur complement, compiled by numba.

    r_ij = l_ij . Y / Y_z,   Y = R_i X_j + t_i        (Geppert et al. 2020, Eq. 12-13)

with l_ij = K^T l_pix and l_pix of unit normal, so r is the distance in pixels of the projected point to its line. A point
feature is two orthogonal lines through it, so the same code adjusts points. Formulas: docs/theory/lines.md, Eq. 12-23.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import InputError, RangeError
from veil.geometry.bundle import reduced, schur
from veil.geometry.bundle.upright import Upright
from veil.threads import cores, shared, single_blas

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
    """`loss_px` is the scale of the Cauchy loss (infinity: least squares); steps stop at relative decrease `tol`.

    `max_iterations` bounds the steps tried. `threads` limits the threads (default: one a core); results do not depend on it.
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
    constant_points: Bool[np.ndarray, "points"] | None = None,
    upright: Upright | None = None,
    options: AdjustOptions | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Adjusted:
    """Minimize the robust cost over all cameras that are not `constant` and, unless told otherwise, all points.

    `upright` adds what is known of gravity to the cost.

    With one constant camera the scale is left to the damping, which keeps it near where it was (no gauge is fixed by
    force). Raises InputError if a point starts behind a camera that sees it.
    """
    options = options or AdjustOptions()
    held = np.full(len(problem.points), not options.adjust_points)
    if constant_points is not None:
        held |= constant_points
    threads = min(_chunks(len(problem.lines)), options.threads or cores())
    with single_blas():
        work = _Work(problem, constant=constant, held=held, loss=options.loss_px, threads=threads, upright=upright)
        return _descend(problem, work, options, progress)


def camera_information(problem: LineProblem, *, loss_px: float) -> Float64[np.ndarray, "cameras 6 cameras 6"]:
    """What the lines say of (rotation, translation) of all cameras once the points are eliminated, in 1 / px^2 (Eq. 19).

    Its inverse, where seven directions are left out (the map's own frame and scale), is the cameras' covariance for lines
    of unit variance. Dense: for some hundreds of cameras.
    """
    count = len(problem.rotations)
    with single_blas():
        free, held = np.zeros(count, dtype=bool), np.zeros(len(problem.points), dtype=bool)
        work = _Work(problem, constant=free, held=held, loss=loss_px, threads=min(_chunks(len(problem.lines)), cores()))
        state = _State(
            rotations=_plain(problem.rotations), translations=_plain(problem.translations), points=_plain(problem.points)
        )
        work.linearize(state)
        common = work.rows, work.starts, work.camera, work.held
        pairs = work.pairs
        parts = work.spread(schur.reduce, *common, pairs.slots, len(pairs.first), MIN_DAMPING, work.factors)
    blocks = sum((part[0] for part in parts[1:]), start=parts[0][0])
    matrix = np.zeros((count, 6, count, 6))
    matrix[pairs.first, :, pairs.second, :] = blocks
    lower = pairs.first != pairs.second
    matrix[pairs.second[lower], :, pairs.first[lower], :] = np.swapaxes(blocks[lower], 1, 2)
    return matrix


def _descend(
    problem: LineProblem, work: _Work, options: AdjustOptions, progress: Callable[[int, float], None] | None
) -> Adjusted:
    """Levenberg-Marquardt; the damping follows the ratio of actual to predicted decrease (Eq. 23)."""
    state = _State(
        rotations=_plain(problem.rotations), translations=_plain(problem.translations), points=_plain(problem.points)
    )
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
    adjusted = replace(problem, rotations=state.rotations, translations=state.translations, points=state.points)
    return Adjusted(problem=adjusted, initial_cost=initial, final_cost=cost, iterations=taken)


@dataclass(frozen=True, kw_only=True, eq=False)
class _State:
    """What is adjusted."""

    rotations: Float64[np.ndarray, "cameras 3 3"]
    translations: Float64[np.ndarray, "cameras 3"]
    points: Float64[np.ndarray, "points 3"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Step:
    """Steps of free cameras and of points, and the decrease that the linear model predicts."""

    cameras: Float64[np.ndarray, "free 6"]
    points: Float64[np.ndarray, "points 3"]
    predicted: float


class _Work:
    """One problem's constant arrays and buffers; each method spreads a compiled loop over chunks of points."""

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
        self.lines, self.camera_of = _plain(problem.lines), _plain(problem.camera_of, np.int64)
        self.starts = np.searchsorted(problem.point_of, np.arange(len(problem.points) + 1)).astype(np.int64)
        self.free = np.flatnonzero(~constant)
        camera = np.full(len(constant), -1, dtype=np.int64)
        camera[self.free] = np.arange(len(self.free))
        self.camera, self.held, self.loss = camera[self.camera_of], held, float(loss)
        self.pairs = reduced.pairs(schur.shared_points(self.camera, self.starts, held, len(self.free)))
        self.rows, self.factors = np.empty((len(self.lines), schur.ROW)), np.empty((len(held), 6))
        chunks = _chunks(len(self.lines))
        cuts = np.searchsorted(self.starts, np.arange(1, chunks) * (len(self.lines) // chunks)).tolist()
        self.begins, self.ends, self.threads = [0, *cuts], [*cuts, len(held)], threads
        self.upright = upright
        self.upright_px = 0.0 if upright is None else self.loss / 2 / upright.sigma_rad

    def spread(self, loop: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The loop's result for each chunk, in order."""
        return list(shared(lambda part: loop(*arguments, *part), zip(self.begins, self.ends, strict=True), self.threads))

    def cost(self, state: _State, *, fallback: _State) -> float:
        """Eq. 13; points of `state` behind a camera are moved back toward where they are in `fallback`."""
        where = state.rotations, state.translations, state.points, fallback.points
        own = 0.0 if self.upright is None else self.upright.cost(state.rotations, self.upright_px)
        return own + sum(self.spread(schur.cost, *where, self.lines, self.camera_of, self.starts, self.loss))

    def linearize(self, state: _State) -> None:
        """Fill the rows at this state."""
        where = state.rotations, state.translations, state.points
        self.spread(schur.fill_rows, *where, self.lines, self.camera_of, self.starts, self.loss, self.rows)
        if self.upright is not None:
            normal, descent = self.upright.linear(state.rotations, self.upright_px)
            self.turns, self.descent = normal[self.free], descent[self.free]

    def step(self, damping: float) -> _Step:
        """Damped step from the last linearization; none, with a prediction that fails, where there is no solution."""
        pairs = self.pairs
        common = self.rows, self.starts, self.camera, self.held
        parts = self.spread(schur.reduce, *common, pairs.slots, len(pairs.first), damping, self.factors)
        blocks, right, diagonal = (sum(part[1:], start=part[0]) for part in zip(*parts, strict=True))
        own = np.diagonal(pairs.slots)
        if self.upright is not None:
            blocks[own, :3, :3] += self.turns
            right[:, :3] += self.descent
            diagonal[:, :3] += np.diagonal(self.turns, axis1=1, axis2=2)
        blocks[own[:, None], range(6), range(6)] += damping * diagonal + 1e-12
        cameras = reduced.solve(pairs, blocks, right)
        points = np.zeros((len(self.held), 3))
        if cameras is None:
            return _Step(cameras=np.zeros((len(self.free), 6)), points=points, predicted=np.inf)
        predicted = sum(self.spread(schur.point_steps, *common, self.factors, cameras, points))
        if self.upright is not None:
            turn = cameras[:, :3]
            predicted += float((turn * (self.descent - 0.5 * np.einsum("cij,cj->ci", self.turns, turn))).sum())
        return _Step(cameras=cameras, points=points, predicted=predicted)

    def moved(self, state: _State, step: _Step) -> _State:
        """R <- exp(omega) R, t <- t + dt, X <- X + dX."""
        rotations, translations = schur.moved_cameras(state.rotations, state.translations, self.free, step.cameras)
        return _State(rotations=rotations, translations=translations, points=state.points + step.points)


def _plain(values: np.ndarray, dtype: type = np.float64) -> np.ndarray:
    """Contiguous and writable: one compiled form of each loop serves every caller."""
    return np.require(values, dtype=dtype, requirements=["C", "W"])


def _chunks(observations: int) -> int:
    return min(MAX_CHUNKS, 1 + observations // CHUNK_OBSERVATIONS)
