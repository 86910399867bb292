"""Cameras and poses in `transforms.json`, as radiance-field tools write them (instant-ngp, nerfstudio).

`transform_matrix` is camera-to-world with x right, y up, z backward; intrinsics are OpenCV's, for all frames or each one. What
a camera has beyond COLMAP's models is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from veil.errors import FileFormatError, InputError, VeilError
from veil.files.photographs.pictures import SUFFIXES, stored_size
from veil.files.tables import read_json
from veil.geometry.camera import CALIBRATED, Camera, checked_camera
from veil.geometry.rigid import Rigid

_FROM_OPENGL = np.diag([1.0, -1.0, -1.0])  # x right, y up, z backward -> x right, y down, z forward
_PERSPECTIVE = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL")
_FULL, _FISHEYE = "FULL_OPENCV", "OPENCV_FISHEYE"
# Coefficients of each kind of camera, in COLMAP's order.
_TERMS = {
    "OPENCV": ("k1", "k2", "p1", "p2"),
    _FULL: ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
    _FISHEYE: ("k1", "k2", "k3", "k4"),
}
_EVERY = ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2")
# Keys that say, unless they are false or zero, that frames were projected otherwise.
_OTHERWISE = ("is_ftheta", "latlong", "equirectangular", "orthographic", "rolling_shutter")
_TWO_POSES = ("transform_matrix_start", "transform_matrix_end")


@dataclass(frozen=True, kw_only=True, eq=False)
class TableFrame:
    """Frame of a table: its `camera`, its pose `cam_from_world`, and the path of its `photograph`, which may be missing."""

    camera: Camera
    cam_from_world: Rigid
    photograph: Path


def read_frames(path: Path) -> dict[str, TableFrame]:
    """The frames of a table by name: the path of the photograph, below `images/` where it lies there.

    A size that is not in the table is that of the photograph. Raises FileFormatError for another file, impossible intrinsics, a
    camera or a distortion that veil does not read, a name that stands there twice, or a matrix that is no rigid motion.
    """
    content = read_json(path)
    try:
        frames = content["frames"]
    except (LookupError, TypeError) as error:
        raise FileFormatError(f"{path} is not a table of cameras as instant-ngp writes them ({error!r})") from None
    read: dict[str, TableFrame] = {}
    for number, frame in enumerate(frames):
        try:
            name = _name(frame["file_path"])
            if name in read:
                raise InputError(f"a frame called {name!r} stands there twice")
            photograph = _photograph(path.parent, frame["file_path"])
            read[name] = TableFrame(
                camera=_camera({**content, **frame}, photograph),
                cam_from_world=_pose(frame),
                photograph=photograph,
            )
        except VeilError as error:
            raise FileFormatError(f"{path}, frame {number}: {error.cause}", remedy=error.remedy) from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise FileFormatError(
                f"{path}, frame {number} is not one of a table of cameras as instant-ngp writes them ({error!r})"
            ) from None
    if not read:
        raise FileFormatError(f"{path} holds no frames")
    return read


def _name(file_path: str) -> str:
    """The name of a frame: the path of its photograph, without what leads out of the folder, below `images/`."""
    parts = [part for part in PurePosixPath(file_path.replace("\\", "/")).parts if part not in ("/", ".", "..")]
    if len(parts) > 1 and parts[0] == "images":
        parts = parts[1:]
    if not parts:
        raise InputError(f"file_path {file_path!r} names no photograph")
    return "/".join(parts)


def _photograph(folder: Path, file_path: str) -> Path:
    """The photograph of a frame, whose path may lack its suffix; the path as it is where there is none."""
    given = folder / file_path.replace("\\", "/")
    options = [given, *(given.with_name(given.name + suffix) for suffix in sorted(SUFFIXES))]
    return next((option for option in options if option.is_file()), given)


def _camera(frame: Mapping[str, Any], photograph: Path) -> Camera:
    """The camera of a frame, in which the file's common intrinsics are filled in."""
    model = _model(frame)
    if "w" in frame and "h" in frame:
        width, height = int(frame["w"]), int(frame["h"])
    elif photograph.is_file():
        width, height = stored_size(photograph)
    else:
        raise InputError(f"it says no image size (w, h), and there is no photograph {photograph}")
    if "fl_x" in frame:
        focal_x = float(frame["fl_x"])
    elif "camera_angle_x" in frame:
        focal_x = width / 2 / math.tan(float(frame["camera_angle_x"]) / 2)
    else:
        raise InputError("it says no focal length (fl_x, or camera_angle_x)")
    values = (focal_x, frame.get("fl_y", focal_x), frame.get("cx", width / 2), frame.get("cy", height / 2))
    params = tuple(float(value) for value in (*values, *(frame.get(term, 0) for term in _TERMS[model])))
    return checked_camera(Camera(model=model, width_px=width, height_px=height, params=params, focal=CALIBRATED))


def _model(frame: Mapping[str, Any]) -> str:
    """COLMAP's model of a frame's camera. Raises InputError, by name, for what no model of COLMAP's has."""
    if other := [key for key in _OTHERWISE if frame.get(key)] + [key for key in frame if key.startswith("ftheta_")]:
        raise InputError(f"veil reads no cameras with {', '.join(other)}; undistort the photographs to a pinhole camera")
    named = str(frame.get("camera_model", "OPENCV"))
    if named not in (*_PERSPECTIVE, _FULL, _FISHEYE):
        raise InputError(f"veil reads no camera of model {named!r}; undistort the photographs to a pinhole camera")
    if frame.get("is_fisheye") and named not in ("OPENCV", _FISHEYE):
        raise InputError(f"it is said to be a fisheye and of model {named}; say one of the two")
    used = {term for term in _EVERY if float(frame.get(term, 0)) != 0}
    model = _FISHEYE if frame.get("is_fisheye") else named if named in (_FULL, _FISHEYE) else "OPENCV"
    if model == "OPENCV" and "k3" in used:
        model = _FULL  # OpenCV's k3 is the third radial term of both
        if further := sorted(used & {"k4", "k5", "k6"}):
            raise InputError(f"{', '.join(further)} of OPENCV has two meanings; name the model FULL_OPENCV if that is meant")
    if unread := sorted(used - {*_TERMS[model]}):
        raise InputError(f"a camera of model {model} has no {', '.join(unread)}; name the model that has them")
    return model


def _pose(frame: Mapping[str, Any]) -> Rigid:
    """The pose cam_from_world of a camera-to-world matrix. Raises ValueError for a matrix without a rotation."""
    if any(key in frame for key in _TWO_POSES):
        raise InputError(f"a frame with {' and '.join(_TWO_POSES)} moved while it was taken, which veil does not read")
    world_from_cam = np.asarray(frame["transform_matrix"], dtype=np.float64)
    if world_from_cam.shape not in ((4, 4), (3, 4)) or not np.isfinite(world_from_cam).all():
        raise ValueError("transform_matrix must hold 4x4 finite numbers")
    # The matrix may have few digits or be scaled: the nearest rotation is taken, if it is nearly a rotation.
    left, singular, right = np.linalg.svd(world_from_cam[:3, :3])
    if not np.allclose(singular, 1, atol=1e-2) or np.linalg.det(left @ right) < 0:
        raise ValueError("transform_matrix holds no rotation")
    rotation = _FROM_OPENGL @ (left @ right).T
    return Rigid(rotation=rotation, translation=-rotation @ world_from_cam[:3, 3])
