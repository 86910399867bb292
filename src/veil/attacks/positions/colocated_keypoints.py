"""Who is at one place with whom: neighborhoods from SIFT descriptors alone.

Detectors describe one keypoint in each of its dominant orientations, and again in the next scale. The first kind of twins
differ by a rotation of the histogram, the second hardly at all (docs/theory/position_attacks.md, Eq. 8-9).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from veil.attacks.positions.line_neighbors import Neighborhoods
from veil.errors import InputError, RangeError
from veil.progress import Progress

CELLS, BINS = 4, 8
CHUNK_ROWS = 512

# How often two descriptors of one photograph with this likeness lie within 3 px of each other (ImageNet sample).
LIKENESS = (0.85, 0.875, 0.9, 0.925, 1.0)
SHARE = (0.0, 0.05, 0.35, 0.55, 0.65)


@dataclass(frozen=True, kw_only=True)
class TwinOptions:
    """`rotations` of the histogram that are tried; at most `count` twins a feature, the likest, each of at least `likeness`.

    The orientation bins of SIFT turn against its cells in the layout of COLMAP and UBC (`mirrored`).
    """

    rotations: int = 36
    count: int = 4
    likeness: float = 0.875
    mirrored: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.rotations <= 720:
            raise RangeError(f"rotations must be between 1 and 720, got {self.rotations!r}")
        if not 1 <= self.count <= 256:
            raise RangeError(f"count must be between 1 and 256, got {self.count!r}")
        if not 0 < self.likeness < 1:
            raise RangeError(f"likeness must be between 0 and 1, got {self.likeness!r}")


def twins(
    descriptors: Float[np.ndarray, "features bins"], *, options: TwinOptions | None = None, progress: Progress | None = None
) -> Neighborhoods:
    """For each feature those that look like itself turned by some angle; weights are the shares of `SHARE`.

    `descriptors` are SIFT histograms of any length (rows are scaled): of RootSIFT give the squares, behind a PCA give
    mean + axes^T x, of lifted descriptors the estimates of another attack. Rows with NaN have no twins.
    Raises InputError for anything but 4 x 4 cells of 8 bins.
    """
    options = options or TwinOptions()
    if descriptors.ndim != 2 or descriptors.shape[1] != CELLS * CELLS * BINS:
        raise InputError(f"twins are found among SIFT histograms of 128 numbers, got {descriptors.shape}; undo the PCA first")
    count = len(descriptors)
    known = np.isfinite(descriptors).all(axis=1)
    unit = _unit(np.where(known[:, None], descriptors, 0.0).astype(np.float32))
    turns = [_turn(2 * np.pi * k / options.rotations, options.mirrored).astype(np.float32) for k in range(options.rotations)]
    width = min(options.count, max(count - 1, 1))
    rows, weights = np.full((count, width), -1, dtype=np.int64), np.zeros((count, width))
    turned = [_unit(unit @ turn.T) for turn in turns]
    for start in range(0, count, CHUNK_ROWS):
        block = np.arange(start, min(start + CHUNK_ROWS, count))
        likeness = _likeness(unit, turned, block)
        likeness[np.arange(len(block)), block] = -1
        likeness[:, ~known] = -1
        likeness[~known[block]] = -1
        order = np.argsort(-likeness, axis=1, kind="stable")[:, :width]
        values = np.take_along_axis(likeness, order, axis=1)
        kept = values >= options.likeness
        rows[block] = np.where(kept, order, -1)
        weights[block] = np.where(kept, np.interp(values, LIKENESS, SHARE), 0.0)
        if progress is not None:
            progress(int(block[-1]) + 1, count)
    return Neighborhoods(rows=rows, weights=weights)


def _likeness(
    unit: Float[np.ndarray, "features dim"], turned: list[np.ndarray], block: np.ndarray
) -> Float64[np.ndarray, "block features"]:
    """Greatest cosine over all turns; the lesser of both directions, since turning loses the histogram's corners (Eq. 9)."""
    there = np.full((len(block), len(unit)), -1.0, dtype=np.float32)
    back = there.copy()
    for one in turned:
        np.maximum(there, one[block] @ unit.T, out=there)
        np.maximum(back, unit[block] @ one.T, out=back)
    return np.minimum(there, back).astype(np.float64)


def _turn(angle: float, mirrored: bool) -> Float64[np.ndarray, "128 128"]:
    """The matrix that turns a histogram: bilinear between cells, linear between orientation bins (Eq. 8)."""
    matrix = np.zeros((CELLS, CELLS, BINS, CELLS, CELLS, BINS))
    middle = (CELLS - 1) / 2
    y, x = np.mgrid[0:CELLS, 0:CELLS] - middle
    from_x, from_y = np.cos(angle) * x - np.sin(angle) * y + middle, np.sin(angle) * x + np.cos(angle) * y + middle
    shift = (-1 if mirrored else 1) * angle / (2 * np.pi) * BINS
    whole, part = int(np.floor(shift)), shift - np.floor(shift)
    for row, column, i, j in np.ndindex(CELLS, CELLS, CELLS, CELLS):
        share = max(1 - abs(from_x[row, column] - j), 0) * max(1 - abs(from_y[row, column] - i), 0)
        if share > 0:
            for bin_ in range(BINS):
                matrix[row, column, bin_, i, j, (bin_ + whole) % BINS] += share * (1 - part)
                matrix[row, column, bin_, i, j, (bin_ + whole + 1) % BINS] += share * part
    return matrix.reshape(CELLS * CELLS * BINS, -1)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
