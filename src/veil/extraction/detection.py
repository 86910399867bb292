"""Features of networks that find keypoints themselves: keypoints where the network's score is largest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt8

from veil.errors import InputError, RangeError
from veil.extraction.picture import Picture
from veil.extraction.sift import MAX_FEATURES
from veil.features import Features
from veil.one_line import one_line
from veil.space import Space


@dataclass(frozen=True, kw_only=True)
class DetectorOptions:
    """Options of networks that find their own keypoints.

    - `max_features`: largest number of features, 1..8192; those of largest score are kept.
    - `min_score`: least score of a keypoint, 0 to 1; None: the network's own, as published.
    - `max_image_side_px`: larger images are shrunk to this side first; keypoints are in pixels of the original all the same.

    Raises RangeError for values outside these ranges (the side is at least 64 px).
    """

    max_features: int = MAX_FEATURES
    min_score: float | None = None
    max_image_side_px: int = 1600

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 1 <= self.max_features <= MAX_FEATURES:
            raise RangeError(f"max_features must be between 1 and {MAX_FEATURES}, got {self.max_features!r}")
        if self.min_score is not None and not 0 <= self.min_score <= 1:
            raise RangeError(f"min_score must be between 0 and 1, got {self.min_score!r}")
        if not self.max_image_side_px >= 64:
            raise RangeError(f"max_image_side_px must be at least 64, got {self.max_image_side_px!r}")


def local_maxima(scores: Float32[np.ndarray, "rows columns"], radius: int) -> Bool[np.ndarray, "rows columns"]:
    """Pixels whose score no pixel within `radius` (in either coordinate) exceeds, and, twice, such pixels among those left.

    What lies within `radius` of a maximum is taken out before maxima are looked for again, as SuperPoint and ALIKED do.
    """
    maxima = scores == largest_around(scores, radius)
    for _ in range(2):
        taken = largest_around(maxima.astype(np.float32), radius) > 0
        rest = np.where(taken, np.float32(0), scores)
        maxima |= (rest == largest_around(rest, radius)) & ~taken
    return maxima


def strongest(
    scores: Float32[np.ndarray, "rows columns"],
    candidates: Bool[np.ndarray, "rows columns"],
    *,
    least: float,
    most: int,
    border: int,
) -> Int64[np.ndarray, "found 2"]:
    """Pixels (x, y) of at most `most` candidates with a score above `least`, the largest first.

    None lies within `border` pixels of the edge. Raises InputError if there are none.
    """
    inner = candidates & (scores > least)
    inner[:border] = inner[len(inner) - border :] = False
    inner[:, :border] = inner[:, inner.shape[1] - border :] = False
    y, x = np.nonzero(inner)
    if not len(x):
        raise InputError("no features were found; the image may be blank or out of focus")
    order = np.argsort(-scores[y, x], kind="stable")[:most]
    return np.stack([x[order], y[order]], axis=1)


def refined(
    scores: Float32[np.ndarray, "rows columns"], pixels: Int64[np.ndarray, "found 2"], *, radius: int, temperature: float
) -> Float32[np.ndarray, "found 2"]:
    """Positions (x, y) between pixels: means of the pixels within `radius`, weighted by exp(score / temperature)."""
    offsets = np.arange(-radius, radius + 1)
    around = scores[pixels[:, 1, None, None] + offsets[:, None], pixels[:, 0, None, None] + offsets]
    weights = np.exp((around - around.max(axis=(1, 2), keepdims=True)) / np.float32(temperature))
    weights /= weights.sum(axis=(1, 2), keepdims=True)
    moved = np.stack([(weights.sum(axis=1) @ offsets), (weights.sum(axis=2) @ offsets)], axis=1)
    return (pixels + moved).astype(np.float32)


def largest_around(values: Float32[np.ndarray, "rows columns"], radius: int) -> Float32[np.ndarray, "rows columns"]:
    """The largest value within `radius` of each pixel, in either coordinate."""
    from scipy import ndimage

    return ndimage.maximum_filter(values, size=2 * radius + 1, mode="constant", cval=-np.inf)


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
