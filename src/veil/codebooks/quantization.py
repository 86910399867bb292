"""Distances of descriptors to their nearest words: the detail that a dictionary hides, and that matching by words loses.

A release by words says nothing of where in its word's cell a descriptor lies (words.md#what-epsilon-does-not-cover), so the
distance to the nearest word is the error of everything that is matched by words. Two distances of the same descriptors stand
beside it: between two at random, and to the nearest other one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from veil.codebooks.codebook import Codebook
from veil.codebooks.kmeans import unit_rows
from veil.errors import InputError, SpaceError
from veil.progress import Progress

MEASURED = 50_000  # number of descriptors whose nearest words are looked up
NEIGHBORS = 2_000  # number of these whose nearest other descriptor is sought in the whole pool
BLOCK = 1 << 14  # descriptors that are compared at a time


class DistanceStatisticsJson(TypedDict):
    """Mean and quantiles of distances."""

    mean: float
    p5: float
    median: float
    p95: float


@dataclass(frozen=True, kw_only=True)
class DistanceStatistics:
    """Mean and quantiles of distances between unit vectors (0 equal, 1.41 orthogonal)."""

    mean: float
    p5: float
    median: float
    p95: float

    @staticmethod
    def of(values: Float64[np.ndarray, "_"]) -> DistanceStatistics:
        """The statistics of one or more values."""
        low, median, high = np.quantile(values, [0.05, 0.5, 0.95]).tolist()
        return DistanceStatistics(mean=float(values.mean()), p5=low, median=median, p95=high)

    def as_json(self) -> DistanceStatisticsJson:
        """The distances' part of the record of `veil lab quality`."""
        return {
            "mean": self.mean,
            "p5": self.p5,
            "median": self.median,
            "p95": self.p95,
        }


class QuantizationJson(TypedDict):
    """Distances of descriptors to words, and use of the words."""

    descriptors: int
    images: int
    book_images: int
    to_nearest_word: DistanceStatisticsJson
    to_nearest_other: DistanceStatisticsJson
    pool: int
    to_random: DistanceStatisticsJson
    words: int
    unused_words: int
    unused_words_if_even: float
    entropy_bits: float
    entropy_bits_if_even: float
    log2_words: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Quantization:
    """Distances of descriptors to their nearest word, to another one at random, and to the nearest other one of a pool.

    `uses` counts for each word how many of the descriptors are nearest to it. `book_images` of the `images` are among those
    that the codebook was made from: 0 means that it never saw these descriptors.
    """

    to_word: Float64[np.ndarray, "_"]
    to_random: Float64[np.ndarray, "_"]
    to_other: Float64[np.ndarray, "_"]
    pool_size: int
    uses: Int64[np.ndarray, "_"]
    images: int
    book_images: int

    @property
    def entropy_bits(self) -> float:
        """Entropy in bits of the words' use, at most log2 of the smaller of words and descriptors."""
        shares = self.uses[self.uses > 0] / self.uses.sum()
        return float(-(shares * np.log2(shares)).sum()) + 0.0  # no negative zero

    def as_json(self) -> QuantizationJson:
        """The record of `veil lab quality`."""
        words, descriptors = len(self.uses), len(self.to_word)
        unused, entropy = even_use(words, descriptors)
        return {
            "descriptors": descriptors,
            "images": self.images,
            "book_images": self.book_images,
            "to_nearest_word": DistanceStatistics.of(self.to_word).as_json(),
            "to_nearest_other": DistanceStatistics.of(self.to_other).as_json(),
            "pool": self.pool_size,
            "to_random": DistanceStatistics.of(self.to_random).as_json(),
            "words": words,
            "unused_words": int((self.uses == 0).sum()),
            "unused_words_if_even": unused,
            "entropy_bits": self.entropy_bits,
            "entropy_bits_if_even": entropy,
            "log2_words": float(np.log2(words)),
        }


def even_use(words: int, descriptors: int) -> tuple[float, float]:
    """Expected number of unused words, and expected entropy in bits, if each descriptor took one of the words at random.

    `words` (K) and `descriptors` (n) are numbers: a few descriptors cannot use many words, however good these are.
    E H = log2 n - K / n E[C log2 C] with C binomial (n, 1 / K).
    """
    from scipy import stats

    mean = descriptors / words
    counts = np.arange(1, int(mean + 12 * np.sqrt(mean) + 60))
    log_sum = (stats.binom.pmf(counts, descriptors, 1 / words) * counts * np.log2(counts)).sum()
    unused = words * np.exp(descriptors * np.log1p(-1 / words))
    return float(unused), float(np.log2(descriptors) - log_sum / mean)


def measure(
    book: Codebook,
    descriptors: UInt8[np.ndarray, "_ _"] | Float32[np.ndarray, "_ _"],
    *,
    pool: UInt8[np.ndarray, "_ _"] | Float32[np.ndarray, "_ _"],
    in_pool: bool,
    images: int,
    book_images: int,
    seed: int,
    progress: Progress | None = None,
) -> Quantization:
    """Distances of `descriptors` (stored as extracted, in random order) to the words of `book` and to others in `pool`.

    `in_pool` says that the pool begins with these very descriptors, which are then not their own neighbors.
    Raises InputError if there are fewer than two descriptors, SpaceError if they are of another dimension than the words.
    """
    if len(descriptors) < 2 or len(pool) < 2:
        raise InputError(f"{len(descriptors)} descriptors cannot be measured; give photographs with more detail")
    if descriptors.shape[1] != book.dim:
        raise SpaceError(f"descriptors of {descriptors.shape[1]} dimensions do not go with words of {book.dim}")
    unit = unit_rows(descriptors)
    nearest = np.empty(len(unit), dtype=np.int64)
    for start in range(0, len(unit), BLOCK):
        nearest[start : start + BLOCK] = book.nearest(unit[start : start + BLOCK])
        if progress is not None:
            progress(min(start + BLOCK, len(unit)), len(unit))
    random = np.random.default_rng(seed)
    others = (np.arange(len(unit)) + random.integers(1, len(unit), size=len(unit))) % len(unit)  # never itself
    few = unit[:NEIGHBORS]
    return Quantization(
        to_word=_apart(unit, book.vectors[nearest]),
        to_random=_apart(unit, unit[others]),
        to_other=_apart(few, unit_rows(pool[_nearest_other(few, pool, in_pool)])),
        pool_size=len(pool),
        uses=np.bincount(nearest, minlength=len(book)),
        images=images,
        book_images=book_images,
    )


def _apart(left: Float32[np.ndarray, "_ _"], right: Float32[np.ndarray, "_ _"]) -> Float64[np.ndarray, "_"]:
    """Distances between rows of `left` and `right`, from their differences, since products round away those of near twins."""
    return np.concatenate(
        [
            np.linalg.norm(left[start : start + BLOCK].astype(np.float64) - right[start : start + BLOCK], axis=1)
            for start in range(0, len(left), BLOCK)
        ]
    )


def _nearest_other(
    unit: Float32[np.ndarray, "few dim"],
    pool: UInt8[np.ndarray, "pool dim"] | Float32[np.ndarray, "pool dim"],
    in_pool: bool,
) -> Int64[np.ndarray, "few"]:
    """Row of `pool` that is nearest to each vector of `unit`; with `in_pool`, row i is left out for vector i."""
    from veil.codebooks.neighbors import nearest_neighbors

    rows = np.arange(len(unit))
    best, where = np.full(len(unit), -np.inf, dtype=np.float32), np.zeros(len(unit), dtype=np.int64)
    for start in range(0, len(pool), BLOCK):
        block = unit_rows(pool[start : start + BLOCK])
        product, neighbors = nearest_neighbors(unit, block, min(2, len(block)), by="product")
        if in_pool:
            product[neighbors + start == rows[:, None]] = -np.inf
        first = product.argmax(axis=1)
        product, neighbors = product[rows, first], neighbors[rows, first]
        better = product > best
        best[better], where[better] = product[better], neighbors[better] + start
    return where
