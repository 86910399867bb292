"""COLMAP's text models: cameras.txt, images.txt and points3D.txt."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import FileFormatError, InputError
from veil.files.tables import is_number, once, read_text
from veil.geometry.camera import CALIBRATED, Camera, checked_camera
from veil.geometry.rigid import Rigid

# Ids of points count up from 1: no model has more, and greater ones are not exact as floating-point numbers.
LARGEST_ID = 2**53


def read_cameras(path: Path) -> dict[int, Camera]:
    """Cameras by their id, from cameras.txt. Raises FileFormatError with the line at fault, also for an id that is there
    twice."""
    cameras = once(path, _cameras(path))
    if not cameras:
        raise FileFormatError(f"{path} holds no camera")
    return cameras


def _cameras(path: Path) -> Iterator[tuple[str, int, Camera]]:
    """The line, id and camera of each line that holds one."""
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            camera_id, model, width, height, *params = line.split()
            camera = Camera(
                model=model,
                width_px=int(width),
                height_px=int(height),
                params=tuple(float(value) for value in params),
                focal=CALIBRATED,
            )
            identity = int(camera_id)
            camera = checked_camera(camera)
        except (ValueError, InputError) as error:
            raise FileFormatError(f"{path}, line {number}: not a camera of COLMAP's text format ({error})") from None
        yield f"line {number}", identity, camera


def read_images(path: Path) -> dict[str, tuple[int, Rigid]]:
    """Camera id and cam_from_world by image name, from images.txt.

    The line of 2D points after each image is skipped, even if it is empty.
    Raises FileFormatError with the line at fault, also where a line cannot be 2D points because those lines were left out, and
    for an id or a name that is there twice.
    """
    images = list(_images(path))
    once(path, ((place, identity, None) for place, identity, *_ in images))
    by_name = once(path, ((place, name, (camera, pose)) for place, _, name, camera, pose in images))
    if not by_name:
        raise FileFormatError(f"{path} holds no image")
    return by_name


def _images(path: Path) -> Iterator[tuple[str, int, str, int, Rigid]]:
    """The line, id, name, camera's id and cam_from_world of each image."""
    lines = _lines(path)
    while lines and not lines[0][1].strip():
        lines = lines[1:]
    for number, line in lines[1::2]:
        words = line.split()
        if len(words) % 3 or not all(map(is_number, words[-3:])):  # the end of a name has a number of words, too
            raise FileFormatError(f"{path}, line {number}: each image takes two lines, the second 2D points or empty")
    for number, line in lines[::2]:
        if not line.strip():
            continue
        try:
            identity = int(line.split()[0])
            w, x, y, z, *translation = (float(value) for value in line.split()[1:8])
            camera_id, name = int(line.split()[8]), line.split(maxsplit=9)[9].strip()
            pose = Rigid(rotation=rotation_of(w, x, y, z), translation=np.array(translation))
        except (ValueError, IndexError) as error:
            raise FileFormatError(f"{path}, line {number}: not an image of COLMAP's text format ({error})") from None
        if not (np.isfinite(pose.rotation).all() and np.isfinite(pose.translation).all()):
            raise FileFormatError(f"{path}, line {number}: the pose is not finite")
        yield f"line {number}", identity, name, camera_id, pose


def read_observations(path: Path) -> dict[str, tuple[Float64[np.ndarray, "_ 2"], Int64[np.ndarray, "_"]]]:
    """2D points in pixels, and the ids of the points that they observe (-1: none), by image name, from images.txt.

    Raises FileFormatError with the line at fault.
    """
    lines = _lines(path)
    while lines and not lines[0][1].strip():
        lines = lines[1:]
    points = {}
    for (_, image), (number, line) in zip(lines[::2], [*lines[1::2], (0, "")], strict=False):
        if not image.strip():
            continue
        try:
            values = np.array(line.split(), dtype=np.float64).reshape(-1, 3)
            if not np.isfinite(values).all():
                raise ValueError("some are not finite")
            if (np.abs(values[:, 2]) > LARGEST_ID).any() or (values[:, 2] % 1 != 0).any():
                raise ValueError("an id is no whole number")
            points[image.split(maxsplit=9)[9].strip()] = values[:, :2].copy(), values[:, 2].astype(np.int64)
        except (ValueError, IndexError) as error:
            raise FileFormatError(f"{path}, line {number}: no 2D points of COLMAP's text format ({error})") from None
    return points


def read_points(path: Path) -> dict[int, tuple[float, float, float]]:
    """Positions of all points by id, from points3D.txt.

    Raises FileFormatError with the line at fault, also for an id that is there twice.
    """
    return once(path, _points(path))


def _points(path: Path) -> Iterator[tuple[str, int, tuple[float, float, float]]]:
    """The line, id and position of each line that holds a point."""
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            point_id, x, y, z = line.split(maxsplit=4)[:4]
            identity, position = int(point_id), (float(x), float(y), float(z))
        except ValueError as error:
            raise FileFormatError(f"{path}, line {number}: not a point of COLMAP's text format ({error})") from None
        yield f"line {number}", identity, position


def _lines(path: Path) -> list[tuple[int, str]]:
    """Numbers and texts of all lines that are no comments."""
    lines = re.split("\r\n|\r|\n", read_text(path))  # `splitlines` would also cut at letters that names may have
    return [(number, line) for number, line in enumerate(lines, start=1) if not line.startswith("#")]


def rotation_of(w: float, x: float, y: float, z: float) -> np.ndarray:
    """Rotation matrix of a Hamilton quaternion, which is normalized first. Raises ValueError for one without a length."""
    length = math.hypot(w, x, y, z)
    if not 0 < length < math.inf:
        raise ValueError("a quaternion without a direction")
    w, x, y, z = np.array([w, x, y, z]) / length
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
