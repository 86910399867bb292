"""Float64 distances of listed pairs in residual form, and the nearest few of every row or column among listed pairs."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from veil.distances import residual
from veil.distances.sets import FeatureSet, dimension

# Numbers that the bases of the pairs evaluated at a time hold together, to bound memory: a few copies of them are held.
CHUNK_NUMBERS = 1 << 20


def exact(left: FeatureSet, right: FeatureSet, rows: np.ndarray, columns: np.ndarray) -> Float64[np.ndarray, "pairs"]:
    """Float64 distances, in residual form, of the pairs (left feature rows[k], right feature columns[k]).

    Pairs are evaluated in chunks that bound memory. Bases need not be orthonormal. Source: docs/theory/distances.md, Eq. 12.
    """
    larger = max(1, dimension(left), dimension(right))
    size = max(16, CHUNK_NUMBERS // (larger * left[0].shape[1]))
    parts = [
        _chunk(left, right, rows[start : start + size], columns[start : start + size]) for start in range(0, len(rows), size)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _chunk(left: FeatureSet, right: FeatureSet, rows: np.ndarray, columns: np.ndarray) -> Float64[np.ndarray, "pairs"]:
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
    """Given pairs without repetitions, sorted by row and then by column; indices lie below 2^32."""
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
    """Indices and distances of the `count` nearest others of every owner among distinct pairs (owner, other), nearest first.

    An owner is a row or a column, `owners` their number. Ties keep the smaller index; (-1, inf) pads owners with fewer pairs.
    """
    order = np.lexsort((other, distance, owner))
    owner, other, distance = owner[order], other[order], distance[order]
    index, value = np.full((owners, count), -1, dtype=np.int64), np.full((owners, count), np.inf)
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    kept = place < count
    index[owner[kept], place[kept]], value[owner[kept], place[kept]] = other[kept], distance[kept]
    return index, value
