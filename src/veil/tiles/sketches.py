"""Sketches of tiles: how often each of a few words occurs in one, from which a device tells on its own which tiles to ask for.

A tile is a bag of words, weighted by their rarity and compared by the cosine (Sivic and Zisserman 2003, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int64, UInt8

from veil.codebooks.kmeans import spherical_kmeans
from veil.errors import RangeError

WORDS, ITERATIONS = 512, 8
# Words are found among so many descriptors, about.
SAMPLE = 50_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Sketches:
    """Sketches of a map's tiles.

    - `words`, int8 (words, axes): unit vectors along the principal axes, in parts of 127.
    - `weights`, uint8 (tiles, words): of the words in each tile, in parts of the tile's largest.
    - `rarity`, uint8 (words,): what an occurrence counts, in parts of 255 of the rarest word's.
    """

    words: Int8[np.ndarray, "words axes"]
    weights: UInt8[np.ndarray, "tiles words"]
    rarity: UInt8[np.ndarray, "words"]

    def __post_init__(self) -> None:
        if not self.words.any(axis=1).all():
            raise RangeError("a word of the sketches is zero")

    def ranked(
        self, vectors: Float32[np.ndarray, "rows axes"]
    ) -> tuple[Int64[np.ndarray, "tiles"], Float64[np.ndarray, "tiles"]]:
        """Tiles from the one most like the given compressed descriptors to the least, and the cosines in this order."""
        weight = _counts(self.words, vectors) * self.rarity
        tiles = _unit(self.weights.astype(np.float64))
        cosine = tiles @ _unit(weight[None])[0]
        order = np.argsort(-cosine, kind="stable").astype(np.int64)
        return order, cosine[order]


def sketched(
    tiles: Sequence[Int8[np.ndarray, "_ axes"]], scales: Float32[np.ndarray, "axes"], *, words: int = WORDS, seed: int = 0
) -> Sketches:
    """Sketches of tiles, whose descriptors are `tiles` in levels, of which one along each axis stands for `scales`.

    At most `words` words, and one for each four descriptors, are found by spherical k-means among a sample of the descriptors;
    `seed` is that of both.
    """
    sample = _sample(tiles, seed) * scales
    unit = _unit(sample.astype(np.float64)).astype(np.float32)
    for centers in spherical_kmeans(unit, max(2, min(words, len(unit) // 4)), iterations=ITERATIONS, seed=seed):
        found = np.rint(centers * 127).astype(np.int8)
    counts = np.array([_counts(found, levels * scales) for levels in tiles])
    frequent = (counts > 0).sum(axis=0)
    idf = np.log((1 + len(counts)) / (1 + frequent)) + 0.1  # a word of every tile still says a little
    rarity = np.maximum(np.rint(255 * idf / idf.max()), 1).astype(np.uint8)
    weight = counts * rarity
    largest = np.maximum(weight.max(axis=1, keepdims=True), 1e-12)
    return Sketches(words=found, weights=np.rint(255 * weight / largest).astype(np.uint8), rarity=rarity)


def _sample(tiles: Sequence[Int8[np.ndarray, "_ axes"]], seed: int) -> Int8[np.ndarray, "_ axes"]:
    """At most SAMPLE descriptors, the same share of each tile's."""
    random = np.random.default_rng(seed)
    share = min(1.0, SAMPLE / max(sum(len(levels) for levels in tiles), 1))
    return np.concatenate([levels[random.permutation(len(levels))[: math.ceil(share * len(levels))]] for levels in tiles])


def _counts(words: Int8[np.ndarray, "words axes"], vectors: Float32[np.ndarray, "rows axes"]) -> Float64[np.ndarray, "words"]:
    """Square roots of how often each word is the nearest to a vector: a repeated pattern counts less than it occurs."""
    centers = _unit(words.astype(np.float64)).astype(np.float32)
    nearest = np.argmax(vectors @ centers.T, axis=1) if len(vectors) else np.empty(0, dtype=np.int64)
    return np.sqrt(np.bincount(nearest, minlength=len(words)).astype(np.float64))


def _unit(vectors: Float64[np.ndarray, "rows dim"]) -> Float64[np.ndarray, "rows dim"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
