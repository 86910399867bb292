"""The repeat attack: several releases of one descriptor meet in exactly that descriptor (traps D15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.forms import Subspaces
from veil.space import require_same


@dataclass(frozen=True, kw_only=True, eq=False)
class Recovered:
    """For each feature the point nearest to all its subspaces, and the root mean square distance to them.

    A residual near 0 certifies that the subspaces meet. `determined` is False where they share a direction, so that
    more than one point is nearest: identical releases share them all and determine nothing.
    """

    points: Float64[np.ndarray, "features dim"]
    residual: Float64[np.ndarray, "features"]
    determined: np.ndarray


def intersect(releases: Sequence[Subspaces], *, tol: float = 1e-6) -> Recovered:
    """Least-squares common point of the i-th subspaces of all `releases`.

    The point x minimizes sum_k |Q_k (x - o_k)|^2 with Q_k = I - B_k^T B_k, so (sum Q_k) x = sum Q_k o_k = sum o_k
    for origins nearest to zero. `tol` is the smallest eigenvalue of the mean of Q_k that counts as determined.
    Raises InputError for fewer than two releases or unequal counts.
    """
    if len(releases) < 2 or len({len(form) for form in releases}) != 1:
        raise InputError("the repeat attack needs two or more releases of the same features")
    for form in releases[1:]:
        require_same(releases[0].space, form.space)
    count, dim = releases[0].origin.shape
    points, residual, determined = np.empty((count, dim)), np.empty(count), np.empty(count, dtype=bool)
    for row in range(count):
        origins = np.array([form.origin[row] for form in releases], dtype=np.float64)
        bases = [form.basis[row].astype(np.float64) for form in releases]
        mean_projector = np.eye(dim) - sum(basis.T @ basis for basis in bases) / len(bases)
        eigenvalues, vectors = np.linalg.eigh(mean_projector)
        kept = eigenvalues > tol
        inverse = (vectors[:, kept] / eigenvalues[kept]) @ vectors[:, kept].T
        points[row] = inverse @ origins.mean(axis=0)
        offsets = points[row] - origins
        outside = [offset - basis.T @ (basis @ offset) for offset, basis in zip(offsets, bases, strict=True)]
        residual[row] = np.sqrt(np.mean(np.sum(np.square(outside), axis=1)))
        determined[row] = kept.all()
    return Recovered(points=points, residual=residual, determined=determined)
