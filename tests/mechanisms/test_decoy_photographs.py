"""Decoys of whole photographs: placed one to one at the least cost, alike in scale, and refused where they do not fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from veil import randomness
from veil.distances import pairwise
from veil.errors import InputError, SpaceError
from veil.features import Features
from veil.forms import Subspaces
from veil.mechanisms.decoy_photographs import (
    OCTAVE,
    AssignedRule,
    DecoyPhotographs,
    PlacedPhotographs,
    placed_photographs,
)
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import privatize
from worlds import codebook, generator, unit
from worlds.decoy_photographs import photograph, photographs

BOOK = codebook(generator("book"), 512, 4)
SOURCE = randomness.memoized(randomness.Secret(key=b"s" * 32))


def scales_of(features: Features) -> np.ndarray:
    assert features.scales is not None
    return features.scales


def placed(image: Features, given: tuple[Features, ...], *, count: int = 4, apart: float = 0.0) -> PlacedPhotographs:
    """All features of the image leave."""
    return placed_photographs(image, np.arange(len(image)), given, count=count, min_distance_px=apart, randomness=SOURCE)


def test_the_assignment_costs_least() -> None:
    """Oracle: all one-to-one assignments of the six largest of eight features to five, with the cost written out for each."""
    image, other = photograph("few", 5), photograph("eight", 8)
    made = placed(image, (other,), count=1)
    scales, others = scales_of(image), scales_of(other)
    spacing = np.sqrt(640 * 480 / 5)

    def cost(rows: tuple[int, ...]) -> float:
        gaps = np.linalg.norm(image.keypoints - other.keypoints[list(rows)], axis=1) / spacing
        octaves = np.log2(scales / others[list(rows)])
        return float((gaps**2 + OCTAVE * octaves**2).sum())

    largest = sorted(np.argsort(-others)[:6].tolist())
    best = min(permutations(largest, 5), key=cost)
    np.testing.assert_array_equal(made.pool.stored, other.descriptors[list(best)])
    gaps = np.linalg.norm(image.keypoints - other.keypoints[list(best)], axis=1)
    assert made.displacement == pytest.approx(gaps.mean() / spacing, rel=1e-5)


def test_each_subspace_holds_one_feature_of_each_photograph() -> None:
    """Planted: the distance of a feature's subspace to its four decoys is that of their dither, and no feature serves twice."""
    image, given = photograph("image", 80), photographs(4)
    made = placed(image, given)
    release = privatize(
        image,
        profile=Profile.hardened(quantized=True),
        compression=BOOK.compression,
        decoys=made.pool,
        randomness=SOURCE,
        rule=made.rule,
    )
    form = release.upload.form
    assert isinstance(form, Subspaces)
    words = made.rule.words[release.order]
    assert len(np.unique(words)) == words.size and sorted(np.unique(words // 80)) == [0, 1, 2, 3]
    by_digest = {item.image_digest: item for item in given}
    for place, digest in enumerate(made.photographs):
        own = {row.tobytes() for row in by_digest[digest].descriptors}
        assert {row.tobytes() for row in made.pool.stored[80 * place : 80 * place + 80]} <= own
    middle = made.pool.stored.astype(np.float64) + 2.0
    points = BOOK.compression.require_pca().apply(unit(middle)).astype(np.float32)
    distance = pairwise((form.origin, form.basis), (points, None))
    nearest = np.take_along_axis(distance, words, axis=1)
    assert nearest.max() < form.space.decoy_distance < np.median(distance)


def test_those_that_fit_best_are_taken() -> None:
    """Planted: two photographs with keypoints beside those of the image, one of which stands and is to be turned."""
    image, given = replace(photograph("image", 60), scales=None), list(photographs(6))
    beside = np.clip(image.keypoints + generator("beside").normal(0, 2, (60, 2)), 0, (639, 479)).astype(np.float32)
    near = photograph("near", 72)
    keypoints = np.concatenate([beside, near.keypoints[60:]])
    given[3] = replace(near, keypoints=keypoints)
    turned = np.stack([480 - keypoints[:, 1], keypoints[:, 0]], axis=1)
    given[5] = replace(photograph("stands", 72, width=480, height=640), keypoints=turned)
    made = placed(image, tuple(given), count=2)
    assert set(made.photographs) == {given[3].image_digest, given[5].image_digest}
    assert made.displacement < 0.1


def test_scales_do_not_tell_the_truth() -> None:
    """Of one law, the image's feature has the largest scale of five about once in five.

    Broken twin: decoys of all features, most of them small, where it has the largest far more often.
    """

    def largest(given: tuple[Features, ...], drawn: bool) -> float:
        image = photograph("image", 1500)
        assert image.scales is not None
        sent = np.sort(np.argsort(-image.scales)[:400])
        made = placed_photographs(image, sent, given, count=4, min_distance_px=0.0, randomness=SOURCE)
        by_descriptor = {
            row.tobytes(): scale for item in given for row, scale in zip(item.descriptors, scales_of(item), strict=True)
        }
        scales = np.array([by_descriptor[row.tobytes()] for row in made.pool.stored]).reshape(4, 400)
        if drawn:
            every = np.concatenate([item.scales for item in given if item.scales is not None])
            scales = generator("drawn").choice(every, (4, 400))
        return float((image.scales[sent] > scales.max(axis=0)).mean())

    given = photographs(4, 1500)
    assert 0.1 < largest(given, drawn=False) < 0.35
    assert largest(given, drawn=True) > 0.45


def test_equal_descriptors_get_one_subspace() -> None:
    """Two features of equal bytes leave as one subspace. Broken twin: with decoys of their own they would meet in it."""
    image = photograph("image", 60)
    descriptors = image.descriptors.copy()
    descriptors[7] = descriptors[3]
    image = replace(image, descriptors=descriptors)
    made = placed(image, photographs(4))

    def between(rule: AssignedRule) -> float:
        release = privatize(
            image,
            profile=Profile.hardened(quantized=True),
            compression=BOOK.compression,
            decoys=made.pool,
            randomness=SOURCE,
            rule=rule,
        )
        form = release.upload.form.take(np.argsort(release.order)[[3, 7]])
        assert isinstance(form, Subspaces)
        if np.array_equal(form.origin[0], form.origin[1]):
            return -1.0
        return float(pairwise((form.origin[:1], form.basis[:1]), (form.origin[1:], form.basis[1:]))[0, 0])

    assert between(made.rule) == -1.0
    apart = made.rule.words.copy()
    apart[7] = 60 * np.arange(4) + 7
    assert 0 <= between(AssignedRule(words=apart)) < 0.1


def test_the_same_image_gets_the_same_placement() -> None:
    image, given = photograph("image", 60), photographs(30)
    first, again = placed(image, given), placed(image, given[::-1])
    assert first.photographs == again.photographs
    np.testing.assert_array_equal(first.pool.stored, again.pool.stored)
    only = DecoyPhotographs(photographs=given).named(first.photographs).photographs
    np.testing.assert_array_equal(placed(image, only).pool.stored, first.pool.stored)


def test_photographs_that_do_not_fit_are_refused() -> None:
    """The error counts those that may serve: too small, too few features, and the image itself do not."""
    image = photograph("image", 110)
    small = replace(photograph("small"), camera=photograph("other", width=300, height=200).camera)
    small = replace(small, keypoints=small.keypoints / 3)
    given = (*photographs(3, 140), small, photograph("poor", 120), image)
    with pytest.raises(InputError, match=r"needs 4 decoy photographs .*132 features or more .* of 6 unused ones 3 are so"):
        placed(image, given)
    with pytest.raises(InputError, match="of 0 unused ones 0 are so"):
        placed(image, ())
    floats = replace(image, descriptors=unit(image.descriptors).astype(np.float32))
    with pytest.raises(SpaceError, match="differ in precision"):
        placed(floats, photographs(4))
    with pytest.raises(InputError, match="twice"):
        DecoyPhotographs(photographs=(image, image))
    with pytest.raises(InputError, match="2 photographs, of which 1 are not given"):
        DecoyPhotographs(photographs=(image,)).named([image.image_digest, b"x" * 32])
