"""A pinhole camera with COLMAP's distortion models; pixel origin at the image's top-left corner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.errors import RangeError
from veil.one_line import one_line

# COLMAP's model name -> number of parameters, in COLMAP's order. Models whose focal length veil cannot read are absent.
MODELS = {
    "SIMPLE_PINHOLE": 3,
    "PINHOLE": 4,
    "SIMPLE_RADIAL": 4,
    "RADIAL": 5,
    "OPENCV": 8,
    "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12,
    "SIMPLE_RADIAL_FISHEYE": 4,
    "RADIAL_FISHEYE": 5,
}


@dataclass(frozen=True)
class Camera:
    """Camera intrinsics: a COLMAP model with its parameters, and the image size.

    - `model`: name of a COLMAP model, one of `MODELS`, such as "PINHOLE" or "SIMPLE_RADIAL".
    - `width_px`, `height_px`: size of the upright image in pixels.
    - `params`: as COLMAP orders them for `model`: focal lengths and principal point in pixels (origin at the top-left corner),
      then distortion coefficients without unit.
    - `focal_is_known`: whether the focal length was measured or read from EXIF; otherwise it is a guess (1.2 times the longer
      side) that mapping may refine.

    Raises RangeError for unknown models, wrong counts, sizes outside 1..65535 px, a focal length that is not positive, or
    numbers that are not finite.
    """

    model: str
    width_px: int
    height_px: int
    params: tuple[float, ...]
    focal_is_known: bool = True

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise RangeError(f"camera model {self.model!r} is not supported; use one of {', '.join(MODELS)}")
        if len(self.params) != MODELS[self.model]:
            raise RangeError(f"{self.model} takes {MODELS[self.model]} parameters, got {len(self.params)}")
        if not (1 <= self.width_px <= 65535 and 1 <= self.height_px <= 65535):
            raise RangeError(f"image size must be 1..65535 px a side, got {self.width_px}x{self.height_px}")
        if not all(math.isfinite(p) for p in self.params) or not min(self.params[: self.focal_count]) > 0:
            raise RangeError(f"camera parameters must be finite with a positive focal length, got {self.params!r}")

    @staticmethod
    def parse(text: str, width_px: int, height_px: int) -> Camera:
        """The camera that `MODEL,p1,p2,...` names, as the command line writes it, for images of this size in pixels.

        Raises InputError for another text, RangeError for intrinsics that no photograph can have.
        """
        from veil.geometry.intrinsics import parse  # which knows cameras

        return parse(text, width_px, height_px)

    @property
    def focal_count(self) -> int:
        """Number of focal lengths of the model: one for radial models and SIMPLE_PINHOLE, two (fx and fy) for the others."""
        return 1 if "RADIAL" in self.model or self.model == "SIMPLE_PINHOLE" else 2

    @property
    def focal_px(self) -> float:
        """Focal length along x, pixels."""
        return self.params[0]


def guessed(width_px: int, height_px: int, *, focal_px: float | None = None) -> Camera:
    """A SIMPLE_RADIAL camera without distortion; the focal length defaults to COLMAP's guess of 1.2 times the longer side.

    With `focal_px` it counts as known. Raises RangeError as `Camera` does.
    """
    focal = 1.2 * max(width_px, height_px) if focal_px is None else float(focal_px)
    return Camera(
        model="SIMPLE_RADIAL",
        width_px=width_px,
        height_px=height_px,
        params=(focal, width_px / 2, height_px / 2, 0.0),
        focal_is_known=focal_px is not None,
    )


# Projections in the picture enlarged by this factor still count as in it (lines.md#points-and-cameras).
FRAME_SLACK = 1.1


def half_extent(camera: Camera) -> Float64[np.ndarray, "2"]:
    """Largest |x| and |y| of the image's corners in the undistorted normalized image plane."""
    corners = np.array([[0.0, 0.0], [camera.width_px, camera.height_px]])
    return np.abs(np.asarray(as_colmap(camera).cam_from_img(corners), dtype=np.float64)).max(axis=0)


def as_colmap(camera: Camera) -> Any:
    """The camera as a `pycolmap.Camera`."""
    from veil.colmap import pycolmap

    return pycolmap.Camera(
        model=camera.model,
        width=camera.width_px,
        height=camera.height_px,
        params=list(camera.params),
        has_prior_focal_length=camera.focal_is_known,
    )


def from_colmap(camera: Any) -> Camera:
    """The `Camera` of a pycolmap camera; its focal length counts as known, as mapping has refined it.

    Raises RangeError for models that veil does not read.
    """
    return Camera(
        model=camera.model_name if hasattr(camera, "model_name") else camera.model.name,
        width_px=camera.width,
        height_px=camera.height,
        params=tuple(float(value) for value in camera.params),
    )
