"""Features of networks that find their own keypoints, in colors."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, UInt8

from veil.extraction.detection import DetectorOptions
from veil.extraction.picture import Picture
from veil.features import Features
from veil.space import Space


@runtime_checkable
class DetectingNetwork(Protocol):
    """A network that finds and describes keypoints; `kind` names its descriptors by its weights."""

    @property
    def kind(self) -> str: ...

    def detect_and_describe(
        self, rgb: UInt8[np.ndarray, "rows columns 3"], *, most: int, least_score: float | None
    ) -> tuple[Float32[np.ndarray, "found 2"], Float32[np.ndarray, "found"], Float32[np.ndarray, "found dim"]]: ...


def detected(picture: Picture, network: DetectingNetwork, options: DetectorOptions) -> Features:
    """The features that a network finds in one picture, with keypoints in its full-resolution pixels and the network's scores.

    Raises InputError if nothing is found: a blank image is refused rather than released as an empty message.
    """
    rgb = np.repeat(picture.gray[..., None], 3, axis=2) if picture.rgb is None else picture.rgb
    shrunk = _shrunk(rgb, options.max_image_side_px)
    places, scores, descriptors = network.detect_and_describe(shrunk, most=options.max_features, least_score=options.min_score)
    factor = np.array([rgb.shape[1] / shrunk.shape[1], rgb.shape[0] / shrunk.shape[0]], dtype=np.float32)
    return Features(
        keypoints=(places + np.float32(0.5)) * factor,  # networks put pixel centers at integers
        descriptors=descriptors,
        space=Space(descriptor=network.kind, normalization="L2", dim=descriptors.shape[1]),
        camera=picture.camera,
        image_digest=picture.digest,
        scores=scores,
    )


def _shrunk(rgb: UInt8[np.ndarray, "rows columns 3"], max_side: int) -> UInt8[np.ndarray, "shrunk_rows shrunk_columns 3"]:
    """The image shrunk to at most `max_side` px a side."""
    longest = max(rgb.shape[:2])
    if longest <= max_side:
        return np.ascontiguousarray(rgb)
    from PIL import Image

    size = [max(1, round(side * max_side / longest)) for side in (rgb.shape[1], rgb.shape[0])]
    return np.asarray(Image.fromarray(rgb).resize((size[0], size[1]), Image.Resampling.LANCZOS))
