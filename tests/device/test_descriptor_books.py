"""Codebook and decoys made of one sample of descriptors."""

from __future__ import annotations

import numpy as np
import pytest

from veil.codebooks.compression import PCA_DIM
from veil.device.descriptor_books import books_of
from veil.errors import InputError
from veil.mechanisms.profile import HARDENED_DITHER_STEPS
from veil.space import Space
from worlds import generator, sift_like, unit

SPREAD = np.where(np.arange(256) < 20, 1.0, 1e-3)


def signed(dim: int, count: int = 800) -> np.ndarray:
    """Signed descriptors of which 20 dimensions vary, all alike."""
    return unit(generator(f"signed {dim}").normal(size=(count, dim)) * SPREAD[:dim]).astype(np.float32)


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_signed_descriptors_get_the_axes_of_their_spectrum(dim: int) -> None:
    """Planted spectrum: 20 equal axes, of which 86.7 % are 18, or 17 as the largest of a sample are a little larger.

    Words are unit vectors, decoys the descriptors themselves. SIFT's 48 axes would be wrong.
    """
    sample, space = signed(dim), Space(descriptor="network", normalization="L2", dim=dim)
    books = books_of(sample, space, 64, name="planted", image_digests=["ab" * 8])
    assert len(books.codebook.compression.require_pca().axes) in (17, 18)
    assert books.codebook.dither_steps == 0 and books.codebook.raw_space == books.decoys.raw_space == space
    assert books.codebook.stored.shape == (64, dim) and len(books.decoys) == 800
    np.testing.assert_allclose(np.linalg.norm(books.codebook.vectors, axis=1), 1, atol=1e-5)
    assert {row.tobytes() for row in books.decoys.stored} == {row.tobytes() for row in sample}


def test_quantized_descriptors_get_what_sift_gets_and_no_decoy_twice() -> None:
    sample = sift_like(generator("books"), 300)
    space = Space(descriptor="sift", normalization="L2", dim=128)
    books = books_of(np.concatenate([sample, sample[:50]]), space, 32, name="planted", image_digests=[])
    assert len(books.decoys) == 300
    assert len(books.codebook.compression.require_pca().axes) == PCA_DIM
    assert books.codebook.dither_steps == HARDENED_DITHER_STEPS


def test_the_pool_is_used_as_releases_use_it() -> None:
    """800 decoys and 40 features of 4: more than one run would serve each decoy more than 0.1 times; of 5 features, four."""
    books = books_of(signed(64), Space(descriptor="n", normalization="L2", dim=64), 16, name="planted", image_digests=[])
    assert books.for_images_of(40).decoys.slices == 1
    assert books.for_images_of(5).decoys.slices == 4


def test_too_few_descriptors_and_evaluated_photographs_are_refused() -> None:
    space = Space(descriptor="n", normalization="L2", dim=64)
    with pytest.raises(InputError, match="800 different descriptors of n are too few for 401 words"):
        books_of(signed(64), space, 401, name="planted", image_digests=[])
    books = books_of(signed(64), space, 16, name="planted", image_digests=["ab" * 8])
    books.require_others([b"\xcd" * 32])
    with pytest.raises(InputError, match="1 of the photographs are among those"):
        books.require_others([b"\xcd" * 32, b"\xab" * 32])
