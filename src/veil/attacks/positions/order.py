"""Order attack: test of whether the order of a message tells anything, and positions by rank where it does (release.md#order).

Detectors return features sorted: OpenCV's SIFT by x, others by scale. A release in that order gives the coordinate away.

Theory: docs/theory/position_attacks.md, Eq. 11-12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.attacks.claims import Estimates
from veil.attacks.positions.segments import Segments, pixels, segments
from veil.errors import InputError, RangeError
from veil.forms import Lines
from veil.geometry.camera import Camera

EXACT_ROWS = 7  # largest number of rows of which all orders are enumerated, at most 5,040
CHUNK_NUMBERS = 4_000_000
STEPS = 65  # positions on a segment between which pixels are interpolated


@dataclass(frozen=True, kw_only=True, eq=False)
class OrderTest:
    """Result of a permutation test of the order of a message against some values of its features.

    `trend` is the rank correlation of each column with the row number, `serial` that of neighboring rows. `p_value` is the
    probability of so great a value of either, in any column, if all orders were equally likely. It counts the order itself
    among the drawn ones, so it is never 0. `orders` is the number of orders that were compared; `exact` says that these were
    all orders.
    """

    trend: Float64[np.ndarray, "_"]
    serial: Float64[np.ndarray, "_"]
    p_value: float
    orders: int
    exact: bool


def order_test(values: Float[np.ndarray, "features columns"], *, draws: int, seed: int) -> OrderTest:
    """Permutation test of the rows' order against `values`: what the attacker sees of each feature, or in an audit the truth.

    The statistic is the greatest magnitude of trend and serial correlation over all columns (docs/theory/position_attacks.md,
    Eq. 11): all of them have about the same variance under random order. It is compared with that of `draws` random orders,
    drawn by `seed`; with up to seven rows all orders are enumerated instead. Raises InputError for fewer than 3 rows, NaN, or
    columns that are all constant, RangeError for `draws` out of range.
    """
    from scipy.stats import rankdata

    if values.ndim != 2 or len(values) < 3 or not np.isfinite(values).all():
        raise InputError(f"the order test needs a finite row of values for each of 3 or more features, got {values.shape}")
    if not 1 <= draws <= 10_000_000:
        raise RangeError(f"draws must be between 1 and 10 million, got {draws!r}")
    ranks = _standard(rankdata(values, axis=0))
    if not ranks.any():
        raise InputError("every column of values is constant: no order of them is special")
    trend, serial = (correlation[0] for correlation in _statistics(ranks, np.arange(len(values))[None]))
    observed = max(np.abs(trend).max(), np.abs(serial).max()) - 1e-12  # values that differ by rounding only are equal
    orders = reached = 0
    for block in _orders(ranks.shape, draws, seed):
        trends, serials = _statistics(ranks, block)
        reached += int((np.maximum(np.abs(trends).max(axis=1), np.abs(serials).max(axis=1)) >= observed).sum())
        orders += len(block)
    exact = len(values) <= EXACT_ROWS
    itself = 0 if exact else 1  # the message's own order counts among drawn ones; an enumeration contains it
    reached, orders = reached + itself, orders + itself
    return OrderTest(trend=trend, serial=serial, p_value=reached / orders, orders=orders, exact=exact)


def _standard(values: Float64[np.ndarray, "features columns"]) -> Float64[np.ndarray, "features columns"]:
    """Columns shifted and scaled to mean 0 and length 1; constant columns become 0."""
    centered = values - values.mean(axis=0)
    length = np.linalg.norm(centered, axis=0)
    return np.where(length > 1e-9, centered / np.where(length > 1e-9, length, 1.0), 0.0)


def _statistics(
    ranks: Float64[np.ndarray, "features columns"], orders: Int64[np.ndarray, "orders features"]
) -> tuple[Float64[np.ndarray, "orders columns"], Float64[np.ndarray, "orders columns"]]:
    """Trend and serial correlation of each column in each order (Eq. 11)."""
    row = _standard(np.arange(len(ranks), dtype=np.float64)[:, None])[:, 0]
    ordered = ranks[orders]
    return np.einsum("onc,n->oc", ordered, row), np.einsum("onc,onc->oc", ordered[:, :-1], ordered[:, 1:])


def _orders(shape: tuple[int, ...], draws: int, seed: int) -> Iterator[Int64[np.ndarray, "orders features"]]:
    """Blocks of all orders of a few rows, or of `draws` random orders, each in bounded memory."""
    count = shape[0]
    if count <= EXACT_ROWS:
        yield np.array(list(permutations(range(count))), dtype=np.int64)
        return
    random = np.random.default_rng(seed)
    block = max(1, CHUNK_NUMBERS // (count * shape[1]))
    for start in range(0, draws, block):
        yield np.argsort(random.random((min(block, draws - start), count)), axis=1)


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """Options of positions by rank: the coordinate that features are sorted by, and in which direction (OpenCV: x, ascending).

    `anchored` uses lines along gravity, which tell the x of their own rows exactly, and bounds for the rows between them
    (position_attacks.md#one-line-and-the-blind-guesses).
    """

    axis: Literal["x", "y"] = "x"
    descending: bool = False
    anchored: bool = True

    def __post_init__(self) -> None:
        if self.axis not in ("x", "y"):
            raise RangeError(f"axis must be 'x' or 'y', got {self.axis!r}")


def coordinates_by_rank(lines: Lines, *, camera: Camera, options: RankOptions | None = None) -> Float64[np.ndarray, "lines"]:
    """Expected coordinate (pixels) of each row of a sorted message: evenly spread over the image, or between anchors.

    Theory: docs/theory/position_attacks.md, Eq. 12.
    """
    options = options or RankOptions()
    size = camera.width_px if options.axis == "x" else camera.height_px
    count = len(lines)
    share = (np.arange(count) + 0.5) / max(count, 1)
    if options.anchored and options.axis == "x" and lines.aligned.any():
        x = horizontal_px(lines, camera)
        known = np.flatnonzero(np.isfinite(x))
        # Lines along gravity lean a little, so that their order is not quite that of the keypoints.
        sorted_x = np.sort(np.clip(x[known], 0, size))
        rows, at = np.concatenate([[-1.0], known, [count]]), np.concatenate([[0.0], sorted_x, [float(size)]])
        if options.descending:
            at = np.concatenate([[float(size)], sorted_x[::-1], [0.0]])
        return np.interp(np.arange(count), rows, at)
    return size * (1 - share if options.descending else share)


def horizontal_px(lines: Lines, camera: Camera) -> Float64[np.ndarray, "lines"]:
    """Horizontal coordinates (pixels) that lines along gravity give away, at the middle of their segments; NaN for others."""
    where = segments(lines, camera)
    middle = pixels(where.at(where.between(np.full(len(where), 0.5))), camera)[:, 0]
    return np.where(lines.aligned, middle, np.nan)


def positions_by_rank(lines: Lines, *, camera: Camera, options: RankOptions | None = None) -> Estimates:
    """Estimated positions (pixels): the point of each line whose coordinate is that of the row in a sorted message.

    The confidence is the share of that coordinate in the line's direction: the point is well determined where the coordinate
    changes along the line, and not where it stays the same. Lines that miss the image, or along which the coordinate hardly
    changes, are undecided. Nothing is certified: `order_test` says whether the order leaks.
    """
    options = options or RankOptions()
    column = 0 if options.axis == "x" else 1
    where, target = segments(lines, camera), coordinates_by_rank(lines, camera=camera, options=options)
    along = np.abs(where.direction[:, column])
    usable = np.isfinite(where.low) & (along > 0.02)
    s = np.full(len(lines), np.nan)
    for row in np.flatnonzero(usable):
        s[row] = _reaching(where, int(row), target[row], column, camera)
    points = pixels(where.foot + s[:, None] * where.direction, camera)
    known = np.isfinite(points).all(axis=1)
    confidence = np.where(known, np.clip(along, 0, 1), 0.0)
    return Estimates(points=points, confidence=confidence, certified=np.zeros(len(lines), dtype=bool))


def _reaching(where: Segments, row: int, target: float, column: int, camera: Camera) -> float:
    """Parameter at which a line has the pixel coordinate `target`, or that of the segment's end nearest to it."""
    s = np.linspace(where.low[row], where.high[row], STEPS)
    shown = pixels(where.foot[row] + s[:, None] * where.direction[row], camera)[:, column]
    if shown[-1] < shown[0]:
        s, shown = s[::-1], shown[::-1]
    return float(np.interp(target, shown, s))
