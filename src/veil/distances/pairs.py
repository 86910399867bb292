"""Listed pairs in float64: their distances in residual form, and from those the best of every owner."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.distances import residual

Set = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _ _"] | None]
# Numbers of the bases of the pairs that are evaluated at a time, to bound memory: a few copies of them are held.
CHUNK_NUMBERS = 1 << 20


def exact(left: Set, right: Set, rows: np.ndarray, columns: np.ndarray) -> Float64[np.ndarray, "pairs"]:
    """Float64 residual distances of the listed pairs, in chunks that bound memory."""
    larger = max(1, *(0 if basis is None else basis.shape[1] for _, basis in (left, right)))
    size = max(16, CHUNK_NUMBERS // (larger * left[0].shape[1]))
    parts = [
        _chunk(left, right, rows[start : start + size], columns[start : start + size]) for start in range(0, len(rows), size)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _chunk(left: Set, right: Set, rows: np.ndarray, columns: np.ndarray) -> Float64[np.ndarray, "pairs"]:
    if left[1] is None and right[1] is None:
        return residual.point_pairs(left[0][rows], right[0][columns])
    if left[1] is None:
        assert right[1] is not None
        return residual.point_subspace_pairs(left[0][rows], right[0][columns], right[1][columns])
    if right[1] is None:
        return residual.point_subspace_pairs(right[0][columns], left[0][rows], left[1][rows])
    return residual.subspace_pairs(left[0][rows], left[1][rows], right[0][columns], right[1][columns])


def distinct(
    rows: Int64[np.ndarray, "given"], columns: Int64[np.ndarray, "given"]
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Each pair once, by rows and then columns."""
    keys = np.sort(rows << 32 | columns)
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return keys >> 32, keys & 0xFFFFFFFF


def best(
    owner: Int64[np.ndarray, "pairs"],
    other: Int64[np.ndarray, "pairs"],
    distance: Float64[np.ndarray, "pairs"],
    owners: int,
    count: int,
) -> tuple[Int64[np.ndarray, "owners count"], Float64[np.ndarray, "owners count"]]:
    """The `count` nearest others of every owner among distinct pairs; ties keep the smaller index, (-1, inf) pads."""
    order = np.lexsort((other, distance, owner))
    owner, other, distance = owner[order], other[order], distance[order]
    index, value = np.full((owners, count), -1, dtype=np.int64), np.full((owners, count), np.inf)
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    kept = place < count
    index[owner[kept], place[kept]], value[owner[kept], place[kept]] = other[kept], distance[kept]
    return index, value
