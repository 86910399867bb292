"""The clustering attack: k-means and Eq. 2 against the equations, planted gatherings, and "undecided" where nothing meets."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from veil.attacks.distribution import clustering as module
from veil.attacks.distribution.clustering import ClusteringOptions, cluster_centers, clustering_attack
from veil.attacks.distribution.nearest import entries, nearby, nearest_neighbor
from veil.attacks.intersection.shared_decoys import meetings, pooled
from veil.errors import RangeError, SpaceError
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Points, Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded
from veil.space import Space
from worlds.material import photograph, truth
from worlds.rules import Rule

SPACE = Space(descriptor="sift", normalization="L2", dim=128)
BOOK = bundled_codebook()
PUBLIC = entries(bundled_decoys(), SPACE)


@cache
def image(number: int, m: int, words: int, count: int = 40) -> Subspaces:
    """Features lifted with decoys out of the first `words` words only."""
    order = np.random.default_rng(number)

    def rule(rows: np.ndarray, draws: np.ndarray, available: np.ndarray) -> np.ndarray:
        return np.argsort(order.random((len(rows), words)), axis=1)[:, : draws.shape[1]]

    return lift(
        photograph(number, count),
        profile=Profile.paper(m, "hybrid"),
        compression=BOOK.compression,
        decoys=BOOK,
        randomness=seeded("c"),
        rule=Rule(rule),
    ).form


def points(vectors: np.ndarray) -> Points:
    return Points(vectors=vectors.astype(np.float32), space=SPACE)


def gathered(form: Subspaces, places: np.ndarray, spread: float) -> Points:
    """Database with ten entries around each of the given places (features, places, dim)."""
    random = np.random.default_rng(5)
    around = places[:, :, None] + spread * random.normal(size=(*places.shape[:2], 10, places.shape[2]))
    return points(around.reshape(-1, places.shape[2]))


def decoys(form: Subspaces, count: int) -> np.ndarray:
    return BOOK.vectors[nearby(form, points(BOOK.vectors), count=count).rows].astype(np.float64)


@pytest.mark.slow
def test_centers_are_where_entries_gather() -> None:
    """Planted: entries around the descriptor and both decoys of each feature, no others. Each center is near one of them."""
    form = image(1, 4, 2000, 5)
    places = np.concatenate([truth(photograph(1, 5), form)[:, None], decoys(form, 2)], axis=1)
    for row in range(5):
        one = form.take(np.array([row]))
        options = ClusteringOptions(neighbors=30, unit_length=False)
        centers = cluster_centers(one, gathered(one, places[[row]], 0.01), seed=1, options=options)[0]
        distance = np.linalg.norm(centers[:, None] - places[row][None], axis=2)
        assert sorted(distance.argmin(axis=1)) == [0, 1, 2] and distance.min(axis=1).max() < 0.03


@pytest.mark.slow
def test_centers_are_the_weighted_means_of_equation_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 2 by hand, with the labels that the centers imply: k-means assigns a point to the nearest unweighted mean."""
    monkeypatch.setattr(module, "GATHERED", 1000)
    form = image(1, 4, 2000, 12)
    kept: list[np.ndarray] = []
    original = module._labels

    def recorded(*arguments) -> np.ndarray:
        kept.append(original(*arguments))
        return kept[-1]

    monkeypatch.setattr(module, "_labels", recorded)
    options = ClusteringOptions(neighbors=40, unit_length=False)
    centers = cluster_centers(form, PUBLIC, seed=3, options=options)
    labels, neighbors = np.concatenate(kept), nearby(form, PUBLIC, count=40)
    for row in range(12):
        origin, basis = form.origin[row].astype(np.float64), form.basis[row].astype(np.float64)
        v = PUBLIC.vectors[neighbors.rows[row]].astype(np.float64)
        flat = origin + (v - origin) @ basis.T @ basis
        plain = np.array([flat[labels[row] == k].mean(axis=0) for k in range(3)])
        nearest = np.linalg.norm(flat[:, None] - plain[None], axis=2).argmin(axis=1)
        np.testing.assert_array_equal(nearest, labels[row])  # a fixed point of Lloyd's iteration
        for k in range(3):
            weight = (labels[row] == k) / neighbors.distance[row]
            mean = (weight[:, None] * v).sum(axis=0) / weight.sum()
            np.testing.assert_allclose(centers[row, k], origin + (mean - origin) @ basis.T @ basis, atol=1e-5)


@pytest.mark.slow
def test_the_gathering_that_no_met_subspace_touches_is_chosen() -> None:
    """Planted, m = 2: entries around d and around the decoy, which another feature shares. Null: a feature that meets none."""
    form, d = image(1, 2, 12), truth(photograph(1, 40), image(1, 2, 12))
    met = {int(row) for row in meetings(form, tol=1e-4).feature}
    places = np.stack([d, decoys(form, 1)[:, 0]], axis=1)
    database = gathered(form, places, 0.01)
    estimates = clustering_attack(form, database, seed=1, options=ClusteringOptions(neighbors=20))
    np.testing.assert_array_equal(np.flatnonzero(estimates.decided), sorted(met))
    assert len(met) > 30 and not estimates.certified.any()
    error = np.linalg.norm(estimates.points - d, axis=1)[estimates.decided]
    assert (error < 0.1).mean() > 0.9
    alone = clustering_attack(form.take(np.arange(1)), database, seed=1)
    assert not alone.decided.any() and alone.confidence[0] == 0


@pytest.mark.slow
def test_scores_are_the_least_distances_to_the_subspaces_that_meet() -> None:
    """[P23] step 4 by hand: the chosen center has the largest of the smallest distances, and confidence compares the next."""
    form, other = image(1, 4, 60), image(2, 4, 60)
    options = ClusteringOptions(neighbors=30)
    estimates = clustering_attack(form, PUBLIC, [other], seed=2, options=options)
    pool = pooled(form, [other], within=True)
    pairs = meetings(form, [other], tol=1e-4)
    rows = np.unique(pairs.feature)
    centers = cluster_centers(form.take(rows), PUBLIC, seed=2, options=options)
    for center, row in zip(centers, rows.tolist(), strict=True):
        score = []
        for candidate in center:
            distances = []
            for j in pairs.other[pairs.feature == row]:
                offset = candidate - pool.origin[j].astype(np.float64)
                basis = pool.basis[j].astype(np.float64)
                distances.append(np.linalg.norm(offset - offset @ basis.T @ basis))
            score.append(min(distances))
        np.testing.assert_allclose(estimates.points[row], center[int(np.argmax(score))], atol=1e-12)
        assert estimates.confidence[row] == pytest.approx(1 - sorted(score)[-2] / max(score), abs=1e-5)


@pytest.mark.slow
def test_a_small_secret_pool_is_broken_by_public_entries() -> None:
    """The attack must win on average over the nearest neighbor, which cannot tell decoys from descriptors."""
    form = image(1, 2, 12, 100)
    d = truth(photograph(1, 100), form)
    estimates = clustering_attack(form, PUBLIC, seed=1)
    assert estimates.decided.mean() > 0.9
    error = np.linalg.norm(estimates.points - d, axis=1)[estimates.decided]
    plain = np.linalg.norm(nearest_neighbor(form, PUBLIC).points - d, axis=1)[estimates.decided]
    assert error.mean() < plain.mean() - 0.1 and error.mean() < 0.5


def test_null_words_that_nobody_shares_leave_everything_undecided() -> None:
    """Null: no two features share a decoy, so Q' is empty and no claim is made; any cluster would be a blind guess."""
    book = replace(BOOK, stored=BOOK.stored[:400])

    def rule(rows: np.ndarray, draws: np.ndarray, available: np.ndarray) -> np.ndarray:
        return 2 * rows[:, None] + np.arange(draws.shape[1])

    form = lift(
        photograph(1, 40),
        profile=Profile.paper(4, "hybrid"),
        compression=BOOK.compression,
        decoys=book,
        randomness=seeded("own"),
        rule=Rule(rule),
    ).form
    estimates = clustering_attack(form, PUBLIC, seed=1)
    assert not estimates.decided.any() and not estimates.certified.any() and not estimates.confidence.any()


@pytest.mark.slow
def test_null_descriptors_of_other_subspaces_are_hit_by_chance() -> None:
    """Null: from subspaces that never held these descriptors, the right one is nearest as often as by a blind guess.

    A blind guess hits 0.5 %; 9 % would be noticed among 200.
    """
    form, d = image(1, 2, 12, 200), truth(photograph(3, 200), image(1, 2, 12, 200))
    estimates = clustering_attack(form, PUBLIC, seed=1)
    kept = np.flatnonzero(estimates.decided)
    distance = np.linalg.norm(estimates.points[kept, None] - d[None], axis=2)
    assert len(kept) > 180 and (distance.argmin(axis=1) == kept).mean() <= 0.03  # a blind guess: 0.005
    assert 0.8 < distance[np.arange(len(kept)), kept].mean() < 1.2


@pytest.mark.slow
def test_noise_for_a_database_leaves_what_length_and_decoy_say() -> None:
    """Eq. 11: at m = 2 the farthest place from a known decoy is its antipode on a circle, sqrt(4 r^2 - |d - a|^2) from d."""
    form = image(1, 2, 12, 100)
    d, decoy = truth(photograph(1, 100), form), decoys(form, 1)[:, 0]
    noise = np.random.default_rng(4).normal(size=(2000, 128))
    estimates = clustering_attack(form, points(noise / np.linalg.norm(noise, axis=1, keepdims=True)), seed=1)
    origin = form.origin.astype(np.float64)
    radius = np.sqrt(1 - np.square(origin).sum(axis=1))
    antipode = np.linalg.norm(2 * origin - decoy - d, axis=1)
    expected = np.sqrt(np.maximum(4 * radius**2 - np.square(d - decoy).sum(axis=1), 0))
    np.testing.assert_allclose(antipode, expected, atol=1e-3)  # Thales; 8-bit words have length 1 up to rounding
    kept = estimates.decided
    error = np.linalg.norm(estimates.points - d, axis=1)[kept]
    assert antipode.mean() * 0.8 < error.mean() < 4 / np.pi * radius[kept].mean()  # a blind guess on the circle: 4 r / pi


@pytest.mark.slow
def test_the_same_seed_gives_the_same_estimates() -> None:
    form = image(1, 4, 60)
    first, again, other = (clustering_attack(form, PUBLIC, seed=seed).points for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other, equal_nan=True)


def test_equal_entries_and_empty_clusters_give_finite_centers() -> None:
    form = image(1, 8, 2000, 5)
    database = points(np.tile(BOOK.vectors[:1], (20, 1)))
    centers = cluster_centers(form, database, seed=1)
    assert centers.shape == (5, 5, 128) and np.isfinite(centers).all()
    # distribution_attacks.md#the-clustering-attack
    assert ClusteringOptions().clusters(5) == 3 and ClusteringOptions(decoys=5).clusters(5) == 6


def test_wrong_options_are_refused() -> None:
    form = image(1, 4, 60)
    for wrong in (
        lambda: ClusteringOptions(decoys=0),
        lambda: ClusteringOptions(neighbors=0),
        lambda: ClusteringOptions(restarts=0),
        lambda: ClusteringOptions(iterations=0),
        lambda: ClusteringOptions(tol=float("nan")),
        lambda: ClusteringOptions(floor=0.0),
        lambda: cluster_centers(form, points(BOOK.vectors[:2]), seed=0),
        lambda: cluster_centers(form, PUBLIC, seed=0, options=ClusteringOptions(neighbors=2)),
    ):
        with pytest.raises(RangeError):
            wrong()
    with pytest.raises(SpaceError):
        clustering_attack(replace(form, space=replace(SPACE, normalization="L1_ROOT")), PUBLIC, seed=0)
