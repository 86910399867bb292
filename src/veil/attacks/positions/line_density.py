"""Positions from the density of a line cloud, after Chelani, Kahl, Sattler (CVPR 2021), for the lines of one image.

In space, lines pass near each other mostly where their points are near each other, and the closest approaches to neighboring
lines pile up at the hidden point. In the plane *every* two lines cross, wherever their points are, so the crossings on a line
follow the keypoints of the whole image (docs/theory/position_attacks.md, Eq. 2-3). What carries over is a density of keypoints:
the attack finds where keypoints crowd, and says nothing of where one keypoint is among them. No position is ever certified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from veil.attacks.claims import Estimates, undecided
from veil.attacks.positions.segments import Segments, pixels, segments
from veil.errors import RangeError
from veil.forms import Lines
from veil.geometry.camera import Camera
from veil.progress import Progress

CHUNK_LINES = 128


@dataclass(frozen=True, kw_only=True)
class DensityOptions:
    """`crossings` is the estimator of the paper: a kernel density of the crossings on each line. `backprojection` estimates the
    density of keypoints in the plane without bias (Eq. 4) and reads it off along each line.

    `decide` takes the highest `peak`, or the `median` of the density on the line, which has the least expected error.
    `bandwidth_share` is the kernel's standard deviation in units of the image's diagonal; `steps` are positions on each line,
    `grid_cells` the cells of the longer side of the map of densities; with fewer than `min_lines` lines of free direction
    there is no density and no decision. Defaults were tuned on photographs of an ImageNet sample.
    """

    estimator: Literal["crossings", "backprojection"] = "backprojection"
    decide: Literal["peak", "median"] = "median"
    bandwidth_share: float = 0.064
    steps: int = 200
    grid_cells: int = 128
    min_lines: int = 8

    def __post_init__(self) -> None:
        if self.estimator not in ("crossings", "backprojection"):
            raise RangeError(f"estimator must be 'crossings' or 'backprojection', got {self.estimator!r}")
        if self.decide not in ("peak", "median"):
            raise RangeError(f"decide must be 'peak' or 'median', got {self.decide!r}")
        if not 1e-4 <= self.bandwidth_share <= 1:
            raise RangeError(f"bandwidth_share must be between 0.0001 and 1 diagonals, got {self.bandwidth_share!r}")
        if not 8 <= self.steps <= 4096 or not 8 <= self.grid_cells <= 1024:
            raise RangeError(f"steps must be 8..4096 and grid_cells 8..1024, got {self.steps!r} and {self.grid_cells!r}")
        if not self.min_lines >= 2:
            raise RangeError(f"min_lines must be at least 2, got {self.min_lines!r}")


def density_positions(
    lines: Lines, *, camera: Camera, options: DensityOptions | None = None, progress: Progress | None = None
) -> Estimates:
    """A position (pixels) on each line from all lines of the image; the confidence is the share of the line's density that
    lies within one bandwidth of it.

    Undecided are lines that miss the image, and all of them where fewer than `min_lines` lines have a free direction: lines
    along gravity cross each other in its vanishing point only, which says nothing.
    """
    options = options or DensityOptions()
    free = np.flatnonzero(~lines.aligned)
    if len(free) < options.min_lines:
        return undecided(len(lines), 2)
    where = segments(lines, camera)
    extent = np.ptp(where.outline, axis=0)
    bandwidth = options.bandwidth_share * float(np.hypot(*extent))
    grid = _backprojected(where, free, bandwidth, options.grid_cells) if options.estimator == "backprojection" else None
    shares = (np.arange(options.steps) + 0.5) / options.steps
    chosen, confidence = np.full(len(lines), np.nan), np.zeros(len(lines))
    for start in range(0, len(lines), CHUNK_LINES):
        rows = np.arange(start, min(start + CHUNK_LINES, len(lines)))
        rows = rows[np.isfinite(where.low[rows])]
        s = where.low[rows, None] + shares * (where.high - where.low)[rows, None]
        if grid is not None:
            weight = np.maximum(grid.read(where.foot[rows, None] + s[..., None] * where.direction[rows, None]) - 1.0, 0) + 1e-3
        else:
            weight = _crossings(where, rows, s, bandwidth)
        chosen[rows], confidence[rows] = _decision(s, weight, bandwidth, options.decide)
        if progress is not None:
            progress(min(start + CHUNK_LINES, len(lines)), len(lines))
    points = pixels(where.foot + chosen[:, None] * where.direction, camera)
    known = np.isfinite(points).all(axis=1)
    return Estimates(points=points, confidence=np.where(known, confidence, 0.0), certified=np.zeros(len(lines), dtype=bool))


def _decision(
    s: Float64[np.ndarray, "lines steps"], weight: Float64[np.ndarray, "lines steps"], bandwidth: float, decide: str
) -> tuple[Float64[np.ndarray, "lines"], Float64[np.ndarray, "lines"]]:
    weight = weight / weight.sum(axis=1, keepdims=True)
    best = weight.argmax(axis=1) if decide == "peak" else (np.cumsum(weight, axis=1) >= 0.5).argmax(axis=1)
    chosen = s[np.arange(len(s)), best]
    near = np.abs(s - chosen[:, None]) <= bandwidth
    return chosen, np.clip((weight * near).sum(axis=1), 0.0, 1.0)


def _crossings(
    where: Segments, rows: np.ndarray, s: Float64[np.ndarray, "lines steps"], bandwidth: float
) -> Float64[np.ndarray, "lines steps"]:
    """Kernel density of the crossings with all other lines, on the grid of each segment; kernels that reach in count, too."""
    normal = np.stack([where.direction[:, 1], -where.direction[:, 0]], axis=1)
    offset = -(normal * where.foot).sum(axis=1)
    across = where.direction[rows] @ normal.T
    with np.errstate(divide="ignore", invalid="ignore"):
        met = -(where.foot[rows] @ normal.T + offset) / across
    steps = s.shape[1]
    step = (where.high - where.low)[rows] / steps
    pad = steps // 2
    with np.errstate(invalid="ignore"):
        cell = np.floor((met - where.low[rows, None]) / np.maximum(step, 1e-300)[:, None]) + pad
    valid = (np.abs(across) > 1e-9) & np.isfinite(cell) & (cell >= 0) & (cell < steps + 2 * pad)
    valid[np.arange(len(rows)), rows] = False
    width = steps + 2 * pad
    line, other = np.nonzero(valid)
    counts = np.bincount(line * width + cell[line, other].astype(np.int64), minlength=len(rows) * width)
    return _smoothed(counts.reshape(len(rows), width).astype(np.float64), bandwidth / np.maximum(step, 1e-300))[:, pad:-pad]


def _smoothed(
    counts: Float64[np.ndarray, "lines cells"], sigma_cells: Float64[np.ndarray, "lines"]
) -> Float64[np.ndarray, "lines cells"]:
    """Each row convolved with a Gaussian of its own width, through the Fourier transform with room for the tails."""
    cells = counts.shape[1]
    frequency = np.fft.rfftfreq(2 * cells)
    kernel = np.exp(-2 * np.square(np.pi * np.minimum(sigma_cells, cells)[:, None] * frequency))
    return np.maximum(np.fft.irfft(np.fft.rfft(counts, 2 * cells) * kernel, 2 * cells)[:, :cells], 0) + 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class _Grid:
    """Values at the nodes of a regular grid in the normalized plane."""

    corner: Float64[np.ndarray, "_"]
    cell: float
    values: Float64[np.ndarray, "_ _"]

    def read(self, points: Float64[np.ndarray, "*batch 2"]) -> Float64[np.ndarray, "*batch"]:
        """Bilinear."""
        x, y = np.moveaxis((points - self.corner) / self.cell, -1, 0)
        height, width = self.values.shape
        x, y = np.clip(x, 0, width - 1.001), np.clip(y, 0, height - 1.001)
        column, row = x.astype(np.int64), y.astype(np.int64)
        u, v = x - column, y - row
        top = self.values[row, column] * (1 - u) + self.values[row, column + 1] * u
        below = self.values[row + 1, column] * (1 - u) + self.values[row + 1, column + 1] * u
        return top * (1 - v) + below * v


def _backprojected(where: Segments, free: np.ndarray, bandwidth: float, cells: int) -> _Grid:
    """Sum over the lines of free direction of the ramp filter of their distance (Eq. 4); a line has 1 on itself.

    Lines along gravity have no share: their directions are not uniform, which Eq. 4 needs.
    """
    corner = where.outline.min(axis=0)
    extent = np.ptp(where.outline, axis=0)
    cell = float(extent.max()) / cells
    width, height = (int(np.ceil(side / cell)) + 2 for side in extent)
    xs, ys = corner[0] + cell * np.arange(width), corner[1] + cell * np.arange(height)
    reach = 2 * float(np.hypot(width, height)) * cell / bandwidth
    table_at = np.linspace(0, reach, max(1024, int(32 * reach)))
    table = ramp(table_at)
    values = np.zeros((height, width))
    for row in free:
        normal = np.array([where.direction[row, 1], -where.direction[row, 0]])
        distance = np.abs(normal[0] * (xs - where.foot[row, 0])[None, :] + normal[1] * (ys - where.foot[row, 1])[:, None])
        values += np.interp(distance / bandwidth, table_at, table)
    return _Grid(corner=corner, cell=cell, values=values)


def ramp(t: Float64[np.ndarray, "values"]) -> Float64[np.ndarray, "values"]:
    """The ramp filter smoothed by a unit Gaussian, 1 at 0: 1 - sqrt(2) t F(t / sqrt(2)) with Dawson's integral F (Eq. 4)."""
    from scipy.special import dawsn

    return 1 - np.sqrt(2) * t * dawsn(t / np.sqrt(2))
