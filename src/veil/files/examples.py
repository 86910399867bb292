"""The photographs that ship with the package, with their reference cameras in COLMAP's text format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid


@dataclass(frozen=True, kw_only=True)
class Example:
    """A folder of photographs, the camera they share, and cam_from_world of each by file name."""

    folder: Path
    camera: Camera
    poses: dict[str, Rigid]


@contextmanager
def lund_door() -> Iterator[Example]:
    """Twelve photographs of a portal (Olsson and Enqvist, SCIA 2011); the poses are a COLMAP reference, no survey."""
    with as_file(files("veil") / "data" / "lund_door") as folder:
        yield Example(
            folder=folder,
            camera=read_camera(folder / "cameras.txt"),
            poses=read_poses(folder / "images.txt"),
        )


@contextmanager
def other_place() -> Iterator[Path]:
    """One photograph of another place (OpenSfM's Berlin example, BSD-2-Clause)."""
    with as_file(files("veil") / "data" / "berlin.jpg") as path:
        yield path


def read_camera(path: Path) -> Camera:
    """The only camera of COLMAP's cameras.txt."""
    rows = _rows(path)
    if len(rows) != 1:
        raise FileFormatError(f"{path} must hold one camera, got {len(rows)}")
    _, model, width, height, *params = rows[0]
    return Camera(model=model, width_px=int(width), height_px=int(height), params=tuple(float(value) for value in params))


def read_poses(path: Path) -> dict[str, Rigid]:
    """cam_from_world by image name from COLMAP's images.txt without 2D points (every second line is empty)."""
    poses = {}
    for row in _rows(path):
        w, x, y, z, *translation = (float(value) for value in row[1:8])
        poses[row[9]] = Rigid(rotation=_rotation(w, x, y, z), translation=np.array(translation))
    return poses


def _rows(path: Path) -> list[list[str]]:
    lines = path.read_text().splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


def _rotation(w: float, x: float, y: float, z: float) -> np.ndarray:
    """Hamilton quaternion to rotation matrix; the quaternion is normalized first."""
    w, x, y, z = np.array([w, x, y, z]) / np.linalg.norm([w, x, y, z])
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
