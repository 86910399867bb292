"""Points of several tiles together: shared ones once, several at one place all, each with its own numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veil.codebooks.compression import fit_pca
from veil.tiles.coding import TileCoding
from veil.tiles.tile_format import Tile
from veil.tiles.union import united
from worlds import generator, sift_like, unit
from worlds.tile_streets import SIFT

CODING = TileCoding(
    raw_space=SIFT,
    pca=fit_pca(unit(sift_like(generator("union"), 50)), 2),
    scales=np.array([0.5, 0.25], dtype=np.float32),
    bits=8,
    step=0.5,
    least_pixels=1.0,
    least_frames=0.01,
)


def tile(origin: list[int], places: list[list[int]], counts: list[int], first: int) -> Tile:
    """A tile whose aspects are numbered from `first` on, in the first level of their descriptors and in their sizes."""
    numbers = np.arange(first, first + sum(counts))
    return Tile(
        index=0,
        origin=np.array(origin),
        places=np.array(places, dtype=np.uint32),
        counts=np.array(counts, dtype=np.uint8),
        directions=np.full((len(numbers), 2), 128, dtype=np.uint8),
        sizes=np.column_stack([16 * (numbers % 3), numbers]).astype(np.uint8),
        descriptors=np.column_stack([numbers, -numbers]).astype(np.int8),
    )


def test_shared_points_are_taken_once_and_doubles_stay() -> None:
    """Oracle: the union by hand. The point at (4, 4, 4) is in both tiles, and twice in each, with two orientations."""
    one = tile([0, 0, 0], [[1, 2, 3], [4, 4, 4], [4, 4, 4]], [2, 1, 1], 0)
    other = tile([3, 3, 3], [[1, 1, 1], [1, 1, 1], [5, 6, 7]], [1, 1, 3], 10)
    union = united([one, other], CODING)
    np.testing.assert_array_equal(union.points, 0.5 * np.array([[1, 2, 3], [4, 4, 4], [4, 4, 4], [8, 9, 10]]))
    np.testing.assert_array_equal(union.point_rows, [0, 0, 1, 2, 3, 3, 3])
    np.testing.assert_allclose(union.descriptors, np.outer([0, 1, 2, 3, 12, 13, 14], [0.5, -0.25]))
    np.testing.assert_array_equal(union.views.starts, [0, 2, 3, 4, 7])
    np.testing.assert_allclose(union.views.pixels, [1, 2, 4, 1, 1, 2, 4])
    np.testing.assert_allclose(union.views.frames, 0.01 * np.exp2(np.array([0, 1, 2, 3, 12, 13, 14]) / 16))


def test_the_order_of_tiles_changes_no_set_of_points() -> None:
    random = generator("order of tiles")
    tiles = [
        replace(tile([0, 0, 0], random.integers(0, 4, (20, 3)).tolist(), [1] * 20, 0), origin=np.array([k, 0, 0]))
        for k in range(3)
    ]
    sets = [{tuple(row) for row in united(order, CODING).points.tolist()} for order in (tiles, tiles[::-1])]
    assert sets[0] == sets[1]
