"""Retrieval of the map images that a query looks like, from its private words alone (docs/theory/words.md, Eq. 12-13).

The query is a bag of words without the mechanism's bias: how often a word was sent tells, on average, how often it is the true
one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.errors import InputError
from veil.forms import Subsets
from veil.matching.inverted_index import InvertedIndex, rarity, unit_vectors


def word_counts(form: Subsets) -> Float64[np.ndarray, "words"]:
    """Unbiased estimates of how many features have each word as their true one; an estimate may be negative.

    A word is sent with probability p by a feature whose true word it is, and with q by any other, so that the estimate for n
    features is (sent - n q) / (p - q) (docs/theory/words.md, Eq. 12). All are zero if epsilon is 0.
    """
    sent = np.bincount(form.ids.ravel().astype(np.int64), minlength=form.mechanism.dictionary_size).astype(np.float64)
    truth, other = float(form.mechanism.truth), float(form.mechanism.other)
    if truth <= other:  # epsilon is 0: the words say nothing
        return np.zeros_like(sent)
    return (sent - len(form) * other) / (truth - other)


def image_scores(form: Subsets, index: InvertedIndex) -> Float64[np.ndarray, "images"]:
    """Similarity of a query to each image of the map: the product of their TF-IDF vectors (docs/theory/words.md, Eq. 13).

    The image's vector has unit length, the query's has not. The product is linear in the estimated counts, and so unbiased,
    too. Raises SpaceError for words of another dictionary.
    """
    index.require(form)
    return np.asarray(index.image_vectors @ (index.word_weights * word_counts(form))).ravel()


def most_similar(form: Subsets, index: InvertedIndex, count: int) -> Int64[np.ndarray, "_"]:
    """Rows in `index.image_names` of the `count` map images that a query looks most like, the best first."""
    return np.argsort(-image_scores(form, index), kind="stable")[:count].astype(np.int64)


def words_in_common(
    images: Sequence[Subsets | Float64[np.ndarray, "words"]],
) -> Float32[np.ndarray, "images images"]:
    """Similarity of images by their words: the product of unit TF-IDF vectors of each two (docs/theory/words.md, Eq. 13).

    An image is given by its words as they were sent, or by how many of its features have each word. Raises InputError for
    images of several dictionaries.
    """
    from scipy.sparse import csr_matrix, vstack

    counts = [word_counts(image) if isinstance(image, Subsets) else np.asarray(image) for image in images]
    if (
        len(
            {
                (image.dictionary if isinstance(image, Subsets) else "", len(count))
                for image, count in zip(images, counts, strict=True)
            }
        )
        > 1
    ):
        raise InputError("images in words of several dictionaries do not compare; release them with one")
    bags = vstack([csr_matrix(count.astype(np.float32)) for count in counts]).tocsr()
    images_with = np.asarray((bags > 0).sum(axis=0)).ravel()
    unit = unit_vectors(bags, rarity(images_with, len(images)))
    return np.asarray((unit @ unit.T).todense(), dtype=np.float32)
