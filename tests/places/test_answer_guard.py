"""The guard of answers: which poses stand without any one thing, against all things tried one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.errors import RangeError
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.places.localization import WITHHELD, AnswerGuard, extent_of_points
from veil.places.poses.answer import Localization, NoPose
from veil.scene import Scene
from worlds.map_scenes import planted_map

CAMERA = Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0))


def scene_of(points: np.ndarray) -> Scene:
    scene, _ = planted_map("guard")
    return replace(scene, points=points)


def answer_with(rows: np.ndarray) -> Localization:
    return Localization(
        cam_from_world=Rigid(rotation=np.eye(3), translation=np.zeros(3)),
        camera=CAMERA,
        covariance=None,
        turn_deviation_deg=0.1,
        keypoint_rows=np.arange(len(rows)),
        point_rows=rows,
        correspondences=2 * len(rows),
        log10_nfa=-40.0,
    )


def test_an_object_alone_gives_no_pose_and_with_enough_beside_it_one() -> None:
    """Oracle: planted evidence, 60 inliers on one thing of a tenth of the extent and four or five beside it.

    Broken twin: a guard that counts inliers, wherever they are, tells all three.
    """
    random = np.random.default_rng(0)
    place = random.uniform(-10, 10, (2000, 3))
    thing = np.array([9.0, 0.0, 0.0]) + random.uniform(-0.5, 0.5, (60, 3))
    scene = scene_of(np.vstack([place, thing]))
    far = np.flatnonzero(place[:, 0] < 0)
    on_thing = np.arange(2000, 2060)
    guard = AnswerGuard()
    for beside, told in ((0, False), (4, False), (5, True)):
        answer = answer_with(np.concatenate([on_thing, far[:beside]]))
        assert isinstance(guard.told(answer, scene), Localization) == told
        assert guard.inliers_beside(answer, scene) == beside
        assert answer.inliers >= guard.min_inliers  # the broken twin


@pytest.mark.parametrize("seed", range(5))
def test_no_thing_of_the_size_holds_more(seed: int) -> None:
    """Oracle: every ball about every inlier, by all distances. Any group of inliers no wider than the size, drawn at random,
    leaves at least as many (docs/theory/answers.md, Eq. 3).
    """
    random = np.random.default_rng(seed)
    points = random.normal(size=(300, 3)) * [5, 2, 1]
    scene, guard = scene_of(points), AnswerGuard(largest_object=0.2)
    rows = random.permutation(300)[:80]
    beside = guard.inliers_beside(answer_with(rows), scene)
    size = guard.largest_object * extent_of_points(scene)
    apart = np.linalg.norm(points[rows][:, None] - points[rows][None], axis=2)
    assert beside == min(int((line > size).sum()) for line in apart)
    for _ in range(200):
        group = [int(random.integers(80))]
        for row in random.permutation(80):
            if apart[row, group].max() <= size:
                group.append(int(row))
        assert len(rows) - len(set(group)) >= beside


def test_all_refusals_are_alike() -> None:
    """Oracle: equality. What a refusal says of its own would tell that the object is there."""
    scene = scene_of(np.random.default_rng(1).uniform(-10, 10, (500, 3)))
    guard = AnswerGuard()
    near = np.argsort(np.linalg.norm(scene.points - scene.points[0], axis=1))[:20]
    refused = [
        guard.told(answer_with(near), scene),
        guard.told(NoPose(reason="chance", correspondences=700, inliers=14, log10_nfa=-3.0), scene),
        guard.told(answer_with(np.arange(0)), scene),
    ]
    assert all(item == NoPose(reason=WITHHELD, correspondences=0) for item in refused)


@pytest.mark.parametrize("wrong", [0.0, 1.5, float("nan")])
def test_impossible_sizes_are_refused(wrong: float) -> None:
    with pytest.raises(RangeError, match="largest_object must lie in"):
        AnswerGuard(largest_object=wrong)
    with pytest.raises(RangeError, match="min_inliers must be at least 1, got 0"):
        AnswerGuard(min_inliers=0)
