"""The reduced camera system of bundle adjustment: which camera pairs have a block, and the system's damped solution.

The equations are docs/theory/lines.md, Eq. 19-20.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.threads import single_blas

# Beyond this many free cameras the reduced camera system is factored as a sparse matrix.
DENSE_CAMERAS = 300


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Camera pairs with a block in the lower triangle: block k couples free cameras `first[k]` >= `second[k]`.

    `slots[first[k], second[k]]` is k, and -1 where there is no block.
    """

    first: Int64[np.ndarray, "pairs"]
    second: Int64[np.ndarray, "pairs"]
    slots: Int64[np.ndarray, "cameras cameras"]


def pairs(shared: np.ndarray) -> Pairs:
    """One block for each camera and for each two that share a point, from the mask (cameras, cameras) of such pairs."""
    first, second = np.nonzero(shared)
    slots = np.full(shared.shape, -1, dtype=np.int64)
    slots[first, second] = np.arange(len(first))
    return Pairs(first=first, second=second, slots=slots)


def solve(
    which: Pairs,
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


def _dense(which: Pairs, blocks: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The solution (6 cameras,) by LAPACK's Cholesky factorization, or None where the matrix is not positive definite."""
    from scipy.linalg.lapack import dposv

    matrix = np.zeros((len(right) // 6, 6, len(right) // 6, 6))
    matrix[which.first, :, which.second, :] = blocks
    # The lower triangle of a C matrix is the upper one of its transpose, which LAPACK takes without a copy.
    _, step, failed = dposv(matrix.reshape(len(right), -1).T, right, lower=False, overwrite_a=True)
    return None if failed else step


def _sparse(which: Pairs, blocks: np.ndarray, right: np.ndarray) -> np.ndarray | None:
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
