"""Upright poses from four lines with candidates of one mapped image, tested by all candidates; compiled by numba.

Samples are drawn by how likely their candidates are, and poses whose camera could not have seen the points as the mapped image
did are dropped at once (words.md#search-among-lines).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from veil.compiled import compiled
from veil.geometry.robust.upright_search import Kept, Limits, drawn, keep, near_enough, same_side, to_camera, uniform
from veil.geometry.solvers.up4lp import MAX_POSES, upright_line_poses

# A candidate tells nothing for a pose beyond so many standard deviations.
FAR = 4.0


class LineSamples(NamedTuple):
    """What samples of four candidates are drawn from and tested by.

    Candidates of mapped image v are rows `starts[v]` to `starts[v + 1]`, the likeliest first; candidate c joins line
    `line_rows[c]` with the point `points[point_rows[c]]` and is right with probability `belief[c]`. `cumulative[c]` is the sum
    of the beliefs of the image's candidates up to c, over that of all. `lines` are unit-normal lines of the normalized plane,
    and `upright` the same as planes in the frame where gravity is the y-axis; `points` and `centers`, those of the mapped
    cameras, are in the world where it is. `shares[v]` is the part of the samples that are drawn from images up to v.
    `cam_from_up` turns the upright frame to the camera's.
    """

    lines: Float64[np.ndarray, "features 3"]
    upright: Float64[np.ndarray, "features 3"]
    points: Float64[np.ndarray, "points 3"]
    centers: Float64[np.ndarray, "images 3"]
    starts: Int64[np.ndarray, "images+1"]
    line_rows: Int64[np.ndarray, "candidates"]
    point_rows: Int64[np.ndarray, "candidates"]
    belief: Float64[np.ndarray, "candidates"]
    cumulative: Float64[np.ndarray, "candidates"]
    shares: Float64[np.ndarray, "images"]
    cam_from_up: Float64[np.ndarray, "3 3"]


class LineTest(NamedTuple):
    """What a candidate says for a pose: log(1 + belief (gain exp(-r^2 inverse_variance / 2) - 1)).

    r is the distance of the point's projection to the line, in the normalized plane, where projections beyond `half_extent`
    (|x| and |y|) say nothing. `gain` is the density of right distances at 0 over that of wrong ones.
    """

    inverse_variance: float
    gain: float
    half_extent: Float64[np.ndarray, "2"]


def search_lines(
    kept: Kept, sampled: LineSamples, tested: LineTest, limits: Limits, *, samples: int, seed: int
) -> tuple[int, int]:
    """Draw `samples` of four candidates and enter the poses that pass into `kept`; numbers of plausible poses and of passed.

    A pose's score is the sum of `LineTest` over all candidates of its mapped image but the sample's own. It is dropped where
    the sum over the first `limits.batches` of them is below `limits.least`.
    """
    plausible, passed = _search(sampled, tested, limits, kept.turns, kept.images, kept.scores, samples, np.uint64(seed))
    return int(plausible), int(passed)


def line_score(
    sampled: LineSamples, tested: LineTest, v: int, rotation: Float64[np.ndarray, "3 3"], shift: Float64[np.ndarray, "3"]
) -> float:
    """Sum of `LineTest` over all candidates of mapped image v, for a pose from the upright world to the camera."""
    return float(_sum(sampled, tested, sampled.starts[v], sampled.starts[v + 1], rotation, shift))


@compiled
def _sum(sampled, tested, first, last, rotation, shift):
    """Sum of what the candidates `first` to `last` say for a pose."""
    total, far = 0.0, FAR * FAR / tested.inverse_variance
    half_x, half_y = tested.half_extent[0], tested.half_extent[1]
    for c in range(first, last):
        p, line = sampled.points[sampled.point_rows[c]], sampled.lines[sampled.line_rows[c]]
        z = rotation[2, 0] * p[0] + rotation[2, 1] * p[1] + rotation[2, 2] * p[2] + shift[2]
        x = rotation[0, 0] * p[0] + rotation[0, 1] * p[1] + rotation[0, 2] * p[2] + shift[0]
        y = rotation[1, 0] * p[0] + rotation[1, 1] * p[1] + rotation[1, 2] * p[2] + shift[1]
        if z < 1e-9 or abs(x) > half_x * z or abs(y) > half_y * z:
            continue
        away = line[0] * x + line[1] * y + line[2] * z
        squared = away * away / (z * z)
        near = math.exp(-squared * tested.inverse_variance / 2) if squared < far else 0.0
        total += math.log(1 + sampled.belief[c] * (tested.gain * near - 1))
    return total


@compiled
def _score(sampled, tested, v, rows, limits, rotation, shift):
    """Sum over the candidates of image v but those in `rows`, or -inf where a first part is too small."""
    start, stop = sampled.starts[v], sampled.starts[v + 1]
    total, done = 0.0, start
    for row in rows:
        total -= _sum(sampled, tested, row, row + 1, rotation, shift)
    for i in range(len(limits.batches)):
        until = min(start + limits.batches[i], stop)
        total += _sum(sampled, tested, done, until, rotation, shift)
        done = until
        if total < limits.least[i]:
            return -math.inf
    return total + _sum(sampled, tested, done, stop, rotation, shift)


@compiled
def _search(sampled, tested, limits, turns, images, scores, samples, seed):
    """Numbers of plausible poses and of poses that passed; the best are entered into `turns`, `images` and `scores`."""
    state = np.array([seed], dtype=np.uint64)
    rows = np.empty(4, dtype=np.int64)
    planes, world = np.empty((4, 3)), np.empty((4, 3))
    rotations, translations = np.empty((MAX_POSES, 3, 3)), np.empty((MAX_POSES, 3))
    turn, rotation, shift = np.empty(5), np.empty((3, 3)), np.empty(3)
    down = np.array([0.0, 1.0, 0.0])
    plausible, passed = 0, 0
    for _ in range(samples):
        v = drawn(sampled.shares, 0, len(sampled.shares), uniform(state))
        start, end = sampled.starts[v], sampled.starts[v + 1]
        fresh = True
        for i in range(4):
            rows[i] = drawn(sampled.cumulative, start, end, uniform(state))
            for j in range(i):
                same_line = sampled.line_rows[rows[i]] == sampled.line_rows[rows[j]]
                fresh = fresh and not same_line and sampled.point_rows[rows[i]] != sampled.point_rows[rows[j]]
        if not fresh:
            continue
        for i in range(4):
            planes[i], world[i] = sampled.upright[sampled.line_rows[rows[i]]], sampled.points[sampled.point_rows[rows[i]]]
        center = sampled.centers[v]
        for k in range(upright_line_poses(planes, world, down, down, rotations, translations)):
            turn[0], turn[1], turn[2:] = rotations[k, 0, 0], rotations[k, 0, 2], translations[k]
            possible, depth = True, 0.0
            for i in range(4):
                p = rotations[k] @ world[i] + translations[k]
                distance = math.sqrt(p[0] * p[0] + p[1] * p[1] + p[2] * p[2])
                depth = distance if i == 0 else depth
                possible = possible and near_enough(world[i], center, distance, limits)
                possible = possible and same_side(world[i], center, distance, turn, limits)
            if not possible:
                continue
            plausible += 1
            to_camera(turn, sampled.cam_from_up, rotation, shift)
            score = _score(sampled, tested, v, rows, limits, rotation, shift)
            if score > -math.inf:
                passed += 1
                keep(turns, images, scores, turn, v, score, depth, limits)
    return plausible, passed
