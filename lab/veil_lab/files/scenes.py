"""Scenes with reference cameras for evaluations: Strecha's layout, or photographs beside a COLMAP text model.

A scene is a folder with `images/` and either `K.txt` and `gt_dense_cameras/NAME.camera` (C. Strecha et al., CVPR 2008) or
`cameras.txt` and `images.txt` (there, in `sparse/`, in `sparse/0/` or in another folder below), or `transforms.json`, or
`K.txt` alone, which gives cameras without poses, or none; and, if gravity was measured, a table `image,x,y,z` in
`gravity.csv` (or any other .csv that reads as one).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.errors import FileFormatError, InputError
from veil.files.photographs.calibration import NAME, camera_from_matrix, read_numbers
from veil.files.photographs.colmap_text import read_cameras, read_images
from veil.files.photographs.gravity import read_gravity
from veil.files.photographs.pictures import find_pictures, upright_size
from veil.files.photographs.transforms import read_frames
from veil.geometry.camera import CALIBRATED, Camera, checked_camera
from veil.geometry.rigid import Rigid


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
    frames = {name: frame for name, frame in read_frames(path).items() if name in pictures}
    if not frames:
        raise FileFormatError(f"{path} holds no camera of a photograph in `images/`")
    cameras = {name: frame.camera for name, frame in frames.items()}
    return cameras, {name: frame.cam_from_world for name, frame in frames.items()}


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
