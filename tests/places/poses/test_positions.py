"""Positions alone, without any descriptor: planted poses with gravity and near images, and everything that must be refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import veil
from veil.cli.remedies import advised
from veil.errors import InputError, RangeError, Remedy
from veil.geometry.camera import FROM_EXIF, GUESS, FocalPrior
from veil.geometry.rigid import rotation_angle_deg
from veil.geometry.robust.pose_and_focal import is_searched
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import PositionOptions, UprightOptions
from veil.places.poses.upright import NO_CANDIDATES, PositionProblem, localize_positions
from veil.places.poses.upright_problem import MOST_GUESSES
from worlds import features, generator, world
from worlds.word_worlds import scene_of, with_down

PLACE = world("positions alone", points=500)
DOWN = np.array([0, 1.0, 0])
SCENE = with_down(scene_of(PLACE, without="02"), DOWN)
KEYPOINTS, TRUTH = PLACE.keypoints["02"], PLACE.poses["02"]
GRAVITY = TRUTH.rotation @ DOWN
NEAR = ("01", "03")
BRIEF = PositionOptions(upright=UprightOptions(samples=1_500_000, longer=1, reach=0.25, kept=40, refined=10, compared=3))


def asked(keypoints: np.ndarray = KEYPOINTS, gravity: np.ndarray | None = GRAVITY) -> Localization | NoPose:
    return localize_positions(PLACE.camera, keypoints, SCENE, gravity=gravity, near=NEAR, options=BRIEF)


@pytest.mark.slow
def test_a_pose_is_found_without_any_descriptor() -> None:
    """Planted truth: the pose, from positions, gravity that is off by half a degree, and two near images."""
    steps: list[tuple[int, int]] = []
    tilted = Rotation.from_rotvec([np.radians(0.5), 0, 0]).as_matrix() @ GRAVITY
    answer = localize_positions(
        PLACE.camera,
        KEYPOINTS,
        SCENE,
        gravity=tilted,
        near=NEAR,
        options=BRIEF,
        progress=lambda *step: steps.append(step),
    )
    assert isinstance(answer, Localization), answer
    assert np.linalg.norm(answer.cam_from_world.center - TRUTH.center) < 0.02
    assert rotation_angle_deg(answer.cam_from_world.rotation @ TRUTH.rotation.T) < 0.2
    assert (PLACE.visible["02"][answer.keypoint_rows] == answer.point_rows).mean() > 0.8
    assert answer.correspondences == len(KEYPOINTS) and answer.log10_nfa < -12
    assert steps[-1] == (1_500_000, 1_500_000)


@pytest.mark.slow
def test_positions_of_no_place_are_refused() -> None:
    """Null: as many positions at random, those of the query mirrored, and gravity from the side."""
    random = generator("positions by chance")
    mirrored = KEYPOINTS.copy()
    mirrored[:, 0] = PLACE.camera.width_px - mirrored[:, 0]
    aside = Rotation.from_rotvec([0, 0, np.radians(60.0)]).as_matrix() @ GRAVITY
    for keypoints, gravity in (
        ((random.random(KEYPOINTS.shape) * [640, 480]).astype(np.float32), GRAVITY),
        (mirrored, GRAVITY),
        (KEYPOINTS, aside),
    ):
        answer = asked(keypoints, gravity)
        assert isinstance(answer, NoPose) and "these images show" in answer.reason


def test_guesses_are_all_pairs_within_reach() -> None:
    """Slow reference: each keypoint with each point of an image that it shows no farther away than the reach."""
    for reach in (0.1, 0.25):
        problem = PositionProblem(
            camera=PLACE.camera,
            keypoints=KEYPOINTS,
            gravity=GRAVITY,
            candidates=NO_CANDIDATES,
            scene=SCENE,
            names=list(NEAR),
            options=replace(BRIEF.upright, reach=reach),
        )
        sampled = problem.sampled
        for v, name in enumerate(NEAR):
            image = SCENE.images[name]
            expected = set()
            for row in set(image.point_rows.tolist()):
                x, y, z = image.cam_from_world.apply(SCENE.points[row : row + 1])[0]
                gaps = np.hypot(*(problem.seen - [x / z, y / z]).T)
                expected |= {(int(keypoint), row) for keypoint in np.flatnonzero(gaps <= reach)}
            own = slice(sampled.starts[v], sampled.starts[v + 1])
            pairs = list(zip(sampled.keypoint_rows[own].tolist(), sampled.point_rows[own].tolist(), strict=True))
            assert len(pairs) == len(set(pairs)) and set(pairs) == expected
            np.testing.assert_allclose(sampled.cumulative[own], np.arange(1, len(pairs) + 1) / len(pairs))
        assert (sampled.worded == sampled.starts[:-1]).all() and problem.queried == len(KEYPOINTS)


def test_guesses_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_GUESSES * 32 <= 1 << 28
    monkeypatch.setattr("veil.places.poses.upright_problem.MOST_GUESSES", 2000)
    problem = PositionProblem(
        camera=PLACE.camera,
        keypoints=KEYPOINTS,
        gravity=GRAVITY,
        candidates=NO_CANDIDATES,
        scene=SCENE,
        names=list(NEAR),
        options=replace(BRIEF.upright, reach=0.5),
    )
    assert np.diff(problem.sampled.starts).tolist() == [1000, 1000]


def test_what_is_missing_is_said() -> None:
    with pytest.raises(InputError, match="that of the query is unknown"):
        asked(gravity=None)
    bare = replace(SCENE, measured_down=None)
    known = {"gravity": GRAVITY, "near": NEAR, "options": BRIEF}
    with pytest.raises(InputError, match="that of the map is unknown"):
        localize_positions(PLACE.camera, KEYPOINTS, bare, **known)
    guessed = replace(PLACE.camera, focal=GUESS)
    with pytest.raises(InputError, match="a known focal length only, and this one is a guess") as refused:
        localize_positions(guessed, KEYPOINTS, SCENE, **known)
    assert advised(refused.value).endswith("; extract the photograph with its camera (`veil extract --camera`)")
    for near, said in (((), "localize\\(near"), (("01", "nowhere"), "nowhere")):
        with pytest.raises(InputError, match=said):
            localize_positions(PLACE.camera, KEYPOINTS, SCENE, **{**known, "near": near})
    with pytest.raises(InputError, match="no positions"):
        localize_positions(PLACE.camera, KEYPOINTS[:0], SCENE, **known)
    with pytest.raises(RangeError, match="reach"):
        PositionOptions(upright=UprightOptions(reach=0.0))


@pytest.mark.parametrize(
    ("focal", "is_told"), [(GUESS, True), (FocalPrior(origin="given", deviation=0.12), True), (FROM_EXIF, False)]
)
def test_a_guessed_focal_length_is_told_when_positions_are_released(tmp_path: Path, focal: FocalPrior, is_told: bool) -> None:
    """Oracle: the server's own limit, of what the message says. Counterexamples: a known focal length, and words."""
    image = features(generator("alone"), 60)
    image = replace(image, camera=replace(image.camera, focal=focal))
    made = veil.Device(tmp_path).release(image, veil.Protection(descriptors=veil.HideInWords.positions_alone(50)))
    assert any("positions alone are localized with a known one only" in note for note in made.notes) == is_told
    assert made.remedy == ((Remedy("give", "Features.camera"),) if is_told else ())
    assert is_searched(veil.decode(made.message).camera.focal) == is_told
    words = veil.Device(tmp_path / "w").release(image, veil.Protection(descriptors=veil.HideInWords(epsilon=8.0)))
    assert not any("positions alone" in note for note in words.notes) and not words.remedy
