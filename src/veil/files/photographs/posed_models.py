"""Models of other tools: cameras, poses and, of COLMAP's, 2D points and 3D points, in the model's own coordinates.

A COLMAP model is a folder of binary or text files, of any version; rigs need not be read, as `images` holds the pose of every
single camera. Files are read here and not by COLMAP, whose reader hangs on files that were cut off. They are not changed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import read_bytes
from veil.files.photographs.colmap_text import (
    LARGEST_ID,
    read_cameras,
    read_images,
    read_observations,
    read_points,
    rotation_of,
)
from veil.files.photographs.transforms import read_frames
from veil.files.tables import once
from veil.geometry.camera import CALIBRATED, Camera, checked_camera
from veil.geometry.rigid import Rigid
from veil.one_line import one_line

_IMAGE, _POINT, _CAMERA = struct.Struct("<I7dI"), struct.Struct("<Q3d3BdQ"), struct.Struct("<IiQQ")
_OBSERVATION = np.dtype([("xy", "<f8", 2), ("point", "<i8")])
_SUFFIXES = (".bin", ".txt")
_COUNT = struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelImage:
    """Image of a model of another tool.

    - `camera`: its intrinsics, as the model has them.
    - `cam_from_world`: its pose in the model's coordinates.
    - `keypoints`, float64 (N, 2): its 2D points in pixels; none where the model has only poses.
    - `point_rows`, int64 (N,): row of the point that each observes in `PosedModel.points`, or -1.
    - `photograph`: where the model says that its photograph is; None where it says only its name.
    """

    camera: Camera
    cam_from_world: Rigid
    keypoints: Float64[np.ndarray, "_ 2"]
    point_rows: Int64[np.ndarray, "_"]
    photograph: Path | None = None

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class PosedModel:
    """Model of another tool: `images` by name, `points`, float64 (P, 3), and its `path`.

    World coordinates are those of the other tool. A model that has only poses has no points.
    """

    images: Mapping[str, ModelImage]
    points: Float64[np.ndarray, "_ 3"]
    path: Path

    __repr__ = one_line

    @property
    def cameras(self) -> dict[str, Camera]:
        """The cameras by image name."""
        return {name: image.camera for name, image in self.images.items()}

    @property
    def poses(self) -> dict[str, Rigid]:
        """The poses cam_from_world by image name."""
        return {name: image.cam_from_world for name, image in self.images.items()}


def read_model(path: Path | str) -> PosedModel:
    """Read a model of another tool.

    - `path`: a folder with COLMAP's cameras, images and points3D (.bin or .txt), or a `transforms.json` as nerfstudio and
      instant-ngp write it.

    Raises FileFormatError if there is none, or it is damaged, InputError for a camera that veil does not read; both name what
    is not understood.
    """
    path = Path(path)
    if path.is_file() and path.suffix.lower() == ".json":
        return _from_frames(path)
    for suffix, read in zip(_SUFFIXES, (_read_binary, _read_text), strict=True):
        if (path / f"images{suffix}").is_file():
            return read(path)
    below = sorted(file.parent for depth in ("*", "*/*") for file in path.glob(f"{depth}/images.*") if file.suffix in _SUFFIXES)
    raise FileFormatError(
        f"{path} is not a model, but {below[0]} is one"
        if below
        else f"{path} is no model: veil reads folders with COLMAP's images.bin or images.txt, and transforms.json",
        remedy=Remedy("give", "the folder of the model"),
    )


def _from_frames(path: Path) -> PosedModel:
    images = {
        name: ModelImage(
            camera=frame.camera,
            cam_from_world=frame.cam_from_world,
            keypoints=np.empty((0, 2)),
            point_rows=np.empty(0, dtype=np.int64),
            photograph=frame.photograph,
        )
        for name, frame in read_frames(path).items()
    }
    return PosedModel(images=images, points=np.empty((0, 3)), path=path)


def _read_text(folder: Path) -> PosedModel:
    cameras = read_cameras(folder / "cameras.txt")
    observed = read_observations(folder / "images.txt")
    points = read_points(folder / "points3D.txt") if (folder / "points3D.txt").is_file() else {}
    images = ((name, camera, pose, *observed[name]) for name, (camera, pose) in read_images(folder / "images.txt").items())
    return _assembled(folder, cameras, images, points)


def _read_binary(folder: Path) -> PosedModel:
    cameras = _by_id(folder / "cameras.bin", _binary_camera)
    points = _by_id(folder / "points3D.bin", _binary_point) if (folder / "points3D.bin").is_file() else {}
    images = _by_id(folder / "images.bin", _binary_image)
    return _assembled(folder, cameras, iter(images.values()), points)


def _assembled(
    folder: Path,
    cameras: Mapping[int, Camera],
    images: Iterator[tuple[str, int, Rigid, np.ndarray, np.ndarray]],
    points_by_id: Mapping[int, tuple[float, float, float]],
) -> PosedModel:
    """The model of cameras by id, of images (name, camera, pose, 2D points, ids of points), and of points by ids."""
    if impossible := [each for each in points_by_id if not 0 <= each <= LARGEST_ID]:
        raise FileFormatError(f"{folder} has a point of id {impossible[0]}, which COLMAP never gives; write the model again")
    ids = np.array(sorted(points_by_id), dtype=np.int64)
    points = np.array([points_by_id[each] for each in ids.tolist()], dtype=np.float64).reshape(-1, 3)
    if not np.isfinite(points).all():
        raise FileFormatError(f"{folder}: some of its points are not finite; write the model again")
    made: dict[str, ModelImage] = {}
    for name, camera_id, pose, keypoints, observed in images:
        if not name:
            raise FileFormatError(f"{folder} has an image without a name; write the model again")
        if name in made:
            raise FileFormatError(f"{folder} has two images called {name!r}; write the model again")
        if camera_id not in cameras:
            raise FileFormatError(f"{folder}: image {name!r} names camera {camera_id}, which the model does not have")
        rows = np.searchsorted(ids, observed)
        known = observed >= 0
        if not (rows[known] < len(ids)).all() or not (ids[rows[known]] == observed[known]).all():
            raise FileFormatError(f"{folder}: image {name!r} observes points that the model does not have")
        if not (np.isfinite(keypoints).all() and np.isfinite(pose.rotation).all() and np.isfinite(pose.translation).all()):
            raise FileFormatError(f"{folder}: the pose or a 2D point of image {name!r} is not finite")
        made[name] = ModelImage(
            camera=cameras[camera_id],
            cam_from_world=pose,
            keypoints=keypoints,
            point_rows=np.where(known, rows, -1).astype(np.int64),
        )
    if not made:
        raise FileFormatError(f"{folder} holds no registered image")
    return PosedModel(images=dict(sorted(made.items())), points=points, path=folder)


class _Bytes:
    """The bytes of a binary file, taken from the front; it raises FileFormatError where they end too early."""

    def __init__(self, path: Path) -> None:
        self.data, self.at, self.path = read_bytes(path), 0, path

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise FileFormatError(f"{self.path} ends too early; it was cut off, copy it again")
        self.at += count
        return self.data[self.at - count : self.at]

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take(form.size))

    def text(self) -> str:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise FileFormatError(f"{self.path} ends too early; it was cut off, copy it again")
        return self.take(end + 1 - self.at)[:-1].decode("utf-8")


def _by_id(path: Path, read: Callable[[_Bytes], tuple[int, Any]]) -> dict[int, Any]:
    """What `read` takes from a binary file of COLMAP's, by ids. Raises FileFormatError for an id that is there twice."""
    return once(path, ((f"entry {number}", *entry) for number, entry in enumerate(_each(path, read), start=1)))


def _each(path: Path, read: Callable[[_Bytes], Any]) -> Iterator[Any]:
    """What `read` takes from a binary file of COLMAP's, as often as its first number says."""
    data = _Bytes(path)
    (count,) = data.unpack(_COUNT)
    try:
        for _ in range(count):
            yield read(data)
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is damaged ({error}); copy it again") from None
    if data.at != len(data.data):
        raise FileFormatError(f"{path} holds more than its {count} entries; it is damaged, or of another version of COLMAP")


def _binary_camera(data: _Bytes) -> tuple[int, Camera]:
    from veil.colmap import pycolmap

    camera_id, model, width, height = data.unpack(_CAMERA)
    try:
        name = pycolmap.CameraModelId(model).name
        blank = pycolmap.Camera.create_from_model_name(1, name, 1.0, 1, 1)
    except (ValueError, RuntimeError):
        raise FileFormatError(f"{data.path}: camera {camera_id} has model {model}, which COLMAP does not have") from None
    params = np.frombuffer(data.take(8 * len(blank.params)), dtype="<f8")
    try:
        camera = Camera(model=name, width_px=width, height_px=height, params=tuple(params.tolist()), focal=CALIBRATED)
        return camera_id, checked_camera(camera)
    except InputError as error:
        raise error.at(f"{data.path}, camera {camera_id}") from None


def _binary_image(data: _Bytes) -> tuple[int, tuple[str, int, Rigid, np.ndarray, np.ndarray]]:
    image_id, *pose, camera_id = data.unpack(_IMAGE)
    name = data.text()
    (count,) = data.unpack(_COUNT)
    observations = np.frombuffer(data.take(_OBSERVATION.itemsize * count), dtype=_OBSERVATION)
    try:
        rotation = rotation_of(*pose[:4])
    except ValueError as error:
        raise FileFormatError(f"{data.path}, image {image_id}: {error}") from None
    rigid = Rigid(rotation=rotation, translation=np.array(pose[4:]))
    return image_id, (name, camera_id, rigid, observations["xy"].astype(np.float64), observations["point"].astype(np.int64))


def _binary_point(data: _Bytes) -> tuple[int, tuple[float, float, float]]:
    point_id, x, y, z, *_, length = data.unpack(_POINT)
    data.take(8 * length)  # its track, which the images say again
    return point_id, (x, y, z)
