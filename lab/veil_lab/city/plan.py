"""The plan of a simulated city: square blocks on an endless grid, their facades, and what is on each facade's tiles.

World frame: x east, y north, z up, meters. Block number d lies on a square spiral around the origin, so that the city of the
first thousand images is a part of that of a hundred thousand. Nothing here is stored: a facade is a function of seed and place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil_lab.city.draws import below, uniform

PITCH_M, TILE_WIDTH_M, TILE_HEIGHT_M, TILES = 62.0, 6.6, 4.4, 7
SIDE_M = TILES * TILE_WIDTH_M
STREET_M = PITCH_M - SIDE_M
MAX_FLOORS, TEMPLATES = 4, 16
_SPLITS = ((3, 4), (4, 3), (2, 3, 2), (7,), (2, 5), (5, 2))
_DEPTHS_M = (0.0, -0.25, 0.4)
_REACH = 512  # blocks to each side of the origin that an identity can name
_TEMPLATE_BLOCK, _SEED_BIT = 1 << 20, 24


@dataclass(frozen=True, kw_only=True, eq=False)
class Facade:
    """One facade: where it stands and which picture tile is where.

    - `identity`: unique among cities whose seeds differ in their last 20 bits; its landmarks have ids from `identity << 16` on.
    - `content`: equal for facades that are copies of each other, otherwise unique.
    - `corner` (3,), `along` (3,), `normal` (3,): lower left corner as seen from the street, and unit directions.
    - `tiles`, (floors, columns): number of the picture tile; equal numbers are repeated windows.
    - `depths_m`, (floors, columns): how far a tile stands out of the plane.
    """

    identity: int
    content: int
    corner: Float64[np.ndarray, "3"]
    along: Float64[np.ndarray, "3"]
    normal: Float64[np.ndarray, "3"]
    tiles: Int64[np.ndarray, "floors columns"]
    depths_m: Float64[np.ndarray, "floors columns"]
    is_copy: bool

    @property
    def width_m(self) -> float:
        """Width along the street."""
        return self.tiles.shape[1] * TILE_WIDTH_M

    @property
    def height_m(self) -> float:
        """Height of the facade."""
        return self.tiles.shape[0] * TILE_HEIGHT_M


def spiral(number: int) -> tuple[int, int]:
    """The grid cell (x, y) of a number on the square spiral: 0 is the origin, 1 to 8 the ring around it."""
    ring = math.ceil((math.sqrt(number + 1) - 1) / 2)
    if ring == 0:
        return 0, 0
    side, at = divmod(number - (2 * ring - 1) ** 2, 2 * ring)
    return ((ring, at - ring + 1), (ring - 1 - at, ring), (-ring, ring - 1 - at), (at - ring + 1, -ring))[side]


def spiral_number(x: int, y: int) -> int:
    """The number of a grid cell on the square spiral, the inverse of `spiral`."""
    ring = max(abs(x), abs(y))
    if ring == 0:
        return 0
    start = (2 * ring - 1) ** 2
    if x == ring and y > -ring:
        return start + y + ring - 1
    if y == ring:
        return start + 2 * ring + ring - 1 - x
    if x == -ring:
        return start + 4 * ring + ring - 1 - y
    return start + 6 * ring + x + ring - 1


def cell_of(identity: int) -> tuple[int, int]:
    """The grid cell of a facade's block, from the facade's identity."""
    x, y = divmod((identity & (1 << _SEED_BIT) - 1) >> 4, 2 * _REACH)
    return x - _REACH, y - _REACH


def block_facades(seed: int, x: int, y: int, *, copied_share: float, templates: int = TEMPLATES) -> list[Facade]:
    """The facades of the block in grid cell (x, y), around its four sides.

    `copied_share` of all are copies of one of `templates` facades of their width.
    """
    number = spiral_number(x, y)
    facades = []
    for side in range(4):
        angle = side * math.pi / 2
        normal = np.round(np.array([math.cos(angle), math.sin(angle), 0.0]))
        along = np.array([-normal[1], normal[0], 0.0])
        start = np.array([x * PITCH_M, y * PITCH_M, 0.0]) + normal * SIDE_M / 2 - along * SIDE_M / 2
        widths = _SPLITS[below(len(_SPLITS), seed, 11, number, side)]
        for slot, width in enumerate(widths):
            identity = ((x + _REACH) * 2 * _REACH + y + _REACH) * 16 + side * 4 + slot
            is_copy = bool(uniform(seed, 12, identity) < copied_share)
            first = 0 if is_copy else side * TILES + sum(widths[:slot])
            origin = _TEMPLATE_BLOCK + below(templates, seed, 13, identity) * 8 + width if is_copy else number
            content = origin * 4 * TILES + first
            tiles, depths = _content(seed, content, width)
            facades.append(
                Facade(
                    identity=((seed & 0xFFFFF) << _SEED_BIT) + identity,
                    content=content,
                    corner=start + along * sum(widths[:slot]) * TILE_WIDTH_M,
                    along=along,
                    normal=normal,
                    tiles=tiles,
                    depths_m=depths,
                    is_copy=is_copy,
                )
            )
    return facades


def _content(seed: int, content: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Tile numbers and depths (floors, columns): half of the facades repeat one window on all upper floors."""
    floors = 2 + below(MAX_FLOORS - 1, seed, 14, content)
    tiles = (content + np.arange(width)[None, :]) * MAX_FLOORS + np.arange(floors)[:, None]
    depths = np.array(_DEPTHS_M)[(uniform(seed, 15, content, np.arange(floors * width)) * 3).astype(int)].reshape(floors, width)
    if below(2, seed, 16, content):
        tiles[1:] = tiles[1, :1]
        depths[1:] = depths[1, 0]
    return tiles.astype(np.int64), depths


def blocks_near(xy: Float64[np.ndarray, "2"], reach_m: float) -> list[tuple[int, int]]:
    """Grid cells of the blocks that have a point within `reach_m` of a place."""
    low = np.ceil((xy - reach_m - SIDE_M / 2) / PITCH_M).astype(int)
    high = np.floor((xy + reach_m + SIDE_M / 2) / PITCH_M).astype(int)
    cells = [(x, y) for x in range(low[0], high[0] + 1) for y in range(low[1], high[1] + 1)]
    gaps = [np.maximum(np.abs(xy - np.array(cell) * PITCH_M) - SIDE_M / 2, 0.0) for cell in cells]
    return [cell for cell, gap in zip(cells, gaps, strict=True) if np.hypot(*gap) <= reach_m]


def hidden_by(
    center: Float64[np.ndarray, "3"], points: Float64[np.ndarray, "points 3"], cells: list[tuple[int, int]]
) -> np.ndarray:
    """Mask of the points whose line of sight from `center` passes through one of the blocks (slabs; blocks are taken as endless
    in height, which only hides what lies above a lower roof)."""
    hidden = np.zeros(len(points), dtype=bool)
    ray = points[:, :2] - center[:2]
    ray = np.where(np.abs(ray) < 1e-9, 1e-9, ray)
    for cell in cells:
        middle = np.array(cell) * PITCH_M
        one, other = ((middle + sign * SIDE_M / 2 - center[:2]) / ray for sign in (-1, 1))
        enter, leave = np.minimum(one, other).max(axis=1), np.maximum(one, other).min(axis=1)
        hidden |= (enter < leave) & (leave > 1e-6) & (enter < 1 - 1e-6)
    return hidden
