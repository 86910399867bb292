"""Alignment of faces: turned and scaled so that eyes, nose and mouth lie where networks of the ArcFace kind expect them."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64, UInt8

from veil.geometry.similarity import align_points

# Eyes, tip of the nose, corners of the mouth, left to right, in 112 x 112 px (Deng et al. 2019; their published code).
TEMPLATE_PX = 112
TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]], dtype=np.float64
)
# These five places among the 68 landmarks of dlib's predictor; an eye is the mean of its outline.
PLACES = (range(36, 42), range(42, 48), (30,), (48,), (54,))


def five_points(landmarks: Any) -> Float64[np.ndarray, "5 2"]:
    """The five places of the template in a photograph, pixels (x, y), from dlib's 68 landmarks of a face."""
    return np.array(
        [np.mean([(landmarks.part(k).x, landmarks.part(k).y) for k in place], axis=0) for place in PLACES], dtype=np.float64
    )


def aligned_face(
    pixels: UInt8[np.ndarray, "height width 3"], points: Float64[np.ndarray, "5 2"], size_px: int
) -> UInt8[np.ndarray, "size size 3"]:
    """The face at five points as a square picture of `size_px` a side; black where the photograph ends.

    The similarity that brings the points nearest to the template, scaled by `size_px` / 112, is applied. Raises InputError if
    all points are the same.
    """
    import cv2

    chip_from_photo = align_points(points, TEMPLATE * (size_px / TEMPLATE_PX))
    matrix = np.column_stack((chip_from_photo.scale * chip_from_photo.rotation, chip_from_photo.translation))
    return np.asarray(cv2.warpAffine(pixels, matrix, (size_px, size_px), flags=cv2.INTER_LINEAR), dtype=np.uint8)
