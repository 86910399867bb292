"""COLMAP's database of images, matches and two-view geometries: what its verifier reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from veil.geometry.camera import Camera, as_colmap
from veil.matching.neighbors import Matches
from veil.places.maps.images import MapImage


def write_database(
    path: Path, images: Mapping[str, MapImage], matches: Mapping[tuple[str, str], Matches]
) -> tuple[dict[str, int], set[int]]:
    """Write a new database; returns COLMAP's id of every image, and the ids of the cameras whose focal length is known.

    Images of equal intrinsics share one camera.
    """
    from veil.colmap import pycolmap

    database = pycolmap.Database.open(path)
    try:
        with pycolmap.DatabaseTransaction(database):
            cameras: dict[Camera, int] = {}
            image_ids = {}
            for name in sorted(images):
                image = images[name]
                if image.camera not in cameras:
                    cameras[image.camera] = _write_camera(database, image.camera)
                image_ids[name] = _write_image(database, name, cameras[image.camera])
                database.write_keypoints(image_ids[name], image.keypoints)
            for (a, b), matched in matches.items():
                if len(matched):
                    database.write_matches(image_ids[a], image_ids[b], matched.indices.astype(np.uint32))
    finally:
        database.close()
    return image_ids, {number for camera, number in cameras.items() if camera.focal_is_known}


def _write_camera(database: Any, camera: Camera) -> int:
    from veil.colmap import pycolmap

    model = as_colmap(camera)
    camera_id = database.write_camera(model)
    model.camera_id = camera_id
    rig = pycolmap.Rig(rig_id=camera_id)
    rig.add_ref_sensor(model.sensor_id)
    database.write_rig(rig, use_rig_id=True)
    return camera_id


def _write_image(database: Any, name: str, camera_id: int) -> int:
    from veil.colmap import pycolmap

    image = pycolmap.Image(name=name, camera_id=camera_id)
    image_id = database.write_image(image)
    image.image_id = image_id
    frame = pycolmap.Frame(frame_id=image_id, rig_id=camera_id)
    frame.add_data_id(image.data_id)
    database.write_frame(frame, use_frame_id=True)
    return image_id


def read_geometries(path: Path, image_ids: Mapping[str, int]) -> dict[tuple[str, str], Any]:
    """Two-view geometries of COLMAP's that have inliers, by pairs of names in the order of the images' ids."""
    from veil.colmap import pycolmap

    name_of = {number: name for name, number in image_ids.items()}
    database = pycolmap.Database.open(path)
    try:
        pair_ids, geometries = database.read_two_view_geometries()
    finally:
        database.close()
    geometry_of = {}
    for pair_id, geometry in zip(pair_ids, geometries, strict=True):
        first, second = pycolmap.pair_id_to_image_pair(pair_id)
        if len(geometry.inlier_matches):
            geometry_of[name_of[first], name_of[second]] = geometry
    return geometry_of


def keep_geometries(path: Path, image_ids: Mapping[str, int], kept: Mapping[tuple[str, str], Any]) -> None:
    """Replace all two-view geometries of the database by `kept`."""
    from veil.colmap import pycolmap

    database = pycolmap.Database.open(path)
    try:
        with pycolmap.DatabaseTransaction(database):
            database.clear_two_view_geometries()
            for (a, b), geometry in kept.items():
                database.write_two_view_geometry(image_ids[a], image_ids[b], geometry)
    finally:
        database.close()


def camera_ids(path: Path) -> dict[str, int]:
    """COLMAP's id of every image's camera, by the image's name."""
    from veil.colmap import pycolmap

    database = pycolmap.Database.open(path)
    try:
        return {image.name: image.camera_id for image in database.read_all_images()}
    finally:
        database.close()


def add_matches(path: Path, image_ids: Mapping[str, int], matches: Mapping[tuple[str, str], Int64[np.ndarray, "_ 2"]]) -> None:
    """Add pairs to the database as if they were verified, without a geometry; pairs that it has stay as they are."""
    from veil.colmap import pycolmap

    database = pycolmap.Database.open(path)
    try:
        with pycolmap.DatabaseTransaction(database):
            for (a, b), indices in matches.items():
                if not database.exists_two_view_geometry(image_ids[a], image_ids[b]):
                    geometry = pycolmap.TwoViewGeometry()
                    geometry.config = pycolmap.TwoViewGeometryConfiguration.CALIBRATED
                    geometry.inlier_matches = indices.astype(np.uint32)
                    database.write_two_view_geometry(image_ids[a], image_ids[b], geometry)
    finally:
        database.close()
