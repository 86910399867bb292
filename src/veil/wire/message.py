"""Uploads: everything that may leave the device, with no field for anything else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from veil.errors import InputError
from veil.forms import Lines, Released, require_unit_gravity
from veil.geometry.camera import Camera, checked_camera, require_crossing, require_inside
from veil.one_line import one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class Upload:
    """One image as the server sees it, with keypoint positions.

    - `camera`: intrinsics and size of the image. Whatever camera is given, the message holds and sends no origin of the focal
      length, and its deviation rounded up: 1, 2, 5 or 10 %, or a guess (`FocalPrior.as_sent`).
    - `keypoints`, float32 (N, 2): x and y in pixels from the top-left corner, in an order that tells nothing.
    - `form`: `Subspaces` or `Subsets` in place of the N descriptors, in the same order.
    - `gravity`, float64 (3,): unit vector that points down in the camera frame (x right, y down, z forward); None if it is not
      sent. No guarantee covers it (docs/theory/words_upright.md).

    Raises InputError for another number of positions, positions that are not finite or lie outside the image, gravity that is
    no unit vector, and impossible intrinsics (as RangeError).
    """

    camera: Camera
    keypoints: Float32[np.ndarray, "_ _"]
    form: Released
    gravity: Float64[np.ndarray, "_"] | None = None

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.keypoints.shape != (len(self.form), 2):
            raise InputError(f"an upload needs one position a feature, got {self.keypoints.shape} for {len(self.form)}")
        if not np.isfinite(self.keypoints).all():
            raise InputError("keypoint positions contain NaN or infinity")
        object.__setattr__(self, "camera", self.camera.as_sent)
        require_inside(checked_camera(self.camera), self.keypoints)
        require_unit_gravity(self.gravity)

    def __len__(self) -> int:
        return len(self.form)


@dataclass(frozen=True, kw_only=True, eq=False)
class LineUpload:
    """One image as the server sees it, with a line through each keypoint in place of its position.

    - `camera`: intrinsics and size of the image. Whatever camera is given, the message holds and sends no origin of the focal
      length, and its deviation rounded up: 1, 2, 5 or 10 %, or a guess (`FocalPrior.as_sent`).
    - `lines`: N lines in the undistorted normalized image plane, in an order that tells nothing, and gravity if it is sent.
    - `form`: `Subspaces` or `Subsets` in place of the N descriptors, in the same order.

    Raises InputError for another number of lines, lines that do not cross the image, and impossible intrinsics (as RangeError).
    """

    camera: Camera
    lines: Lines
    form: Released

    __repr__ = one_line

    def __post_init__(self) -> None:
        if len(self.lines) != len(self.form):
            raise InputError(f"an upload needs one line a feature, got {len(self.lines)} for {len(self.form)}")
        object.__setattr__(self, "camera", self.camera.as_sent)
        require_crossing(checked_camera(self.camera), self.lines.coefficients)

    def __len__(self) -> int:
        return len(self.form)


Message = Upload | LineUpload
