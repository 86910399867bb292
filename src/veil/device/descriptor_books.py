"""Codebook and decoys of one descriptor, made from photographs: what its hardened profile and its words need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.compression import PCA_DIM, VARIANCE_KEPT, Pca, axes_that_keep, fit_pca
from veil.codebooks.decoys import DecoyPool, in_runs
from veil.codebooks.dictionary import Dictionary
from veil.codebooks.kmeans import FLAT_WORDS, chosen_method, train_words, unit_rows
from veil.codebooks.sampling import WordTraining
from veil.errors import InputError
from veil.features import Features
from veil.mechanisms.profile import HARDENED_DITHER_STEPS, HARDENED_M
from veil.progress import Progress, ignore_progress
from veil.space import Space

ITERATIONS = 8
SLICES = 16  # of a pool, at most: as `veil codebook build` makes it
SAMPLE, SAMPLE_A_WORD = 400_000, 10
PCA_SAMPLE = 100_000  # descriptors of a sample that is too large to be float64 as a whole


@dataclass(frozen=True, kw_only=True, eq=False)
class DescriptorBooks:
    """The codebook (dictionary of words, PCA) and the pool of decoys of one descriptor; `name` says where they come from."""

    name: str
    codebook: Codebook
    decoys: Codebook

    def for_images_of(self, features: int) -> DescriptorBooks:
        """These books with the pool in as many runs as `veil privatize` uses for images that send this number of features."""
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
    """A dictionary of a number of words with the PCA of the hardened profile, and a pool of the descriptors themselves.

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


def build_codebook(
    images: Iterable[Features],
    words: int = FLAT_WORDS,
    *,
    decoy_pool: bool = False,
    slices: int = SLICES,
    method: Literal["auto", "flat", "hierarchical"] = "auto",
    iterations: int = 15,
    sample: int | None = None,
    seed: int = 0,
    source: str = "",
    license: str = "",
    progress: Progress = ignore_progress,
) -> Codebook:
    """A codebook made from photographs: a `Dictionary` with the PCA of the hardened profile, or a `DecoyPool`.

    It tells of the photographs and keeps their digests. Never build a decoy pool from photographs that you will release.

    - `images`: raw features, all of one kind; one image is in memory at a time.
    - `words`: number of words, or of decoys.
    - `decoy_pool`: keeps real descriptors in place of the centers of clusters.
    - `slices`: disjoint sub-databases, at most.
    - `method`, `iterations`: of k-means; "auto" is flat up to 16,384 words and hierarchical, in two levels, above.
    - `sample`: descriptors to cluster; None: 400,000, or ten for each word if that is more.
    - `seed`: of the sample and of k-means.
    - `source`, `license`: of the photographs; both are stored.
    - `progress`: called with the number of steps of the clustering and of all.

    Raises InputError for features of several kinds, and for too few descriptors.
    """
    # A pool loses its duplicates, so a little more than `words` is kept.
    capacity = words + words // 16 if decoy_pool else max(sample or max(SAMPLE, SAMPLE_A_WORD * words), words)
    training, space = WordTraining(capacity, seed=seed), None
    for features in images:
        if space not in (None, features.space):
            raise InputError(f"features of [{features.space}] and of [{space}] cannot make one codebook; give one kind")
        training.add(features.descriptors, features.image_digest)
        space = features.space
    if space is None:
        raise InputError("a codebook needs the features of a photograph or more")
    kind = None if decoy_pool else chosen_method(method, words)

    def clustered(rows: np.ndarray) -> np.ndarray:
        assert kind is not None
        return train_words(rows, words, method=kind, iterations=iterations, seed=seed, on_words=progress)

    return assembled(
        training.sample(),
        training,
        space,
        words,
        None if decoy_pool else clustered,
        is_flat=kind == "flat",
        slices=slices,
        seed=seed,
        source=source,
        license=license,
    )


def assembled(
    sample: np.ndarray,
    training: WordTraining,
    space: Space,
    words: int,
    clustered: Callable[[np.ndarray], np.ndarray] | None,
    *,
    is_flat: bool,
    slices: int,
    seed: int,
    source: str,
    license: str,
    fewer: bool = False,
) -> Codebook:
    """The codebook of the `sample` of `training`: its words by `clustered`, or a pool of decoys if that is None.

    `fewer` allows a pool of fewer decoys than `words`. Raises InputError for a sample that cannot give this number.
    """
    if clustered is None:  # a word that is there twice would be drawn twice as often, and twice for one descriptor
        sample = sample[np.sort(np.unique(sample, axis=0, return_index=True)[1])]
        words = min(words, len(sample)) if fewer else words
    if len(sample) < words:
        raise InputError(f"{len(sample)} descriptors cannot give {words} words; add photographs or ask for fewer")
    pca: Pca | None = None
    stored = sample[:words]
    if clustered is not None:
        pca = hardened_pca(sample if is_flat else sample[:PCA_SAMPLE], seed)
        stored = clustered(sample)
        # k-means leaves similar words side by side; sub-databases must be uniform draws
        # (lifting.md#sub-databases-and-collisions).
        stored = stored[np.random.default_rng(seed).permutation(len(stored))]
    return (DecoyPool if clustered is None else Dictionary)(
        descriptor=space.descriptor,
        normalization=space.normalization,
        stored=np.ascontiguousarray(stored),
        slices=min(slices, max(len(stored) // 2, 1)),
        pca=pca,
        dither_steps=HARDENED_DITHER_STEPS if pca is not None and sample.dtype == np.uint8 else 0.0,
        provenance=Provenance(
            source=source,
            license=license,
            image_count=len(training.image_digests),
            descriptor_count=training.seen,
            image_digests=tuple(training.image_digests),
        ),
    )


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
