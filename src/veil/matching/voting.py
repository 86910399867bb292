"""Votes of features for images, compiled: which pairs of features that are listed under one word are unusually near."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from veil.compiled import compiled


class Listed(NamedTuple):
    """Features that are listed under one word, as the compiled comparison reads them.

    The rows of `numbers` are origin and basis of each feature, feature after feature; `words` are all words that a feature is
    listed under, ascending.
    """

    numbers: Float32[np.ndarray, "rows dim"]
    image: Int64[np.ndarray, "features"]
    reach: Float32[np.ndarray, "features"]
    words: Int64[np.ndarray, "features listed"]


def voters(
    asked: Listed, listed: Listed, word: int, decoys: float, share: float
) -> tuple[Int64[np.ndarray, "votes"], Int64[np.ndarray, "votes"]]:
    """Images (asked, listed) of the pairs of features that vote: one entry for each pair whose asked image comes first.

    A pair votes under the first word that both are listed under, and so once. Its distance must lie above `decoys` and within
    `share` of the smaller reach.
    """
    sides = len(asked.numbers) // max(1, len(asked.image))
    products = asked.numbers @ listed.numbers.T
    squares = [(side.numbers[::sides].astype(np.float32) ** 2).sum(axis=1) for side in (asked, listed)]
    images = np.empty((2, len(asked.image) * len(listed.image)), dtype=np.int64)
    count = _vote(asked, listed, products, squares[0], squares[1], word, np.float32(decoys), np.float32(share), images)
    return images[0, :count], images[1, :count]


@compiled
def _vote(asked, listed, products, asked_squares, listed_squares, word, decoys, share, images):
    """Fill `images` with the images of pairs that vote; returns their number."""
    sides = len(products) // max(1, len(asked.image))
    lower, residue = np.zeros((sides, sides), dtype=np.float32), np.zeros(sides, dtype=np.float32)
    count = 0
    for i in range(len(asked.image)):
        for j in range(len(listed.image)):
            if asked.image[i] >= listed.image[j]:
                continue
            near = share * min(asked.reach[i], listed.reach[j])
            gram = products[i * sides : (i + 1) * sides, j * sides : (j + 1) * sides]
            square = squared_distance(gram, asked_squares[i] + listed_squares[j], lower, residue)
            if decoys * decoys < square <= near * near and _first_shared(asked.words[i], listed.words[j]) == word:
                images[0, count], images[1, count] = asked.image[i], listed.image[j]
                count += 1
    return count


@compiled
def _first_shared(first, second):
    """The first number that is in both of two ascending lists; -1 if none is."""
    i = j = 0
    while i < len(first) and j < len(second):
        if first[i] == second[j]:
            return first[i]
        if first[i] < second[j]:
            i += 1
        else:
            j += 1
    return -1


@compiled
def squared_distance(gram, squares, lower, residue):
    """Squared distance of two affine subspaces from the products of their rows (docs/theory/distances.md, Eq. 4).

    `squares` is |o|^2 + |p|^2 of the origins o and p, which stand in row and column 0 and are orthogonal to their own bases.
    Either side may be a point, which has an origin alone. The basis of the second is made orthogonal to the first's by a
    Cholesky factor.
    """
    rows, columns = gram.shape
    one = np.float32(1.0)
    square = squares - np.float32(2.0) * gram[0, 0]
    for i in range(1, rows):
        square -= gram[i, 0] * gram[i, 0]
    for i in range(1, columns):
        value = -gram[0, i]
        for k in range(1, rows):
            value -= gram[k, i] * gram[k, 0]
        for j in range(1, i + 1):
            total = one if i == j else np.float32(0.0)
            for k in range(1, rows):
                total -= gram[k, i] * gram[k, j]
            for k in range(1, j):
                total -= lower[i, k] * lower[j, k]
            lower[i, j] = np.sqrt(max(total, np.float32(1e-6))) if i == j else total / lower[j, j]
        for k in range(1, i):
            value -= lower[i, k] * residue[k]
        residue[i] = value / lower[i, i]
        square -= residue[i] * residue[i]
    return max(square, np.float32(0.0))


def distances_of_pairs(
    asked: Float32[np.ndarray, "features sides dim"],
    rows: Int64[np.ndarray, "pairs"],
    listed: Float32[np.ndarray, "pairs listed_sides dim"],
) -> Float32[np.ndarray, "pairs"]:
    """Distances of the features `asked[rows]`, ascending rows, to others, given by origins (feet from zero) and bases."""
    count, sides, dim = listed.shape
    bounds = np.searchsorted(rows, np.arange(len(asked) + 1))
    squares = (asked[:, 0] ** 2).sum(axis=1), (listed[:, 0] ** 2).sum(axis=1)
    distances = np.empty(count, dtype=np.float32)
    for row in np.flatnonzero(np.diff(bounds)):
        own = slice(bounds[row], bounds[row + 1])
        products = asked[row] @ listed[own].reshape(-1, dim).T
        _measure(products, squares[0][row], squares[1][own], sides, distances[own])
    return distances


@compiled
def _measure(products, asked_square, listed_squares, sides, distances):
    """Fill `distances` with those of one feature to those whose rows `products` are with."""
    lower, residue = np.zeros((sides, sides), dtype=np.float32), np.zeros(sides, dtype=np.float32)
    for j in range(len(distances)):
        gram = products[:, j * sides : (j + 1) * sides]
        distances[j] = np.sqrt(squared_distance(gram, asked_square + listed_squares[j], lower, residue))
