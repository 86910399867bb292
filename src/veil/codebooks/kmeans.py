"""Words from descriptors by spherical k-means: flat for thousands of words, in two levels for hundreds of thousands."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from itertools import chain
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from veil.errors import RangeError
from veil.progress import Progress, ignore_progress

Method = Literal["flat", "hierarchical"]
METHODS: tuple[Method, ...] = ("flat", "hierarchical")
FLAT_WORDS = 16384  # largest number of words for which flat k-means takes minutes; its time grows with words times descriptors
# Number of descriptors for each coarse cell that the cells are trained on: with more of them the centers hardly move.
COARSE_SAMPLE = 256
BLOCK = 1 << 14  # rows that are converted to float32 at a time

Descriptors = UInt8[np.ndarray, "samples dim"] | Float32[np.ndarray, "samples dim"]
Words = UInt8[np.ndarray, "words dim"] | Float32[np.ndarray, "words dim"]


def chosen_method(method: str, words: int) -> Method:
    """Method that `method` stands for: "auto" is flat k-means as long as that takes minutes for this number of words.

    Raises RangeError for an unknown method.
    """
    if method == "auto":
        return "flat" if words <= FLAT_WORDS else "hierarchical"
    if method not in METHODS:
        raise RangeError(f"method must be auto, {' or '.join(METHODS)}, got {method!r}")
    return method


def train_words(
    sample: Descriptors,
    words: int,
    *,
    method: Method,
    iterations: int,
    seed: int,
    on_cells: Progress = ignore_progress,
    on_words: Progress = ignore_progress,
) -> Words:
    """Train a codebook's words: centroids of descriptors, as a codebook stores them, no two of them equal.

    Words of 8-bit descriptors have 8 bits, others are float32. The same arguments give the same words.

    - `sample`: descriptors in random order.
    - `words`: number of words.
    - `method`: flat k-means, or k-means in two levels.
    - `iterations`, `seed`: of k-means.
    - `on_cells`, `on_words`: called with the progress of the first and of the second level, as numbers of iterations or words
      that are done and of all; flat k-means has `on_words` only.

    Raises RangeError if there are fewer distinct descriptors than words.
    """
    if method == "flat":
        centroids = _last(spherical_kmeans(unit_rows(sample), words, iterations=iterations, seed=seed), iterations, on_words)
        scale = float(255.0 / centroids.max())
        return _distinct(sample, words, (_as_stored(part, sample.dtype, scale) for part in chain([centroids], _blocks(sample))))
    centroids = hierarchical_kmeans(sample, words, iterations=iterations, seed=seed, on_cells=on_cells, on_words=on_words)
    return _distinct(sample, words, (_as_stored(part, sample.dtype, None) for part in chain([centroids], _blocks(sample))))


def unit_rows(descriptors: Descriptors) -> Float32[np.ndarray, "samples dim"]:
    """Descriptors, as they are stored, scaled to float32 unit vectors."""
    unit = descriptors.astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit


def spherical_kmeans(
    unit_vectors: Float32[np.ndarray, "samples dim"], words: int, *, iterations: int, seed: int
) -> Iterator[Float32[np.ndarray, "words dim"]]:
    """Centroids of unit length after each iteration of spherical k-means (faiss; Dusmanu et al. 2021, Sec. 4.2).

    The last value is the result; the others let the caller show progress. faiss fills empty clusters by splitting others.
    Raises RangeError for fewer than 2 words, or more words than vectors.
    """
    if not 2 <= words <= len(unit_vectors):
        raise RangeError(f"{words} words need at least as many descriptors, got {len(unit_vectors)}; add photographs")
    vectors = np.ascontiguousarray(unit_vectors, dtype=np.float32)
    centroids = None
    for iteration in range(iterations):
        centroids = _lloyd(vectors, words, iterations=1, seed=seed + iteration, start=centroids)
        yield centroids


def _last(
    steps: Iterator[Float32[np.ndarray, "words dim"]], iterations: int, progress: Progress
) -> Float32[np.ndarray, "words dim"]:
    """Last centroids of k-means, with progress reported after each iteration."""
    for done in range(1, iterations):
        next(steps)
        progress(done, iterations)
    centroids = next(steps)
    progress(iterations, iterations)
    return centroids


def _lloyd(
    vectors: Float32[np.ndarray, "samples dim"],
    words: int,
    *,
    iterations: int,
    seed: int,
    start: Float32[np.ndarray, "words dim"] | None = None,
) -> Float32[np.ndarray, "words dim"]:
    """Centroids of unit length after a number of iterations of spherical k-means from `start`."""
    from veil.codebooks.neighbors import faiss

    step = faiss.Kmeans(
        vectors.shape[1],
        words,
        niter=iterations,
        spherical=True,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=2**31 - 1,
    )
    step.train(vectors, init_centroids=start)
    centroids = np.asarray(step.centroids, dtype=np.float32)
    return centroids / np.linalg.norm(centroids, axis=1, keepdims=True)


def hierarchical_kmeans(
    sample: Descriptors,
    words: int,
    *,
    iterations: int,
    seed: int,
    on_cells: Progress = ignore_progress,
    on_words: Progress = ignore_progress,
) -> Float32[np.ndarray, "words dim"]:
    """Unit centroids from k-means in two levels: about sqrt(words) cells, and spherical k-means inside each.

    A cell gets words in proportion to its descriptors. The cost is that of flat k-means with sqrt(words) words. `sample`, in
    random order, stays as it is stored: one cell at a time is float32. `on_cells` and `on_words` are called with the iterations
    of the cells, and the words inside them, that are done and with all of them. Raises RangeError if `sample` has fewer
    distinct descriptors than `words`.
    """
    count = max(2, round(words**0.5))
    if not 2 <= words <= len(sample):
        raise RangeError(f"{words} words need at least as many descriptors, got {len(sample)}; add photographs")
    steps = spherical_kmeans(unit_rows(sample[: COARSE_SAMPLE * count]), count, iterations=iterations, seed=seed)
    centers = _last(steps, iterations, on_cells)
    # One array from the start: separate results would keep the memory of the blocks between them in use.
    labels = np.empty(len(sample), dtype=np.int32)
    for start, part in zip(range(0, len(sample), BLOCK), _blocks(sample), strict=True):
        labels[start : start + len(part)] = _nearest(part, centers)[1]
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=count)
    cells = np.split(order, np.cumsum(sizes)[:-1])
    limits = np.array([len(_first_of_each(sample[rows])) for rows in cells])
    if limits.sum() < words:
        raise RangeError(
            f"{words} words need as many distinct descriptors, got {limits.sum()}; add photographs or ask for fewer words"
        )
    shares = allot(sizes, limits, words)
    # Fixed before any cell is clustered, so that a cell's words do not depend on the number of cells before it.
    seeds = np.random.default_rng(seed).integers(2**31 - 1, size=count)
    centroids = np.empty((words, sample.shape[1]), dtype=np.float32)
    end = 0
    for cell in np.flatnonzero(shares).tolist():
        start, end = end, end + int(shares[cell])
        centroids[start:end] = _cell_words(sample[cells[cell]], end - start, iterations=iterations, seed=int(seeds[cell]))
        on_words(end, words)
    return centroids


def allot(counts: Int64[np.ndarray, "cells"], limits: Int64[np.ndarray, "cells"], words: int) -> Int64[np.ndarray, "cells"]:
    """Number of words for each cell, `words` in total: in proportion to the cell's descriptors, within bounds.

    A cell with descriptors (`counts` > 0) gets at least one word, and none gets more than its `limits`. The quotas are
    clip(rate * counts, 1, limits) with the rate at which they add up to `words`; they are rounded by largest remainders, ties
    to the first. `words` must lie between the number of cells in use and the sum of the limits.
    """
    used = counts > 0
    low = high = 1.0 / counts[used].max()  # every quota is 1
    while _quotas(counts, limits, high).sum() < words:
        high *= 2
    for _ in range(100):  # bisection to the last bit
        middle = (low + high) / 2
        low, high = (middle, high) if _quotas(counts, limits, middle).sum() < words else (low, middle)
    quotas = _quotas(counts, limits, high)
    shares = np.floor(quotas).astype(np.int64)
    rest = np.where(shares < limits, quotas - shares, -1.0)
    shares[np.argsort(-rest, kind="stable")[: words - shares.sum()]] += 1
    return shares


def _quotas(
    counts: Int64[np.ndarray, "cells"], limits: Int64[np.ndarray, "cells"], rate: float
) -> Float64[np.ndarray, "cells"]:
    """Quotas of the cells at a rate of words for each descriptor."""
    return np.where(counts > 0, np.clip(rate * counts, 1.0, np.maximum(limits, 1)), 0.0)


def _cell_words(descriptors: Descriptors, words: int, *, iterations: int, seed: int) -> Float32[np.ndarray, "words dim"]:
    """Distinct unit centroids of one cell, `words` of them.

    A centroid that is nearest to no descriptor is replaced by the descriptor that is farthest from its nearest centroid. faiss
    fills empty clusters with twins that differ by a thousandth; those of the last iteration would be wasted words.
    """
    first = _first_of_each(descriptors)
    if len(first) == words:
        return unit_rows(descriptors[first])
    unit = unit_rows(descriptors)
    centroids = _lloyd(unit, words, iterations=iterations, seed=seed)
    product, nearest = _nearest(unit, centroids)
    idle = np.flatnonzero(np.bincount(nearest, minlength=words) == 0)
    if idle.size:
        worst = first[np.argsort(product[first], kind="stable")[: idle.size]]
        centroids[idle] = unit[worst]
    return centroids


def _nearest(
    unit: Float32[np.ndarray, "samples dim"], words: Float32[np.ndarray, "words dim"]
) -> tuple[Float32[np.ndarray, "samples"], Int64[np.ndarray, "samples"]]:
    """Largest inner product of each vector with a word, and the row of that word."""
    from veil.codebooks.neighbors import nearest_neighbors

    product, row = nearest_neighbors(unit, words, 1, by="product")
    return product[:, 0], row[:, 0]


def _blocks(sample: Descriptors) -> Iterator[Float32[np.ndarray, "block dim"]]:
    """Unit vectors of the sample, a block of rows at a time."""
    for start in range(0, len(sample), BLOCK):
        yield unit_rows(sample[start : start + BLOCK])


def _first_of_each(rows: np.ndarray) -> Int64[np.ndarray, "distinct"]:
    """Row of the first occurrence of each distinct row, ascending."""
    rows = np.ascontiguousarray(rows)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    return np.sort(np.unique(whole, return_index=True)[1])


def _as_stored(unit: Float32[np.ndarray, "rows dim"], dtype: np.dtype, scale: float | None) -> Words:
    """Words as a codebook stores them: in 8 bits for 8-bit descriptors (which are not negative), else in full precision.

    `scale` applies to all words; with None every word fills the 8 bits. Only the direction of a word counts.
    """
    if dtype != np.uint8:
        return unit.astype(np.float32)
    stored = np.empty(unit.shape, dtype=np.uint8)
    for start in range(0, len(unit), BLOCK):
        part = unit[start : start + BLOCK]
        steps = part * (255.0 / part.max(axis=1, keepdims=True) if scale is None else scale)
        stored[start : start + BLOCK] = np.clip(np.round(steps), 0, 255)
    return stored


def _distinct(sample: Sized, words: int, parts: Iterator[Words]) -> Words:
    """Distinct words: the first of `parts` holds them, and descriptors of the other parts replace those equal in 8 bits.

    Raises RangeError if there are too few distinct descriptors.
    """
    distinct = next(parts)
    distinct = distinct[_first_of_each(distinct)]
    while len(distinct) < words:
        more = next(parts, None)
        if more is None:
            raise RangeError(
                f"{words} words need as many descriptors that differ, got {len(distinct)} out of {len(sample)}; "
                "add photographs or ask for fewer words"
            )
        both = np.concatenate([distinct, more])
        distinct = both[_first_of_each(both)[:words]]
    return distinct
