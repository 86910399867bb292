"""Cameras of photographs: as somebody gives them, or from a K.txt beside the photograph.

Gravity, extraction and queries of the command line all read photographs so.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from veil.extraction.picture import Picture
from veil.files.photographs.calibration import camera_from_matrix, matrix_of
from veil.geometry.camera import Camera


def with_camera(picture: Picture, camera: str | None, path: Path) -> Picture:
    """The picture with the intrinsics that `camera` names, else those of a K.txt beside it.

    `camera` is as `Camera.parse` reads it, `path` that of the photograph.
    """
    size = picture.camera.width_px, picture.camera.height_px
    if camera is not None:
        return replace(picture, camera=Camera.parse(camera, *size))
    matrix = matrix_of(path)
    return picture if matrix is None else replace(picture, camera=camera_from_matrix(matrix, *size))


def is_calibrated(camera: str | None, path: Path) -> bool:
    """Whether `with_camera` uses measured intrinsics for the photograph at `path`."""
    return camera is not None or matrix_of(path) is not None
