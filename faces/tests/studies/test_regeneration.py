"""Descriptors regenerated from answers: equations against planted subspaces, and attacks on broken systems and on noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from face_worlds.crowd import crowd
from veil.errors import RangeError
from veil_faces.answers import BANDS, band_of
from veil_faces.collection import Faces
from veil_faces.studies.linkage import LinkageMaterial, linkage_material
from veil_faces.studies.linked_systems import LiftedSystem, LinkedSystem, Noise, Unprotected
from veil_faces.studies.regeneration import AskedSystem, RegenerationRow, match_limit, regeneration_rows
from veil_faces.studies.score_attacks import (
    FaceLaw,
    border_questions,
    bordering_subspace,
    central_descriptor,
    climbed,
    equations_needed,
    is_decoy,
    low_rank_descriptor,
    solved_subspace,
)
from worlds import affine_set, generator, unit

DIM = 24


@pytest.fixture(scope="module")
def material() -> LinkageMaterial:
    return linkage_material(crowd("asked", 80, 2), crowd("others", 260, 1), seed=0)


def planted(name: str, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Origin, nearest to zero, and orthonormal directions of a subspace through a unit vector."""
    random = generator(name)
    origins, bases = affine_set(random, unit(random.normal(size=(1, DIM))), m)
    q = np.linalg.qr(bases[0].T)[0].T
    return origins[0] - (origins[0] @ q.T) @ q, q


def distances_to(origin: np.ndarray, basis: np.ndarray, probes: np.ndarray) -> np.ndarray:
    rest = probes - origin
    return np.linalg.norm(rest - rest @ basis.T @ basis, axis=1)


@pytest.mark.parametrize("m", [1, 4])
def test_distances_give_the_subspace(m: int) -> None:
    """Planted: the subspace itself, from as many questions as are promised."""
    origin, basis = planted("equations", m)
    asked = []

    def ask(probes: np.ndarray) -> np.ndarray:
        asked.append(len(probes))
        np.testing.assert_allclose(np.linalg.norm(probes, axis=1), 1, atol=1e-12)
        return distances_to(origin, basis, probes)

    solved = solved_subspace(ask, DIM)
    np.testing.assert_allclose(solved.origin, origin, atol=1e-9)
    np.testing.assert_allclose(solved.basis.T @ solved.basis, basis.T @ basis, atol=1e-9)
    assert sum(asked) == equations_needed(DIM)


def test_accepts_and_rejects_give_the_subspace() -> None:
    """Planted: the subspace itself, from answers of one bit, and an accepted probe to begin with."""
    origin, basis = planted("border", 4)
    own = unit(generator("own faces").normal(size=(100, DIM)))
    asked = []

    def ask(probes: np.ndarray) -> np.ndarray:
        asked.append(len(probes))
        return (distances_to(origin, basis, probes) > 0.5).astype(float)

    length = float(np.linalg.norm(origin))
    inside = origin + np.sqrt(1 - length**2) * basis[0]
    solved = bordering_subspace(ask, inside, own, seed=0)
    assert solved is not None
    np.testing.assert_allclose(solved.origin, origin, atol=1e-3)
    np.testing.assert_allclose(solved.basis.T @ solved.basis, basis.T @ basis, atol=1e-3)
    assert sum(asked) <= border_questions(own)
    assert bordering_subspace(ask, -inside, own, seed=0) is None


def test_climbing_comes_near_by_distances_and_by_bands() -> None:
    """Planted: a point. Broken twin: answers that say nothing leave the start."""
    random = generator("climbing")
    own, target = unit(random.normal(size=(200, DIM))), unit(random.normal(size=(1, DIM)))[0]

    def cosine(answer: object) -> float:
        assert callable(answer)
        return float(climbed(answer, own, questions=2000, seed=0) @ target)

    exact = cosine(lambda probes: np.linalg.norm(probes - target, axis=1))
    banded = cosine(lambda probes: np.floor(4 * np.linalg.norm(probes - target, axis=1)))
    silent = cosine(lambda probes: np.ones(len(probes)))
    assert exact > 0.95 and banded > 0.7 and abs(silent) < 0.6
    with pytest.raises(RangeError, match="needs 40 questions"):
        climbed(lambda probes: np.ones(len(probes)), own, questions=39, seed=0)


def rows_of(system: LinkedSystem, material: LinkageMaterial) -> dict[tuple[str, str], RegenerationRow]:
    rows = regeneration_rows(system, material, people=6, questions=1000)
    return {(row.attack, row.answer): row for row in rows if row.years is None}


@pytest.fixture(scope="module")
def flat() -> LinkageMaterial:
    """Faces that fill half of their directions, as networks' descriptors do."""

    def projected(faces: Faces) -> Faces:
        vectors = faces.vectors.copy()
        vectors[:, 32:] = 0
        return replace(faces, vectors=unit(vectors).astype(np.float32))

    return linkage_material(projected(crowd("asked", 80, 2)), projected(crowd("others", 260, 1)), seed=0)


def template_of(material: LinkageMaterial, allowed: int | None) -> tuple[AskedSystem, np.ndarray, np.ndarray, FaceLaw]:
    """A planted template that answers yes and no, the descriptor in it, its decoys, and the law of the attacker's faces."""
    system, vector = LiftedSystem(pool=material.pool, own=material.own), material.two_pictures(material.attacked[:1])[0]
    row = system.templates(vector, np.array([7]), "planted template")[0]
    limit = match_limit(system, material)
    asked = AskedSystem(system=system, key=7, template=row, threshold=limit, answer="decision", allowed=allowed)
    pool = material.pool.vectors.astype(np.float64)
    nearest = np.argsort(system.distances(pool, 7, row))
    return asked, vector[0], pool[nearest], FaceLaw.of(material.own)


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [None, 500])
def test_few_questions_give_the_descriptor_beside_its_decoys(flat: LinkageMaterial, allowed: int | None) -> None:
    """Planted: the template's plane, and near the descriptor in it, by bisection or by steps. Broken twin: no decoys."""
    asked, vector, pool, law = template_of(flat, allowed)
    limit = asked.threshold
    assert is_decoy(asked.border, pool[0], law, limit, seed=0) and is_decoy(asked.border, pool[1], law, limit, seed=0)
    assert not is_decoy(asked.border, pool[5], law, limit, seed=0)
    result = low_rank_descriptor(asked.border, pool[:2], law, limit, seed=0)
    assert result is not None and float(result @ vector) > 0.9 and np.isclose(np.linalg.norm(result), 1)
    assert asked.system.distances(result[None], asked.key, asked.template)[0] < 0.02
    if allowed is None:
        wrong = low_rank_descriptor(asked.border, pool[5:7], law, limit, seed=0)
        assert wrong is not None and asked.system.distances(wrong[None], asked.key, asked.template)[0] > 0.1
    else:
        assert asked.failed <= allowed
        assert low_rank_descriptor(asked.border, pool[:2], law, limit, seed=0) is None, "questions end"


def test_a_center_is_the_one_that_points_of_the_border_surround() -> None:
    """Planted: a ball. Oracle: its center. Without questions, the accepted face itself."""
    random = generator("centers")
    own, target = unit(random.normal(size=(200, DIM))), unit(random.normal(size=(1, DIM)))[0]
    law = FaceLaw.of(own)
    start = unit((target + 0.3 * unit(random.normal(size=(1, DIM))))[:1])[0]

    def border(inside: np.ndarray, aside: np.ndarray) -> np.ndarray:
        """Angles at which x^T d falls to 0.7: cos(a) (inside d) + sin(a) (aside d) = 0.7."""
        near, across = float(inside @ target), aside @ target
        angles: np.ndarray = np.arctan2(across, near) + np.arccos(0.7 / np.hypot(near, across))
        return angles

    assert float(central_descriptor(border, start, law, seed=0) @ target) > 0.999 > float(start @ target)
    np.testing.assert_array_equal(central_descriptor(lambda inside, aside: np.empty(0), start, law, seed=0), start)


def test_questions_end_with_the_failures_that_are_allowed() -> None:
    """Oracle: counting. Accepted questions are free, and after the last failure nothing is told of any probe."""
    near, far = np.eye(8)[0], np.eye(8)[1]
    asked = AskedSystem(system=Unprotected(), key=0, template=near, threshold=0.5, answer="decision", allowed=3)
    answers = asked(np.stack([near, far, near, far, far, near, far]))
    np.testing.assert_array_equal(answers, [0, 1, 0, 1, 1, 1, 1])
    assert (asked.questions, asked.failed, asked.first_accepted) == (5, 3, 1)
    assert asked(near[None])[0] == 1 and asked.questions == 5
    again = AskedSystem(system=Unprotected(), key=0, template=near, threshold=0.5, answer="decision", allowed=2)
    angles = again.border(near, np.stack([far, np.eye(8)[2], np.eye(8)[3]]))
    np.testing.assert_allclose(angles, 2 * np.arcsin(0.25), atol=1e-3)
    assert len(angles) == again.failed == 2


@pytest.mark.slow
def test_a_limit_leaves_less_of_the_attack(flat: LinkageMaterial) -> None:
    """The attack without a limit regenerates faces; within a year of failed attempts it asks no more than these."""
    system = LiftedSystem(pool=flat.pool, own=flat.own)
    rows = [row for row in regeneration_rows(system, flat, people=4, questions=60) if row.attack == "low rank"]
    free, limited = rows[0], rows[1]
    assert (free.years, limited.years) == (None, 1) and limited.failed <= 370 and free.cosine > 0.7


@pytest.mark.slow
def test_distances_regenerate_what_is_not_protected_and_nothing_of_noise(material: LinkageMaterial) -> None:
    """The broken scheme, and noise, whose answers are random."""
    broken, noise = rows_of(Unprotected(), material), rows_of(Noise(), material)
    assert broken["equations", "distance"].cosine > 0.999 and broken["equations", "distance"].other > 0.5
    assert broken["climbing", "distance"].cosine > 0.8 and broken["climbing", "distance"].same == 1
    for row in noise.values():
        assert abs(row.cosine) < 0.3 and row.other == 0


@pytest.mark.slow
def test_templates_are_regenerated_from_distances_and_not_from_bands(material: LinkageMaterial) -> None:
    """Ours with a known pool: equations need distances. A face of the attacker's own is the chance level."""
    rows = rows_of(LiftedSystem(pool=material.pool, own=material.own), material)
    assert rows["equations", "distance"].cosine > 0.8 and rows["equations", "distance"].questions == equations_needed(64)
    assert rows["equations", "band"].cosine < 0.4
    assert rows["equations", "distance"].other > rows["none", "none"].other


def test_a_band_is_a_quarter_of_the_threshold() -> None:
    """Oracle: the definition, at both sides of each edge."""
    edges = {0.0: 0, 0.75: 0, 0.76: 1, 1.0: 1, 1.01: 2, 1.25: 2, 1.26: 3, 9.0: 3}
    assert [BANDS.index(band_of(2 * distance, 2.0)) for distance in edges] == list(edges.values())
    for distance, threshold in ((float("nan"), 1.0), (-1.0, 1.0), (1.0, float("inf"))):
        with pytest.raises(RangeError, match="finite"):
            band_of(distance, threshold)
