"""Camera matrices beside photographs: `K.txt`, three rows of three numbers, as in Strecha's scenes and many tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.tables import read_text
from veil.geometry.camera import CALIBRATED, Camera, checked_camera

NAME = "K.txt"
# Largest distance of a principal point from the image's center, as a share of the side. Farther off, the matrix is of an image
# of another size, or turned.
MAX_OFF_CENTER = 0.15


def read_numbers(path: Path, count: int) -> Float64[np.ndarray, "count"]:
    """The numbers of a text file. Raises FileFormatError unless it holds exactly `count` finite ones, apart by white space."""
    try:
        values = np.array([float(value) for value in read_text(path).split()])
    except ValueError as error:
        raise FileFormatError(f"{path} must hold numbers ({error})") from None
    if len(values) != count or not np.isfinite(values).all():
        raise FileFormatError(f"{path} must hold {count} finite numbers, got {len(values)}")
    return values


def matrix_of(photograph: Path) -> Path | None:
    """The K.txt of a photograph: in its folder, or beside that folder if it is called `images`; None if there is none."""
    folder = photograph.parent
    places = [folder / NAME, *([folder.parent / NAME] if folder.name == "images" else [])]
    return next((path for path in places if path.is_file()), None)


def camera_from_matrix(path: Path, width_px: int, height_px: int) -> Camera:
    """A pinhole camera without distortion, from a camera matrix, for an upright image of this size.

    The file does not give the image size that it was made for, so its principal point must lie near the middle of the image.
    Raises FileFormatError for a file that is no camera matrix, or one of images of another size.
    """
    k = read_numbers(path, 9).reshape(3, 3)
    fx, fy, cx, cy = k[0, 0], k[1, 1], k[0, 2], k[1, 2]
    others = [k[0, 1], k[1, 0], k[2, 0], k[2, 1], k[2, 2] - 1]
    if not np.abs(others).max() <= 1e-6 * max(abs(fx), 1.0):
        raise FileFormatError(f"{path} is no camera matrix without skew: fx 0 cx, 0 fy cy, 0 0 1")
    for value, side in ((cx, width_px), (cy, height_px)):
        if not abs(value / side - 0.5) <= MAX_OFF_CENTER:
            raise FileFormatError(
                f"{path} has its principal point at ({cx:.6g}, {cy:.6g}), far from the middle of {width_px}x{height_px} px: it "
                "was made for images of another size, or turned",
                remedy=Remedy("give", "Picture.camera"),
            )
    try:
        params = tuple(map(float, (fx, fy, cx, cy)))
        camera = Camera(model="PINHOLE", width_px=width_px, height_px=height_px, params=params, focal=CALIBRATED)
        return checked_camera(camera)
    except InputError as error:
        raise FileFormatError(f"{path} gives no camera of {width_px}x{height_px} px: {error}") from None
