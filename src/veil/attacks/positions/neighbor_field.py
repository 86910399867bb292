"""Positions from lines of features that are believed to lie at given distances, by the likelihood of these lines.

The estimator of Chelani et al. (2024), which `veil.attacks.positions.line_neighbors` has, asks where neighbors' lines come
closest. On lines through a common public anchor that is the anchor, and says nothing (Kim et al. 2026). The likelihood of a
line, as a draw by its rule through a neighbor near the position, also says how far apart the lines should be: angles between
the lines of neighbors shrink with the distance to the anchor, and so tell it.

Theory: docs/theory/position_attacks.md, Eq. 13-15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.attacks.claims import Estimates
from veil.attacks.positions.segments import Segments, focal_px, pixels, segments
from veil.errors import InputError
from veil.forms import Lines
from veil.geometry.anchors import across, anchors, pencil_of, told_half
from veil.geometry.camera import Camera
from veil.progress import Progress

# Upper ends of the classes of distances between two keypoints, in pixels; the last class has the pairs that lie farther apart.
DISTANCES_PX = (4.0, 8.0, 16.0, 32.0, 64.0)
CLASSES = len(DISTANCES_PX) + 1
# Positions tried along each line, beside its crossings with its neighbors' lines.
STEPS = 128
# Segments no longer than this (normalized plane) are left out: a corner of the image, or rounding at the border of halves.
SHORTEST = 1e-6
# Probability that a belief is mistaken and the line is any keypoint's.
MISTAKEN = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class DistanceBeliefs:
    """For each feature some others (rows; -1: none), and the probabilities of the classes of their distance in the image.

    The classes are those of `DISTANCES_PX`; the last one is that of features which lie farther apart.
    """

    rows: Int64[np.ndarray, "features others"]
    probabilities: Float64[np.ndarray, "features others classes"]

    def __post_init__(self) -> None:
        if self.probabilities.shape != (*self.rows.shape, CLASSES):
            raise InputError(f"beliefs need {CLASSES} probabilities for each pair, got {self.probabilities.shape}")
        if not ((self.rows >= -1) & (self.rows < len(self.rows))).all():
            raise InputError(f"neighbors are rows 0..{len(self.rows) - 1}, or -1 for none")
        if not (self.probabilities >= 0).all() or not np.allclose(self.probabilities.sum(axis=2), 1, atol=1e-4):
            raise InputError("the probabilities of a pair's classes of distance must not be negative, and add up to 1")

    def __len__(self) -> int:
        return len(self.rows)


def field_positions(lines: Lines, beliefs: DistanceBeliefs, *, camera: Camera, progress: Progress | None = None) -> Estimates:
    """Estimated positions (pixels), the likeliest on each line given the lines of the features believed to be near.

    Lines that miss the image are undecided. The confidence is the posterior probability of the positions within an eighth of
    the segment around the estimate; nothing is certified. Raises InputError if the beliefs are of another number of features.

    Theory: docs/theory/position_attacks.md, Eq. 13-15.
    """
    if len(beliefs) != len(lines):
        raise InputError(f"{len(lines)} lines need as many beliefs, got {len(beliefs)}")
    where = told_segments(lines, camera)
    rays = _Rays.of(where, lines, camera)
    chosen, confidence = np.full(len(lines), np.nan), np.zeros(len(lines))
    for row in range(len(lines)):
        if where.high[row] - where.low[row] > SHORTEST:
            chosen[row], confidence[row] = rays.likeliest(row, beliefs.rows[row], beliefs.probabilities[row])
        if progress is not None:
            progress(row + 1, len(lines))
    points = pixels(where.foot + chosen[:, None] * where.direction, camera)
    return Estimates(points=points, confidence=confidence, certified=np.zeros(len(lines), dtype=bool))


def told_segments(lines: Lines, camera: Camera) -> Segments:
    """Segments of lines inside the image, and inside the half of it that a line tells (position_attacks.md, Eq. 13)."""
    where = segments(lines, camera)
    half = told_half(lines.coefficients.astype(np.float64), lines.aligned, camera)
    normal = across(camera)
    slope, level = where.direction @ normal, where.foot @ normal
    with np.errstate(divide="ignore", invalid="ignore"):
        border = np.clip(-level / slope, where.low, where.high)
    inside = level + slope * where.low < 0  # the lower end lies in the first half
    cut = (half >= 0) & (np.abs(slope) > 1e-6)
    high = np.where(cut & (inside == (half == 0)), border, where.high)
    low = np.where(cut & (inside != (half == 0)), border, where.low)
    is_bounded = high - low > SHORTEST
    return replace(where, low=np.where(is_bounded, low, where.low), high=np.where(is_bounded, high, where.high))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rays:
    """Segments of the lines, where each one's anchor is along it (NaN: it has none), and the scales of the classes.

    Lengths are of the normalized plane. A keypoint of a line through an anchor has, given the line, a density along it that
    grows with the distance to the anchor, since such lines fan out; on other lines the density is even (Eq. 13).
    """

    where: Segments
    anchor_at: Float64[np.ndarray, "_"]
    scales: Float64[np.ndarray, "_"]
    area: float

    @staticmethod
    def of(where: Segments, lines: Lines, camera: Camera) -> _Rays:
        """Rays of the lines of one image."""
        pencil = pencil_of(lines.coefficients.astype(np.float64), camera)
        through = np.where(pencil < 2, pencil, -1)
        place = anchors(camera)[np.maximum(through, 0)]
        along = ((place - where.foot) * where.direction).sum(axis=1)
        x, y = where.outline.T
        area = 0.5 * abs(float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum()))
        ends = np.array([0.0, *DISTANCES_PX]) / focal_px(camera)
        # A Gaussian whose mean square distance is that of an even ring between two ends.
        scales = np.sqrt((ends[:-1] ** 2 + ends[1:] ** 2) / 4)
        return _Rays(where=where, anchor_at=np.where(through >= 0, along, np.nan), scales=scales, area=area)

    def likeliest(self, row: int, others: Int64[np.ndarray, "_"], belief: Float64[np.ndarray, "_ _"]) -> tuple[float, float]:
        """Parameter of the likeliest position on one line, and the posterior probability of what is near it."""
        low, high = self.where.low[row], self.where.high[row]
        used = (others >= 0) & (others != row) & (self.where.high[others] - self.where.low[others] > SHORTEST)
        others, belief = others[used], belief[used]
        tried = np.concatenate([low + (np.arange(STEPS) + 0.5) / STEPS * (high - low), self._crossings(row, others)])
        logs = self._prior(row, tried)
        if len(others):
            near = self._gains(row, others, tried)
            gain = np.einsum("jk,skj->sj", belief[:, :-1], near) + belief[:, -1]
            logs = logs + np.log((1 - MISTAKEN) * gain + MISTAKEN).sum(axis=1)
        best = float(tried[logs.argmax()])
        posterior = np.exp(logs[:STEPS] - logs[:STEPS].max())
        close = np.abs(tried[:STEPS] - best) <= (high - low) / 16
        return best, float(np.clip(posterior[close].sum() / posterior.sum(), 0.0, 1.0))

    def _crossings(self, row: int, others: Int64[np.ndarray, "_"]) -> Float64[np.ndarray, "_"]:
        """Parameters of the crossings with other lines inside the image."""
        direction, foot = self.where.direction, self.where.foot
        normal = np.stack([direction[others, 1], -direction[others, 0]], axis=1)
        slope = normal @ direction[row]
        level = (normal * (foot[row] - foot[others])).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = -level / slope
        return crossing[(np.abs(slope) > 1e-6) & (crossing >= self.where.low[row]) & (crossing <= self.where.high[row])]

    def _prior(self, row: int, tried: Float64[np.ndarray, "_"]) -> Float64[np.ndarray, "_"]:
        """Log density of the position along its own line, for keypoints that are even in the image."""
        if np.isnan(self.anchor_at[row]):
            return np.zeros(len(tried))
        return np.log(np.maximum(np.abs(tried - self.anchor_at[row]), 1e-12))

    def _gains(
        self, row: int, others: Int64[np.ndarray, "others"], tried: Float64[np.ndarray, "tried"]
    ) -> Float64[np.ndarray, "tried classes others"]:
        """Likelihood of each other line at each distance from each position, over that of a line of any keypoint (Eq. 14)."""
        from scipy.special import ndtr

        foot, direction = self.where.foot[others], self.where.direction[others]
        low, high, anchor = self.where.low[others], self.where.high[others], self.anchor_at[others]
        position = self.where.foot[row] + tried[:, None] * self.where.direction[row]
        away = position[:, None] - foot
        along = (away * direction).sum(axis=2)
        distance = away[..., 0] * direction[:, 1] - away[..., 1] * direction[:, 0]
        fans = np.isfinite(anchor)
        sign = np.where(fans & (anchor > high), -1.0, 1.0)  # the anchor lies before the segment or behind it
        reach = np.where(fans, sign * (0.5 * (low + high) - np.where(fans, anchor, 0.0)), 1.0)
        usual = reach * (high - low) / self.area
        gains = np.empty((len(tried), len(self.scales), len(others)))
        for k, scale in enumerate(self.scales):
            first, last = (low - along) / scale, (high - along) / scale
            even = ndtr(last) - ndtr(first)
            moment = scale / math.sqrt(2 * math.pi) * (np.exp(-(first**2) / 2) - np.exp(-(last**2) / 2))
            weighed = np.where(fans, sign * ((along - np.where(fans, anchor, 0.0)) * even + moment), even)
            gains[:, k] = np.exp(-((distance / scale) ** 2) / 2) / (math.sqrt(2 * math.pi) * scale) * weighed / usual
        return np.maximum(gains, 0.0)
