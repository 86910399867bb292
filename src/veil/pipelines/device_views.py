"""What the device knows of the images of a view: their photographs and true keypoints, from files that its owner gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.features import Features
from veil.files.features import holds_features, read_features
from veil.files.pictures import named_pictures, read_rgb
from veil.geometry.camera import as_colmap
from veil.progress import Progress, ignore_progress
from veil.report.viewer.content import Known, ShownImage

POSITION_TOL_PX = 1e-3
LINE_TOL = 2e-6  # lines travel in float32 (veil.audit.ground_truth)
RECOGNIZED = 0.9
MOST_LINES = 256  # of an image, by which its photograph is recognized: a few dozen would do


def known_images(
    images: Sequence[ShownImage], paths: Sequence[Path], *, most_px: int, progress: Progress = ignore_progress
) -> dict[str, Known]:
    """What `paths` tell of `images`, by the name of the image: photographs, and true positions from files of features.

    A private map calls its images by their messages: the features of each are recognized by their positions or lines. A public
    map, and photographs without features, go by the name of the photograph. Photographs are made smaller, to `most_px` on the
    longer side. Raises InputError if nothing of what is given belongs to any image.
    """
    features = {name: item for path in paths if holds_features(path) for name, item in read_features(path)}
    folders = [path for path in paths if not holds_features(path)]
    pictures = _Named(dict(named_pictures(folders)) if folders else {})
    known: dict[str, Known] = {}
    for done, image in enumerate(images):
        progress(done, len(images))
        original = _named(features, image.name) or _recognized(image, features)
        item = features.get(original) if original else None
        picture = pictures.of(image.name) or (original and pictures.of(original))
        if picture is None and item is None:
            continue
        known[image.name] = Known(
            photograph=_smaller(picture, most_px) if picture else None,
            keypoints=None if item is None else item.keypoints.astype(np.float64),
        )
    progress(len(images), len(images))
    if not known:
        given = ", ".join(str(path) for path in paths)
        raise InputError(
            f"nothing in {given} belongs to an image of the map ({', '.join(image.name for image in images[:3])}); give the "
            "features.h5 that was released or mapped, and photographs with it"
        )
    return known


class _Named:
    """Photographs by their name, by its last part, or by that without a suffix, where these are of one alone."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._by: list[dict[str, Path | None]] = [{}, {}, {}]
        for name, path in paths.items():
            for table, key in zip(self._by, _keys(name), strict=True):
                table[key] = None if key in table else path

    def of(self, name: str) -> Path | None:
        """The photograph that a name means; None if there is none, or several."""
        return next((path for table, key in zip(self._by, _keys(name), strict=True) if (path := table.get(key))), None)


def _keys(name: str) -> tuple[str, str, str]:
    parts = PurePosixPath(name)
    return name, parts.name, parts.stem


def _named(features: Mapping[str, Features], name: str) -> str | None:
    return name if name in features else None


def _smaller(path: Path, most_px: int) -> np.ndarray:
    """Pixels of a photograph, made smaller where its longer side is longer than `most_px`."""
    from PIL import Image

    picture = Image.fromarray(read_rgb(path))
    picture.thumbnail((most_px, most_px))
    return np.asarray(picture)


def _recognized(image: ShownImage, features: Mapping[str, Features]) -> str | None:
    """Name of the features that an image was made of; None if no photograph has nearly all of its positions or lines."""
    best, most = None, RECOGNIZED
    for name, item in features.items():
        if (item.camera.width_px, item.camera.height_px) != (image.camera.width_px, image.camera.height_px):
            continue
        share = _share(image, item.keypoints.astype(np.float64))
        if share >= most:
            best, most = name, share
    return best


def _share(image: ShownImage, keypoints: Float64[np.ndarray, "n 2"]) -> float:
    """The share of an image's positions, or lines, that belong to one of the `keypoints` (pixels)."""
    if not len(image.point_rows) or not len(keypoints):
        return 0.0
    if image.lines is None:
        from scipy.spatial import cKDTree

        return float((cKDTree(keypoints).query(image.keypoints)[0] < POSITION_TOL_PX).mean())
    xy = np.asarray(as_colmap(image.camera).cam_from_img(keypoints), dtype=np.float64)
    coefficients = image.lines.coefficients[:MOST_LINES].astype(np.float64)
    off = np.abs(coefficients @ np.hstack([xy, np.ones((len(xy), 1))]).T)
    return float((off.min(axis=1) < LINE_TOL).mean())
