"""Codebooks: bounded training, unit words, honest slices, a hash over everything."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.codebooks.compression import VARIANCE_KEPT, axes_that_keep, fit_pca
from veil.codebooks.sampling import WordTraining
from veil.errors import InputError, RangeError, SpaceError
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Points
from veil.space import Space
from worlds import codebook, generator, sift_like, unit
from worlds.power import require_even


def test_the_sample_is_uniform_and_bounded() -> None:
    """Statistics: over 1,000 streams of 60 rows each row is kept 20 / 60 of the time; 8 % off would be seen."""
    counts = np.zeros(60)
    for seed in range(1000):
        training = WordTraining(20, seed=seed)
        for part in np.array_split(np.arange(60, dtype=np.float32)[:, None] + 1, 7):
            training.add(part, bytes(32))
        kept = training.sample()
        assert kept.shape == (20, 1)
        counts[kept[:, 0].astype(int) - 1] += 1
    require_even(counts, sees=0.08, spread=40 / 59)
    assert training.seen == 60


def test_a_row_that_is_replaced_twice_is_the_later_one() -> None:
    """Second method: Algorithm R row by row, over images whose rows often meet in one place; shuffled in whole rows."""
    random = generator("reservoir")
    stream = [random.integers(1, 255, (count, 20)).astype(np.uint8) for count in (3, 40, 1, 90)]
    training, twin, kept = WordTraining(5, seed=4), np.random.default_rng(4), list(stream[0])
    seen = len(kept)
    for part in stream:
        training.add(part, bytes(32))
    for part in stream[1:]:
        early = max(0, min(5 - seen, len(part)))
        kept.extend(part[:early])
        targets = twin.integers(0, np.arange(seen + early, seen + len(part)) + 1)
        for target, row in zip(targets, part[early:], strict=True):
            if target < 5:
                kept[target] = row
        seen += len(part)
    np.testing.assert_array_equal(training.sample(), np.array(kept)[twin.permutation(5)])


def test_words_are_unit_vectors_however_many() -> None:
    """Defining equation, over more than one of the blocks in which they are made."""
    stored = np.tile(codebook(generator("many"), 64, 2).stored, (300, 1))
    book = replace(codebook(generator("many"), 64, 2), stored=stored)
    np.testing.assert_array_equal(book.vectors, unit(stored).astype(np.float32))


def test_no_descriptors_is_an_error() -> None:
    with pytest.raises(InputError, match="no descriptors"):
        WordTraining(10, seed=0).sample()


def test_pca_is_the_svd() -> None:
    """Second method: singular vectors of the centered samples, up to sign; rows orthonormal."""
    samples = unit(sift_like(generator("pca"), 300))
    pca = fit_pca(samples, 10)
    expected = np.linalg.svd(samples - samples.mean(axis=0), full_matrices=False)[2][:10]
    np.testing.assert_allclose(np.abs(np.sum(pca.axes * expected, axis=1)), 1, atol=1e-4)
    np.testing.assert_allclose(pca.axes @ pca.axes.T, np.eye(10), atol=1e-5)
    with pytest.raises(RangeError, match="PCA"):
        fit_pca(samples[:5], 10)


@pytest.mark.parametrize("dim", [64, 256])
def test_axes_follow_from_the_spectrum(dim: int) -> None:
    """Planted truth: variances that halve from axis to axis in a turned space; the first n keep 1 - 2^-n of them.

    At least 8 axes are kept, so that subspaces fit, and never all. The bundled codebook keeps the share that others are to.
    """
    random = generator("spectrum")
    turn = np.linalg.qr(random.normal(size=(dim, dim)))[0]
    rows = (random.normal(size=(4000, dim)) * 2.0 ** (-np.arange(dim) / 2)) @ turn
    for share, axes in ((0.9, 8), (1 - 2.0**-9.5, 10), (1 - 2.0**-12.5, 13)):
        assert abs(axes_that_keep(share, rows) - axes) <= 1
    assert axes_that_keep(0.999, random.normal(size=(4000, dim))) == dim - 1
    for bad in (0.0, 1.0, float("nan")):
        with pytest.raises(RangeError, match="share of variance"):
            axes_that_keep(bad, rows)


def test_the_share_is_that_of_the_bundled_codebook() -> None:
    """The defining equation: variance behind the 48 axes over all variance, of the bundled pool as the profile dithers it."""
    book, pool = bundled_codebook(), bundled_decoys().stored[:8000]
    values = unit(pool + generator("dither").uniform(0, 4, pool.shape))
    kept = book.compression.require_pca().apply(values).var(axis=0).sum() / values.var(axis=0).sum()
    assert kept == pytest.approx(VARIANCE_KEPT, abs=0.005)


def test_slices_are_disjoint_and_the_remainder_is_told() -> None:
    book = codebook(generator("slices"), 103, 4)
    assert (book.slice_size, book.remainder) == (25, 3)
    with pytest.raises(RangeError, match="slices"):
        replace(book, slices=60)


def test_every_part_changes_the_hash() -> None:
    book = codebook(generator("hash"), 40, 2)
    other = book.stored.copy()
    other[0, 0] += 1
    variants = [
        replace(book, stored=other),
        replace(book, slices=4),
        replace(book, normalization="L1_ROOT"),
        replace(book, dither_steps=2.0),
        replace(book, pca=None),
        replace(book, provenance=replace(book.provenance, license="other")),
    ]
    digests = {book.digest, *(variant.digest for variant in variants)}
    assert len(digests) == len(variants) + 1
    assert codebook(generator("hash"), 40, 2).digest == book.digest


def test_public_points_meet_hardened_queries_in_the_middle_of_the_dither() -> None:
    """The raw side is shifted by the mean dither: its error against dithered twins is centered on zero."""
    random = generator("middle")
    book = codebook(generator("book"), 64, 2)
    values = sift_like(random, 400)
    points = Points(vectors=unit(values).astype(np.float32), space=book.raw_space)
    moved = book.compression.into_space(points, book.compression.hardened_space)
    dithered = book.compression.require_pca().apply(unit(values + random.uniform(0, 4, values.shape)))
    bias = np.linalg.norm((dithered - moved.vectors).mean(axis=0))
    naive = np.linalg.norm((dithered - book.compression.require_pca().apply(unit(values))).mean(axis=0))
    assert bias < 0.003
    assert naive > 3 * bias
    assert book.compression.into_space(points, points.space) is points
    with pytest.raises(SpaceError, match="does not lead"):
        book.compression.into_space(
            points, Space(descriptor="sift", normalization="L2", dim=64, codebook="0" * 64, dither_steps=4.0)
        )


def test_a_codebook_of_nothing_is_refused() -> None:
    book = codebook(generator("bad"), 40, 2)
    zero = book.stored.copy()
    zero[3] = 0
    with pytest.raises(InputError, match="none of them zero"):
        replace(book, stored=zero)
    with pytest.raises(InputError, match="no PCA"):
        replace(book, pca=None).compression.hardened_space  # noqa: B018
