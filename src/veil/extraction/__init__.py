"""Images -> Features, one extractor a file; the raw side."""

from __future__ import annotations

from typing import Any, Literal

from veil.errors import RangeError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features

Extractor = Literal["sift", "hardtfeat", "hardnet"]
EXTRACTORS: tuple[Extractor, ...] = ("sift", "hardtfeat", "hardnet")


def extract(picture: Picture, name: str, options: SiftOptions, network: Any = None) -> Features:
    """Features of one picture: SIFT, or a learned descriptor (given its loaded `network`) on SIFT's keypoints."""
    if name not in EXTRACTORS:
        raise RangeError(f"descriptor must be one of {', '.join(EXTRACTORS)}, got {name!r}")
    features = extract_sift(picture, options)
    if name == "sift":
        return features
    from veil.extraction.learned import describe_keypoints

    return describe_keypoints(picture, features, name, network)
