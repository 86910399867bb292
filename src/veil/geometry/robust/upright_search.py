"""Upright poses from pairs of candidates, tested by all keypoints of the query, and their refinement; compiled by numba.

A sample is two candidates of one image of the map, drawn by their likelihood; with gravity it gives at most two poses. Those
whose camera could not have seen the two points as that image did are dropped at once. The rest are tested by where they show
that image's points, beside keypoints or not, in batches that grow and stop early (docs/theory/words_upright.md, Eq. 5-8).

A pose is refined in all six degrees of freedom (words_upright.md#refinement) by a (1+1) evolution strategy (Rechenberg 1973;
Beyer and Schwefel 2002, Sec. 2.2): one random step, kept if the score does not fall, with a step size that follows the share of
kept steps. The table has many local maxima and no useful gradient far away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.compiled import compiled
from veil.geometry.robust.grouped_search import _below
from veil.geometry.solvers.up2p import MAX_POSES, upright_point_distances, upright_turn

# Number of standard deviations beyond which a term of the words is left out.
FAR = 4.0


class Sampled(NamedTuple):
    """Candidates from which pairs are drawn: those of each image of the map, in frames where gravity is the y-axis.

    Candidates of image v are rows `starts[v]` to `starts[v + 1]`; candidate c joins the unit ray `rays[keypoint_rows[c]]` with
    the point `points[point_rows[c]]`. Those with words come first, up to row `worded[v]`; `gain[c]` is their words' likelihood
    ratio less 1. `cumulative[c]` is the sum of the weights of the image's candidates up to c, over that of all. `centers[v]`
    """

    rays: Float64[np.ndarray, "features 3"]
    points: Float64[np.ndarray, "points 3"]
    starts: Int64[np.ndarray, "images+1"]
    worded: Int64[np.ndarray, "images"]
    keypoint_rows: Int64[np.ndarray, "candidates"]
    point_rows: Int64[np.ndarray, "candidates"]
    gain: Float64[np.ndarray, "candidates"]
    cumulative: Float64[np.ndarray, "candidates"]
    shares: Float64[np.ndarray, "images"]
    centers: Float64[np.ndarray, "images 3"]


class PoseTest(NamedTuple):
    """Test of poses: the points of each image of the map, and a table over the query's picture.

    Image v sees the points `shown[shown_starts[v]:shown_starts[v + 1]]`, which are in random order. `table[row, column]` is the
    log likelihood ratio of a point at x = column / scale - origin[0], y = row / scale - origin[1] of the normalized plane.
    `cam_from_up` turns a camera frame with gravity along y to the camera's. The words of a candidate whose point lies r beside
    its keypoint (`seen`, normalized plane) count as log(1 + weight gain exp(-r^2 inverse_variance / 2)).
    """

    shown_starts: Int64[np.ndarray, "images+1"]
    shown: Int64[np.ndarray, "_"]
    table: Float32[np.ndarray, "rows columns"]
    scale: float
    origin: Float64[np.ndarray, "2"]
    cam_from_up: Float64[np.ndarray, "3 3"]
    seen: Float64[np.ndarray, "features 2"]
    inverse_variance: float
    weight: float


class UprightLimits(NamedTuple):
    """Thresholds that a pose must meet.

    Both points of the sample lie at `nearest` to `farthest` times their distance to the mapped image, and the angle between the
    two directions from which they are seen has at least the cosine `least_cosine`. After each batch of points (their number so
    far is in `batches`) the sum of the table exceeds `least`. Two poses are one if their centers differ by less than `near` of
    the distance to the sample's first point, and their headings by an angle of cosine `near_cosine` or more.
    """

    nearest: float
    farthest: float
    least_cosine: float
    likely: int
    batches: Int64[np.ndarray, "batches"]
    least: Float64[np.ndarray, "batches"]
    near: float
    near_cosine: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """Best poses so far, changed in place by each `search_pairs`; a new one takes the place of the first that is the same.

    A turn is (cos, sin, t): in the upright frames the camera sees (x, y, z) at (x cos + z sin, y, z cos - x sin) + t. `images`
    are rows of the mapped images that gave the poses; `scores` are -inf where no pose is held yet.
    """

    turns: Float64[np.ndarray, "poses 5"]
    images: Int64[np.ndarray, "poses"]
    scores: Float64[np.ndarray, "poses"]

    def best(self) -> Int64[np.ndarray, "_"]:
        """Rows of the poses that are held, the best first."""
        order = np.argsort(-self.scores, kind="stable")
        return order[self.scores[order] > -math.inf]


def nothing_kept(most: int) -> Kept:
    """Room for the `most` best poses."""
    return Kept(turns=np.zeros((most, 5)), images=np.zeros(most, dtype=np.int64), scores=np.full(most, -math.inf))


def search_pairs(
    kept: Kept, sampled: Sampled, tested: PoseTest, limits: UprightLimits, *, samples: int, seed: int
) -> tuple[int, int]:
    """Draw `samples` pairs and enter the poses that pass into `kept`; the numbers of plausible poses and of those that passed.

    A pose's score is the sum of the table over all points of its mapped image, and of the words of its candidates.
    """
    buffers = kept.turns, kept.images, kept.scores
    plausible, passed = _search(sampled, tested, limits, guides_of(sampled), *buffers, samples, np.uint64(seed))
    return int(plausible), int(passed)


@compiled
def guides_of(sampled):
    """The guides by which images, and candidates of one image, are drawn from `sampled`."""
    return guide(sampled.shares, np.array([0, len(sampled.shares)])), guide(sampled.cumulative, sampled.starts)


@compiled
def uniform(state):
    """Random number in [0, 1) from `state` (1,), which is advanced; good enough for samples, never for a release."""
    return _below(state, 1 << 52) / (1 << 52)


@compiled
def guide(cumulative, starts):
    """Where `drawn` begins to look: n entries for the n rows `starts[v]` to `starts[v + 1]` of each v (Chen and Asau 1974).

    The j-th of them is the first of these rows whose entry of `cumulative` is above j / n, or the last one.
    """
    entries = np.empty(len(cumulative), dtype=np.int64)
    for v in range(len(starts) - 1):
        start, end = starts[v], starts[v + 1]
        row = start
        for j in range(end - start):
            while row < end - 1 and cumulative[row] <= j / (end - start):
                row += 1
            entries[start + j] = row
    return entries


@compiled
def drawn(cumulative, guided, start, end, value):
    """First row from `start` to `end` whose entry of `cumulative` is above `value` in [0, 1), or the last one.

    It is a step or two on average from where the `guide` says.
    """
    row = guided[start + min(int(value * (end - start)), end - start - 1)]
    while row > start and cumulative[row - 1] > value:  # the product was rounded up
        row -= 1
    while row < end - 1 and cumulative[row] <= value:
        row += 1
    return row


@compiled
def table_sum(tested, points, shown, first, last, rotation, shift):
    """Sum of the table over the projections of the points `shown[first:last]`; those outside of the table add nothing."""
    total = 0.0
    table, scale, left, top = tested.table, tested.scale, tested.origin[0], tested.origin[1]
    for k in range(first, last):
        p = points[shown[k]]
        z = rotation[2, 0] * p[0] + rotation[2, 1] * p[1] + rotation[2, 2] * p[2] + shift[2]
        if z <= 1e-9:
            continue
        x = (rotation[0, 0] * p[0] + rotation[0, 1] * p[1] + rotation[0, 2] * p[2] + shift[0]) / z + left
        y = (rotation[1, 0] * p[0] + rotation[1, 1] * p[1] + rotation[1, 2] * p[2] + shift[1]) / z + top
        if x >= 0 and y >= 0 and x * scale < table.shape[1] and y * scale < table.shape[0]:
            total += table[int(y * scale), int(x * scale)]
    return total


@compiled
def word_sum(tested, sampled, first, last, rotation, shift):
    """Sum of the log likelihood ratios of the words of the candidates `first` to `last`, as far as they lie near keypoints."""
    total, far = 0.0, FAR * FAR / tested.inverse_variance
    for c in range(first, last):
        p, u = sampled.points[sampled.point_rows[c]], tested.seen[sampled.keypoint_rows[c]]
        z = rotation[2, 0] * p[0] + rotation[2, 1] * p[1] + rotation[2, 2] * p[2] + shift[2]
        x = rotation[0, 0] * p[0] + rotation[0, 1] * p[1] + rotation[0, 2] * p[2] + shift[0] - u[0] * z
        y = rotation[1, 0] * p[0] + rotation[1, 1] * p[1] + rotation[1, 2] * p[2] + shift[1] - u[1] * z
        squared = x * x + y * y
        if z > 1e-9 and squared < far * z * z:
            near = math.exp(-squared / (z * z) * tested.inverse_variance / 2)
            total += math.log(1 + tested.weight * sampled.gain[c] * near)
    return total


@compiled
def to_camera(turn, cam_from_up, rotation, shift):
    """Write the pose of a turn (5,), from the upright world to the camera, to `rotation` (3, 3) and `shift` (3,)."""
    for i in range(3):
        rotation[i, 0] = cam_from_up[i, 0] * turn[0] - cam_from_up[i, 2] * turn[1]
        rotation[i, 1] = cam_from_up[i, 1]
        rotation[i, 2] = cam_from_up[i, 0] * turn[1] + cam_from_up[i, 2] * turn[0]
        shift[i] = cam_from_up[i, 0] * turn[2] + cam_from_up[i, 1] * turn[3] + cam_from_up[i, 2] * turn[4]


@compiled
def near_enough(x, center, distance, limits):
    """Whether `distance`, from the camera to the point x (3,), is alike that from the mapped image at `center` (3,)."""
    mapped = (center[0] - x[0]) ** 2 + (center[1] - x[1]) ** 2 + (center[2] - x[2]) ** 2
    return limits.nearest**2 * mapped <= distance * distance <= limits.farthest**2 * mapped


@compiled
def same_side(x, center, distance, turn, limits):
    """Whether a camera at `turn` sees the point x (3,) from about the direction of the mapped image at `center` (3,)."""
    # The camera's center is -Y^T t.
    cx, cy, cz = turn[1] * turn[4] - turn[0] * turn[2] - x[0], -turn[3] - x[1], -turn[1] * turn[2] - turn[0] * turn[4] - x[2]
    mx, my, mz = center[0] - x[0], center[1] - x[1], center[2] - x[2]
    return cx * mx + cy * my + cz * mz >= limits.least_cosine * distance * math.sqrt(mx * mx + my * my + mz * mz)


@compiled
def keep(turns, images, scores, turn, v, score, depth, limits):
    """Enter a pose among the kept ones: in place of one that is the same, if better, else of the worst, if better."""
    worst = 0
    for k in range(len(scores)):
        if scores[k] == -math.inf:
            worst = k
            break
        if scores[k] < scores[worst]:
            worst = k
        if turns[k, 0] * turn[0] + turns[k, 1] * turn[1] >= limits.near_cosine:
            # Between the centers -Y^T t of both.
            dx = turn[0] * turn[2] - turn[1] * turn[4] - turns[k, 0] * turns[k, 2] + turns[k, 1] * turns[k, 4]
            dy = turn[3] - turns[k, 3]
            dz = turn[1] * turn[2] + turn[0] * turn[4] - turns[k, 1] * turns[k, 2] - turns[k, 0] * turns[k, 4]
            if dx * dx + dy * dy + dz * dz < (limits.near * depth) ** 2:
                if score > scores[k]:
                    turns[k], images[k], scores[k] = turn, v, score
                return
    if score > scores[worst]:
        turns[worst], images[worst], scores[worst] = turn, v, score


@compiled
def _score(tested, sampled, v, own, limits, rotation, shift):
    """Sum of the table over all points of image v and of the words of its candidates, or -inf where a first part is too small.

    `own` is what the words of the sample itself add; it is left out.
    """
    first, last = sampled.starts[v], sampled.worded[v]
    likely = min(first + limits.likely, last)
    total = word_sum(tested, sampled, first, likely, rotation, shift) - own
    start, stop = tested.shown_starts[v], tested.shown_starts[v + 1]
    done = start
    for i in range(len(limits.batches)):
        until = min(start + limits.batches[i], stop)
        total += table_sum(tested, sampled.points, tested.shown, done, until, rotation, shift)
        done = until
        if total < limits.least[i]:
            return -math.inf
    total += table_sum(tested, sampled.points, tested.shown, done, stop, rotation, shift)
    return total + word_sum(tested, sampled, likely, last, rotation, shift)


@compiled
def _search(sampled, tested, limits, guides, turns, images, scores, samples, seed):
    """Numbers of plausible poses and of poses that passed; the best are entered into `turns`, `images` and `scores`."""
    state = np.array([seed], dtype=np.uint64)
    distances, turn = np.empty((MAX_POSES, 2)), np.empty(5)
    rotation, shift = np.empty((3, 3)), np.empty(3)
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
        own = 0.0
        for c in (a, b):
            if c < start + limits.likely:
                own += math.log(1 + tested.weight * sampled.gain[c])
        for k in range(upright_point_distances(first, second, x, y, distances)):
            s_1, s_2 = distances[k, 0], distances[k, 1]
            if not (near_enough(x, center, s_1, limits) and near_enough(y, center, s_2, limits)):
                continue
            upright_turn(first, second, x, y, s_1, s_2, turn)
            if not (same_side(x, center, s_1, turn, limits) and same_side(y, center, s_2, turn, limits)):
                continue
            plausible += 1
            to_camera(turn, tested.cam_from_up, rotation, shift)
            score = _score(tested, sampled, v, own, limits, rotation, shift)
            if score > -math.inf:
                passed += 1
                keep(turns, images, scores, turn, v, score, s_1, limits)
    return plausible, passed


# Ratio of steps about the points to those about the camera: the former move projections less.
ABOUT_POINTS = 4.0
# The step size grows by this where a step is kept, and falls by its fourth root elsewhere: steady at one in five.
GROWTH = 1.5


@compiled
def normal(state):
    """A standard normal number (Box and Muller 1958)."""
    return math.sqrt(-2 * math.log(1 - uniform(state))) * math.cos(2 * math.pi * uniform(state))


@compiled
def turned(x, y, z, out):
    """Write the rotation (3, 3) by the vector (x, y, z) in radians (Rodrigues)."""
    angle = math.sqrt(x * x + y * y + z * z)
    a = 1.0 if angle < 1e-12 else math.sin(angle) / angle
    b = 0.5 if angle < 1e-6 else (1 - math.cos(angle)) / (angle * angle)
    out[0, 0], out[0, 1], out[0, 2] = 1 - b * (y * y + z * z), b * x * y - a * z, b * x * z + a * y
    out[1, 0], out[1, 1], out[1, 2] = b * x * y + a * z, 1 - b * (x * x + z * z), b * y * z - a * x
    out[2, 0], out[2, 1], out[2, 2] = b * x * z - a * y, b * y * z + a * x, 1 - b * (x * x + y * y)


@compiled
def refine_by_steps(tested, sampled, first, last, shown, middle, rotation, shift, size, steps, seed):
    """Score after `steps` steps from the pose `rotation` (3, 3), `shift` (3,), upright world to camera, changed in place.

    The score is the sum of the table over the points `shown` and of the words of the candidates `first` to `last`. `middle`
    (3,) is the center of the points, `size` the first step in radians. Steps turn the camera about itself and about the middle,
    and move it towards the middle or away from it.
    """
    state = np.array([seed], dtype=np.uint64)
    best = table_sum(tested, sampled.points, shown, 0, len(shown), rotation, shift)
    best += word_sum(tested, sampled, first, last, rotation, shift)
    about_camera, about_points = np.empty((3, 3)), np.empty((3, 3))
    for _ in range(steps):
        wide = ABOUT_POINTS * size
        turned(size * normal(state), size * normal(state), size * normal(state), about_camera)
        turned(wide * normal(state), wide * normal(state), wide * normal(state), about_points)
        zoom = math.exp(size * normal(state))
        new_rotation = about_camera @ rotation @ about_points
        new_shift = about_camera @ (zoom * (rotation @ middle + shift)) - new_rotation @ middle
        score = table_sum(tested, sampled.points, shown, 0, len(shown), new_rotation, new_shift)
        score += word_sum(tested, sampled, first, last, new_rotation, new_shift)
        if score >= best:
            best = score
            rotation[:], shift[:] = new_rotation, new_shift
            size *= GROWTH
        else:
            size *= GROWTH**-0.25
    return best
