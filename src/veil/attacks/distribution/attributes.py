"""Attribute inference: what neighbors with known labels say of a released feature ([D21] Sec. 4.3; Eq. 12-13).

Equations: docs/theory/word_attacks.md. The attacker owns labelled descriptors, for example of faces, and lets the K nearest of
them vote on the label of each released feature: by the distance of points, of a point to a subspace, or through words.
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
    """The attacker's own descriptors with the class of each: `labels` number the `classes`."""

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
        """Share of each class."""
        return np.bincount(self.labels, minlength=len(self.classes)) / len(self)

    @property
    def majority(self) -> int:
        """The most frequent class: what to answer without looking, right as often as chance is."""
        return int(self.shares.argmax())


@dataclass(frozen=True, kw_only=True, eq=False)
class Inferred:
    """For each feature the predicted class, its share of the votes, and the votes of all classes, which sum to 1."""

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
    """The class of each released feature by the vote of the `neighbors` nearest labelled descriptors (Eq. 12).

    A subspace is as far from a descriptor as its nearest point. A subset of words votes by the neighbors of each word, weighed
    by the word's posterior, and by the shares of the classes for the rest (Eq. 13); it needs its `dictionary`. Of classes with
    as many votes the one with the nearer neighbors is taken. Raises SpaceError if the labelled descriptors are not in the
    form's space, RangeError for more neighbors than there are.
    """
    if not 1 <= neighbors <= len(known):
        raise RangeError(f"neighbors must be between 1 and the {len(known)} labelled descriptors, got {neighbors!r}")
    require_same(known.space, form.space)
    if isinstance(form, Subsets):
        ranked = _of_words(form, known, neighbors, dictionary, progress)
    else:
        pair = (form.vectors, None) if isinstance(form, Points) else (form.origin, form.basis)
        ranked = _voted(pair, known, neighbors, progress)
    labels = ranked.argmax(axis=1).astype(np.int64)
    votes = ranked / ranked.sum(axis=1, keepdims=True)
    return Inferred(labels=labels, score=votes[np.arange(len(labels)), labels], votes=votes)


def _voted(
    features: tuple[np.ndarray, np.ndarray | None], known: Labelled, neighbors: int, progress: Progress | None
) -> Float64[np.ndarray, "features classes"]:
    """Votes of the nearest; a nearer neighbor's weighs more by less than any whole vote, which decides ties."""
    origin, basis = features
    # Together the extra weights stay below 1e-3.
    weight = 1 + 1e-3 * (neighbors - np.arange(neighbors)) / neighbors**2
    votes = np.zeros((len(origin), len(known.classes)))
    chunk = max(CHUNK_DISTANCES // len(known), 1)
    for start in range(0, len(origin), chunk):
        part = slice(start, start + chunk)
        apart = pairwise((origin[part], None if basis is None else basis[part]), (known.vectors, None))
        nearest = np.argpartition(apart, neighbors - 1, axis=1)[:, :neighbors]
        order = np.argsort(np.take_along_axis(apart, nearest, axis=1), axis=1, kind="stable")
        labels = known.labels[np.take_along_axis(nearest, order, axis=1)]
        rows = np.repeat(np.arange(len(labels)), neighbors)
        np.add.at(votes[part], (rows, labels.ravel()), np.tile(weight, len(labels)))
        if progress is not None:
            progress(min(start + chunk, len(origin)), len(origin))
    return votes


def _of_words(
    form: Subsets, known: Labelled, neighbors: int, dictionary: Codebook | None, progress: Progress | None
) -> Float64[np.ndarray, "features classes"]:
    if dictionary is None:
        raise InputError("words say nothing without their dictionary; give the codebook that the release names")
    if dictionary.digest != form.dictionary:
        raise SpaceError(f"the release is in words of {form.dictionary[:12]}, this dictionary is {dictionary.digest[:12]}")
    used = np.unique(form.ids)
    of_word = _voted((dictionary.vectors[used], None), known, neighbors, progress)
    of_word /= of_word.sum(axis=1, keepdims=True)
    beliefs = posterior(form)
    voted = np.einsum("fm,fmc->fc", beliefs.probability, of_word[np.searchsorted(used, beliefs.words)])
    rest = np.maximum(1 - beliefs.probability.sum(axis=1, keepdims=True), 0.0)
    return voted + rest * known.shares
