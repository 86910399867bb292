"""Scenes of released forms from COLMAP's models, and parts of scenes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from veil.geometry.camera import from_colmap
from veil.geometry.rigid import rigid_from_colmap
from veil.mapping.images import MapImage
from veil.scene import MappedImage, Scene


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


def restricted(scene: Scene, names: frozenset[str]) -> Scene | None:
    """Scene of the images `names` alone, with the points that two of them see; None if no point is left."""
    seen = np.zeros(len(scene.points), dtype=np.int64)
    for name in names:
        seen[np.unique(scene.images[name].point_rows)] += 1
    kept = seen >= 2
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
        )
    return replace(scene, images=images, points=scene.points[kept])
