"""Statistics of which words occur beside which, counted over an attacker's own photographs.

There are too many pairs of single words for each of them to be counted often. Pairs of coarse classes of similar words are
therefore counted as well, and finer counts correct coarser ones as far as there are any.

Theory: docs/theory/word_attacks.md, Eq. 6-7; word_attacks.md#neighbors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.attacks.words.posterior import word_frequencies
from veil.codebooks.codebook import Codebook
from veil.codebooks.kmeans import spherical_kmeans
from veil.errors import InputError, RangeError
from veil.progress import Progress

# Words in the k-means sample for each coarse class: with more of them its center hardly moves.
SAMPLE_A_CLASS = 32
BLOCK_PHOTOGRAPHS = 64


@dataclass(frozen=True, kw_only=True)
class CooccurrenceOptions:
    """Options for counting pairs of neighbors; tuned on photographs of objects at 512 px, 4,096 words, epsilon 10.

    Each keypoint is paired with its `neighbors` nearest ones. Pairs are split into classes of distance at `edges_px`: the first
    class holds keypoints at one place with several orientations. For each number in `classes` there is a level that groups the
    words into coarse classes; single words are the last level. `shrinkage` is the count that a pair is expected to have
    before its own count is believed over the coarser prediction. Beyond `max_pairs` different pairs in a level, those that were
    counted once are forgotten: this bounds the memory.
    """

    neighbors: int = 8
    edges_px: tuple[float, ...] = (0.5, 4.0, 10.0, 25.0)
    classes: tuple[int, ...] = (32, 128, 512, 2048)
    shrinkage: float = 5.0
    max_pairs: int = 8_000_000

    def __post_init__(self) -> None:
        if self.neighbors < 1 or self.max_pairs < 1:
            raise RangeError(f"neighbors and max_pairs must be at least 1, got {self.neighbors!r} and {self.max_pairs!r}")
        if not (np.diff((0.0, *self.edges_px)) > 0).all() or not math.isfinite(sum(self.edges_px)):
            raise RangeError(f"edges_px must be above 0, finite and rise, got {self.edges_px!r}")
        if any(count < 1 for count in self.classes):
            raise RangeError(f"classes must be at least 1, got {self.classes!r}")
        if not 0 < self.shrinkage < math.inf:
            raise RangeError(f"shrinkage must be above 0 and finite, got {self.shrinkage!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class PhotographInWords:
    """Photograph of the attacker's own: keypoints in pixels and the nearest word of each feature."""

    keypoints: Float[np.ndarray, "_ 2"]
    words: Int64[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Level:
    """Counts of unordered pairs of classes at one level of the grouping.

    `class_of` maps a word to its class, and `share` holds the share of each class among neighbors, by class of distance. `keys`
    = (distance class * classes + lower class) * classes + higher class, ascending; `counts` belong to them.
    """

    class_of: Int64[np.ndarray, "_"]
    share: Float64[np.ndarray, "_ _"]
    keys: Int64[np.ndarray, "_"]
    counts: Int64[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True, eq=False)
class NeighborModel:
    """Model of a dictionary's words that an attacker learned: how often each occurs, and which occur beside which.

    `dictionary` is the digest of the codebook, `frequency` the share of each word, `pairs` the number of pairs in each class of
    distance, and `levels` go from the coarsest classes to single words.
    """

    dictionary: str
    frequency: Float64[np.ndarray, "_"]
    pairs: Float64[np.ndarray, "_"]
    levels: tuple[Level, ...]
    options: CooccurrenceOptions

    def log_ratio(
        self, left: Int64[np.ndarray, "*#s"], right: Int64[np.ndarray, "*#s"], distance_class: Int64[np.ndarray, "*#s"]
    ) -> Float64[np.ndarray, "..."]:
        """Logarithms of how much more often two words are neighbors than by chance (docs/theory/word_attacks.md, Eq. 7).

        `left` and `right` are words, `distance_class` the classes of their distances; shapes are broadcast. Finer levels
        correct coarser ones.
        """
        shape = np.broadcast_shapes(left.shape, right.shape, distance_class.shape)
        left, right, distance_class = (np.broadcast_to(x, shape) for x in (left, right, distance_class))
        ratio = np.ones(shape)
        for level in self.levels:
            a, b = level.class_of[left], level.class_of[right]
            chance = self.pairs[distance_class] * level.share[distance_class, a] * level.share[distance_class, b]
            expected = chance * np.where(a == b, 1.0, 2.0) * ratio
            counted = _counted(level, _keys(a, b, distance_class, level.share.shape[1]))
            ratio = ratio * (counted + self.options.shrinkage) / (expected + self.options.shrinkage)
        return np.log(ratio)


def learn_neighbors(
    photographs: Sequence[PhotographInWords],
    dictionary: Codebook,
    *,
    seed: int,
    options: CooccurrenceOptions | None = None,
    progress: Progress | None = None,
) -> NeighborModel:
    """Model of neighboring words, from counts of their pairs in the attacker's photographs.

    The descriptors of the dictionary's words give the coarse classes, by k-means with `seed`. Memory is bounded by
    `options.max_pairs` and the dictionary, not by the number of photographs. Raises InputError if there are no photographs,
    none has two keypoints, or a word lies outside the dictionary.
    """
    options = options or CooccurrenceOptions()
    if not photographs:
        raise InputError("the neighbor attack learns from photographs of the attacker's own; give some")
    for photograph in photographs:
        _require_photograph(photograph, len(dictionary))
    frequency = word_frequencies(np.concatenate([p.words for p in photographs]), dictionary_words=len(dictionary))
    distances = len(options.edges_px) + 1
    classes = [_coarse(dictionary, count, seed) for count in options.classes if count < len(dictionary)]
    tables = [_Table(class_of, distances, options.max_pairs) for class_of in [*classes, np.arange(len(dictionary))]]
    pairs = np.zeros(distances)
    for start in range(0, len(photographs), BLOCK_PHOTOGRAPHS):
        left, right, distance = _pairs_of(photographs[start : start + BLOCK_PHOTOGRAPHS], options)
        pairs += np.bincount(distance, minlength=distances)
        for table in tables:
            table.add(left, right, distance)
        if progress is not None:
            progress(min(start + BLOCK_PHOTOGRAPHS, len(photographs)), len(photographs))
    if not pairs.any():
        raise InputError("no photograph has two keypoints; there are no neighbors to learn from")
    levels = tuple(table.level() for table in tables)
    return NeighborModel(dictionary=dictionary.digest, frequency=frequency, pairs=pairs, levels=levels, options=options)


def paired(
    keypoints: Float64[np.ndarray, "features 2"], options: CooccurrenceOptions
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Pairs of keypoints (lower rows, higher rows), each once, with their classes of distance.

    One keypoint of a pair is among the `options.neighbors` nearest of the other.
    """
    from scipy.spatial import cKDTree

    count = len(keypoints)
    if count < 2:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    distance, index = cKDTree(keypoints).query(keypoints, min(options.neighbors + 1, count))
    here = np.repeat(np.arange(count), index.shape[1])
    there = index.ravel().astype(np.int64)
    different = here != there
    low, high = np.minimum(here, there)[different], np.maximum(here, there)[different]
    keys, first = np.unique(low * count + high, return_index=True)
    classes = np.searchsorted(np.asarray(options.edges_px), distance.ravel()[different][first])
    return keys // count, keys % count, classes.astype(np.int64)


def _pairs_of(photographs: Sequence[PhotographInWords], options: CooccurrenceOptions) -> list[Int64[np.ndarray, "pairs"]]:
    """Words of all pairs of neighbors (left, right) and their classes of distance, over several photographs."""
    pairs = []
    for photograph in photographs:
        left, right, distance = paired(photograph.keypoints.astype(np.float64), options)
        pairs.append((photograph.words[left], photograph.words[right], distance))
    return [np.concatenate(column) for column in zip(*pairs, strict=True)]


def _keys(
    a: Int64[np.ndarray, "*s"], b: Int64[np.ndarray, "*s"], distance: Int64[np.ndarray, "*s"], classes: int
) -> Int64[np.ndarray, "*s"]:
    return (distance * classes + np.minimum(a, b)) * classes + np.maximum(a, b)


def _counted(level: Level, keys: Int64[np.ndarray, "*s"]) -> Int64[np.ndarray, "*s"]:
    at = np.minimum(np.searchsorted(level.keys, keys), len(level.keys) - 1)
    return np.where(level.keys[at] == keys, level.counts[at], 0)


class _Table:
    """Growing counts of one level."""

    def __init__(self, class_of: Int64[np.ndarray, "_"], distances: int, max_pairs: int) -> None:
        self._class_of, self._max_pairs = class_of.astype(np.int64), max_pairs
        self._classes = int(class_of.max()) + 1
        self._keys, self._counts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        self._single = np.zeros((distances, self._classes))

    def add(self, left: Int64[np.ndarray, "_"], right: Int64[np.ndarray, "_"], distance: Int64[np.ndarray, "_"]) -> None:
        a, b = self._class_of[left], self._class_of[right]
        np.add.at(self._single, (distance, a), 0.5)
        np.add.at(self._single, (distance, b), 0.5)
        keys, counts = np.unique(_keys(a, b, distance, self._classes), return_counts=True)
        both, inverse = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        total = np.bincount(inverse, weights=np.concatenate([self._counts, counts]), minlength=len(both)).astype(np.int64)
        if len(both) > self._max_pairs:
            both, total = both[total > 1], total[total > 1]
        if len(both) > self._max_pairs:
            kept = np.sort(np.argsort(-total, kind="stable")[: self._max_pairs])
            both, total = both[kept], total[kept]
        self._keys, self._counts = both, total

    def level(self) -> Level:
        """Counts as a level of the model. Shares are smoothed a little, so that no class has a share of zero."""
        keys = self._keys if len(self._keys) else np.array([-1])
        counts = self._counts if len(self._counts) else np.array([0])
        share = self._single + 1e-3
        return Level(class_of=self._class_of, share=share / share.sum(axis=1, keepdims=True), keys=keys, counts=counts)


def _coarse(dictionary: Codebook, count: int, seed: int) -> Int64[np.ndarray, "words"]:
    """Class of each word: its nearest center of spherical k-means on a sample of the words' descriptors."""
    from veil.codebooks.neighbors import nearest_neighbors

    rows = np.random.default_rng(seed).permutation(len(dictionary))[: max(count * SAMPLE_A_CLASS, 2 * count)]
    sample = dictionary.vectors[np.sort(rows)]
    centers = sample[:1] if count == 1 else list(spherical_kmeans(sample, count, iterations=8, seed=seed))[-1]
    _, nearest = nearest_neighbors(dictionary.vectors, centers, 1, by="product")
    return nearest[:, 0].astype(np.int64)


def _require_photograph(photograph: PhotographInWords, words: int) -> None:
    if photograph.keypoints.shape != (len(photograph.words), 2) or not np.isfinite(photograph.keypoints).all():
        raise InputError("a photograph needs a finite position for each word")
    if len(photograph.words) and not (photograph.words.min() >= 0 and photograph.words.max() < words):
        raise InputError(f"a word id of a photograph lies outside the dictionary of {words} words")
