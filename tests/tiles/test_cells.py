"""Cells of cameras: a partition into balanced parts, each with its nearest neighbors."""

from __future__ import annotations

import numpy as np
import pytest

from veil.tiles.cells import distances_to_boxes, halved
from worlds import generator


@pytest.mark.parametrize("count", [1, 5, 64, 77])
def test_cells_are_balanced_and_own_every_camera_once(count: int) -> None:
    centers = generator(f"cells {count}").uniform(0, [30, 10, 1], (count, 3))
    cells = halved(centers, lambda cameras: len(cameras) <= 8, overlap=0.2)
    own = np.concatenate([cell.own for cell in cells])
    assert sorted(own.tolist()) == list(range(count))
    sizes = [len(cell.own) for cell in cells]
    assert max(sizes) <= 2 * min(sizes)
    for cell in cells:
        assert len(cell.around) == min(int(np.ceil(0.2 * len(cell.own))), count - len(cell.own))
        assert not set(cell.own) & set(cell.around)
        assert len(cell.cameras) <= 8 or len(cell.own) < 4


def test_neighbors_are_the_nearest_cameras() -> None:
    """Oracle: the distance to a box along each axis, one camera at a time."""
    centers = generator("neighbors").uniform(0, 10, (40, 3))
    for cell in halved(centers, lambda cameras: len(cameras) <= 12, overlap=0.5):
        away = [
            np.linalg.norm([max(lo - x, x - hi, 0) for lo, hi, x in zip(cell.low, cell.high, c, strict=True)]) for c in centers
        ]
        others = sorted((distance, row) for row, distance in enumerate(away) if row not in cell.own)
        assert set(cell.around) == {row for _, row in others[: len(cell.around)]}
        np.testing.assert_allclose(distances_to_boxes(cell.low[None], cell.high[None], centers)[:, 0], away)
