"""Scores of poses by groups of candidates against a slow twin, and the search against planted truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.rigid import Rigid
from veil.geometry.robust.grouped_search import FIRST_GROUPS, FIRST_SHARE, Groups, best_candidates, search
from worlds import generator
from worlds.grouped_problems import HALF_EXTENT, LIMIT, near, planted_groups


def slow_best(groups: Groups, pose: Rigid) -> tuple[np.ndarray, np.ndarray]:
    """Best candidate and its residual for each group by the slow reference, which divides; infinite where none projects."""
    count = len(groups.starts) - 1
    rows, residuals = np.array(groups.starts[:-1]), np.full(count, np.inf)
    for g in range(count):
        for row in range(groups.starts[g], groups.starts[g + 1]):
            x, y, z = pose.rotation @ groups.points[row] + pose.translation
            if z <= 1e-9 or abs(x / z) > HALF_EXTENT[0] or abs(y / z) > HALF_EXTENT[1]:
                continue
            if groups.as_lines:
                residual = abs(groups.seen[g] @ [x / z, y / z, 1])
            else:
                residual = float(np.hypot(*(groups.seen[g, :2] - [x / z, y / z])))
            if residual < residuals[g]:
                rows[g], residuals[g] = row, residual
    return rows, residuals


def slow_gain(groups: Groups, pose: Rigid, limit: float) -> float:
    return sum(max(0.0, 1 - (r / limit) ** 2) for r in slow_best(groups, pose)[1])


def run(
    groups: Groups, *, iterations: int = 3000, seed: int = 1, floor: float = 0.0, first_floor: float = 0.0
) -> tuple[Rigid, float, float]:
    rotation, translation, gain, first_gain = search(
        groups, limit=LIMIT, iterations=iterations, seed=seed, floor=floor, first_floor=first_floor
    )
    return Rigid(rotation=rotation, translation=translation), gain, first_gain


@pytest.mark.parametrize("as_lines", [False, True])
def test_best_candidates_are_those_of_the_slow_twin(as_lines: bool) -> None:
    """Second method: the slow reference, also for poses with points behind the camera or outside the picture."""
    problem = planted_groups(f"twin {as_lines}", as_lines=as_lines)
    random = generator("twin poses")
    assert problem.groups.sample_size == (4 if as_lines else 3)
    unseen = 0
    for size in (0.0, 0.01, 0.1, 1.0, 3.0):
        turn = Rotation.from_rotvec(size * random.normal(size=3)).as_matrix()
        pose = Rigid(rotation=turn @ problem.pose.rotation, translation=problem.pose.translation + size * random.normal(size=3))
        rows, residuals = best_candidates(problem.groups, pose.rotation, pose.translation)
        expected_rows, expected = slow_best(problem.groups, pose)
        np.testing.assert_array_equal(rows, expected_rows)
        np.testing.assert_allclose(residuals, expected, rtol=1e-9, atol=1e-13)
        unseen += int(np.isinf(expected).sum())
    assert 0 < unseen < 4 * len(rows)


def test_the_best_candidate_of_the_planted_pose_is_the_right_one() -> None:
    problem = planted_groups("right ones", right=1.0)
    rows, residuals = best_candidates(problem.groups, problem.pose.rotation, problem.pose.translation)
    assert problem.right[rows].mean() > 0.95 and residuals[problem.right[rows]].max() < 0.003


@pytest.mark.parametrize("as_lines", [False, True])
def test_search_finds_the_planted_pose_and_its_gain_is_the_twins(as_lines: bool) -> None:
    """Four features in five have a right candidate, one of four."""
    problem = planted_groups(f"search {as_lines}", as_lines=as_lines, features=40, candidates=4, right=0.8, noise=0.0)
    pose, gain, first_gain = run(problem.groups, iterations=20_000)
    assert near(pose, problem.pose, 1e-5)
    assert gain == pytest.approx(slow_gain(problem.groups, pose, LIMIT), rel=1e-9)
    assert gain > 0.99 * 0.8 * 40
    assert first_gain == pytest.approx(gain)  # all groups are among the first ones


def test_the_first_groups_gain_is_that_of_the_first_groups() -> None:
    problem = planted_groups("many", features=500, candidates=1, right=0.9, noise=0.0003)
    pose, gain, first_gain = run(problem.groups, iterations=2000)
    first = replace(problem.groups, starts=problem.groups.starts[: FIRST_GROUPS + 1])
    assert gain == pytest.approx(slow_gain(problem.groups, pose, LIMIT), rel=1e-9)
    assert slow_gain(first, pose, LIMIT) - 1e-6 <= first_gain < gain


def test_a_tilted_gravity_does_not_find_the_planted_pose() -> None:
    """The broken twin of upright samples: down of the camera turned by five degrees."""
    problem = planted_groups("tilt", as_lines=True, features=40, candidates=2, right=0.9, noise=0.0)
    turn = Rotation.from_rotvec(np.radians([5.0, 0, 0])).as_matrix()
    tilted = replace(problem.groups, down_cam=turn @ problem.groups.down_cam)
    _, gain, _ = run(problem.groups, iterations=5000)
    _, less, _ = run(tilted, iterations=5000)
    assert gain > 35 and less < 25


@pytest.mark.parametrize("as_lines", [False, True])
def test_the_same_seed_gives_the_same_pose(as_lines: bool) -> None:
    problem = planted_groups(f"seeds {as_lines}", as_lines=as_lines, candidates=3)
    results = [run(problem.groups, iterations=300, seed=seed) for seed in (5, 5, 6)]
    np.testing.assert_array_equal(results[0][0].rotation, results[1][0].rotation)
    assert results[0][1:] == results[1][1:]
    assert (results[0][0].rotation != results[2][0].rotation).any()


def test_nothing_better_than_the_floor_leaves_the_floor() -> None:
    problem = planted_groups("floor", candidates=2, right=0.8)
    pose, gain, _ = run(problem.groups)
    assert gain > 30
    same, again, _ = run(problem.groups, floor=gain - 1e-9)
    assert again == gain and near(same, pose, 1e-12)
    # Nothing exceeds the best itself: exactly the floor comes back, and the identity, which callers must not use.
    nothing, left, first = run(problem.groups, floor=gain, first_floor=7.0)
    assert left == gain and first == 7.0
    np.testing.assert_array_equal(nothing.rotation, np.eye(3))


def test_what_gets_little_among_the_first_groups_is_dropped() -> None:
    """A pose whose first groups give less than a share of the floor there is not scored further, however good."""
    problem = planted_groups("first floor", candidates=2, right=0.8)
    _, gain, _ = run(problem.groups)
    assert run(problem.groups, first_floor=gain / (1.4 * FIRST_SHARE))[1] == gain
    assert run(problem.groups, first_floor=gain / (0.6 * FIRST_SHARE))[1] == 0.0


def test_a_sample_alone_is_no_pose() -> None:
    """Features whose candidates are all wrong: a sample agrees with itself, and no floor is exceeded by that alone."""
    problem = planted_groups("alone", features=4, candidates=1, right=0.0)
    assert run(problem.groups)[1] == 0.0


def test_a_sample_never_holds_two_candidates_of_one_point() -> None:
    problem = planted_groups("repeats", features=12, candidates=1, right=1.0, noise=0.0)
    groups = replace(problem.groups, lists=np.array([0, 1, 2]), list_starts=np.array([0, 3]))
    assert run(groups)[1] > 11
    groups.point_rows[2] = groups.point_rows[0]
    assert run(groups)[1] == 0.0


def test_a_sample_never_holds_two_candidates_of_one_feature() -> None:
    """Three right points, two of them on one ray: they give a pose unless these two are candidates of one feature."""
    problem = planted_groups("behind", features=12, candidates=2, right=1.0, noise=0.0)
    groups = replace(problem.groups, lists=np.array([0, 1, 2]), list_starts=np.array([0, 3]))
    right = [groups.points[rows][problem.right[rows]][0] for rows in (slice(0, 2), slice(2, 4))]
    groups.points[0], groups.points[2] = right
    groups.points[1] = problem.pose.center + 1.5 * (right[0] - problem.pose.center)
    assert run(groups)[1] == 0.0
    groups.group[1] = 7
    groups.seen[7] = groups.seen[0]
    assert run(groups)[1] > 10


def test_samples_come_from_the_lists_only() -> None:
    """A list of wrong candidates finds nothing, one of right candidates finds the pose at once."""
    problem = planted_groups("lists", features=60, candidates=4, right=0.6, noise=0.0)
    for right, least, most in ((True, 35.0, 60.0), (False, 0.0, 12.0)):
        rows = np.flatnonzero(problem.right == right)
        groups = replace(problem.groups, lists=rows, list_starts=np.array([0, len(rows)]))
        assert least <= run(groups, iterations=200)[1] <= most
