"""How a landmark looks from different places: whether it is detected, its descriptor, and the noise of its keypoint.

Everything is drawn from what `veil_lab.city.tracks` measured. A landmark's appearance is its core, plus a part that changes
with the direction of view, a part that changes with distance, and a part of each image alone. The changing parts are real
differences between two views of one point, placed at nodes of direction (every `angle_step_deg`) and of distance (every
octave) and mixed in between with cos and sin, so that the variance is the same everywhere and near views are alike. Whether a
landmark is detected is a normal variable over a threshold, with the same parts. docs/theory/city.md has the equations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float64, Int16, UInt8, UInt64
from scipy.optimize import nnls
from scipy.special import ndtr, ndtri

from veil_lab.city.draws import mixed, normal, uniform
from veil_lab.city.looks import quantized
from veil_lab.city.tracks import TrackPairs

NEAR_DEG, FAR_DEG, ANGLE_STEP_DEG, OCTAVE_STEP = 12.0, 25.0, 40.0, 1.0
DETECTED = 0.4  # of the landmarks in view, in the middle; the rest of repeatability is measured
KNOTS = np.array([0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95])
# Points of tracks are found more often than landmarks: with this factor on what is measured, the same measurement on simulated
# images gives what it gives on real ones (`lab/benchmarks/city.py --compare`).
SELECTION = 0.9
_JITTER, MOST_GAIN = 0.1, 2.5
_BINS_DEG = np.array([0.0, 5, 10, 15, 20, 25, 30, 35, 40, 50, 60])


@dataclass(frozen=True, kw_only=True, eq=False)
class ViewStatistics:
    """Source of the draws.

    - `near`, `far`, int16 (N, 128): real differences of descriptors of one point between two views at most 12 and at least 25
      degrees apart, sorted by length. `near_gain`, `angle_gain`, `octave_gain`: factors at quantiles of length (`KNOTS`) that
      make simulated distances as long as real ones.
    - `lasting`, `by_angle`, `by_octave`: shares of the variance of detection; the rest is of one image alone.
    - `noise`, (N, 2): real keypoint errors over their scale's typical error, `noise_px` + `noise_per_sigma` x scale.
    - `scale_noise`: log2 of found over foretold scale, real draws. `clutter`: share of features that are of no landmark.
    """

    near: Int16[np.ndarray, "_ 128"]
    far: Int16[np.ndarray, "_ 128"]
    near_gain: Float64[np.ndarray, "knots"]
    angle_gain: Float64[np.ndarray, "knots"]
    octave_gain: Float64[np.ndarray, "knots"]
    lasting: float
    by_angle: float
    by_octave: float
    noise: Float64[np.ndarray, "_ 2"]
    noise_px: float
    noise_per_sigma: float
    scale_noise: Float64[np.ndarray, "_"]
    clutter: float


def statistics_of(pairs: TrackPairs, cores: UInt8[np.ndarray, "_ 128"], *, clutter: float) -> ViewStatistics:
    """Numbers of `TrackPairs`, with gains that fit simulated distances on `cores` to the real ones."""
    angle, octaves = pairs.angle_deg[pairs.is_repeated], pairs.octaves[pairs.is_repeated]
    pools = {}
    for name, rows in (("near", angle <= NEAR_DEG), ("far", angle >= FAR_DEG)):
        chosen = pairs.differences[rows]
        pools[name] = chosen[np.argsort(np.linalg.norm(chosen.astype(np.float64), axis=1), kind="stable")]
    noise_px, per_sigma = _noise_law(pairs)
    lasting, by_angle, by_octave = _detection(pairs)
    start = ViewStatistics(
        near=pools["near"],
        far=pools["far"],
        near_gain=np.ones(len(KNOTS)),
        angle_gain=np.ones(len(KNOTS)),
        octave_gain=np.full(len(KNOTS), 0.5),
        lasting=lasting,
        by_angle=by_angle,
        by_octave=by_octave,
        noise=pairs.residuals_px / (noise_px + per_sigma * pairs.sigmas_px)[:, None],
        noise_px=noise_px,
        noise_per_sigma=per_sigma,
        scale_noise=pairs.scale_noise,
        clutter=clutter,
    )
    return _with_gains(start, angle, octaves, pairs.distance, cores)


def nodes(position: Float64[np.ndarray, "_"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The node below each position (in steps), and the weights of this one and the next, whose squares sum to one."""
    low = np.floor(position)
    phase = (position - low) * (math.pi / 2)
    return low.astype(np.int64), np.cos(phase), np.sin(phase)


def kernel(steps: Float64[np.ndarray, "_"]) -> Float64[np.ndarray, "_"]:
    """Correlation of two positions `steps` apart, averaged over where the nodes lie."""
    phases = (np.arange(64) + 0.5) / 64
    low, first, second = nodes(phases)
    other, third, fourth = nodes((phases + np.abs(steps)[:, None]).ravel())
    shape = (len(steps), len(phases))
    gap = other.reshape(shape) - low
    third, fourth = third.reshape(shape), fourth.reshape(shape)
    return np.where(gap == 0, first * third + second * fourth, np.where(gap == 1, second * third, 0.0)).mean(axis=1)


def detected(
    statistics: ViewStatistics,
    key: UInt64[np.ndarray, "_"],
    angle_deg: Float64[np.ndarray, "_"],
    octave: Float64[np.ndarray, "_"],
    random: np.random.Generator,
) -> np.ndarray:
    """Mask of the landmarks (by appearance key) that an image detects, seen from these directions and distances."""
    s = statistics
    own = max(1.0 - s.lasting - s.by_angle - s.by_octave, 0.0)
    value = math.sqrt(s.lasting) * normal(key, 41) + math.sqrt(own) * random.normal(size=len(key))
    for share, position, purpose in ((s.by_angle, angle_deg / ANGLE_STEP_DEG, 42), (s.by_octave, octave / OCTAVE_STEP, 43)):
        low, first, second = nodes(position)
        value += math.sqrt(share) * (first * normal(key, purpose, low) + second * normal(key, purpose, low + 1))
    return value > -ndtri(DETECTED)


def described(
    statistics: ViewStatistics,
    cores: UInt8[np.ndarray, "_ 128"],
    key: UInt64[np.ndarray, "_"],
    angle_deg: Float64[np.ndarray, "_"],
    octave: Float64[np.ndarray, "_"],
    image: int,
) -> UInt8[np.ndarray, "_ 128"]:
    """Descriptors of landmarks with these cores, seen from these directions and distances by image number `image`.

    Landmarks of one appearance key change alike: similar patches of one place do, and so stay as similar as they are.
    """
    s = statistics
    # A landmark is steady or not in all its views: all its differences come from about the same quantile of length.
    quantile = uniform(key, 51)
    total = cores.astype(np.float32)
    own = quantile + _JITTER * (2 * uniform(key, 54, image) - 1)
    total += _gain(s.near_gain, quantile)[:, None] * _at(s.near, own)
    parts = ((s.angle_gain, angle_deg / ANGLE_STEP_DEG, 52), (s.octave_gain, octave / OCTAVE_STEP, 53))
    for gain, position, purpose in parts:
        low, first, second = nodes(position)
        for node, weight in ((low, first), (low + 1, second)):
            jitter = _JITTER * (2 * uniform(key, purpose, node) - 1)
            total += (_gain(gain, quantile) * weight.astype(np.float32))[:, None] * _at(s.far, quantile + jitter)
    return quantized(total)


def _gain(gains: Float64[np.ndarray, "knots"], quantile: Float64[np.ndarray, "_"]) -> np.ndarray:
    """Gains at quantiles of length, over sqrt(2): a difference of two views holds the noise of both."""
    return np.interp(quantile, KNOTS, gains * math.sqrt(0.5)).astype(np.float32)


def _at(pool: Int16[np.ndarray, "_ 128"], quantile: Float64[np.ndarray, "_"]) -> np.ndarray:
    """Rows of a sorted pool at quantiles, reflected into 0 to 1."""
    inside = 1 - np.abs(1 - np.abs(quantile))
    return pool[np.minimum((inside * len(pool)).astype(np.int64), len(pool) - 1)]


def shifted(
    statistics: ViewStatistics, sigmas_px: Float64[np.ndarray, "_"], random: np.random.Generator
) -> tuple[Float64[np.ndarray, "_ 2"], Float64[np.ndarray, "_"]]:
    """Errors of keypoints in pixels, and their scales as found, for scales (px) as they should be."""
    s = statistics
    typical = s.noise_px + s.noise_per_sigma * sigmas_px
    errors = s.noise[random.integers(len(s.noise), size=len(sigmas_px))] * typical[:, None]
    return errors, sigmas_px * 2.0 ** s.scale_noise[random.integers(len(s.scale_noise), size=len(sigmas_px))]


def _noise_law(pairs: TrackPairs) -> tuple[float, float]:
    """Typical keypoint error as a line over scale: least squares over medians in eight bins of scale."""
    order = np.argsort(pairs.sigmas_px)
    sizes, errors = [], []
    for rows in np.array_split(order, 8):
        sizes.append(np.median(pairs.sigmas_px[rows]))
        errors.append(1.4826 * np.median(np.abs(pairs.residuals_px[rows])))
    (base, slope), _ = nnls(np.stack([np.ones(8), sizes], axis=1), np.array(errors))
    return max(float(base), 0.02), float(slope)


def repeatability(correlation: Float64[np.ndarray, "_"], share: float = DETECTED) -> Float64[np.ndarray, "_"]:
    """P(second detected | first detected) of two standard normal variables over one threshold."""
    threshold = -ndtri(share)
    levels = -ndtri(share * (np.arange(400) + 0.5) / 400)  # equal shares of the first, given that it is over the threshold
    rho = np.clip(correlation, 0.0, 1 - 1e-9)[:, None]
    return ndtr((rho * levels - threshold) / np.sqrt(1 - rho**2)).mean(axis=1)


def _detection(pairs: TrackPairs) -> tuple[float, float, float]:
    """Shares of the variance of detection that last, change with direction and with distance, from measured repeatability."""
    grid = np.linspace(0, 1, 501)
    curve = repeatability(grid)
    rows, targets, weights = [], [], []
    for low, high in pairwise(_BINS_DEG):
        for least, most in ((0.0, 0.3), (0.3, 0.6), (0.6, 1.2)):
            octaves = np.abs(pairs.octaves)
            chosen = (pairs.angle_deg >= low) & (pairs.angle_deg < high) & (octaves >= least) & (octaves < most)
            if chosen.sum() < 30:
                continue
            chance = pairs.by_chance[chosen].mean()
            again = (pairs.is_repeated[chosen].mean() - chance) / (1 - chance)
            targets.append(np.interp(SELECTION * again, curve, grid))
            steps = np.array([pairs.angle_deg[chosen].mean() / ANGLE_STEP_DEG, octaves[chosen].mean() / OCTAVE_STEP])
            rows.append([1.0, *kernel(steps)])
            weights.append(math.sqrt(chosen.sum()))
    scale = np.array(weights)
    shares, _ = nnls(np.array(rows) * scale[:, None], np.array(targets) * scale)
    shares = shares / max(1.0, shares.sum() / 0.98)
    return float(shares[0]), float(shares[1]), float(shares[2])


def _with_gains(
    start: ViewStatistics, angle: np.ndarray, octaves: np.ndarray, distance: np.ndarray, cores: UInt8[np.ndarray, "_ 128"]
) -> ViewStatistics:
    """Gains by quantile, at which simulated distances of near views, far views and changed scale are the real ones."""
    random = np.random.default_rng(3)
    still = np.abs(octaves) < 0.3
    groups = {"near_gain": still & (angle < NEAR_DEG), "angle_gain": still & (angle > FAR_DEG)}
    if (changed := (np.abs(octaves) > 0.6) & (angle < FAR_DEG)).sum() >= 100:
        groups["octave_gain"] = changed
    for _ in range(8):
        for name, rows in groups.items():
            if not rows.any():
                continue
            made, quantile = simulated_distances(start, angle[rows], octaves[rows], cores, random)
            middle = np.array([np.median(made[np.abs(quantile - knot) < 0.05]) for knot in KNOTS])
            gains = getattr(start, name) * np.quantile(distance[rows], KNOTS) / middle
            # Near views hold a little of the other parts and far ones all, so that a few rounds suffice.
            start = replace(start, **{name: np.clip(gains, 0.05, MOST_GAIN)})
    return start


def simulated_distances(
    statistics: ViewStatistics, angle: np.ndarray, octaves: np.ndarray, cores: np.ndarray, random: np.random.Generator
) -> tuple[Float64[np.ndarray, "6000"], Float64[np.ndarray, "6000"]]:
    """Distances of simulated descriptors of 6,000 landmarks, each seen from two places as far apart as some real pair, and the
    landmarks' quantiles."""
    rows = random.integers(len(angle), size=6000)
    own = cores[random.integers(len(cores), size=len(rows))]
    key = mixed(random.integers(1 << 40, size=len(rows)))
    from_deg, from_octave = random.uniform(0, ANGLE_STEP_DEG, len(rows)), random.uniform(0, OCTAVE_STEP, len(rows))
    first = described(statistics, own, key, from_deg, from_octave, 0)
    second = described(statistics, own, key, from_deg + angle[rows], from_octave + octaves[rows], 1)
    return np.linalg.norm(first.astype(float) - second.astype(float), axis=1), uniform(key, 51)
