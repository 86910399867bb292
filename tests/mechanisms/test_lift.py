"""Every lifted subspace contains its descriptor and its decoys, and says nothing else."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from veil import randomness
from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.compression import fit_pca
from veil.codebooks.decoys import DecoyPool
from veil.codebooks.dictionary import Dictionary
from veil.device.protection import usual_profile
from veil.distances import reference
from veil.errors import InputError, RangeError, SpaceError
from veil.features import Features
from veil.forms import Subspaces
from veil.ldp.guarantee import NoProof
from veil.mechanisms.profile import STRATEGIES, Profile
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import _plan, lift, uniform_rule
from veil.space import Space
from worlds import codebook, features, generator, sift_like, unit
from worlds.power import require_even, require_mean
from worlds.rules import Rule

BOOK = codebook(generator("book"), 512, 4)
POOL = codebook(generator("pool"), 400, 4, kind="descriptors")
IMAGE = features(generator("image"), 30)
STUDY = randomness.seeded("lift")


def distances_to(form: Subspaces, points: np.ndarray) -> np.ndarray:
    """Matrix (features, points) of the distances of points to subspaces."""
    return reference.point_to_subspace(points, (form.origin, form.basis)).T


def own_distance(form: Subspaces, points: np.ndarray) -> np.ndarray:
    return np.array([distances_to(form.take(np.array([i])), points[i : i + 1])[0, 0] for i in range(len(form))])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("m", [2, 3, 4, 16, 100])
def test_the_descriptor_lies_in_its_subspace_with_its_decoys(strategy: str, m: int) -> None:
    """Oracle: the defining equation, d in D and w_i in D, counted: all m, none, or floor(m / 2).

    Theory: lifting.md#why-m--1-is-not-used.
    """
    profile = Profile.paper(m, strategy)  # type: ignore[arg-type]
    lifted = lift(IMAGE, profile=profile, compression=BOOK.compression, decoys=BOOK, randomness=STUDY)
    assert lifted.form.m == m
    assert own_distance(lifted.form, unit(IMAGE.descriptors)).max() < 1e-5
    members = distances_to(lifted.form, BOOK.vectors) < 1e-4
    expected = {"random": 0, "adversarial": m, "sub-adversarial": m}.get(strategy, m // 2)
    assert (members.sum(axis=1) == expected).all()
    if strategy.startswith("sub-"):
        assert lifted.slice_index is not None
        where = np.unique(np.nonzero(members)[1] // BOOK.slice_size)
        assert where.tolist() == [lifted.slice_index]


def test_the_form_is_canonical() -> None:
    """Canonical form: an orthonormal basis, and the origin nearest to zero (lifting.md#canonical-form)."""
    form = lift(IMAGE, profile=Profile.paper(4), compression=BOOK.compression, decoys=BOOK, randomness=STUDY).form
    gram = np.einsum("fin,fjn->fij", form.basis, form.basis)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(4), gram.shape), atol=1e-6)
    assert np.abs(np.einsum("fin,fn->fi", form.basis, form.origin)).max() < 1e-6


def test_random_directions_are_isotropic_unless_the_paper_is_asked_for() -> None:
    """Fourth moment of a direction of length 1 (docs/theory/lifting.md, Eq. 4), where 2 % off would be seen.

    n (n + 2) / 3 times it is 1 for a uniform direction, to leading order 0.6 for one of the cube.
    """
    many, draws = features(generator("directions"), 1500), []
    for directions in ("gaussian", "cube"):
        profile = Profile(name="test", strategy="random", m=1, directions=directions)
        form = lift(many, profile=profile, compression=BOOK.compression, decoys=BOOK, randomness=STUDY).form
        draws.append((form.basis[:, 0].astype(np.float64) ** 4).mean(axis=1) * 128 * 130 / 3)  # one number a direction
    require_mean(draws[0], 1.0, sees=0.06)
    require_mean(draws[1], 0.6 * 130 / 128, sees=0.03)


def test_hardened_hides_among_real_decoys_of_one_slice() -> None:
    """64-D, m = 4, four decoys of one sub-pool, each within its own dither of D; nothing lies on the 8-bit grid."""
    lifted = lift(IMAGE, profile=Profile.hardened(quantized=True), compression=BOOK.compression, decoys=POOL, randomness=STUDY)
    assert lifted.form.space == BOOK.compression.hardened_space
    assert (lifted.form.m, lifted.form.space.dim) == (4, 64)
    pca = BOOK.compression.require_pca()

    def mean_dither(words: np.ndarray) -> np.ndarray:
        return pca.apply(unit(words.astype(np.float64) + 2.0))

    assert own_distance(lifted.form, mean_dither(IMAGE.descriptors)).max() < 0.05
    near = distances_to(lifted.form, mean_dither(POOL.stored)) < 0.05
    assert (near.sum(axis=1) == 4).all()
    assert np.unique(np.nonzero(near)[1] // POOL.slice_size).tolist() == [lifted.slice_index]
    # Broken twin: without dither d lies in D exactly.
    bare = lift(
        IMAGE,
        profile=replace(Profile.hardened(quantized=True), name="x", dither_steps=0.0, compress=False),
        compression=BOOK.compression,
        decoys=POOL,
        randomness=STUDY,
    )
    assert own_distance(bare.form, unit(IMAGE.descriptors)).max() < 1e-5
    assert own_distance(lifted.form, mean_dither(IMAGE.descriptors)).min() > 1e-3


def test_equal_descriptors_get_equal_lifts_and_others_do_not() -> None:
    """Draws depend on the descriptor, so that another extraction with fewer features repeats the subspaces of those it has."""
    half = replace(IMAGE, keypoints=IMAGE.keypoints[:30], descriptors=IMAGE.descriptors[:30])
    whole = lift(IMAGE, profile=Profile.paper(4), compression=BOOK.compression, decoys=BOOK, randomness=STUDY).form
    part = lift(half, profile=Profile.paper(4), compression=BOOK.compression, decoys=BOOK, randomness=STUDY).form
    np.testing.assert_array_equal(part.basis, whole.basis[:30])
    other = lift(half, profile=Profile.paper(2), compression=BOOK.compression, decoys=BOOK, randomness=STUDY).form
    assert not np.allclose(other.origin, part.origin)


def test_the_callers_rule_chooses_the_decoys() -> None:
    """A rule may choose by labels that never leave the device: decoys of even index for even rows. Oracle: membership."""

    def parity(rows: np.ndarray, draws: np.ndarray, available: np.ndarray) -> np.ndarray:
        chosen = np.empty(draws.shape, dtype=np.int64)
        for i, row in enumerate(rows):
            fitting = available[available % 2 == row % 2]
            chosen[i] = fitting[randomness.distinct_below(draws[i : i + 1], len(fitting))[0]]
        return chosen

    form = lift(
        IMAGE,
        profile=Profile.paper(4, "adversarial"),
        compression=BOOK.compression,
        decoys=BOOK,
        randomness=STUDY,
        rule=Rule(parity),
    ).form
    rows, words = np.nonzero(distances_to(form, BOOK.vectors) < 1e-4)
    assert len(rows) == 4 * len(IMAGE)
    assert (rows % 2 == words % 2).all()


@pytest.mark.slow
def test_slices_are_drawn_uniformly_by_image() -> None:
    """Each image draws one slice; 3,000 images draw each of 4 slices equally often, where 17 % off would be seen."""
    one, profile = features(generator("one"), 1), Profile.paper(2, "sub-adversarial")
    images = [replace(one, image_digest=index.to_bytes(32, "big")) for index in range(3000)]
    slices = [_plan(image, profile, BOOK.compression, BOOK, STUDY, uniform_rule).slice_index for image in images]
    require_even(np.bincount(np.array(slices, dtype=int), minlength=4), sees=0.17)
    lifted = lift(images[5], profile=profile, compression=BOOK.compression, decoys=BOOK, randomness=STUDY)
    assert lifted.slice_index == slices[5]


def test_learned_descriptors_are_lifted_in_full_precision() -> None:
    image, pool = _learned()
    form = lift(
        image, profile=Profile.hardened(quantized=False), compression=pool.compression, decoys=pool, randomness=STUDY
    ).form
    assert form.space == image.space
    assert own_distance(form, image.descriptors).max() < 1e-5
    eight_bit = np.round(image.descriptors * 300) + 0.0
    coarse = replace(image, descriptors=unit(eight_bit).astype(np.float32))
    with pytest.raises(InputError, match="8 bits"):
        lift(coarse, profile=Profile.hardened(quantized=False), compression=pool.compression, decoys=pool, randomness=STUDY)


def test_learned_descriptors_are_compressed_where_a_pca_is_given() -> None:
    """Oracle: the projection of the descriptor lies in its subspace; the raw map's points are led to the same place."""
    image, pool = _learned()
    pca = fit_pca(pool.vectors.astype(np.float64), 40)
    book = Dictionary(**{item.name: getattr(pool, item.name) for item in fields(pool)} | {"pca": pca})
    assert usual_profile(None, image) == Profile.hardened(quantized=False) == usual_profile(pool, image)
    bundled = replace(image, space=replace(image.space, descriptor="aliked-n16rot"))
    assert usual_profile(None, bundled) == Profile.hardened(quantized=False, compress=True) == usual_profile(book, image)
    profile = usual_profile(book, image)
    form = lift(image, profile=profile, compression=book.compression, decoys=pool, randomness=STUDY).form
    assert profile.compress and form.space == book.compression.hardened_space and form.space.dim == 40
    points = book.compression.into_space(publish(image), form.space)
    assert own_distance(form, points.vectors).max() < 1e-5
    np.testing.assert_allclose(points.vectors, pca.apply(unit(image.descriptors)), atol=1e-5)


def _learned() -> tuple[Features, Codebook]:
    random = generator("learned")
    space = Space(descriptor="hardtfeat", normalization="L2", dim=128)
    image = replace(features(random, 20), space=space, descriptors=unit(random.normal(size=(20, 128))).astype(np.float32))
    pool = DecoyPool(
        descriptor="hardtfeat",
        normalization="L2",
        stored=unit(random.normal(size=(100, 128))).astype(np.float32),
        slices=2,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="synthetic", license="none", image_count=1, descriptor_count=100),
    )
    return image, pool


def test_refusals() -> None:
    with pytest.raises(RangeError, match="m >= 2"):
        Profile.paper(1, "hybrid")
    with pytest.raises(RangeError, match="at least 1"):
        Profile.paper(0)
    with pytest.raises(RangeError, match="does not fit"):
        lift(IMAGE, profile=Profile.paper(128, "random"), compression=BOOK.compression, decoys=BOOK, randomness=STUDY)
    with pytest.raises(InputError, match="kind 'descriptors'"):
        lift(IMAGE, profile=Profile.hardened(quantized=True), compression=BOOK.compression, decoys=BOOK, randomness=STUDY)
    with pytest.raises(InputError, match="distinct decoys"):
        lift(
            IMAGE,
            profile=Profile.paper(127, "sub-adversarial"),
            compression=BOOK.compression,
            decoys=codebook(generator("small"), 200, 4),
            randomness=STUDY,
        )
    with pytest.raises(SpaceError, match="codebook"):
        root = replace(IMAGE, space=Space(descriptor="sift", normalization="L1_ROOT", dim=128))
        lift(root, profile=Profile.paper(2), compression=BOOK.compression, decoys=BOOK, randomness=STUDY)
    with pytest.raises(InputError, match="no features"):
        empty = replace(IMAGE, keypoints=IMAGE.keypoints[:0], descriptors=IMAGE.descriptors[:0])
        lift(empty, profile=Profile.paper(2), compression=BOOK.compression, decoys=BOOK, randomness=STUDY)
    with pytest.raises(InputError, match="dither"):
        lift(
            IMAGE,
            profile=replace(Profile.hardened(quantized=True), dither_steps=0.0),
            compression=BOOK.compression,
            decoys=POOL,
            randomness=STUDY,
        )


def test_the_guarantee_travels_and_names_the_break() -> None:
    form = lift(IMAGE, profile=Profile.paper(2), compression=BOOK.compression, decoys=BOOK, randomness=STUDY).form
    assert isinstance(form.guarantee, NoProof)
    assert "broken" in form.guarantee.reason
    assert any("coin toss" in warning for warning in Profile.paper(2).warnings(quantized=True))
    assert (
        Profile.hardened(quantized=True).warnings(quantized=True)
        == Profile.hardened(quantized=False).warnings(quantized=False)
        == []
    )
    assert any("8-bit" in warning for warning in Profile.paper(4).warnings(quantized=True))


def test_a_decoy_equal_to_the_descriptor_is_survived() -> None:
    """A decoy may be the descriptor d itself: then one direction is arbitrary, and D still holds d."""
    twin = replace(BOOK, stored=np.concatenate([IMAGE.descriptors[:2], sift_like(generator("rest"), 6)]), slices=1)
    form = lift(
        IMAGE, profile=Profile.paper(7, "adversarial"), compression=BOOK.compression, decoys=twin, randomness=STUDY
    ).form
    assert own_distance(form, unit(IMAGE.descriptors)).max() < 1e-5
