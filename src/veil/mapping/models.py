"""COLMAP's models from pieces: poses, points and observations in the numbering of a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from veil.geometry.camera import Camera, as_colmap
from veil.mapping.images import MapImage
from veil.mapping.pieces import Piece


def write_model(
    folder: Path,
    piece: Piece,
    *,
    images: Mapping[str, MapImage],
    cameras: Mapping[str, Camera],
    database: Path,
    image_ids: Mapping[str, int],
) -> None:
    """Write a piece as COLMAP's model into an existing folder, in the numbering of the database.

    `images` are what was mapped, `cameras` those that maps of parts refined, both by image. Images that share a camera in the
    database get the median of its refined parameters. Points at which no image has a feature are not written.
    """
    from veil.colmap import pycolmap

    names = sorted(piece.cam_from_world)
    opened = pycolmap.Database.open(database)
    try:
        camera_of = {name: opened.read_image(image_ids[name]).camera_id for name in names}
    finally:
        opened.close()
    model = pycolmap.Reconstruction()
    for camera_id in sorted(set(camera_of.values())):
        mine = [cameras[name] for name in names if camera_of[name] == camera_id]
        middle = np.median([camera.params for camera in mine], axis=0)
        colmap = as_colmap(replace(mine[0], params=tuple(float(value) for value in middle)))
        colmap.camera_id = camera_id
        model.add_camera_with_trivial_rig(colmap)
    for name in names:
        image = pycolmap.Image(
            name=name,
            keypoints=np.asarray(images[name].keypoints, dtype=np.float64),
            camera_id=camera_of[name],
            image_id=image_ids[name],
        )
        pose = piece.cam_from_world[name]
        rigid = pycolmap.Rigid3d(np.column_stack([pose.rotation, pose.translation]))
        model.add_image_with_trivial_frame(image, rigid)
    tracks: list[list[tuple[int, int]]] = [[] for _ in piece.points]
    for name in names:
        for feature, row in zip(piece.features[name].tolist(), piece.point_rows[name].tolist(), strict=True):
            tracks[row].append((image_ids[name], feature))
    for point, track in zip(piece.points, tracks, strict=True):
        if track:
            model.add_point3D(point, pycolmap.Track([pycolmap.TrackElement(*element) for element in track]))
    model.write(folder)
