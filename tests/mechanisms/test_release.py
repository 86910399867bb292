"""Releases are memoized and shuffled; tests show what two different releases would give away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil import randomness
from veil.attacks.intersection.repeat import intersect
from veil.codebooks.codebook import Provenance
from veil.errors import InputError, ReleaseRefused
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import Release, _order, privatize, pseudonym
from veil.randomness import Randomness
from veil.wire import Upload, encode
from worlds import codebook, features, generator, unit
from worlds.power import require_unrelated

BOOK = codebook(generator("book"), 512, 4)
POOL = codebook(generator("pool"), 400, 4, kind="descriptors")
IMAGE = features(generator("image"), 50)


def release(source: Randomness, profile: Profile, image=IMAGE) -> Release:
    decoys = POOL if profile.decoys == "descriptors" else BOOK
    return privatize(image, profile=profile, compression=BOOK.compression, decoys=decoys, randomness=source)


@pytest.mark.parametrize("profile", [Profile.paper(4), Profile.hardened(quantized=True)], ids=lambda p: p.name)
def test_two_releases_of_one_image_are_identical(profile: Profile) -> None:
    """Two releases of one image are equal to the byte, and another secret gives another message."""
    secret = randomness.Secret.generate()
    first, second = (encode(release(randomness.memoized(secret), profile).upload, dtype=profile.dtype) for _ in range(2))
    other = encode(release(randomness.memoized(randomness.Secret.generate()), profile).upload, dtype=profile.dtype)
    assert first == second
    assert other != first


@pytest.mark.parametrize("m", [2, 4, 16])
def test_broken_twin_fresh_draws_meet_in_the_descriptor(m: int) -> None:
    """Intersecting two fresh releases finds every descriptor; the memoized release gives the attack nothing.

    This is the test that a mechanism which forgets to memoize fails.
    """
    truth = unit(IMAGE.descriptors)
    fresh = [_in_raw_order(release(randomness.fresh(), Profile.paper(m, "hybrid"))) for _ in range(2)]
    estimates = intersect(fresh)
    assert estimates.determined.mean() > 0.6  # the rest drew a decoy twice, so that their subspaces share more than d
    assert np.linalg.norm(estimates.points - truth, axis=1)[estimates.determined].max() < 1e-3
    secret = randomness.Secret.generate()
    kept = [_in_raw_order(release(randomness.memoized(secret), Profile.paper(m))) for _ in range(2)]
    estimates = intersect(kept)
    assert not estimates.determined.any()
    assert np.linalg.norm(estimates.points - truth, axis=1).min() > 0.05


def _in_raw_order(made: Release):
    inverse = np.argsort(made.order)
    return made.upload.form.take(inverse)


def test_more_releases_of_the_hardened_profile_close_in_too() -> None:
    """Fresh dither does not protect a fresh release: the intersection is near the descriptor, and so the ledger refuses."""
    truth = BOOK.compression.require_pca().apply(unit(IMAGE.descriptors.astype(np.float64) + 2.0))
    estimates = intersect([_in_raw_order(release(randomness.fresh(), Profile.hardened(quantized=True))) for _ in range(4)])
    assert np.median(np.linalg.norm(estimates.points - truth, axis=1)) < 0.05


@pytest.mark.slow
def test_the_order_says_nothing_about_position() -> None:
    """Released positions do not correlate with their rank or with the next position, where 0.04 would be seen.

    Broken twins: the detector's own sorted order, and blocks of 100 shuffled each by itself.
    """
    many = features(generator("many"), 50_000)
    rows = np.argsort(many.keypoints[:, 1])
    image = replace(many, keypoints=many.keypoints[rows], descriptors=many.descriptors[rows])
    order = _order(image, randomness.seeded("order of a release"))
    assert sorted(order) == list(range(50_000))
    for axis in (0, 1):
        values = image.keypoints[order, axis]
        require_unrelated(np.arange(50_000), values, sees=0.04)
        require_unrelated(values[:-1], values[1:], sees=0.04)
    blocks = np.concatenate([generator("blocks").permutation(100) + start for start in range(0, 50_000, 100)])
    for twin in (np.arange(50_000), blocks):
        with pytest.raises(AssertionError, match=r"correlation (0\.9|1)"):
            require_unrelated(np.arange(50_000), image.keypoints[twin, 1], sees=0.04)


def test_a_release_is_in_that_order() -> None:
    made = release(randomness.memoized(randomness.Secret.generate()), Profile.paper(2))
    assert isinstance(made.upload, Upload)
    np.testing.assert_array_equal(made.upload.keypoints, IMAGE.keypoints[made.order])
    assert sorted(made.order) == list(range(50))


def test_the_order_of_extraction_does_not_matter() -> None:
    """The same features in another order give the same message."""
    secret = randomness.memoized(randomness.Secret.generate())
    turned = replace(IMAGE, keypoints=IMAGE.keypoints[::-1].copy(), descriptors=IMAGE.descriptors[::-1].copy())
    assert encode(release(secret, Profile.paper(2)).upload, dtype="float32") == encode(
        release(secret, Profile.paper(2), turned).upload, dtype="float32"
    )


def test_photographs_of_the_pool_are_refused() -> None:
    own = replace(
        POOL,
        provenance=Provenance(
            source="mine",
            license="none",
            image_count=1,
            descriptor_count=9,
            image_digests=(IMAGE.image_digest[:8].hex(),),
        ),
    )
    with pytest.raises(ReleaseRefused, match="decoy pool"):
        privatize(
            IMAGE,
            profile=Profile.hardened(quantized=True),
            compression=BOOK.compression,
            decoys=own,
            randomness=randomness.fresh(),
        )


def test_pseudonyms_hang_on_the_secret() -> None:
    one, two = randomness.Secret.generate(), randomness.Secret.generate()
    assert pseudonym(one, IMAGE.image_digest) == pseudonym(one, IMAGE.image_digest)
    assert pseudonym(one, IMAGE.image_digest) != pseudonym(two, IMAGE.image_digest)


def test_the_attack_needs_two_releases() -> None:
    form = release(randomness.fresh(), Profile.paper(2)).upload.form
    assert isinstance(form, Subspaces)
    with pytest.raises(InputError, match="two or more"):
        intersect([form])
