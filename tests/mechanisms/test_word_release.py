"""Releases of words are memoized, shuffled, of a fixed number of features, and never from a dictionary of one's photographs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from veil import randomness
from veil.codebooks.codebook import Codebook, Provenance
from veil.errors import InputError, RangeError, ReleaseRefused, SpaceError
from veil.forms import Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.release import HideInLines, WordRelease, _order, privatize_words
from veil.randomness import Randomness
from veil.space import Space
from veil.wire import LineUpload, Upload
from worlds import codebook, features, generator, unit
from worlds.power import require_even, require_unrelated

BOOK = codebook(generator("dictionary"), 512, 4)
IMAGE = features(generator("words of an image"), 80)
LAW = SubsetMechanism(dictionary_size=512, epsilon=4.0, m=3)


def release(source: Randomness, image=IMAGE, **choices: Any) -> WordRelease:
    usual: dict[str, Any] = {"mechanism": LAW, "dictionary": BOOK, "randomness": source}
    return privatize_words(image, **usual | choices)


def subsets(made: WordRelease) -> Subsets:
    assert isinstance(made.upload.form, Subsets)
    return made.upload.form


def test_a_release_is_the_same_each_time_and_says_what_it_is() -> None:
    secret = randomness.memoized(randomness.Secret.generate())
    first, second = release(secret), release(secret)
    other = release(randomness.memoized(randomness.Secret.generate()))
    np.testing.assert_array_equal(subsets(first).ids, subsets(second).ids)
    np.testing.assert_array_equal(first.order, second.order)
    assert not np.array_equal(first.order, other.order)
    assert not np.array_equal(np.sort(subsets(first).ids.ravel()), np.sort(subsets(other).ids.ravel()))
    assert subsets(first).releasable and not subsets(release(randomness.seeded("study"))).releasable
    assert subsets(first).mechanism == LAW and len(first.upload) == 80 and first.missing == 0


def test_positions_and_words_stay_together_and_scale_stays_home() -> None:
    """Planted: with an infinite epsilon and m = 1, the word that is sent with a position is the nearest to its descriptor."""
    plain = SubsetMechanism(dictionary_size=512, epsilon=math.inf, m=1)
    made = release(randomness.fresh(), mechanism=plain)
    assert isinstance(made.upload, Upload)
    np.testing.assert_array_equal(made.upload.keypoints, IMAGE.keypoints[made.order])
    distances = np.linalg.norm(unit(IMAGE.descriptors[made.order])[:, None] - BOOK.vectors[None], axis=2)
    np.testing.assert_array_equal(subsets(made).ids[:, 0], distances.argmin(axis=1))
    np.testing.assert_allclose(made.quantization_error, distances.min(axis=1), atol=1e-6)
    assert made.median_error == pytest.approx(np.median(distances.min(axis=1)), abs=1e-6)


def test_the_order_says_nothing_about_position() -> None:
    """Ranks of released features do not correlate with x or y, where 0.15 would be seen (`test_release` sees 0.04).

    Broken twin: the detector's own sorted order.
    """
    many = features(generator("many words"), 4000)
    order = np.argsort(many.keypoints[:, 1])
    image = replace(many, keypoints=many.keypoints[order], descriptors=many.descriptors[order])
    made = release(randomness.seeded("order of words"), image)
    assert isinstance(made.upload, Upload)
    for axis in (0, 1):
        require_unrelated(np.arange(4000), made.upload.keypoints[:, axis], sees=0.15)
    with pytest.raises(AssertionError, match="correlation 1"):
        require_unrelated(np.arange(4000), image.keypoints[:, 1], sees=0.15)


def test_a_fixed_number_is_a_uniform_choice_that_no_other_feature_changes() -> None:
    """Each of 80 features is equally often among the 20 that are sent, where 10 % off would be seen; choices are nested."""
    secret = randomness.memoized(randomness.Secret.generate())
    few, more, everything = (release(secret, features_sent=count) for count in (20, 50, None))
    np.testing.assert_array_equal(few.order, more.order[:20])
    np.testing.assert_array_equal(more.order, everything.order[:50])
    np.testing.assert_array_equal(subsets(few).ids, subsets(everything).ids[:20])
    kept = np.concatenate([_order(IMAGE, randomness.seeded(f"choice {key}"))[:20] for key in range(800)])
    require_even(np.bincount(kept, minlength=80), sees=0.1, spread=60 / 79)
    assert _chosen(randomness.seeded("choice 3")) == kept[60:80].tolist()
    without = replace(IMAGE, keypoints=IMAGE.keypoints[1:], descriptors=IMAGE.descriptors[1:])
    shifted = set((release(secret, without, features_sent=20).order + 1).tolist())
    assert set(few.order.tolist()) - {0} <= shifted


def _chosen(source: Randomness) -> list[int]:
    return release(source, features_sent=20).order.tolist()


def test_too_few_features_are_said_and_not_padded() -> None:
    made = release(randomness.fresh(), features_sent=100)
    assert (len(made.upload), made.missing) == (80, 20)
    assert release(randomness.fresh(), features_sent=80).missing == 0
    with pytest.raises(RangeError, match="features_sent must be at least 1"):
        release(randomness.fresh(), features_sent=0)


def test_lines_hide_positions_of_the_same_features() -> None:
    secret = randomness.memoized(randomness.Secret.generate())
    made = release(secret, lines=HideInLines(gravity=np.array([0.0, 1.0, 0.0])), features_sent=30)
    assert isinstance(made.upload, LineUpload)
    np.testing.assert_array_equal(subsets(made).ids, subsets(release(secret, features_sent=30)).ids)
    camera = IMAGE.camera
    xy = (IMAGE.keypoints[made.order] - [camera.params[2], camera.params[3]]) / 500.0
    lines = made.upload.lines.coefficients.astype(np.float64)
    np.testing.assert_allclose((lines[:, :2] * xy).sum(axis=1) + lines[:, 2], 0, atol=1e-5)


def test_equal_features_are_not_side_by_side() -> None:
    """Broken twin: with one hash for both, a stable sort leaves every pair adjacent."""
    twice = replace(IMAGE, keypoints=np.concatenate([IMAGE.keypoints] * 2), descriptors=np.concatenate([IMAGE.descriptors] * 2))
    order = release(randomness.memoized(randomness.Secret.generate()), twice).order
    assert sorted(order) == list(range(160))
    adjacent = int((np.abs(np.diff(order % 80)) == 0).sum())
    assert adjacent < 10  # one expected; all 80 with a shared hash


def own(book: Codebook = BOOK) -> Codebook:
    digests = (IMAGE.image_digest[:8].hex(),)
    return replace(
        book,
        provenance=Provenance(source="mine", license="none", image_count=1, descriptor_count=9, image_digests=digests),
    )


def test_the_photograph_itself_must_not_be_the_dictionary() -> None:
    with pytest.raises(ReleaseRefused, match="made from this very photograph"):
        release(randomness.fresh(), dictionary=own())
    assert len(release(randomness.fresh(), dictionary=own(), allow_private_dictionary=True).upload) == 80


def test_what_does_not_match_is_refused() -> None:
    with pytest.raises(RangeError, match="the mechanism is for 511 words, the dictionary has 512"):
        release(randomness.fresh(), mechanism=replace(LAW, dictionary_size=511))
    with pytest.raises(SpaceError, match="give one of the same kind"):
        release(randomness.fresh(), replace(IMAGE, space=Space(descriptor="sift", normalization="L1_ROOT", dim=128)))
    empty = replace(IMAGE, keypoints=IMAGE.keypoints[:0], descriptors=IMAGE.descriptors[:0])
    with pytest.raises(InputError, match="no features to privatize"):
        release(randomness.fresh(), empty)


def test_without_entropy_there_is_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a fresh draw nor a new secret is made without the operating system's entropy."""
    for failing in (_raise, lambda count: b"short"):
        monkeypatch.setattr("os.urandom", failing)
        with pytest.raises(ReleaseRefused, match="nothing was released"):
            release(randomness.fresh())
        with pytest.raises(ReleaseRefused, match="nothing was released"):
            randomness.Secret.generate()


def _raise(count: int) -> bytes:
    raise NotImplementedError("no source of randomness")
