"""Images -> Features, one extractor a file; the raw side."""

from __future__ import annotations

from typing import Any, Literal

from veil.errors import RangeError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features

Extractor = Literal["sift", "hardtfeat", "hardnet"]
EXTRACTORS: tuple[Extractor, ...] = ("sift", "hardtfeat", "hardnet")


def extract(picture: Picture, name: str = "sift", options: SiftOptions | None = None, network: Any = None) -> Features:
    """Features of one picture: SIFT, or a learned descriptor (given its loaded `network`) on SIFT's keypoints.

    They are raw: they can be inverted into the picture, and stay on the device. Raises RangeError for a descriptor that veil
    does not extract, InputError for a picture without features.
    """
    if name not in EXTRACTORS:
        raise RangeError(f"descriptor must be one of {', '.join(EXTRACTORS)}, got {name!r}")
    features = extract_sift(picture, options or SiftOptions(first_octave=None))
    if name == "sift":
        return features
    from veil.extraction.learned import describe_keypoints

    return describe_keypoints(picture, features, name, network)
