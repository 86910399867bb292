"""Reference distances in float64, a few obvious lines each: slow, and what tests hold every fast path against.

Unless a function says otherwise, bases need not be orthonormal here. Results are matrices (left, right) in the unit of the
descriptors.

A file of its own: it is the slow twin of every fast path beside it, and imports none of them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64

from veil.distances.sets import SubspaceSet


def point_to_point(a: Float[np.ndarray, "left dim"], b: Float[np.ndarray, "right dim"]) -> Float64[np.ndarray, "_ _"]:
    """Euclidean distances |a_i - b_j| of all pairs of points."""
    return np.linalg.norm(a[:, None].astype(np.float64) - b[None].astype(np.float64), axis=2)


def point_to_subspace(points: Float[np.ndarray, "left dim"], subspaces: SubspaceSet) -> Float64[np.ndarray, "_ _"]:
    """Distances min over x in E of |d - x| of all points d and subspaces E, by least squares (Dusmanu et al. 2021, Eq. 1)."""
    origin, basis = (part.astype(np.float64) for part in subspaces)
    distances = np.empty((len(points), len(origin)))
    for j in range(len(origin)):
        offsets = (points.astype(np.float64) - origin[j]).T
        solution = np.linalg.lstsq(basis[j].T, offsets, rcond=None)[0]
        distances[:, j] = np.linalg.norm(offsets - basis[j].T @ solution, axis=0)
    return distances


def point_to_subspace_dual(points: Float[np.ndarray, "left dim"], subspaces: SubspaceSet) -> Float64[np.ndarray, "_ _"]:
    """Point-to-subspace distances through the orthogonal complement (Dusmanu et al. 2021, Eq. 17-18).

    This takes fewer operations than least squares when m >= dim / 2.
    """
    origin, basis = (part.astype(np.float64) for part in subspaces)
    distances = np.empty((len(points), len(origin)))
    for j in range(len(origin)):
        complement = np.linalg.svd(basis[j], full_matrices=True)[2][basis.shape[1] :]
        distances[:, j] = np.linalg.norm((points.astype(np.float64) - origin[j]) @ complement.T, axis=1)
    return distances


def subspace_to_subspace(left: SubspaceSet, right: SubspaceSet) -> Float64[np.ndarray, "_ _"]:
    """Distances min over x in D and y in E of |y - x| of all pairs of subspaces, by least squares.

    Bases and pairs of bases of deficient rank are allowed (distances.md#what-n-is-and-when-it-is-singular). Source: Dusmanu et
    al. 2021, Eq. 2.
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


def subspace_to_subspace_dual(left: SubspaceSet, right: SubspaceSet) -> Float64[np.ndarray, "_ _"]:
    """Subspace-to-subspace distances from the orthogonality conditions of the dual problem.

    y* - x* lies in both orthogonal complements; the unknowns mu, nu and x* are solved for with minimum norm. Sources: Dusmanu
    et al. 2021, Eq. 11-13; distances.md#the-dual-form.
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


def subspace_to_subspace_printed(left: SubspaceSet, right: SubspaceSet) -> Float64[np.ndarray, "_ _"]:
    """Subspace-to-subspace distances by equations 3, 7 and 8 of Dusmanu et al. 2021, exactly as printed there.

    Bases must be orthonormal and N invertible. This is kept as a second method for tests; it fails where two subspaces share a
    direction (distances.md#what-n-is-and-when-it-is-singular).
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
