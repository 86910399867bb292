"""What a mirror makes of descriptors and of public words, against SIFT of mirrored pixels."""

from __future__ import annotations

import numpy as np
import pytest

from veil.codebooks.mirror import mirrored_descriptors, mirrored_points, mirrored_words
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.codebooks import bundled_codebook, known_codebook
from veil.files.photographs.examples import other_place
from veil.files.photographs.pictures import read_picture
from veil.forms import Points
from veil.mechanisms.public import publish
from veil.space import Space
from worlds import generator, sift_like, subspaces, unit

BOOK = bundled_codebook()


@pytest.fixture(scope="module")
def pair() -> tuple[Points, Points]:
    """Descriptors of the same places of a photograph and of its mirror image, as SIFT gives them."""
    with other_place() as path:
        picture = read_picture(path)
    options = SiftOptions(max_features=400)
    features = extract_sift(picture, options)
    assert picture.rgb is not None
    other = extract_sift(Picture.of(np.ascontiguousarray(picture.rgb[:, ::-1]), camera=picture.camera), options)
    turned = np.column_stack([features.camera.width_px - features.keypoints[:, 0], features.keypoints[:, 1]])
    gaps = np.linalg.norm(turned[:, None] - other.keypoints, axis=2)
    rows = np.flatnonzero((gaps < 0.3).sum(axis=1) == 1)
    assert len(rows) > 50
    return publish(features).take(rows), publish(other).take(gaps[rows].argmin(axis=1))


def test_mirrored_descriptors_are_those_of_mirrored_pixels(pair: tuple[Points, Points]) -> None:
    """Second method: SIFT of the mirrored pixels, raw and compressed. Broken twin: descriptors as they are. Inverse pair."""
    one, other = pair
    space = BOOK.compression.hardened_space
    for into in (one.space, space):
        here, there = (BOOK.compression.into_space(form, into) for form in pair)
        turned = mirrored_descriptors(here, BOOK)
        assert isinstance(turned, Points) and turned.space == into
        off, twin = (np.median(np.linalg.norm(form.vectors - there.vectors, axis=1)) for form in (turned, here))
        assert off < 0.15 < 0.4 < twin
    assert np.array_equal(mirrored_points(mirrored_points(one)).vectors, one.vectors)
    assert other.space == one.space


def test_mirrored_subspaces_hold_the_mirrored_descriptors() -> None:
    """Defining property: the mirrored descriptor lies in the mirrored subspace, whose basis stays orthonormal."""
    inside = unit(sift_like(generator("mirror"), 20)).astype(np.float32)
    raw = Points(vectors=inside, space=BOOK.raw_space)
    for space in (BOOK.raw_space, BOOK.compression.hardened_space):
        points = BOOK.compression.into_space(raw, space)
        form = subspaces(generator("mirrored subspaces"), points.vectors, 4, space)
        turned, target = mirrored_descriptors(form, BOOK), mirrored_descriptors(points, BOOK)
        assert turned is not None and not isinstance(turned, Points) and isinstance(target, Points)
        gap = target.vectors - turned.origin
        gap = gap - np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", turned.basis, gap), turned.basis)
        assert np.abs(gap).max() < 1e-4
        assert np.allclose(turned.basis @ turned.basis.transpose(0, 2, 1), np.eye(4), atol=1e-5)


def test_words_of_mirrored_descriptors_are_likelier_among_mirrored_words(pair: tuple[Points, Points]) -> None:
    """Second method: words of SIFT of the mirrored pixels. Broken twin: the words as they are."""
    words, others = (BOOK.nearest(form.vectors) for form in pair)
    among = mirrored_words(BOOK, 5)[words]
    assert (among == others[:, None]).any(axis=1).mean() > 0.3
    assert (words == others).mean() < 0.1


def test_nobody_can_mirror_what_a_network_described() -> None:
    """Null: other descriptors, and compressed ones without their codebook."""
    learned = Space(descriptor="hardnet", normalization="L2", dim=128)
    vectors = unit(sift_like(generator("learned"), 4)).astype(np.float32)
    assert mirrored_descriptors(Points(vectors=vectors, space=learned), BOOK) is None
    compressed = BOOK.compression.into_space(Points(vectors=vectors, space=BOOK.raw_space), BOOK.compression.hardened_space)
    assert mirrored_descriptors(compressed, None) is None
    assert known_codebook("sift", BOOK.digest) is not None
    assert known_codebook("sift", "0" * 64) is None and known_codebook("hardnet", BOOK.digest) is None
