"""`veil lab train attacks`: networks for attacks on hardened subspaces, from the attacker's own photographs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from veil.cli.common import Bar, Commands, at_least, progress, quiet_colmap, report, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.attack_networks import write_learned_model
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.files.features import holds_features, read_features
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.threads import cores
from veil_lab.files.trainings import read_training_state, write_training_state
from veil_lab.training.altered import altered_copies
from veil_lab.training.context_options import ContextTraining
from veil_lab.training.density_training import DensityTraining, TrainingState
from veil_lab.training.learning import train_learned_model

EXAMPLES = """\
  veil lab train attacks photos/ -o model.npz                          some forty minutes on two cores
  veil lab train attacks features.h5 -o model.npz --codebook mine.npz  for releases that name a codebook of your own
  veil lab train attacks aliked.h5 -o model.npz                        ALIKED's features, for its bundled codebook
  veil lab train attacks photos/ -o model.npz --whole-steps 2700       with `whole photograph`, on a graphics processor
  veil lab train attacks photos/ -o model.npz --resume                 go on after an interruption
"""
# Steps between two states on disk.
KEPT_EVERY = 250


@dataclass(frozen=True, kw_only=True)
class TrainAttacks(Record):
    """Train the networks of the attacks `modes` and `context` on hardened subspaces, from photographs that the attacker
    has: what descriptors are likely, and which go together in a photograph. An audit uses the bundled ones for the bundled
    codebook; train your own for another codebook, or to attack with photographs like yours. The density is trained in
    NumPy, context in torch (`pip install 'veil-lab[training]'`). The defaults are made for two cores. A graphics processor
    is used where there is one; it takes minutes for --context-releases 1600 --context-steps 3000, which teach far more.
    """

    photos: tuple[Path, ...] = positional("photographs, folders of these, or features.h5", metavar="PATH")
    output: Path = option("where to write (.npz)", required=True, short="-o", metavar="FILE")
    codebook: Path | None = option("codebook that releases name (default: the bundled one)", metavar="FILE")
    steps: int = option(
        "training steps of the density (default %(default)s)", default=DensityTraining().steps, parse=at_least(1)
    )
    context_steps: int = option(
        "training steps of each network of context (default %(default)s)", default=ContextTraining().steps, parse=at_least(1)
    )
    context_releases: int = option(
        "releases of these photographs that context is learned from (default %(default)s)",
        default=ContextTraining().releases,
        parse=at_least(1),
    )
    whole_steps: int | None = option(
        "training steps of the transformer of `whole photograph`, for a graphics processor (default: none is trained)",
        parse=at_least(1),
        metavar="N",
    )
    every: int = option("take each N-th photograph (default all)", default=1, parse=at_least(1), metavar="N")
    skip: int = option("begin after the first K photographs", default=0, parse=at_least(0), metavar="K")
    max_features: int = option("features of a photograph at most (default %(default)s)", default=2000, parse=at_least(10))
    copies: Literal[0, 1, 2, 3, 4, 5] = option(
        "altered copies of each photograph to learn from, too: mirrored, smaller, larger (default %(default)s)", default=0
    )
    source: str = option("where the photographs come from; stored with the networks", default="")
    seed: int = option("seed of the training (default %(default)s)", default=0, parse=at_least(0))
    resume: bool = option("go on from what an interrupted run left beside --output", default=False)
    json: Path | None = json_file()


def register(actions: Commands) -> None:
    """Add `veil lab train attacks` to the subparsers `actions`."""
    summary = "photographs -> networks of the attacks `modes` and `context`"
    add_record_command(actions, "attacks", summary, EXAMPLES, TrainAttacks, _train)


def _train(arguments: TrainAttacks) -> int:
    """Run the command; exit code 0."""
    from veil_lab.training.simulated_releases import torch  # refused before any work where it is missing

    quiet_colmap()
    torch.set_num_threads(cores())
    photographs = _read(arguments)
    kind = photographs[0].space.descriptor
    book = read_codebook(arguments.codebook) if arguments.codebook else bundled_codebook(kind)
    options = DensityTraining(steps=arguments.steps, seed=arguments.seed)
    kept = arguments.output.with_name(f"{arguments.output.name}.part")
    state = read_training_state(kept, options) if arguments.resume else None

    def keep(reached: TrainingState) -> None:
        if reached.step % KEPT_EVERY == 0:
            write_training_state(kept, options, reached)

    context = ContextTraining(steps=arguments.context_steps, releases=arguments.context_releases, seed=arguments.seed)
    with (
        Bar("training the density") as density,
        Bar("simulating releases") as released,
        Bar("training context") as trained,
        Bar("training the transformer") as whole,
    ):
        model = train_learned_model(
            photographs,
            book,
            source=arguments.source or f"{len(photographs)} photographs",
            options=options,
            context_options=context,
            whole_steps=arguments.whole_steps,
            state=state,
            keep=keep,
            on_density=density,
            on_releases=released,
            on_context=trained,
            on_whole=whole,
        )
    training = model.training
    write_learned_model(arguments.output, model)
    kept.unlink(missing_ok=True)
    write_json(
        arguments.json,
        {
            "photographs": len(training.image_digests),
            "features": training.descriptors,
            "steps": training.steps,
            "context_steps": training.context_steps,
        },
    )
    report(arguments, arguments.output, "the networks")
    return 0


def _read(arguments: TrainAttacks) -> list[Features]:
    """Features of every N-th photograph, in the order of their names, and of its altered copies."""
    files = [path for path in arguments.photos if holds_features(path)]
    features = [item for file in files for _, item in read_features(file)]
    folders = [path for path in arguments.photos if path not in files]
    options = SiftOptions(max_features=arguments.max_features)
    chosen = list(named_pictures(folders))[arguments.skip :: arguments.every] if folders else []
    for _, path in progress(chosen, "extracting"):
        try:
            shown = read_picture(path)
            features.append(extract_sift(shown, options))
        except InputError:  # a blank one teaches nothing
            continue
        for copy in altered_copies(shown, arguments.copies):
            with suppress(InputError):
                features.append(extract_sift(copy, options))
    if not features:
        raise InputError("no features were found in these photographs; give others")
    return features
