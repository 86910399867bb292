"""Inverted index of a map by words, and the candidate points of a private query's words (docs/theory/words.md, Eq. 9-11).

The index is made once for a map and a dictionary. The mechanism's own law then weighs a feature's words: how much more likely
they are from a feature that sees a point of the map than from any feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int32, Int64

from veil.codebooks.codebook import Codebook
from veil.codebooks.mirror import is_mirrored_by_places, mirrored_points, mirrored_words
from veil.errors import InputError, RangeError, SpaceError
from veil.forms import Points, Subsets
from veil.progress import Progress
from veil.scene import MappedImage, Scene
from veil.space import require_same

# Number of nearest words under which a descriptor of a public map is entered: another view of its point may have any of them.
NEAREST = 3
# With fewer pairs of views than this, usual shares of the nearest words replace measured ones (`view_shares`).
MIN_PAIRS = 200
USUAL_SHARES = (0.4, 0.12, 0.06, 0.04, 0.03)
# Largest number of descriptors of a map that are mirrored and entered anew, to recognize mirrored queries. Where there are
# more, and in maps of words, a word becomes each of the words nearest to its mirror image with these probabilities (facades).
MOST_MIRRORED = 200_000
MIRRORED_SHARES = (0.25, 0.08, 0.08, 0.05, 0.05)
# Largest number of entries that are looked up for a query; 2,000 features of two words meet fewer among a million points.
MAX_ENTRIES = 1 << 21


@dataclass(frozen=True, kw_only=True, eq=False)
class InvertedIndex:
    """Inverted lists of a map: the points of each word, and the words of each image.

    - `dictionary`: SHA-256 (hex) of the codebook whose K words index the map.
    - `offsets`, int64 (K + 1,): entries `offsets[w]` to `offsets[w + 1]` of the next two arrays belong to word w.
    - `point_rows`, int32 (entries,): rows of the map's points.
    - `probability`, float32 (entries,): probability that a feature that sees the point has w as its nearest word
      (docs/theory/words.md, Eq. 9).
    - `frequency`, float32 (K,): share of all features of the map in each word; none is zero.
    - `image_names`: the map's images.
    - `image_words`, sparse (images, K): how many features of each image have each word. A feature that is entered under several
      words counts for each in part.
    - `turned`: makes the index as words of mirrored queries meet it (`with_mirror`); None where nobody can tell.
    """

    dictionary: str
    offsets: Int64[np.ndarray, "_"]
    point_rows: Int32[np.ndarray, "_"]
    probability: Float32[np.ndarray, "_"]
    frequency: Float32[np.ndarray, "_"]
    image_names: tuple[str, ...]
    image_words: Any  # scipy.sparse.csr_array, float32
    turned: Callable[[], InvertedIndex | None] | None = None

    @property
    def dictionary_size(self) -> int:
        """Number of words of the dictionary."""
        return len(self.offsets) - 1

    @cached_property
    def word_weights(self) -> Float64[np.ndarray, "words"]:
        """Weight of each word by how few images have it (`rarity`)."""
        images_with = np.bincount(self.image_words.indices, minlength=self.dictionary_size)
        return rarity(images_with, len(self.image_names))

    @cached_property
    def image_vectors(self) -> Any:  # scipy.sparse.csr_array, float64
        """TF-IDF vectors of the images, of unit length, sparse (images, K) (docs/theory/words.md, Eq. 13)."""
        return unit_vectors(self.image_words, self.word_weights)

    @cached_property
    def mirrored(self) -> InvertedIndex | None:
        """The index as words of mirrored queries meet it, made once; None where nobody can tell what a mirror makes of them."""
        return None if self.turned is None else self.turned()

    def require(self, form: Subsets) -> None:
        """Raise SpaceError unless the words of `form` are of this index's dictionary."""
        if form.dictionary != self.dictionary or form.mechanism.dictionary_size != self.dictionary_size:
            raise SpaceError(
                f"the query's words are of dictionary {form.dictionary[:12]}, the map was indexed with {self.dictionary[:12]}; "
                "index the map with the query's dictionary, or release the query with the map's"
            )


def rarity(images_with: Int64[np.ndarray, "words"], images: int) -> Float64[np.ndarray, "words"]:
    """Weight of each word: the logarithm of how few of the images have it; one of every image keeps a little weight."""
    weights: np.ndarray = np.log((1 + images) / (1 + images_with)) + math.log(2) / 2
    return weights


def unit_vectors(counts: Any, weights: Float64[np.ndarray, "words"]) -> Any:
    """Sparse counts of words (images, K), weighted, of unit length each; an image without words keeps zeros."""
    vectors = counts.multiply(weights).tocsr()
    length = np.sqrt(np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel())
    vectors.data /= np.repeat(np.maximum(length, 1e-300), np.diff(vectors.indptr))
    return vectors


def index_map(
    scene: Scene, dictionary: Codebook | None, *, nearest: int = NEAREST, progress: Progress | None = None
) -> InvertedIndex:
    """Index a map by words: every observation of a point is entered under its words (words.md#vocabulary-matching).

    - `scene`: a map of descriptors or of words. A map of words is entered as it is.
    - `dictionary`: the words for a map of descriptors, which needs them; not used for a map of words.
    - `nearest`: number of nearest words that a descriptor is entered under. The map's own tracks tell how often another view of
      a point falls into the first, second, ... nearest word, and weigh the entries.
    - `progress`: called with the number of images that are entered and of all.

    Raises SpaceError if the descriptors are not of the dictionary's space, InputError for a map of subspaces (which have no
    words), without a dictionary, or for words of several dictionaries or numbers, and RangeError if `nearest` is less than 1.
    """
    if nearest < 1:
        raise RangeError(f"nearest must be at least 1, got {nearest!r}")
    first = next(iter(scene.images.values())).form
    if isinstance(first, Subsets):
        return _index_words(scene, first)
    if not isinstance(first, Points):
        raise InputError("a map of subspaces cannot be indexed by words; build the map from raw features or from words")
    if dictionary is None:
        raise InputError("a map of descriptors is indexed with a dictionary; give the one that queries are released with")
    require_same(scene.space, dictionary.raw_space)
    parts: list[np.ndarray] = []
    nearest = min(nearest, len(dictionary))
    for done, image in enumerate(scene.images.values(), start=1):
        assert isinstance(image.form, Points)
        parts.append(dictionary.nearest(image.form.vectors, nearest).reshape(len(image.form), nearest))
        if progress is not None:
            progress(done, len(scene.images))
    ranked = np.concatenate(parts)
    points = np.concatenate([image.point_rows for image in scene.images.values()])
    shares = view_shares(ranked, points)
    made = _assembled(scene, dictionary.digest, len(dictionary), ranked, np.tile(shares, (len(ranked), 1)), points)
    return with_mirror(made, scene, dictionary)


def with_mirror(index: InvertedIndex, scene: Scene, dictionary: Codebook) -> InvertedIndex:
    """The index of a map together with a way to mirror it, by the words that it names (`mirrored_index`)."""
    return replace(index, turned=partial(mirrored_index, scene, index, dictionary))


def _index_words(scene: Scene, first: Subsets) -> InvertedIndex:
    """Index of a map in words, where each word of an observation is its true one with probability p / m."""
    words, points, probabilities = [], [], []
    for name, image in scene.images.items():
        form = image.form
        if not isinstance(form, Subsets) or form.dictionary != first.dictionary:
            raise InputError(f"image {name!r} is in words of another dictionary than the rest of the map; build it from one")
        words.append(form.ids.astype(np.int64))
        points.append(image.point_rows)
        probabilities.append(np.full(form.ids.shape, form.mechanism.posterior * USUAL_SHARES[0]))
    if len({row.shape[1] for row in words}) > 1:
        raise InputError("the map holds images with different numbers of words a feature; release them with one m")
    return _assembled(
        scene,
        first.dictionary,
        first.mechanism.dictionary_size,
        np.concatenate(words),
        np.concatenate(probabilities),
        np.concatenate(points),
    )


def mirrored_index(scene: Scene, index: InvertedIndex, dictionary: Codebook) -> InvertedIndex | None:
    """The index of a map as words of mirrored queries meet it: each word leads to the points whose mirror images have it.

    - `scene`, `index`: the map and its index.
    - `dictionary`: the words that the index names.

    The descriptors of a public map are mirrored and entered anew, up to `MOST_MIRRORED` of them. Elsewhere a word leads to the
    entries of those that it most likely becomes. None for a dictionary that is not the index's, and for other descriptors than
    SIFT's.
    """
    if dictionary.digest != index.dictionary or not is_mirrored_by_places(dictionary.raw_space):
        return None
    if scene.is_public and sum(len(image.form) for image in scene.images.values()) <= MOST_MIRRORED:
        turned = {name: _mirrored_image(image) for name, image in scene.images.items()}
        return index_map(replace(scene, images=turned), dictionary)
    from scipy.sparse import csr_array

    size, nearest = index.dictionary_size, min(len(MIRRORED_SHARES), index.dictionary_size)
    words = mirrored_words(dictionary, nearest)
    shares, rows = np.tile(MIRRORED_SHARES[:nearest], size), np.repeat(np.arange(size), nearest)
    becomes = csr_array((shares, (rows, words.ravel())), shape=(size, size))
    points = int(index.point_rows.max()) + 1 if len(index.point_rows) else 1
    entries = becomes @ csr_array((index.probability, index.point_rows, index.offsets), shape=(size, points))
    return replace(
        index,
        offsets=entries.indptr.astype(np.int64),
        point_rows=entries.indices.astype(np.int32),
        probability=entries.data.astype(np.float32),
        frequency=np.asarray(becomes @ index.frequency, dtype=np.float32),
        image_words=(index.image_words @ becomes.T).tocsr().astype(np.float32),
        turned=None,
    )


def _mirrored_image(image: MappedImage) -> MappedImage:
    """An image of a public map with the descriptors that it would have in a mirror."""
    assert isinstance(image.form, Points)
    return replace(image, form=mirrored_points(image.form))


def view_shares(
    ranked: Int64[np.ndarray, "observations nearest"], points: Int64[np.ndarray, "observations"]
) -> Float64[np.ndarray, "nearest"]:
    """Probabilities that a view's nearest word is the first, second, ... nearest word of another view of its point.

    `ranked` are the nearest words of each observation, the nearest first, and `points` the map points that are observed. A map
    with few pairs of views gets `USUAL_SHARES` (docs/theory/words.md, Eq. 11).
    """
    order = np.argsort(points, kind="stable")
    same = np.flatnonzero(np.diff(points[order]) == 0)
    left, right = order[same], order[same + 1]
    if len(left) < MIN_PAIRS:
        return np.array([*USUAL_SHARES, *[USUAL_SHARES[-1]] * ranked.shape[1]][: ranked.shape[1]])
    hits = (ranked[left, :1] == ranked[right]).mean(axis=0) + (ranked[right, :1] == ranked[left]).mean(axis=0)
    return np.maximum(hits / 2, 1e-4)


def _assembled(
    scene: Scene,
    dictionary: str,
    dictionary_size: int,
    ranked: Int64[np.ndarray, "observations nearest"],
    probabilities: Float64[np.ndarray, "observations nearest"],
    points: Int64[np.ndarray, "observations"],
) -> InvertedIndex:
    """Index of observations that have the words `ranked` with `probabilities` and see the map points `points`."""
    from scipy.sparse import coo_array

    views = np.bincount(points, minlength=len(scene.points))
    share = probabilities / np.maximum(views, 1)[points, None]
    entries = coo_array(
        (share.ravel(), (ranked.ravel(), np.repeat(points, ranked.shape[1]))), shape=(dictionary_size, len(scene.points))
    ).tocsr()
    entries.sum_duplicates()
    image = np.repeat(np.arange(len(scene.images)), [len(item.form) for item in scene.images.values()])
    weight = probabilities / probabilities.sum(axis=1, keepdims=True)
    image_words = coo_array(
        (weight.ravel(), (np.repeat(image, ranked.shape[1]), ranked.ravel())), shape=(len(scene.images), dictionary_size)
    ).tocsr()
    image_words.sum_duplicates()
    # One more feature, spread over all words, keeps every frequency above zero.
    total = np.asarray(image_words.sum(axis=0)).ravel()
    return InvertedIndex(
        dictionary=dictionary,
        offsets=entries.indptr.astype(np.int64),
        point_rows=entries.indices.astype(np.int32),
        probability=entries.data.astype(np.float32),
        frequency=((total + 1 / dictionary_size) / (total.sum() + 1)).astype(np.float32),
        image_names=tuple(scene.images),
        image_words=image_words.astype(np.float32),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Pairs of a query feature and a map point, the most likely first; at most one pair of each feature is right.

    - `keypoint_rows`, `point_rows`, int64 (pairs,): rows of the query's features and of the map's points.
    - `log_odds`, float64 (pairs,): log of how much more likely the feature's words are if it sees the point than if it sees
      anything (docs/theory/words.md, Eq. 10).
    - `unread`: number of features that were not looked up, as the others had met enough entries of the index.
    """

    keypoint_rows: Int64[np.ndarray, "_"]
    point_rows: Int64[np.ndarray, "_"]
    log_odds: Float64[np.ndarray, "_"]
    unread: int = 0

    def __len__(self) -> int:
        return len(self.keypoint_rows)

    def take(self, rows: np.ndarray) -> Candidates:
        """The candidates restricted to `rows` (indices or a mask)."""
        return Candidates(
            keypoint_rows=self.keypoint_rows[rows],
            point_rows=self.point_rows[rows],
            log_odds=self.log_odds[rows],
            unread=self.unread,
        )


def vocabulary_candidates(
    form: Subsets, index: InvertedIndex, *, limit: int = 200_000, max_entries: int = MAX_ENTRIES
) -> Candidates:
    """Candidates of a query: the `limit` most likely pairs of a feature and a map point that share a word.

    Features are looked up in their order, which is random, until their words have met `max_entries` entries of the index.
    Raises SpaceError if the words are of another dictionary than the index.

    Theory: words.md#vocabulary-matching.

    log P(Z | sees the point) / P(Z | sees anything) = log (1 + (e^eps - 1) s_point) / (1 + (e^eps - 1) s_any), where s sums the
    probabilities of the words in Z: the mechanism's law has only these two values (docs/theory/words.md, Eq. 1 and 10).
    """
    index.require(form)
    words = form.ids.astype(np.int64).ravel()
    starts, ends = index.offsets[words], index.offsets[words + 1]
    counts = ends - starts
    within = np.cumsum(counts.reshape(form.ids.shape).sum(axis=1)) <= max_entries
    counts = np.where(np.repeat(within, form.m), counts, 0)
    entry = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    keypoint = np.repeat(np.repeat(np.arange(len(form)), form.m), counts)
    # A point that is entered under several words of one feature is one candidate.
    points = len(index.point_rows) and int(index.point_rows.max()) + 1
    key = keypoint * max(points, 1) + index.point_rows[entry]
    unique, inverse = np.unique(key, return_inverse=True)
    s_point = np.bincount(inverse, weights=index.probability[entry], minlength=len(unique)).astype(np.float64)
    s_any = index.frequency[form.ids.astype(np.int64)].sum(axis=1, dtype=np.float64)
    keypoint_rows, point_rows = np.divmod(unique, max(points, 1))
    log_odds = log_likelihood_ratio(form.mechanism.epsilon, s_point, s_any[keypoint_rows])
    best = np.argsort(-log_odds, kind="stable")[:limit]
    unread = int((~within).sum())
    return Candidates(keypoint_rows=keypoint_rows, point_rows=point_rows, log_odds=log_odds, unread=unread).take(best)


def log_likelihood_ratio(
    epsilon: float, s_point: Float64[np.ndarray, "pairs"], s_any: Float64[np.ndarray, "pairs"]
) -> Float64[np.ndarray, "pairs"]:
    """Logarithm of the likelihood ratio of docs/theory/words.md, Eq. 10, for sums of probabilities of a feature's words.

    `s_point` sums those of a feature that sees the point, `s_any` those of any feature. An infinite epsilon gives the limit,
    log (s_point / s_any), which is -inf where no probability is left.
    """
    if math.isinf(epsilon):
        with np.errstate(divide="ignore"):
            return np.log(s_point) - np.log(s_any)
    # Both sides divided by e^eps, so that nothing overflows.
    floor, scale = math.exp(-epsilon), -math.expm1(-epsilon)
    return np.log(floor + scale * s_point) - np.log(floor + scale * s_any)


def unshared_log_odds(form: Subsets, index: InvertedIndex) -> Float64[np.ndarray, "features"]:
    """Log likelihood ratio of each feature's words and a point with which they share none (docs/theory/words.md, Eq. 10).

    It is below 0, and the log odds of `vocabulary_candidates` are above it. Raises SpaceError as that function does.
    """
    index.require(form)
    s_any = index.frequency[form.ids.astype(np.int64)].sum(axis=1, dtype=np.float64)
    return log_likelihood_ratio(form.mechanism.epsilon, np.zeros_like(s_any), s_any)
