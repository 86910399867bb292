"""Scenes with reference cameras for evaluations: photographs beside the cameras of a data set or of another tool.

A scene is a folder with `images/` and one of these, or none:

- `K.txt` and `gt_dense_cameras/NAME.camera` (C. Strecha et al., CVPR 2008);
- a COLMAP model, text or binary: there, in `sparse/`, in `sparse/0/` or in another folder below;
- `transforms.json`, as nerfstudio and instant-ngp write it;
- `cameras.json`: by image name `K`, `cam_from_world_rotation` and `cam_from_world_translation`;
- `*_par.txt`: lines of name, K, rotation and translation, camera from world (S. Seitz et al., CVPR 2006);
- `K.txt` alone, which gives cameras without poses.

If gravity was measured, a table `image,x,y,z` stands in `gravity.csv` (or any other .csv that reads as one).
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
from veil.files.photographs.posed_models import read_model
from veil.files.photographs.transforms import read_frames
from veil.files.tables import once, read_json, read_text
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
    elif (model := _model(folder)) is not None:
        cameras, poses = _colmap(model, paths)
    elif (folder / "transforms.json").is_file():
        cameras, poses = _transforms(folder / "transforms.json", paths)
    elif (folder / "cameras.json").is_file():
        cameras, poses = _posed(folder / "cameras.json", _entries(folder / "cameras.json"), paths)
    elif tables := sorted(folder.glob("*_par.txt")):
        cameras, poses = _posed(tables[0], _lines(tables[0]), paths)
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
        _require_rotation(rotation, f"{path}: the matrix of its lines 5 to 7")
        poses[name] = Rigid(rotation=rotation, translation=-rotation @ center)
        size = int(values[24]), int(values[25])
        cameras[name] = _pinhole(intrinsics, *size, f"{folder / 'K.txt'} and {path} give no camera")
    if not poses:
        raise FileFormatError(f"{folder / 'gt_dense_cameras'} holds no camera of a photograph in `images/`")
    return cameras, poses


def _model(folder: Path) -> Path | None:
    """The folder of a COLMAP model at or below `folder`, of text before binary; None if there is none."""
    for name in ("images.txt", "images.bin"):
        likely = [folder, folder / "sparse", folder / "sparse" / "0"]
        others = sorted(path.parent for path in folder.glob(f"*/{name}"))
        if (model := next((path for path in [*likely, *others] if (path / name).is_file()), None)) is not None:
            return model
    return None


def _colmap(model: Path, pictures: Mapping[str, Path]) -> tuple[dict[str, Camera], dict[str, Rigid]]:
    """Cameras and poses by image name from a COLMAP model, of images that have a photograph."""
    cameras, poses = {}, {}
    if (model / "images.txt").is_file():
        by_id = read_cameras(model / "cameras.txt")
        for name, (camera_id, pose) in read_images(model / "images.txt").items():
            if camera_id not in by_id:
                raise FileFormatError(f"{model}: image {name} names camera {camera_id}, which cameras.txt does not have")
            cameras[name], poses[name] = by_id[camera_id], pose
    else:
        posed = read_model(model)
        cameras, poses = posed.cameras, posed.poses
    return _of_photographs(model, cameras, poses, pictures)


def _of_photographs(
    path: Path, cameras: Mapping[str, Camera], poses: Mapping[str, Rigid], pictures: Mapping[str, Path]
) -> tuple[dict[str, Camera], dict[str, Rigid]]:
    """Those cameras and poses whose image has a photograph. Raises FileFormatError, which names the `path`, without any."""
    names = [name for name in poses if name in pictures]
    if not names:
        raise FileFormatError(f"{path} holds no camera of a photograph in `images/`")
    return {name: cameras[name] for name in names}, {name: poses[name] for name in names}


def _transforms(path: Path, pictures: Mapping[str, Path]) -> tuple[dict[str, Camera], dict[str, Rigid]]:
    """Cameras and poses by image name from `transforms.json`, of images that have a photograph."""
    frames = read_frames(path)
    cameras = {name: frame.camera for name, frame in frames.items()}
    return _of_photographs(path, cameras, {name: frame.cam_from_world for name, frame in frames.items()}, pictures)


def _entries(path: Path) -> dict[str, Float64[np.ndarray, "_"]]:
    """K, rotation and translation by image name, row by row, from `cameras.json`."""
    keys = ("K", "cam_from_world_rotation", "cam_from_world_translation")
    try:
        entries = read_json(path)
        return {
            name: np.concatenate([np.array(entry[key], dtype=np.float64).ravel() for key in keys])
            for name, entry in entries.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileFormatError(f"{path} must hold {', '.join(keys)} of each image by its name ({error!r})") from None


def _lines(path: Path) -> dict[str, Float64[np.ndarray, "_"]]:
    """K, rotation and translation by image name, row by row, from the table of the Middlebury multi-view data sets."""
    try:
        lines = ((f"line {n}", line.split()) for n, line in enumerate(read_text(path).splitlines(), start=1) if n > 1)
        return once(path, ((line, words[0], np.array(words[1:], dtype=np.float64)) for line, words in lines if words))
    except ValueError as error:
        raise FileFormatError(f"{path} must hold a name and 21 numbers in each line but the first ({error})") from None


def _posed(
    path: Path, entries: Mapping[str, Float64[np.ndarray, "_"]], pictures: Mapping[str, Path]
) -> tuple[dict[str, Camera], dict[str, Rigid]]:
    """Cameras and poses by image name from K, rotation and translation of each, of images that have a photograph."""
    cameras, poses = {}, {}
    for name, values in entries.items():
        if name not in pictures:
            continue
        if values.shape != (21,) or not np.isfinite(values).all():
            raise FileFormatError(f"{path}: {name} needs 21 finite numbers: K, a rotation and a translation")
        matrix, rotation = values[:9].reshape(3, 3), values[9:18].reshape(3, 3)
        _require_rotation(rotation, f"{path}: the matrix of {name}")
        poses[name] = Rigid(rotation=rotation, translation=values[18:])
        size = upright_size(pictures[name])
        cameras[name] = _pinhole(matrix, *size, f"{path} gives no camera of {name}")
    return _of_photographs(path, cameras, poses, pictures)


def _require_rotation(rotation: Float64[np.ndarray, "3 3"], what: str) -> None:
    """Raise FileFormatError for a matrix that is no rotation, to the digits that files give."""
    if not (np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3) and np.linalg.det(rotation) > 0):
        raise FileFormatError(f"{what} is not a rotation")


def _pinhole(matrix: Float64[np.ndarray, "3 3"], width_px: int, height_px: int, failure: str) -> Camera:
    """The camera of a matrix without skew. Raises FileFormatError, which begins with `failure`, for an impossible one."""
    params = (float(matrix[0, 0]), float(matrix[1, 1]), float(matrix[0, 2]), float(matrix[1, 2]))
    try:
        return checked_camera(Camera(model="PINHOLE", width_px=width_px, height_px=height_px, params=params, focal=CALIBRATED))
    except InputError as error:
        raise FileFormatError(f"{failure}: {error}") from None


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
