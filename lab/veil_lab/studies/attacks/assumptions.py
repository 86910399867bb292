"""Two assumptions of attacks on lifted descriptors, by dimension and number of words ([P23], supplement, Sec. S3).

Each descriptor d becomes a subspace through d and h = m / 2 words, with m / 2 random directions (hybrid lifting). The database
and the clustering attack assume that a subspace meets the manifold of descriptors at these h + 1 points alone (Table S2). The
clustering attack assumes also that other subspaces with the same words pass far from d (Table S3). Both are numbers of a pool
of words, known before a release.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import InputError, RangeError

LISTS = (50, 20, 10, 5)  # N, numbers of words next to a subspace, as in Table S2
RATIO = 0.8
# Numbers of descriptors that are lifted, about those of ten photographs as in Table S3, and of subspaces that are measured.
LIFTED, MEASURED = 10_000, 300
# Parts of the words, which are shuffled, so that a part is a pool of fewer.
PARTS, LEAST_WORDS = (1, 4, 16), 128


class MatchedJson(TypedDict):
    """Share of the words next to a subspace, `nearest` of them, that lie near one of its points."""

    nearest: int
    share: float


class AssumptionsJson(TypedDict):
    """Both assumptions at one dimension and number of words."""

    m: int
    words: int
    lifted: int
    subspaces: int
    matched: list[MatchedJson]
    judged: int
    apart: int


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """Both assumptions for `subspaces` of the `lifted` subspaces of dimension `m`, with decoys out of `words` words.

    - `matched`: for each N, the share of the N words next to a subspace that lie near one of its h + 1 points, by a ratio test
      of the distances to the nearest and the second nearest point (Table S2).
    - `judged`: number of subspaces all of whose words lie on other subspaces, too. The clustering attack assumes it.
    - `apart`: number of these without a collision (Table S3): the other subspaces pass farther from d than from each word.
    """

    m: int
    words: int
    lifted: int
    subspaces: int
    matched: dict[int, float]
    judged: int
    apart: int

    def as_json(self) -> AssumptionsJson:
        """The subspaces' part of the record of `veil lab quality`."""
        return {
            "m": self.m,
            "words": self.words,
            "lifted": self.lifted,
            "subspaces": self.subspaces,
            "matched": [{"nearest": count, "share": share} for count, share in self.matched.items()],
            "judged": self.judged,
            "apart": self.apart,
        }


def assumptions(
    descriptors: Float64[np.ndarray, "rows dim"],
    words: Float64[np.ndarray, "words dim"],
    *,
    m: int,
    measured: int = MEASURED,
    seed: int = 0,
) -> Assumptions:
    """Both assumptions for the first `measured` of the `descriptors`; all of them are lifted.

    `descriptors` and `words` have unit length. [P23] judges collisions by its clusters, which it does not define. Here each of
    the h + 1 points is known as well as its nearest descriptor of another row shows it, as by a center of a cluster.
    Raises RangeError if m is odd, below 2, or not below the dimension, and InputError if there are too few words or rows.
    """
    require_dimension(m, descriptors.shape[1])
    least = max(*LISTS, m // 2) + 1
    if len(words) < least or len(descriptors) < 2:
        raise InputError(
            f"{len(words)} words and {len(descriptors)} descriptors are too few: for m = {m} at least {least} words "
            "and two descriptors are needed"
        )
    lifting = HybridSubspaces(descriptors, words, m=m, seed=seed)
    rows = range(min(measured, len(descriptors)))
    shares = [lifting.matched(row) for row in rows]
    collisions = [found for row in rows if (found := lifting.collides(row)) is not None]
    return Assumptions(
        m=m,
        words=len(words),
        lifted=len(descriptors),
        subspaces=len(rows),
        matched={count: float(np.mean([share[count] for share in shares])) for count in LISTS},
        judged=len(collisions),
        apart=collisions.count(False),
    )


class HybridSubspaces:
    """Hybrid subspaces of unit `descriptors`: `decoys` are rows of `words`, h for each descriptor (m even).

    Directions at random depend on the seed and the row, so that a basis is made, and kept, when it is needed.
    """

    def __init__(
        self,
        descriptors: Float64[np.ndarray, "rows dim"],
        words: Float64[np.ndarray, "words dim"],
        *,
        m: int,
        seed: int,
    ) -> None:
        self.descriptors, self.words, self.m, self.seed = descriptors, words, m, seed
        random = np.random.default_rng(seed)
        drawn = [random.choice(len(words), m // 2, replace=False) for _ in range(len(descriptors))]
        self.decoys: Int64[np.ndarray, "rows decoys"] = np.stack(drawn)
        self._bases: dict[int, np.ndarray] = {}
        self._users: dict[int, list[int]] = defaultdict(list)  # rows that have a word
        for row, words_of_row in enumerate(self.decoys.tolist()):
            for word in words_of_row:
                self._users[word].append(row)

    def basis(self, row: int) -> Float64[np.ndarray, "dim m"]:
        """Orthonormal directions of the subspace of a row."""
        if row in self._bases:
            return self._bases[row]
        around = np.random.default_rng([self.seed, row]).normal(size=(self.m // 2, self.words.shape[1]))
        directions = np.concatenate([self.words[self.decoys[row]] - self.descriptors[row], around])
        self._bases[row] = np.linalg.qr(directions.T)[0]
        return self._bases[row]

    def distances(self, points: Float64[np.ndarray, "points dim"], row: int) -> Float64[np.ndarray, "points"]:
        """Distances of points to the subspace of a row."""
        origin, basis = self.descriptors[row], self.basis(row)
        apart = np.einsum("ij,ij->i", points, points) - 2 * (points @ origin) + origin @ origin
        along = points @ basis - origin @ basis
        return np.sqrt(np.maximum(apart - np.einsum("ij,ij->i", along, along), 0.0))

    def corners(self, row: int) -> Float64[np.ndarray, "corners dim"]:
        """The descriptor of a row, and its words."""
        return np.concatenate([self.descriptors[row][None], self.words[self.decoys[row]]])

    def matched(self, row: int) -> dict[int, float]:
        """For each N, the share of the N words next to the subspace of a row that pass the ratio test (Table S2)."""
        distances = self.distances(self.words, row)
        nearest = np.argpartition(distances, max(LISTS))[: max(LISTS)]
        nearest = nearest[np.argsort(distances[nearest], kind="stable")]
        to_corners = np.sort(np.linalg.norm(self.words[nearest][:, None] - self.corners(row), axis=2), axis=1)
        passed = to_corners[:, 0] <= RATIO * to_corners[:, 1]
        return {count: float(passed[:count].mean()) for count in LISTS}

    def collides(self, row: int) -> bool | None:
        """Whether others pass as near to the descriptor of a row as to one of its words; None if a word has no other user."""
        users = [{*self._users[word]} - {row} for word in self.decoys[row].tolist()]
        if not all(users):
            return None
        products = self.descriptors @ self.corners(row).T
        products[row] = -np.inf
        seen = self.descriptors[products.argmax(axis=0)]  # the corners as their nearest descriptors of other rows show them
        least = np.min([self.distances(seen, other) for other in set[int]().union(*users)], axis=0)
        return bool(least[0] <= least[1:].max())


def require_dimension(m: int, dim: int) -> None:
    """Raise RangeError if a hybrid subspace of `dim` dimensions cannot have dimension `m`, half of which are words."""
    if m % 2 or not 2 <= m < dim:
        raise RangeError(f"m must be even, at least 2 and below the dimension {dim}, got {m!r}: half of a subspace are words")


def word_counts(words: int) -> list[int]:
    """Numbers of words that are measured: all, a quarter and a sixteenth, as long as that is no handful."""
    return [words // part for part in PARTS if part == 1 or words // part >= LEAST_WORDS]
