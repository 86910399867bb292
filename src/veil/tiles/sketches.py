"""Sketches of tiles: how often each of many words occurs in one, from which a device tells on its own which tiles to ask for.

A query's words are taken for draws from a mixture of a tile's words and of those of all tiles. Tiles are ranked by the
logarithm of how much likelier they make the query than all tiles together do (docs/theory/tiles.md, Eq. 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int64, UInt8

from veil.codebooks.kmeans import spherical_kmeans
from veil.errors import RangeError

ITERATIONS = 8
# Many tiles need more words to be told from each other; few words keep the manifest of a small map small.
WORDS_A_TILE, LEAST_WORDS, MOST_WORDS = 64, 1024, 4096
# Approximate number of descriptors among which words are computed.
SAMPLE = 50_000
# Share of a query's features that a tile must explain by its own words.
OWN = 0.4


@dataclass(frozen=True, kw_only=True, eq=False)
class Sketches:
    """Sketches of a map's tiles.

    - `words`, int8 (words, axes): unit vectors along the principal axes, in parts of 127.
    - `counts`, uint8 (tiles, words): descriptors of each tile that are nearest to each word, 255 standing for more, too.

    Raises RangeError for a word that is zero.
    """

    words: Int8[np.ndarray, "words axes"]
    counts: UInt8[np.ndarray, "tiles words"]

    def __post_init__(self) -> None:
        if not self.words.any(axis=1).all():
            raise RangeError("a word of the sketches is zero")

    def ranked(
        self, vectors: Float32[np.ndarray, "rows axes"]
    ) -> tuple[Int64[np.ndarray, "tiles"], Float64[np.ndarray, "tiles"]]:
        """Tiles from the likeliest for some compressed descriptors to the least, and the log ratios in this order."""
        seen = np.sqrt(_counts(self.words, vectors))  # a repeated pattern says less than it occurs
        counts = self.counts.astype(np.float64)
        of_all = (counts.sum(axis=0) + 0.5) / (counts.sum() + 0.5 * counts.shape[1])
        own = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        ratios = np.log(OWN * own / of_all + (1 - OWN)) @ seen
        order = np.argsort(-ratios, kind="stable").astype(np.int64)
        return order, ratios[order]


def sketched(
    tiles: Sequence[Int8[np.ndarray, "_ axes"]], scales: Float32[np.ndarray, "axes"], *, words: int | None = None, seed: int = 0
) -> Sketches:
    """Sketches of tiles, whose descriptors are `tiles` in levels, of which one along each axis stands for `scales`.

    At most `words` words (None: `usual_words`), and one for each four descriptors, are found by spherical k-means in a sample
    of the descriptors; `seed` is that of both.
    """
    words = usual_words(len(tiles)) if words is None else words
    sample = _sample(tiles, seed) * scales
    unit = _unit(sample.astype(np.float64)).astype(np.float32)
    for centers in spherical_kmeans(unit, max(2, min(words, len(unit) // 4)), iterations=ITERATIONS, seed=seed):
        centroids = np.rint(centers * 127).astype(np.int8)
    counts = np.array([np.minimum(_counts(centroids, levels * scales), 255) for levels in tiles])
    return Sketches(words=centroids, counts=counts.astype(np.uint8))


def usual_words(tiles: int) -> int:
    """Number of words of the sketches of a number of tiles by default: 64 a tile, at least 1,024 and at most 4,096."""
    return min(max(WORDS_A_TILE * tiles, LEAST_WORDS), MOST_WORDS)


def _sample(tiles: Sequence[Int8[np.ndarray, "_ axes"]], seed: int) -> Int8[np.ndarray, "_ axes"]:
    """At most SAMPLE descriptors, about, the same share of each tile's."""
    random = np.random.default_rng(seed)
    share = min(1.0, SAMPLE / max(sum(len(levels) for levels in tiles), 1))
    return np.concatenate([levels[random.permutation(len(levels))[: math.ceil(share * len(levels))]] for levels in tiles])


def _counts(words: Int8[np.ndarray, "words axes"], vectors: Float32[np.ndarray, "rows axes"]) -> Int64[np.ndarray, "words"]:
    """How often each word is the nearest to a vector, by direction."""
    centers = _unit(words.astype(np.float64)).astype(np.float32)
    nearest = np.argmax(vectors @ centers.T, axis=1) if len(vectors) else np.empty(0, dtype=np.int64)
    return np.bincount(nearest, minlength=len(words)).astype(np.int64)


def _unit(vectors: Float64[np.ndarray, "rows dim"]) -> Float64[np.ndarray, "rows dim"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
