"""`veil lab train inversion`: train networks that turn a server's view into pictures."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from veil.cli.common import Bar, Commands, at_least, quiet_colmap, report, say, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.codebooks.codebook import Codebook
from veil.engine import Engine, open_engine
from veil.errors import InputError, TaskError
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.files.maps.checkpoints import run_key
from veil.files.photographs.pictures import named_pictures, read_rgb
from veil.inversion.maps import Kind
from veil.inversion.weights import Training, Weights
from veil.mechanisms.profile import STRATEGIES, Strategy
from veil.threads import cores

if TYPE_CHECKING:
    from veil_lab.files.trainings import Workshop
    from veil_lab.training.inversion_training import State, TrainingOptions
    from veil_lab.training.photos import Example, ServerView

EXAMPLES = """\
  veil lab train inversion photos/ --input raw -o raw.npz --minutes 40 --steps 20000 --seed 0
  veil lab train inversion photos/ --input subspaces --m 2 4 8 16 -o direct.npz --minutes 60 --steps 20000 --seed 0
  veil lab train inversion photos/ --input subspaces --lifting random --m 2 -o random.npz --steps 400 --seed 0
  veil lab train inversion photos/ --input words --epsilon 8 10 12 --start bundled -o words.npz --steps 20000 --seed 0
  veil lab train inversion photos/ --input raw -o raw.npz --minutes 40 --steps 20000 --seed 0 --resume
  veil lab train inversion photos/ --input raw --start raw.npz -o better.npz --minutes 90 --steps 40000 --seed 1
"""
DIMS = {"raw": [], "subspaces": [2, 4, 8, 16], "words": [2]}
LOGGED_STEPS = 100
SUB_HYBRID: Strategy = "sub-hybrid"
WORD_EPSILONS = (12.0,)
BUNDLED = "bundled"


@dataclass(frozen=True, kw_only=True)
class TrainInversion(Record):
    """Train a network on photographs that you may use for it. Each is varied --variants times (in other light and
    size), with few or many features extracted anew, and mirrored at random. The weights carry a hash and the
    choices below. An unfinished run is kept in FILE.unfinished/ with all variations, some 450 kB each.
    """

    photos: tuple[Path, ...] = positional("photographs or folders of them")
    input: Kind = option("what is known at keypoints", required=True)
    m: tuple[int, ...] | None = option("of subspaces (default 2 4 8 16), or of words (default 2)", parse=at_least(1))
    lifting: Strategy = option("of subspaces (default %(default)s)", default=SUB_HYBRID, choices=STRATEGIES)
    epsilon: tuple[float, ...] = option("of words (default 12)", default=WORD_EPSILONS)
    codebook: Path | None = option("decoys or dictionary (default: the bundled codebook)", metavar="FILE")
    output: Path = option("weights to write (.npz)", required=True, short="-o", metavar="FILE")
    start: Path | None = option("weights to start from, or 'bundled' (default: random ones)", metavar="FILE")
    steps: int = option("at most; the learning rate ends with them", required=True, parse=at_least(1))
    minutes: float | None = option("of training at most; the learning rate ends with them")
    seed: int = option("of variations, weights and order", required=True, parse=at_least(0))
    batch: int = option("pictures a step (default %(default)s)", default=4, parse=at_least(1))
    variants: int = option("of each photograph (default %(default)s)", default=4, parse=at_least(1))
    precision: Literal["auto", "float32", "bfloat16"] = option(
        "auto: what is faster here",
        default="auto",
    )
    source: str = option("what the photographs are; kept with the weights", default="")
    license: str = option("of the photographs; kept with the weights", default="")
    resume: bool = option("go on with an unfinished run of the same options", default=False)
    json: Path | None = json_file()


def register(actions: Commands) -> None:
    """Add `veil lab train inversion` to the subparsers `actions`."""
    summary = "photographs -> weights of an inversion network"
    add_record_command(actions, "inversion", summary, EXAMPLES, TrainInversion, _train)


def _train(arguments: TrainInversion) -> int:
    from veil.files.attack_networks import bundled_inverter, read_weights, write_weights
    from veil.inversion.network import torch
    from veil_lab.files.trainings import Workshop
    from veil_lab.training.inversion_training import train
    from veil_lab.training.photos import Ahead, ServerView, Supply

    quiet_colmap()
    dims = tuple(arguments.m or DIMS[arguments.input])
    codebook = None if arguments.input == "raw" else _codebook(arguments.codebook)
    view = ServerView(kind=arguments.input, dims=dims, codebook=codebook, epsilons=arguments.epsilon, lifting=arguments.lifting)
    options = _options(arguments)
    photographs = named_pictures(arguments.photos)
    folder = arguments.output.with_name(arguments.output.name + ".unfinished")
    start = None
    if arguments.start is not None:
        start = bundled_inverter() if str(arguments.start) == BUNDLED else read_weights(arguments.start)
    workshop = Workshop(folder, _key(arguments, photographs, view, start), resume=arguments.resume)
    with open_engine() as engine, _Log(arguments, workshop) as log:
        kept = _examples(arguments, photographs, workshop, engine)
        say(arguments, f"{len(kept)} variations of {len(photographs)} photographs")
        supply = Supply(
            load=partial(_stored, workshop, kept), count=len(kept), view=view, batch=arguments.batch, seed=arguments.seed
        )
        torch.set_num_threads(cores())  # the work of a step cannot be shared out but inside of its products
        before = _state(workshop)
        state = train(
            arguments.input,
            # On a GPU a step is soon over, and batches are made by all cores; on these, the network needs them.
            Ahead(supply, engine, first=0 if before is None else before.step) if options.device == "cuda" else supply,
            options,
            state=before,
            start=start,
            progress=log.progress,
            checkpoint=log.checkpoint,
        )
    weights = Weights(
        kind=arguments.input,
        arrays=state.weights(),
        training=_provenance(arguments, state, len(photographs), dims, codebook, start),
    )
    write_weights(arguments.output, weights)
    workshop.remove()
    record = {**weights.header, "sha256": weights.digest, "parameters": sum(a.size for a in weights.arrays.values())}
    write_json(arguments.json, {**record, "bytes": arguments.output.stat().st_size, "losses": log.means})
    report(arguments, arguments.output, f"weights after {state.step} steps in {state.seconds / 60:.0f} minutes")
    return 0


def _codebook(path: Path | None) -> Codebook:
    return bundled_codebook() if path is None else read_codebook(path)


def _options(arguments: TrainInversion) -> TrainingOptions:
    from veil.inversion.network import torch
    from veil_lab.training.inversion_training import TrainingOptions

    device: Literal["cpu", "cuda"] = "cuda" if torch.cuda.is_available() else "cpu"
    return TrainingOptions(
        steps=arguments.steps, minutes=arguments.minutes, seed=arguments.seed, precision=arguments.precision, device=device
    )


def _key(arguments: TrainInversion, photographs: list[tuple[str, Path]], view: ServerView, start: Weights | None) -> str:
    """Digest of everything that changes examples or weights, except limits of time: a resumed run may be given more of it."""
    choices = (view.kind, view.dims, view.epsilons, view.lifting, arguments.seed, arguments.batch, arguments.variants)
    digest = ("" if view.codebook is None else view.codebook.digest) + ("" if start is None else start.digest)
    files = [hashlib.sha256(path.read_bytes()).digest() for _, path in photographs]
    return run_key([repr(choices).encode(), digest.encode(), *files])


def _examples(arguments: TrainInversion, photographs: list[tuple[str, Path]], workshop: Workshop, engine: Engine) -> list[int]:
    """Make the examples that are missing, on all cores, and return the numbers of all that have features."""
    items = [(path, number) for number, (_, path) in enumerate(photographs)]
    task = partial(_varied, variants=arguments.variants, seed=arguments.seed)
    try:
        with Bar("extracting") as bar, engine.scatter(workshop) as shared:
            kept = sorted(index for _, made in engine.map(task, items, shared=[shared], progress=bar) for index in made)
    except TaskError as error:
        raise error.__cause__ or error from None  # it names the photograph
    if not kept:
        raise InputError("none of these photographs has features; give others")
    return kept


def _varied(item: tuple[Path, int], workshop: Workshop, *, variants: int, seed: int) -> list[int]:
    """Make the examples of a photograph that are missing, and return the numbers of all of them: a task of an engine."""
    from veil_lab.training.photos import varied

    quiet_colmap()
    (path, number), kept, rgb = item, [], None
    for variant in range(variants):
        index = number * variants + variant
        if workshop.example(index) is None:
            rgb = read_rgb(path) if rgb is None else rgb
            try:
                example = varied(rgb, np.random.default_rng([seed, 0, number, variant]))
            except InputError:  # a blank photograph
                continue
            workshop.save_example(index, example)
        kept.append(index)
    return kept


def _stored(workshop: Workshop, kept: Sequence[int], place: int) -> Example:
    """The stored example at this place among those kept. Raises InputError if it was lost."""
    example = workshop.example(kept[place])
    if example is None:
        raise InputError("an example of the unfinished training was lost; start again with --resume")
    return example


def _state(workshop: Workshop) -> State | None:
    """The state from which a training is resumed; None at its start."""
    from veil_lab.training.inversion_training import State

    stored = workshop.state()
    if stored is None:
        return None
    arrays, header = stored
    return State(kind=header["kind"], step=header["step"], seconds=header["seconds"], arrays=arrays)


class _Log:
    """The log of a training: a progress bar, mean losses for machines, and checkpoints with a line for people."""

    def __init__(self, arguments: TrainInversion, workshop: Workshop) -> None:
        self._arguments, self._workshop = arguments, workshop
        self._bar = Bar("training")
        self._recent: list[float] = []
        self.means: list[dict] = []

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *rest: object) -> None:
        self._bar.__exit__(*rest)

    def progress(self, step: int, share: float, loss: float) -> None:
        if not math.isfinite(loss):
            raise InputError(f"training diverged at step {step}; train with another seed or --precision float32")
        self._recent.append(loss)
        self._bar(round(1000 * share), 1000)
        if step % LOGGED_STEPS == 0 or share >= 1:
            self.means.append({"step": step, "loss": float(np.mean(self._recent))})
            self._recent = []

    def checkpoint(self, state: State) -> None:
        self._workshop.save_state(state.arrays, {"kind": state.kind, "step": state.step, "seconds": state.seconds})
        last = f", loss {self.means[-1]['loss']:.4f}" if self.means else ""
        say(self._arguments, f"{state.step} steps in {state.seconds / 60:.1f} minutes{last}")


def _provenance(
    arguments: TrainInversion,
    state: State,
    photographs: int,
    dims: tuple[int, ...],
    codebook: Codebook | None,
    start: Weights | None,
) -> Training:
    """The record of a training, with the command line that repeats it."""
    of_input = {"raw": [], "subspaces": ["m", "lifting"], "words": ["m", "epsilon"]}[arguments.input]
    names = ["input", *of_input, "steps", "minutes", "seed", "batch", "variants"]
    given = [(name, getattr(arguments, name)) for name in names]
    words = [
        [f"--{name}", *map(str, value if isinstance(value, tuple) else [value])] for name, value in given if value is not None
    ]
    command = [
        "veil",
        "lab",
        "train",
        "inversion",
        "PHOTOS",
        *(word for part in words for word in part),
        *([] if start is None else ["--start", str(arguments.start and arguments.start.name)]),
        "--output",
        arguments.output.name,
    ]
    return Training(
        photographs=photographs,
        source=arguments.source,
        license=arguments.license,
        command=shlex.join(command),
        steps=state.step,
        seconds=round(state.seconds, 1),
        seed=arguments.seed,
        dims=dims,
        codebook="" if codebook is None else codebook.digest,
        start="" if start is None else start.digest,
        lifting=arguments.lifting if arguments.input == "subspaces" else "",
    )
