"""`veil invert`: pictures from features and messages, as a server could make them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from veil.cli.common import add_command, add_json, quiet_colmap, report, say, write_json
from veil.device.inverting import network_of, sparse_map
from veil.errors import InputError
from veil.files.atomic import read_bytes, replacing
from veil.files.codebooks import read_codebook
from veil.files.features import HDF5_SUFFIXES, holds_features, read_features
from veil.files.inverters import bundled_inverter, read_weights
from veil.files.pictures import SUFFIXES, read_picture, read_rgb
from veil.inversion.maps import Frame, SparseMap
from veil.inversion.quality import quality
from veil.wire.codec import decode

EXAMPLES = """\
  veil invert photos/ -o inverted/                                  what raw features show
  veil invert features.h5 --inverter raw.npz -o inverted/
  veil invert upload/ --inverter direct.npz -o inverted/             direct inversion of messages
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil invert` to the parser's commands."""
    invert = add_command(
        commands,
        "invert",
        "pictures from features or messages",
        "Reconstruct pictures of 256x256 px from what a server receives: NAME.png for each photograph, image of a features\n"
        "file, or message, the central square as the network sees it. Of photographs the quality is printed, too.\n"
        "`veil lab train inversion` trains networks for it.",
        EXAMPLES,
    )
    invert.add_argument("input", type=Path, nargs="+", help="photographs, features (.h5), messages (.veil), or folders of them")
    invert.add_argument(
        "--inverter",
        type=Path,
        metavar="FILE",
        help="what `veil lab train inversion` wrote (default: the bundled network for raw descriptors)",
    )
    invert.add_argument("--dictionary", type=Path, metavar="FILE", help="of the words (default: the bundled codebook)")
    invert.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for the pictures")
    add_json(invert)
    invert.set_defaults(run=_invert)


def _invert(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    rows = []
    for name, record in inverted(arguments):
        row = {"name": name, **record}
        rows.append(row)
        told = f"  ssim {row['ssim']:.3f}  psnr {row['psnr']:.2f} dB  mae {row['mae']:.3f}" if "ssim" in row else ""
        say(arguments, f"{name}: {row['features']} features{told}")
    write_json(arguments.json, {"pictures": rows})
    report(arguments, arguments.output, f"{len(rows)} pictures")
    return 0


def inverted(arguments: argparse.Namespace) -> Iterator[tuple[str, dict]]:
    """Write the inverted pictures one after another; yields the name of each and a record for machines.

    The record has the number of features, and the quality where the original is known.
    """
    inverter = network_of(bundled_inverter() if arguments.inverter is None else read_weights(arguments.inverter))
    for name, seen, original in _inputs(arguments):
        rgb = inverter.invert([seen])[0]
        write_picture(arguments.output / (name.replace("/", "_") + ".png"), rgb)
        measured = {} if original is None else quality(original, rgb).as_json()
        yield name, {"features": len(seen), **measured}


def write_picture(path: Path, rgb: np.ndarray) -> None:
    """Write uint8 RGB pixels (height, width, 3) as PNG, at once or not at all."""
    from PIL import Image

    with replacing(path) as temporary:
        Image.fromarray(rgb).save(temporary)


def _inputs(arguments: argparse.Namespace) -> Iterator[tuple[str, SparseMap, np.ndarray | None]]:
    """Names, maps and, of photographs, the original pictures of all inputs."""
    book = None if arguments.dictionary is None else read_codebook(arguments.dictionary)
    for root in arguments.input:
        for path in _files(root):
            if path.suffix == ".veil":
                yield path.stem, sparse_map(str(path), decode(read_bytes(path)), book), None
            elif holds_features(path):
                for name, features in read_features(path):
                    yield name, sparse_map(name, features), None
            else:
                from veil.extraction.sift import SiftOptions, extract_sift

                picture, rgb = read_picture(path), read_rgb(path)
                frame = Frame(width=rgb.shape[1], height=rgb.shape[0])
                yield path.stem, sparse_map(path.stem, extract_sift(picture, SiftOptions(first_octave=None))), frame.crop(rgb)


def _files(root: Path) -> list[Path]:
    """The photographs, files of features and messages below `root`, or the one file. Raises InputError if there are none."""
    known = {*SUFFIXES, *HDF5_SUFFIXES, ".veil"}
    found = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.suffix.lower() in known)
    if not found:
        raise InputError(f"there are no photographs, features or messages in {root}")
    return found
