"""Everything that may leave the device: an upload has no field for anything else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from veil.errors import InputError
from veil.forms import Lines, Released
from veil.geometry.camera import Camera
from veil.geometry.intrinsics import checked_camera, require_crossing, require_inside


@dataclass(frozen=True, kw_only=True, eq=False)
class Upload:
    """One image as the server sees it: intrinsics, shuffled keypoint positions (pixels), and a released form."""

    camera: Camera
    keypoints: Float32[np.ndarray, "_ _"]
    form: Released

    def __post_init__(self) -> None:
        if self.keypoints.shape != (len(self.form), 2):
            raise InputError(f"an upload needs one position a feature, got {self.keypoints.shape} for {len(self.form)}")
        if not np.isfinite(self.keypoints).all():
            raise InputError("keypoint positions contain NaN or infinity")
        require_inside(checked_camera(self.camera), self.keypoints)

    def __len__(self) -> int:
        return len(self.form)


@dataclass(frozen=True, kw_only=True, eq=False)
class LineUpload:
    """One image whose keypoint positions are hidden too: intrinsics, a line for each feature, and a released form."""

    camera: Camera
    lines: Lines
    form: Released

    def __post_init__(self) -> None:
        if len(self.lines) != len(self.form):
            raise InputError(f"an upload needs one line a feature, got {len(self.lines)} for {len(self.form)}")
        require_crossing(checked_camera(self.camera), self.lines.coefficients)

    def __len__(self) -> int:
        return len(self.form)


Message = Upload | LineUpload
