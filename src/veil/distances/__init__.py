"""Distances between two sets of features, points or affine subspaces, and nearest neighbors (docs/theory/distances.md)."""

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
