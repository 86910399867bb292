"""Words out of descriptors: spherical k-means, flat for thousands of words and in two levels for hundreds of thousands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from veil.errors import RangeError
from veil.progress import Progress, ignore_progress

Method = Literal["flat", "hierarchical"]
METHODS: tuple[Method, ...] = ("flat", "hierarchical")
FLAT_WORDS = 16384  # up to here flat k-means takes minutes; its time grows with words times descriptors
# Descriptors a coarse cell is found from: beyond this many its center hardly moves.
COARSE_SAMPLE = 256
BLOCK = 1 << 14  # rows that are float32 at a time

Descriptors = UInt8[np.ndarray, "samples dim"] | Float32[np.ndarray, "samples dim"]
Words = UInt8[np.ndarray, "words dim"] | Float32[np.ndarray, "words dim"]


def chosen_method(method: str, words: int) -> Method:
    """What "auto" stands for at this many words: flat as long as that is a matter of minutes."""
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
    """`words` centroids of `sample` in the form that a codebook stores: 8 bits for 8-bit descriptors, else float32.

    `sample` is in random order; no two words are equal. The same arguments give the same words. `on_cells` and `on_words`
    are told how far either level is. Raises RangeError if there are fewer distinct descriptors than words.
    """
    if method == "flat":
        found = _last(spherical_kmeans(unit_rows(sample), words, iterations=iterations, seed=seed), iterations, on_words)
        scale = float(255.0 / found.max())
        return _distinct(sample, words, (_as_stored(part, sample.dtype, scale) for part in chain([found], _blocks(sample))))
    found = hierarchical_kmeans(sample, words, iterations=iterations, seed=seed, on_cells=on_cells, on_words=on_words)
    return _distinct(sample, words, (_as_stored(part, sample.dtype, None) for part in chain([found], _blocks(sample))))


def unit_rows(descriptors: Descriptors) -> Float32[np.ndarray, "samples dim"]:
    """Descriptors as stored -> unit vectors."""
    unit = descriptors.astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit


def spherical_kmeans(
    unit_vectors: Float32[np.ndarray, "samples dim"], words: int, *, iterations: int, seed: int
) -> Iterator[Float32[np.ndarray, "words dim"]]:
    """Centroids of unit length after each iteration of spherical k-means (faiss; Dusmanu et al. 2021, Sec. 4.2).

    A generator so that the caller can show progress; the last value is the result. Empty clusters are split by faiss.
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
    for done in range(1, iterations):
        next(steps)
        progress(done, iterations)
    found = next(steps)
    progress(iterations, iterations)
    return found


def _lloyd(
    vectors: Float32[np.ndarray, "samples dim"],
    words: int,
    *,
    iterations: int,
    seed: int,
    start: Float32[np.ndarray, "words dim"] | None = None,
) -> Float32[np.ndarray, "words dim"]:
    import faiss

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
    found = np.asarray(step.centroids, dtype=np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def hierarchical_kmeans(
    sample: Descriptors,
    words: int,
    *,
    iterations: int,
    seed: int,
    on_cells: Progress = ignore_progress,
    on_words: Progress = ignore_progress,
) -> Float32[np.ndarray, "words dim"]:
    """`words` unit centroids in two levels: about sqrt(words) cells, and spherical k-means inside each.

    A cell gets words in proportion to its descriptors. Its cost is that of sqrt(words) words, and `sample`, in random
    order, stays as it is stored: one cell at a time is float32. Raises RangeError if `sample` has fewer distinct
    descriptors than `words`.
    """
    count = max(2, round(words**0.5))
    if not 2 <= words <= len(sample):
        raise RangeError(f"{words} words need at least as many descriptors, got {len(sample)}; add photographs")
    steps = spherical_kmeans(unit_rows(sample[: COARSE_SAMPLE * count]), count, iterations=iterations, seed=seed)
    centers = _last(steps, iterations, on_cells)
    labels = np.empty(
        len(sample), dtype=np.int32
    )  # made at once: results kept apart would hold the blocks' memory between them
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
    # Fixed before any cell is clustered, so that a cell's words do not hang on how many there were before it.
    seeds = np.random.default_rng(seed).integers(2**31 - 1, size=count)
    found = np.empty((words, sample.shape[1]), dtype=np.float32)
    end = 0
    for cell in np.flatnonzero(shares).tolist():
        start, end = end, end + int(shares[cell])
        found[start:end] = _cell_words(sample[cells[cell]], end - start, iterations=iterations, seed=int(seeds[cell]))
        on_words(end, words)
    return found


def allot(counts: Int64[np.ndarray, "cells"], limits: Int64[np.ndarray, "cells"], words: int) -> Int64[np.ndarray, "cells"]:
    """Words for each cell: in proportion to `counts`, at least 1 where there are any, at most `limits`; `words` in total.

    The quotas are clip(rate * counts, 1, limits) with the rate at which they add up to `words`; they are rounded by largest
    remainders, ties to the first. Needs (cells in use) <= words <= the sum of the limits.
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
    return np.where(counts > 0, np.clip(rate * counts, 1.0, np.maximum(limits, 1)), 0.0)


def _cell_words(descriptors: Descriptors, words: int, *, iterations: int, seed: int) -> Float32[np.ndarray, "words dim"]:
    """`words` distinct unit centroids of one cell. A word that no descriptor uses gives way to the one served worst.

    faiss splits empty clusters into twins that differ by a thousandth; those of the last iteration would be lost words.
    """
    first = _first_of_each(descriptors)
    if len(first) == words:
        return unit_rows(descriptors[first])
    unit = unit_rows(descriptors)
    found = _lloyd(unit, words, iterations=iterations, seed=seed)
    product, nearest = _nearest(unit, found)
    idle = np.flatnonzero(np.bincount(nearest, minlength=words) == 0)
    if idle.size:
        worst = first[np.argsort(product[first], kind="stable")[: idle.size]]
        found[idle] = unit[worst]
    return found


def _nearest(
    unit: Float32[np.ndarray, "samples dim"], words: Float32[np.ndarray, "words dim"]
) -> tuple[Float32[np.ndarray, "samples"], Int64[np.ndarray, "samples"]]:
    """Largest product with a word, and which word."""
    import faiss

    product, found = faiss.knn(unit, words, 1, metric=faiss.METRIC_INNER_PRODUCT)
    return product[:, 0], found[:, 0]


def _blocks(sample: Descriptors) -> Iterator[Float32[np.ndarray, "block dim"]]:
    for start in range(0, len(sample), BLOCK):
        yield unit_rows(sample[start : start + BLOCK])


def _first_of_each(rows: np.ndarray) -> Int64[np.ndarray, "distinct"]:
    """Where each distinct row stands first, in order."""
    rows = np.ascontiguousarray(rows)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    return np.sort(np.unique(whole, return_index=True)[1])


def _as_stored(unit: Float32[np.ndarray, "rows dim"], dtype: np.dtype, scale: float | None) -> Words:
    """Words of 8-bit descriptors in 8 bits (they are not negative), others in full precision.

    `scale` is that of all words, or None for each to fill the 8 bits: words count by their direction alone.
    """
    if dtype != np.uint8:
        return unit.astype(np.float32)
    stored = np.empty(unit.shape, dtype=np.uint8)
    for start in range(0, len(unit), BLOCK):
        part = unit[start : start + BLOCK]
        steps = part * (255.0 / part.max(axis=1, keepdims=True) if scale is None else scale)
        stored[start : start + BLOCK] = np.clip(np.round(steps), 0, 255)
    return stored


def _distinct(sample: Descriptors, words: int, parts: Iterator[Words]) -> Words:
    """The first of `parts` (the words), with words that became equal in 8 bits replaced by descriptors out of the others."""
    found = next(parts)
    found = found[_first_of_each(found)]
    while len(found) < words:
        more = next(parts, None)
        if more is None:
            raise RangeError(
                f"{words} words need as many descriptors that differ, got {len(found)} out of {len(sample)}; "
                "add photographs or ask for fewer words"
            )
        both = np.concatenate([found, more])
        found = both[_first_of_each(both)[:words]]
    return found
