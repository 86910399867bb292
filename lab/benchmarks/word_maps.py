"""Do words map a place, by the source of the dictionary, its number of words K, and m?

    VEIL_DATA=... python lab/benchmarks/word_maps.py strecha/fountain-P11 --sources own third bundled --m 2 4 8

Scenes are folders with `images/` and reference cameras, also below VEIL_DATA. Sources of a dictionary are

- `own`: all photographs of the scene, which are mapped. It publishes what they show, so that no crowd can have it;
- `third`: every third photograph, which is then not mapped, as of a public collection or of somebody who is sent;
- `bundled`: photographs of other places, of the bundled number of words;
- another folder: photographs of that place.

A row gives photographs mapped, points, mean number of observations of a point, and the distance of cameras from the reference
after similarity alignment, median and largest. Rows without a source are of raw descriptors, and of nearest words, which are
sent for certain: both without a promise ([P23], Fig. S1). The secret is a hash of the scene's name.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from veil.cli.common import quiet_colmap
from veil.codebooks.codebook import Codebook
from veil.device.descriptor_books import build_codebook
from veil.device.doors import map_images
from veil.errors import InputError
from veil.extraction.sift import extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.files.photographs.pictures import read_picture
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.release import privatize_words
from veil.places.built_maps import MappingOptions
from veil.places.maps import NoMap
from veil.randomness import Randomness, Secret, memoized
from veil.wire import decode, encode
from veil.wire.message import Message
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.studies.board.split import map_errors, poses_of

COLUMNS = ("scene", "dictionary", "K", "epsilon", "m", "registered", "points", "track", "median, largest error (cm)")
Row = tuple[str, ...]


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, also below VEIL_DATA")
    parser.add_argument("--sources", nargs="+", default=["own", "third", "bundled"], help="of dictionaries, as above")
    parser.add_argument("--words", type=int, nargs="+", default=[16384], metavar="K", help="of dictionaries (default 16384)")
    parser.add_argument("--m", type=int, nargs="+", default=[2], help="words of a feature (default 2)")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[10.0], help="of a feature (default 10)")
    parser.add_argument("--features", type=int, default=4096, help="that a photograph sends (default %(default)s)")
    parser.add_argument("--without", action="store_true", help="also map raw descriptors, and nearest words")
    arguments = parser.parse_args()
    quiet_colmap()
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{' --- |' * len(COLUMNS)}", flush=True)
    for name in arguments.scenes:
        for row in rows(scene_at(name), arguments):
            print(f"| {' | '.join(row)} |", flush=True)


def scene_at(name: str) -> ReferenceScene:
    """The scene of a folder, also below VEIL_DATA."""
    return read_scene(Path(name) if Path(name).is_dir() else Path(os.environ["VEIL_DATA"]) / name)


def rows(scene: ReferenceScene, arguments: argparse.Namespace) -> Iterator[Row]:
    """The rows of a scene."""
    images = extracted(scene)
    if arguments.without:
        yield (scene.name, "raw descriptors", "", "∞", "", *mapped(scene, images))
    for source in arguments.sources:
        kept = [item for place, item in enumerate(images.values()) if source != "third" or place % 3 == 1]
        sent = {name: item for place, (name, item) in enumerate(images.items()) if source != "third" or place % 3 != 1}
        if source not in ("own", "third", "bundled"):
            kept = list(extracted(scene_at(source)).values())
        for count in arguments.words[: 1 if source == "bundled" else None]:
            try:
                book = bundled_codebook() if source == "bundled" else build_codebook(kept, count, method="hierarchical")
            except InputError:  # fewer descriptors than words
                yield (scene.name, Path(source).name, f"{count:,}", "", "", "too few descriptors", "", "", "")
                continue
            laws = [(epsilon, m) for epsilon in arguments.epsilon for m in arguments.m]
            for epsilon, m in [(math.inf, 1), *laws] if arguments.without else laws:
                law = SubsetMechanism(dictionary_size=len(book), epsilon=epsilon, m=m)
                told = "∞" if math.isinf(epsilon) else f"{epsilon:g}"
                messages = released(sent, law, book, scene.name, arguments.features)
                yield (scene.name, Path(source).name, f"{len(book):,}", told, str(m), *mapped(scene, messages))


def extracted(scene: ReferenceScene) -> dict[str, Features]:
    """Raw features by image name, as `veil extract` makes them with the reference's cameras."""
    return {
        name: replace(extract_sift(read_picture(path)), camera=scene.cameras[name])
        for name, path in sorted(scene.pictures.items())
    }


def released(images: Mapping[str, Features], law: SubsetMechanism, book: Codebook, name: str, count: int) -> dict[str, Message]:
    """Releases of images in words, as they arrive."""
    randomness: Randomness = memoized(Secret(hashlib.sha256(f"word maps {name}".encode()).digest()))
    return {
        name: decode(
            encode(
                privatize_words(
                    item,
                    mechanism=law,
                    dictionary=book,
                    randomness=randomness,
                    features_sent=count,
                    allow_private_dictionary=True,
                ).upload
            )
        )
        for name, item in images.items()
    }


def mapped(scene: ReferenceScene, images: Mapping[str, Message | Features]) -> Row:
    """Cells on the map of images: photographs, points, observations of a point, and errors."""
    built = map_images(images, options=MappingOptions(workers=1))
    if isinstance(built, NoMap):
        print(f"{scene.name}: {built.reason}", file=sys.stderr, flush=True)
        return "no map", "", "", ""
    errors = map_errors(poses_of(built), scene.cam_from_world)
    content = built.map.scene
    return (
        f"{len(content.images)} of {len(images)}",
        f"{len(content.points):,}",
        f"{content.observation_count / len(content.points):.2f}",
        f"{100 * np.median(errors):.2f}, {100 * max(errors):.2f}" if errors else "too few",
    )


if __name__ == "__main__":
    main()
