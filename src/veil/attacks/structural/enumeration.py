"""Short vectors of a lattice by enumeration of coefficients, compiled by numba: the shortest, or all below a bound.

Rows come in as Gram-Schmidt has them: b_k = b*_k + sum_j mu_kj b*_j and r_kk = |b*_k|^2 (Fincke and Pohst 1985; Schnorr and
Euchner 1994).
"""

from __future__ import annotations

import numpy as np

from veil.compiled import compiled


@compiled
def shortest(mu, r, start, end, bound, best, nodes):  # type: ignore[no-untyped-def]
    """The shortest combination of the projected rows `start` to `end` below `bound`, into `best`; if any, and if proved.

    Schnorr and Euchner 1994: depth first, coefficients in the order of their distance from the center.
    """
    n = end - start
    x, wide, center, rho = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1), np.zeros(n + 1)
    x[0], k, last, found = 1, 0, 0, False
    for _ in range(nodes):
        rho[k] = rho[k + 1] + (x[k] - center[k]) ** 2 * r[start + k, start + k]
        if rho[k] < bound and k > 0:
            k -= 1
            _enter(mu, start, k, last, x, wide, center)
            continue
        if rho[k] < bound:
            bound, found = rho[k], True
            best[:n] = x[:n]
        k += 1
        if k == n:
            return found, True
        last = max(last, k)
        _next(k, last, x, wide, center)
    return found, False


@compiled
def _enter(mu, start, k, last, x, wide, center):  # type: ignore[no-untyped-def]
    """The coefficient at depth k begins next to its center."""
    value = 0.0
    for j in range(k + 1, last + 1):
        value -= x[j] * mu[start + j, start + k]
    center[k], x[k], wide[k] = value, np.int64(np.rint(value)), 1


@compiled
def _next(k, last, x, wide, center):  # type: ignore[no-untyped-def]
    """The next coefficient at depth k: zigzag around the center, or upward where all later ones are zero (v and -v are one)."""
    if k >= last:
        x[k] += 1
    else:
        x[k] += -wide[k] if x[k] > center[k] else wide[k]
        wide[k] += 1


@compiled
def all_below(mu, r, bound, limit, nodes):  # type: ignore[no-untyped-def]
    """Coefficients of all combinations whose squared length is at most `bound`, one of x and -x, and whether these are all."""
    n = len(mu)
    x, wide, center, rho = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1), np.zeros(n + 1)
    found, count = np.zeros((limit, n), dtype=np.int64), 0
    x[0], k, last = 1, 0, 0
    for _ in range(nodes):
        rho[k] = rho[k + 1] + (x[k] - center[k]) ** 2 * r[k, k]
        if rho[k] <= bound and k > 0:
            k -= 1
            _enter(mu, 0, k, last, x, wide, center)
            continue
        if rho[k] <= bound:
            if count == limit:
                return found, False
            found[count] = x[:n]
            count += 1
        else:
            k += 1
            if k == n:
                return found[:count], True
            last = max(last, k)
        _next(k, last, x, wide, center)
    return found[:count], False
