"""Cameras of photographs: as somebody gives them, or from a K.txt beside the photograph.

Gravity, extraction and queries of the command line all read photographs so.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from veil.extraction.picture import Picture
from veil.files.photographs.calibration import camera_from_matrix, matrix_of
from veil.geometry.camera import Camera, resized


def with_camera(picture: Picture, camera: str | None, path: Path) -> Picture:
    """The picture with the intrinsics that `camera` names, else those of a K.txt beside it.

    `camera` is as `Camera.parse` reads it, `path` that of the photograph. Both are in pixels of the photograph in its file; of
    one that was shrunk the camera is, too.
    """
    size = picture.camera.width_px, picture.camera.height_px
    whole = picture.full_size or size
    matrix = matrix_of(path)
    if camera is not None:
        given = Camera.parse(camera, *whole)
    elif matrix is not None:
        given = camera_from_matrix(matrix, *whole)
    else:
        return picture
    return replace(picture, camera=given if whole == size else resized(given, *size))
