"""Sketches: a planted tile is found among others, by what it has and others lack."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.errors import RangeError
from veil.tiles.sketches import Sketches, sketched
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
    """Oracle: which tile the query was drawn from. Broken twin: words that all tiles have count as much as others."""
    sketches, tiles = planted()
    random = generator("sketch queries")
    right = []
    for true, levels in enumerate(tiles):
        rows = np.concatenate([np.arange(60), random.choice(np.arange(60, 90), 6, replace=False)])
        order, cosine = sketches.ranked((levels[rows] + random.normal(size=(66, 16))).astype(np.float32) * SCALES)
        assert sorted(order.tolist()) == list(range(len(tiles))) and (np.diff(cosine) <= 1e-12).all()
        right.append(order[0] == true)
    assert all(right)
    shared = np.argmax(sketches.weights.astype(np.int64).sum(axis=0) * (sketches.weights > 0).all(axis=0))
    assert sketches.rarity[shared] < 64 and sketches.rarity.max() == 255


def test_the_same_tiles_give_the_same_sketches() -> None:
    """Golden by repetition: a device and the operator must not depend on chance."""
    one, other = planted()[0], planted()[0]
    np.testing.assert_array_equal(one.words, other.words)
    np.testing.assert_array_equal(one.weights, other.weights)


def test_nothing_to_compare_ranks_all_and_a_zero_word_is_refused() -> None:
    sketches, tiles = planted()
    order, cosine = sketches.ranked(np.empty((0, 16), dtype=np.float32))
    assert len(order) == len(tiles) and (cosine == 0).all()
    with pytest.raises(RangeError, match="zero"):
        replace(sketches, words=sketches.words * np.int8(0))
