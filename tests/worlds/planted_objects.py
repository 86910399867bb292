"""The bundled portal with a flat object planted in its photographs, at known poses: an attacker's object that is there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from veil.device.doors import published
from veil.extraction.flat_objects import painted
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.photographs.examples import lund_door, other_place
from veil.files.photographs.pictures import read_picture
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity
from veil.places.building import map_posed
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.scene import Scene

WIDTH = 0.3  # of the object, as a share of the picture's


@dataclass(frozen=True, kw_only=True, eq=False)
class PlantedDoor:
    """A map of the portal with an object in it, where that stands, and gray pixels of it and of one that is nowhere."""

    scene: Scene
    map_from_object: Similarity
    present: np.ndarray
    absent: np.ndarray


@cache
def planted_door() -> PlantedDoor:
    """The map of five photographs with a part of another place's photograph before the middle of the portal."""
    with other_place() as path:
        whole = read_picture(path).gray
    height, width = whole.shape
    present = np.ascontiguousarray(whole[height // 2 - 120 : height // 2 + 120, width // 2 - 160 : width // 2 + 160])
    absent = np.ascontiguousarray(whole[:240, :320][:, ::-1])
    with lund_door() as place:
        names = sorted(place.poses)[3:8]
        pictures = {name: read_picture(place.folder / name, camera=place.camera) for name in names}
        poses = {name: place.poses[name] for name in names}
    where = _before(list(poses.values()), place.camera.focal_px / place.camera.width_px)
    images, cameras = {}, {}
    for name, picture in pictures.items():
        gray, _ = painted(picture.gray, picture.camera, present, where.inverse().moved(poses[name]))
        shown = Picture.of(np.repeat(gray[:, :, None], 3, axis=2), camera=picture.camera)
        images[name] = published(extract_sift(shown, SiftOptions(max_features=1500)))
        cameras[name] = picture.camera
    built = map_posed(images, cameras, poses, options=MappingOptions(workers=1))
    assert isinstance(built, BuiltMap)
    return PlantedDoor(scene=built.map.scene, map_from_object=where, present=present, absent=absent)


def _before(poses: list[Rigid], focal: float) -> Similarity:
    """A place before the point at which all cameras look, that faces the middle one; `focal` is in widths of the picture."""
    centers, ahead = np.array([pose.center for pose in poses]), np.array([pose.heading for pose in poses])
    across = np.eye(3) - ahead[:, :, None] * ahead[:, None, :]
    point = np.linalg.solve(across.sum(axis=0), (across @ centers[:, :, None]).sum(axis=0)[:, 0])
    middle = poses[len(poses) // 2]
    distance = 0.95 * float(np.linalg.norm(point - middle.center))
    point = middle.center + distance * middle.heading
    return Similarity(scale=WIDTH * distance / focal, rotation=middle.rotation.T.copy(), translation=point)
