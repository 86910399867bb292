"""Votes of features for images, compiled: distances of two subspaces in single precision, for pairs that share a word."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from veil.compiled import compiled, compiled_in_any_order


class SidedFeatures(NamedTuple):
    """Features as the compiled comparison reads them: the rows of `numbers` are a feature's origin and basis."""

    numbers: Float32[np.ndarray, "features sides dim"]
    image: Int64[np.ndarray, "features"]
    reach: Float32[np.ndarray, "features"]


class Listed(NamedTuple):
    """Features by their words: word w lists `rows[starts[w] : starts[w + 1]]` of `features`."""

    starts: Int64[np.ndarray, "bounds"]
    rows: Int64[np.ndarray, "listed"]
    features: SidedFeatures


@compiled
def add_votes(asked, words, listed, decoys, share, votes):
    """Add to `votes` (by image) the pairs of a query's features with listed ones that share a word and are unusually near.

    `asked` are the query's features, `words` (features, words each) their words; `decoys` is the distance up to which two share
    a decoy, `share` the share of the smaller reach that a pair must come within.
    """
    starts, rows, features = listed.starts, listed.rows, listed.features
    sides = asked.numbers.shape[1]
    gram = np.zeros((sides, sides), dtype=np.float32)
    lower, residue = np.zeros((sides, sides), dtype=np.float32), np.zeros(sides, dtype=np.float32)
    seen = np.full(len(features.image), -1, dtype=np.int64)
    for feature in range(len(asked.numbers)):
        for word in words[feature]:
            for place in range(starts[word], starts[word + 1]):
                other = rows[place]
                if seen[other] == feature:
                    continue
                seen[other] = feature
                near = share * min(asked.reach[feature], features.reach[other])
                square = _squared(asked.numbers[feature], features.numbers[other], gram, lower, residue)
                if decoys * decoys < square <= near * near:
                    votes[features.image[other]] += 1


@compiled_in_any_order
def _products(first, second, gram):
    """Fill `gram` with the products of all rows of the first feature with all of the second; returns |o|^2 + |p|^2 of origins."""
    sides, dim = first.shape
    for i in range(sides):
        for j in range(sides):
            total = np.float32(0.0)
            for k in range(dim):
                total += first[i, k] * second[j, k]
            gram[i, j] = total
    squares = np.float32(0.0)
    for k in range(dim):
        squares += first[0, k] * first[0, k] + second[0, k] * second[0, k]
    return squares


@compiled
def _squared(first, second, gram, lower, residue):
    """Squared distance of two affine subspaces (docs/theory/distances.md, Eq. 4) from the products of their rows.

    Row 0 is the origin, which is orthogonal to its own basis, the other rows. The basis of the second is made orthogonal to the
    first's by a Cholesky factor.
    """
    sides = len(first)
    one = np.float32(1.0)
    # The difference v of the origins, second less first: v.v, then its products with both bases.
    square = _products(first, second, gram) - np.float32(2.0) * gram[0, 0]
    for i in range(1, sides):
        square -= gram[i, 0] * gram[i, 0]
    for i in range(1, sides):
        value = -gram[0, i]
        for k in range(1, sides):
            value -= gram[k, i] * gram[k, 0]
        for j in range(1, i + 1):
            total = one if i == j else np.float32(0.0)
            for k in range(1, sides):
                total -= gram[k, i] * gram[k, j]
            for k in range(1, j):
                total -= lower[i, k] * lower[j, k]
            lower[i, j] = np.sqrt(max(total, np.float32(1e-6))) if i == j else total / lower[j, j]
        for k in range(1, i):
            value -= lower[i, k] * residue[k]
        residue[i] = value / lower[i, i]
        square -= residue[i] * residue[i]
    return max(square, np.float32(0.0))
