"""Distances of two sets of features, points or affine subspaces, and the nearest of each (docs/theory/distances.md)."""

from veil.distances.backend import BACKENDS, PREFERRED, Backend, Set, resolve
from veil.distances.search import Nearest, NearestTwo, nearest, nearest_two, pairwise

__all__ = ["BACKENDS", "PREFERRED", "Backend", "Nearest", "NearestTwo", "Set", "nearest", "nearest_two", "pairwise", "resolve"]
