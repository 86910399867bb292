"""Forms with decoys of whole photographs: each photograph serves one release of a form, and none its own place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import veil
from veil.audit.measured_forms import MeasuredAttack, MeasuredForm
from veil.distances import pairwise
from veil.errors import InputError
from veil.forms import Subspaces
from veil.geometry.similarity import Similarity
from veil.mechanisms.decoy_photographs import DecoyPhotographs
from veil.mechanisms.selection import Selection
from veil_lab.report.measured_forms import frontier_table
from veil_lab.studies.attacks.form_releases import DECOY_FORMS, USUAL_WORDS, FormOptions, FormPools, FormScene
from veil_lab.studies.localization.false_acceptance import Fold, ReferencePlace
from worlds import codebook, edges, generator
from worlds.decoy_photographs import photograph, photographs

FORMS = {form.name: replace(form, selection=Selection(features=40, min_distance_px=0.0)) for form in DECOY_FORMS}


def scene_of(count: int) -> FormScene:
    """A place of two photographs, one of which also lies among the photographs that give decoys."""
    features = {name: photograph(name, 60) for name in "ab"}
    place = ReferencePlace(name="place", features=features, cam_from_world={}, down={})
    still = Similarity(scale=1.0, rotation=np.eye(3), translation=np.zeros(3))
    fold = Fold(place=place, held_out=("a", "b"), scene=edges.scene(4), reference_from_map=still)
    pools = FormPools(
        codebook=codebook(generator("book"), 512, 4),
        decoys=codebook(generator("pool"), 400, 4, kind="descriptors"),
        database=codebook(generator("database"), 400, 4, kind="descriptors"),
        photographs=DecoyPhotographs(photographs=(features["b"], *photographs(count, 60))),
    )
    return FormScene(fold=fold, pools=pools, options=FormOptions())


def subspaces(scene: FormScene, form: str, name: str) -> Subspaces:
    released = scene.released(FORMS[form], name)[0].form
    assert isinstance(released, Subspaces)
    return released


def test_usual_words_are_what_leaves_to_be_localized() -> None:
    """Oracle: the protection of `veil.usual_protection`, field by field."""
    down = np.array([0.0, 1.0, 0.0])
    usual = veil.usual_protection("localize", photograph("a", 60), gravity=down).descriptors
    assert isinstance(usual, veil.HideInWords) and usual.m == 2
    scene = scene_of(4)
    scene.fold.place.down["a"] = down  # type: ignore[index]
    upload = scene.released(USUAL_WORDS, "a")[0]
    assert isinstance(upload, veil.Upload) and isinstance(upload.form, veil.Subsets) and upload.gravity is not None
    assert upload.form.mechanism == usual.mechanism and upload.form.dictionary == usual.book.digest
    assert USUAL_WORDS.words_sent == usual.features_sent


def test_each_decoy_photograph_serves_one_release_of_a_form() -> None:
    """Two releases of a form do not meet. Two forms draw from the same photographs, and one that needs more finds too few."""
    scene = scene_of(8)
    one, other = (subspaces(scene, "photographs, m = 4", name) for name in "ab")
    assert one.m == 4 and len(one) == 40
    meeting = pairwise((one.origin, one.basis), (other.origin, other.basis)).min(axis=1) <= one.space.decoy_distance
    assert meeting.sum() < 4
    assert subspaces(scene, "photographs", "a").m == 8
    with pytest.raises(InputError, match="of 0 unused ones 0 are so"):
        subspaces(scene, "photographs", "b")
    with pytest.raises(InputError, match="of 3 unused ones 3 are so"):  # that of the place does not count
        subspaces(scene_of(3), "photographs", "a")


def test_the_frontier_sets_what_is_localized_against_the_best_attack() -> None:
    """By hand: half of eight queries, and the attack with most within 0.1, oracles left out."""
    best = MeasuredAttack(attack="blind sorting", uploads=1, unit="descriptor", shares=(0.2, 0.25, 0.3), total=40)
    attacks = (replace(best, attack="oracle", oracle=True, shares=(0.9, 0.9, 0.9)), replace(best, uploads=5, attack="x"), best)
    form = MeasuredForm(
        form="photographs",
        queries=8,
        localized=4,
        wrong=0,
        features=500.0,
        upload_bytes=1.0,
        epsilon_image=None,
        attacks=attacks,
    )
    table = frontier_table([form, replace(form, form="raw", attacks=())])
    assert table is not None and table.rows == [("photographs", "blind sorting", "500", "50", "20", "25", "30", "125")]
    assert frontier_table([replace(form, attacks=())]) is None
