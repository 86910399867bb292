"""Cells of a map: its cameras halved again and again along the axis in which they spread most, with some of their neighbors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

# A cell of so few cameras is not halved: fewer do not show a place from enough sides.
LEAST_CAMERAS = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """A part of a map's cameras: those in a box, `own`, and `around` it the nearest ones; both as rows of the cameras.

    `low` and `high` are the corners of the box around its own cameras, in units of the map.
    """

    low: Float64[np.ndarray, "3"]
    high: Float64[np.ndarray, "3"]
    own: Int64[np.ndarray, "_"]
    around: Int64[np.ndarray, "_"]

    @property
    def cameras(self) -> Int64[np.ndarray, "_"]:
        """Rows of all cameras whose points the cell's tile holds."""
        return np.concatenate([self.own, self.around])


def halved(
    centers: Float64[np.ndarray, "cameras 3"],
    fits: Callable[[Int64[np.ndarray, "_"]], bool],
    *,
    overlap: float,
    least_cameras: int = LEAST_CAMERAS,
) -> list[Cell]:
    """Cells that together own each camera once, from one cell of all by halving those that do not fit.

    - `centers`: of the cameras, in units of the map.
    - `fits`: whether the points of some cameras (rows) fit into a tile.
    - `overlap`: share of its own number of cameras that a cell takes from around it, rounded up.
    - `least_cameras`: a cell is not halved if a half would have fewer of its own; such a cell may not fit.

    Halves have as many cameras as each other, or one more, so that cells are balanced.
    """
    waiting = [np.arange(len(centers))]
    made: list[Cell] = []
    while waiting:
        own = waiting.pop()
        cell = _cell(centers, own, overlap)
        if len(own) < 2 * least_cameras or fits(cell.cameras):
            made.append(cell)
            continue
        axis = int(np.argmax(np.ptp(centers[own], axis=0)))
        order = own[np.argsort(centers[own, axis], kind="stable")]
        waiting += [order[len(own) // 2 :], order[: len(own) // 2]]
    return made


def _cell(centers: Float64[np.ndarray, "cameras 3"], own: Int64[np.ndarray, "_"], overlap: float) -> Cell:
    low, high = centers[own].min(axis=0), centers[own].max(axis=0)
    others = np.setdiff1d(np.arange(len(centers)), own)
    distance = distances_to_boxes(low[None], high[None], centers[others])[:, 0]
    count = int(np.ceil(overlap * len(own)))
    return Cell(low=low, high=high, own=np.sort(own), around=others[np.argsort(distance, kind="stable")[:count]])


def distances_to_boxes(
    low: Float64[np.ndarray, "boxes 3"], high: Float64[np.ndarray, "boxes 3"], places: Float64[np.ndarray, "places 3"]
) -> Float64[np.ndarray, "places boxes"]:
    """Distance from each place to each box, 0 inside."""
    outside = np.maximum(np.maximum(low - places[:, None], places[:, None] - high), 0.0)
    return np.linalg.norm(outside, axis=2)
