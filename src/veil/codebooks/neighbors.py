"""Exact nearest neighbors of vectors by faiss, the one place that calls its search.

Newer versions of faiss compare few queries (fewer than 1,000 of 128 dimensions) one by one instead of by a matrix product,
which is faster with tens of cores, and takes ten times as long with one (its pull requests 5022 and 5109). A photograph has
hundreds of features, and veil gives each of its own processes and threads one core.
"""

from __future__ import annotations

from typing import Literal

import faiss
import numpy as np
from jaxtyping import Float32, Int64

__all__ = ["faiss", "nearest_neighbors"]

# Queries from which on faiss takes matrix products; of newer versions it is this number of vector components.
faiss.cvar.distance_compute_blas_threshold = 20

METRICS = {"distance": faiss.METRIC_L2, "product": faiss.METRIC_INNER_PRODUCT}


def nearest_neighbors(
    queries: Float32[np.ndarray, "queries dim"],
    entries: Float32[np.ndarray, "entries dim"],
    count: int,
    *,
    by: Literal["distance", "product"],
) -> tuple[Float32[np.ndarray, "queries count"], Int64[np.ndarray, "queries count"]]:
    """The `count` entries of least distance to each query, or of largest inner product with it: squared distances or products.

    The best comes first; the second array holds the rows of the entries.
    """
    nearest: tuple[np.ndarray, np.ndarray] = faiss.knn(
        np.ascontiguousarray(queries), np.ascontiguousarray(entries), count, metric=METRICS[by]
    )
    return nearest
