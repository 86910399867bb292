"""Words in 8 bits: near to what was rounded, on no grid, the same bits everywhere, and refused where they are damaged."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.codebooks.codebook import Provenance
from veil.codebooks.decoys import DecoyPool
from veil.codebooks.eight_bits import EightBitWords
from veil.errors import FileFormatError, InputError, RangeError
from veil.files.codebooks import BUNDLED, bundled_codebook, bundled_decoys, read_codebook, write_codebook
from veil.mechanisms.subspaces import grain_of, on_eight_bit_grid
from veil.space import DIMS
from worlds import generator, unit

VECTORS = unit(generator("eight bits").normal(size=(500, 128))).astype(np.float32)


def test_words_are_near_to_what_was_rounded() -> None:
    """Defining property: rounding and dither move a coordinate by one level at most, before the length is made one again."""
    small = EightBitWords.of(VECTORS, 0)
    assert small.levels.dtype == np.int8 and (np.abs(small.levels).max(axis=1) == 127).all()
    words = small.words()
    assert words.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(words.astype(np.float64), axis=1), 1, atol=1e-6)
    level = np.abs(VECTORS).max(axis=1, keepdims=True) / 127
    assert (np.abs(words / np.abs(words).max(axis=1, keepdims=True) * 127 - VECTORS / level) < 3).all()
    # Rounding and dither are two uniform errors of a level each: sqrt(2 / 12) levels in each of 128 coordinates.
    expected = np.sqrt(128 * 2 / 12) * level.mean()
    assert 0.9 * expected < np.linalg.norm(words - VECTORS, axis=1).mean() < 1.1 * expected


def test_no_grain_tells_such_words_from_descriptors() -> None:
    """Oracle: the checks that refuse decoys of a coarser grain. Broken twin: the levels themselves, without a dither."""
    small = EightBitWords.of(VECTORS, 7)
    assert grain_of(small.words()).is_full and not on_eight_bit_grid(small.words())
    assert on_eight_bit_grid(unit(small.levels.astype(np.float64)).astype(np.float32))


def test_words_are_the_same_bits_everywhere() -> None:
    """Golden value: the dither is SHAKE-256's, and no sum of floats is rounded; another seed gives other words."""
    small = EightBitWords(levels=np.arange(-8, 8, dtype=np.int8).reshape(2, 8), seed=3)
    digest = hashlib.sha256(small.words().tobytes()).hexdigest()
    assert digest == "be73d0b39e40ee70c7a46db96bc411319e0fb426b06fa4baf6d91f7a78ef1dc4"
    assert not np.array_equal(small.words(), replace(small, seed=4).words())


def test_what_is_damaged_is_refused() -> None:
    with pytest.raises(InputError, match="zero"):
        EightBitWords(levels=np.zeros((2, 8), dtype=np.int8), seed=0)
    with pytest.raises(RangeError, match="seed"):
        EightBitWords(levels=np.ones((2, 8), dtype=np.int8), seed=-1)
    for value in (0.0, np.nan):
        with pytest.raises(InputError, match="finite"):
            EightBitWords.of(np.full((2, 8), value, dtype=np.float32), 0)


def test_a_file_of_them_gives_the_book_back(tmp_path: Path) -> None:
    """Inverse pair: the file is a quarter as large, its book has the same hash; a changed level or seed is noticed."""
    small = EightBitWords.of(VECTORS, 5)
    book = DecoyPool(
        descriptor="aliked-n16rot",
        normalization="L2",
        stored=small.words(),
        slices=4,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="s", license="l", image_count=1, descriptor_count=500, image_digests=("ab" * 8,)),
    )
    path, large = tmp_path / "small.npz", tmp_path / "large.npz"
    written = write_codebook(path, replace(book, stored=VECTORS), dither_seed=5)
    np.testing.assert_array_equal(written.stored, small.words())
    write_codebook(large, book)
    assert path.stat().st_size < 0.3 * large.stat().st_size
    assert read_codebook(path).digest == book.digest == read_codebook(large).digest
    with pytest.raises(InputError, match="8 bits already"):
        write_codebook(path, replace(book, stored=np.ones((500, 128), np.uint8)), dither_seed=6)
    changed = small.levels.copy()
    changed[3, 4] ^= 1
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **{**arrays, "words": changed})
    with pytest.raises(FileFormatError, match="hash"):
        read_codebook(path)
    np.savez(path, **{**arrays, "words": small.words()})
    with pytest.raises(FileFormatError, match="8 bits"):
        read_codebook(path)


@pytest.mark.parametrize("descriptor", sorted(BUNDLED))
def test_bundled_books_fit_each_other(descriptor: str) -> None:
    """Bundled books serve a default release: one space, a PCA, a pool for 1,000 features, and named sources and licenses."""
    book, pool = bundled_codebook(descriptor), bundled_decoys(descriptor)
    assert book.raw_space == pool.raw_space and book.descriptor == descriptor and book.dim == DIMS[descriptor]
    assert book.kind == "centroids" and pool.kind == "descriptors" and book.pca is not None
    assert len(pool) >= 1000 * 4 / 0.25
    for part in (book, pool):
        assert part.provenance.source and part.provenance.license and part.provenance.image_digests


def test_a_descriptor_without_books_gets_those_of_sift() -> None:
    """They do not fit, and their space says so where they are used."""
    assert bundled_codebook("xfeat").descriptor == bundled_decoys("xfeat").descriptor == "sift"
