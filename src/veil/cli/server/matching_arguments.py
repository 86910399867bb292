"""Options of `veil map` on which pairs of images are matched, where, and what keeps their matches."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veil.cli.common import Bar, at_least, say
from veil.cli.engine_arguments import add_engine_arguments, opened_engine
from veil.device.doors import forms_in
from veil.errors import InputError
from veil.files.maps.checkpoints import remove_unfinished, unfinished_folder
from veil.matching.lightglue import LightGlue
from veil.places.held_map import Map
from veil.places.pairs.blocks import KIND
from veil.places.pairs.choice import PairChoice, pair_choice
from veil.places.pairs.images import LoadedImage
from veil.places.pairs.matching import MatchingWork
from veil.places.pairs.store import MatchStore, require_folder, write_pairs
from veil.places.uploads import files_of
from veil.progress import Progress

# Pairs from which on processes of this machine are started for them.
WORTH_PROCESSES = 500


def add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --pairs, --pair-count, --write-pairs, --matches and --engine."""
    parser.add_argument(
        "--pairs",
        default="auto",
        metavar="WHICH",
        help="which pairs of images are matched: all; tracks: a few that look most alike, those that match a common third, and "
        "then those that see the same points; retrieval: by features alone, each image with those that look most like it, and "
        "those that match a common third (slower); sequential: neighbors in the order of their names; FILE: a list with two "
        "names a line, as hloc writes them. auto (default): all up to 300 images, tracks beyond",
    )
    parser.add_argument(
        "--pair-count",
        type=at_least(1),
        metavar="N",
        help="images that each is paired with by tracks (default 20) or retrieval (default 40), at most, or neighbors on each "
        "side in a sequence (default 10)",
    )
    parser.add_argument("--write-pairs", type=Path, metavar="FILE", help="write the pairs that were matched as such a list")
    parser.add_argument(
        "--matches",
        type=Path,
        metavar="FOLDER",
        help="keep matches here: the next map of these uploads costs only the pairs of images that were added, and what was "
        "kept of images that are gone is removed (default: until the map is finished)",
    )
    parser.add_argument(
        "--cluster-size",
        type=at_least(3),
        default=500,
        metavar="N",
        help="more images than this are mapped in overlapping clusters, which are joined (default 500)",
    )
    parser.add_argument(
        "--memory",
        type=_gibibytes,
        default=1.0,
        metavar="GIB",
        help="descriptors of uploads that are kept in memory between uses; others are read again when they are needed. "
        "Positions, matches, retrieval and the map itself come on top (default 1)",
    )
    add_engine_arguments(parser)


def _gibibytes(text: str) -> float:
    """A number that is not negative, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of GiB that is not negative, got {text!r}")
    return value


def asked_pairs(arguments: argparse.Namespace, images: int) -> PairChoice:
    """The pairs that --pairs asks for. Raises InputError or FileFormatError for what is no choice of pairs."""
    return pair_choice(arguments.pairs, images, count=arguments.pair_count)


@contextmanager
def matching_work(
    arguments: argparse.Namespace, images: Mapping[str, LoadedImage], network: LightGlue | None = None
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
    if arguments.write_pairs:
        write_pairs(arguments.write_pairs, matched)
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


def matching_facts(
    arguments: argparse.Namespace,
    work: MatchingWork,
    steps: TimedSteps,
    models: Sequence[Map],
    verified: int | None,
    images: int,
) -> dict[str, Any]:
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
