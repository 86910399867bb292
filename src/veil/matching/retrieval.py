"""Which images of a map a query looks like, from its private words alone (docs/theory/words.md, Eq. 12-13).

A bag of words with the mechanism's bias removed: how often a word was sent says, on average, how often it is the true one.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64

from veil.forms import Subsets
from veil.matching.inverted_index import InvertedIndex


def word_counts(form: Subsets) -> Float64[np.ndarray, "words"]:
    """Unbiased estimates of how many features have each word as their true one; single ones may be negative.

    A word is sent with probability p by a feature whose true word it is, with q by any other: (sent - n q) / (p - q).
    """
    sent = np.bincount(form.ids.ravel().astype(np.int64), minlength=form.mechanism.dictionary_size).astype(np.float64)
    truth, other = float(form.mechanism.truth), float(form.mechanism.other)
    if truth <= other:  # epsilon is 0: the words say nothing
        return np.zeros_like(sent)
    return (sent - len(form) * other) / (truth - other)


def image_scores(form: Subsets, vocabulary: InvertedIndex) -> Float64[np.ndarray, "images"]:
    """Similarity of a query to each image of the map: the product of their TF-IDF vectors, that of the image of unit length.

    Linear in the estimated counts, so it is unbiased, too. Raises SpaceError for words of another dictionary.
    """
    vocabulary.require(form)
    seen_in = np.bincount(vocabulary.image_words.indices, minlength=vocabulary.dictionary_size)
    images = len(vocabulary.image_names)
    idf = np.log((1 + images) / (1 + seen_in)) + math.log(2) / 2  # a word of every image keeps a little weight
    weighted = vocabulary.image_words.multiply(idf).tocsr()
    length = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    return np.asarray(weighted @ (idf * word_counts(form))).ravel() / np.maximum(length, 1e-300)


def most_similar(form: Subsets, vocabulary: InvertedIndex, count: int) -> Int64[np.ndarray, "_"]:
    """The `count` images of the map that a query looks most like, best first."""
    return np.argsort(-image_scores(form, vocabulary), kind="stable")[:count].astype(np.int64)
