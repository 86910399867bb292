"""Extraction of raw features from photographs, one extractor a file; everything here stays on the device."""

from __future__ import annotations

from typing import Any, Literal

from veil.errors import RangeError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features

Extractor = Literal["sift", "hardtfeat", "hardnet"]
EXTRACTORS: tuple[Extractor, ...] = ("sift", "hardtfeat", "hardnet")


def extract(picture: Picture, name: str = "sift", options: SiftOptions | None = None, network: Any = None) -> Features:
    """Extract the raw features of one picture: SIFT, or a learned descriptor on SIFT's keypoints.

    Raw features can be inverted into the picture; they stay on the device.

    - `picture`: from `read_picture`.
    - `name`: "sift" (8 bits, 128 dimensions), "hardtfeat" or "hardnet" (float32, 128 dimensions).
    - `options`: of SIFT's keypoints; by default up to 8192, in an image that is doubled where it gives few.
    - `network`: "hardtfeat" needs what `veil.files.weights.load_network` returns; "hardnet" takes a state dict as arrays, or
      None for the weights that kornia has.

    Raises RangeError for a descriptor that veil does not extract, InputError for a picture without features, and for a network
    that is missing or does not fit.
    """
    if name not in EXTRACTORS:
        raise RangeError(f"descriptor must be one of {', '.join(EXTRACTORS)}, got {name!r}")
    features = extract_sift(picture, options or SiftOptions(first_octave=None))
    if name == "sift":
        return features
    from veil.extraction.learned import describe_keypoints

    return describe_keypoints(picture, features, name, network)
