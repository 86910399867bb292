"""Training of the attacks `modes` and `context` on the attacker's own photographs, for one codebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from veil.attacks.distribution.learned_model import AttackTraining, LearnedModel
from veil.codebooks.codebook import Codebook
from veil.codebooks.compression import Compression
from veil.errors import InputError
from veil.features import Features
from veil.progress import Progress, ignore_progress
from veil_lab.training.density_training import DensityTraining, TrainingState, train_density
from veil_lab.training.pair_training import PairTraining, TrainingPhotograph, train_pairs


def train_learned_model(
    photographs: Sequence[Features],
    book: Codebook,
    *,
    source: str,
    options: DensityTraining | None = None,
    pair_options: PairTraining | None = None,
    state: TrainingState | None = None,
    keep: Callable[[TrainingState], None] = lambda state: None,
    on_density: Progress = ignore_progress,
    on_pairs: Progress = ignore_progress,
) -> LearnedModel:
    """The networks for hardened subspaces that name the codebook `book`, learned from raw features of the attacker's.

    - `photographs`: of the codebook's descriptor, with 8 bits or as floats.
    - `source`: stored with the networks.
    - `options`, `pair_options`: of the density and of the neighbors' network, as by default `veil lab train attacks` has them.
    - `state`, `keep`: of an interrupted training of the density, as `train_density` takes them.
    - `on_density`, `on_pairs`: called with the numbers of steps done and of all.

    Raises InputError for photographs of another descriptor, too few descriptors, and a codebook without a PCA.
    """
    options, pair_options = options or DensityTraining(), pair_options or PairTraining()
    for item in photographs:
        if item.space != book.raw_space:
            raise InputError(f"the codebook is for [{book.raw_space}] and a photograph has [{item.space}]")
    density = train_density(
        np.concatenate([item.descriptors for item in photographs]),
        compression=book.compression,
        source=source,
        options=options,
        state=state,
        keep=keep,
        progress=on_density,
    )
    pairs = train_pairs(
        _compressed(photographs, book, options.seed),
        space=book.compression.hardened_space,
        source=source,
        options=pair_options,
        progress=on_pairs,
    )
    training = AttackTraining(
        image_digests=tuple(dict.fromkeys(item.image_digest[:8].hex() for item in photographs)),
        descriptors=sum(len(item) for item in photographs),
        steps=options.steps,
        pair_steps=pair_options.steps,
        decoys=options.decoys,
        seed=options.seed,
    )
    return LearnedModel(density=density, pairs=pairs, training=training)


def _compressed(photographs: Sequence[Features], book: Codebook, seed: int) -> list[TrainingPhotograph]:
    """Photographs with their descriptors dithered and compressed, as vertices of hardened subspaces are."""
    compression: Compression = book.compression
    pca, random = compression.require_pca(), np.random.default_rng(seed)
    compressed = []
    for item in photographs:
        drawn = item.descriptors.astype(np.float64) + compression.dither_steps * random.random(item.descriptors.shape)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        size = item.camera.width_px, item.camera.height_px
        vectors = pca.apply(drawn).astype(np.float32)
        compressed.append(TrainingPhotograph(vectors=vectors, keypoints=item.keypoints, size_px=size))
    return compressed
