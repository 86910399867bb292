"""Points of several tiles together, as localization takes them: places, descriptors, and how they were seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.geometry.views import MapViews
from veil.tiles.coding import TileCoding, unfolded
from veil.tiles.tile_format import Tile


@dataclass(frozen=True, kw_only=True, eq=False)
class TilePoints:
    """Points of one or more tiles, each once.

    - `points`, float64 (points, 3): in units of the map.
    - `point_rows`, int64 (aspects,): the point of each aspect, ascending.
    - `descriptors`, float32 (aspects, axes): along the principal axes.
    - `views`: from where and how large the points were seen.
    """

    points: Float64[np.ndarray, "points 3"]
    point_rows: Int64[np.ndarray, "aspects"]
    descriptors: Float32[np.ndarray, "aspects axes"]
    views: MapViews


def united(tiles: Sequence[Tile], coding: TileCoding) -> TilePoints:
    """The points of some tiles. Neighbors share points, whose places are the same in both: these are taken from the first.

    Several points at one place stay several: a keypoint with two orientations gives two points there, with two descriptors.
    """
    places = np.concatenate([tile.places.astype(np.int64) + tile.origin for tile in tiles])
    counts = np.concatenate([tile.counts.astype(np.int64) for tile in tiles])
    ends = np.cumsum(counts)
    tile_of = np.repeat(np.arange(len(tiles)), [len(tile) for tile in tiles])
    _, first, place = np.unique(places, axis=0, return_index=True, return_inverse=True)
    first = np.flatnonzero(tile_of == tile_of[first][place.reshape(-1)])
    kept = counts[first]
    starts = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    rows = np.repeat(ends[first] - kept - starts[:-1], kept) + np.arange(starts[-1])
    sizes = coding.pixels_and_frames(np.concatenate([tile.sizes for tile in tiles])[rows])
    return TilePoints(
        points=places[first] * coding.step,
        point_rows=np.repeat(np.arange(len(first)), kept),
        descriptors=coding.vectors(np.concatenate([tile.descriptors for tile in tiles])[rows]),
        views=MapViews(
            starts=starts,
            direction=unfolded(np.concatenate([tile.directions for tile in tiles])[rows]),
            pixels=sizes[:, 0],
            frames=sizes[:, 1],
        ),
    )
