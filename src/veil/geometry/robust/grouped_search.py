"""Samples and scores for poses from groups of candidates, compiled by numba (docs/theory/words.md, Eq. 15-16).

A keypoint is a group: it has several candidate points, of which at most one is right (words.md#search-among-groups). A pose is
scored by keypoints, each by its best candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.compiled import compiled
from veil.geometry.solvers.p3p import MAX_POSES, three_point_poses
from veil.geometry.solvers.up4lp import upright_line_poses

# The most trusted groups are scored first. A pose is dropped that gains no more there than chance, so many standard deviations
# of it (more for lines, of which chance gives many) and `FIRST_OTHERS`, or less than a share of what the best pose gains there.
FIRST_GROUPS, FIRST_SHARE, FIRST_OTHERS, POINT_SIGMAS, LINE_SIGMAS = 192, 0.7, 0.3, 1.0, 3.0
SMALLEST_POOL = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """Candidates sorted by group, the most trusted group first: those of group g are rows `starts[g]` to `starts[g + 1]`.

    `seen` holds for each group the keypoint (x, y, 1) or, with `as_lines`, the unit-normal line, in the normalized plane.
    `lists` are the samples' sources, each a run `list_starts[k]` to `list_starts[k + 1]` of candidate rows, most trusted first.
    Projections beyond `half_extent` never agree. `agreement` is the least probability that a wrong candidate
    agrees with a pose.
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
        """Three points, or four lines with gravity."""
        return 4 if self.as_lines else 3


def best_candidates(
    groups: Groups, rotation: Float64[np.ndarray, "3 3"], translation: Float64[np.ndarray, "3"]
) -> tuple[Int64[np.ndarray, "groups"], Float64[np.ndarray, "groups"]]:
    """For each group the candidate that agrees best with a pose, and its residual in the normalized plane."""
    return _best(
        groups.starts, groups.points, groups.seen, groups.as_lines, groups.half_extent, _plain(rotation), _plain(translation)
    )


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
    """The best pose of `iterations` samples whose gain is above `floor`: rotation, translation, gain, that of the first groups.

    The gain of a pose is the sum over groups of (1 - (residual / limit)^2) where the best candidate's residual is below `limit`
    (normalized plane). A gain of `floor` says that none was better. No sample is drawn after `max_comparisons` of a candidate
    with a pose.
    """
    # A residual that agrees by chance is uniform in a strip of a line or a disk of a point, where 1 - r^2 has these means.
    mean = 2 / 3 if groups.as_lines else 1 / 2
    by_chance = mean * float(np.minimum(1.0, np.diff(groups.starts[: FIRST_GROUPS + 1]) * groups.agreement).sum())
    return _search(
        groups.starts,
        groups.group,
        groups.points,
        groups.point_rows,
        groups.seen,
        groups.as_lines,
        groups.half_extent,
        groups.lists,
        groups.list_starts,
        groups.down_cam,
        groups.down_world,
        limit,
        iterations,
        np.uint64(seed),
        floor,
        first_floor,
        FIRST_OTHERS + by_chance + (LINE_SIGMAS if groups.as_lines else POINT_SIGMAS) * by_chance**0.5,
        max_comparisons,
    )


def _plain(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.float64)


@compiled
def _squared(rotation, translation, x, seen, as_lines, half_extent, worst):  # type: ignore[no-untyped-def]
    """The squared residual if it is below `worst`, else `worst`: most candidates are wrong and are done without a division."""
    y2 = rotation[2, 0] * x[0] + rotation[2, 1] * x[1] + rotation[2, 2] * x[2] + translation[2]
    y0 = rotation[0, 0] * x[0] + rotation[0, 1] * x[1] + rotation[0, 2] * x[2] + translation[0]
    y1 = rotation[1, 0] * x[0] + rotation[1, 1] * x[1] + rotation[1, 2] * x[2] + translation[1]
    if as_lines:
        above = (seen[0] * y0 + seen[1] * y1 + seen[2] * y2) ** 2
    else:
        above = (y0 - seen[0] * y2) ** 2 + (y1 - seen[1] * y2) ** 2
    if y2 <= 1e-9 or above >= worst * y2 * y2:
        return worst
    if abs(y0) > half_extent[0] * y2 or abs(y1) > half_extent[1] * y2:
        return worst
    return above / (y2 * y2)


@compiled
def _best(starts, points, seen, as_lines, half_extent, rotation, translation):  # type: ignore[no-untyped-def]
    count = len(starts) - 1
    rows, squared = np.empty(count, dtype=np.int64), np.empty(count)
    for g in range(count):
        rows[g], squared[g] = starts[g], np.inf
        for c in range(starts[g], starts[g + 1]):
            r = _squared(rotation, translation, points[c], seen[g], as_lines, half_extent, squared[g])
            if r < squared[g]:
                rows[g], squared[g] = c, r
    return rows, np.sqrt(squared)


@compiled
def _gain(starts, points, seen, as_lines, half_extent, rotation, translation, limit, first, last):  # type: ignore[no-untyped-def]
    total, whole = 0.0, limit * limit
    for g in range(first, last):
        best = whole
        for c in range(starts[g], starts[g + 1]):
            best = _squared(rotation, translation, points[c], seen[g], as_lines, half_extent, best)
        total += 1 - best / whole
    return total


@compiled
def _below(state, bound):  # type: ignore[no-untyped-def]
    """SplitMix64 (Steele et al. 2014): good enough to choose samples, never for a release."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64((z >> np.uint64(11)) % np.uint64(bound))


@compiled
def _sample(state, group, point_rows, lists, list_starts, size, rows):  # type: ignore[no-untyped-def]
    """`size` candidates of different groups and points, from a pool of one list: its best 12, 24, ..., or all (Eq. 16)."""
    chosen = _below(state, len(list_starts) - 1)
    start, count = list_starts[chosen], list_starts[chosen + 1] - list_starts[chosen]
    pools = 1
    while SMALLEST_POOL << pools < count:
        pools += 1
    pool = min(count, SMALLEST_POOL << _below(state, pools + 1))
    for i in range(size):
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
def _search(  # type: ignore[no-untyped-def]
    starts,
    group,
    points,
    point_rows,
    seen,
    as_lines,
    half_extent,
    lists,
    list_starts,
    down_cam,
    down_world,
    limit,
    iterations,
    seed,
    floor,
    first_floor,
    others,
    max_comparisons,
):
    state = np.array([seed], dtype=np.uint64)
    size = 4 if as_lines else 3
    rows = np.empty(size, dtype=np.int64)
    shown, world = np.empty((size, 3)), np.empty((size, 3))
    rotations, translations = np.empty((MAX_POSES, 3, 3)), np.empty((MAX_POSES, 3))
    best_rotation, best_translation = np.eye(3), np.zeros(3)
    count = len(starts) - 1
    first = min(FIRST_GROUPS, count)
    best, best_first = floor, first_floor
    compared = 0
    for _ in range(iterations):
        if compared > max_comparisons:
            break
        if not _sample(state, group, point_rows, lists, list_starts, size, rows):
            continue
        for i in range(size):
            for j in range(3):
                shown[i, j], world[i, j] = seen[group[rows[i]], j], points[rows[i], j]
        if as_lines:
            found = upright_line_poses(shown, world, down_cam, down_world, rotations, translations)
        else:
            for i in range(size):
                length = (shown[i, 0] ** 2 + shown[i, 1] ** 2 + shown[i, 2] ** 2) ** 0.5
                for j in range(3):
                    shown[i, j] /= length
            found = three_point_poses(shown, world, rotations, translations)
        own = 0
        for i in range(size):
            own += group[rows[i]] < first
        for k in range(found):
            compared += starts[first]
            head = _gain(starts, points, seen, as_lines, half_extent, rotations[k], translations[k], limit, 0, first)
            # Its own sample agrees with any pose; a pose with which nothing else agrees there is not worth the rest.
            if head - own < max(others, FIRST_SHARE * (best_first - size)):
                continue
            compared += starts[count] - starts[first]
            gain = head + _gain(starts, points, seen, as_lines, half_extent, rotations[k], translations[k], limit, first, count)
            if gain > best:
                best, best_first = gain, max(head, best_first)
                best_rotation[:], best_translation[:] = rotations[k], translations[k]
    return best_rotation, best_translation, best, best_first
