"""Dictionaries made from the photographs of a map, for evaluations (the paper's "Aachen Ref.")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.dictionary import Dictionary
from veil.codebooks.kmeans import spherical_kmeans
from veil.errors import RangeError
from veil.features import Features
from veil.mechanisms.public import publish
from veil_lab.studies.localization.false_acceptance import Fold


def mapped(fold: Fold) -> list[Features]:
    """Raw features of the photographs that the fold's map holds."""
    return [fold.place.features[name] for name in fold.scene.images]


def most_words(images: Sequence[Features]) -> int:
    """Largest number of words that a dictionary of `images` may have: half the number of their descriptors."""
    return sum(len(item) for item in images) // 2


def dictionary_of(images: Sequence[Features], words: int, *, source: str, seed: int = 0, iterations: int = 8) -> Codebook:
    """A dictionary of `words` centroids (spherical k-means) of all descriptors of `images`.

    `source` is what the dictionary says of its origin. Raises RangeError unless there are twice as many descriptors as words.
    """
    vectors = np.concatenate([publish(item).vectors for item in images])
    if words > most_words(images):
        raise RangeError(f"{source}: {len(vectors)} descriptors cannot give {words} words; ask for fewer or extract more")
    centroids = list(spherical_kmeans(vectors, words, iterations=iterations, seed=seed))[-1]
    return Dictionary(
        descriptor=images[0].space.descriptor,
        normalization=images[0].space.normalization,
        stored=centroids,
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source=source, license="", image_count=len(images), descriptor_count=len(vectors)),
    )
