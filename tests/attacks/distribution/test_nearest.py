"""The shared search against brute force over the reference distances, and the nearest-neighbor attack on planted databases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.distribution.nearest import (
    coordinates,
    entries,
    nearby,
    nearest_lists,
    nearest_neighbor,
    points_at,
    residuals,
)
from veil.codebooks.codebook import Codebook
from veil.distances.reference import point_to_subspace
from veil.errors import InputError, RangeError, SpaceError
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Points, Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from worlds.material import hardened_form, lifted, paper_form, photograph, truth

IMAGE = photograph(1, 40)
FORM = paper_form(IMAGE, 4)
WORDS = entries(bundled_codebook(), FORM.space)


def some(points: Points, count: int) -> Points:
    return replace(points, vectors=points.vectors[:count])


def noise(count: int, space=FORM.space) -> Points:
    vectors = np.abs(np.random.default_rng(7).normal(size=(count, space.dim)))
    return Points(vectors=(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), space=space)


@pytest.mark.parametrize("m", [2, 8])
def test_the_search_is_brute_force(m: int) -> None:
    form, database = paper_form(IMAGE, m).take(np.arange(20)), some(WORDS, 1000)
    exact = point_to_subspace(database.vectors, (form.origin, form.basis)).T
    done: list[tuple[int, int]] = []
    neighbors = nearby(form, database, count=25, progress=lambda *step: done.append(step))
    np.testing.assert_array_equal(neighbors.rows, np.argsort(exact, axis=1)[:, :25])
    np.testing.assert_allclose(neighbors.distance, np.sort(exact, axis=1)[:, :25], atol=1e-12)
    assert done[-1] == (20, 20) and [step[0] for step in done] == sorted(step[0] for step in done)


def test_entries_on_a_subspace_show_as_zeros_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the two decoys of each feature. In float32 alone they would lie near 3e-4.

    Theory: distribution_attacks.md#the-database-attack, distances.md#rounding.
    """
    neighbors = nearby(FORM, WORDS, count=3)
    assert (neighbors.distance[:, :2] < 1e-6).all() and (neighbors.distance[:, 2] > 0.05).all()


def test_fewer_entries_than_the_slack() -> None:
    neighbors = nearby(FORM, some(WORDS, 3), count=3)
    exact = point_to_subspace(WORDS.vectors[:3], (FORM.origin, FORM.basis)).T
    np.testing.assert_array_equal(neighbors.rows, np.argsort(exact, axis=1))


def test_coordinates_and_points_are_inverse_and_residuals_are_the_rest() -> None:
    points = noise(len(FORM) * 3).vectors.reshape(len(FORM), 3, -1)
    projected = points_at(FORM, coordinates(FORM, points))
    np.testing.assert_allclose(coordinates(FORM, projected), coordinates(FORM, points), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(points - projected, axis=2), residuals(FORM, points), atol=1e-6)
    np.testing.assert_allclose(residuals(FORM, projected), 0, atol=1e-6)


def random_form(m: int) -> Subspaces:
    """Form that was lifted without any decoy: the broken defense of [D21] 3.2."""
    return lifted(IMAGE, Profile(name="paper", strategy="random", m=m), case="random")


@pytest.mark.slow
def test_without_decoys_a_database_that_holds_the_descriptors_gives_them_all_away() -> None:
    form, d = random_form(4), truth(IMAGE, FORM)
    database = Points(vectors=np.concatenate([noise(500).vectors, d.astype(np.float32)]), space=form.space)
    estimates = nearest_neighbor(form, database)
    assert np.linalg.norm(estimates.points - d, axis=1).max() < 1e-4
    assert estimates.decided.all() and not estimates.certified.any()
    # Without those very descriptors nothing is exact, and the nearest entries are decoys that are in the database themselves.
    others = replace(database, vectors=np.concatenate([noise(500).vectors, publish(photograph(3, 40)).vectors]))
    assert np.linalg.norm(nearest_neighbor(form, others).points - d, axis=1).min() > 1e-2
    assert np.median(np.linalg.norm(nearest_neighbor(FORM, WORDS).points - d, axis=1)) > 0.7


def test_projection_and_length_bring_a_near_entry_nearer() -> None:
    """Defining equations: the estimate lies on D up to its scale, has length 1, and gains on the entry on average."""
    d = truth(IMAGE, FORM)
    random = np.random.default_rng(1)
    near = d + 0.03 * random.normal(size=d.shape)
    database = Points(vectors=near.astype(np.float32), space=FORM.space)
    form = random_form(4)
    plain, projected = (nearest_neighbor(form, database, projected=choice) for choice in (False, True))
    np.testing.assert_allclose(np.linalg.norm(projected.points, axis=1), 1, atol=1e-12)
    error, gained = (np.linalg.norm(estimates.points - d, axis=1).mean() for estimates in (plain, projected))
    assert 0.3 < error < 0.4 and gained < 0.5 * error


@pytest.mark.slow
def test_lists_are_the_nearest_in_order_and_start_with_the_nearest_neighbor() -> None:
    lists = nearest_lists(FORM, WORDS, count=5, projected=False)
    rows = nearby(FORM, WORDS, count=5).rows
    for candidates, row in zip(lists.candidates, rows, strict=True):
        np.testing.assert_array_equal(candidates, WORDS.vectors[row])
    for choice in (False, True):
        first = np.array([candidates[0] for candidates in nearest_lists(FORM, WORDS, count=5, projected=choice).candidates])
        np.testing.assert_allclose(first, nearest_neighbor(FORM, WORDS, projected=choice).points, atol=1e-12)
    assert not lists.certified.any()


def test_null_subspaces_of_other_descriptors_give_chance() -> None:
    """Descriptors that no subspace holds are hit as often as by a blind guess among them, and no estimate comes near one.

    A blind guess hits 0.5 %; 9 % would be noticed among 200.
    """
    d = truth(photograph(3, 200), FORM)
    database = Points(vectors=d.astype(np.float32), space=FORM.space)
    form = paper_form(photograph(1, 200), 4)
    rows = nearby(form, database, count=1).rows[:, 0]
    assert (rows == np.arange(200)).mean() <= 0.03  # a blind guess: 0.005
    distance = np.linalg.norm(nearest_neighbor(form, database).points - d, axis=1)
    assert 0.8 < distance.mean() < 1.2


@pytest.mark.slow
def test_words_of_a_codebook_enter_the_compressed_space() -> None:
    """Planted: dithered decoys of the pool lie within their dither of D, other words do not. Centroids get no dither's mean."""
    form, book, pool = hardened_form(IMAGE), bundled_codebook(), bundled_decoys()
    neighbors = nearby(form, entries(pool, form.space, codebook=book), count=5)
    assert (neighbors.distance[:, 3] < 0.03).all() and (neighbors.distance[:, 4] > 0.04).all()
    centroids = entries(book, form.space, codebook=book)
    np.testing.assert_allclose(centroids.vectors, book.compression.require_pca().apply(book.vectors), atol=1e-6)
    assert entries(book, FORM.space).space == FORM.space


def test_wrong_input_is_refused() -> None:
    with pytest.raises(RangeError, match="count"):
        nearby(FORM, WORDS, count=0)
    with pytest.raises(RangeError, match="count"):
        nearby(FORM, some(WORDS, 5), count=6)
    with pytest.raises(SpaceError):
        nearest_neighbor(hardened_form(IMAGE), WORDS)
    broken = WORDS.vectors[:9].copy()
    broken[3, 5] = np.nan
    with pytest.raises(InputError, match="NaN"):
        nearest_neighbor(FORM, replace(WORDS, vectors=broken))
    hard = hardened_form(IMAGE).space
    with pytest.raises(InputError, match="codebook"):
        entries(bundled_decoys(), hard)
    other: Codebook = replace(bundled_codebook(), dither_steps=2.0)
    for words in (bundled_codebook(), bundled_decoys()):
        with pytest.raises(SpaceError):
            entries(words, hard, codebook=other)
