"""Attackers that link: they win against a broken scheme, are at chance against noise, and take a store's rotation apart."""

from __future__ import annotations

import numpy as np
import pytest

from face_worlds.crowd import crowd
from veil.errors import InputError
from veil_faces.collection import Faces
from veil_faces.studies.linkage import LinkageMaterial, linkage_material, linkage_rows, quality_of, store_size_rows
from veil_faces.studies.linked_people import linked_people
from veil_faces.studies.linked_systems import Coded, LiftedSystem, LinkedSystem, Noise, Unprotected, turn_of
from veil_faces.studies.pair_network import area, train_pairs
from veil_faces.studies.published_schemes import BioHashing
from veil_faces.studies.whole_stores import alikeness_scores, recovered_turn
from worlds import generator


@pytest.fixture(scope="module")
def material() -> LinkageMaterial:
    return linkage_material(crowd("linked", 140, 2), crowd("others", 260, 1), seed=0)


def areas(system: LinkedSystem, material: LinkageMaterial) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Area and its interval by kind of keys and attacker."""
    rows = linkage_rows(system, material)
    return {(row.keys, row.attacker): (row.linked.auc, row.linked.low, row.linked.high) for row in rows}


@pytest.mark.slow
def test_the_area_is_the_share_of_ordered_pairs() -> None:
    """Oracle: every pair compared, ties counting half; and the interval holds the area."""
    random = generator("area")
    scores = np.round(random.normal(size=(40, 40)) + np.eye(40), 1)
    apart = ~np.eye(40, dtype=bool)
    wins = [(m > o) + (m == o) / 2 for m in np.diagonal(scores) for o in scores[apart]]
    linked = linked_people(scores, seed=0)
    assert area(np.diagonal(scores), scores[apart]) == pytest.approx(np.mean(wins)) == linked.auc
    assert linked.low < linked.auc < linked.high and linked.high - linked.low < 0.3
    assert linked_people(np.zeros((30, 30)), seed=0).first == pytest.approx(1 / 30)
    with pytest.raises(InputError, match="needs 25 pairs"):
        linked_people(scores[:5, :5], seed=0)


def test_a_network_learns_what_no_threshold_separates() -> None:
    """Two features whose signs agree for one person: neither tells alone. Broken twin: labels by chance."""
    random = generator("network")
    features, held = random.normal(size=(2000, 2)), np.arange(2000) < 500
    same = (features[:, 0] * features[:, 1] > 0) & (random.random(2000) < 0.9)
    tried = random.normal(size=(1000, 2))
    product = tried[:, 0] * tried[:, 1] > 0
    reached = []
    for labels, truth in ((same, product), (random.random(2000) < 0.5, random.random(1000) < 0.5)):
        scores = train_pairs(features, labels, held, seed=0).scores(tried)
        reached.append(area(scores[truth], scores[~truth]))
    assert reached[0] > 0.95 and abs(reached[1] - 0.5) < 0.1
    with pytest.raises(InputError, match="one person and of two"):
        train_pairs(features, np.ones(2000, dtype=bool), held, seed=0)


@pytest.mark.slow
def test_every_attacker_wins_without_protection(material: LinkageMaterial) -> None:
    """The broken scheme: templates are descriptors."""
    reached = areas(Unprotected(), material)
    assert min(value for value, _, _ in reached.values()) > 0.75
    assert min(reached["store", attacker][0] for attacker in ("pairs", "disclosed", "reused")) > 0.95


@pytest.mark.slow
def test_every_attacker_is_at_chance_against_noise(material: LinkageMaterial) -> None:
    """Random templates: no area is far from a half, where 70 people scatter by about 0.035."""
    for value, low, high in areas(Noise(), material).values():
        assert abs(value - 0.5) < 0.15 and low < 0.6 and high > 0.4


@pytest.mark.slow
def test_one_key_in_two_stores_links_and_two_keys_do_not(material: LinkageMaterial) -> None:
    """The published broken key reuse, with BioHashing: a network links equal keys, and pairs under two keys are at chance."""
    reached = areas(Coded(scheme=BioHashing(bits=64), own=material.own), material)
    assert reached["store", "reused"][0] > 0.9 and reached["store", "disclosed"][0] > 0.85
    assert abs(reached["person", "pairs"][0] - 0.5) < 0.15


@pytest.mark.slow
def test_a_store_of_one_rotation_gives_it_away_and_rotations_of_people_do_not(material: LinkageMaterial) -> None:
    """Planted: the rotation itself. Broken twin: one rotation for a whole store, whose pool is known."""
    system, pictures = LiftedSystem(pool=material.pool, own=material.own), material.two_pictures(material.attacked)[0]
    shared, own = np.full(len(pictures), 5), 100 + np.arange(len(pictures))
    turns = [
        recovered_turn(system.subspaces(system.templates(pictures, keys, "turn")), material.pool.vectors, decoys=2)
        for keys in (shared, own)
    ]
    assert turns[0].rank == 64 and turns[0].placed > 60
    np.testing.assert_allclose(turns[0].turn, turn_of(5, 64), atol=1e-3)
    assert turns[1].met == turns[1].placed == turns[1].rank == 0
    reached = areas(system, material)
    assert reached["store", "stores, pool known"][0] > 0.9
    assert abs(reached["person", "stores, pool known"][0] - 0.5) < 0.1
    assert abs(reached["store", "pairs"][0] - 0.5) < 0.15


@pytest.mark.slow
def test_too_few_templates_keep_the_rotation(material: LinkageMaterial) -> None:
    sizes = store_size_rows(material, sizes=(8, 70))
    assert sizes[0].placed == 0 and sizes[0].linked is None and sizes[0].as_json()["linked"] is None
    assert sizes[1].linked is not None and sizes[1].linked.auc > 0.9 and sizes[1].variance == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_people_are_matched_by_whom_they_resemble() -> None:
    """Planted: two noisy views of one geometry, and of two; known people make it easier."""
    random = generator("geometry")
    points = random.normal(size=(60, 8))
    views = [points + 0.1 * random.normal(size=points.shape) for _ in range(2)]
    left, right = (view @ view.T for view in views)
    other = random.normal(size=(60, 8))
    for known in (0, 20):
        linked = linked_people(alikeness_scores(left, right, known), seed=0) if known < 36 else None
        assert linked is not None and linked.auc > 0.9
    unlinked = linked_people(alikeness_scores(left, other @ other.T, 20), seed=0)
    assert abs(unlinked.auc - 0.5) < 0.2
    with pytest.raises(InputError, match="fewer than three"):
        alikeness_scores(left, right, 58)


@pytest.mark.slow
def test_verification_is_measured(material: LinkageMaterial) -> None:
    """Descriptors verify best, noise not at all; intervals hold their shares."""
    raw, lifted, noise = (
        quality_of(system, material) for system in (Unprotected(), LiftedSystem(pool=material.pool, own=material.own), Noise())
    )
    assert raw.equal_error < 0.05 and raw.equal_error <= lifted.equal_error < 0.2 < noise.equal_error
    assert raw.low <= raw.matched <= raw.high and noise.matched < 0.1


def test_too_few_people_are_refused() -> None:
    faces: Faces = crowd("linked", 20, 2)
    with pytest.raises(InputError, match="60 are needed"):
        linkage_material(faces, crowd("others", 260, 1), seed=0)
