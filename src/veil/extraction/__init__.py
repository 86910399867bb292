"""Extraction of raw features from photographs, one extractor a file; everything here stays on the device.

`picture` is a decoded photograph. Extractors: `sift`; `hardtfeat` and `hardnet` describe its keypoints (`learned`);
`aliked` and `xfeat` find their own (`detection`, `convolution`). `segments` finds lines, and gravity from them.
`flat_objects` draws flat objects as cameras see them.

A new extractor is a file here, its name in `Extractor` and `EXTRACTORS` (and `DETECTORS` if it finds keypoints) and a branch of
`extract` below; its dimension stands in `DIMS` of `veil.space`, and the weights of a network in `loaders` of
`veil.files.weights`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Bool

from veil.errors import InputError, RangeError
from veil.extraction.detection import DetectorOptions
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.geometry.camera import Camera

Extractor = Literal["sift", "hardtfeat", "hardnet", "aliked-n16rot", "xfeat"]
EXTRACTORS: tuple[Extractor, ...] = ("sift", "hardtfeat", "hardnet", "aliked-n16rot", "xfeat")
DETECTORS = ("aliked-n16rot", "xfeat")  # networks that find keypoints themselves; the others describe SIFT's
SHORT = {"aliked": "aliked-n16rot"}


def full_name(name: str) -> str:
    """The name of a descriptor that may be given in short: "aliked" is the one that veil has the weights of."""
    return SHORT.get(name, name)


def extract(
    picture: Picture,
    name: str = "sift",
    options: SiftOptions | DetectorOptions | None = None,
    network: Any = None,
    camera: Camera | None = None,
    mask: Bool[np.ndarray, "height width"] | None = None,
) -> Features:
    """Extract the raw features of one picture: SIFT, a learned descriptor on SIFT's keypoints, or a network's own keypoints.

    Raw features can be inverted into the picture; they stay on the device.

    - `picture`: from `read_picture`.
    - `name`: "sift" (8 bits, 128 dimensions), "hardtfeat" or "hardnet" (float32, 128 dimensions, on SIFT's keypoints), or
      "aliked-n16rot" ("aliked" in short; float32, 128 dimensions) or "xfeat" (float32, 64 dimensions), on their own keypoints.
    - `options`: of SIFT's keypoints, by default up to 8192, in an image that is doubled where it gives few; or
      `DetectorOptions` of a network's own keypoints, for which those of SIFT count by `max_features` alone.
    - `network`: what `veil.load_network` returns; "hardnet" takes a state dict as arrays, or None for the weights
      that kornia has.
    - `camera`: intrinsics in pixels of the picture, in place of the picture's own.
    - `mask`: pixels of the picture at which features may lie; None: all. What lies elsewhere still shows in the descriptors of
      features beside it.

    Raises RangeError for a descriptor that veil does not extract, InputError for a picture without features, for a network
    that is missing or does not fit, a mask of another size, and for options of another extractor.
    """
    picture = picture if camera is None else picture.seen_by(camera)
    if mask is not None and mask.shape != picture.gray.shape:
        raise InputError(f"the mask has shape {mask.shape}, and the picture {picture.gray.shape}")
    features = _extracted(picture, full_name(name), options, network)
    return features if mask is None else _masked(features, mask)


def _masked(features: Features, mask: Bool[np.ndarray, "height width"]) -> Features:
    """The features that lie in pixels of the mask. Raises InputError if there are none."""
    height, width = mask.shape
    columns, rows = np.clip(features.keypoints.astype(np.int64), 0, [width - 1, height - 1]).T
    kept = np.flatnonzero(mask[rows, columns])
    if not kept.size:
        raise InputError(f"all of its {len(features)} features lie where the mask is black")
    return features.take(kept)


def _extracted(picture: Picture, name: str, options: SiftOptions | DetectorOptions | None, network: Any) -> Features:
    """The features of the whole picture."""
    if name not in EXTRACTORS:
        raise RangeError(f"descriptor must be one of {', '.join(EXTRACTORS)}, got {name!r}")
    if name in DETECTORS:
        from veil.extraction.detection import detected

        if network is None:
            raise InputError(f"{name} needs its network; load it with veil.load_network({name!r})")
        if isinstance(options, SiftOptions):
            options = DetectorOptions(max_features=options.max_features)
        return detected(picture, network, options or DetectorOptions())
    if isinstance(options, DetectorOptions):
        raise InputError(f"{name} is found at SIFT's keypoints; give SiftOptions")
    features = extract_sift(picture, options or SiftOptions(first_octave=None))
    if name == "sift":
        return features
    from veil.extraction.learned import describe_keypoints

    return describe_keypoints(picture, features, name, network)
