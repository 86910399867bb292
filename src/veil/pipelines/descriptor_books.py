"""Codebook and decoys of one descriptor, made from photographs: what its hardened profile and its words need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.compression import PCA_DIM, VARIANCE_KEPT, Pca, axes_that_keep, fit_pca
from veil.codebooks.decoys import DecoyPool, in_runs
from veil.codebooks.dictionary import Dictionary
from veil.codebooks.kmeans import chosen_method, train_words, unit_rows
from veil.errors import InputError
from veil.mechanisms.profile import HARDENED_DITHER_STEPS, HARDENED_M
from veil.progress import Progress, ignore_progress
from veil.space import Space

ITERATIONS = 8
SLICES = 16  # of a pool, at most: as `veil codebook build` makes it


@dataclass(frozen=True, kw_only=True, eq=False)
class DescriptorBooks:
    """The codebook (dictionary of words, PCA) and the pool of decoys of one descriptor; `name` says where they come from."""

    name: str
    codebook: Codebook
    decoys: Codebook

    def for_images_of(self, features: int) -> DescriptorBooks:
        """These books with the pool in as many runs as `veil privatize` uses for images that send so many features."""
        return replace(self, decoys=in_runs(self.decoys, features * HARDENED_M))

    def require_others(self, digests: Iterable[bytes]) -> None:
        """Raise InputError if an image of these digests is one of those that codebook or decoys were made from."""
        own = {*self.codebook.provenance.image_digests, *self.decoys.provenance.image_digests}
        shared = sum(digest[:8].hex() in own for digest in digests)
        if shared:
            raise InputError(
                f"{shared} of the photographs are among those that codebook or decoys of {self.codebook.descriptor} were made "
                "from, which makes the measurement too good; make them from other photographs"
            )


def books_of(
    sample: np.ndarray,
    space: Space,
    words: int,
    *,
    name: str,
    image_digests: Sequence[str],
    seed: int = 0,
    progress: Progress = ignore_progress,
) -> DescriptorBooks:
    """A dictionary of so many words with the PCA of the hardened profile, and a pool of the descriptors themselves.

    `sample`, uint8 or float32 (descriptors, dim), is in random order, and of the images `image_digests`; `name` is kept as
    their source. Raises InputError if there are too few descriptors for the words, or for a PCA.
    """
    pool = sample[np.sort(np.unique(sample, axis=0, return_index=True)[1])]
    if len(pool) < 2 * words:
        raise InputError(
            f"{name}: {len(pool)} different descriptors of {space.descriptor} are too few for {words} words; give more "
            f"photographs, or ask for {len(pool) // 2} words at most"
        )
    pca = hardened_pca(sample, seed)
    if pca is None:
        raise InputError(f"{name}: {len(sample)} descriptors of {space.dim} dimensions are too few for a PCA; give more")
    stored = train_words(
        sample, words, method=chosen_method("auto", words), iterations=ITERATIONS, seed=seed, on_words=progress
    )
    provenance = Provenance(
        source=name,
        license="",
        image_count=len(image_digests),
        descriptor_count=len(sample),
        image_digests=tuple(image_digests),
    )
    dither = HARDENED_DITHER_STEPS if sample.dtype == np.uint8 else 0.0
    shuffled = stored[np.random.default_rng(seed).permutation(len(stored))]
    codebook = Dictionary(
        descriptor=space.descriptor,
        normalization=space.normalization,
        stored=shuffled,
        slices=1,
        pca=pca,
        dither_steps=dither,
        provenance=provenance,
    )
    decoys = DecoyPool(
        descriptor=space.descriptor,
        normalization=space.normalization,
        stored=np.ascontiguousarray(pool),
        slices=SLICES,
        pca=None,
        dither_steps=0.0,
        provenance=provenance,
    )
    return DescriptorBooks(name=name, codebook=codebook, decoys=decoys)


def hardened_pca(sample: np.ndarray, seed: int) -> Pca | None:
    """The PCA of the hardened profile: 48 axes of 8-bit descriptors, of others as many as keep as much of their variance.

    `sample` is uint8 or float32 (descriptors, dim), `seed` that of the dither of 8-bit descriptors. None for a sample that is
    too small for one.
    """
    if sample.dtype == np.uint8:
        return fit_pca(_dithered(sample, seed), PCA_DIM)
    unit = unit_rows(sample)
    axes = axes_that_keep(VARIANCE_KEPT, unit)
    return fit_pca(unit, axes) if len(unit) > axes < unit.shape[1] else None


def _dithered(sample: np.ndarray, seed: int) -> np.ndarray:
    """The sample dithered and of unit length, as the hardened profile will compress descriptors: the PCA is fitted to that."""
    values = sample + np.random.default_rng(seed).uniform(0, HARDENED_DITHER_STEPS, sample.shape)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values
