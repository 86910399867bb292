"""The quality of a codebook: distances by brute force, and what even use of the words would look like."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import veil.codebooks.quantization as quantization
from veil.codebooks.codebook import Codebook
from veil.codebooks.quantization import DistanceStatistics, Quantization, even_use, measure
from veil.errors import InputError, SpaceError
from worlds import codebook, generator, sift_like, unit
from worlds.power import require_mean

BOOK = codebook(generator("quality"), 40, 2)


def measured(book: Codebook, descriptors: np.ndarray, pool: np.ndarray | None = None) -> Quantization:
    """The quality of `book` on `descriptors`, whose neighbors are sought in `pool`, or among themselves without one."""
    among = descriptors if pool is None else pool
    return measure(book, descriptors, pool=among, in_pool=pool is None, images=3, book_images=0, seed=0)


@pytest.mark.parametrize("block", [7, 1 << 14])
@pytest.mark.parametrize("own", [True, False])
def test_distances_are_those_of_all_pairs(block: int, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: every distance in float64; descriptors that are in the pool are not their own neighbors."""
    monkeypatch.setattr(quantization, "BLOCK", block)
    monkeypatch.setattr(quantization, "NEIGHBORS", 11)
    descriptors, others = sift_like(generator("these"), 30), sift_like(generator("those"), 50)
    pool = np.concatenate([descriptors, others]) if own else others
    quality = measure(BOOK, descriptors, pool=pool, in_pool=own, images=3, book_images=1, seed=0)
    to_words = np.linalg.norm(unit(descriptors)[:, None] - unit(BOOK.stored)[None], axis=2)
    np.testing.assert_allclose(quality.to_word, to_words.min(axis=1), atol=1e-6)
    np.testing.assert_array_equal(quality.uses, np.bincount(to_words.argmin(axis=1), minlength=40))
    to_pool = np.linalg.norm(unit(descriptors)[:11, None] - unit(pool)[None], axis=2)
    if own:
        to_pool[np.arange(11), np.arange(11)] = np.inf
    np.testing.assert_allclose(quality.to_other, to_pool.min(axis=1), atol=1e-6)
    assert (quality.pool_size, quality.images, quality.book_images) == (len(pool), 3, 1)


def test_a_twin_is_another_descriptor() -> None:
    """Planted truth: each descriptor twice lies at distance 0 of its nearest other one, and none lies there alone."""
    once = sift_like(generator("twins"), 20)
    np.testing.assert_array_equal(measured(BOOK, np.concatenate([once, once])).to_other, 0)
    assert measured(BOOK, once).to_other.min() > 0.1


def test_words_that_are_the_descriptors_have_no_error() -> None:
    """Planted truth: each word its own descriptor; the entropy is that of 40 equal uses."""
    record = measured(BOOK, BOOK.stored).as_json()
    assert record["to_nearest_word"]["p95"] < 1e-6 and record["unused_words"] == 0
    assert math.isclose(record["entropy_bits"], math.log2(40)) and record["log2_words"] == math.log2(40)
    one = measured(replace(BOOK, stored=BOOK.stored[:2], slices=1), np.repeat(BOOK.stored[:1], 9, axis=0))
    assert one.entropy_bits == 0 and one.as_json()["unused_words"] == 1


@pytest.mark.slow
def test_random_partners_are_never_oneself() -> None:
    """Statistics: distances to random ones have the mean over all pairs of different rows; 1 % off would be seen."""
    descriptors = sift_like(generator("partners"), 4000)
    quality = measured(BOOK, descriptors)
    cosine = unit(descriptors) @ unit(descriptors).T
    apart = np.sqrt(np.maximum(2 - 2 * cosine, 0))[~np.eye(4000, dtype=bool)]
    assert quality.to_random.min() > 0
    require_mean(quality.to_random, float(apart.mean()), sees=0.01 * float(apart.mean()))
    assert measured(BOOK, descriptors[:2]).to_random.min() > 0


@pytest.mark.parametrize(("words", "descriptors"), [(2, 1), (2, 5), (3, 4), (5, 3)])
def test_even_use_is_the_mean_over_all_outcomes(words: int, descriptors: int) -> None:
    """Enumeration: every assignment of descriptors to words, each as likely."""
    unused, entropy = [], []
    for outcome in product(range(words), repeat=descriptors):
        counts = Counter(outcome).values()
        unused.append(words - len(counts))
        entropy.append(-sum(c / descriptors * math.log2(c / descriptors) for c in counts))
    np.testing.assert_allclose(even_use(words, descriptors), [np.mean(unused), np.mean(entropy)], atol=1e-9)


@pytest.mark.parametrize(("words", "descriptors"), [(256_000, 50_000), (1000, 200_000), (64, 1000)])
def test_even_use_of_many_words(words: int, descriptors: int) -> None:
    """Statistics: one draw of as many descriptors; both numbers scatter by less than a percent."""
    counts = np.bincount(generator("even").integers(0, words, descriptors), minlength=words)
    shares = counts[counts > 0] / descriptors
    unused, entropy = even_use(words, descriptors)
    assert abs(unused - (counts == 0).sum()) < 5 * math.sqrt(words / 4)
    assert abs(entropy + (shares * np.log2(shares)).sum()) < 0.01


def test_statistics_of_known_values() -> None:
    """Golden values: 0 to 100 in steps of 1."""
    assert DistanceStatistics.of(np.arange(101.0)) == DistanceStatistics(mean=50.0, p5=5.0, median=50.0, p95=95.0)


def test_what_cannot_be_measured() -> None:
    with pytest.raises(InputError, match="1 descriptors cannot be measured"):
        measured(BOOK, BOOK.stored[:1])
    with pytest.raises(SpaceError, match="64 dimensions do not go with words of 128"):
        measured(BOOK, BOOK.stored[:, :64])
