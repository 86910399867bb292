"""The search among lines: its score against a slow twin, planted poses, the limits of what matches, and chance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.robust.line_search import LineSamples, LineTest, line_score, search_lines
from veil.geometry.robust.upright_search import Limits, nothing_kept
from worlds import generator

FOCAL = 500.0
LIMITS = Limits(
    nearest=0.4,
    farthest=2.5,
    least_cosine=0.6,
    likely=0,
    batches=np.array([256], dtype=np.int64),
    least=np.array([1.0]),
    near=0.05,
    near_cosine=math.cos(math.radians(3.0)),
)
TEST = LineTest(inverse_variance=(FOCAL / 4) ** 2, gain=20.0, half_extent=np.array([0.7, 0.55]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Planted:
    """Lines through where points appear to a camera at the planted upright pose, with right candidates among wrong ones."""

    sampled: LineSamples
    turn: np.ndarray  # cos, sin, t
    rotation: np.ndarray
    shift: np.ndarray


def planted(name: str, *, count: int = 300, share: float = 0.2) -> Planted:
    random = generator(name)
    points = random.uniform(-1, 1, (count, 3)) * [2, 1.5, 1] + [0, 0, 6]
    center = np.array([0.4, -0.2, -0.3])
    heading = math.atan2(center[0], 6 - center[2])  # towards the points
    y = np.array([[math.cos(heading), 0, math.sin(heading)], [0, 1, 0], [-math.sin(heading), 0, math.cos(heading)]])
    t = -y @ center
    up_from_cam = Rotation.from_rotvec([0.2, 0, 0.1]).as_matrix()
    rotation, shift = up_from_cam.T @ y, up_from_cam.T @ t
    in_cam = points @ rotation.T + shift
    seen = in_cam[:, :2] / in_cam[:, 2:]
    angles = random.uniform(0, np.pi, count)
    normals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    lines = np.hstack([normals, -(normals * seen).sum(axis=1, keepdims=True)])
    partner = np.where(random.random(count) < share, np.arange(count), random.integers(0, count, count)).astype(np.int64)
    order = random.permutation(count).astype(np.int64)
    belief = np.sort(random.uniform(0.05, 0.15, count))[::-1].copy()
    return Planted(
        sampled=LineSamples(
            lines=lines,
            upright=np.ascontiguousarray(lines @ up_from_cam.T),
            points=points,
            centers=np.zeros((1, 3)),
            starts=np.array([0, count], dtype=np.int64),
            line_rows=order,
            point_rows=partner[order],
            belief=belief,
            cumulative=np.cumsum(belief) / belief.sum(),
            shares=np.array([1.0]),
            cam_from_up=np.ascontiguousarray(up_from_cam.T),
        ),
        turn=np.array([y[0, 0], y[0, 2], *t]),
        rotation=np.ascontiguousarray(rotation),
        shift=shift,
    )


def _slow(place: Planted, rotation: np.ndarray, shift: np.ndarray) -> float:
    """Eq. 22 of docs/theory/words.md, one candidate after the other."""
    total = 0.0
    sampled = place.sampled
    for line_row, point_row, belief in zip(sampled.line_rows, sampled.point_rows, sampled.belief, strict=True):
        x, y, z = rotation @ sampled.points[point_row] + shift
        if z <= 0 or abs(x / z) > TEST.half_extent[0] or abs(y / z) > TEST.half_extent[1]:
            continue
        r = sampled.lines[line_row] @ [x / z, y / z, 1.0]
        near = math.exp(-r * r * TEST.inverse_variance / 2) if abs(r) * math.sqrt(TEST.inverse_variance) < 4 else 0.0
        total += math.log(1 + belief * (TEST.gain * near - 1))
    return total


def best_turn(place: Planted, *, samples: int = 40_000, limits: Limits = LIMITS) -> np.ndarray | None:
    kept = nothing_kept(20)
    plausible, passed = search_lines(kept, place.sampled, TEST, limits, samples=samples, seed=3)
    assert plausible >= passed
    rows = kept.best()
    return kept.turns[rows[0]] if len(rows) else None


def test_the_score_is_that_of_the_slow_reference() -> None:
    """Slow reference: at the planted pose, and at poses beside it and far away."""
    for index, share in enumerate((0.0, 0.2, 1.0)):
        place = planted(f"score {index}", share=share)
        for angle, step in ((0.0, 0.0), (0.01, 0.02), (0.5, 1.0)):
            rotation = np.ascontiguousarray(place.rotation @ Rotation.from_rotvec([0, angle, 0]).as_matrix())
            found = line_score(place.sampled, TEST, 0, rotation, place.shift + step)
            assert found == pytest.approx(_slow(place, rotation, place.shift + step), abs=1e-9)


def test_a_planted_pose_is_found_among_wrong_candidates() -> None:
    """Planted truth: one candidate in seven is right, so that one sample of four in two thousand is clean."""
    for index in range(3):
        place = planted(f"planted {index}", share=0.15)
        turn = best_turn(place)
        assert turn is not None
        assert turn[0] * place.turn[0] + turn[1] * place.turn[1] > math.cos(math.radians(2.0))
        assert np.linalg.norm(turn[2:] - place.turn[2:]) < 0.3


def test_chance_gives_no_pose_of_note() -> None:
    """Null: with wrong candidates alone no pose scores a third of what the right one does with one right in seven."""
    right, chance = planted("right", share=0.15), planted("chance", share=0.0)
    kept = nothing_kept(20)
    search_lines(kept, chance.sampled, TEST, LIMITS, samples=40_000, seed=3)
    most = line_score(right.sampled, TEST, 0, right.rotation, right.shift)
    assert most > 20 and kept.scores.max() < most / 3


def test_poses_that_could_not_match_are_dropped() -> None:
    """The planted camera is too far away for the limits, or looks from another side than they allow."""
    place = planted("limits", share=1.0)
    assert best_turn(place) is not None
    for limits in (LIMITS._replace(nearest=1.2), LIMITS._replace(least_cosine=0.99999)):
        found = best_turn(place, limits=limits)
        assert found is None or np.linalg.norm(found[2:] - place.turn[2:]) > 0.2


def test_a_sample_alone_says_nothing_for_its_pose() -> None:
    """Four candidates and no others: whatever pose they give, nothing else agrees with it."""
    place = planted("four", count=4, share=1.0)
    kept = nothing_kept(5)
    _, passed = search_lines(kept, place.sampled, TEST, LIMITS, samples=2000, seed=1)
    assert passed == 0 and len(kept.best()) == 0
