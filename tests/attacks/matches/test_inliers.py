"""The inlier attack: the bounds of Eq. 5 and 6, planted matches, and matches of strangers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from veil.attacks.matches.inliers import InlierOptions, _closest, inlier_points, inlier_subspaces
from veil.errors import InputError, RangeError, SpaceError
from worlds import generator, unit
from worlds.material import hardened_form, paper_form, photograph, truth
from worlds.random_forms import form_through, points

PLAIN = InlierOptions(on_sphere=False)


def near(descriptors: np.ndarray, size: float, case: str) -> np.ndarray:
    """Unit vectors at about `size` from the given ones: other views of the same points."""
    return unit(descriptors + size * unit(generator(case).normal(size=descriptors.shape)))


@pytest.mark.parametrize("m", [2, 8])
def test_the_estimate_is_never_worse_than_the_match(m: int) -> None:
    """Broken defense, on a photograph: Eq. 5 for every row, and most of the error is gone."""
    features = photograph(1, 300)
    form = paper_form(features, m)
    d = truth(features, form)
    e = near(d, 0.35, "view")
    for options in (PLAIN, InlierOptions()):
        estimates = inlier_points(form, e, options=options)
        off, before = np.linalg.norm(estimates.points - d, axis=1), np.linalg.norm(e - d, axis=1)
        if options is PLAIN:
            assert (off <= before + 1e-5).all()
        assert np.median(off) < 0.6 * np.median(before)
        assert not estimates.certified.any() and estimates.decided.all()


@pytest.mark.slow
def test_a_match_with_itself_is_exact() -> None:
    """The descriptor lies on its subspace (paper), or within the dither of it (hardened)."""
    features = photograph(2, 100)
    form = paper_form(features, 4)
    estimates = inlier_points(form, truth(features, form))
    assert np.linalg.norm(estimates.points - truth(features, form), axis=1).max() < 1e-4
    hard = hardened_form(features)
    estimates = inlier_points(hard, truth(features, hard))
    assert np.median(np.linalg.norm(estimates.points - truth(features, hard), axis=1)) < 0.03


def test_matches_of_strangers_tell_nothing() -> None:
    """Null: the estimate from an unrelated descriptor is as far from the truth as a random point of D that is as far from 0."""
    features = photograph(1, 300)
    form = paper_form(features, 8)
    d = truth(features, form)
    random = generator("strangers")
    e = d[random.permutation(300)]
    off = np.linalg.norm(inlier_points(form, e, options=PLAIN).points - d, axis=1)
    origin, basis = form.origin.astype(np.float64), form.basis.astype(np.float64)
    inside = np.einsum("fmn,fn->fm", basis, e - origin)
    turned = unit(random.normal(size=inside.shape)) * np.linalg.norm(inside, axis=1, keepdims=True)
    chance = np.linalg.norm(origin + np.einsum("fm,fmn->fn", turned, basis) - d, axis=1)
    assert 0.6 * chance.mean() < off.mean() < 1.2 * chance.mean()


def test_points_on_the_sphere_have_unit_length_and_lie_on_the_subspace() -> None:
    """Defining equation, and second method: no other unit point of D is nearer to the match (constrained search)."""
    form = form_through(points(5, 12, "sphere"), 3, "sphere form")
    e = points(5, 12, "match")
    estimated = inlier_points(form, e).points
    np.testing.assert_allclose(np.linalg.norm(estimated, axis=1), 1, atol=1e-6)
    for row in range(5):
        origin, basis = form.origin[row].astype(np.float64), form.basis[row].astype(np.float64)
        radius = np.sqrt(1 - origin @ origin)

        def gap(v: np.ndarray, origin=origin, basis=basis, radius=radius, row=row) -> float:
            return float(np.linalg.norm(origin + radius * (v / np.linalg.norm(v)) @ basis - e[row]))

        best = min(optimize.minimize(gap, start, method="Nelder-Mead").fun for start in np.eye(3) + 0.1)
        assert np.linalg.norm(estimated[row] - e[row]) == pytest.approx(best, abs=1e-4)


def test_closest_points_are_those_of_least_squares() -> None:
    """Second method (lstsq), different dimensions, and a shared direction: least length, never NaN."""
    first, second = form_through(points(6, 16, "a"), 3, "fa"), form_through(points(6, 16, "b"), 5, "fb")
    shared = second.basis.copy()
    shared[0, 0] = first.basis[0, 0]
    shared[0] = np.linalg.qr(shared[0].T.astype(np.float64))[0].T
    o, basis, p = (array.astype(np.float64) for array in (first.origin, first.basis, second.origin))
    other = shared.astype(np.float64)
    for x, y, left, right in ((o, p, basis, other), (p, o, other, basis)):
        a, b = _closest(x, left, y, right, 1e-9)
        for row in range(6):
            system = np.hstack([left[row].T, -right[row].T])
            best = np.linalg.lstsq(system, y[row] - x[row], rcond=1e-5)[0]
            np.testing.assert_allclose(np.concatenate([a[row], b[row]]), best, atol=1e-4)


def test_lifted_matches_estimate_both_sides() -> None:
    """Eq. 6: the middle of the closest points is near the mean of both descriptors. Broken defense and its null."""
    features = photograph(1, 200)
    d = truth(features, paper_form(features, 4))
    form = paper_form(features, 4)
    e = near(d, 0.3, "other view")
    matched = replace(form_through(e, 4, "map"), space=form.space)
    ours, theirs = inlier_subspaces(form, matched)
    assert np.median(np.linalg.norm(ours.points - d, axis=1)) < 0.3
    assert np.median(np.linalg.norm(theirs.points - e, axis=1)) < 0.3
    plain, other = inlier_subspaces(form, matched, options=PLAIN)
    cosine = np.linalg.svd(form.basis.astype(np.float64) @ matched.basis.astype(np.float64).transpose(0, 2, 1))[1][:, 0]
    half_cot = 0.5 * np.sqrt((1 + cosine) / (1 - cosine))
    middle = np.linalg.norm((plain.points + other.points) / 2 - (d + e) / 2, axis=1)
    assert (middle <= half_cot * np.linalg.norm(d - e, axis=1) + 1e-5).all()
    order = generator("wrong").permutation(200)
    wrong, _ = inlier_subspaces(form, matched.take(order))
    off = np.median(np.linalg.norm(wrong.points - d, axis=1))
    assert 0.4 < off < 1.5
    assert ours.confidence.mean() > wrong.confidence.mean()


def test_bad_input_is_refused() -> None:
    form = form_through(points(4, 16, "bad"), 2, "bad form")
    e = points(4, 16, "bad match")
    e[2] = np.nan
    estimates = inlier_points(form, e)
    np.testing.assert_array_equal(estimates.decided, [True, True, False, True])
    with pytest.raises(InputError, match="shape"):
        inlier_points(form, e[:3])
    with pytest.raises(InputError, match="pairs of rows"):
        inlier_subspaces(form, form.take(np.arange(2)))
    with pytest.raises(SpaceError):
        inlier_subspaces(form, replace(form, space=replace(form.space, normalization="L1_ROOT")))
    for wrong in ({"half_distance": float("nan")}, {"tol": 0.0}):
        with pytest.raises(RangeError):
            InlierOptions(**wrong)  # type: ignore[arg-type]
