"""Positions attack on a planted world: it finds the camera without any descriptor, and nothing where there is nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.attack import Attempt, Skipped, attempted
from veil.attacks.claims import Pose
from veil.attacks.on_positions import POSITIONS_ATTACK, groups_of_images
from veil.attacks.registry import unbounded
from veil.attacks.target import Knowledge, ReleasedImage, Target
from veil.audit.run import examine, findings
from veil.audit.verdict import judge
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.geometry.rigid import rotation_angle_deg
from veil.scene import Scene
from veil.wire.message import Upload
from worlds import generator, world
from worlds.word_worlds import dictionary_of, scene_of, with_down, words_of

PLACE = world("positions attack", points=500)
SCENE = with_down(scene_of(PLACE, without="02"), np.array([0, 1.0, 0]))
TRUTH = PLACE.poses["02"]


@pytest.fixture(scope="module", autouse=True)
def brief() -> object:
    """Fewer samples than an attacker would draw: the world is small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("veil.attacks.on_positions.SAMPLES", 1_000_000)
        yield


def upload(keypoints: np.ndarray | None = None, *, gravity: bool = True) -> Upload:
    """Positions with words of epsilon 0, which are drawn without a look at any descriptor."""
    book = dictionary_of(PLACE, others=100)
    return Upload(
        camera=PLACE.camera,
        keypoints=PLACE.keypoints["02"] if keypoints is None else keypoints,
        form=words_of(PLACE.form("02"), book, epsilon=0.0, m=1),
        gravity=TRUTH.rotation @ [0, 1.0, 0] if gravity else None,
    )


def outcome(message: Upload, scene: Scene | None = SCENE) -> Attempt | Skipped:
    return attempted(
        POSITIONS_ATTACK,
        Target(
            image=ReleasedImage.of(message),
            rows=np.arange(len(message)),
            knowledge=Knowledge(codebook=bundled_codebook(), decoys=None, database=bundled_decoys(), scene=scene),
            time=unbounded(),
        ),
    )


@pytest.mark.slow
def test_positions_in_the_clear_give_the_place_away() -> None:
    """Broken defense: words at epsilon 0 beside positions. Oracle: the planted pose."""
    outcomes = outcome(upload())
    assert isinstance(outcomes, Attempt) and isinstance(outcomes.claim, Pose) and outcomes.claim.cam_from_world is not None
    assert np.linalg.norm(outcomes.claim.cam_from_world.center - TRUTH.center) < 0.05
    assert rotation_angle_deg(outcomes.claim.cam_from_world.rotation @ TRUTH.rotation.T) < 0.5
    assert outcomes.details["localized"] == 1 and outcomes.details["groups_tried"] <= outcomes.details["groups"]


@pytest.mark.slow
def test_positions_by_chance_give_nothing_and_the_verdict_says_which() -> None:
    random = generator("chance")
    places = (random.random(PLACE.keypoints["02"].shape) * [640, 480]).astype(np.float32)
    knowledge = Knowledge(codebook=None, decoys=None, database=bundled_decoys(), scene=SCENE)
    for message, share, grade in ((upload(places), 0.0, "nothing found"), (upload(), 1.0, "leaks")):
        told = findings(examine({"a": message}, {}, knowledge, attacks=[POSITIONS_ATTACK]))
        (finding,) = told
        assert finding.recovered is not None and finding.recovered.value == share and finding.unit == "release"
        assert finding.notes[0].startswith("localized 1 of 1" if share else "localized none of 1")
        verdict = judge(told, {}, 1e-6)
        assert verdict.grade == grade and verdict.headline.endswith("releases (positions alone attack)")


@pytest.mark.parametrize(
    ("message", "scene", "why"),
    [
        (upload(), None, "no map of the place"),
        (upload(), replace(SCENE, measured_down=None), "no gravity"),
        (upload(gravity=False), SCENE, "gravity was not sent"),
    ],
)
def test_what_the_attack_lacks_is_said(message: Upload, scene: Scene | None, why: str) -> None:
    outcomes = outcome(message, scene)
    assert isinstance(outcomes, Skipped) and why in outcomes.why


def test_groups_hold_every_image() -> None:
    groups = groups_of_images(SCENE)
    assert {name for group in groups for name in group} == set(SCENE.images) and len(set(groups)) == len(groups)
