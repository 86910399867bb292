"""Scenes of released forms from COLMAP's models and back, and parts of scenes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from veil.geometry.camera import Camera, as_colmap, from_colmap
from veil.geometry.rigid import Rigid, rigid_from_colmap
from veil.places.maps.images import MapImage
from veil.scene import MappedImage, Scene


def read_model(folder: Path) -> Any:
    """COLMAP's model (`pycolmap.Reconstruction`) in a folder, without images whose cameras are none any more.

    Where few images determine a focal length weakly, a mapper may drive it below zero.
    """
    from veil.colmap import pycolmap

    model = pycolmap.Reconstruction(folder)
    impossible = {camera_id for camera_id, camera in model.cameras.items() if not _is_camera(camera)}
    if impossible:
        manager = pycolmap.ObservationManager(model)
        images = [model.images[image_id] for image_id in model.reg_image_ids()]
        for frame_id in {image.frame_id for image in images if image.camera_id in impossible}:
            manager.deregister_frame(frame_id)
    return model


def _is_camera(camera: Any) -> bool:
    """Whether the parameters of a pycolmap camera are finite, and its focal lengths above zero."""
    params = np.asarray(camera.params)
    return bool(np.isfinite(params).all() and (params[camera.focal_length_idxs()] > 0).all())


def scene_of(model: Any, images: Mapping[str, MapImage]) -> Scene:
    """Scene of released forms from COLMAP's model (`pycolmap.Reconstruction`).

    `images` are those that the model was made from, by name. Raises InputError if the model has no point.
    """
    point_ids = sorted(model.points3D)
    row_of = {point_id: row for row, point_id in enumerate(point_ids)}
    mapped = {}
    for image_id in model.reg_image_ids():
        image = model.images[image_id]
        seen = [(i, row_of[p.point3D_id]) for i, p in enumerate(image.points2D) if p.has_point3D()]
        rows = np.array([i for i, _ in seen], dtype=np.int64)
        source = images[image.name]
        mapped[image.name] = MappedImage(
            name=image.name,
            camera=from_colmap(model.cameras[image.camera_id]),
            cam_from_world=rigid_from_colmap(image.cam_from_world()),
            keypoints=source.keypoints[rows],
            point_rows=np.array([row for _, row in seen], dtype=np.int64),
            form=source.form.take(rows),
        )
    return Scene(
        images=mapped,
        points=np.array([model.points3D[point_id].xyz for point_id in point_ids], dtype=np.float64).reshape(-1, 3),
        mean_reprojection_error_px=float(model.compute_mean_reprojection_error()),
    )


def model_of(scene: Scene, *, image_ids: Mapping[str, int] | None = None, camera_ids: Mapping[str, int] | None = None) -> Any:
    """COLMAP's model (`pycolmap.Reconstruction`) of a scene; the i-th 2D point of an image is the i-th row of its form.

    `image_ids` and `camera_ids` number the images and their cameras, by image name; by default both count from 1 in the
    scene's order, each image with a camera of its own. A camera that several images share is that of the first of them.
    """
    from veil.colmap import pycolmap

    model = pycolmap.Reconstruction()
    counted = {name: index for index, name in enumerate(scene.images, start=1)}
    image_ids, camera_ids = image_ids or counted, camera_ids or counted
    tracks: list[list[tuple[int, int]]] = [[] for _ in scene.points]
    for name, image in scene.images.items():
        index = image_ids[name]
        add_image(model, name, image.camera, image.cam_from_world, image.keypoints, index, camera_ids[name])
        for row, point in enumerate(image.point_rows):
            tracks[point].append((index, row))
    for xyz, seen in zip(scene.points, tracks, strict=True):
        track = pycolmap.Track()
        for image_id, row in seen:
            track.add_element(image_id, row)
        model.add_point3D(xyz, track, np.zeros(3, dtype=np.uint8))
    model.update_point_3d_errors()
    return model


def add_image(
    model: Any,
    name: str,
    camera: Camera,
    cam_from_world: Rigid,
    keypoints: Float32[np.ndarray, "features 2"],
    image_id: int,
    camera_id: int,
) -> None:
    """Add an image with its pose and 2D points to COLMAP's model, and its camera where the model has none of this id."""
    from veil.colmap import pycolmap

    if not model.exists_camera(camera_id):
        made = as_colmap(camera)
        made.camera_id = camera_id
        model.add_camera_with_trivial_rig(made)
    item = pycolmap.Image(name=name, camera_id=camera_id, image_id=image_id)
    item.points2D = pycolmap.Point2DList([pycolmap.Point2D(xy) for xy in keypoints.astype(np.float64)])
    model.add_image_with_trivial_frame(item, _as_colmap_rigid(cam_from_world))


def images_of(scene: Scene) -> dict[str, MapImage]:
    """Images of a map of positions, by name, with the features that the map has of them."""
    return {n: MapImage(camera=i.camera, keypoints=i.keypoints, form=i.form) for n, i in scene.images.items()}


def _as_colmap_rigid(rigid: Rigid) -> Any:
    from veil.colmap import pycolmap

    return pycolmap.Rigid3d(np.hstack([rigid.rotation, rigid.translation[:, None]]))


def part_of(whole: Scene, scene: Scene) -> Scene:
    """The images of `scene` in another scene, which has them and others; `scene` itself where nothing is left of them."""
    if set(whole.images) == set(scene.images):
        return whole
    return restricted(whole, frozenset(scene.images)) or scene


def restricted(scene: Scene, names: frozenset[str], *, least: int = 2) -> Scene | None:
    """Scene of the images `names` alone, with the points that `least` of them see; None if no point is left.

    Of images that hide their positions, one of the lines of a point must not run along gravity.
    """
    seen, firm = np.zeros(len(scene.points), dtype=np.int64), np.zeros(len(scene.points), dtype=bool)
    for name in names:
        image = scene.images[name]
        seen[np.unique(image.point_rows)] += 1
        firm[image.point_rows if image.lines is None else image.point_rows[~image.lines.aligned]] = True
    kept = (seen >= least) & firm
    if not kept.any():
        return None
    row_of = np.cumsum(kept) - 1
    images = {}
    for name in sorted(names):
        image = scene.images[name]
        rows = np.flatnonzero(kept[image.point_rows])
        images[name] = replace(
            image,
            keypoints=image.keypoints[rows],
            point_rows=row_of[image.point_rows[rows]].astype(np.int64),
            form=image.form.take(rows),
            lines=None if image.lines is None else image.lines.take(rows),
        )
    return replace(scene, images=images, points=scene.points[kept])


def firm(scene: Scene, least_points: int) -> Scene | None:
    """Largest part of a scene in which each image sees `least_points` points, and each point stands in two images.

    None if no two such images are left.
    """
    names = frozenset(name for name, image in scene.images.items() if len(image.point_rows) >= least_points)
    while len(names) > 1 and (kept := restricted(scene, names)) is not None:
        enough = frozenset(name for name in names if len(kept.images[name].point_rows) >= least_points)
        if enough == names:
            return kept
        names = enough
    return None
