"""Attribute inference: the class of a released feature by the vote of its nearest labelled descriptors ([D21] Sec. 4.3).

The attacker owns labelled descriptors, for example of faces, and lets the K nearest of them vote on the label of each released
feature: by the distance of points, of a point to a subspace, or through words.

Theory: docs/theory/word_attacks.md, Eq. 12-13.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.attacks.words.posterior import posterior
from veil.codebooks.codebook import Codebook
from veil.distances import pairwise
from veil.errors import InputError, RangeError, SpaceError
from veil.forms import Form, Points, Subsets
from veil.progress import Progress
from veil.space import Space, require_same

NEIGHBORS = 10  # K of Dusmanu et al. 2021, Sec. 4.3
CHUNK_DISTANCES = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """Descriptors of the attacker's own with the class of each: `labels` are indices into `classes`."""

    vectors: Float32[np.ndarray, "_ _"]
    labels: Int64[np.ndarray, "_"]
    classes: tuple[str, ...]
    space: Space

    def __post_init__(self) -> None:
        if self.vectors.shape != (len(self.labels), self.space.dim) or not len(self.labels):
            raise InputError(f"labelled descriptors must be (N, {self.space.dim}) with N labels, got {self.vectors.shape}")
        if not np.isfinite(self.vectors).all():
            raise InputError("labelled descriptors contain NaN or infinity; drop those rows")
        if not (self.labels.min() >= 0 and self.labels.max() < len(self.classes)):
            raise InputError(f"a label lies outside the {len(self.classes)} classes")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shares(self) -> Float64[np.ndarray, "_"]:
        """Share of each class among the descriptors."""
        return np.bincount(self.labels, minlength=len(self.classes)) / len(self)

    @property
    def majority(self) -> int:
        """Most frequent class: the best answer without a look at the feature, whose accuracy is called chance."""
        return int(self.shares.argmax())


@dataclass(frozen=True, kw_only=True, eq=False)
class Inferred:
    """Predicted class of each feature, its share of the votes (`score`), and the votes of all classes, which sum to 1."""

    labels: Int64[np.ndarray, "_"]
    score: Float64[np.ndarray, "_"]
    votes: Float64[np.ndarray, "_ _"]

    def __len__(self) -> int:
        return len(self.labels)


def infer(
    form: Form,
    known: Labelled,
    *,
    neighbors: int = NEIGHBORS,
    dictionary: Codebook | None = None,
    progress: Progress | None = None,
) -> Inferred:
    """Class of each released feature by the vote of the `neighbors` nearest descriptors of `known`.

    The distance of a subspace to a descriptor is that of its nearest point (docs/theory/word_attacks.md, Eq. 12). For a subset
    of words, the neighbors of each word vote, weighed by the word's posterior, and the shares of the classes stand for the
    other words (docs/theory/word_attacks.md, Eq. 13); this needs the `dictionary`. Of classes with as many votes the one with
    the nearer neighbors is taken. Raises SpaceError if the labelled descriptors are not in the form's space or the dictionary
    is another one, InputError for words without a dictionary, RangeError for more neighbors than there are.
    """
    if not 1 <= neighbors <= len(known):
        raise RangeError(f"neighbors must be between 1 and the {len(known)} labelled descriptors, got {neighbors!r}")
    require_same(known.space, form.space)
    if isinstance(form, Subsets):
        ranked = _votes_of_words(form, known, neighbors, dictionary, progress)
    else:
        features = (form.vectors, None) if isinstance(form, Points) else (form.origin, form.basis)
        ranked = _votes(features, known, neighbors, progress)
    labels = ranked.argmax(axis=1).astype(np.int64)
    votes = ranked / ranked.sum(axis=1, keepdims=True)
    return Inferred(labels=labels, score=votes[np.arange(len(labels)), labels], votes=votes)


def _votes(
    features: tuple[np.ndarray, np.ndarray | None], known: Labelled, neighbors: int, progress: Progress | None
) -> Float64[np.ndarray, "features classes"]:
    """Votes of the nearest labelled descriptors for each class.

    Votes of nearer neighbors weigh slightly more, which decides ties: all extra weights together are less than one vote.
    """
    origin, basis = features
    # Together the extra weights stay below 1e-3.
    weight = 1 + 1e-3 * (neighbors - np.arange(neighbors)) / neighbors**2
    votes = np.zeros((len(origin), len(known.classes)))
    chunk = max(CHUNK_DISTANCES // len(known), 1)
    for start in range(0, len(origin), chunk):
        part = slice(start, start + chunk)
        distance = pairwise((origin[part], None if basis is None else basis[part]), (known.vectors, None))
        nearest = np.argpartition(distance, neighbors - 1, axis=1)[:, :neighbors]
        order = np.argsort(np.take_along_axis(distance, nearest, axis=1), axis=1, kind="stable")
        labels = known.labels[np.take_along_axis(nearest, order, axis=1)]
        rows = np.repeat(np.arange(len(labels)), neighbors)
        np.add.at(votes[part], (rows, labels.ravel()), np.tile(weight, len(labels)))
        if progress is not None:
            progress(min(start + chunk, len(origin)), len(origin))
    return votes


def _votes_of_words(
    form: Subsets, known: Labelled, neighbors: int, dictionary: Codebook | None, progress: Progress | None
) -> Float64[np.ndarray, "features classes"]:
    """Votes for each class through the words of each subset, weighed by their posterior (Eq. 13)."""
    if dictionary is None:
        raise InputError("words say nothing without their dictionary; give the codebook that the release names")
    if dictionary.digest != form.dictionary:
        raise SpaceError(f"the release is in words of {form.dictionary[:12]}, this dictionary is {dictionary.digest[:12]}")
    used = np.unique(form.ids)
    word_votes = _votes((dictionary.vectors[used], None), known, neighbors, progress)
    word_votes /= word_votes.sum(axis=1, keepdims=True)
    beliefs = posterior(form)
    votes = np.einsum("fm,fmc->fc", beliefs.probability, word_votes[np.searchsorted(used, beliefs.words)])
    rest = np.maximum(1 - beliefs.probability.sum(axis=1, keepdims=True), 0.0)
    return votes + rest * known.shares
