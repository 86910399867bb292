"""k-means over shards gives the words of k-means in one piece, with the same bits on every engine."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from veil.codebooks.kmeans import Descriptors, train_words, unit_rows
from veil.codebooks.shards import Assigned, assigned, sharded_kmeans, train_sharded, tree_sum
from veil.engine import open_engine
from veil.errors import RangeError
from worlds import generator, sift_like, unit


def crowd(name: str, count: int) -> np.ndarray:
    """8-bit descriptors around 60 prototypes."""
    random = generator(name)
    centers = sift_like(random, 60).astype(np.float64)
    chosen = random.integers(0, 60, count)
    return np.clip(np.round(centers[chosen] + 15 * random.normal(size=(count, 128))), 0, 255).astype(np.uint8)


@dataclass(frozen=True)
class Bare:
    """A shard of this process."""

    rows: np.ndarray

    def load(self) -> Descriptors:
        """The rows."""
        return self.rows


def shards(sample: np.ndarray, rows: int) -> list[Bare]:
    """The sample in shards of `rows` rows, the last one with the rest."""
    return [Bare(sample[start : start + rows]) for start in range(0, len(sample), rows)]


def plain(sample: np.ndarray, words: np.ndarray, iterations: int) -> np.ndarray:
    """Spherical k-means by its definition, in float64 and in one piece; no word may lose all descriptors."""
    vectors = unit(sample)
    for _ in range(iterations):
        nearest = (vectors @ words.T).argmax(axis=1)
        words = unit(np.stack([vectors[nearest == word].sum(axis=0) for word in range(len(words))]))
    return words


@pytest.mark.parametrize("rows", [37, 250, 1000])
def test_shards_give_what_one_piece_gives(rows: int) -> None:
    """Slow reference: k-means by its definition, from the same start; the objective never falls (defining property)."""
    sample = crowd("pieces", 1000)
    start = unit_rows(sample[:40])
    with open_engine("local", workers=1) as engine:
        steps = list(sharded_kmeans(shards(sample, rows), start, iterations=5, engine=engine))
    np.testing.assert_allclose(steps[-1][0], plain(sample, start.astype(np.float64), 5), atol=2e-6)
    assert all(after.objective >= before.objective - 1e-4 for (_, before), (_, after) in pairwise(steps))
    assert {int(total.counts.sum()) for _, total in steps} == {1000}


def test_parts_are_added_in_one_order_whatever_order_they_come_in() -> None:
    """Enumeration: numbers of sizes whose float sum depends on the order, in 40 orders of arrival, for each count to 12.

    The broken twin adds them as they come, and gives several sums.
    """
    random = generator("tree")

    def part(value: float) -> Assigned:
        none = {"far": np.zeros((0, 1), np.float32), "far_products": np.zeros(0, np.float32)}
        return Assigned(sums=np.full((1, 1), value), counts=np.ones(1, np.int64), objective=value, **none)

    twins = 0
    for count in range(1, 13):
        parts = [part(float(value)) for value in random.normal(size=count) * 10.0 ** random.integers(-8, 8, count)]
        sums, as_they_come = set(), set()
        for _ in range(40):
            order = random.permutation(count).tolist()
            total = tree_sum(((position, parts[position]) for position in order), count)
            assert total.counts[0] == count
            sums.add(total.objective)
            as_they_come.add(sum(parts[position].objective for position in order))
        assert len(sums) == 1
        twins += len(as_they_come) > 1
    assert twins > 5
    with pytest.raises(RangeError, match="all of its parts"):
        tree_sum([(0, part(1.0))], 2)


def test_words_are_as_near_as_those_of_faiss_and_distinct() -> None:
    """Second method: flat k-means by faiss, on the same sample; the mean product may differ by 2 % of its distance from 1."""
    sample = crowd("near", 3000)
    with open_engine("local", workers=1) as engine:
        words = train_sharded(shards(sample, 512), 100, iterations=10, engine=engine)
    flat = train_words(sample, 100, method="flat", iterations=10, seed=0)
    ours, theirs = ((unit(sample) @ unit(each).T).max(axis=1).mean() for each in (words, flat))
    assert (1 - ours) < 1.02 * (1 - theirs)
    assert words.dtype == np.uint8
    assert len(np.unique(words, axis=0)) == 100


def test_words_without_descriptors_become_far_descriptors() -> None:
    """Planted: ten starts beside each other and one lone bundle far away, to which one of them has to move."""
    random = generator("lone")
    many = unit(np.eye(8)[0] + 0.05 * random.normal(size=(200, 8)))
    lone = unit(np.eye(8)[5] + 0.01 * random.normal(size=(5, 8)))
    sample = np.concatenate([many, lone]).astype(np.float32)
    start = np.concatenate([sample[:3], -sample[:2]])  # the last two are nearest to nothing
    with open_engine("local", workers=1) as engine:
        steps = list(sharded_kmeans(shards(sample, 50), start, iterations=4, engine=engine))
    assert float((lone @ steps[-1][0].T).max(axis=1).min()) > 0.99


def test_too_few_distinct_descriptors_are_refused() -> None:
    """Planted: three descriptors, each a hundred times, for four words."""
    sample = np.repeat(crowd("few", 3), 100, axis=0)
    with open_engine("local", workers=1) as engine, pytest.raises(RangeError, match="distinct descriptors, got 3"):
        train_sharded(shards(sample, 64), 4, iterations=2, engine=engine)


def test_a_shard_counts_every_descriptor_once() -> None:
    """Definition: sums and counts of one shard by a loop over its rows."""
    sample = crowd("once", 200)
    words = unit_rows(sample[:9])
    assignment = assigned(Bare(sample), words)
    sums, counts = np.zeros((9, 128)), np.zeros(9, int)
    for row in unit_rows(sample):
        word = int((words @ row).argmax())
        sums[word] += row
        counts[word] += 1
    np.testing.assert_array_equal(assignment.counts, counts)
    np.testing.assert_allclose(assignment.sums, sums, atol=1e-9)
    assert (np.diff(assignment.far_products) >= 0).all()
