"""Straight line segments of a picture, and gravity estimated from them; everything here stays on the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from veil.extraction.picture import Picture
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.gravity import NoGravity
from veil.geometry.vanishing_point import Vertical, VerticalOptions, vertical_from_segments

# Larger pictures are shrunk first: edges of buildings keep their direction, and noise makes fewer segments.
MAX_SIDE_PX = 1600
# OpenCV puts pixel centers at integers, veil at halves.
_OPENCV_ORIGIN = 0.5
# Relative standard deviation of a guess (1.2 times the longer side) for photographs that show vertical edges; maps, which find
# the focal length anew, take a guess for worse (docs/theory/gravity.md, Eq. 8).
_GUESSED = 0.3


def detect_segments(picture: Picture) -> Float64[np.ndarray, "segments 2 2"]:
    """Line segments of a picture as pairs of end points (x, y) in its pixels.

    Source: OpenCV's LSD (Grompone von Gioi et al., IPOL 2012), on a picture of at most `MAX_SIDE_PX`.
    """
    import cv2

    height, width = picture.gray.shape
    scale = min(1.0, MAX_SIDE_PX / max(height, width))
    gray = picture.gray
    if scale < 1:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        gray = np.asarray(cv2.resize(gray, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    segments = cv2.createLineSegmentDetector().detect(gray)[0]
    if segments is None:
        return np.zeros((0, 2, 2))
    ends = np.asarray(segments, dtype=np.float64).reshape(-1, 2, 2) + _OPENCV_ORIGIN
    return ends * [width / gray.shape[1], height / gray.shape[0]]


def undistorted(segments: Float64[np.ndarray, "segments 2 2"], camera: Camera) -> Float64[np.ndarray, "segments 2 2"]:
    """End points of segments in the normalized plane; NaN where the distortion cannot be undone."""
    ends = np.asarray(as_colmap(camera).cam_from_img(segments.reshape(-1, 2)), dtype=np.float64)
    return ends.reshape(-1, 2, 2)


def vertical_of(picture: Picture, *, options: VerticalOptions | None = None) -> Vertical | NoGravity:
    """Gravity from the vertical segments of a picture; `Vertical.rows` index the segments of `detect_segments`.

    Its standard deviation grows with that of the camera's focal length (docs/theory/gravity.md, Eq. 8).
    """
    segments, pixel = normalized_segments(picture)
    spread = focal_spread(picture.camera)
    return vertical_from_segments(segments, pixel, replace(options or VerticalOptions(), focal_spread=spread))


def focal_spread(camera: Camera) -> float:
    """Relative standard deviation of a camera's focal length, as vertical segments count it."""
    return min(camera.focal.deviation, _GUESSED)


def normalized_segments(picture: Picture) -> tuple[Float64[np.ndarray, "segments 2 2"], float]:
    """The picture's segments in the normalized plane, in the order of `detect_segments`, and the size of the detector's pixel
    there."""
    camera = picture.camera
    pixel = max(1.0, max(camera.width_px, camera.height_px) / MAX_SIDE_PX) / camera.focal_px
    return undistorted(detect_segments(picture), camera), pixel
