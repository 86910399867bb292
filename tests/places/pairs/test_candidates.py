"""Candidates of a sequence, of similar images, of common partners and of a list: against enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.matching.retrieval import words_in_common
from veil.places.pairs.candidates import expanded_pairs, require_listed, sequential_pairs, similar_pairs
from worlds import generator

NAMES = [f"{number:03}" for number in range(200)]


def test_a_sequence_pairs_neighbors_and_powers_of_two() -> None:
    """Enumeration of all pairs by their distance in the sequence."""
    expected = {(a, b) for a, b in combinations(NAMES, 2) if int(b) - int(a) in {1, 2, 3, 4, 8}}
    pairs = sequential_pairs(NAMES, overlap=3)
    assert set(pairs) == expected and len(pairs) == len(expected)
    with pytest.raises(RangeError, match="overlap"):
        sequential_pairs(NAMES, overlap=0)


def test_similar_pairs_are_the_best_of_each_image() -> None:
    """Enumeration: a pair is listed if one of its images is among the best of the other; nothing pairs with the dissimilar."""
    chance = generator("similar pairs").normal(size=(30, 30))
    scores = chance + chance.T
    scores[7], scores[:, 7] = -1.0, -1.0
    names = NAMES[:30]
    expected = set()
    for a in range(30):
        best = sorted((b for b in range(30) if b != a), key=lambda b: -scores[a, b])[:4]
        expected |= {tuple(sorted((names[a], names[b]))) for b in best if scores[a, b] > 0}
    assert similar_pairs(names, scores, count=4) == sorted(expected)
    assert not any(names[7] in pair for pair in expected)
    with pytest.raises(RangeError, match="count"):
        similar_pairs(names, scores, count=0)


def test_pairs_with_a_common_partner_are_added_once() -> None:
    """Enumeration: a chain a-b-c-d suggests a-c and b-d, not a-d; what was tried is not suggested again."""
    chain = [("a", "b"), ("c", "b"), ("c", "d")]
    assert expanded_pairs(chain, chain) == [("a", "c"), ("b", "d")]
    assert expanded_pairs(chain, [*chain, ("c", "a")]) == [("b", "d")]
    assert expanded_pairs([], chain) == []


def test_lists_of_unknown_images_are_refused() -> None:
    names = dict.fromkeys(["a", "b", "c"])
    assert require_listed([("a", "b"), ("b", "a"), ("b", "c")], names) == [("b", "a"), ("b", "c")]
    with pytest.raises(InputError, match=r"'x'.*called a, b, c"):
        require_listed([("a", "x")], names)
    with pytest.raises(InputError, match="itself"):
        require_listed([("a", "a")], names)


def test_words_in_common_are_products_of_tf_idf_vectors() -> None:
    """Second method: Eq. 13 of docs/theory/words.md written out for dense counts."""
    counts = generator("words in common").integers(0, 3, size=(5, 40)).astype(np.float64)
    idf = np.log((1 + 5) / (1 + (counts > 0).sum(axis=0))) + np.log(2) / 2
    unit = counts * idf
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    np.testing.assert_allclose(words_in_common(list(counts)), unit @ unit.T, rtol=1e-5)
