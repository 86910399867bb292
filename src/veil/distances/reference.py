"""Distances in float64, a few lines each: the slow, obvious twins that every fast path is held against.

A set of subspaces is (origin (N, dim), basis (N, m, dim)); D = origin + span(basis rows). Bases need not be orthonormal.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64

Set = tuple[Float[np.ndarray, "_ dim"], Float[np.ndarray, "_ _ dim"]]


def point_to_point(a: Float[np.ndarray, "left dim"], b: Float[np.ndarray, "right dim"]) -> Float64[np.ndarray, "_ _"]:
    """All Euclidean distances |a_i - b_j|."""
    return np.linalg.norm(a[:, None].astype(np.float64) - b[None].astype(np.float64), axis=2)


def point_to_subspace(points: Float[np.ndarray, "left dim"], subspaces: Set) -> Float64[np.ndarray, "_ _"]:
    """All dist(E, d) = min over x in E of |d - x| by least squares (Dusmanu et al. 2021, Eq. 1)."""
    origin, basis = (part.astype(np.float64) for part in subspaces)
    distances = np.empty((len(points), len(origin)))
    for j in range(len(origin)):
        offsets = (points.astype(np.float64) - origin[j]).T
        solution = np.linalg.lstsq(basis[j].T, offsets, rcond=None)[0]
        distances[:, j] = np.linalg.norm(offsets - basis[j].T @ solution, axis=0)
    return distances


def point_to_subspace_dual(points: Float[np.ndarray, "left dim"], subspaces: Set) -> Float64[np.ndarray, "_ _"]:
    """The same through the orthogonal complement (Dusmanu et al. 2021, Eq. 17-18); cheaper when m >= dim / 2."""
    origin, basis = (part.astype(np.float64) for part in subspaces)
    distances = np.empty((len(points), len(origin)))
    for j in range(len(origin)):
        complement = np.linalg.svd(basis[j], full_matrices=True)[2][basis.shape[1] :]
        distances[:, j] = np.linalg.norm((points.astype(np.float64) - origin[j]) @ complement.T, axis=1)
    return distances


def subspace_to_subspace(left: Set, right: Set) -> Float64[np.ndarray, "_ _"]:
    """All dist(D, E) = min over x in D, y in E of |y - x| by least squares (Eq. 2); ranks may be deficient.

    Theory: distances.md#what-n-is-and-when-it-is-singular.
    """
    (d0, d), (e0, e) = ((part.astype(np.float64) for part in side) for side in (left, right))
    distances = np.empty((len(d0), len(e0)))
    for i in range(len(d0)):
        for j in range(len(e0)):
            directions = np.concatenate([d[i], -e[j]]).T
            offset = e0[j] - d0[i]
            solution = np.linalg.lstsq(directions, offset, rcond=1e-9)[0]
            distances[i, j] = np.linalg.norm(offset - directions @ solution)
    return distances


def subspace_to_subspace_dual(left: Set, right: Set) -> Float64[np.ndarray, "_ _"]:
    """The same from the orthogonality conditions of the dual (Dusmanu et al. 2021, Eq. 11-13; distances.md#the-dual-form).

    y* - x* lies in both complements; the unknowns are mu, nu and x*, solved with minimum norm.
    """
    (d0, d), (e0, e) = ((part.astype(np.float64) for part in side) for side in (left, right))
    dim = d0.shape[1]
    distances = np.empty((len(d0), len(e0)))
    for i in range(len(d0)):
        dc = np.linalg.svd(d[i], full_matrices=True)[2][d.shape[1] :]
        for j in range(len(e0)):
            ec = np.linalg.svd(e[j], full_matrices=True)[2][e.shape[1] :]
            p, q = len(dc), len(ec)
            system = np.block(
                [
                    [dc, np.zeros((p, p)), np.zeros((p, q))],
                    [ec, np.zeros((q, p)), np.eye(q)],
                    [np.zeros((dim, dim)), dc.T, -ec.T],
                ]
            )
            right_side = np.concatenate([dc @ d0[i], ec @ e0[j], np.zeros(dim)])
            solution = np.linalg.lstsq(system, right_side, rcond=1e-12)[0]
            distances[i, j] = np.linalg.norm(dc.T @ solution[dim : dim + p])
    return distances


def subspace_to_subspace_printed(left: Set, right: Set) -> Float64[np.ndarray, "_ _"]:
    """Equations 3, 7 and 8 of Dusmanu et al. 2021 exactly as printed: orthonormal bases, and N must be invertible.

    Kept as a second method for tests; it fails where two subspaces share a direction
    (distances.md#what-n-is-and-when-it-is-singular).
    """
    (d0, d), (e0, e) = ((part.astype(np.float64) for part in side) for side in (left, right))
    distances = np.empty((len(d0), len(e0)))
    for i in range(len(d0)):
        for j in range(len(e0)):
            coupling = -d[i] @ e[j].T
            inverse = np.linalg.inv(np.eye(len(d[i])) - coupling @ coupling.T)
            u, v = d[i] @ (e0[j] - d0[i]), e[j] @ (e0[j] - d0[i])
            alpha = inverse @ u + inverse @ coupling @ v
            beta = -coupling.T @ inverse @ u - coupling.T @ inverse @ coupling @ v - v
            distances[i, j] = np.linalg.norm(e0[j] + beta @ e[j] - d0[i] - alpha @ d[i])
    return distances
