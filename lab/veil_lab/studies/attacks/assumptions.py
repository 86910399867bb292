"""Two assumptions of attacks on lifted descriptors, by dimension and number of words ([P23], supplement, Sec. S3).

Each descriptor d becomes a subspace through d and h = m / 2 words, with m / 2 random directions (hybrid lifting of [D21]). The
database and the clustering attack assume that a subspace meets the manifold of descriptors at these h + 1 points alone (Table
S2). The clustering attack assumes also that other subspaces with the same words pass far from d (Table S3). Both are numbers of
a pool of words, known before a release.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypedDict

import numpy as np
from jaxtyping import Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.codebooks.kmeans import Descriptors
from veil.distances import nearest, pairwise
from veil.errors import InputError, RangeError
from veil.features import Features, unit_length
from veil.forms import Subspaces
from veil.geometry.camera import guessed
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded
from veil_lab.studies.attacks.distribution import RecordingRule

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


def assumptions(descriptors: Descriptors, words: Codebook, *, m: int, measured: int = MEASURED, seed: int = 0) -> Assumptions:
    """Both assumptions for the first `measured` of the `descriptors`; all of them are lifted with decoys out of `words`.

    `descriptors` are raw ones of the words' kind, uint8 or float32 (rows, dim). [P23] judges collisions by its clusters, which
    it does not define. Here each of the h + 1 points is known as well as its nearest descriptor of another row shows it, as by
    a center of a cluster. Raises RangeError if m is odd, below 2, or not below the dimension, and InputError if there are too
    few words or rows.
    """
    require_dimension(m, words.dim)
    least = max(*LISTS, m // 2) + 1
    if len(words) < least or len(descriptors) < 2:
        raise InputError(
            f"{len(words)} words and {len(descriptors)} descriptors are too few: for m = {m} at least {least} words "
            "and two descriptors are needed"
        )
    lifting = hybrid_subspaces(descriptors, words, m=m, seed=seed)
    rows = np.arange(min(measured, len(descriptors)))
    shares = lifting.matched(rows)
    collisions = [found for row in rows.tolist() if (found := lifting.collides(row)) is not None]
    return Assumptions(
        m=m,
        words=len(words),
        lifted=len(descriptors),
        subspaces=len(rows),
        matched=shares,
        judged=len(collisions),
        apart=collisions.count(False),
    )


def hybrid_subspaces(descriptors: Descriptors, words: Codebook, *, m: int, seed: int) -> HybridSubspaces:
    """Descriptors lifted by the strategy "hybrid" of [D21], and the decoys of each; `seed` names the draws."""
    features = Features(
        keypoints=np.zeros((len(descriptors), 2), dtype=np.float32),
        descriptors=descriptors,
        space=words.raw_space,
        camera=guessed(1, 1),
        image_digest=bytes(32),
    )
    recorded = RecordingRule()
    form = lift(
        features,
        profile=replace(Profile.paper(m, "hybrid"), decoys=words.kind),
        compression=words.compression,
        decoys=words,
        randomness=seeded(f"assumptions {seed}"),
        rule=recorded,
    ).form
    return HybridSubspaces(
        form=form,
        descriptors=unit_length(descriptors.astype(np.float64)),
        words=words.vectors.astype(np.float64),
        decoys=np.concatenate(recorded.chosen),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class HybridSubspaces:
    """Subspaces of the unit `descriptors`; `decoys` are rows of the unit `words`, h = m / 2 for each descriptor."""

    form: Subspaces
    descriptors: Float64[np.ndarray, "rows dim"]
    words: Float64[np.ndarray, "words dim"]
    decoys: Int64[np.ndarray, "rows decoys"]

    @cached_property
    def users(self) -> Mapping[int, set[int]]:
        """Rows of the subspaces that have a word, for each word that one has."""
        rows = defaultdict[int, set[int]](set)
        for row, words_of_row in enumerate(self.decoys.tolist()):
            for word in words_of_row:
                rows[word].add(row)
        return rows

    def corners(self, row: int) -> Float64[np.ndarray, "corners dim"]:
        """The descriptor of a row, and its words."""
        return np.concatenate([self.descriptors[row][None], self.words[self.decoys[row]]])

    def matched(self, rows: Int64[np.ndarray, "some"]) -> dict[int, float]:
        """For each N, the share of the N words next to each subspace of `rows` that pass the ratio test (Table S2)."""
        subspaces = self.form.origin[rows], self.form.basis[rows]
        found = nearest(subspaces, (self.words, None), max(LISTS)).index
        passed = []
        for row, near in zip(rows.tolist(), found, strict=True):
            to_corners = np.sort(pairwise((self.words[near], None), (self.corners(row), None)), axis=1)
            passed.append(to_corners[:, 0] <= RATIO * to_corners[:, 1])
        return {count: float(np.mean([one[:count] for one in passed])) for count in LISTS}

    def collides(self, row: int) -> bool | None:
        """Whether others pass as near to the descriptor of a row as to one of its words; None if a word has no other user."""
        users = [self.users[word] - {row} for word in self.decoys[row].tolist()]
        if not all(users):
            return None
        products = self.descriptors @ self.corners(row).T
        products[row] = -np.inf
        seen = self.descriptors[products.argmax(axis=0)]  # the corners as their nearest descriptors of other rows show them
        others = sorted(set[int]().union(*users))
        least = pairwise((seen, None), (self.form.origin[others], self.form.basis[others])).min(axis=1)
        return bool(least[0] <= least[1:].max())


def require_dimension(m: int, dim: int) -> None:
    """Raise RangeError if a hybrid subspace of `dim` dimensions cannot have dimension `m`, half of which are words."""
    if m % 2 or not 2 <= m < dim:
        raise RangeError(f"m must be even, at least 2 and below the dimension {dim}, got {m!r}: half of a subspace are words")


def word_counts(words: int) -> list[int]:
    """Numbers of words that are measured: all, a quarter and a sixteenth, as long as that is no handful."""
    return [words // part for part in PARTS if part == 1 or words // part >= LEAST_WORDS]
