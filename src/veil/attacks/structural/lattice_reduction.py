"""Lattice reduction, compiled by numba: LLL with deep insertions, BKZ with small blocks, and enumeration of short vectors.

A basis is a square or wide matrix of int64 whose rows are independent. Gram matrices are exact, orthogonalization is in float64
(Nguyen and Stehle, An LLL Algorithm with Quadratic Complexity, SIAM J. Comput. 2009). Every change is an integer row operation
of determinant 1 or -1 that was checked to fit into 64 bits, so a reduced basis always generates the same lattice; only how
reduced it is depends on floating point. An operation that does not fit ends the work early, which is reported.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.attacks.structural.enumeration import GramSchmidt, all_below, shortest
from veil.compiled import compiled
from veil.errors import InputError, RangeError

# Size reduction stops at |mu| <= ETA: a little above one half, or rounding would make it run forever.
ETA = 0.51
# Passes of size reduction over one row before float64 is judged too coarse for it.
PASSES = 40
# No entry of a row may grow beyond this while it is being reduced.
WIDEST = 2.0**62
# Nodes that one enumeration may visit.
NODES = 200_000


def entry_limit(rank: int, dim: int) -> int:
    """Largest entry accepted in a basis (rank, dim): squares of rows that grow eightfold in between fit into 62 bits."""
    return math.isqrt((1 << 62) // max(rank, dim)) // 8


def reduce(
    bases: Int64[np.ndarray, "batch rank dim"], *, delta: float = 0.99, deep: int = 0, block: int = 2, tours: int = 0
) -> tuple[Int64[np.ndarray, "batch rank dim"], Bool[np.ndarray, "batch"]]:
    """Reduced bases of the same lattices, shortest directions first, and a mask of those that are reduced as asked.

    Row k satisfies |mu_kj| <= ETA and delta |b*_(k-1)|^2 <= |b*_k|^2 + mu^2 |b*_(k-1)|^2 (Lenstra et al. 1982, Eq. 1.4-1.5).
    With `deep` > 0 a row may move by up to `deep` places at once (Schnorr and Euchner 1994); with `tours` > 0 the basis is then
    BKZ-reduced with blocks of `block` rows for at most `tours` tours. Raises RangeError for options out of range, and
    InputError for more rows than dimensions or entries beyond `entry_limit`.
    """
    if not 0.25 < delta < 1:
        raise RangeError(f"delta must lie between 1/4 and 1, got {delta!r}; 0.99 is usual")
    if deep < 0 or tours < 0 or not 2 <= block <= 40:
        raise RangeError(f"deep and tours must be >= 0 and block between 2 and 40, got {deep!r}, {tours!r} and {block!r}")
    _, rank, dim = bases.shape
    if not 1 <= rank <= dim:
        raise InputError(f"a basis of {rank} rows in {dim} dimensions is none; rows must be independent")
    limit = entry_limit(rank, dim)
    if bases.size and not (-limit <= bases.min() and bases.max() <= limit):
        raise InputError(f"entries of a {rank} x {dim} basis must lie within {limit} in size; scale the basis down")
    reduced = np.ascontiguousarray(bases).copy()
    return reduced, _reduce_all(reduced, _Options(delta, deep, block, tours, 8 * limit))


def short_vectors(
    basis: Int64[np.ndarray, "rank dim"], radius: float, *, limit: int = 4096, nodes: int = 5_000_000
) -> tuple[Int64[np.ndarray, "found dim"], bool]:
    """All nonzero lattice vectors of length at most `radius`, one of each pair v and -v, and whether these are all.

    They are not all where there are more than `limit`, or where the search would visit more than `nodes` nodes
    (Fincke and Pohst 1985). `basis` should be reduced. The order is that of the search.
    """
    if not 0 < radius < math.inf:
        raise RangeError(f"radius must be positive and finite, got {radius!r}")
    if len(basis) == 0:
        return basis.copy(), True
    # The added billionth is room for the rounding of lengths.
    coefficients, complete = all_below(_orthogonal(np.ascontiguousarray(basis)), radius * radius * (1 + 1e-9), limit, nodes)
    return coefficients @ basis, bool(complete)


def none_beyond(basis: Int64[np.ndarray, "rank dim"], start: int, radius: float, *, nodes: int = 1_000_000) -> bool:
    """Whether it is proved that all lattice vectors of length at most `radius` are combinations of the first `start` rows.

    Others have a projection away from these rows, which lies in the lattice of the other rows' projections: an enumeration
    shows that this has no nonzero vector so short. False where it has one, or `nodes` nodes did not suffice.
    """
    if not 0 <= start <= len(basis) or not 0 < radius < math.inf:
        raise RangeError(f"start must be between 0 and {len(basis)} and radius positive, got {start!r} and {radius!r}")
    return start == len(basis) or bool(_none_beyond(np.ascontiguousarray(basis), start, float(radius), nodes))


class _Options(NamedTuple):
    """Arguments of `reduce`, and the largest entry that a row may have after its reduction."""

    delta: float
    deep: int
    block: int
    tours: int
    limit: int


class _ReducedBasis(NamedTuple):
    """A basis that is being reduced, its exact Gram matrix, and its orthogonalization."""

    basis: Int64[np.ndarray, "rank dim"]
    gram: Int64[np.ndarray, "rank rank"]
    mu: Float64[np.ndarray, "rank rank"]
    r: Float64[np.ndarray, "rank rank"]


@compiled
def _none_beyond(basis, start, radius, nodes):
    """Whether no combination of the projected rows from `start` on is at most `radius` long, and this was proved."""
    best = np.zeros(len(basis) - start, dtype=np.int64)
    exists, complete = shortest(_orthogonal(basis), start, len(basis), radius * radius * (1 + 1e-9), best, nodes)
    return complete and not exists


@compiled
def _orthogonal(basis):
    """The Gram-Schmidt orthogonalization of a basis (rank, dim)."""
    n = len(basis)
    gram, mu, r = _gram(basis), np.zeros((n, n)), np.zeros((n, n))
    for k in range(n):
        _orthogonalize(gram, mu, r, k)
    return GramSchmidt(mu, r)


@compiled
def _reduce_all(bases, options):
    """Reduce bases (batch, rank, dim) in place; the mask (batch,) of those that are reduced as asked."""
    done = np.zeros(len(bases), dtype=np.bool_)
    rank = bases.shape[1]
    for f in range(len(bases)):
        work = _ReducedBasis(bases[f], _gram(bases[f]), np.zeros((rank, rank)), np.zeros((rank, rank)))
        done[f] = _lll(work, 0, rank, options)
        if done[f] and options.tours > 0:
            done[f] = _bkz(work, options)
    return done


@compiled
def _gram(basis):
    """The exact Gram matrix (rank, rank) of a basis (rank, dim)."""
    rank, dim = basis.shape
    gram = np.zeros((rank, rank), dtype=np.int64)
    for i in range(rank):
        for j in range(i + 1):
            total = np.int64(0)
            for c in range(dim):
                total += basis[i, c] * basis[j, c]
            gram[i, j] = total
            gram[j, i] = total
    return gram


@compiled
def _largest(row):
    """The largest absolute value of an integer row (dim,)."""
    largest = np.int64(0)
    for c in range(len(row)):
        largest = max(largest, abs(row[c]))
    return largest


@compiled
def _subtract(basis, gram, k, j, x):
    """Subtract x times row j from row k of `basis` (rank, dim), and update `gram` (rank, rank).

    Integers of 64 bits wrap around without harm in between: only the result of a chain of such steps has to fit.
    """
    rank, dim = basis.shape
    for c in range(dim):
        basis[k, c] -= x * basis[j, c]
    square = gram[k, k] - x * (2 * gram[k, j] - x * gram[j, j])
    for i in range(rank):
        gram[k, i] -= x * gram[j, i]
        gram[i, k] = gram[k, i]
    gram[k, k] = square


@compiled
def _orthogonalize(gram, mu, r, k):
    """Fill row k of the orthogonalization from `gram`: r_kj = <b_k, b*_j>, mu_kj = r_kj / r_jj; all are (rank, rank)."""
    for j in range(k + 1):
        value = float(gram[k, j])
        for i in range(j):
            value -= mu[j, i] * r[k, i]
        r[k, j] = value
        if j < k:
            mu[k, j] = value / r[j, j]


@compiled
def _size_reduce(work, k, limit):
    """Make |mu_kj| <= ETA for all j < k; False where row k does not fit or float64 is too coarse for it."""
    basis, gram, mu, r = work
    for _ in range(PASSES):
        _orthogonalize(gram, mu, r, k)
        reach, clean = float(_largest(basis[k])), True
        for j in range(k - 1, -1, -1):
            if abs(mu[k, j]) > ETA:
                x = np.rint(mu[k, j])
                reach += abs(x) * _largest(basis[j])
                if not reach < WIDEST:
                    return False
                _subtract(basis, gram, k, j, np.int64(x))
                for i in range(j):
                    mu[k, i] -= x * mu[j, i]
                mu[k, j] -= x
                clean = False
        if clean:
            return r[k, k] > 0
        if _largest(basis[k]) > limit:
            return False
    return False


@compiled
def _move(basis, gram, k, to):
    """Move row k of `basis` (rank, dim), and of its Gram matrix, to place `to` <= k; the rows between move one place down."""
    rank, dim = basis.shape
    for place in range(k, to, -1):
        for c in range(dim):
            basis[place, c], basis[place - 1, c] = basis[place - 1, c], basis[place, c]
        for c in range(rank):
            gram[place, c], gram[place - 1, c] = gram[place - 1, c], gram[place, c]
        for c in range(rank):
            gram[c, place], gram[c, place - 1] = gram[c, place - 1], gram[c, place]


@compiled
def _lll(work, start, end, options):
    """Reduce the rows before `end`, of which those before `start` are reduced already; False where that failed."""
    basis, gram, mu, r = work
    delta, deep = options.delta, options.deep
    steps, most = 0, 4000 * end * end
    k = start
    while k < end:
        steps += 1
        if steps > most or not _size_reduce(work, k, options.limit):
            return False
        # rest is |b_k|^2 less its part along b*_0 .. b*_(i-1).
        to, rest = k, r[k, k]
        for i in range(k - 1, -1, -1):
            rest += mu[k, i] * r[k, i]
            if delta * r[i, i] > rest:
                to = i
            elif k - i >= deep:
                break
        if to < k:
            _move(basis, gram, k, to)
            k = to
        else:
            k += 1
    return True


@compiled
def _insert(basis, gram, start, end, x, limit):
    """Make row `start` the combination x (end - start,) of the rows `start` to `end` by row operations, if the gcd of x is 1.

    x is used up. False where a row would have entries beyond `limit`.
    """
    while True:
        small, big = -1, -1
        for i in range(end - start):
            if x[i] != 0 and (small < 0 or abs(x[i]) < abs(x[small])):
                small = i
        for i in range(end - start):
            if x[i] != 0 and i != small and (big < 0 or abs(x[i]) > abs(x[big])):
                big = i
        if big < 0:
            break
        # x_s b_s + x_b b_b = x_s (b_s + q b_b) + (x_b - q x_s) b_b: Euclid on the coefficients.
        q = x[big] // x[small]
        if not abs(q) * float(_largest(basis[start + big])) + _largest(basis[start + small]) <= limit:
            return False
        _subtract(basis, gram, start + small, start + big, -q)
        x[big] -= q * x[small]
    _move(basis, gram, start + small, start)
    return True


@compiled
def _bkz(work, options):
    """Reduce an LLL-reduced basis in blocks, by tours of insertions of shortest vectors; False where that failed."""
    basis, gram, mu, r = work
    rank, block = len(basis), options.block
    orthogonal = GramSchmidt(mu, r)
    x = np.zeros(block, dtype=np.int64)
    for _ in range(options.tours):
        better = False
        for start in range(rank - 1):
            end = min(start + block, rank)
            if shortest(orthogonal, start, end, options.delta * r[start, start], x, NODES)[0]:
                if not _insert(basis, gram, start, end, x, options.limit):
                    return False
                if not _lll(work, start, rank, options):
                    return False
                better = True
        if not better:
            break
    return True
