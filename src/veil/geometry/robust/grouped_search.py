"""Sampling and scoring of poses from groups of candidates, compiled by numba (docs/theory/words.md, Eq. 15-16).

A keypoint is a group: it has several candidate points, of which at most one is right (words.md#search-among-groups). A pose is
scored by keypoints, each by its best candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from veil.compiled import compiled, compiled_in_vectors
from veil.geometry.solvers.p3p import MAX_POSES, three_point_poses
from veil.geometry.solvers.up4lp import upright_line_poses

# The `FIRST_GROUPS` most trusted groups are scored first. A pose is dropped unless it gains more there than wrong poses do, by
# `FIRST_OTHERS` and some standard deviations (more for lines, as many agree with wrong poses), and at least `FIRST_SHARE` of
# what the best pose gains there.
FIRST_GROUPS, FIRST_SHARE, FIRST_OTHERS, POINT_SIGMAS, LINE_SIGMAS = 192, 0.7, 0.3, 1.0, 3.0
# Candidates in the smallest pool of a list that samples are drawn from; each further pool has twice as many.
SMALLEST_POOL = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """Candidates sorted by group, the most trusted group first: those of group g are rows `starts[g]` to `starts[g + 1]`.

    Candidate i is of group `group[i]` and stands for point `points[i]` of the map, row `point_rows[i]` there. `seen` holds for
    each group the keypoint (x, y, 1) or, with `as_lines`, the unit-normal line, in the normalized plane. Samples are drawn from
    `lists`, runs `list_starts[k]` to `list_starts[k + 1]` of candidate rows, most trusted first. Projections beyond
    `half_extent` (normalized, |x| and |y|) never agree. `down_cam` and `down_world` are unit vectors of gravity, used with
    `as_lines` only. `agreement` is the least probability that a wrong candidate agrees with a pose.
    """

    starts: Int64[np.ndarray, "_"]
    group: Int64[np.ndarray, "_"]
    points: Float64[np.ndarray, "_ 3"]
    point_rows: Int64[np.ndarray, "_"]
    seen: Float64[np.ndarray, "_ 3"]
    as_lines: bool
    half_extent: Float64[np.ndarray, "2"]
    lists: Int64[np.ndarray, "_"]
    list_starts: Int64[np.ndarray, "_"]
    down_cam: Float64[np.ndarray, "3"]
    down_world: Float64[np.ndarray, "3"]
    agreement: float = 0.0

    @property
    def sample_size(self) -> int:
        """Candidates in a sample: three points, or four lines with gravity."""
        return 4 if self.as_lines else 3


def best_candidates(
    groups: Groups, rotation: Float64[np.ndarray, "3 3"], translation: Float64[np.ndarray, "3"]
) -> tuple[Int64[np.ndarray, "groups"], Float64[np.ndarray, "groups"]]:
    """Row of the candidate that agrees best with a pose (cam_from_world), and its residual (normalized plane), for each group.

    The residual is infinite, and the row the group's first, where no candidate projects into the image.
    """
    return _best(_scored(groups), _plain(rotation), _plain(translation))


def search(
    groups: Groups,
    *,
    limit: float,
    iterations: int,
    seed: int,
    floor: float,
    first_floor: float,
    max_comparisons: int = 1 << 62,
) -> tuple[Float64[np.ndarray, "3 3"], Float64[np.ndarray, "3"], float, float]:
    """Best pose of `iterations` samples, as rotation, translation, gain, and the gain of the first groups.

    The gain of a pose is the sum over groups of (1 - (residual / limit)^2) where the best candidate's residual is below `limit`
    (normalized plane; words.md#search-among-groups). Only poses whose gain is above `floor` count: a gain of `floor`
    says that none was better. Poses whose first groups gain too little beside `first_floor`, that of an earlier best pose, are
    not scored further. No sample is drawn after `max_comparisons` comparisons of a candidate with a pose.
    """
    # Residuals of wrong candidates that agree are uniform in a strip of a line or a disk of a point: 1 - r^2 has these means.
    mean = 2 / 3 if groups.as_lines else 1 / 2
    expected = mean * float(np.minimum(1.0, np.diff(groups.starts[: FIRST_GROUPS + 1]) * groups.agreement).sum())
    others = FIRST_OTHERS + expected + (LINE_SIGMAS if groups.as_lines else POINT_SIGMAS) * expected**0.5
    limits = _SearchLimits(limit, iterations, np.uint64(seed), floor, first_floor, others, max_comparisons)
    sampled = _Sampled(groups.group, groups.point_rows, groups.lists, groups.list_starts, groups.down_cam, groups.down_world)
    return _search(_scored(groups), sampled, limits)


class _Scored(NamedTuple):
    """The arrays of `Groups` that poses are scored by, with coordinates apart from each other: loops over one take vectors."""

    starts: Int64[np.ndarray, "groups+1"]
    points: Float64[np.ndarray, "3 candidates"]
    seen: Float64[np.ndarray, "3 candidates"]
    as_lines: bool
    half_extent: Float64[np.ndarray, "2"]


class _Sampled(NamedTuple):
    """The arrays of `Groups` that samples, and from them poses, are drawn from."""

    group: Int64[np.ndarray, "candidates"]
    point_rows: Int64[np.ndarray, "candidates"]
    lists: Int64[np.ndarray, "_"]
    list_starts: Int64[np.ndarray, "lists+1"]
    down_cam: Float64[np.ndarray, "3"]
    down_world: Float64[np.ndarray, "3"]


class _SearchLimits(NamedTuple):
    """Arguments of a search: inlier limit (normalized plane), number and seed of samples, and what a pose must gain.

    `floor` and `first_floor` are the gains of an earlier best pose, of all groups and of the first ones. The first groups must
    gain `others` without the pose's own sample.
    """

    limit: float
    iterations: int
    seed: np.uint64
    floor: float
    first_floor: float
    others: float
    max_comparisons: int


def _scored(groups: Groups) -> _Scored:
    """The scored arrays as one argument of compiled functions."""
    seen = np.repeat(groups.seen, np.diff(groups.starts), axis=0)
    return _Scored(groups.starts, _plain(groups.points.T), _plain(seen.T), groups.as_lines, groups.half_extent)


def _plain(values: np.ndarray) -> np.ndarray:
    """The values as a contiguous float64 array, so that one compiled form serves every caller."""
    return np.ascontiguousarray(values, dtype=np.float64)


@compiled_in_vectors
def _squared(scored, rotation, translation, start, worst, squared):
    """Squared residuals (normalized plane) of candidates from `start` on into `squared` (_,); `worst` where they are not less.

    No turn of the loop depends on another one, so that it takes vector instructions.
    """
    end = start + len(squared)
    x, y, z = scored.points[0, start:end], scored.points[1, start:end], scored.points[2, start:end]
    a, b, c = scored.seen[0, start:end], scored.seen[1, start:end], scored.seen[2, start:end]
    width, height = scored.half_extent[0], scored.half_extent[1]
    r00, r01, r02, t0 = rotation[0, 0], rotation[0, 1], rotation[0, 2], translation[0]
    r10, r11, r12, t1 = rotation[1, 0], rotation[1, 1], rotation[1, 2], translation[1]
    r20, r21, r22, t2 = rotation[2, 0], rotation[2, 1], rotation[2, 2], translation[2]
    as_lines = scored.as_lines
    for i in range(len(squared)):
        y0 = r00 * x[i] + r01 * y[i] + r02 * z[i] + t0
        y1 = r10 * x[i] + r11 * y[i] + r12 * z[i] + t1
        y2 = r20 * x[i] + r21 * y[i] + r22 * z[i] + t2
        above = (a[i] * y0 + b[i] * y1 + c[i] * y2) ** 2 if as_lines else (y0 - a[i] * y2) ** 2 + (y1 - b[i] * y2) ** 2
        inside = (y2 > 1e-9) & (abs(y0) <= width * y2) & (abs(y1) <= height * y2)
        squared[i] = above / (y2 * y2) if inside & (above < worst * y2 * y2) else worst


@compiled
def _best(scored, rotation, translation):
    """Row (groups,) of each group's best candidate for a pose, and its residual (groups,) in the normalized plane."""
    starts = scored.starts
    count = len(starts) - 1
    squared = np.empty(starts[count])
    _squared(scored, rotation, translation, 0, np.inf, squared)
    rows, best = np.empty(count, dtype=np.int64), np.empty(count)
    for g in range(count):
        rows[g] = starts[g]
        for c in range(starts[g], starts[g + 1]):
            if squared[c] < squared[rows[g]]:
                rows[g] = c
        best[g] = squared[rows[g]]
    return rows, np.sqrt(best)


@compiled
def _gain(scored, rotation, translation, limit, first, last, squared):
    """Gain of a pose over the groups `first` to `last`, within `limit` (normalized plane).

    `squared` is room for the residuals of all candidates.
    """
    starts = scored.starts
    start = starts[first]
    total, whole = 0.0, limit * limit
    _squared(scored, rotation, translation, start, whole, squared[: starts[last] - start])
    for g in range(first, last):
        best = whole
        for i in range(starts[g] - start, starts[g + 1] - start):
            best = min(best, squared[i])
        total += 1 - best / whole
    return total


@compiled
def _below(state, bound):
    """Random integer below `bound`, by SplitMix64 (Steele et al. 2014) from `state` (1,), which it advances.

    It is good enough to choose samples, and never for a release.
    """
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64((z >> np.uint64(11)) % np.uint64(bound))


@compiled
def _sample(sampled, state, rows):
    """Draw a sample into `rows` (3,) or (4,): candidates of different groups and points. False if no such sample was drawn.

    The sample is from a pool of one list: its best 12, 24, ..., or all candidates (Eq. 16).
    """
    group, point_rows, lists, list_starts = sampled.group, sampled.point_rows, sampled.lists, sampled.list_starts
    chosen = _below(state, len(list_starts) - 1)
    start, count = list_starts[chosen], list_starts[chosen + 1] - list_starts[chosen]
    pools = 1
    while SMALLEST_POOL << pools < count:
        pools += 1
    pool = min(count, SMALLEST_POOL << _below(state, pools + 1))
    for i in range(len(rows)):
        fresh = False
        for _ in range(20):
            rows[i] = lists[start + _below(state, pool)]
            fresh = True
            for j in range(i):
                fresh = fresh and group[rows[j]] != group[rows[i]] and point_rows[rows[j]] != point_rows[rows[i]]
            if fresh:
                break
        if not fresh:
            return False
    return True


@compiled
def _search(scored, sampled, limits):
    """Best pose of random samples, as rotation (3, 3), translation (3,), gain, and the gain of the first groups.

    The pose is the identity, with the gains `limits.floor` and `limits.first_floor`, where no sample gives a better one.
    """
    starts, points, seen, as_lines, _ = scored
    limit = limits.limit
    squared = np.empty(points.shape[1])
    state = np.array([limits.seed], dtype=np.uint64)
    size = 4 if as_lines else 3
    rows = np.empty(size, dtype=np.int64)
    shown, world = np.empty((size, 3)), np.empty((size, 3))
    rotations, translations = np.empty((MAX_POSES, 3, 3)), np.empty((MAX_POSES, 3))
    best_rotation, best_translation = np.eye(3), np.zeros(3)
    count = len(starts) - 1
    first = min(FIRST_GROUPS, count)
    best, best_first = limits.floor, limits.first_floor
    compared = 0
    for _ in range(limits.iterations):
        if compared > limits.max_comparisons:
            break
        if not _sample(sampled, state, rows):
            continue
        for i in range(size):
            for j in range(3):
                shown[i, j], world[i, j] = seen[j, rows[i]], points[j, rows[i]]
        if as_lines:
            pose_count = upright_line_poses(shown, world, sampled.down_cam, sampled.down_world, rotations, translations)
        else:
            for i in range(size):
                length = (shown[i, 0] ** 2 + shown[i, 1] ** 2 + shown[i, 2] ** 2) ** 0.5
                for j in range(3):
                    shown[i, j] /= length
            pose_count = three_point_poses(shown, world, rotations, translations)
        own = 0
        for i in range(size):
            own += rows[i] < starts[first]
        for k in range(pose_count):
            compared += starts[first]
            head = _gain(scored, rotations[k], translations[k], limit, 0, first, squared)
            # The pose's own sample agrees with it always; a pose with which nothing else agrees there is not worth the rest.
            if head - own < max(limits.others, FIRST_SHARE * (best_first - size)):
                continue
            compared += starts[count] - starts[first]
            gain = head + _gain(scored, rotations[k], translations[k], limit, first, count, squared)
            if gain > best:
                best, best_first = gain, max(head, best_first)
                best_rotation[:], best_translation[:] = rotations[k], translations[k]
    return best_rotation, best_translation, best, best_first
