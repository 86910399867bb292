"""Scenes with reference cameras for evaluations: Strecha's layout, or photographs beside a COLMAP text model.

A scene is a folder with `images/` and either `K.txt` and `gt_dense_cameras/NAME.camera` (C. Strecha et al., CVPR 2008) or
`cameras.txt` and `images.txt` (there, in `sparse/`, in `sparse/0/` or in another folder below), or `transforms.json`, or
`K.txt` alone, which gives cameras without poses, or none; and, if gravity was measured, a table `image,x,y,z` in
`gravity.csv` (or any other .csv that reads as one).

In `transforms.json`, as radiance-field tools write it (instant-ngp, nerfstudio), `transform_matrix` is camera-to-world with x
right, y up, z backward; intrinsics are OpenCV's, for all frames or each one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.errors import FileFormatError, InputError
from veil.files.atomic import read_bytes
from veil.files.photographs.calibration import NAME, camera_from_matrix, read_numbers
from veil.files.photographs.colmap_text import read_cameras, read_images
from veil.files.photographs.gravity import read_gravity
from veil.files.photographs.pictures import find_pictures, upright_size
from veil.geometry.camera import CALIBRATED, Camera, checked_camera
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
    width_px, height_px = int(frame["w"]), int(frame["h"])
    return checked_camera(Camera(model="OPENCV", width_px=width_px, height_px=height_px, params=params, focal=CALIBRATED))


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


@dataclass(frozen=True, kw_only=True, eq=False)
class ReferenceScene:
    """Photographs by image name, with cameras and reference poses where the scene has them.

    `gravity` holds readings (unit vectors, down in the camera frame) of the images that have one; `down` is gravity in the
    world of the poses where the scene defines it: Strecha's world has z down. `metric` tells whether positions are in meters.
    """

    name: str
    pictures: Mapping[str, Path]
    cameras: Mapping[str, Camera]
    cam_from_world: Mapping[str, Rigid]
    gravity: Mapping[str, Float64[np.ndarray, "3"]]
    down: Float64[np.ndarray, "3"] | None
    metric: bool = False


def read_scene(folder: Path) -> ReferenceScene:
    """The scene of a folder. With reference poses, photographs that have none are left out.

    Raises InputError without photographs, FileFormatError for a damaged part.
    """
    if not (folder / "images").is_dir():
        raise InputError(f"{folder} is not a scene: it needs a folder `images/` of photographs")
    paths = {path.relative_to(folder / "images").as_posix(): path for path in find_pictures(folder / "images")}
    down = None
    cameras: Mapping[str, Camera] = {}
    poses: Mapping[str, Rigid] = {}
    if (folder / "gt_dense_cameras").is_dir():
        cameras, poses = _strecha(folder, paths)
        down = np.array([0.0, 0.0, 1.0])
    elif (model := _text_model(folder)) is not None:
        cameras, poses = _colmap(model, paths)
    elif (folder / "transforms.json").is_file():
        cameras, poses = _transforms(folder / "transforms.json", paths)
    elif (folder / NAME).is_file():
        cameras = {name: camera_from_matrix(folder / NAME, *upright_size(path)) for name, path in paths.items()}
    pictures = {name: path for name, path in paths.items() if name in poses or not poses}
    return ReferenceScene(
        name=folder.resolve().name,
        pictures=pictures,
        cameras=cameras,
        cam_from_world=poses,
        gravity=_gravity(folder, pictures),
        down=down,
        metric=down is not None,
    )


def _strecha(folder: Path, pictures: Mapping[str, Path]) -> tuple[dict[str, Camera], dict[str, Rigid]]:
    """Cameras and poses by image name in Strecha's layout."""
    intrinsics = read_numbers(folder / "K.txt", 9).reshape(3, 3)
    cameras, poses = {}, {}
    for name in pictures:
        path = folder / "gt_dense_cameras" / f"{name}.camera"
        if not path.is_file():
            continue
        values = read_numbers(path, 26)
        # K, three zeros, M (camera to world), the center C, width and height.
        rotation, center = values[12:21].reshape(3, 3).T.copy(), values[21:24]
        if not (np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3) and np.linalg.det(rotation) > 0):
            raise FileFormatError(f"{path}: the matrix of its lines 5 to 7 is not a rotation")
        poses[name] = Rigid(rotation=rotation, translation=-rotation @ center)
        try:
            camera = Camera(
                model="PINHOLE",
                width_px=int(values[24]),
                height_px=int(values[25]),
                params=(intrinsics[0, 0], intrinsics[1, 1], intrinsics[0, 2], intrinsics[1, 2]),
                focal=CALIBRATED,
            )
            cameras[name] = checked_camera(camera)
        except InputError as error:
            raise FileFormatError(f"{folder / 'K.txt'} and {path} give no camera: {error}") from None
    if not poses:
        raise FileFormatError(f"{folder / 'gt_dense_cameras'} holds no camera of a photograph in `images/`")
    return cameras, poses


def _text_model(folder: Path) -> Path | None:
    """The folder of a COLMAP text model at or below `folder`; None if there is none."""
    likely = [folder, folder / "sparse", folder / "sparse" / "0"]
    others = sorted(path.parent for path in folder.glob("*/images.txt"))
    return next((path for path in [*likely, *others] if (path / "images.txt").is_file()), None)


def _colmap(model: Path, pictures: Mapping[str, Path]) -> tuple[dict[str, Camera], dict[str, Rigid]]:
    """Cameras and poses by image name from a COLMAP text model, of images that have a photograph."""
    by_id = read_cameras(model / "cameras.txt")
    cameras, poses = {}, {}
    for name, (camera_id, pose) in read_images(model / "images.txt").items():
        if camera_id not in by_id:
            raise FileFormatError(f"{model}: image {name} names camera {camera_id}, which cameras.txt does not have")
        if name in pictures:
            cameras[name], poses[name] = by_id[camera_id], pose
    if not poses:
        raise FileFormatError(f"{model} holds no camera of a photograph in `images/`")
    return cameras, poses


def _transforms(path: Path, pictures: Mapping[str, Path]) -> tuple[dict[str, Camera], dict[str, Rigid]]:
    """Cameras and poses by image name from `transforms.json`, of images that have a photograph."""
    cameras, poses = read_transforms(path)
    known = [name for name in poses if name in pictures]
    if not known:
        raise FileFormatError(f"{path} holds no camera of a photograph in `images/`")
    return {name: cameras[name] for name in known}, {name: poses[name] for name in known}


def _gravity(folder: Path, pictures: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Gravity by image name, from the first table that names some of the photographs; a `gravity.csv` must be readable."""
    tables = sorted(folder.glob("*.csv"), key=lambda path: (path.name != "gravity.csv", path.name))
    for path in tables:
        try:
            readings = read_gravity(path)
        except FileFormatError:
            if path.name == "gravity.csv":
                raise
            continue
        chosen = {name: down for name, down in readings.items() if name in pictures}
        if chosen:
            return chosen
    return {}
