"""The database attack on planted decoys: the gap, Eq. 1 against the equation itself, recovery, and databases of other words."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from veil.attacks.distribution import database as module
from veil.attacks.distribution.database import (
    AwayOptions,
    Decoys,
    GapOptions,
    away_from,
    database_attack,
    decoys_by_gap,
    find_decoys,
)
from veil.attacks.distribution.nearest import Nearby, entries, nearby
from veil.errors import RangeError, SpaceError
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Points, Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded
from veil.space import Space
from worlds.material import hardened_form, lifted, photograph, truth
from worlds.rules import Rule

IMAGE = photograph(1, 40)
SPACE = Space(descriptor="sift", normalization="L2", dim=128)
WORDS = entries(bundled_codebook(), SPACE)


@cache
def planted(m: int, strategy: str = "sub-hybrid") -> tuple[Subspaces, np.ndarray]:
    """A form and the rows of the decoys of each feature, recorded by the rule that drew them."""
    profile, drawn = Profile.paper(m, strategy), []  # type: ignore[arg-type]

    def rule(rows: np.ndarray, draws: np.ndarray, available: np.ndarray) -> np.ndarray:
        chosen = available[np.argsort(draws, axis=1)[:, :1] * 7 + np.arange(draws.shape[1]) + 13 * rows[:, None]]
        drawn.append(chosen)
        return chosen

    book = bundled_codebook()
    form = lift(
        IMAGE, profile=profile, compression=book.compression, decoys=book, randomness=seeded("planted"), rule=Rule(rule)
    ).form
    return form, np.concatenate(drawn)


@pytest.mark.parametrize("strategy", ["sub-hybrid", "sub-adversarial"])
@pytest.mark.parametrize("m", [2, 5, 16])
def test_decoys_are_found_exactly(m: int, strategy: str) -> None:
    form, rows = planted(m, strategy)
    gaps = find_decoys(form, WORDS)
    assert (gaps.count == rows.shape[1]).all() and gaps.certified.all() and (gaps.ratio > 100).all()
    np.testing.assert_array_equal(np.sort(gaps.rows[:, : rows.shape[1]], axis=1), np.sort(rows, axis=1))
    assert (gaps.rows[:, rows.shape[1] :] == -1).all()


@pytest.mark.slow
def test_half_precision_and_dither_leave_a_gap_but_no_certificate() -> None:
    form, rows = planted(4)
    rounded = replace(
        form,
        origin=form.origin.astype(np.float16).astype(np.float32),
        basis=form.basis.astype(np.float16).astype(np.float32),
    )
    gaps = find_decoys(rounded, WORDS)
    assert (gaps.count == 2).all() and not gaps.certified.any()
    np.testing.assert_array_equal(np.sort(gaps.rows[:, :2], axis=1), np.sort(rows, axis=1))
    hard = hardened_form(IMAGE)
    gaps = find_decoys(hard, entries(bundled_decoys(), hard.space, codebook=bundled_codebook()))
    assert (gaps.count == 4).mean() > 0.95 and not gaps.certified.any()


@pytest.mark.slow
def test_words_of_another_database_show_no_gap() -> None:
    """Null: decoys come from the codebook, the attacker holds the pool. The broken twin takes the first m / 2 anyway."""
    form, _ = planted(4)
    pool = entries(bundled_decoys(), SPACE)
    estimates, decoys = database_attack(form, pool)
    assert not decoys.count.any() and not decoys.certified.any() and (decoys.rows == -1).all()
    assert not estimates.decided.any() and not estimates.confidence.any()
    assert (nearby(form, pool, count=2).distance > 0.05).all()


def test_lifting_without_decoys_shows_no_gap() -> None:
    form = lifted(IMAGE, Profile(name="paper", strategy="random", m=4), case="random")
    assert not find_decoys(form, WORDS).count.any()


def test_the_gap_is_that_of_the_distances() -> None:
    """Distances by hand: the gap of hybrid lifting, of adversarial lifting with dither, none, and one of rounding errors."""
    distance = np.array(
        [
            [1e-8, 2e-7, 0.3, 0.31, 0.32],
            [0.015, 0.016, 0.017, 0.018, 0.3],
            [0.2, 0.21, 0.22, 0.23, 0.24],
            [1e-9, 1e-7, 1e-6, 1e-5, 1e-5],
        ]
    )
    rows = np.tile(np.arange(5), (4, 1))
    neighbors = decoys_by_gap(Nearby(rows=rows, distance=distance), m=4)
    np.testing.assert_array_equal(neighbors.count, [2, 4, 0, 0])
    np.testing.assert_array_equal(neighbors.certified, [True, False, False, False])
    np.testing.assert_array_equal(neighbors.rows, [[0, 1, -1, -1], [0, 1, 2, 3], [-1] * 4, [-1] * 4])
    np.testing.assert_allclose(neighbors.ratio, [0.3 / 1e-4, 0.3 / 0.018, 0.22 / 0.21, 1.0])
    only = decoys_by_gap(Nearby(rows=rows, distance=distance), m=4, options=GapOptions(counts=(4,)))
    np.testing.assert_array_equal(only.count, [0, 4, 0, 0])


def by_hand(form: Subspaces, words: np.ndarray, neighbors: Nearby, decoys: np.ndarray, options: AwayOptions) -> np.ndarray:
    """Estimates by [P23] step 3 and Eq. 1, one feature at a time, in the space of the descriptors."""
    points = []
    for row in range(len(form)):
        origin, basis = form.origin[row].astype(np.float64), form.basis[row].astype(np.float64)
        v = words[neighbors.rows[row]].astype(np.float64)
        flat = origin + (v - origin) @ basis.T @ basis
        score = np.linalg.norm((flat if options.within else v)[:, None] - decoys[row][None], axis=2).min(axis=1)
        u = np.argsort(-score, kind="stable")[: options.kept]
        weight = 1 / np.maximum(neighbors.distance[row, u], options.tol)
        mean = (weight[:, None] * v[u]).sum(axis=0) / weight.sum()
        points.append(origin + (mean - origin) @ basis.T @ basis)
    return np.array(points)


@pytest.mark.slow
@pytest.mark.parametrize("within", [True, False])
def test_the_estimate_is_equation_1(within: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHERED", 5000)
    monkeypatch.setattr(module, "FEATURES", 15)
    form, rows = planted(4)
    options = AwayOptions(neighbors=50, kept=4, within=within, unit_length=False)
    neighbors = nearby(form, WORDS, count=52)
    after = Nearby(rows=neighbors.rows[:, 2:], distance=neighbors.distance[:, 2:])
    expected = by_hand(form, WORDS.vectors, after, WORDS.vectors[rows].astype(np.float64), options)
    done: list[tuple[int, int]] = []
    estimates, _ = database_attack(form, WORDS, away=options, progress=lambda *step: done.append(step))
    np.testing.assert_allclose(estimates.points, expected, atol=1e-5)
    assert done == [(15, 40), (30, 40), (40, 40)]


@pytest.mark.slow
def test_known_length_moves_the_estimate_to_the_nearest_point_of_length_one() -> None:
    """Defining properties: on D, of length 1, and no random point of D with length 1 is nearer to what was moved."""
    form, _ = planted(4)
    free, _ = database_attack(form, WORDS, away=AwayOptions(unit_length=False))
    moved, _ = database_attack(form, WORDS)
    np.testing.assert_allclose(np.linalg.norm(moved.points, axis=1), 1, atol=1e-6)
    origin, basis = form.origin.astype(np.float64), form.basis.astype(np.float64)
    random = np.random.default_rng(3).normal(size=(500, *basis.shape[:2]))
    radius = np.sqrt(1 - np.square(origin).sum(axis=1))
    sphere = random / np.linalg.norm(random, axis=2, keepdims=True) * radius[None, :, None]
    inside = np.einsum("fmn,fn->fm", basis, moved.points - origin)
    np.testing.assert_allclose(origin + np.einsum("fm,fmn->fn", inside, basis), moved.points, atol=1e-5)
    others = np.linalg.norm(origin + np.einsum("sfm,fmn->sfn", sphere, basis) - free.points, axis=2)
    assert (np.linalg.norm(moved.points - free.points, axis=1) <= others.min(axis=0) + 1e-6).all()


def error(form: Subspaces, estimates) -> np.ndarray:
    return np.linalg.norm(estimates.points - truth(IMAGE, form), axis=1)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_hybrid_lifting_from_a_public_codebook_is_broken() -> None:
    """The attack must win where W is known: near the descriptor for nearly all, with both strategies."""
    shares = []
    for m, strategy, bound in ((2, "sub-hybrid", 0.2), (4, "sub-hybrid", 0.3), (4, "sub-adversarial", 0.4)):
        form, _ = planted(m, strategy)
        estimates, _ = database_attack(form, WORDS)
        assert estimates.decided.all() and not estimates.certified.any()
        apart = error(form, estimates)
        assert apart.mean() < bound
        shares.append((apart < 0.1).mean())
    assert shares[0] > 0.7


def test_known_decoys_are_avoided_and_none_are_needed() -> None:
    """Planted: entries at two places of D, one of them a decoy. Without decoys the nearest entries are taken."""
    form, _ = planted(4)
    form = form.take(np.arange(1))
    origin, basis = form.origin[0].astype(np.float64), form.basis[0].astype(np.float64)
    here, there = origin + 0.3 * basis[0], origin - 0.3 * basis[0]
    vectors = np.stack([here, here + 0.01 * basis[1], there, there + 0.01 * basis[1]])
    database = Points(vectors=vectors.astype(np.float32), space=SPACE)
    neighbors = Nearby(rows=np.arange(4)[None], distance=np.array([[0.01, 0.02, 0.03, 0.04]]))
    options = AwayOptions(kept=2, unit_length=False)
    for decoys, expected in ((here, there), (there, here), (np.full(128, np.nan), here)):
        points, confidence = away_from(form, database, neighbors, decoys[None, None], options=options)
        assert np.linalg.norm(points[0] - expected) < 0.011 and 0.9 < confidence[0] < 1


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_compressed_and_dithered_decoys_are_seen_through() -> None:
    form = hardened_form(IMAGE)
    pool = entries(bundled_decoys(), form.space, codebook=bundled_codebook())
    estimates, decoys = database_attack(form, pool)
    decided = estimates.decided
    np.testing.assert_array_equal(decided, decoys.count > 0)
    assert decided.mean() > 0.95 and error(form, estimates)[decided].mean() < 0.4
    # A secret pool: the same words in another order of coordinates are other words.
    secret = replace(pool, vectors=np.ascontiguousarray(pool.vectors[:, ::-1]))
    assert not database_attack(form, secret)[0].decided.any()


def test_wrong_options_are_refused() -> None:
    form, _ = planted(4)
    for wrong in (
        lambda: AwayOptions(kept=0),
        lambda: AwayOptions(neighbors=2, kept=3),
        lambda: AwayOptions(tol=float("nan")),
        lambda: GapOptions(counts=()),
        lambda: GapOptions(counts=(0,)),
        lambda: GapOptions(min_ratio=1.0),
        lambda: GapOptions(min_ratio=float("nan")),
        lambda: GapOptions(tol=0.0),
        lambda: database_attack(form, replace(WORDS, vectors=WORDS.vectors[:4])),
        lambda: decoys_by_gap(nearby(form, WORDS, count=4), m=4),
    ):
        with pytest.raises(RangeError):
            wrong()
    with pytest.raises(SpaceError):
        database_attack(hardened_form(IMAGE), WORDS)
    nothing, decoys = database_attack(form.take(np.arange(0)), WORDS)
    assert len(nothing) == 0 and isinstance(decoys, Decoys) and decoys.rows.shape == (0, 4)
