"""Images as point mapping takes them, and which of them no photograph can have made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from veil.forms import Form
from veil.geometry.camera import Camera, as_colmap

# Of the longer side: the focal lengths that COLMAP's mapper believes as well.
MIN_FOCAL, MAX_FOCAL = 0.1, 10.0
# Of the image's diagonal: how far keypoints and the principal point may lie outside it.
MARGIN = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class MapImage:
    """One image to map: what an upload holds, or a public image's raw descriptors."""

    camera: Camera
    keypoints: Float32[np.ndarray, "features 2"]
    form: Form


def impossible(images: Mapping[str, MapImage]) -> dict[str, str]:
    """Why images cannot be mapped, by name: intrinsics that no lens has, or positions outside the image.

    Such an image can hang COLMAP's solvers or drag the others to one center; messages are checked when they are decoded, and
    this is the second lock.
    """
    return {name: reason for name, image in images.items() if (reason := _impossible(image)) is not None}


def _impossible(image: MapImage) -> str | None:
    camera = image.camera
    longer = max(camera.width_px, camera.height_px)
    for focal in camera.params[: camera.focal_count]:
        if not MIN_FOCAL * longer <= focal <= MAX_FOCAL * longer:
            return f"a focal length of {focal:.6g} px is not one of an image of {camera.width_px}x{camera.height_px} px"
    size = np.array([camera.width_px, camera.height_px], dtype=np.float64)
    margin = MARGIN * float(np.hypot(*size))
    center = np.array(camera.params[camera.focal_count : camera.focal_count + 2])
    if not ((center >= -size) & (center <= 2 * size)).all():
        return "its principal point lies far outside it"
    if not ((image.keypoints >= -margin) & (image.keypoints <= size + margin)).all():
        return "it has keypoints outside itself"
    if not _round_trips(camera, size):
        return f"its distortion ({', '.join(f'{p:.4g}' for p in camera.params[camera.focal_count + 2 :])}) cannot be undone"
    return None


def _round_trips(camera: Camera, size: np.ndarray) -> bool:
    """Whether the corners and the middles of the sides come back after undistorting and distorting them, to 1 px."""
    if len(camera.params) == camera.focal_count + 2:
        return True
    grid = np.array([[x, y] for x in (0.0, 0.5, 1.0) for y in (0.0, 0.5, 1.0)]) * size
    model = as_colmap(camera)
    with np.errstate(all="ignore"):
        rays = np.asarray(model.cam_from_img(grid))
        if "FISHEYE" in camera.model:  # what lies 90 degrees off the axis has no ray in the plane
            rays = rays[np.isfinite(rays).all(axis=1)]
            return len(rays) > 0
        back = np.asarray(model.img_from_cam(np.hstack([rays, np.ones((len(rays), 1))])))
        return bool(np.isfinite(rays).all() and np.isfinite(back).all() and (np.abs(back - grid) <= 1).all())


def undistorted_pixels(camera: Camera, keypoints: np.ndarray) -> Float64[np.ndarray, "features 2"]:
    """Positions in pixels of the pinhole camera with the same focal lengths and principal point."""
    rays = np.asarray(as_colmap(camera).cam_from_img(np.ascontiguousarray(keypoints, dtype=np.float64))).reshape(-1, 2)
    return rays * [camera.params[0], camera.params[camera.focal_count - 1]] + camera.params[camera.focal_count :][:2]


def calibration(camera: Camera) -> Float64[np.ndarray, "3 3"]:
    """The matrix K of that pinhole camera."""
    cx, cy = camera.params[camera.focal_count : camera.focal_count + 2]
    return np.array([[camera.params[0], 0.0, cx], [0.0, camera.params[camera.focal_count - 1], cy], [0.0, 0.0, 1.0]])
