"""COLMAP's SIFT through pycolmap, with the settings of Dusmanu et al. 2021 by default (lifting.md#strategies)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from veil.errors import InputError, RangeError
from veil.extraction.picture import Picture
from veil.features import Features, in_eight_bits
from veil.one_line import one_line
from veil.space import NORMALIZATIONS, Normalization, Space

MAX_FEATURES = 8192
# SIFT is clamped at 0.2 and normalized again (Lowe, IJCV 2004, Sec. 6.1): by L2, the largest entry of a row is 0.2 or more, but
# for rows where nothing was clamped. Square roots are below it in about half of the rows.
_CLAMP, _MOST_BELOW, _FEWEST_ROWS = 0.2, 0.15, 30


@dataclass(frozen=True, kw_only=True)
class SiftOptions:
    """Options of SIFT's extraction (COLMAP's implementation, on the CPU).

    - `max_features`: largest number of features, 1..8192; those of largest scale are kept.
    - `normalization`: "L2", or "L1_ROOT" for RootSIFT (lifting.md#strategies).
    - `first_octave`: 0 as in Dusmanu et al. 2021, 1 for half the size; -1 doubles the image and triples the features. None
      begins with 0 and doubles the image where that gives less than half of `max_features`.
    - `max_image_side_px`: larger images are shrunk to this side first; keypoints are in pixels of the original all the same.

    Raises RangeError for values outside these ranges (the side is at least 64 px).
    """

    max_features: int = MAX_FEATURES
    normalization: Normalization = "L2"
    first_octave: int | None = 0
    max_image_side_px: int = 3200

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 1 <= self.max_features <= MAX_FEATURES:
            raise RangeError(f"max_features must be between 1 and {MAX_FEATURES}, got {self.max_features!r}")
        if self.normalization not in NORMALIZATIONS:
            raise RangeError(f"normalization must be one of {NORMALIZATIONS}, got {self.normalization!r}")
        if self.first_octave not in (None, -1, 0, 1):
            raise RangeError(f"first_octave must be -1, 0, 1 or None, got {self.first_octave!r}")
        if not self.max_image_side_px >= 64:
            raise RangeError(f"max_image_side_px must be at least 64, got {self.max_image_side_px!r}")


def sift_space(normalization: Normalization) -> Space:
    """The space of COLMAP's 8-bit SIFT."""
    return Space(descriptor="sift", normalization=normalization, dim=128)


def likely_normalization(rows: Float[np.ndarray, "rows dim"] | UInt8[np.ndarray, "rows dim"]) -> Normalization | None:
    """The normalization of SIFT that its numbers show, in any scale; None for fewer than 30 rows, which show none."""
    if len(rows) < _FEWEST_ROWS:
        return None
    values = rows.astype(np.float64)
    largest = values.max(axis=1) / np.linalg.norm(values, axis=1)
    return "L1_ROOT" if (largest < _CLAMP).mean() > _MOST_BELOW else "L2"


def extract_sift(picture: Picture, options: SiftOptions | None = None) -> Features:
    """SIFT features of one picture, with keypoints in its full-resolution pixels.

    Raises InputError if nothing is found: a blank image is refused rather than released as an empty message.
    """
    options = options or SiftOptions()
    if options.first_octave is not None:
        return _extracted(picture, options, options.first_octave)
    try:
        features = _extracted(picture, options, 0)
    except InputError:
        return _extracted(picture, options, -1)
    if 2 * len(features) >= options.max_features:
        return features
    return _extracted(picture, options, -1)


def _extracted(picture: Picture, options: SiftOptions, first_octave: int) -> Features:
    from veil.colmap import pycolmap

    gray, scale = _shrunk(picture.gray, options.max_image_side_px)
    settings = pycolmap.FeatureExtractionOptions()
    settings.use_gpu = False
    settings.sift.max_num_features = options.max_features
    settings.sift.first_octave = first_octave
    settings.sift.normalization = getattr(pycolmap.Normalization, options.normalization)
    keypoints, unit = pycolmap.Sift(settings, pycolmap.Device.cpu).extract(np.ascontiguousarray(gray))
    if len(keypoints) == 0:
        raise InputError("no features were found; the image may be blank or out of focus")
    # Several orientations at one place can exceed the limit; the largest scales stay, as COLMAP itself prefers them.
    kept = np.sort(np.argsort(-keypoints[:, 2], kind="stable")[: options.max_features])
    keypoints = keypoints[kept].astype(np.float32)
    quantized = in_eight_bits(unit[kept])
    lively = quantized.any(axis=1)
    return Features(
        keypoints=np.ascontiguousarray(keypoints[lively, :2] * scale),
        descriptors=quantized[lively],
        space=sift_space(options.normalization),
        camera=picture.camera,
        image_digest=picture.digest,
        scales=np.ascontiguousarray(keypoints[lively, 2]) * scale,
        orientations=np.ascontiguousarray(keypoints[lively, 3]),
    )


def _shrunk(gray: np.ndarray, max_side: int) -> tuple[np.ndarray, np.float32]:
    """The image shrunk to at most `max_side` px a side, and the factor from its pixels to the original's."""
    longest = max(gray.shape)
    if longest <= max_side:
        return gray, np.float32(1)
    from PIL import Image

    factor = longest / max_side
    size = (round(gray.shape[1] / factor), round(gray.shape[0] / factor))
    return np.asarray(Image.fromarray(gray).resize(size, Image.Resampling.LANCZOS)), np.float32(factor)
