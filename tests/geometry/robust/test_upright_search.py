"""The upright search: sums against slow twins, planted poses, limits of what matches, and the refinement."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.robust.upright_search import (
    PoseTest,
    Sampled,
    UprightLimits,
    drawn,
    guide,
    nothing_kept,
    refine_by_steps,
    search_pairs,
    table_sum,
    word_sum,
)
from worlds import generator, unit

FOCAL, CELL = 500.0, 2.0
LIMITS = UprightLimits(
    nearest=0.4,
    farthest=2.5,
    least_cosine=0.6,
    likely=64,
    batches=np.array([24, 96], dtype=np.int64),
    least=np.array([1.0, 2.0]),
    near=0.05,
    near_cosine=math.cos(math.radians(3.0)),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Planted:
    """A query that sees points from the planted upright pose, with one right candidate in `1 / share`."""

    sampled: Sampled
    tested: PoseTest
    turn: np.ndarray  # cos, sin, t
    rotation: np.ndarray
    shift: np.ndarray


def planted(
    name: str, *, count: int = 300, share: float = 0.1, center: tuple[float, float, float] = (0.4, -0.2, -0.3)
) -> Planted:
    random = generator(name)
    points = random.uniform(-1, 1, (count, 3)) * [2, 1.5, 1] + [0, 0, 6]
    heading = math.atan2(center[0], 6 - center[2])  # towards the points
    y = np.array([[math.cos(heading), 0, math.sin(heading)], [0, 1, 0], [-math.sin(heading), 0, math.cos(heading)]])
    t = -y @ np.array(center)
    up_from_cam = Rotation.from_rotvec([0.2, 0, 0.1]).as_matrix()
    rotation, shift = up_from_cam.T @ y, up_from_cam.T @ t
    in_cam = points @ rotation.T + shift
    seen = in_cam[:, :2] / in_cam[:, 2:]
    table = np.full((600, 800), -0.2, dtype=np.float32)
    cells = ((seen + np.array([0.8, 0.6])) * FOCAL / CELL).astype(int)
    for column, row in cells[((cells >= 3) & (cells < [797, 597])).all(axis=1) & (in_cam[:, 2] > 0)]:
        for dx in range(-3, 4):
            for dy in range(-3, 4):
                value = 1.0 - 0.3 * math.hypot(dx, dy)
                table[row + dy, column + dx] = max(table[row + dy, column + dx], value)
    partner = np.where(random.random(count) < share, np.arange(count), random.integers(0, count, count))
    gain = random.uniform(5, 10, count)
    sampled = Sampled(
        rays=np.ascontiguousarray(unit(np.hstack([seen, np.ones((count, 1))])) @ up_from_cam.T),
        points=points,
        starts=np.array([0, count]),
        worded=np.array([count]),
        keypoint_rows=np.arange(count),
        point_rows=partner.astype(np.int64),
        gain=gain,
        cumulative=np.cumsum(gain) / gain.sum(),
        shares=np.array([1.0]),
        centers=np.zeros((1, 3)),
    )
    tested = PoseTest(
        shown_starts=np.array([0, count]),
        shown=random.permutation(count),
        table=table,
        scale=FOCAL / CELL,
        origin=np.array([0.8, 0.6]),
        cam_from_up=np.ascontiguousarray(up_from_cam.T),
        seen=np.ascontiguousarray(seen),
        inverse_variance=(FOCAL / 6.0) ** 2,
        weight=0.4,
    )
    turn = np.array([math.cos(heading), math.sin(heading), *t])
    return Planted(sampled=sampled, tested=tested, turn=turn, rotation=rotation, shift=shift)


def slow_table(case: Planted, rotation: np.ndarray, shift: np.ndarray) -> float:
    total = 0.0
    for row in case.tested.shown:
        x, y, z = rotation @ case.sampled.points[row] + shift
        if z > 1e-9:
            column, line = (np.array([x / z, y / z]) + case.tested.origin) * case.tested.scale
            if 0 <= line < case.tested.table.shape[0] and 0 <= column < case.tested.table.shape[1]:
                total += float(case.tested.table[int(line), int(column)])
    return total


def slow_words(case: Planted, rotation: np.ndarray, shift: np.ndarray) -> float:
    total = 0.0
    for c in range(len(case.sampled.gain)):
        x, y, z = rotation @ case.sampled.points[case.sampled.point_rows[c]] + shift
        if z > 1e-9:
            squared = ((np.array([x / z, y / z]) - case.tested.seen[case.sampled.keypoint_rows[c]]) ** 2).sum()
            near = math.exp(-squared * case.tested.inverse_variance / 2)
            total += math.log(1 + case.tested.weight * case.sampled.gain[c] * near)
    return total


@pytest.mark.slow
def test_sums_are_those_of_the_slow_twins() -> None:
    """Second method, also for points behind the camera, outside of the table, and beyond four standard deviations."""
    case, random = planted("sums"), generator("poses for sums")
    count = len(case.sampled.points)
    for size in (0.0, 0.003, 0.03, 0.3, 3.0):
        rotation = Rotation.from_rotvec(size * random.normal(size=3)).as_matrix() @ case.rotation
        shift = case.shift + size * random.normal(size=3)
        fast = table_sum(case.tested, case.sampled.points, case.tested.shown, 0, count, rotation, shift)
        np.testing.assert_allclose(fast, slow_table(case, rotation, shift), atol=1e-4)
        np.testing.assert_allclose(
            word_sum(case.tested, case.sampled, 0, count, rotation, shift), slow_words(case, rotation, shift), atol=0.05
        )
    assert table_sum(case.tested, case.sampled.points, case.tested.shown, 0, count, case.rotation, case.shift) > 250


@pytest.mark.slow
def test_the_planted_pose_is_the_best_of_the_search() -> None:
    case = planted("search")
    kept = nothing_kept(20)
    plausible, passed = search_pairs(kept, case.sampled, case.tested, LIMITS, samples=20_000, seed=1)
    assert 0 < passed < plausible < 20_000
    best = kept.turns[kept.best()[0]]
    np.testing.assert_allclose(best, case.turn, atol=1e-3)
    order = kept.best()
    assert (np.diff(kept.scores[order]) <= 0).all()
    # The control: without the right candidates no pose comes near.
    wrong = case.sampled._replace(point_rows=generator("wrong").permutation(case.sampled.point_rows))
    chance = nothing_kept(20)
    search_pairs(chance, wrong, case.tested, LIMITS, samples=20_000, seed=1)
    assert all(np.abs(chance.turns[row] - case.turn).max() > 1e-3 for row in chance.best())


def test_the_same_seed_gives_the_same_poses_and_portions_add_up() -> None:
    case = planted("seeds")
    first, second, third = nothing_kept(10), nothing_kept(10), nothing_kept(10)
    for kept, seeds in ((first, (1, 2)), (second, (1, 2)), (third, (3, 4))):
        for seed in seeds:
            search_pairs(kept, case.sampled, case.tested, LIMITS, samples=3000, seed=seed)
    np.testing.assert_array_equal(first.turns, second.turns)
    assert not np.array_equal(first.turns, third.turns)


@pytest.mark.parametrize("center", [(0.0, 0.0, 2.5), (0.0, 0.0, -14.0), (9.0, 0.0, 5.0)], ids=["too near", "too far", "aside"])
def test_a_camera_where_nothing_matches_is_not_found(center: tuple[float, float, float]) -> None:
    """The limits of what SIFT matches: right pairs of such a camera are dropped. The control lifts the limits."""
    case = planted("aside", share=0.5, center=center)
    strict = LIMITS._replace(nearest=0.8)

    def gap(limits: UprightLimits) -> float:
        kept = nothing_kept(10)
        search_pairs(kept, case.sampled, case.tested, limits, samples=20_000, seed=1)
        rows = kept.best()
        return min((float(np.abs(kept.turns[row] - case.turn).max()) for row in rows), default=math.inf)

    assert gap(strict) > 0.05
    assert gap(LIMITS._replace(nearest=0.01, farthest=100.0, least_cosine=-1.0)) < 1e-2


def test_no_candidates_give_no_pose() -> None:
    case = planted("nothing")
    empty = case.sampled._replace(
        starts=np.array([0, 1]),
        keypoint_rows=case.sampled.keypoint_rows[:1],
        point_rows=case.sampled.point_rows[:1],
        gain=case.sampled.gain[:1],
        cumulative=np.ones(1),
    )
    kept = nothing_kept(5)
    assert search_pairs(kept, empty, case.tested, LIMITS, samples=1000, seed=1) == (0, 0)
    assert len(kept.best()) == 0


@pytest.mark.slow
def test_steps_refine_all_six_degrees_of_freedom() -> None:
    """Planted truth: a pose that is tilted by a degree and moved comes back; the score never falls."""
    case, random = planted("steps", share=0.3), generator("tilts")
    count = len(case.sampled.points)
    middle = case.sampled.points.mean(axis=0)
    better = 0
    for index in range(10):
        rotation = Rotation.from_rotvec(math.radians(0.7) * unit(random.normal(size=3))).as_matrix() @ case.rotation
        shift = case.shift + 0.02 * random.normal(size=3)
        start = slow_table(case, rotation, shift) + slow_words(case, rotation, shift)
        score = refine_by_steps(
            case.tested, case.sampled, 0, count, case.tested.shown, middle, rotation, shift, 0.006, 300, np.uint64(index + 1)
        )
        assert score >= start - 0.1
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
        np.testing.assert_allclose(score, slow_table(case, rotation, shift) + slow_words(case, rotation, shift), atol=0.1)
        here, there = (case.sampled.points @ r.T + t for r, t in ((rotation, shift), (case.rotation, case.shift)))
        off = np.linalg.norm(here[:, :2] / here[:, 2:] - there[:, :2] / there[:, 2:], axis=1) * FOCAL
        better += float(np.median(off)) < 2.5
    assert better >= 8


@pytest.mark.parametrize("name", ["even", "skewed", "mostly nothing", "one row", "all equal"])
def test_a_row_is_drawn_as_often_as_its_weight_says(name: str) -> None:
    """Oracle: NumPy's binary search, also where an entry is met exactly, for two runs of rows in one array."""
    random = generator(name)
    weights = {
        "even": random.uniform(0.5, 1.0, 400),
        "skewed": random.uniform(0, 1, 1000) ** 20,
        "mostly nothing": (random.uniform(0, 1, 300) < 0.02).astype(float) + 1e-300,
        "one row": np.ones(1),
        "all equal": np.ones(7),
    }[name]
    share = np.cumsum(weights) / weights.sum()
    cumulative, starts = np.concatenate([share, share[::-1].cumsum() / share.sum()]), np.array([0, len(share), 2 * len(share)])
    guided = guide(cumulative, starts)
    inside = share[share < 1]
    values = np.concatenate(
        [random.uniform(0, 1, 2000), inside, np.nextafter(inside, 0), np.arange(200) / 200, [0.0, 1 - 2**-52]]
    )
    for start, end in ((0, len(share)), (len(share), 2 * len(share))):
        own = cumulative[start:end]
        expected = start + np.minimum(np.searchsorted(own, values, side="right"), len(own) - 1)
        assert [drawn(cumulative, guided, start, end, value) for value in values] == expected.tolist()
