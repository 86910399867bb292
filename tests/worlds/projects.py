"""Projects of COLMAP with planted truth: a model with all keypoints of its images, and their features beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pycolmap

from veil.features import Features
from veil.files.features import write_features
from veil.places.maps.scenes import model_of
from veil.scene import Scene
from worlds.line_worlds import features_of
from worlds.map_scenes import image_name, planted_map


def full_model(scene: Scene, features: dict[str, Features]) -> pycolmap.Reconstruction:
    """The model of a planted map in which images have all their keypoints, those of no point among them, in another order."""
    images = {}
    for name, image in scene.images.items():
        order = {tuple(xy): row for row, xy in enumerate(features[name].keypoints.tolist())}
        images[name] = np.array([order[tuple(xy)] for xy in image.keypoints.tolist()])
    bare = model_of(scene)
    made = pycolmap.Reconstruction()
    for camera in bare.cameras.values():
        made.add_camera_with_trivial_rig(camera)
    for posed in bare.images.values():
        item = pycolmap.Image(name=posed.name, camera_id=posed.camera_id, image_id=posed.image_id)
        xy = features[posed.name].keypoints.astype(np.float64)
        item.points2D = pycolmap.Point2DList([pycolmap.Point2D(each) for each in xy])
        made.add_image_with_trivial_frame(item, posed.cam_from_world())
    for _, point in sorted(bare.points3D.items()):
        track = pycolmap.Track()
        for element in point.track.elements:
            track.add_element(element.image_id, int(images[bare.images[element.image_id].name][element.point2D_idx]))
        made.add_point3D(point.xyz, track, np.zeros(3, np.uint8))
    return made


def planted_project(folder: Path) -> tuple[Scene, dict[str, Features]]:
    """A planted map as a COLMAP project: `sparse/0`, and features of all keypoints in `features.h5` and `database.db`."""
    scene, place = planted_map("imported")
    raw = {image_name(key): item for key, item in features_of(place, "imported").items()}
    (folder / "sparse" / "0").mkdir(parents=True)
    full_model(scene, raw).write(folder / "sparse" / "0")
    write_features(folder / "features.h5", sorted(raw.items()))
    database = pycolmap.Database.open(folder / "database.db")
    camera_id = database.write_camera(
        pycolmap.Camera(model="PINHOLE", width=640, height=480, params=list(place.camera.params), has_prior_focal_length=True)
    )
    for name, item in raw.items():
        image_id = database.write_image(pycolmap.Image(name=name, camera_id=camera_id))
        database.write_keypoints(image_id, item.keypoints)
        stored = pycolmap.FeatureDescriptors(type=pycolmap.FeatureExtractorType.SIFT, data=item.descriptors)
        database.write_descriptors(image_id, stored)
    database.close()
    return scene, raw


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
