"""Words by k-means are as many as asked for, of unit length and distinct, and two levels are almost as near as one."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

import veil.codebooks.kmeans as clustering
from veil.codebooks.kmeans import allot, chosen_method, hierarchical_kmeans, spherical_kmeans, train_words, unit_rows
from veil.errors import RangeError
from worlds import generator, sift_like, unit


def crowd(name: str, count: int, prototypes: int = 150) -> np.ndarray:
    """8-bit descriptors around prototypes that are unequally often used, as those of photographs are."""
    random = generator(name)
    centers = sift_like(random, prototypes).astype(np.float64)
    chosen = random.choice(prototypes, count, p=random.dirichlet(np.full(prototypes, 0.5)))
    return np.clip(np.round(centers[chosen] + 12 * random.normal(size=(count, 128))), 0, 255).astype(np.uint8)


def mean_distance(words: np.ndarray, descriptors: np.ndarray) -> float:
    """Mean distance of descriptors to their nearest word, all pairs in float64."""
    return float(np.sqrt(np.maximum(2 - 2 * unit(descriptors) @ unit(words).T, 0)).min(axis=1).mean())


def directions(words: np.ndarray) -> int:
    """Number of different directions among words."""
    return len(np.unique(np.round(unit(words), 9), axis=0))


def test_spherical_kmeans_finds_planted_clusters() -> None:
    """Planted truth: eight tight bundles; every centroid is the unit mean of one of them."""
    random = generator("clusters")
    truth = unit(random.normal(size=(8, 16)))
    samples = unit(np.repeat(truth, 50, axis=0) + 0.01 * random.normal(size=(400, 16))).astype(np.float32)
    centroids = list(spherical_kmeans(samples[random.permutation(400)], 8, iterations=25, seed=3))[-1]
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-6)
    cosine = centroids @ truth.T
    assert (cosine.max(axis=1) > 0.7).all()
    assert (cosine > 0.99).any(axis=0).sum() >= 6  # k-means may merge a bundle; spherical means must fit the others
    with pytest.raises(RangeError, match="add photographs"):
        list(spherical_kmeans(samples[:4], 8, iterations=1, seed=0))


def test_kmeans_lowers_its_objective() -> None:
    """Defining property: the mean cosine to the nearest centroid never falls from one iteration to the next."""
    samples = unit(sift_like(generator("objective"), 1500)).astype(np.float32)
    steps = list(spherical_kmeans(samples, 32, iterations=6, seed=0))
    objective = [float((samples @ centroids.T).max(axis=1).mean()) for centroids in steps]
    assert all(b >= a - 1e-5 for a, b in pairwise(objective))


@pytest.mark.slow
@pytest.mark.parametrize(("words", "factor"), [(64, 1.12), (256, 1.08), (600, 1.02)])
def test_two_levels_are_almost_as_near_as_one(words: int, factor: float) -> None:
    """Slow reference: flat k-means, for descriptors in and out of the training sample; random descriptors as words are worse.

    There are 150 prototypes: with fewer words than these it matters most that a cell keeps the words it was given.
    """
    sample, others = np.split(crowd("levels", 9000), [6000])
    flat, levels = (train_words(sample, words, method=m, iterations=12, seed=0) for m in ("flat", "hierarchical"))
    for seen in (sample, others):
        best = mean_distance(flat, seen)
        assert mean_distance(levels, seen) < factor * best
        assert mean_distance(sample[:words], seen) > 1.15 * best  # the broken twin


@pytest.mark.parametrize("words", [2, 3, 50, 997])
@pytest.mark.parametrize("floats", [False, True])
def test_exactly_so_many_unit_words_no_two_equal(words: int, floats: bool) -> None:
    sample: np.ndarray = crowd("exact", 3000)
    if floats:
        sample = unit(sample - 10.0).astype(np.float32)  # learned descriptors are signed
    trained = train_words(sample, words, method="hierarchical", iterations=3, seed=1)
    assert trained.shape == (words, 128) and trained.dtype == sample.dtype
    assert directions(trained) == words
    raw = hierarchical_kmeans(sample, words, iterations=3, seed=1)
    np.testing.assert_allclose(np.linalg.norm(raw, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(unit(trained), raw, atol=0 if floats else 0.5 / 255, rtol=1e-6)  # by half an 8-bit step at most


def test_the_seed_decides() -> None:
    sample = crowd("seed", 2000)
    first, again, other = (train_words(sample, 90, method="hierarchical", iterations=3, seed=s) for s in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_only_one_cell_is_float32_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bound: with blocks of 100 rows nothing larger than a cell or the coarse sample is ever made float32."""
    sample = crowd("memory", 4000)
    sizes: list[int] = []

    def watched(rows: np.ndarray) -> np.ndarray:
        sizes.append(len(rows))
        return unit_rows(rows)

    monkeypatch.setattr(clustering, "BLOCK", 100)
    monkeypatch.setattr(clustering, "COARSE_SAMPLE", 40)
    monkeypatch.setattr(clustering, "unit_rows", watched)
    train_words(sample, 400, method="hierarchical", iterations=2, seed=0)
    assert max(sizes) < 1000 and sum(size > 100 for size in sizes) <= 21  # 20 cells and their common sample
    train_words(sample, 400, method="flat", iterations=1, seed=0)
    assert max(sizes) == 4000  # the broken twin


def test_all_distinct_descriptors_become_words() -> None:
    """Planted truth: of 60 distinct descriptors, most of them repeated, 60 words are these, and 61 are refused."""
    random = generator("copies")
    few = sift_like(random, 60)
    sample = few[np.concatenate([np.arange(60), random.integers(0, 20, 900)])][random.permutation(960)]
    trained = train_words(sample, 60, method="hierarchical", iterations=4, seed=0)
    distance = np.linalg.norm(unit(trained)[:, None] - unit(few)[None], axis=2)
    np.testing.assert_array_equal(np.sort(distance.argmin(axis=1)), np.arange(60))
    assert distance.min(axis=1).max() < 0.02
    with pytest.raises(RangeError, match="61 words need as many distinct descriptors, got 60; add photographs or ask"):
        train_words(sample, 61, method="hierarchical", iterations=4, seed=0)


def test_words_that_become_equal_in_8_bits_are_replaced() -> None:
    """Planted truth in the order of first appearance, and 80 descriptors of which half are the others at twice the length."""
    a, b, c, d, e, f = sift_like(generator("letters"), 6)
    parts = [np.stack(part) for part in ([a, b, a, c, b], [c, a], [d, c, d, e], [f])]
    np.testing.assert_array_equal(clustering._distinct(parts[0], 5, iter(parts)), [a, b, c, d, e])
    half = sift_like(generator("twice"), 40) // 4 + 1
    half[:, 0] = 127  # the largest number; being odd, it leaves no number halfway between two 8-bit steps
    sample = np.concatenate([half, 2 * half])[generator("order").permutation(80)]
    with pytest.raises(RangeError, match="80 words need as many descriptors that differ, got 40 out of 80; add photographs"):
        train_words(sample, 80, method="hierarchical", iterations=3, seed=0)


def test_a_flat_book_is_what_it_always_was() -> None:
    """Second method: the words of the bundled codebook are k-means, scaled by the largest number of all and rounded."""
    sample = crowd("as before", 700)
    values = unit(sample.astype(np.float32)).astype(np.float32)
    last = list(spherical_kmeans(unit_rows(sample), 50, iterations=4, seed=9))[-1]
    np.testing.assert_allclose(unit_rows(sample), values, atol=1e-7)
    expected = np.clip(np.round(last * (255.0 / last.max())), 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(train_words(sample, 50, method="flat", iterations=4, seed=9), expected)


def test_progress_of_both_levels_ends_at_its_total() -> None:
    cells: list[tuple[int, int]] = []
    words: list[tuple[int, int]] = []
    told = {"on_cells": lambda *at: cells.append(at), "on_words": lambda *at: words.append(at)}
    train_words(crowd("bars", 900), 100, method="hierarchical", iterations=5, seed=0, **told)
    assert cells == [(done, 5) for done in range(1, 6)]
    assert words[-1] == (100, 100) and all(a[0] < b[0] for a, b in pairwise(words)) and len(words) > 5
    words.clear()
    train_words(crowd("bars", 900), 10, method="flat", iterations=3, seed=0, **told)
    assert words == [(1, 3), (2, 3), (3, 3)] and len(cells) == 5


def test_auto_is_flat_up_to_the_bundled_size() -> None:
    assert [chosen_method("auto", words) for words in (2, 16384, 16385)] == ["flat", "flat", "hierarchical"]
    assert chosen_method("flat", 10**6) == "flat" and chosen_method("hierarchical", 4) == "hierarchical"
    with pytest.raises(RangeError, match="method must be auto, flat or hierarchical"):
        chosen_method("fast", 4)


def shares_by_enumeration(counts: list[int], limits: list[int], words: int) -> list[tuple[int, ...]]:
    """All allotments within their bounds that lie nearest to the quotas. The break points of the rate bracket it."""

    def total(rate: Fraction) -> Fraction:
        return sum((quota(rate, c, u) for c, u in zip(counts, limits, strict=True)), Fraction(0))

    def quota(rate: Fraction, count: int, limit: int) -> Fraction:
        return min(max(rate * count, Fraction(1)), Fraction(limit)) if count else Fraction(0)

    breaks = sorted({Fraction(bound, c) for c, u in zip(counts, limits, strict=True) if c for bound in (1, u)})
    low = max((b for b in breaks if total(b) <= words), default=breaks[0])
    high = min((b for b in breaks if total(b) >= words), default=breaks[-1])
    # Between two break points the total is linear in the rate.
    rate = low if total(high) == total(low) else low + (high - low) * (words - total(low)) / (total(high) - total(low))
    quotas = [quota(rate, c, u) for c, u in zip(counts, limits, strict=True)]
    assert sum(quotas) == words
    choices = [range(1, u + 1) if c else range(1) for c, u in zip(counts, limits, strict=True)]
    fair = [shares for shares in product(*choices) if sum(shares) == words]
    gaps = [sum((Fraction(s) - q) ** 2 for s, q in zip(shares, quotas, strict=True)) for shares in fair]
    return [shares for shares, gap in zip(fair, gaps, strict=True) if gap == min(gaps)]


@pytest.mark.slow
def test_words_are_shared_out_by_largest_remainders_within_bounds() -> None:
    """Enumeration of every allotment of small problems, with empty cells, full ones and cells below one word."""
    random = generator("allot")
    for _ in range(150):
        counts = random.integers(0, 40, 4)
        counts[random.integers(4)] += 1
        limits = np.minimum(counts, random.integers(1, 12, 4))
        words = int(random.integers((counts > 0).sum(), limits.sum() + 1))
        allotment = allot(counts, limits, words)
        assert tuple(allotment.tolist()) in shares_by_enumeration(counts.tolist(), limits.tolist(), words)


def test_shares_of_a_known_election() -> None:
    """Golden value: without binding bounds this is Hamilton's rule; 10 seats for 2560, 3315, 995 and 5012 votes."""
    votes = np.array([2560, 3315, 995, 5012])
    np.testing.assert_array_equal(allot(votes, votes, 10), [2, 3, 1, 4])  # quotas 2.15, 2.79, 0.84 (raised to 1), 4.22
    assert allot(np.arange(5000) + 1, np.full(5000, 200), 256_000).sum() == 256_000
