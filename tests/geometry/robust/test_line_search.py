"""The search among lines: scores against a slow twin, planted poses, limits of what matches, and bounded work."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.robust import line_search
from veil.geometry.robust.line_search import LineSamples, LineTest, line_score, search_lines
from veil.geometry.robust.upright_search import UprightLimits, nothing_kept
from veil.geometry.solvers.up4lp import upright_line_turns
from worlds import generator

FOCAL, HALF = 500.0, np.array([0.8, 0.6])
LIMITS = UprightLimits(
    nearest=0.4,
    farthest=2.5,
    least_cosine=0.6,
    likely=0,
    batches=np.array([64, 128], dtype=np.int64),
    least=np.array([-2.0, -1.0]),
    near=0.05,
    near_cosine=math.cos(math.radians(3.0)),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Planted:
    """A query whose random lines run through points as the planted upright pose shows them."""

    sampled: LineSamples
    tested: LineTest
    turn: np.ndarray  # cos, sin, t
    rotation: np.ndarray
    shift: np.ndarray
    right: np.ndarray


def planted(
    name: str, *, count: int = 300, share: float = 0.25, center: tuple[float, float, float] = (0.4, -0.2, -0.3)
) -> Planted:
    random = generator(name)
    points = random.uniform(-1, 1, (count, 3)) * [2, 1.5, 1] + [0, 0, 6]
    heading = math.atan2(center[0], 6 - center[2])  # towards the points
    y = np.array([[math.cos(heading), 0, math.sin(heading)], [0, 1, 0], [-math.sin(heading), 0, math.cos(heading)]])
    up_from_cam = Rotation.from_rotvec([0.2, 0, 0.1]).as_matrix()
    rotation, shift = up_from_cam.T @ y, up_from_cam.T @ (-y @ np.array(center))
    in_cam = points @ rotation.T + shift
    xy = in_cam[:, :2] / in_cam[:, 2:]
    theta = random.uniform(0, np.pi, count)
    normals = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    lines = np.hstack([normals, -(normals * xy).sum(axis=1, keepdims=True)])
    right = random.random(count) < share
    belief = random.uniform(0.1, 0.3, count)
    sampled = LineSamples(
        lines=np.ascontiguousarray(lines @ up_from_cam.T),
        points=points,
        centers=np.zeros((1, 3)),
        starts=np.array([0, count]),
        line_rows=np.arange(count),
        point_rows=np.where(right, np.arange(count), random.integers(0, count, count)).astype(np.int64),
        belief=belief,
        cumulative=np.cumsum(belief) / belief.sum(),
        shares=np.array([1.0]),
    )
    sigma = 4.0
    tested = LineTest(
        seen=lines,
        half_extent=HALF,
        cam_from_up=np.ascontiguousarray(up_from_cam.T),
        peak=600 / (math.sqrt(2 * math.pi) * sigma),
        inverse_variance=(FOCAL / sigma) ** 2,
    )
    turn = np.array([math.cos(heading), math.sin(heading), *(-y @ np.array(center))])
    return Planted(sampled=sampled, tested=tested, turn=turn, rotation=rotation, shift=shift, right=right)


def slow_score(world: Planted, rotation: np.ndarray, shift: np.ndarray) -> float:
    """The defining sum, in plain loops (docs/theory/words.md, Eq. 22)."""
    sampled, tested, total = world.sampled, world.tested, 0.0
    for line, point, belief in zip(sampled.line_rows, sampled.point_rows, sampled.belief, strict=True):
        x, y, z = rotation @ sampled.points[point] + shift
        near = 0.0
        if z > 0 and abs(x / z) <= HALF[0] and abs(y / z) <= HALF[1]:
            distance = float(tested.seen[line] @ [x / z, y / z, 1.0])
            near = tested.peak * math.exp(-(distance**2) * tested.inverse_variance / 2)
        total += math.log(1 - belief + belief * near)
    return total


def test_the_score_is_that_of_the_slow_twin() -> None:
    world = planted("line score")
    random = generator("poses to score")
    for index in range(20):
        turn = Rotation.from_rotvec(random.normal(size=3) * 0.02 * index).as_matrix()
        rotation, shift = np.ascontiguousarray(turn @ world.rotation), world.shift + random.normal(size=3) * 0.05 * index
        # What is beyond four standard deviations is left out: less than exp(-8) of a peak for each of the candidates.
        score = line_score(world.sampled, world.tested, 0, rotation, shift)
        assert score == pytest.approx(slow_score(world, rotation, shift), abs=300 * 0.3 * world.tested.peak * math.exp(-8))


def test_a_planted_pose_is_found_and_scores_more_than_any_of_chance() -> None:
    world = planted("line search")
    kept = nothing_kept(20)
    plausible, passed = search_lines(kept, world.sampled, world.tested, LIMITS, samples=40_000, seed=5)
    assert 0 < passed < plausible
    best = kept.turns[kept.best()[0]]
    np.testing.assert_allclose(best, world.turn, atol=1e-6)
    truth = line_score(world.sampled, world.tested, 0, world.rotation, world.shift)
    assert kept.scores.max() == pytest.approx(truth, abs=1e-3)
    # Candidates that are all wrong, as in a query of another place: the same number of samples finds nothing like it.
    other = planted("line search", share=0.0)
    nothing = nothing_kept(20)
    search_lines(nothing, other.sampled, other.tested, LIMITS, samples=40_000, seed=5)
    assert nothing.scores.max() < 0.3 * truth


def test_poses_from_where_nothing_matches_are_dropped() -> None:
    """The same query, with a mapped image that saw the points from the other side or from ten times as far."""
    world = planted("line limits")
    for center in ([0.0, 0.0, 12.0], [0.0, 0.0, -60.0]):
        sampled = world.sampled._replace(centers=np.array([center]))
        kept = nothing_kept(20)
        search_lines(kept, sampled, world.tested, LIMITS, samples=40_000, seed=5)
        assert all(np.abs(turn - world.turn).max() > 0.01 for turn in kept.turns[kept.best()])


def test_work_is_bounded_where_every_pose_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = planted("line work", share=1.0)
    loose = LIMITS._replace(least=np.array([-1e9, -1e9]))
    outcome = search_lines(nothing_kept(5), world.sampled, world.tested, loose, samples=20_000, seed=1)
    most = line_search.COMPARISONS * 20_000
    assert outcome[1] * (300 + 64) <= most + 2 * 364


def test_the_same_seed_gives_the_same_poses() -> None:
    world = planted("line seeds")
    first, second = nothing_kept(10), nothing_kept(10)
    for kept in (first, second):
        search_lines(kept, world.sampled, world.tested, LIMITS, samples=5_000, seed=9)
    np.testing.assert_array_equal(first.turns, second.turns)


def test_turns_meet_their_four_lines() -> None:
    """The defining equation, and the planted turn among the solutions."""
    for index in range(20):
        world = planted(f"turns {index}", share=1.0)
        rows = generator(f"rows {index}").choice(300, 4, replace=False)
        turns, design = np.empty((2, 5)), np.empty((4, 6))
        lines, points = world.sampled.lines[rows], world.sampled.points[rows]
        assert upright_line_turns(lines, points, design, turns) == 2
        assert min(np.abs(turn - world.turn).max() for turn in turns) < 1e-6
        for cos, sin, *t in turns:
            y = np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]])
            assert cos**2 + sin**2 == pytest.approx(1, abs=1e-12)
            np.testing.assert_allclose((lines * (points @ y.T + t)).sum(axis=1), 0, atol=1e-7)
