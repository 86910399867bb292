"""Photographs that `veil audit` takes, or files of their features: the originals of a release, and the attacker's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.cli.common import progress, tell_skipped
from veil.cli.device.extract import with_camera
from veil.cli.remedies import advised
from veil.errors import InputError, VeilError
from veil.extraction import EXTRACTORS, extract
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions
from veil.features import Features
from veil.files.features import holds_features, read_features, read_named_features
from veil.files.photographs.pictures import named_pictures, read_picture, read_rgb
from veil.files.weights import load_network
from veil.space import Space
from veil.wire.message import Message


@dataclass(frozen=True, kw_only=True, eq=False)
class Originals:
    """The originals of a release: features by name of the photograph, and paths of the photographs that were given."""

    features: dict[str, Features]
    paths: dict[str, Path]

    def read_rgb(self, name: str) -> np.ndarray:
        """Upright 8-bit RGB pixels (height, width, 3) of the photograph called `name`."""
        return read_rgb(self.paths[name])


def read_originals(paths: Sequence[Path], releases: Sequence[Message]) -> Originals:
    """The originals in `paths`: files of features as they are; photographs are extracted only if there are no such files.

    Raises InputError if veil does not extract the descriptor that was released (then its file of features is needed), or no
    photograph has the size of a released one.
    """
    files, folders = _separated(paths)
    pictures = dict(named_pictures(folders)) if folders else {}
    features = read_named_features(files)
    if not files:
        features = _extracted(pictures, releases)
    return Originals(features=features, paths=pictures)


def read_place_photographs(paths: Sequence[Path], space: Space, skipped: dict[str, str], *, strict: bool = False) -> Originals:
    """Photographs of a map's place in `paths`, of any size: files of features as they are, others are extracted as the map was.

    A K.txt beside photographs gives their intrinsics. What cannot be used is added to `skipped` with the reason, or raised if
    `strict`. Raises InputError if veil does not extract such descriptors, or no photograph has features.
    """
    files, folders = _separated(paths)
    pictures = dict(named_pictures(folders)) if folders else {}
    features = read_named_features(files)
    if not files:
        extracted = _extractor(space, "give the features.h5 of the photographs with --images")
        for name, path in progress(pictures.items(), "extracting", len(pictures)):
            try:
                features[name] = extracted(with_camera(read_picture(path), None, path))
            except VeilError as error:
                if strict:
                    raise
                skipped[name] = advised(error)
    if not features:
        raise InputError("no features were found in the photographs; give others with --images")
    return Originals(features=features, paths=pictures)


def read_attackers(paths: Sequence[Path], space: Space, *, option: str = "--attacker") -> list[Features]:
    """Features of the attacker's photographs, of the kind that was released.

    `paths` are files of features, photographs and folders of these, given with `option`; `space` is that of the release. Raises
    InputError if veil does not extract such descriptors, or no photograph has features.
    """
    files, folders = _separated(paths)
    features = [item for file in files for _, item in read_features(file)]
    if folders:
        extracted = _extractor(space, f"give a features.h5 with {option}")
        for _, path in progress(named_pictures(folders), "extracting the attacker's photographs"):
            try:
                features.append(extracted(read_picture(path)))
            except VeilError as error:
                tell_skipped({str(path): advised(error)})
    if not features:
        raise InputError(f"no features were found in the attacker's photographs; give others with {option}")
    return features


def _separated(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Files of features among `paths`, and the others: photographs and folders of these."""
    files = [path for path in paths if holds_features(path)]
    return files, [path for path in paths if path not in files]


def _extractor(space: Space, remedy: str) -> Callable[[Picture], Features]:
    """A function that extracts the descriptors of `space` from a picture, with default options.

    Raises InputError, with the `remedy`, if veil does not extract them.
    """
    if space.descriptor not in EXTRACTORS:
        raise InputError(f"veil does not extract {space.descriptor}; {remedy}")
    network = load_network(space.descriptor)
    options = SiftOptions(normalization=space.normalization, first_octave=None)
    return lambda picture: extract(picture, space.descriptor, options, network)


def _extracted(pictures: dict[str, Path], releases: Sequence[Message]) -> dict[str, Features]:
    """Features by name of those photographs that have the size of a released one."""
    extracted = _extractor(releases[0].form.space, "give the features.h5 that was released with --images")
    sizes = {(message.camera.width_px, message.camera.height_px) for message in releases}
    features = {}
    for name, path in progress(pictures.items(), "extracting", len(pictures)):
        try:
            picture = read_picture(path)
            if (picture.camera.width_px, picture.camera.height_px) in sizes:
                features[name] = extracted(picture)
        except VeilError as error:
            tell_skipped({name: advised(error)})
    if not features:
        raise InputError("none of the photographs has the size of a released one; give those that were released")
    return features
