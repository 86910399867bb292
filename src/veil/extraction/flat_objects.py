"""Pictures of flat objects: one painted into a picture as a camera sees it, and views of one alone.

A flat object's coordinates begin at its middle: x to the right, y down, z away from whoever looks at its front. Its unit is
its own width.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float64, UInt8

from veil.extraction.picture import Picture
from veil.geometry.camera import CALIBRATED, Camera, as_colmap
from veil.geometry.rigid import Rigid

Gray = UInt8[np.ndarray, "_ _"]
# Directions from which views see an object: degrees to the right of and below the line through its middle, and the distance
# from which a camera sees its full width as part of the picture's.
VIEWS_DEG = ((0.0, 0.0), (25.0, 5.0), (-25.0, -5.0), (8.0, 22.0), (-8.0, -22.0))
FILLED = 1.1
# Focal length of views, as a share of the picture's width. Behind an object there is nothing but gray.
FOCAL, EMPTY = 1.0, 128


def corners_of(gray: Gray) -> Float64[np.ndarray, "4 3"]:
    """Corners of an object in its own coordinates, from the upper left on around it."""
    high = gray.shape[0] / gray.shape[1] / 2
    return np.array([[-0.5, -high, 0.0], [0.5, -high, 0.0], [0.5, high, 0.0], [-0.5, high, 0.0]])


def projected(camera: Camera, cam_from_object: Rigid, points: Float64[np.ndarray, "points 3"]) -> Float64[np.ndarray, "_ 2"]:
    """Where points of an object lie in a picture, in pixels; all must lie before the camera."""
    return np.asarray(as_colmap(camera).img_from_cam(cam_from_object.apply(points)), dtype=np.float64).reshape(-1, 2)


def painted(picture: Gray, camera: Camera, gray: Gray, cam_from_object: Rigid) -> tuple[Gray, Bool[np.ndarray, "_ _"]]:
    """The picture with a flat object before all that it shows, and the pixels that the object covers.

    All corners of the object must lie before the camera. Between them the camera's distortion is left out.
    """
    import cv2

    corners = projected(camera, cam_from_object, corners_of(gray)).astype(np.float32)
    sides = np.linalg.norm(corners - np.roll(corners, -1, axis=0), axis=1)
    width, height = (max(2, math.ceil(float(side))) for side in (sides[[0, 2]].max(), sides[[1, 3]].max()))
    if width < gray.shape[1]:  # perspective takes single pixels of what it shrinks
        gray = np.asarray(cv2.resize(gray, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)
    height, width = gray.shape
    own = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float32)
    # OpenCV has the centers of pixels at whole numbers, and veil their corners.
    warp, size = cv2.getPerspectiveTransform(own - 0.5, corners - 0.5), picture.shape[::-1]
    shown = cv2.warpPerspective(gray, warp, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    covered = np.asarray(cv2.warpPerspective(np.full_like(gray, 255), warp, size, flags=cv2.INTER_LINEAR)) > 127
    return np.where(covered, shown, picture).astype(np.uint8), covered


def flat_views(gray: Gray, *, width_px: int) -> list[tuple[Picture, Rigid]]:
    """Pictures of a flat object from five sides, as its owner could take them, with the poses of their cameras beside it.

    The object is a little wider than each picture of `width_px`, and so nothing else is seen but at the corners.
    """
    height_px = round(width_px * gray.shape[0] / gray.shape[1])
    focal = FOCAL * width_px
    camera = Camera("PINHOLE", width_px, height_px, (focal, focal, width_px / 2, height_px / 2), CALIBRATED)
    views = []
    for right, below in VIEWS_DEG:
        pose = _looking(math.radians(right), math.radians(below), FOCAL / FILLED)
        picture, _ = painted(np.full((height_px, width_px), EMPTY, dtype=np.uint8), camera, gray, pose)
        views.append((Picture.of(np.repeat(picture[:, :, None], 3, axis=2), camera=camera), pose))
    return views


def _looking(right: float, below: float, distance: float) -> Rigid:
    """cam_from_object of a camera that looks at the object's middle from a side, given by two angles in radians."""
    about_y = np.array([[math.cos(right), 0, math.sin(right)], [0, 1, 0], [-math.sin(right), 0, math.cos(right)]])
    about_x = np.array([[1, 0, 0], [0, math.cos(below), -math.sin(below)], [0, math.sin(below), math.cos(below)]])
    return Rigid(rotation=about_x @ about_y, translation=np.array([0.0, 0.0, distance]))
