"""The repeat attack on subspaces and lines: fresh draws meet, memoized ones do not; features are paired without an order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.intersection.repeat import (
    RepeatOptions,
    intersect,
    pair_releases,
    pair_with_each,
    repeat_descriptors,
    repeat_positions,
)
from veil.errors import InputError, RangeError, SpaceError
from veil.files.codebooks import bundled_codebook
from veil.forms import canonical
from veil.geometry.camera import Camera
from veil.mechanisms.lines import LineOptions, lift_to_lines
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.randomness import seeded
from worlds import generator, unit
from worlds.line_clouds import CAMERA, RADIAL, errors, line_cloud, uniform_keypoints
from worlds.material import lifted, photograph, truth
from worlds.random_forms import RAW, form_through, points


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 4, 16])
def test_fresh_lifts_of_a_photograph_meet_in_its_descriptors(m: int) -> None:
    """Broken defense: at least 99 % of fresh lifts are recovered and certified. A memoized release leaves all undecided."""
    features = photograph(1, 250)
    descriptors = publish(features).vectors.astype(np.float64)
    forms = [lifted(features, Profile.paper(m), case=case) for case in ("one", "two")]
    estimates = repeat_descriptors(forms)
    exact = np.linalg.norm(estimates.points - descriptors, axis=1) < 1e-3
    assert exact.mean() >= 0.99
    assert estimates.certified.mean() >= 0.99
    assert np.linalg.norm(estimates.points - descriptors, axis=1)[estimates.certified].max() < 1e-2
    again = repeat_descriptors([forms[0], lifted(features, Profile.paper(m), case="one")])
    assert not again.decided.any() and not again.certified.any()


@pytest.mark.slow
def test_subspaces_of_strangers_are_never_certified() -> None:
    """Null: 10,000 pairs of unrelated lifts. Their least-squares point is no nearer to either descriptor than chance."""
    first, second = points(10_000, case="first"), points(10_000, case="second")
    estimates = repeat_descriptors([form_through(first, 2, "a"), form_through(second, 2, "b")])
    assert estimates.decided.all() and not estimates.certified.any()
    off = np.linalg.norm(unit(estimates.points) - first, axis=1)
    assert 0.6 < np.median(off) < 1.2
    short = [form_through(points(10_000, 64, f"{case} points"), 4, case) for case in "cd"]
    dithered = [replace(form, space=replace(form.space, dither_steps=4.0)) for form in short]
    assert not repeat_descriptors(dithered).certified.any()


@pytest.mark.slow
def test_fresh_dither_does_not_save_a_hardened_release() -> None:
    """Broken defense: fresh releases are paired and certified to within the dither; a memoized release leaves all undecided."""
    features = photograph(1, 250)
    first, second = (lifted(features, Profile.hardened(quantized=True), case=case) for case in ("one", "two"))
    estimates = repeat_descriptors([first, second])
    off = np.linalg.norm(estimates.points - truth(features, first), axis=1)
    assert estimates.certified.mean() >= 0.99 and off[estimates.certified].max() < 0.1
    order = generator("hardened order").permutation(250)
    pairs = pair_releases(first, second.take(order))
    assert (order[pairs[:, 1]] == pairs[:, 0]).sum() >= 0.97 * 250
    assert not repeat_descriptors([first, lifted(features, Profile.hardened(quantized=True), case="one")]).decided.any()


@pytest.mark.parametrize("releases", [2, 3, 5])
def test_the_common_point_solves_the_normal_equations(releases: int) -> None:
    """Second method: lstsq on the stacked complements, on subspaces that do not quite meet."""
    centers, noise = points(20, 24), generator("noise")
    forms = [form_through(centers + noise.normal(0, 0.02, (20, 24)), 3, f"form {k}") for k in range(releases)]
    estimates = intersect(forms)
    for row in range(20):
        complements = [np.eye(24) - f.basis[row].astype(np.float64).T @ f.basis[row].astype(np.float64) for f in forms]
        right = np.concatenate([q @ f.origin[row].astype(np.float64) for q, f in zip(complements, forms, strict=True)])
        best, rest, *_ = np.linalg.lstsq(np.concatenate(complements), right, rcond=1e-9)
        np.testing.assert_allclose(estimates.points[row], best, atol=1e-5)
        assert estimates.residual[row] == pytest.approx(np.sqrt(rest[0] / releases) if len(rest) else 0, abs=1e-5)
    assert estimates.determined.all()


def test_meeting_certifies_nothing_where_it_cannot_be_helped() -> None:
    """Two 12-dimensional subspaces of 20-D always meet, which certifies nothing; a third release certifies or refutes it."""
    first, second = points(30, 20, "x"), points(30, 20, "y")
    estimates = repeat_descriptors([form_through(first, 12, "p"), form_through(second, 12, "q")])
    assert not estimates.certified.any() and not estimates.decided.any()
    three = [form_through(first, 12, case) for case in ("p", "q", "r")]
    assert repeat_descriptors(three).certified.all()
    assert not repeat_descriptors([*three[:2], form_through(second, 12, "s")]).certified.any()


@pytest.mark.slow
def test_a_shuffled_second_release_is_paired_by_its_distances() -> None:
    """Planted truth: pairs are those of the permutation, so shuffling is no defense. Null: another photograph gives no pair."""
    features = photograph(1, 120)
    order = generator("order").permutation(120)
    first, second = (lifted(features, Profile.paper(4), case=case) for case in ("one", "two"))
    pairs = pair_releases(first, second.take(order), decoys=bundled_codebook().vectors)
    right = order[pairs[:, 1]] == pairs[:, 0]
    same = (features.descriptors[order[pairs[:, 1]]] == features.descriptors[pairs[:, 0]]).all(axis=1)
    assert (right | same).all() and len(pairs) >= 0.99 * 120
    other = lifted(photograph(5, 120), Profile.paper(4), case="one")
    assert len(pair_releases(first, other, decoys=bundled_codebook().vectors)) == 0


@pytest.mark.slow
def test_pairs_with_several_releases_are_those_with_each() -> None:
    """Oracle: pairs with one release at a time. The pool is searched once for all releases, whose parts may not be mixed up."""
    features = photograph(1, 60)
    first = lifted(features, Profile.paper(4), case="one")
    others = [
        lifted(features, Profile.paper(4), case="two"),
        lifted(photograph(5, 80), Profile.paper(4), case="one"),
        first.take(np.arange(0)),
    ]
    others += [lifted(features, Profile.paper(4), case="three").take(np.arange(59, -1, -1))]
    for decoys in (None, bundled_codebook().vectors):
        together = pair_with_each(first, others, decoys=decoys, threads=2)
        for pairs, other in zip(together, others, strict=True):
            np.testing.assert_array_equal(pairs, pair_releases(first, other, decoys=decoys))
    assert [len(pairs) > 50 for pairs in together] == [True, False, False, True]
    assert pair_with_each(first, []) == []


def test_shared_decoys_are_not_taken_for_descriptors() -> None:
    """Planted truth: subspaces of two descriptors through one word are a pair only for whoever does not know the word."""
    random = generator("decoy")
    word, d, e = points(3, 64, "decoys")
    made = []
    for center, case in ((d, "left"), (e, "right")):
        form = form_through(center[None], 3, case)
        directions = np.concatenate([(word - center)[None], random.normal(size=(2, 64))])
        origin, basis = canonical(center[None], directions[None])
        made.append(replace(form, origin=origin.astype(np.float32), basis=basis.astype(np.float32)))
    assert len(pair_releases(*made)) == 1
    assert len(pair_releases(*made, decoys=np.stack([word, -word]))) == 0


@pytest.mark.parametrize("camera", [CAMERA, RADIAL], ids=["pinhole", "radial"])
def test_fresh_lines_meet_in_the_keypoint(camera: Camera) -> None:
    """Broken defense: two fresh releases give 99 % of the keypoints to within a pixel; certificates need three releases."""
    random = generator("fresh lines")
    keypoints = uniform_keypoints(random, 1000, camera)
    releases = [line_cloud(keypoints, random, camera=camera) for _ in range(3)]
    two = repeat_positions(releases[:2], camera=camera)
    assert (errors(two.points, keypoints) < 1).mean() >= 0.99
    assert not two.certified.any()
    three = repeat_positions(releases, camera=camera)
    assert three.certified.mean() > 0.99 and errors(three.points, keypoints)[three.certified].max() < 1


def test_lines_of_strangers_are_not_certified() -> None:
    """Null: three lines through unrelated keypoints, 10,000 times; and they meet near the first keypoint by chance only."""
    random = generator("stranger lines")
    clouds = [uniform_keypoints(random, 10_000) for _ in range(3)]
    estimates = repeat_positions([line_cloud(keypoints, random) for keypoints in clouds], camera=CAMERA)
    assert estimates.certified.sum() <= 10
    inside = ((estimates.points >= 0) & (estimates.points <= (640, 480))).all(axis=1)
    near = (errors(estimates.points, clouds[0]) < 20)[inside].mean()
    assert 0.001 < near < 0.15


@pytest.mark.slow
def test_memoized_lines_say_nothing_new_and_upright_ones_meet_nowhere() -> None:
    """Lines released twice under one secret leave all undecided; fresh lines, a share q of them upright, leave q^2 so."""
    features = photograph(2, 300)
    memoized = [lift_to_lines(features, gravity=None, randomness=seeded("same")) for _ in range(2)]
    assert not repeat_positions(memoized, camera=features.camera).decided.any()
    down = np.array([0.0, 1.0, 0.0])
    half = [
        lift_to_lines(features, gravity=down, randomness=seeded(case), options=LineOptions(aligned_share=0.5)) for case in "ab"
    ]
    estimates = repeat_positions(half, camera=features.camera)
    both = half[0].aligned & half[1].aligned
    np.testing.assert_array_equal(estimates.decided, ~both)
    assert 0.1 < both.mean() < 0.4
    assert (errors(estimates.points, features.keypoints)[~both] < 1).mean() > 0.98


def test_bad_input_is_refused() -> None:
    form = form_through(points(4), 2, "bad")
    with pytest.raises(InputError, match="two or more"):
        repeat_descriptors([form])
    with pytest.raises(SpaceError):
        pair_releases(form, replace(form, space=replace(RAW, normalization="L1_ROOT")))
    wide = form_through(points(4, 8), 4, "wide")
    with pytest.raises(InputError, match="nothing to pair"):
        pair_releases(wide, wide)
    with pytest.raises(InputError, match="two or more"):
        repeat_positions([line_cloud(uniform_keypoints(generator("l"), 3), generator("l"))], camera=CAMERA)
    with pytest.raises(RangeError):
        RepeatOptions(meet=float("nan"))
