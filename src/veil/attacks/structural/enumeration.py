"""Enumeration of short vectors of a lattice, compiled by numba: the shortest, or all below a bound.

The search over coefficients is that of Fincke and Pohst 1985 in the order of Schnorr and Euchner 1994.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from veil.compiled import compiled


class GramSchmidt(NamedTuple):
    """Orthogonalization of a basis: b_k = b*_k + sum_j mu_kj b*_j and r_kj = <b_k, b*_j>, so r_kk = |b*_k|^2."""

    mu: Float64[np.ndarray, "rank rank"]
    r: Float64[np.ndarray, "rank rank"]


class _Tree(NamedTuple):
    """State of a depth-first search: at each depth the coefficient `x`, its `center`, and how wide the next zigzag step is."""

    x: Int64[np.ndarray, "depths"]
    wide: Int64[np.ndarray, "depths"]
    center: Float64[np.ndarray, "depths"]


@compiled
def shortest(orthogonal, start, end, bound, best, nodes):
    """Whether a combination of the projected rows `start` to `end` is below `bound`, and whether the search was complete.

    `bound` is a squared length. The shortest such combination is written to `best` (block,). The search visits at most `nodes`
    nodes, depth first, coefficients in the order of their distance from the center (Schnorr and Euchner 1994). `orthogonal` is
    a `GramSchmidt`.
    """
    n, mu, r = end - start, orthogonal.mu, orthogonal.r
    x, wide, center, rho = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1), np.zeros(n + 1)
    tree = _Tree(x, wide, center)
    x[0], k, last, improved = 1, 0, 0, False
    for _ in range(nodes):
        rho[k] = rho[k + 1] + (x[k] - center[k]) ** 2 * r[start + k, start + k]
        if rho[k] < bound and k > 0:
            k -= 1
            _enter(mu, start, k, last, tree)
            continue
        if rho[k] < bound:
            bound, improved = rho[k], True
            best[:n] = x[:n]
        k += 1
        if k == n:
            return improved, True
        last = max(last, k)
        _next(k, last, tree)
    return improved, False


@compiled
def _enter(mu, start, k, last, tree):
    """Set the coefficient at depth k next to its center, which follows from those at the depths above, up to `last`.

    `start` is the row of depth 0.
    """
    x, wide, center = tree
    value = 0.0
    for j in range(k + 1, last + 1):
        value -= x[j] * mu[start + j, start + k]
    center[k], x[k], wide[k] = value, np.int64(np.rint(value)), 1


@compiled
def _next(k, last, tree):
    """Set the next coefficient at depth k: zigzag around the center, or upward where all later ones are zero.

    So one of v and -v is visited. `last` is the last depth whose coefficient is not zero.
    """
    x, wide, center = tree
    if k >= last:
        x[k] += 1
    else:
        x[k] += -wide[k] if x[k] > center[k] else wide[k]
        wide[k] += 1


@compiled
def all_below(orthogonal, bound, limit, nodes):
    """Coefficients (found, rank) of the combinations whose squared length is at most `bound`, and whether these are all.

    One of x and -x is listed. They are not all where there are more than `limit`, or after `nodes` nodes. `orthogonal` is a
    `GramSchmidt`.
    """
    mu, r = orthogonal.mu, orthogonal.r
    n = len(mu)
    x, wide, center, rho = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1), np.zeros(n + 1)
    tree = _Tree(x, wide, center)
    coefficients, count = np.zeros((limit, n), dtype=np.int64), 0
    x[0], k, last = 1, 0, 0
    for _ in range(nodes):
        rho[k] = rho[k + 1] + (x[k] - center[k]) ** 2 * r[k, k]
        if rho[k] <= bound and k > 0:
            k -= 1
            _enter(mu, 0, k, last, tree)
            continue
        if rho[k] <= bound:
            if count == limit:
                return coefficients, False
            coefficients[count] = x[:n]
            count += 1
        else:
            k += 1
            if k == n:
                return coefficients[:count], True
            last = max(last, k)
        _next(k, last, tree)
    return coefficients[:count], False
