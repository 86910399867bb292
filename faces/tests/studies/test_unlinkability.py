"""Linkability and reversal: against theory for known densities, planted people, keys; and what cannot be judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from face_worlds.crowd import crowd, pairs_of
from veil.errors import InputError, SpaceError
from veil_faces.report.protocols import draw_protection
from veil_faces.studies.face_study import FaceStudy
from veil_faces.studies.unlinkability import (
    ProtectionRow,
    ProtectionStudy,
    estimates,
    linkability,
    linked_by_chance,
    protection_study,
)
from worlds import affine_set, generator, unit


@pytest.mark.parametrize("apart", [0.0, 0.5, 2.0, 6.0])
def test_linkability_is_the_integral(apart: float) -> None:
    """Oracle: the measure's definition by quadrature for two Gaussians that lie `apart`."""
    random = generator(f"gauss {apart}")
    mated, others = random.normal(size=40_000), random.normal(size=40_000) + apart

    def weighed(s: float) -> float:
        p, q = norm.pdf(s), norm.pdf(s - apart)
        return float(p * max(0.0, (p - q) / (p + q))) if p + q > 0 else 0.0

    expected = quad(weighed, -9, 9 + apart, points=[apart / 2], limit=200)[0]
    assert linkability(mated, others) == pytest.approx(expected, abs=0.025)


def test_linkability_of_any_order_and_of_ties() -> None:
    """Linked scores need not be the smaller ones; equal scores link nothing; scores apart link all."""
    random = generator("order")
    near, far = random.random(300), random.random(300) + 2
    assert [linkability(near, far), linkability(far, near)] == pytest.approx([1, 1])
    assert linkability(np.ones(100), np.ones(100)) == 0
    assert linkability(np.ones(100), np.repeat([1.0, 2.0], 50)) == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="needs 25 pairs"):
        linkability(near[:10], far)


def test_shuffled_pairs_stay_below_what_chance_gives() -> None:
    """Oracle: 200 other draws from one density; about 95 % lie below."""
    random = generator("null")
    limit = linked_by_chance(random.normal(size=150), random.normal(size=150), 0)
    below = [linkability(random.normal(size=150), random.normal(size=150)) < limit for _ in range(200)]
    assert 0.88 < np.mean(below) <= 1


def test_estimates_are_the_nearest_points() -> None:
    """Oracle: least squares in the coordinates of each template."""
    random = generator("estimates")
    people = crowd("public", 50, 1)
    origins, bases = affine_set(random, unit(random.normal(size=(6, 64))), 3)
    templates = origins.astype(np.float32), bases.astype(np.float32)
    guesses = estimates(templates, people)
    for row in range(6):
        origin, basis = templates[0][row].astype(np.float64), templates[1][row].astype(np.float64)

        def foot(point: np.ndarray, origin: np.ndarray = origin, basis: np.ndarray = basis) -> np.ndarray:
            along = np.linalg.lstsq(basis.T, point - origin, rcond=None)[0]
            return unit((origin + basis.T @ along)[None])[0]

        feet = np.array([origin + basis.T @ np.linalg.lstsq(basis.T, p - origin, rcond=None)[0] for p in people.vectors])
        nearest = int(np.argmin(np.linalg.norm(feet - people.vectors, axis=1)))
        np.testing.assert_allclose(guesses["nearest the mean"][row], foot(people.middle), atol=1e-6)
        np.testing.assert_allclose(guesses["nearest a face"][row], foot(people.vectors[nearest]), atol=1e-6)


@pytest.fixture(scope="module")
def study() -> ProtectionStudy:
    faces, decoys = crowd("victims", 40, 4), crowd("decoys", 200, 1)
    return protection_study(FaceStudy(faces=faces, pairs=pairs_of(faces, 150), decoys=decoys, seed=0, dimensions=(2, 16)))


@pytest.mark.slow
def test_only_keys_unlink(study: ProtectionStudy) -> None:
    """Planted people; broken twin: templates without keys. One photograph links more than two do."""
    rows = {(row.lifting, row.m, row.keyed): row for row in study.rows}
    assert len(rows) == 3 * 2 * 2
    for row in study.rows:
        if row.keyed:
            assert row.linkability < row.by_chance + 0.1 and row.same_photograph < row.by_chance + 0.15
            assert row.linked_error > 0.38 and row.by_length < row.by_chance + 0.15
        else:
            assert row.same_photograph > row.linkability - 0.05
    assert rows["random", 2, False].linkability > 0.9 and rows["hybrid", 2, False].linkability > 0.7
    assert rows["adversarial", 16, False].linkability < rows["adversarial", 2, False].linkability


@pytest.mark.slow
def test_keys_and_decoys_are_what_hinders_reversal(study: ProtectionStudy) -> None:
    """Random lifting to two dimensions is reversed; with keys hardly any estimate passes."""
    rows = {(row.lifting, row.m, row.keyed): row for row in study.rows}
    assert study.accepted_raw > 0.95 and study.accepted_strangers < 0.05 and study.accepted_mean < 0.2
    assert rows["random", 2, False].reversed > 0.9
    assert rows["adversarial", 16, False].reversed < rows["adversarial", 2, False].reversed
    for row in study.rows:
        assert row.low <= row.reversed <= row.high
        if row.keyed:
            assert row.reversed <= 0.05


def test_what_cannot_be_judged_is_refused() -> None:
    faces, decoys = crowd("victims", 20, 3), crowd("decoys", 80, 1)
    study = FaceStudy(faces=faces, pairs=pairs_of(faces, 40), decoys=decoys, seed=0, dimensions=(2,))
    with pytest.raises(InputError, match="one of the faces"):
        replace(study, decoys=faces)
    with pytest.raises(SpaceError, match="one network"):
        replace(study, decoys=replace(decoys, space=replace(decoys.space, descriptor="x")))
    with pytest.raises(InputError, match="needs 25 pairs"):
        protection_study(replace(study, pairs=pairs_of(faces, 10)))


@pytest.mark.slow
def test_the_figure_is_drawn(study: ProtectionStudy, tmp_path: Path) -> None:
    draw_protection(tmp_path / "p.png", study)
    assert (tmp_path / "p.png").stat().st_size > 10_000
    assert {row.estimate for row in study.rows} <= {"nearest the mean", "nearest a face"} and isinstance(
        study.rows[0], ProtectionRow
    )
