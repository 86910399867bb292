"""Learned descriptors on SIFT's keypoints, which are dense, signed, and never stored in 8 bits.

Their input are oriented, scale-normalized gray patches around the keypoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64, UInt8

from veil.errors import InputError, RangeError
from veil.extraction.picture import Picture
from veil.features import Features
from veil.space import Space

# The 5-tap binomial, nearly a Gaussian of one pixel, before each halving (Burt & Adelson 1983).
BINOMIAL = np.array([1, 4, 6, 4, 1], dtype=np.float64) / 16
CHUNK = 512  # patches sampled at a time: 8 MB of coordinates at 32 x 32
# Correct HardTFeat matches level off between 20 and 28 sigma on oxford_graf and on Strecha's scenes; 12 sigma, SIFT's
# own window, costs up to a quarter of them under a strong change of viewpoint, and more in blurred images.
SUPPORT_SCALE = 24.0


def sample_patches(
    image: UInt8[np.ndarray, "height width"] | Float[np.ndarray, "height width"],
    keypoints: Float32[np.ndarray, "features 2"],
    *,
    scales: Float32[np.ndarray, "features"],
    orientations: Float32[np.ndarray, "features"],
    support_scale: float = SUPPORT_SCALE,
    size: int = 32,
) -> Float32[np.ndarray, "features {size} {size}"]:
    """Gray patches around keypoints: squares with sides of `support_scale` x scale pixels, turned by the orientation.

    `keypoints` are pixels (x, y) from the image's top-left corner, so that pixel centers lie at +0.5; `scales` are
    SIFT's sigma in pixels; `orientations` are radians from the x-axis towards the y-axis (which points down), as
    COLMAP and VLFeat give them, and become the patch's x-axis. Gray values keep the image's range. Sampling is
    bilinear from a Gaussian pyramid, in the level where neighbors are 1 to 2 pixels apart (closer for small keypoints,
    in the image itself); beyond the border the nearest pixel counts.
    Raises InputError if anything is not finite or a scale is not positive, RangeError for impossible options.
    """
    from scipy import ndimage

    if not 0 < support_scale < np.inf or size < 2:
        raise RangeError(f"support_scale must be positive and size at least 2, got {support_scale!r} and {size!r}")
    _require_usable(image, keypoints, scales, orientations)
    steps = scales.astype(np.float64) * (support_scale / size)
    levels = _levels(steps, max(image.shape))
    patches = np.empty((len(keypoints), size, size), dtype=np.float32)
    for level, picture in enumerate(_pyramid(image, int(levels.max(initial=0)))):
        rows = np.flatnonzero(levels == level)
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            x, y = _grid(keypoints[chunk], steps[chunk], orientations[chunk], size)
            # Pixel i of a level lies on pixel 2^level i of the image, whose center has the coordinate 2^level i + 0.5.
            at = np.stack([(y - 0.5) / 2.0**level, (x - 0.5) / 2.0**level])
            patches[chunk] = ndimage.map_coordinates(picture, at, order=1, mode="nearest")
    return patches


def _require_usable(image: np.ndarray, keypoints: np.ndarray, scales: np.ndarray, orientations: np.ndarray) -> None:
    """Raise InputError if the image is empty, a number is not finite, or a scale is not positive."""
    if 0 in image.shape or not np.isfinite(image).all():
        raise InputError(f"the image is empty or contains NaN or infinity (shape {image.shape}); load it again")
    if not (np.isfinite(keypoints).all() and np.isfinite(orientations).all()):
        raise InputError("keypoints or orientations contain NaN or infinity; drop those rows")
    wrong = np.flatnonzero(~((scales > 0) & (scales < np.inf)))  # also catches NaN
    if wrong.size:
        raise InputError(
            f"{wrong.size} scales are not positive and finite (first: row {wrong[0]}, {scales[wrong[0]]!r}); drop them"
        )


def _levels(steps: Float64[np.ndarray, "features"], longest_side: int) -> Int64[np.ndarray, "features"]:
    """The pyramid level of each feature, where its step of `steps` image pixels lies in [1, 2).

    No level is finer than 0, nor so coarse that the image would be less than a pixel long.
    """
    _, exponents = np.frexp(steps)  # step = fraction 2^exponent with the fraction in [1/2, 1)
    return np.clip(exponents.astype(np.int64) - 1, 0, longest_side.bit_length() - 1)


def _pyramid(image: np.ndarray, top: int) -> Iterator[Float32[np.ndarray, "rows columns"]]:
    """The image, then `top` levels of which each has half the size of the one before."""
    from scipy import ndimage

    picture = image.astype(np.float32)
    yield picture
    for _ in range(top):
        for axis in (0, 1):
            picture = ndimage.correlate1d(picture, BINOMIAL, axis=axis, mode="nearest")
        picture = picture[::2, ::2]
        yield picture


def _grid(
    keypoints: Float32[np.ndarray, "features 2"],
    steps: Float64[np.ndarray, "features"],
    orientations: Float32[np.ndarray, "features"],
    size: int,
) -> tuple[Float64[np.ndarray, "features {size} {size}"], Float64[np.ndarray, "features {size} {size}"]]:
    """Positions of the patches' pixels (row v, column u) in the image: x and y from its top-left corner, in pixels."""
    offsets = np.arange(size) - (size - 1) / 2
    along = steps * np.cos(orientations.astype(np.float64))
    across = steps * np.sin(orientations.astype(np.float64))
    u, v = offsets[None, None, :], offsets[None, :, None]
    x = keypoints[:, 0, None, None] + along[:, None, None] * u - across[:, None, None] * v
    y = keypoints[:, 1, None, None] + across[:, None, None] * u + along[:, None, None] * v
    return x, y


def describe_keypoints(picture: Picture, features: Features, name: str, network: Any) -> Features:
    """The features with their descriptors replaced by learned ones, float32 of unit length.

    `name` is "hardtfeat" or "hardnet", `network` as `veil.extraction.extract` takes it. Raises InputError if the network is
    missing or does not fit, or the features carry no scale and orientation.
    """
    if features.scales is None or features.orientations is None:
        raise InputError("a patch descriptor needs each keypoint's scale and orientation; extract from the photograph")
    patches = sample_patches(picture.gray, features.keypoints, scales=features.scales, orientations=features.orientations)
    if name == "hardnet":
        from veil.extraction.hardnet import hardnet_describe

        descriptors = hardnet_describe(patches, weights=network)
    elif network is None:
        raise InputError(f"{name} needs its network; load it with veil.files.weights.load_network({name!r})")
    else:
        descriptors = network.describe(patches)
    return replace(
        features,
        descriptors=np.ascontiguousarray(descriptors, dtype=np.float32),
        space=Space(descriptor=name, normalization="L2", dim=descriptors.shape[1]),
    )
