"""Matching of two forms by mutual nearest neighbors, or by mutually heaviest shared words, with an optional ratio test.

Rare words weigh more (docs/theory/words.md, Eq. 14).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from veil import distances
from veil.distances import Backend, NearestTwo
from veil.errors import InputError, RangeError, SpaceError
from veil.forms import Flat, Form, Points, Subsets, Subspaces
from veil.one_line import one_line
from veil.space import require_same

# Two releases share decoys if this share of the features of one meets two features of the other: views of a point rarely do.
SHARED_DECOYS = 2e-3
# They share decoys, too, where this share of the features of one meets a feature of the other in equal bytes, whose distances
# are those of two dithers: nearly all within `EQUAL` of the largest, at most `BESIDE` of them farther. In near repeats
# descriptors differ by more, and by other amounts each.
MET, EQUAL, BESIDE = 0.05, 0.6, 0.02
# So many neighbors are looked at for one that is not a shared decoy.
NEIGHBORS = 8
# Weights that are equal but for the order of addition differ by rounding only; different ones differ by far more.
TIE = 1e-9


@dataclass(frozen=True, kw_only=True)
class MatchOptions:
    """Options of matching: which mutual nearest neighbors are kept, and how distances are computed.

    - `max_ratio`: a match is kept if nearest / second nearest distance is at most this in both directions; None keeps every
      mutual match. Distances shrink with m, so that a ratio tuned for raw descriptors does not transfer
      (distances.md#how-distances-shrink-with-m): use `veil.matching.ratio.calibrated` or none.
    - `backend`: implementation of the distances (`veil.distances`).
    - `threads`: number of threads of the distances of one pair of forms.

    Raises RangeError for a ratio outside (0, 1] or no threads.
    """

    max_ratio: float | None = None
    backend: Backend = "auto"
    threads: int = 1

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.max_ratio is not None and not 0 < self.max_ratio <= 1:
            raise RangeError(f"max_ratio must lie in (0, 1], got {self.max_ratio!r}")
        if not self.threads >= 1:
            raise RangeError(f"threads must be at least 1, got {self.threads!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Matches:
    """Matched pairs of features with their distances and their ratios of nearest to second nearest distance.

    - `indices`, int64 (matches, 2): rows of the left and of the right feature.
    - `distances`, float64 (matches,): in the unit of the descriptors.
    - `ratios`, float64 (matches,): the worse (larger) one of both directions.

    Words have no distance: both arrays then hold the second best weight over the best one (docs/theory/words.md, Eq. 14).
    """

    indices: Int64[np.ndarray, "matches 2"]
    distances: Float64[np.ndarray, "matches"]
    ratios: Float64[np.ndarray, "matches"]

    __repr__ = one_line

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, rows: np.ndarray) -> Matches:
        """The matches restricted to `rows` (indices or a mask)."""
        return Matches(indices=self.indices[rows], distances=self.distances[rows], ratios=self.ratios[rows])


def match(left: Form, right: Form, options: MatchOptions | None = None) -> Matches:
    """Match two forms: mutual nearest neighbors by distance, or mutually heaviest shared words.

    The types choose the distance: point to point, point to subspace, or subspace to subspace (Dusmanu et al. 2021, Eq. 1-2;
    docs/theory/distances.md, Eq. 1-2). Words are matched with words (docs/theory/words.md, Eq. 14). An empty form gives no
    matches.

    Raises SpaceError if the forms are of different spaces or dictionaries, or only one of them is in words, and InputError if
    the subspaces are so large that all of them meet.
    """
    options = options or MatchOptions()
    if isinstance(left, Subsets) or isinstance(right, Subsets):
        return _match_words(left, right, options)
    require_same(left.space, right.space)
    if not isinstance(left, Points) and not isinstance(right, Points) and left.m + right.m >= left.space.dim:
        raise InputError(
            f"subspaces of dimensions {left.m} and {right.m} in {left.space.dim}-D all meet, so every distance is 0; "
            "match against a public map, or lift to fewer dimensions"
        )
    if len(left) == 0 or len(right) == 0:
        return Matches(indices=np.empty((0, 2), dtype=np.int64), distances=np.empty(0), ratios=np.empty(0))
    nearest = distances.nearest_two(as_set(left), as_set(right), backend=options.backend, threads=options.threads)
    meets = decoy_distance(left, right)
    if meets and shares_decoys(nearest.left_distance, meets):
        nearest = with_equal(_beyond(left, right, meets, options), equal_subspaces(left, right))
    return _mutual(nearest, options)


def shares_decoys(distances: Float64[np.ndarray, "features 2"], meets: float) -> bool:
    """Whether meetings of two messages are those of shared decoys, by the distances of each feature's two nearest ones.

    They are if some meet two others, or if many meet one other as nearly as two dithers of equal bytes do. Two lifts of one
    photograph do so, too, and are not told from it. `meets` is the largest distance in one decoy
    (distances.md#shared-decoys).
    """
    if (distances[:, 1] <= meets).sum() > max(1, SHARED_DECOYS * len(distances)):
        return True
    met = int((distances[:, 0] <= EQUAL * meets).sum())
    beside = int((distances[:, 0] <= meets).sum()) - met
    return met > max(NEIGHBORS, MET * len(distances)) and beside <= BESIDE * met


def equal_subspaces(left: Flat, right: Flat) -> Int64[np.ndarray, "pairs 2"]:
    """Pairs of features of two forms whose subspaces are equal, in base and axes, without those that stand twice in a form.

    They are one draw that left twice (release.md#near-repeats): shared decoys make subspaces meet in points, not everywhere.
    """
    if isinstance(left, Points) or isinstance(right, Points):
        return np.empty((0, 2), dtype=np.int64)
    mine, other = ({name: row for name, row in _once(form).items() if row >= 0} for form in (left, right))
    pairs = [(row, other[name]) for name, row in mine.items() if name in other]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _once(form: Subspaces) -> dict[bytes, int]:
    """Rows of a form by the bytes of their subspaces; -1 for those that stand there twice."""
    rows: dict[bytes, int] = {}
    for row in range(len(form)):
        name = form.origin[row].tobytes() + form.basis[row].tobytes()
        rows[name] = -1 if name in rows else row
    return rows


def with_equal(nearest: NearestTwo, pairs: Int64[np.ndarray, "pairs 2"]) -> NearestTwo:
    """The nearest two of each feature with its equal one first, at distance 0, where it has one."""
    left, right = pairs.T

    def first(
        neighbors: Int64[np.ndarray, "features 2"], apart: Float64[np.ndarray, "features 2"], own: np.ndarray, other: np.ndarray
    ) -> tuple[Int64[np.ndarray, "features 2"], Float64[np.ndarray, "features 2"]]:
        neighbors, apart = neighbors.copy(), apart.copy()
        neighbors[own, 1], apart[own, 1] = neighbors[own, 0], apart[own, 0]
        neighbors[own, 0], apart[own, 0] = other, 0.0
        return neighbors, apart

    right_of_left, left_distance = first(nearest.right_of_left, nearest.left_distance, left, right)
    left_of_right, right_distance = first(nearest.left_of_right, nearest.right_distance, right, left)
    return NearestTwo(
        right_of_left=right_of_left,
        left_distance=left_distance,
        left_of_right=left_of_right,
        right_distance=right_distance,
    )


def decoy_distance(left: Flat, right: Flat) -> float:
    """Distance up to which two subspaces may meet in a decoy, dithered twice; 0 where points or centroids are compared.

    Theory: distances.md#shared-decoys.
    """
    if isinstance(left, Points) or isinstance(right, Points) or not left.profile == right.profile == "hardened":
        return 0.0
    return left.space.decoy_distance


def _beyond(left: Flat, right: Flat, meets: float, options: MatchOptions) -> NearestTwo:
    """Nearest two neighbors of each feature of both sides that are farther away than `meets`.

    Of a feature that has no two among its `NEIGHBORS` nearest, the distances are infinite.
    """

    def one_way(queries: Flat, database: Flat) -> tuple[Int64[np.ndarray, "_ 2"], Float64[np.ndarray, "_ 2"]]:
        neighbors = distances.nearest(
            as_set(queries), as_set(database), NEIGHBORS, backend=options.backend, threads=options.threads
        )
        beyond = np.where(neighbors.distance > meets, neighbors.distance, np.inf)
        places = np.argsort(beyond, axis=1, kind="stable")[:, :2]
        kept = np.take_along_axis(beyond, places, axis=1)
        return np.where(np.isfinite(kept), np.take_along_axis(neighbors.index, places, axis=1), -1), kept

    right_of_left, left_distance = one_way(left, right)
    left_of_right, right_distance = one_way(right, left)
    return NearestTwo(
        right_of_left=right_of_left,
        left_distance=left_distance,
        left_of_right=left_of_right,
        right_distance=right_distance,
    )


def as_set(form: Flat) -> distances.FeatureSet:
    """Origins and bases of a form, as `veil.distances` takes them; points have no basis (None)."""
    return (form.vectors, None) if isinstance(form, Points) else (form.origin, form.basis)


def _match_words(left: Form, right: Form, options: MatchOptions) -> Matches:
    """Match two forms in words, ratios of weights in place of distances. Raises SpaceError unless both are in words."""
    if not (isinstance(left, Subsets) and isinstance(right, Subsets)):
        raise SpaceError(
            "words have no distance to descriptors or subspaces; release both sides in words of one dictionary, or localize "
            "words against a public map"
        )
    indices, ratios = mutual_best(shared_word_weights(left, right))
    passed = np.ones(len(indices), dtype=bool) if options.max_ratio is None else ratios <= options.max_ratio
    return Matches(indices=indices[passed], distances=ratios[passed], ratios=ratios[passed])


def distance_name(left: Form, right: Form) -> str:
    """Name of the distance that `match` uses: "point", "p2s" or "s2s", or "words" if it counts shared words."""
    if isinstance(left, Subsets) or isinstance(right, Subsets):
        return "words"
    return ("point", "p2s", "s2s")[(not isinstance(left, Points)) + (not isinstance(right, Points))]


def _mutual(nearest: NearestTwo, options: MatchOptions) -> Matches:
    """Matches of mutual nearest neighbors that pass the ratio test."""
    left = np.flatnonzero(nearest.right_of_left[:, 0] >= 0)
    right = nearest.right_of_left[left, 0]
    kept = nearest.left_of_right[right, 0] == left
    left, right = left[kept], right[kept]
    ratios = np.maximum(
        _ratio(nearest.left_distance[left]),
        _ratio(nearest.right_distance[right]),
    )
    passed = np.ones(len(left), dtype=bool) if options.max_ratio is None else ratios <= options.max_ratio
    return Matches(
        indices=np.stack([left, right], axis=1)[passed],
        distances=nearest.left_distance[left, 0][passed],
        ratios=ratios[passed],
    )


def _ratio(two: Float64[np.ndarray, "features 2"]) -> Float64[np.ndarray, "features"]:
    """Nearest over second nearest distance: 1 if both are zero (a tie), 0 if there is no second neighbor (at infinity)."""
    tie = two[:, 1] == 0
    return np.where(tie, 1.0, two[:, 0] / np.where(tie, 1.0, two[:, 1]))


def shared_word_weights(left: Subsets, right: Subsets) -> Any:
    """Sparse matrix (left features, right features) of the weights of pairs that share words.

    Each shared word adds 1 / (number of left features with it * number of right ones). A word that only these two features have
    adds 1: it is either their true word or a coincidence. Raises SpaceError if the words are not of one dictionary.
    """
    require_same(left.space, right.space)
    if left.dictionary != right.dictionary or left.mechanism.dictionary_size != right.mechanism.dictionary_size:
        raise SpaceError(
            f"words of different dictionaries cannot be compared ({left.dictionary[:12]} and {right.dictionary[:12]}); "
            "release both with the same dictionary"
        )
    a, b = _incidence(left), _incidence(right)
    return (_weighted(a) @ _weighted(b).T).tocsr()


def mutual_best(weights: Any) -> tuple[Int64[np.ndarray, "pairs 2"], Float64[np.ndarray, "pairs"]]:
    """Pairs (row, column) that are the heaviest of both features, and their ratios of second best to best weight.

    The ratio is the worse (larger) one of both features. Of equal rivals none is a match.
    """
    entries = weights.tocoo()
    rows, columns, values = entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data.astype(np.float64)
    keep = np.ones(len(values), dtype=bool)
    ratio = np.zeros(len(values))
    for side, count in ((rows, weights.shape[0]), (columns, weights.shape[1])):
        best, second = _two_best(side, values, count)
        keep &= values == best[side]
        ratio = np.maximum(ratio, second[side] / best[side])
    keep &= ratio < 1 - TIE
    return np.stack([rows[keep], columns[keep]], axis=1), ratio[keep]


def _two_best(
    side: Int64[np.ndarray, "entries"], values: Float64[np.ndarray, "entries"], count: int
) -> tuple[Float64[np.ndarray, "features"], Float64[np.ndarray, "features"]]:
    """Largest and second largest of `values` for each of `count` features; 0 where there is none. Value i is of `side[i]`."""
    order = np.lexsort((-values, side))
    first = np.flatnonzero(np.diff(side[order], prepend=-1))
    best, second = np.zeros(count), np.zeros(count)
    best[side[order[first]]] = values[order[first]]
    has_second = np.flatnonzero((np.append(first[1:], len(order)) - first) > 1)
    second[side[order[first[has_second]]]] = values[order[first[has_second] + 1]]
    return best, second


def _incidence(form: Subsets) -> Any:
    """Sparse matrix (features, words of the dictionary) with 1 for each word of a feature."""
    from scipy.sparse import csr_array

    rows = np.repeat(np.arange(len(form)), form.m)
    shape = (len(form), form.mechanism.dictionary_size)
    return csr_array((np.ones(len(rows)), (rows, form.ids.ravel().astype(np.int64))), shape=shape)


def _weighted(incidence: Any) -> Any:
    """Incidence matrix with each word's column divided by the number of features that have the word."""
    counts = np.asarray(incidence.sum(axis=0)).ravel()
    return (incidence.multiply(1 / np.maximum(counts, 1))).tocsr()
