"""Squared distances of all pairs in float32 with plain NumPy, a Gram entry of all pairs being one plane.

One matrix product for each tile gives every Gram entry of every pair. The small solves then run elementwise on planes of pairs,
so that no Python loop and no tiny LAPACK call ever touches a single pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32

# Pivots are raised to this at least: one below belongs to directions that the two subspaces share
# (distances.md#what-n-is-and-when-it-is-singular), along which w is ~1e-7.
PIVOT_FLOOR = np.float32(1e-6)
# Floats of one tile's Gram block: fastest on two cores; with smaller tiles calling NumPy takes more time than the arithmetic.
TILE_FLOATS = 1 << 22
# Beyond this dimension elementwise elimination is slower than batched LAPACK.
PLANE_M_MAX = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaneSide:
    """One side of the comparison, centered and packed: planes[0] holds origins, planes[1:] the directions of the bases.

    `squared` is |d0|^2 of every origin.
    """

    planes: Float32[np.ndarray, "planes features dim"]
    squared: Float32[np.ndarray, "features"]

    @property
    def m(self) -> int:
        return len(self.planes) - 1

    def __len__(self) -> int:
        return self.planes.shape[1]


def pack(
    origin: Float[np.ndarray, "features dim"],
    basis: Float[np.ndarray, "features m dim"] | None,
    center: Float[np.ndarray, "dim"],
) -> PlaneSide:
    """Side whose features are seen from `center`, with minimal origins, laid out as planes.

    An origin becomes the point of its subspace nearest to `center`. Centering shrinks the numbers that cancel and changes no
    distance (distances.md#rounding).
    """
    moved = origin.astype(np.float64) - center
    if basis is None:
        planes = moved[None]
    else:
        wide = basis.astype(np.float64)
        for _ in range(2):
            moved = moved - np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", wide, moved), wide)
        planes = np.concatenate([moved[None], np.swapaxes(wide, 0, 1)])
    packed = np.ascontiguousarray(planes, dtype=np.float32)
    return PlaneSide(planes=packed, squared=(moved**2).sum(axis=1).astype(np.float32))


def squared_tiles(
    left: PlaneSide, right: PlaneSide, reach: float = np.inf
) -> Iterator[tuple[int, int, Float32[np.ndarray, "rows columns"]]]:
    """Tiles (first row, first column, squared distances) that cover all pairs, row blocks outermost.

    Pairs whose reach |alpha|^2 (docs/theory/distances.md, Eq. 13) exceeds about `reach` hold 0: they nearly share a direction,
    and rounding was amplified.
    """
    rows, columns = _tile_shape(left, right)
    for row in range(0, len(left), rows):
        a = left.planes[:, row : row + rows]
        for column in range(0, len(right), columns):
            b = right.planes[:, column : column + columns]
            gram = (a.reshape(-1, a.shape[2]) @ b.reshape(-1, b.shape[2]).T).reshape(
                a.shape[0], a.shape[1], b.shape[0], b.shape[1]
            )
            base = left.squared[row : row + rows, None] + right.squared[None, column : column + columns]
            base -= 2 * gram[0, :, 0]
            yield row, column, _eliminate(gram, base, reach)


def _tile_shape(left: PlaneSide, right: PlaneSide) -> tuple[int, int]:
    """Rows and columns of a tile whose Gram block has about `TILE_FLOATS` numbers; 32 of either at least."""
    side = int((TILE_FLOATS / ((left.m + 1) * (right.m + 1))) ** 0.5)
    columns = max(32, min(len(right), side))
    return max(32, min(len(left), side)), columns


def _eliminate(
    gram: Float32[np.ndarray, "a rows b columns"], squared: Float32[np.ndarray, "rows columns"], reach: float
) -> np.ndarray:
    """Squared distances of a tile from its Gram entries and from `squared` = |d0|^2 + |e0|^2 - 2 d0.e0, which is overwritten.

    Eliminating E from the normal equations leaves dist^2 = |d0|^2 + |e0|^2 - 2 d0.e0 - |v|^2 - w^T N^-1 w with
    C = D E^T, u = D e0, v = E d0, w = u + C v, N = I - C C^T (docs/theory/distances.md, Eq. 4).
    """
    m, right_m = gram.shape[0] - 1, gram.shape[2] - 1
    u = [gram[i + 1, :, 0] for i in range(m)]
    v = [gram[0, :, j + 1] for j in range(right_m)]
    for vj in v:
        squared -= vj * vj
    if m == 0:
        return np.maximum(squared, 0, out=squared)
    if right_m == 0:
        for ui in u:
            squared -= ui * ui
        return np.maximum(squared, 0, out=squared)
    c = [[gram[i + 1, :, j + 1] for j in range(right_m)] for i in range(m)]
    w = [ui + sum(cij * vj for cij, vj in zip(ci, v, strict=True)) for ui, ci in zip(u, c, strict=True)]
    n = [[_row_product(c[i], c[j], diagonal=i == j) for j in range(i + 1)] for i in range(m)]
    # Forward half of L D L^T, elementwise over the tile: q = sum of y_k^2 / p_k.
    far = np.zeros_like(squared) if np.isfinite(reach) else None
    for k in range(m):
        inverse = 1 / np.maximum(n[k][k], PIVOT_FLOOR)
        squared -= w[k] * w[k] * inverse
        if far is not None:
            far += (w[k] * inverse) ** 2
        for i in range(k + 1, m):
            factor = n[i][k] * inverse
            w[i] -= factor * w[k]
            for j in range(k + 1, i + 1):
                n[i][j] -= factor * n[j][k]
    if far is not None:
        squared[far > reach] = 0
    return np.maximum(squared, 0, out=squared)


def _row_product(a: list[np.ndarray], b: list[np.ndarray], *, diagonal: bool) -> np.ndarray:
    """Entry of N = I - C C^T from two rows of C, over the pairs of a tile."""
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total += x * y
    return 1 - total if diagonal else -total
