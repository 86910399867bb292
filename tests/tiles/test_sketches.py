"""Sketches: a planted tile is ranked before others, by what it has and others lack."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from veil.errors import RangeError
from veil.tiles.sketches import Sketches, _counts, sketched, usual_words
from worlds import generator

SCALES = np.full(16, 0.02, dtype=np.float32)


def planted(tiles: int = 12) -> tuple[Sketches, list[np.ndarray]]:
    """Tiles with some kinds of descriptors of their own and one kind that all have most of."""
    random = generator("sketches")
    kinds = random.normal(size=(2 * tiles + 1, 16)) * 40
    common = np.repeat(kinds[:1], 60, axis=0)
    levels = [
        np.clip(
            np.rint(np.vstack([common, np.repeat(kinds[1 + 2 * k : 3 + 2 * k], 15, axis=0)]) + random.normal(size=(90, 16))),
            -127,
            127,
        )
        for k in range(tiles)
    ]
    made = [item.astype(np.int8) for item in levels]
    return sketched(made, SCALES, words=64), made


def test_a_tile_is_found_by_what_others_lack() -> None:
    """Oracle: which tile the query was drawn from. Broken twin: tiles by the query's most frequent word, which all have."""
    sketches, tiles = planted()
    random = generator("sketch queries")
    right, twin = [], []
    for true, levels in enumerate(tiles):
        rows = np.concatenate([np.arange(60), random.choice(np.arange(60, 90), 6, replace=False)])
        query = (levels[rows] + random.normal(size=(66, 16))).astype(np.float32) * SCALES
        order, ratios = sketches.ranked(query)
        assert sorted(order.tolist()) == list(range(len(tiles))) and (np.diff(ratios) <= 1e-12).all()
        right.append(order[0] == true)
        frequent = int(np.argmax(_counts(sketches.words, query)))
        twin.append(int(np.argmax(sketches.counts[:, frequent])) == true)
    assert all(right) and sum(twin) < 6


def test_ranks_follow_from_their_formula() -> None:
    """Oracle: docs/theory/tiles.md, Eq. 1, word by word."""
    sketches, tiles = planted(3)
    query = tiles[1][50:70].astype(np.float32) * SCALES
    order, ratios = sketches.ranked(query)
    seen = _counts(sketches.words, query)
    counts = sketches.counts.astype(int).tolist()
    total, words = sum(map(sum, counts)), len(seen)
    for tile, ratio in zip(order.tolist(), ratios.tolist(), strict=True):
        due = 0.0
        for word in range(words):
            of_all = (sum(row[word] for row in counts) + 0.5) / (total + 0.5 * words)
            due += math.sqrt(seen[word]) * math.log(0.6 + 0.4 * counts[tile][word] / sum(counts[tile]) / of_all)
        assert ratio == pytest.approx(due)


def test_the_same_tiles_give_the_same_sketches() -> None:
    """Golden by repetition: a device and the operator must not depend on chance. Many descriptors of one word count as 255."""
    one, other = planted()[0], planted()[0]
    np.testing.assert_array_equal(one.words, other.words)
    np.testing.assert_array_equal(one.counts, other.counts)
    crowd = [np.repeat(np.array([[100, 0], [0, 100]], dtype=np.int8), [300, 200], axis=0)]
    assert sorted(sketched(crowd, np.ones(2, dtype=np.float32), words=2).counts[0].tolist()) == [200, 255]


def test_many_tiles_have_more_words_and_few_tiles_a_small_manifest() -> None:
    """Numbers by hand; a map with fewer descriptors has fewer words, one for each four."""
    assert [usual_words(tiles) for tiles in (1, 16, 17, 40, 64, 65, 10_000)] == [1024, 1024, 1088, 2560, 4096, 4096, 4096]
    levels = np.rint(generator("usual words").normal(size=(6000, 4)) * 40).clip(-127, 127).astype(np.int8)
    scales = np.ones(4, dtype=np.float32)
    assert [len(sketched([levels[:count]], scales).words) for count in (6000, 400)] == [1024, 100]


def test_nothing_to_compare_ranks_all_and_a_zero_word_is_refused() -> None:
    sketches, tiles = planted()
    order, ratios = sketches.ranked(np.empty((0, 16), dtype=np.float32))
    assert len(order) == len(tiles) and (ratios == 0).all()
    with pytest.raises(RangeError, match="zero"):
        replace(sketches, words=sketches.words * np.int8(0))
