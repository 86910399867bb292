"""Upright poses from four lines with candidates of one mapped image, tested by its likeliest candidates; compiled by numba.

Samples are drawn by how likely their candidates are right. With gravity each gives at most two poses; those whose camera could
not have seen the four points as the mapped image did are dropped at once, the rest after batches of candidates that say too
little (words.md#search-among-lines).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from veil.compiled import compiled
from veil.geometry.robust.upright_search import (
    Kept,
    UprightLimits,
    drawn,
    guides_of,
    keep,
    near_enough,
    same_side,
    to_camera,
    uniform,
)
from veil.geometry.solvers.up4lp import MAX_POSES, upright_line_turns
from veil.geometry.solvers.vectors import dot

SAMPLE = 4
# Comparisons of a candidate with a pose for each sample, on average: where most poses pass, fewer samples are drawn.
COMPARISONS = 200
# Number of standard deviations beyond which a line is taken to be another point's.
FAR = 4.0


class LineSamples(NamedTuple):
    """Candidates from which samples of four are drawn.

    Candidates of mapped image v are rows `starts[v]` to `starts[v + 1]`, the most believed first; candidate c joins line
    `line_rows[c]` with the point `points[point_rows[c]]`, and is right with probability `belief[c]`. `cumulative[c]` is the sum
    of the image's beliefs up to c, over that of all. `lines` are planes through the camera in the frame where gravity is the
    y-axis; `points` and `centers`, the mapped images' cameras, are in the world where it is. `shares[v]` is the part of the
    samples that are drawn from images up to v.
    """

    lines: Float64[np.ndarray, "features 3"]
    points: Float64[np.ndarray, "points 3"]
    centers: Float64[np.ndarray, "images 3"]
    starts: Int64[np.ndarray, "images+1"]
    line_rows: Int64[np.ndarray, "candidates"]
    point_rows: Int64[np.ndarray, "candidates"]
    belief: Float64[np.ndarray, "candidates"]
    cumulative: Float64[np.ndarray, "candidates"]
    shares: Float64[np.ndarray, "images"]


class LineTest(NamedTuple):
    """Evidence of a candidate for a pose: log(1 - b + b peak exp(-r^2 inverse_variance / 2)), b its belief.

    r is the distance of the point's projection to its line in `seen`, unit-normal lines of the normalized plane; a projection
    beyond `half_extent` (|x| and |y|) or behind the camera is nowhere near. `peak` is the density of right distances at zero
    over that of wrong ones. `cam_from_up` turns a camera frame with gravity along y to the camera's.
    """

    seen: Float64[np.ndarray, "features 3"]
    half_extent: Float64[np.ndarray, "2"]
    cam_from_up: Float64[np.ndarray, "3 3"]
    peak: float
    inverse_variance: float


def search_lines(
    kept: Kept, sampled: LineSamples, tested: LineTest, limits: UprightLimits, *, samples: int, seed: int
) -> tuple[int, int]:
    """Draw `samples` of four, enter the poses that pass into `kept`, and count the plausible poses and those that passed.

    A pose's score is the sum of `LineTest` over all candidates of its mapped image. It is dropped where the sum over the first
    `limits.batches` of them is below `limits.least`. No sample is drawn after `COMPARISONS` of a candidate with a pose for each
    of the samples.
    """
    buffers = kept.turns, kept.images, kept.scores
    plausible, passed = _search(sampled, tested, limits, guides_of(sampled), *buffers, samples, np.uint64(seed))
    return int(plausible), int(passed)


def line_score(
    sampled: LineSamples, tested: LineTest, v: int, rotation: Float64[np.ndarray, "3 3"], shift: Float64[np.ndarray, "3"]
) -> float:
    """Sum of `LineTest` over all candidates of mapped image v, for a pose from the upright world to the camera."""
    return float(_line_sum(sampled, tested, sampled.starts[v], sampled.starts[v + 1], rotation, shift))


@compiled
def _line_sum(sampled, tested, first, last, rotation, shift):
    """Sum of what the candidates `first` to `last` say for a pose."""
    total, far = 0.0, FAR * FAR / tested.inverse_variance
    half_x, half_y = tested.half_extent[0], tested.half_extent[1]
    for c in range(first, last):
        p, line, belief = sampled.points[sampled.point_rows[c]], tested.seen[sampled.line_rows[c]], sampled.belief[c]
        z = rotation[2, 0] * p[0] + rotation[2, 1] * p[1] + rotation[2, 2] * p[2] + shift[2]
        x = rotation[0, 0] * p[0] + rotation[0, 1] * p[1] + rotation[0, 2] * p[2] + shift[0]
        y = rotation[1, 0] * p[0] + rotation[1, 1] * p[1] + rotation[1, 2] * p[2] + shift[1]
        beside = line[0] * x + line[1] * y + line[2] * z
        ratio = 1 - belief
        if z > 1e-9 and beside * beside < far * z * z and abs(x) <= half_x * z and abs(y) <= half_y * z:
            ratio += belief * tested.peak * math.exp(-beside * beside / (z * z) * tested.inverse_variance / 2)
        total += math.log(ratio)
    return total


@compiled
def _score(sampled, tested, limits, v, rotation, shift):
    """Sum over all candidates of image v, or -inf where a first part is too small."""
    first, last = sampled.starts[v], sampled.starts[v + 1]
    total, done = 0.0, first
    for i in range(len(limits.batches)):
        until = min(first + limits.batches[i], last)
        total += _line_sum(sampled, tested, done, until, rotation, shift)
        done = until
        if total < limits.least[i]:
            return -math.inf
    return total + _line_sum(sampled, tested, done, last, rotation, shift)


@compiled
def _plausible(points, center, turn, rotation, shift, half_extent, limits):
    """Whether a camera shows four points in its picture, and sees them about as the mapped image at `center` (3,) does."""
    # The camera's center is -Y^T t.
    x, y, z = turn[1] * turn[4] - turn[0] * turn[2], -turn[3], -turn[1] * turn[2] - turn[0] * turn[4]
    for i in range(SAMPLE):
        p = points[i]
        depth = dot(rotation[2], p) + shift[2]
        if depth <= 1e-9 or abs(dot(rotation[0], p) + shift[0]) > half_extent[0] * depth:
            return False
        if abs(dot(rotation[1], p) + shift[1]) > half_extent[1] * depth:
            return False
        distance = math.sqrt((x - p[0]) ** 2 + (y - p[1]) ** 2 + (z - p[2]) ** 2)
        if not (near_enough(p, center, distance, limits) and same_side(p, center, distance, turn, limits)):
            return False
    return True


@compiled
def _draw(sampled, guided, v, state, rows):
    """Draw four candidates of image v into `rows` (4,); False if two of them share a line or a point."""
    for i in range(SAMPLE):
        rows[i] = drawn(sampled.cumulative, guided, sampled.starts[v], sampled.starts[v + 1], uniform(state))
        for j in range(i):
            if sampled.line_rows[rows[i]] == sampled.line_rows[rows[j]]:
                return False
            if sampled.point_rows[rows[i]] == sampled.point_rows[rows[j]]:
                return False
    return True


@compiled
def _search(sampled, tested, limits, guides, turns, images, scores, samples, seed):
    """Numbers of plausible poses and of poses that passed; the best are entered into `turns`, `images` and `scores`."""
    state, rows = np.array([seed], dtype=np.uint64), np.empty(SAMPLE, dtype=np.int64)
    lines, points, design = np.empty((SAMPLE, 3)), np.empty((SAMPLE, 3)), np.empty((SAMPLE, 6))
    solutions, rotation, shift = np.empty((MAX_POSES, 5)), np.empty((3, 3)), np.empty(3)
    plausible, passed, left = 0, 0, samples * COMPARISONS
    of_images, of_candidates = guides
    for _ in range(samples):
        if left < 0:
            break
        v = drawn(sampled.shares, of_images, 0, len(sampled.shares), uniform(state))
        if sampled.starts[v + 1] - sampled.starts[v] < SAMPLE or not _draw(sampled, of_candidates, v, state, rows):
            continue
        for i in range(SAMPLE):
            for j in range(3):
                lines[i, j] = sampled.lines[sampled.line_rows[rows[i]], j]
                points[i, j] = sampled.points[sampled.point_rows[rows[i]], j]
        for k in range(upright_line_turns(lines, points, design, solutions)):
            turn = solutions[k]
            to_camera(turn, tested.cam_from_up, rotation, shift)
            if not _plausible(points, sampled.centers[v], turn, rotation, shift, tested.half_extent, limits):
                continue
            plausible += 1
            score = _score(sampled, tested, limits, v, rotation, shift)
            left -= limits.batches[0]
            if score > -math.inf:
                passed += 1
                left -= sampled.starts[v + 1] - sampled.starts[v]
                keep(turns, images, scores, turn, v, score, dot(rotation[2], points[0]) + shift[2], limits)
    return plausible, passed
