"""Matching of words with words, and with descriptors, against dense loops and planted pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from veil.errors import SpaceError
from veil.forms import Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.neighbors import mutual_best, shared_word_weights
from veil.space import Space
from worlds import generator, world
from worlds.word_uploads import random_ids
from worlds.word_worlds import dictionary_of, subsets, words_of

DIGEST = "ab" * 32
PLACE = world("neighbors of words", images=4, points=100)
DICTIONARY = dictionary_of(PLACE, others=400)


def form_of(name: str, count: int, *, words: int = 30, m: int = 3) -> Subsets:
    return subsets(
        random_ids(generator(name), count, m, words), SubsetMechanism(dictionary_size=words, epsilon=4.0, m=m), DIGEST
    )


def dense_weights(left: Subsets, right: Subsets) -> np.ndarray:
    """Slow reference: each word of both features adds 1 / (number of left features with it * number of right ones)."""
    weights = np.zeros((len(left), len(right)))
    for i, a in enumerate(left.ids.tolist()):
        for j, b in enumerate(right.ids.tolist()):
            for word in set(a) & set(b):
                weights[i, j] += 1 / ((left.ids == word).any(axis=1).sum() * (right.ids == word).any(axis=1).sum())
    return weights


def dense_best(weights: np.ndarray) -> dict[tuple[int, int], float]:
    """Slow reference: pairs heavier than all others of their row and their column, with the worse ratio of second to best."""
    best = {}
    for i, row in enumerate(weights):
        for j, weight in enumerate(row):
            rivals = max([*np.delete(row, j), *np.delete(weights[:, j], i), 0.0])
            if weight > rivals * (1 + 1e-9):
                best[i, j] = rivals / weight
    return best


@pytest.mark.parametrize("m", [(3, 3), (1, 4)])
def test_weights_are_those_of_the_double_loop(m: tuple[int, int]) -> None:
    left, right = form_of("left", 25, m=m[0]), form_of("right", 40, m=m[1])
    weights = shared_word_weights(left, right)
    np.testing.assert_allclose(weights.toarray(), dense_weights(left, right), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(shared_word_weights(right, left).toarray(), weights.toarray().T, rtol=1e-12)


@pytest.mark.parametrize("words", [12, 60, 400])
def test_mutual_best_pairs_are_those_of_the_double_loop(words: int) -> None:
    left, right = form_of(f"left {words}", 40, words=words), form_of(f"right {words}", 50, words=words)
    pairs, ratios = mutual_best(shared_word_weights(left, right))
    expected = dense_best(dense_weights(left, right))
    assert set(map(tuple, pairs.tolist())) == set(expected)
    for pair, ratio in zip(pairs.tolist(), ratios, strict=True):
        assert ratio == pytest.approx(expected[tuple(pair)], abs=1e-9)
    assert len(expected) > 3


def test_a_word_that_only_two_features_have_weighs_one() -> None:
    mechanism = SubsetMechanism(dictionary_size=20, epsilon=4.0, m=2)
    left = subsets(np.array([[1, 5], [2, 6], [2, 7]]), mechanism, DIGEST)
    right = subsets(np.array([[5, 9], [2, 11], [2, 12], [13, 14]]), mechanism, DIGEST)
    weights = shared_word_weights(left, right).toarray()
    assert weights[0, 0] == 1 and weights[1, 1] == weights[2, 2] == pytest.approx(1 / 4) and not weights[:, 3].any()
    pairs, ratios = mutual_best(shared_word_weights(left, right))
    np.testing.assert_array_equal(pairs, [[0, 0]])
    np.testing.assert_array_equal(ratios, [0.0])


def test_ties_give_no_match_in_either_direction() -> None:
    for tied in ([[1.0, 1.0]], [[1.0], [1.0]]):
        pairs, ratios = mutual_best(csr_array(np.array(tied)))
        assert len(pairs) == len(ratios) == 0
    pairs, ratios = mutual_best(csr_array(np.array([[1.0, 0.5], [0.0, 0.0]])))
    np.testing.assert_array_equal(pairs, [[0, 0]])
    np.testing.assert_array_equal(ratios, [0.5])


def test_ties_up_to_rounding_are_ties() -> None:
    """Equal sums that were added in different orders tie, so that neither matches: 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1."""
    a, b = (0.1 + 0.2) + 0.3, (0.3 + 0.2) + 0.1
    assert a != b
    assert len(mutual_best(csr_array(np.array([[a, b]])))[0]) == 0


def test_nothing_shared_gives_nothing() -> None:
    pairs, ratios = mutual_best(csr_array((3, 4), dtype=np.float64))
    assert pairs.shape == (0, 2) and ratios.shape == (0,)


def test_planted_views_match() -> None:
    """Two releases of views of one place match: right pairs share their true word, wrong ones a common word at most."""
    left, right = (words_of(PLACE.form(name), DICTIONARY, epsilon=8.0, name=name) for name in ("01", "02"))
    pairs, ratios = mutual_best(shared_word_weights(left, right))
    right_pairs = PLACE.visible["01"][pairs[:, 0]] == PLACE.visible["02"][pairs[:, 1]]
    assert len(pairs) > 40 and right_pairs[ratios < 0.3].mean() > 0.75


@pytest.mark.parametrize(
    "change",
    [
        dict(dictionary="cd" * 32),
        dict(mechanism=SubsetMechanism(dictionary_size=31, epsilon=4.0, m=3)),
        dict(space=Space(descriptor="sift", normalization="L1_ROOT", dim=128)),
    ],
)
def test_words_of_different_dictionaries_are_refused(change: dict) -> None:
    left, right = form_of("left", 5), form_of("right", 5)
    with pytest.raises(SpaceError):
        shared_word_weights(left, replace(right, **change))
