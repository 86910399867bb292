"""Words by spherical k-means over shards of descriptors, each a task of an engine, with the same bits on every engine.

The sums over shards are added in a fixed tree, and a shard is the same whoever works on it: sums of floating point numbers
depend on their order, and words would depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.codebooks.kmeans import Descriptors, Words, _as_stored, _distinct, _first_of_each, unit_rows
from veil.engine import Engine
from veil.errors import RangeError
from veil.progress import Progress, ignore_progress
from veil.threads import single_blas

SHARD_ROWS = 1 << 16  # descriptors of a shard: part of the result, like a seed
_ROWS = 1 << 10  # rows whose products with all words are in memory at a time
_FAR = 256  # descriptors, of all, that can replace words which are nearest to none


@runtime_checkable
class Shard(Protocol):
    """Some of the descriptors, small enough to be sent as a task's item: a path and rows, not the rows themselves."""

    def load(self) -> Descriptors:
        """The descriptors of this shard."""


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """Contribution of some shards to the next words: for each word the sum and number of the unit descriptors nearest to it.

    `far` are the descriptors with the smallest products with their nearest word, ascending; `objective` is the sum of products.
    """

    sums: Float64[np.ndarray, "words dim"]
    counts: Int64[np.ndarray, "words"]
    objective: float
    far: Float32[np.ndarray, "far dim"]
    far_products: Float32[np.ndarray, "far"]

    def plus(self, other: Assigned) -> Assigned:
        """The same of both; of equally far descriptors, those of this one come first."""
        products = np.concatenate([self.far_products, other.far_products])
        order = np.argsort(products, kind="stable")[:_FAR]
        return Assigned(
            sums=self.sums + other.sums,
            counts=self.counts + other.counts,
            objective=self.objective + other.objective,
            far=np.concatenate([self.far, other.far])[order],
            far_products=products[order],
        )


def assigned(shard: Shard, words: Float32[np.ndarray, "words dim"]) -> Assigned:
    """Assign a shard's descriptors to the nearest of the words, with one BLAS thread: the task of an iteration."""
    rows = shard.load()
    sums, counts = np.zeros(words.shape), np.zeros(len(words), dtype=np.int64)
    products, labels = np.empty(len(rows), dtype=np.float32), np.empty(len(rows), dtype=np.int64)
    with single_blas():
        for start in range(0, len(rows), _ROWS):
            unit = unit_rows(rows[start : start + _ROWS])
            every = unit @ words.T
            nearest = every.argmax(axis=1)
            labels[start : start + _ROWS] = nearest
            products[start : start + _ROWS] = every[np.arange(len(unit)), nearest]
            order = np.argsort(nearest, kind="stable")
            used, first = np.unique(nearest[order], return_index=True)
            sums[used] += np.add.reduceat(unit[order].astype(np.float64), first, axis=0)
    counts += np.bincount(labels, minlength=len(words))
    far = np.argsort(products, kind="stable")[:_FAR]
    return Assigned(
        sums=sums,
        counts=counts,
        objective=float(products.sum(dtype=np.float64)),
        far=unit_rows(rows[far]),
        far_products=products[far],
    )


def tree_sum(parts: Iterable[tuple[int, Assigned]], count: int) -> Assigned:
    """Sum of `count` parts that come with their positions, in any order: neighbors first, then pairs of neighbors, and so on.

    Two parts are added as soon as both are there, so few wait, and always the same two. Raises RangeError for no parts.
    """
    waiting: dict[tuple[int, int], Assigned] = {}
    for position, part in parts:
        level, place, size = 0, position, count
        while size > 1:
            if place != size - 1 or place % 2:  # else it is the last of an odd number, which goes up alone
                neighbor = waiting.pop((level, place ^ 1), None)
                if neighbor is None:
                    waiting[level, place] = part
                    break
                part = neighbor.plus(part) if place % 2 else part.plus(neighbor)
            level, place, size = level + 1, place // 2, (size + 1) // 2
        else:
            return part
    raise RangeError(f"a sum needs all of its parts, at least one; got {count}")


def sharded_kmeans(
    shards: Sequence[Shard], start: Float32[np.ndarray, "words dim"], *, iterations: int, engine: Engine
) -> Iterator[tuple[Float32[np.ndarray, "words dim"], Assigned]]:
    """Centroids of unit length after each iteration, and what they were made from: all descriptors with the words before.

    A word that is nearest to no descriptor is replaced by one of those that are farthest from their nearest word. faiss's
    k-means (`veil.codebooks.kmeans`) splits others instead, so its words are other ones, equally near.
    """
    words = start
    for _ in range(iterations):
        with engine.scatter(words) as shared:
            total = tree_sum(engine.map(assigned, shards, shared=(shared,)), len(shards))
        words = _moved(words, total)
        yield words, total


def _moved(words: Float32[np.ndarray, "words dim"], total: Assigned) -> Float32[np.ndarray, "words dim"]:
    """The next words: unit sums, and far descriptors in place of words without any, as long as there are some."""
    lengths = np.linalg.norm(total.sums, axis=1, keepdims=True)
    used = total.counts > 0
    moved = words.copy()
    moved[used] = (total.sums[used] / lengths[used]).astype(np.float32)
    idle = np.flatnonzero(~used)[: len(total.far)]
    moved[idle] = total.far[: len(idle)]
    return moved


def train_sharded(
    shards: Sequence[Shard], words: int, *, iterations: int, engine: Engine, on_words: Progress = ignore_progress
) -> Words:
    """A codebook's words from shards of descriptors in random order: as `veil.codebooks.kmeans.train_words` gives them.

    The same shards give the same words, whatever the engine and its number of workers, on processors of one kind.

    - `shards`: of one type; the first distinct descriptors are the words that k-means starts from.
    - `words`: number of words, at least 2.
    - `iterations`: of k-means, at least 1.
    - `engine`: where shards are worked on, each in memory at one place at a time.
    - `on_words`: called with the iterations that are done and with all.

    Raises RangeError if there are fewer distinct descriptors than words.
    """
    start = _first_distinct(shards, words)
    centroids = unit_rows(start)
    count = 0
    for done, (moved, total) in enumerate(sharded_kmeans(shards, centroids, iterations=iterations, engine=engine), start=1):
        centroids, count = moved, int(total.counts.sum())
        on_words(done, iterations)
    scale = float(255.0 / centroids.max())
    rows = (unit_rows(shard.load()) for shard in shards)
    parts = (_as_stored(part, start.dtype, scale) for part in chain([centroids], rows))
    return _distinct(range(count), words, parts)


def _first_distinct(shards: Sequence[Shard], words: int) -> Descriptors:
    """The first `words` descriptors that differ. Raises RangeError for fewer."""
    distinct: np.ndarray | None = None
    for shard in shards:
        rows = shard.load()
        both = rows if distinct is None else np.concatenate([distinct, rows])
        distinct = both[_first_of_each(both)[:words]]
        if len(distinct) == words >= 2:
            return distinct
    raise RangeError(
        f"{words} words need at least 2, and as many distinct descriptors, got {0 if distinct is None else len(distinct)}; "
        "add photographs or ask for fewer words"
    )
