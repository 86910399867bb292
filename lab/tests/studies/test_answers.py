"""Parts of the study of answers: the area under the ROC curve, planted objects, and the whole study of one small place."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.special import ndtr

from veil.extraction.flat_objects import corners_of, projected
from veil.extraction.picture import Picture
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil.geometry.rigid import Rigid
from veil_lab.studies.answers.asking import AnswerStudyOptions, PosedPlace, rounded
from veil_lab.studies.answers.in_photographs import PaintedStudy, painted_rows
from veil_lab.studies.answers.planting import LEAST_SEEN, cam_from_object, cut_objects, planted, seen_whole
from veil_lab.studies.answers.rows import defense_rows, membership_rows
from veil_lab.studies.answers.separation import separated
from veil_lab.studies.answers.study import AnswerStudy
from veil_lab.studies.attacks.form_releases import FormPools


def test_the_area_is_that_of_two_normal_laws() -> None:
    """Oracle: closed form, Phi(shift / sqrt 2) for normal laws of deviation 1."""
    random = np.random.default_rng(0)
    for shift in (0.0, 0.5, 2.0):
        present, absent = random.normal(shift, 1, (300, 1)), random.normal(0, 1, (300, 1))
        area, truth = separated(present.tolist(), absent.tolist()), float(ndtr(shift / math.sqrt(2)))
        assert area.low <= truth <= area.high and area.auc == pytest.approx(truth, abs=0.05)


def test_ties_count_half_and_every_pair_once() -> None:
    """Oracle: enumeration by hand; equal infinities tie. Broken twin: ties that count for the present side give 0.9."""
    area = separated([[2.0, 1.0], [3.0]], [[1.0], [1.0, 0.0]])
    pairs = [(a, b) for a in (2, 1, 3) for b in (1, 1, 0)]
    assert area.auc == pytest.approx(sum(a > b for a, b in pairs) / 9 + sum(a == b for a, b in pairs) / 18)
    assert separated([[0.0], [0.0]], [[0.0], [0.0]]).auc == 0.5
    assert separated([[-math.inf], [1.0]], [[-math.inf], [-math.inf]]).auc == 0.75


def test_the_interval_is_over_objects_and_not_over_scores() -> None:
    """Oracle: scores repeated in each object say nothing new. Broken twin: as many objects narrow the interval."""
    random = np.random.default_rng(1)
    present, absent = random.normal(0.5, 1, 20), random.normal(0, 1, 20)
    once = separated([[a] for a in present], [[b] for b in absent])
    thrice = separated([[a] * 3 for a in present], [[b] * 3 for b in absent])
    more = separated([[a] for a in np.repeat(present, 9)], [[b] for b in np.repeat(absent, 9)])
    assert (once.low, once.high) == pytest.approx((thrice.low, thrice.high))
    assert more.high - more.low < 0.6 * (once.high - once.low)


def test_rounding_moves_a_center_by_half_a_step_at_most() -> None:
    """Oracle: the definition."""
    pose = Rigid(rotation=np.eye(3), translation=np.array([0.123, -4.56, 7.89]))
    moved = rounded(pose, 0.1)
    assert np.allclose(np.round(moved.center / 0.1), moved.center / 0.1) and np.abs(moved.center - pose.center).max() <= 0.05


def texture(seed: int) -> np.ndarray:
    """Noise of three sizes, of which no two pictures share anything, uint8 (260, 340)."""
    random = np.random.default_rng(seed)
    whole = sum(size * gaussian_filter(random.normal(size=(260, 340)), size) for size in (1.5, 3.0, 6.0))
    return np.clip(128 + 60 * whole / whole.std(), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def door() -> PosedPlace:
    """Seven photographs of a door with their poses."""
    with lund_door() as place:
        names = sorted(place.poses)[2:9]
        pictures = {name: read_picture(place.folder / name, camera=place.camera) for name in names}
        poses = {name: place.poses[name] for name in names}
    down = np.mean([pose.rotation[1] for pose in poses.values()], axis=0)
    return PosedPlace(name="door", pictures=pictures, cam_from_world=poses, down=down / np.linalg.norm(down))


@pytest.fixture(scope="module")
def objects() -> dict[str, np.ndarray]:
    """Six flat objects of noise."""
    return cut_objects(((str(seed), texture(seed)) for seed in range(8)), 6, np.random.default_rng(0))


POOLS = FormPools.split(bundled_codebook(), bundled_decoys())


@pytest.mark.slow
def test_a_small_place_is_attacked_and_defended(door: PosedPlace, objects: dict[str, np.ndarray]) -> None:
    """Oracle: objects are planted where they are seen whole and apart; those the map tells lie where they were planted, and
    the guard lets none through.
    """
    study = AnswerStudy([door], POOLS, AnswerStudyOptions(placements=1))
    scene = study.asker.scene(door, study.asker.extracted(door.pictures))
    shown, standing = planted(door.pictures, scene, objects, np.random.default_rng(0))
    for item in standing:
        boxes = {}
        for name, image in scene.images.items():
            corners = projected(image.camera, cam_from_object(item, image.cam_from_world), corners_of(item.gray))
            boxes[name] = bool((corners >= 0).all() and (corners <= [image.camera.width_px, image.camera.height_px]).all())
            assert isinstance(shown[name], Picture)
        assert sum(boxes.values()) >= LEAST_SEEN
        assert len(seen_whole(item, scene)) >= LEAST_SEEN and all(boxes[name] for name in seen_whole(item, scene))
    answers = study.run(objects)
    none, *_, guarded = defense_rows(answers)
    assert none.present == none.absent == none.placements == 3
    assert none.told > 0 and none.falsely == 0 and none.separation.auc > 0.5
    assert none.error_of_width is not None and none.error_of_width < 0.1
    assert guarded.told == 0 and guarded.separation.auc == 0.5 and guarded.lost == 0
    assert all(row.same_place.low <= row.same_place.auc <= row.same_place.high for row in membership_rows(answers))
    assert all(asked.processor_seconds > 0 for asked in answers[0].held_out.values())


@pytest.mark.slow
def test_an_object_in_a_photograph_of_the_place_is_told_through_the_guard(
    door: PosedPlace, objects: dict[str, np.ndarray]
) -> None:
    """Oracle: the planted truth. Each photograph gets a pose, with more inliers than with a patch where the object stands.
    Broken twin: an object that stands nowhere adds hardly any.
    """
    asked = PaintedStudy([door], POOLS, AnswerStudyOptions(placements=1)).run(objects)
    gains = {
        kind: [item.answer.inliers - item.patched.inliers for item in asked if item.present == kind] for kind in (True, False)
    }
    assert all(item.answer.stands and item.patched.stands for item in asked)
    assert len(gains[True]) == len(gains[False]) > 0 and min(gains[True]) > max(gains[False])
    assert painted_rows(asked)[0].separation.auc == 1.0
