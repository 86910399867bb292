"""Reference cameras in `transforms.json`, as radiance-field tools write them (instant-ngp, nerfstudio).

`transform_matrix` is camera-to-world with x right, y up, z backward; intrinsics are OpenCV's, for all frames or each one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, InputError
from veil.files.atomic import read_bytes
from veil.geometry.camera import Camera, checked_camera
from veil.geometry.rigid import Rigid

_FROM_OPENGL = np.diag([1.0, -1.0, -1.0])  # x right, y up, z backward -> x right, y down, z forward


def read_transforms(path: Path) -> tuple[dict[str, Camera], dict[str, Rigid]]:
    """Cameras and poses cam_from_world of all frames, both by file name below `images/`.

    Raises FileFormatError for another file, impossible intrinsics, or a matrix that is no rigid motion.
    """
    try:
        content = json.loads(read_bytes(path))
        frames = content["frames"]
        cameras, poses = {}, {}
        for frame in frames:
            name = _name(frame["file_path"])
            cameras[name] = _camera({**content, **frame})
            poses[name] = _pose(frame["transform_matrix"])
    except (ValueError, LookupError, TypeError, AttributeError, InputError, RecursionError) as error:
        raise FileFormatError(f"{path} is not a table of cameras as instant-ngp writes them ({error!r})") from None
    if not poses:
        raise FileFormatError(f"{path} holds no frames")
    return cameras, poses


def _name(file_path: str) -> str:
    """The file name below `images/`."""
    return file_path.removeprefix("./").removeprefix("images/")


def _camera(frame: Mapping[str, Any]) -> Camera:
    """The camera of a frame, in which the file's common intrinsics are filled in."""
    focal = (frame["fl_x"], frame.get("fl_y", frame["fl_x"]))
    values = [*focal, frame["cx"], frame["cy"], *(frame.get(key, 0) for key in ("k1", "k2", "p1", "p2"))]
    params = tuple(float(value) for value in values)
    return checked_camera(Camera(model="OPENCV", width_px=int(frame["w"]), height_px=int(frame["h"]), params=params))


def _pose(matrix: Any) -> Rigid:
    """The pose cam_from_world of a camera-to-world matrix. Raises ValueError for a matrix without a rotation."""
    world_from_cam = np.asarray(matrix, dtype=np.float64)
    if world_from_cam.shape not in ((4, 4), (3, 4)) or not np.isfinite(world_from_cam).all():
        raise ValueError("transform_matrix must hold 4x4 finite numbers")
    # The matrix may have few digits or be scaled: the nearest rotation is taken, if it is nearly a rotation.
    left, singular, right = np.linalg.svd(world_from_cam[:3, :3])
    if not np.allclose(singular, 1, atol=1e-2) or np.linalg.det(left @ right) < 0:
        raise ValueError("transform_matrix holds no rotation")
    rotation = _FROM_OPENGL @ (left @ right).T
    return Rigid(rotation=rotation, translation=-rotation @ world_from_cam[:3, 3])
