"""`veil extract`: photographs become raw features, which stay on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np

from veil.cli.common import OCTAVE, Commands, octave, progress, quiet_colmap, report, say, tell_skipped, write_json
from veil.cli.input_options import DATABASE, EXTRACT, FEATURES, kind_of_input, require_applicable
from veil.cli.records import Record, add_record_command, json_file, option, positional, strict_flag
from veil.cli.remedies import advised
from veil.device.photographs import with_camera as with_camera
from veil.errors import InputError, VeilError
from veil.extraction import DETECTORS, EXTRACTORS, extract, full_name
from veil.extraction.detection import DetectorOptions
from veil.extraction.picture import Picture
from veil.extraction.sift import MAX_FEATURES, SiftOptions
from veil.features import Features
from veil.files.colmap_databases import count_colmap_images, read_colmap_database
from veil.files.features import count_images, read_features, tell_converted, write_features
from veil.files.photographs.masks import masks_of, read_mask
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.files.weights import load_network
from veil.geometry.camera import described_focals, require_readable
from veil.json_records.values import Reasons
from veil.space import DIMS, Normalization, Space, known_space

EXAMPLES = """\
  veil extract photos/ -o features.h5
  veil extract photos/ -o features.h5 --camera SIMPLE_RADIAL,1288.6,343,512,-0.0336
  veil extract photos/ -o features.h5 --descriptor hardtfeat      a learned descriptor on the same keypoints
  veil extract photos/ -o features.h5 --descriptor aliked         a network that finds its own keypoints
  veil extract photos/ -o features.h5 --masks masks/              no features where masks/PHOTO.jpg.png is black
  veil extract database.db -o features.h5                         SIFT, ALIKED or LoMa of a COLMAP database
  veil extract feats-superpoint.h5 -o features.h5 --imported superpoint       features in hloc's layout
"""


CAMERA = (
    "intrinsics of all photographs, by one of COLMAP's models (default: K.txt beside them); +-3%% behind them is the standard "
    "deviation of the focal length (default 1 %%)"
)


@dataclass(frozen=True, kw_only=True)
class Extractor(Record):
    """Options of the extraction from photographs."""

    descriptor: str = option(
        "kind of descriptor (default sift; aliked stands for aliked-n16rot)",
        default="sift",
        parse=full_name,
        choices=EXTRACTORS,
    )


@dataclass(frozen=True, kw_only=True)
class Extract(Extractor):
    """Extract features, or import those of a COLMAP database (.db) or of hloc (.h5). Keypoint (0, 0) is the
    top-left corner of the upright image. A camera matrix in K.txt beside photographs gives their intrinsics.
    A photograph that cannot be used is skipped and named. The result can be inverted into images: do not upload it.
    """

    input: tuple[Path, ...] = positional("photographs, folders of them, a COLMAP .db, or an hloc .h5")
    output: Path = option("features to write (.h5)", required=True, short="-o", metavar="FILE")
    weights: Path | None = option("other weights of a learned descriptor's network (.npz, or PyTorch's .pth)", metavar="FILE")
    min_score: float | None = option(
        "least score of ALIKED's or XFeat's keypoints, 0 to 1 (default as published: 0.2 and 0.05)", metavar="S"
    )
    normalization: Literal["L2", "L1_ROOT"] | None = option(
        "normalization of SIFT descriptors (default: of photographs L2, of an import as its numbers show). Imported L1_ROOT "
        "(RootSIFT) is converted to L2"
    )
    max_features: int = option("features per image at most (default %(default)s)", default=MAX_FEATURES)
    first_octave: int | None = option(OCTAVE, parse=octave, metavar="N")
    camera: str | None = option(CAMERA, metavar="MODEL,P1,...")
    masks: Path | None = option(
        "masks of the photographs, PHOTO.jpg.png or PHOTO.png: no features where one is black; a photograph without one is "
        "skipped",
        metavar="FOLDER",
    )
    imported: str | None = option(
        "what an .h5 of another tool holds: " + ", ".join(DIMS) + ", or another NAME:DIM", metavar="NAME[:DIM]"
    )
    strict: bool = strict_flag("photograph")
    json: Path | None = json_file()


class ExtractedImageJson(TypedDict):
    """Features of a photograph."""

    name: str
    features: int
    space: str


class ExtractJson(TypedDict):
    """Photographs with their features, and those without."""

    images: list[ExtractedImageJson]
    skipped: Reasons


def register(commands: Commands) -> None:
    """Add `veil extract` to the parser's commands."""
    add_record_command(commands, "extract", "photographs -> raw features (stay on the device)", EXAMPLES, Extract, _extract)


def _extract(arguments: Extract) -> int:
    quiet_colmap()
    kind = kind_of_input(arguments.input)
    require_applicable(arguments, EXTRACT, kind, arguments.input[0])
    if kind == FEATURES and arguments.normalization and not arguments.imported:
        raise InputError("--normalization of a file of features goes with --imported, which names what it holds; leave it out")
    skipped: dict[str, str] = {}
    features = dict(_gather(arguments, kind, skipped))
    tell_skipped(skipped)
    if not features:
        name, reason = next(iter(skipped.items()))
        raise InputError(f"none of the {len(skipped)} images can be used; {name}: {reason}")
    write_features(arguments.output, sorted(features.items()))
    total = sum(len(item) for item in features.values())
    record: ExtractJson = {
        "images": [{"name": name, "features": len(f), "space": str(f.space)} for name, f in sorted(features.items())],
        "skipped": skipped,
    }
    write_json(arguments.json, record, private=True)
    say(arguments, described_focals(item.camera for item in features.values()))
    report(arguments, arguments.output, f"{total} raw features of {len(features)} images (do not upload this file)")
    return 0


def _gather(arguments: Extract, kind: str, skipped: dict[str, str]) -> Iterator[tuple[str, Features]]:
    first = arguments.input[0]
    if kind == DATABASE:
        space = imported_space(None, arguments.normalization)
        yield from _imported(partial(read_colmap_database, first, space=space), count_colmap_images(first), arguments, skipped)
    elif kind == FEATURES:
        space = None if arguments.imported is None else imported_space(arguments.imported, arguments.normalization)
        read = partial(read_features, first, space=space, measured=arguments.normalization is None)
        yield from converted(first, _imported(read, count_images(first), arguments, skipped))
    else:
        yield from _from_photographs(arguments, skipped)


def _imported(
    read: Callable[..., Iterator[tuple[str, Features]]], total: int | None, arguments: Extract, skipped: dict[str, str]
) -> Iterator[tuple[str, Features]]:
    """Names and features of images that another tool extracted. Why an image has none is added to `skipped`, or raised with
    --strict."""
    faults: dict[str, VeilError] = {}
    for name, item in progress(read() if arguments.strict else read(skipped=faults), "importing", total):
        if arguments.normalization and item.space.descriptor != "sift":
            raise InputError(
                f"--normalization is of SIFT, and {arguments.input[0]} holds {item.space.descriptor}; leave it out"
            )
        yield name, item
    skipped.update({name: advised(error) for name, error in faults.items()})


def converted(path: Path, features: Iterable[tuple[str, Features]]) -> Iterator[tuple[str, Features]]:
    """The features of a file of veil's own, in which RootSIFT becomes SIFT in L2; a `VeilWarning` says so."""
    for index, (name, item) in enumerate(features):
        made = item.in_l2()
        if index == 0:
            tell_converted(path, item.space, made)
        yield name, made


def _from_photographs(arguments: Extract, skipped: dict[str, str]) -> Iterator[tuple[str, Features]]:
    """Names and features of the photographs. Why a photograph has none is added to `skipped`; with --strict, or if it is the
    only one, the error is raised."""
    options = _asked_options(arguments)
    network = load_network(arguments.descriptor, arguments.weights)
    if arguments.camera:
        require_readable(arguments.camera)  # a slip of the user, and no fault of each photograph
    pictures = dict(named_pictures(arguments.input))
    masks = {} if arguments.masks is None else _masks(arguments.masks, arguments.input, pictures)
    for name, path in progress(list(pictures.items()), "extracting"):
        try:
            picture = with_camera(read_picture(path), arguments.camera, path)
            mask = None if arguments.masks is None else _mask_of(name, picture, arguments.masks, masks)
            features = extract(picture, arguments.descriptor, options, network, mask=mask)
        except VeilError as error:
            if arguments.strict or len(pictures) == 1:
                raise error.at(path) from None
            skipped[name] = advised(error)
            continue
        yield name, features


def _masks(folder: Path, roots: Sequence[Path], pictures: dict[str, Path]) -> dict[str, Path]:
    """The masks by name of the photograph; what is a mask, or lies in a folder of them below `roots`, is no picture."""
    masks = masks_of(folder, pictures)
    files = {path.resolve() for path in masks.values()}
    apart = folder.resolve() not in [root.resolve() for root in roots]
    for name, path in list(pictures.items()):
        inside = apart and folder.resolve() in path.resolve().parents
        if path.resolve() in files or inside:
            del pictures[name]
    return masks


def _mask_of(name: str, picture: Picture, folder: Path, masks: Mapping[str, Path]) -> np.ndarray:
    """Where a photograph may have features. Raises InputError if it has no mask: all of it would be extracted."""
    if name not in masks:
        raise InputError(f"{folder} has no mask of it; make one, which is white where all of it may be used")
    return read_mask(masks[name], picture.camera.width_px, picture.camera.height_px)


def _asked_options(arguments: Extract) -> SiftOptions | DetectorOptions:
    """The options of the extractor that is asked for. Raises InputError for one of another extractor."""
    if arguments.descriptor in DETECTORS:
        if arguments.normalization or arguments.first_octave is not None:
            raise InputError(
                f"--normalization and --first-octave belong to SIFT; leave them out with --descriptor {arguments.descriptor}"
            )
        return DetectorOptions(max_features=arguments.max_features, min_score=arguments.min_score)
    if arguments.min_score is not None:
        raise InputError(
            f"--min-score belongs to networks that score keypoints; leave it out, or give --descriptor {' or '.join(DETECTORS)}"
        )
    return SiftOptions(
        max_features=arguments.max_features,
        normalization=arguments.normalization or "L2",
        first_octave=arguments.first_octave,
    )


def imported_space(imported: str | None, normalization: Normalization | None) -> Space | None:
    """The space that --imported NAME[:DIM] and --normalization name; None without either.

    Raises InputError for a text of another form, RangeError for a dimension that is not known or is another.
    """
    if imported is None:
        return None if normalization is None else known_space("sift", normalization=normalization)
    name, _, dim = imported.partition(":")
    if not (dim or "1").isdecimal():
        raise InputError(f"--imported takes NAME or NAME:DIM, got {imported!r}; for example superpoint:256")
    return known_space(name, int(dim) if dim else None, normalization=normalization or "L2")
