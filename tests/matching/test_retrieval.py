"""Retrieval from private words: unbiased counts, linear scores, and the order of a planted map."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from veil.errors import SpaceError
from veil.forms import Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.inverted_index import InvertedIndex, index_map
from veil.matching.retrieval import image_scores, most_similar, word_counts
from veil.mechanisms.words import randomized
from veil.randomness import seeded
from worlds import generator, world
from worlds.word_worlds import dictionary_of, scene_of, subsets, words_of

DIGEST = "cd" * 32


def drawn(true_words: np.ndarray, mechanism: SubsetMechanism, name: str) -> Subsets:
    contexts = [b"%d" % row for row in range(len(true_words))]
    return subsets(randomized(true_words, mechanism, seeded(name), contexts), mechanism, DIGEST)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon, m", [(0.5, 1), (2.0, 3), (6.0, 2)])
def test_counts_are_unbiased_and_raw_counts_are_not(epsilon: float, m: int) -> None:
    """The mean over 400 releases lies within five of its standard deviations of the true histogram, in every word."""
    mechanism = SubsetMechanism(dictionary_size=12, epsilon=epsilon, m=m)
    histogram = np.array([25, 10, 5, 3, 2, 1, 1, 1, 0, 0, 0, 0])
    true_words = np.repeat(np.arange(12), histogram)
    forms = [drawn(true_words, mechanism, f"unbiased {epsilon} {index}") for index in range(400)]
    estimates = np.array([word_counts(form) for form in forms])
    deviation = estimates.std(axis=0, ddof=1) / math.sqrt(len(estimates))
    assert (np.abs(estimates.mean(axis=0) - histogram) < 5 * deviation).all()
    # The variance is that of sums of Bernoulli draws, neither far above it nor below.
    p, q = float(mechanism.truth), float(mechanism.other)
    variance = (histogram * p * (1 - p) + (len(true_words) - histogram) * q * (1 - q)) / (p - q) ** 2
    assert ((estimates.var(axis=0, ddof=1) / variance > 0.6) & (estimates.var(axis=0, ddof=1) / variance < 1.6)).all()
    # The broken twin: how often each word was sent.
    raw = np.array([np.bincount(form.ids.ravel(), minlength=12) for form in forms]).astype(np.float64)
    off = np.abs(raw.mean(axis=0) - histogram) / np.maximum(raw.std(axis=0, ddof=1) / math.sqrt(len(raw)), 1e-12)
    assert off.max() > 20


def test_counts_by_hand() -> None:
    """Golden values by hand: K = 3, m = 1, e^epsilon = 2 give p = 1/2 and q = 1/4, so (sent - 4/4) / (1/4)."""
    mechanism = SubsetMechanism(dictionary_size=3, epsilon=math.log(2), m=1)
    form = subsets(np.array([[0], [0], [2], [0]]), mechanism, DIGEST)
    np.testing.assert_allclose(word_counts(form), [8.0, -4.0, 0.0], atol=1e-12)


def test_an_infinite_epsilon_counts_the_true_words() -> None:
    mechanism = SubsetMechanism(dictionary_size=50, epsilon=math.inf, m=1)
    true_words = generator("infinite").integers(0, 50, 80)
    expected = np.bincount(true_words, minlength=50)
    np.testing.assert_allclose(word_counts(drawn(true_words, mechanism, "infinite")), expected, atol=1e-12)


@pytest.mark.parametrize("words, m", [(3, 1), (7, 2), (1001, 16)])
def test_epsilon_zero_says_nothing(words: int, m: int) -> None:
    mechanism = SubsetMechanism(dictionary_size=words, epsilon=0.0, m=m)
    form = drawn(generator("zero").integers(0, words, 40), mechanism, "zero")
    np.testing.assert_array_equal(word_counts(form), np.zeros(words))
    np.testing.assert_array_equal(image_scores(form, vocabulary_of(np.ones((3, words)))), np.zeros(3))


def vocabulary_of(image_words: np.ndarray) -> InvertedIndex:
    """Index with the parts that retrieval reads."""
    words = image_words.shape[1]
    return InvertedIndex(
        dictionary=DIGEST,
        offsets=np.zeros(words + 1, dtype=np.int64),
        point_rows=np.zeros(0, dtype=np.int32),
        probability=np.zeros(0, dtype=np.float32),
        frequency=np.full(words, 1 / words, dtype=np.float32),
        image_names=tuple(str(index) for index in range(len(image_words))),
        image_words=csr_array(image_words.astype(np.float32)),
    )


def test_scores_are_the_stated_product() -> None:
    """TF-IDF in plain NumPy: the images' vectors have unit length, the query's has not."""
    random = generator("tf-idf")
    counts = random.poisson(0.5, (5, 20)).astype(np.float64)
    counts[:, 0] = 1
    mechanism = SubsetMechanism(dictionary_size=20, epsilon=3.0, m=2)
    form = drawn(random.integers(0, 20, 30), mechanism, "tf-idf")
    idf = np.log(6 / (1 + (counts > 0).sum(axis=0))) + math.log(2) / 2
    vectors = counts * idf
    expected = vectors @ (idf * word_counts(form)) / np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(image_scores(form, vocabulary_of(counts)), expected, rtol=1e-5, atol=1e-6)


def test_scores_are_linear_so_they_are_unbiased() -> None:
    random = generator("linear")
    vocabulary = vocabulary_of(random.poisson(0.7, (6, 15)) + np.eye(6, 15))
    mechanism = SubsetMechanism(dictionary_size=15, epsilon=1.5, m=2)
    left, right = (drawn(random.integers(0, 15, count), mechanism, f"linear {count}") for count in (20, 35))
    both = replace(left, ids=np.concatenate([left.ids, right.ids]))
    total = image_scores(left, vocabulary) + image_scores(right, vocabulary)
    np.testing.assert_allclose(image_scores(both, vocabulary), total, rtol=1e-9, atol=1e-9)


def test_an_image_without_words_scores_zero() -> None:
    counts = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    form = subsets(np.array([[0], [1]]), SubsetMechanism(dictionary_size=3, epsilon=5.0, m=1), DIGEST)
    scores = image_scores(form, vocabulary_of(counts))
    assert scores[0] > 0 and scores[1] == 0


def test_the_image_of_the_query_comes_first() -> None:
    """Planted map whose images see different points: a query that sees those of one image finds it, despite its epsilon."""
    place = world("retrieval", images=6, points=360)
    parts = np.array_split(generator("parts").permutation(360), 6)
    for part, name in zip(parts, sorted(place.poses), strict=True):
        kept = np.isin(place.visible[name], part)
        place.visible[name] = place.visible[name][kept]
        place.keypoints[name] = place.keypoints[name][kept]
    dictionary = dictionary_of(place, others=100)
    vocabulary = index_map(scene_of(place), dictionary)
    for index, name in enumerate(sorted(place.poses)):
        form = words_of(place.form(name), dictionary, epsilon=7.0, name=f"query {name}")
        scores = image_scores(form, vocabulary)
        order = most_similar(form, vocabulary, 3)
        assert order[0] == index and len(order) == 3
        np.testing.assert_array_equal(scores[order], np.sort(scores)[::-1][:3])
        assert scores[order[0]] > 1.5 * np.delete(scores, index).max()


def test_words_of_another_dictionary_are_refused() -> None:
    form = subsets(np.array([[0], [1]]), SubsetMechanism(dictionary_size=3, epsilon=5.0, m=1), "ef" * 32)
    with pytest.raises(SpaceError):
        image_scores(form, vocabulary_of(np.ones((2, 3))))
