"""Training of the attacks that learn, `modes` to `whole photograph`, on the attacker's own photographs, for one codebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from veil.attacks.distribution.learned_model import AttackTraining, LearnedModel
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.progress import Progress, ignore_progress
from veil_lab.training.context_options import ContextTraining
from veil_lab.training.density_training import DensityTraining, TrainingState, train_density
from veil_lab.training.photograph_fitting import fit_photographs


def train_learned_model(
    photographs: Sequence[Features],
    book: Codebook,
    *,
    source: str,
    options: DensityTraining | None = None,
    context_options: ContextTraining | None = None,
    whole_steps: int | None = None,
    state: TrainingState | None = None,
    keep: Callable[[TrainingState], None] = lambda state: None,
    on_density: Progress = ignore_progress,
    on_releases: Progress = ignore_progress,
    on_context: Progress = ignore_progress,
    on_whole: Progress = ignore_progress,
) -> LearnedModel:
    """The networks for hardened subspaces that name the codebook `book`, learned from raw features of the attacker's.

    - `photographs`: of the codebook's descriptor, with 8 bits or as floats; of at least three different ones. Copies of one
      have its digest. Their scales say which features `veil privatize` would send.
    - `source`: stored with the networks.
    - `options`, `context_options`: of the density and of context, as by default `veil lab train attacks` has them.
    - `whole_steps`: training steps of the transformer of `whole photograph` (None: there is none).
    - `state`, `keep`: of an interrupted training of the density, as `train_density` takes them.
    - `on_density`, `on_releases`, `on_context`, `on_whole`: called with the numbers of steps done and of all.

    The density is trained in NumPy, context in torch; the law of photographs is fitted in closed form. Raises InputError,
    before any long work, without torch, for photographs of another descriptor, too few of them, and a codebook without a PCA.
    """
    from veil_lab.training.context_training import train_context
    from veil_lab.training.photograph_training import PhotographTraining, train_transformer
    from veil_lab.training.simulated_releases import require_photographs, simulated_releases, torch_device

    options, context_options = options or DensityTraining(), context_options or ContextTraining()
    torch_device(context_options.device)
    for item in photographs:
        if item.space != book.raw_space:
            raise InputError(f"the codebook is for [{book.raw_space}] and a photograph has [{item.space}]")
    require_photographs(photographs)
    law = fit_photographs(photographs, book, source=source)
    density = train_density(
        np.concatenate([item.descriptors for item in photographs]),
        compression=book.compression,
        source=source,
        options=options,
        state=state,
        keep=keep,
        progress=on_density,
    )
    releases = simulated_releases(photographs, book, density, options=context_options, progress=on_releases)
    context = train_context(releases, space=density.space, source=source, options=context_options, progress=on_context)
    whole = None
    if whole_steps is not None:
        photograph_options = PhotographTraining(steps=whole_steps, seed=options.seed)
        whole = train_transformer(releases, space=density.space, source=source, options=photograph_options, progress=on_whole)
    training = AttackTraining(
        image_digests=tuple(dict.fromkeys(item.image_digest[:8].hex() for item in photographs)),
        descriptors=sum(len(item) for item in photographs),
        steps=options.steps,
        context_steps=context_options.steps,
        decoys=options.decoys,
        seed=options.seed,
    )
    return LearnedModel(density=density, context=context, photograph=law, whole=whole, training=training)
