"""Upright poses of a rig from pairs of candidates, tested by the keypoints of all frames, and their refinement; compiled.

A sample is two candidates of one image of the map, seen by one frame or by two (gP2P; docs/theory/sequences.md, Eq. 4-5). What
`upright_search` asks of one camera is asked of each ray's own, and the sums of the test are those of all frames
(sequences.md#search).

A file of its own: `upright_search` is compiled for one camera, and this for each number of frames.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from veil.compiled import compiled
from veil.geometry.robust.upright_search import (
    ABOUT_POINTS,
    FAR,
    GROWTH,
    Kept,
    PoseTest,
    Sampled,
    UprightLimits,
    drawn,
    guides_of,
    keep,
    near_enough,
    normal,
    same_side,
    table_sum,
    turned,
    uniform,
)
from veil.geometry.solvers.up2p import MAX_POSES, upright_rig_distances, upright_rig_turn


class RigTest(NamedTuple):
    """Tests of poses of a rig: the table of each frame, and its motion from the upright frame of the rig.

    Keypoint k is seen by frame `frame_of[k]`, and its ray begins at `begins[k]` in the upright frame of the rig. `cams_from_up`
    and `translations` take that frame to each camera.
    """

    tests: tuple[PoseTest, ...]
    cams_from_up: Float64[np.ndarray, "frames 3 3"]
    translations: Float64[np.ndarray, "frames 3"]
    frame_of: Int64[np.ndarray, "features"]
    begins: Float64[np.ndarray, "features 3"]


def rig_test(
    tests: Sequence[PoseTest], motions: tuple[np.ndarray, np.ndarray], frame_of: np.ndarray, begins: np.ndarray
) -> RigTest:
    """The test of a rig from those of its frames; arrays get one layout, as compiled code wants of equal types."""
    plain = tuple(
        PoseTest(
            shown_starts=np.ascontiguousarray(test.shown_starts),
            shown=np.ascontiguousarray(test.shown),
            table=np.ascontiguousarray(test.table),
            scale=float(test.scale),
            origin=np.ascontiguousarray(test.origin),
            cam_from_up=np.ascontiguousarray(test.cam_from_up),
            seen=np.ascontiguousarray(test.seen),
            inverse_variance=float(test.inverse_variance),
            weight=float(test.weight),
        )
        for test in tests
    )
    cams_from_up, translations = (np.ascontiguousarray(one, dtype=np.float64) for one in motions)
    return RigTest(
        tests=plain,
        cams_from_up=cams_from_up,
        translations=translations,
        frame_of=np.ascontiguousarray(frame_of, dtype=np.int64),
        begins=np.ascontiguousarray(begins, dtype=np.float64),
    )


def search_rig_pairs(
    kept: Kept,
    sampled: Sampled,
    tested: RigTest,
    seen: Float64[np.ndarray, "features 2"],
    limits: UprightLimits,
    *,
    samples: int,
    seed: int,
) -> tuple[int, int]:
    """Draw `samples` pairs and enter the poses that pass into `kept`; the numbers of plausible poses and of those that passed.

    Rays and points of `sampled` are in the upright frames of rig and world, and so are the poses of `kept`. `seen` holds the
    keypoints in the normalized planes of their frames.
    """
    buffers = kept.turns, kept.images, kept.scores
    guides = guides_of(sampled)
    plausible, passed = _search_rig(sampled, tested, seen, limits, guides, *buffers, samples, np.uint64(seed))
    return int(plausible), int(passed)


@compiled
def place_frames(tested, rotation, shift, rotations, shifts):
    """Write the poses of all frames, from the upright world, at a pose of the rig in upright frames."""
    for f in range(len(tested.tests)):
        turn = tested.cams_from_up[f]
        for i in range(3):
            shifts[f, i] = tested.translations[f, i]
            for j in range(3):
                shifts[f, i] += turn[i, j] * shift[j]
                rotations[f, i, j] = turn[i, 0] * rotation[0, j] + turn[i, 1] * rotation[1, j] + turn[i, 2] * rotation[2, j]


@compiled
def rig_tables(tested, points, shown, first, last, rotations, shifts):
    """Sum of the tables of all frames over the points `shown[first:last]`."""
    total = 0.0
    for f in range(len(tested.tests)):
        total += table_sum(tested.tests[f], points, shown, first, last, rotations[f], shifts[f])
    return total


@compiled
def rig_words(tested, sampled, seen, first, last, rotations, shifts):
    """Sum of the log likelihood ratios of the words of the candidates `first` to `last`, each in its own frame."""
    total, inverse, weight = 0.0, tested.tests[0].inverse_variance, tested.tests[0].weight
    far = FAR * FAR / inverse
    for c in range(first, last):
        k = sampled.keypoint_rows[c]
        p, u = sampled.points[sampled.point_rows[c]], seen[k]
        rotation, shift = rotations[tested.frame_of[k]], shifts[tested.frame_of[k]]
        z = rotation[2, 0] * p[0] + rotation[2, 1] * p[1] + rotation[2, 2] * p[2] + shift[2]
        x = rotation[0, 0] * p[0] + rotation[0, 1] * p[1] + rotation[0, 2] * p[2] + shift[0] - u[0] * z
        y = rotation[1, 0] * p[0] + rotation[1, 1] * p[1] + rotation[1, 2] * p[2] + shift[1] - u[1] * z
        squared = x * x + y * y
        if z > 1e-9 and squared < far * z * z:
            total += math.log(1 + weight * sampled.gain[c] * math.exp(-squared / (z * z) * inverse / 2))
    return total


@compiled
def _rig_score(tested, sampled, seen, v, own, limits, rotations, shifts):
    """Sum of the tables over all points of image v and of the words of its candidates, or -inf where a part is too small."""
    first, last = sampled.starts[v], sampled.worded[v]
    likely = min(first + limits.likely, last)
    total = rig_words(tested, sampled, seen, first, likely, rotations, shifts) - own
    shown = tested.tests[0].shown
    start, stop = tested.tests[0].shown_starts[v], tested.tests[0].shown_starts[v + 1]
    done = start
    for i in range(len(limits.batches)):
        until = min(start + limits.batches[i], stop)
        total += rig_tables(tested, sampled.points, shown, done, until, rotations, shifts)
        done = until
        if total < limits.least[i]:
            return -math.inf
    total += rig_tables(tested, sampled.points, shown, done, stop, rotations, shifts)
    return total + rig_words(tested, sampled, seen, likely, last, rotations, shifts)


@compiled
def _search_rig(sampled, tested, seen, limits, guides, turns, images, scores, samples, seed):
    """Numbers of plausible poses and of poses that passed; the best are entered into `turns`, `images` and `scores`."""
    state = np.array([seed], dtype=np.uint64)
    distances, turn, own_turn = np.empty((MAX_POSES, 2)), np.empty(5), np.empty(5)
    rotation, shift = np.zeros((3, 3)), np.empty(3)
    count = len(tested.tests)
    rotations, shifts = np.empty((count, 3, 3)), np.empty((count, 3))
    plausible, passed = 0, 0
    of_images, of_candidates = guides
    for _ in range(samples):
        v = drawn(sampled.shares, of_images, 0, len(sampled.shares), uniform(state))
        start, end = sampled.starts[v], sampled.starts[v + 1]
        if end - start < 2:
            continue
        a = drawn(sampled.cumulative, of_candidates, start, end, uniform(state))
        b = drawn(sampled.cumulative, of_candidates, start, end, uniform(state))
        one, other = sampled.keypoint_rows[a], sampled.keypoint_rows[b]
        if one == other or sampled.point_rows[a] == sampled.point_rows[b]:
            continue
        first, second, center = sampled.rays[one], sampled.rays[other], sampled.centers[v]
        x, y = sampled.points[sampled.point_rows[a]], sampled.points[sampled.point_rows[b]]
        c, d = tested.begins[one], tested.begins[other]
        apart = (d[0] - c[0], d[1] - c[1], d[2] - c[2])
        own = 0.0
        for row in (a, b):
            if row < start + limits.likely:
                own += math.log(1 + tested.tests[0].weight * sampled.gain[row])
        for k in range(upright_rig_distances(first, second, x, y, apart, distances)):
            s_1, s_2 = distances[k, 0], distances[k, 1]
            if not (near_enough(x, center, s_1, limits) and near_enough(y, center, s_2, limits)):
                continue
            upright_rig_turn(first, second, x, y, c, apart, s_1, s_2, turn)
            # The camera of a ray has its center where the ray begins.
            own_turn[:] = turn
            for j in range(3):
                own_turn[2 + j] = turn[2 + j] - c[j]
            if not same_side(x, center, s_1, own_turn, limits):
                continue
            for j in range(3):
                own_turn[2 + j] = turn[2 + j] - d[j]
            if not same_side(y, center, s_2, own_turn, limits):
                continue
            plausible += 1
            rotation[0, 0], rotation[0, 2], rotation[1, 1] = turn[0], turn[1], 1.0
            rotation[2, 0], rotation[2, 2] = -turn[1], turn[0]
            shift[:] = turn[2:]
            place_frames(tested, rotation, shift, rotations, shifts)
            score = _rig_score(tested, sampled, seen, v, own, limits, rotations, shifts)
            if score > -math.inf:
                passed += 1
                keep(turns, images, scores, turn, v, score, s_1, limits)
    return plausible, passed


@compiled
def refine_rig_by_steps(tested, sampled, seen, first, last, shown, middle, rotation, shift, size, steps, seed):
    """Score after `steps` steps from a pose of the rig in upright frames, which is changed in place.

    The arguments and the steps are those of `upright_search.refine_by_steps`, with the words of the candidates `first` to
    `last` and the keypoints `seen` of all frames.
    """
    state = np.array([seed], dtype=np.uint64)
    count = len(tested.tests)
    rotations, shifts = np.empty((count, 3, 3)), np.empty((count, 3))
    place_frames(tested, rotation, shift, rotations, shifts)
    best = rig_tables(tested, sampled.points, shown, 0, len(shown), rotations, shifts)
    best += rig_words(tested, sampled, seen, first, last, rotations, shifts)
    about_rig, about_points = np.empty((3, 3)), np.empty((3, 3))
    for _ in range(steps):
        wide = ABOUT_POINTS * size
        turned(size * normal(state), size * normal(state), size * normal(state), about_rig)
        turned(wide * normal(state), wide * normal(state), wide * normal(state), about_points)
        zoom = math.exp(size * normal(state))
        new_rotation = about_rig @ rotation @ about_points
        new_shift = about_rig @ (zoom * (rotation @ middle + shift)) - new_rotation @ middle
        place_frames(tested, new_rotation, new_shift, rotations, shifts)
        score = rig_tables(tested, sampled.points, shown, 0, len(shown), rotations, shifts)
        score += rig_words(tested, sampled, seen, first, last, rotations, shifts)
        if score >= best:
            best = score
            rotation[:], shift[:] = new_rotation, new_shift
            size *= GROWTH
        else:
            size *= GROWTH**-0.25
    return best
