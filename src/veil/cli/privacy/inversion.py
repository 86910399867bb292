"""`veil invert`: pictures from features and messages, as a server could make them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from veil.cli.common import Commands, quiet_colmap, report, say, tell_skipped, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.cli.remedies import advised
from veil.codebooks.codebook import Codebook
from veil.device.inverting import network_of, sparse_map
from veil.errors import InputError, VeilError
from veil.files.atomic import read_bytes, replacing
from veil.files.attack_networks import bundled_inverter, read_weights
from veil.files.codebooks import read_codebook
from veil.files.features import HDF5_SUFFIXES, holds_features, read_features
from veil.files.photographs.kinds import walked
from veil.files.photographs.pictures import read_picture, read_rgb, warn_of_passed
from veil.inversion.maps import Frame, SparseMap
from veil.inversion.quality import Quality, QualityJson, quality
from veil.json_records.values import Reasons
from veil.wire.codec import decode

EXAMPLES = """\
  veil invert photos/ -o inverted/                                  what raw features show
  veil invert features.h5 --inverter raw.npz -o inverted/
  veil invert upload/ --inverter direct.npz -o inverted/             direct inversion of messages
"""


@dataclass(frozen=True, kw_only=True)
class Invert(Record):
    """Reconstruct pictures of 256x256 px from what a server receives: NAME.png for each photograph, image of a features
    file, or message, the central square as the network sees it. Of photographs the quality is printed, too.
    `veil lab train inversion` trains networks for it. What cannot be used is skipped and named.
    """

    input: tuple[Path, ...] = positional("photographs, features (.h5), messages (.veil), or folders of them")
    inverter: Path | None = option(
        "what `veil lab train inversion` wrote (default: the bundled network for raw descriptors)", metavar="FILE"
    )
    dictionary: Path | None = option("of the words (default: the bundled codebook)", metavar="FILE")
    output: Path = option("folder for the pictures", required=True, short="-o", metavar="FOLDER")
    json: Path | None = json_file()


def register(commands: Commands) -> None:
    """Add `veil invert` to the parser's commands."""
    add_record_command(commands, "invert", "pictures from features or messages", EXAMPLES, Invert, _invert)


class DrawnJson(TypedDict):
    """A picture without an original."""

    name: str
    features: int


class ComparedJson(DrawnJson, QualityJson):
    """A picture beside its original."""


class InvertJson(TypedDict):
    """Pictures from features and messages."""

    pictures: list[ComparedJson | DrawnJson]
    skipped: Reasons


def _invert(arguments: Invert) -> int:
    quiet_colmap()
    skipped: dict[str, str] = {}
    record: InvertJson = {"pictures": [], "skipped": skipped}
    for row, measured in inverted(arguments, skipped):
        record["pictures"].append(row if measured is None else {**row, **measured.as_json()})
        facts = "" if measured is None else f"  ssim {measured.ssim:.3f}  psnr {measured.psnr:.2f} dB  mae {measured.mae:.3f}"
        say(arguments, f"{row['name']}: {row['features']} features{facts}")
    tell_skipped(skipped)
    if not record["pictures"]:
        raise InputError(f"none of the {len(skipped)} inputs can be used; the reasons stand above")
    write_json(arguments.json, record)
    report(arguments, arguments.output, f"{len(record['pictures'])} pictures")
    return 0


def inverted(arguments: Invert, skipped: dict[str, str]) -> Iterator[tuple[DrawnJson, Quality | None]]:
    """Write the inverted pictures one after another; yields the record of each, and its quality if the original is known.

    Why a file cannot be used is added to `skipped`, or raised if it is the only one. Raises InputError if two pictures would be
    one file.
    """
    written: set[Path] = set()
    inverter = network_of(bundled_inverter() if arguments.inverter is None else read_weights(arguments.inverter))
    for name, seen, original in _inputs(arguments, skipped):
        target = arguments.output / (name.replace("/", "_") + ".png")
        if target in written:
            raise InputError(f"two pictures would be written to {target}; invert them in two runs")
        written.add(target)
        rgb = inverter.invert([seen])[0]
        write_picture(target, rgb)
        yield {"name": name, "features": len(seen)}, None if original is None else quality(original, rgb)


def write_picture(path: Path, rgb: np.ndarray) -> None:
    """Write uint8 RGB pixels (height, width, 3) as PNG, at once or not at all."""
    from PIL import Image

    with replacing(path) as temporary:
        Image.fromarray(rgb).save(temporary)


def _inputs(arguments: Invert, skipped: dict[str, str]) -> Iterator[tuple[str, SparseMap, np.ndarray | None]]:
    """Names, maps and, of photographs, the original pictures of all inputs."""
    book = None if arguments.dictionary is None else read_codebook(arguments.dictionary)
    files = [pair for root in arguments.input for pair in _files(root)]
    for name, path in files:
        try:
            yield from _maps(name, path, book)
        except VeilError as error:
            if len(files) == 1:
                raise
            skipped[str(path)] = advised(error)


def _maps(name: str, path: Path, book: Codebook | None) -> Iterator[tuple[str, SparseMap, np.ndarray | None]]:
    """Names, maps and original pictures of one file, which is called `name`."""
    if path.suffix == ".veil":
        yield name, sparse_map(str(path), decode(read_bytes(path)), book), None
    elif holds_features(path):
        for image, features in read_features(path):
            yield image, sparse_map(image, features), None
    else:
        from veil.extraction.sift import SiftOptions, extract_sift

        picture, rgb = read_picture(path), read_rgb(path)
        frame = Frame(width=rgb.shape[1], height=rgb.shape[0])
        yield name, sparse_map(name, extract_sift(picture, SiftOptions(first_octave=None))), frame.crop(rgb)


def _files(root: Path) -> list[tuple[str, Path]]:
    """Photographs, files of features and messages below `root`, or the one file, with names: their paths without the suffix.

    Raises InputError if there are none.
    """
    if root.is_file():
        return [(root.stem, root)]
    others = sorted(path for path in root.rglob("*") if path.suffix.lower() in (*HDF5_SUFFIXES, ".veil"))
    photographs, passed = walked(root, frozenset(path.name for path in others))
    if not photographs and not others:
        raise InputError(f"there are no photographs, features or messages in {root}")
    warn_of_passed(root, passed)
    return [(path.relative_to(root).with_suffix("").as_posix(), path) for path in sorted([*photographs, *others])]
