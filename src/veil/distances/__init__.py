"""Distances between two sets of features, points or affine subspaces, and nearest neighbors (docs/theory/distances.md).

- `search` is the door: all pairs, and the nearest of each. `sets` are its types, `backend` chooses who computes.
- `reference` is slow and obvious. `pairs` computes listed pairs in float64, `few_queries` a few points.
- `measure` times the backends: `numpy/`, `cpu/` and `gpu/`.
"""

from veil.distances.backend import BACKENDS, PREFERRED, Backend, resolve
from veil.distances.search import Nearest, NearestTwo, nearest, nearest_two, pairwise
from veil.distances.sets import FeatureSet, SubspaceSet

__all__ = [
    "BACKENDS",
    "PREFERRED",
    "Backend",
    "FeatureSet",
    "Nearest",
    "NearestTwo",
    "SubspaceSet",
    "nearest",
    "nearest_two",
    "pairwise",
    "resolve",
]
