"""The originals of a release, as the client has them: a file of features, photographs, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.cli.common import progress
from veil.errors import InputError
from veil.extraction import EXTRACTORS, extract
from veil.extraction.sift import SiftOptions
from veil.features import Features
from veil.files.features import read_features
from veil.files.pictures import named_pictures, read_picture, read_rgb
from veil.files.weights import load_network
from veil.wire.message import Message


@dataclass(frozen=True, kw_only=True, eq=False)
class Originals:
    """Features by name of the photograph, and the photographs that were given."""

    features: dict[str, Features]
    paths: dict[str, Path]

    def read_rgb(self, name: str) -> np.ndarray:
        """The pixels of a photograph (height, width, 3)."""
        return read_rgb(self.paths[name])


def read_originals(paths: Sequence[Path], releases: Sequence[Message]) -> Originals:
    """Files of features as they are; photographs are extracted only where there are no such files, with default options.

    Raises InputError if a descriptor is not one that veil extracts: then its file of features is needed.
    """
    files = [path for path in paths if path.suffix in (".h5", ".hdf5")]
    folders = [path for path in paths if path not in files]
    pictures = dict(named_pictures(folders)) if folders else {}
    features = {name: item for file in files for name, item in read_features(file)}
    if not files:
        features = _extracted(pictures, releases)
    return Originals(features=features, paths=pictures)


def _extracted(pictures: dict[str, Path], releases: Sequence[Message]) -> dict[str, Features]:
    space = releases[0].form.space
    if space.descriptor not in EXTRACTORS:
        raise InputError(f"veil does not extract {space.descriptor}; give the features.h5 that was released with --images")
    options = SiftOptions(normalization=space.normalization, first_octave=None)
    network = load_network(space.descriptor)
    sizes = {(message.camera.width_px, message.camera.height_px) for message in releases}
    found = {}
    for name, path in progress(pictures.items(), "extracting", len(pictures)):
        picture = read_picture(path)
        if (picture.camera.width_px, picture.camera.height_px) in sizes:
            found[name] = extract(picture, space.descriptor, options, network)
    if not found:
        raise InputError("none of the photographs has the size of a released one; give those that were released")
    return found
