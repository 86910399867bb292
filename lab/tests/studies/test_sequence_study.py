"""`veil evaluate sequences`: rows against a hand count, motions against the reference, and the command on photographs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.geometry.similarity import Similarity
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.places.poses.options import UprightOptions, WordOptions
from veil_lab.cli.evaluate.poses.sequences import epsilon_of_one
from veil_lab.studies.localization.false_acceptance import Fold, ReferencePlace
from veil_lab.studies.sequences import localization
from veil_lab.studies.sequences.localization import (
    Drift,
    Kind,
    SequenceSetting,
    SequenceStudy,
    SequenceTrial,
    groups,
    sequence_row,
)
from worlds import world
from worlds.documents import keys, section
from worlds.edges import door_scene
from worlds.schemas import validate
from worlds.word_worlds import scene_of

SETTING = SequenceSetting(sent="frames", frames=4, features=1000, epsilon=3.0)


def trial(right: int, *, kind: Kind = "true", accepted: bool = True, nfa: float | None = -50.0) -> SequenceTrial:
    return SequenceTrial(
        setting=SETTING,
        scene="place",
        query="q",
        kind=kind,
        photographs=4,
        right=right,
        accepted=accepted,
        log10_nfa=nfa,
        seconds=2.0,
    )


def test_a_row_counts_photographs_by_hand() -> None:
    trials = [
        trial(4),
        trial(3),  # one frame drifted away
        trial(0, accepted=False),
        trial(0, kind="foreign", accepted=False, nfa=12.0),
        trial(0, kind="mirrored", accepted=True, nfa=-7.0),
    ]
    row = sequence_row(trials, "place")
    assert (row.queries, row.photographs, row.right, row.accepted) == (3, 12, 7, 2)
    assert (row.false_queries, row.false_accepts, row.least_false_log10_nfa) == (2, 1, -7.0)


def test_neighbors_stay_together_and_a_rest_is_left_out() -> None:
    assert groups("abcdefg", 3) == [("a", "b", "c"), ("d", "e", "f")]
    assert groups("abc", 4) == []


def test_all_features_together_spend_the_epsilon_that_is_asked_for() -> None:
    """Second method: the exact composition, which the next step of a hundredth exceeds."""
    for features, total in ((1000, 81.9), (4000, 211.9)):
        epsilon = epsilon_of_one(features, 4096, total)
        spent = [
            composed_epsilon({SubsetMechanism(dictionary_size=4096, epsilon=value, m=2): features}, 1e-6)
            for value in (epsilon, epsilon + 0.01)
        ]
        assert spent[0] <= total < spent[1]
    assert epsilon_of_one(1000, 4096, 0.0) == 0.0


def study(turn_deg: float, share: float) -> SequenceStudy:
    """A planted place whose reference has another unit than the map."""
    place = world("sequence study")
    similarity = Similarity(scale=2.0, rotation=np.eye(3), translation=np.zeros(3))
    reference = {name: Rigid(rotation=one.rotation, translation=2.0 * one.translation) for name, one in place.poses.items()}
    known = ReferencePlace(name="planted", features={}, cam_from_world=reference, down={})
    fold = Fold(place=known, held_out=tuple(reference), scene=scene_of(place), reference_from_map=similarity)
    return SequenceStudy(fold=fold, drift=Drift(turn_deg=turn_deg, share=share), limits=(0.1, 2.0))


def test_motions_are_those_of_the_reference_in_units_of_the_map() -> None:
    place, names = world("sequence study"), ("00", "01", "02", "03")
    first = place.poses[names[0]].inverse()
    for motion, name in zip(study(0.0, 0.0)._motions(names), names, strict=True):
        expected = place.poses[name] @ first
        np.testing.assert_allclose(motion.rotation, expected.rotation, atol=1e-12)
        np.testing.assert_allclose(motion.translation, expected.translation, atol=1e-12)


def test_drift_adds_up_from_frame_to_frame() -> None:
    """Statistics bounded on both sides: each step turns by about the stated angle, and later frames are farther off."""
    place, names = world("sequence study"), ("00", "01", "02", "03")
    first = place.poses[names[0]].inverse()
    motions = study(0.5, 0.01)._motions(names)
    off = [rotation_angle_deg(m.rotation @ (place.poses[n] @ first).rotation.T) for m, n in zip(motions, names, strict=True)]
    assert off[0] < 1e-6 and all(0.05 < angle < 3.0 for angle in off[1:])


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_command_asks_the_door_alone_and_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the bundled reference poses, of which two are left out together."""
    fewer = WordOptions(upright=UprightOptions(samples=60_000, kept=40, refined=10, compared=2))
    monkeypatch.setattr(localization, "WordOptions", lambda threads: fewer)
    out = tmp_path / "sequences.json"
    asked = ("--left-out", 2, "--frames", 1, 2, "--features", 600, "--max-features", 600, "--word-count", 512)
    scene = door_scene(tmp_path)
    assert main(["evaluate", "sequences", *map(str, (scene, *asked, "--epsilons", 600, "--mirrored", "--json", out))]) == 0
    written = json.loads(out.read_text())
    validate("evaluate-sequences", written)
    alone, together = written["rows"]
    assert (alone["frames"], together["frames"]) == (1, 2) and together["photographs"] == alone["photographs"] == 4
    assert together["right"] >= 2 and alone["right"] >= 2
    assert together["false_queries"] == 2 and together["false_accepts"] == 0
    text = section("json.md", "veil evaluate sequences")
    assert keys(written) <= set(re.findall(r'[`"]([a-z0-9_]+)[`"]', text))
