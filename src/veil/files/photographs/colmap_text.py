"""COLMAP's text models: cameras.txt and images.txt. Points are not read, as veil builds its own."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError
from veil.files.atomic import read_bytes
from veil.geometry.camera import CALIBRATED, Camera, checked_camera
from veil.geometry.rigid import Rigid


def read_cameras(path: Path) -> dict[int, Camera]:
    """Cameras by their id, from cameras.txt. Raises FileFormatError with the line at fault."""
    cameras = {}
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
            cameras[int(camera_id)] = checked_camera(camera)
        except (ValueError, InputError) as error:
            raise FileFormatError(f"{path}, line {number}: not a camera of COLMAP's text format ({error})") from None
    if not cameras:
        raise FileFormatError(f"{path} holds no camera")
    return cameras


def read_images(path: Path) -> dict[str, tuple[int, Rigid]]:
    """Camera id and cam_from_world by image name, from images.txt.

    The line of 2D points after each image is skipped, even if it is empty.
    Raises FileFormatError with the line at fault, also where a line cannot be 2D points because those lines were left out.
    """
    images = {}
    lines = _lines(path)
    while lines and not lines[0][1].strip():
        lines = lines[1:]
    for number, line in lines[1::2]:
        if len(line.split()) % 3:
            raise FileFormatError(f"{path}, line {number}: each image takes two lines, the second 2D points or empty")
    for number, line in lines[::2]:
        if not line.strip():
            continue
        try:
            w, x, y, z, *translation = (float(value) for value in line.split()[1:8])
            camera_id, name = int(line.split()[8]), line.split(maxsplit=9)[9].strip()
            pose = Rigid(rotation=_rotation(w, x, y, z), translation=np.array(translation))
        except (ValueError, IndexError) as error:
            raise FileFormatError(f"{path}, line {number}: not an image of COLMAP's text format ({error})") from None
        if not (np.isfinite(pose.rotation).all() and np.isfinite(pose.translation).all()):
            raise FileFormatError(f"{path}, line {number}: the pose is not finite")
        images[name] = camera_id, pose
    if not images:
        raise FileFormatError(f"{path} holds no image")
    return images


def _lines(path: Path) -> list[tuple[int, str]]:
    """Numbers and texts of all lines that are no comments."""
    try:
        lines = read_bytes(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is not text ({error})") from None
    return [(number, line) for number, line in enumerate(lines, start=1) if not line.startswith("#")]


def _rotation(w: float, x: float, y: float, z: float) -> np.ndarray:
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
