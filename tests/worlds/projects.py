"""Projects of COLMAP with planted truth: a model with all keypoints of its images, and their features beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pycolmap

from veil.features import Features
from veil.files.features import write_features
from veil.geometry.camera import Camera, as_colmap
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


# Lenses of some barrel distortion, which keep all of a planted picture's keypoints inside.
LENSES = {
    "PINHOLE": (),
    "OPENCV_FISHEYE": (0.01, -0.004, 0.001, -0.0005),
    "FULL_OPENCV": (-0.06, 0.01, 0.001, -0.0008, -0.001, 0.002, 0.001, -0.0004),
}


def planted_hloc_project(folder: Path, model: str) -> tuple[Scene, dict[str, Features]]:
    """A planted map as hloc's `sift` setting leaves a project on disk, with cameras of a model of `LENSES`.

    There are `feats-sift.h5` (keypoints from pixel centers, scores, RootSIFT in half precision, image_size),
    `matches-NN-mutual.h5`, and the folder `sfm`, in which COLMAP 4 left a rig of two cameras, a frame for each image, and a
    database with keypoints and matches, but no descriptors. The scene and the features given back are those of the new lens.
    """
    scene, place = planted_map("hloc")
    camera = replace(place.camera, model=model, params=(*place.camera.params, *LENSES[model]))
    raw = {image_name(key): seen_through(camera, item) for key, item in features_of(place, "hloc").items()}
    images = {}
    for name, image in scene.images.items():
        keypoints = through(camera, image.camera, image.keypoints)
        images[name] = replace(image, camera=camera, keypoints=keypoints)
    scene = replace(scene, images=images)
    (folder / "sfm").mkdir(parents=True)
    in_rig(full_model(scene, raw)).write(folder / "sfm")
    _write_hloc(folder, raw)
    with pycolmap.Database.open(folder / "sfm" / "database.db") as database:
        camera_id = database.write_camera(as_colmap(camera))
        for name, item in sorted(raw.items()):
            image_id = database.write_image(pycolmap.Image(name=name, camera_id=camera_id))
            database.write_keypoints(image_id, item.keypoints)
        database.write_matches(1, 2, np.zeros((1, 2), dtype=np.uint32))
    return scene, raw


def through(camera: Camera, pinhole: Camera, keypoints: np.ndarray) -> np.ndarray:
    """Where another lens in place of the first one shows the points of keypoints, float32 (N, 2)."""
    xy = np.asarray(as_colmap(pinhole).cam_from_img(keypoints.astype(np.float64)))
    seen = as_colmap(camera).img_from_cam(np.concatenate([xy, np.ones((len(xy), 1))], axis=1))
    return np.asarray(seen, dtype=np.float32)


def seen_through(camera: Camera, features: Features) -> Features:
    """The features of a picture taken through another lens."""
    return replace(features, camera=camera, keypoints=through(camera, features.camera, features.keypoints))


def in_rig(model: pycolmap.Reconstruction) -> pycolmap.Reconstruction:
    """The model with two cameras in one rig, half a unit apart, that took the images in turns, a frame each."""
    made = pycolmap.Reconstruction()
    rig = pycolmap.Rig(rig_id=1)
    apart = pycolmap.Rigid3d(pycolmap.Rotation3d(np.array([0.0, 0.28, 0.0, 0.96])), np.array([-0.5, 0.0, 0.1]))
    camera = next(iter(model.cameras.values()))
    for number in (1, 2):
        camera.camera_id = number
        made.add_camera(camera)
        if number == 1:
            rig.add_ref_sensor(camera.sensor_id)
        else:
            rig.add_sensor(camera.sensor_id, apart)
    made.add_rig(rig)
    for number, posed in enumerate(model.images.values()):
        side = 1 + number % 2
        image = pycolmap.Image(name=posed.name, camera_id=side, image_id=posed.image_id)
        image.points2D = pycolmap.Point2DList([pycolmap.Point2D(each.xy) for each in posed.points2D])
        frame = pycolmap.Frame(frame_id=posed.image_id, rig_id=1)
        frame.add_data_id(image.data_id)
        frame.rig_from_world = posed.cam_from_world() if side == 1 else apart.inverse() * posed.cam_from_world()
        made.add_frame(frame)
        image.frame_id = frame.frame_id
        made.add_image(image)
        made.register_frame(frame.frame_id)
    for point in model.points3D.values():
        made.add_point3D(point.xyz, point.track, np.zeros(3, np.uint8))
    return made


def _write_hloc(folder: Path, raw: dict[str, Features]) -> None:
    """Features and matches as hloc's `extract_features` and `match_features` write them."""
    with h5py.File(folder / "feats-sift.h5", "w", libver="latest") as file:
        for name, item in raw.items():
            group = file.create_group(name)
            shares = item.descriptors / item.descriptors.sum(axis=1, keepdims=True, dtype=np.float64)
            group["keypoints"] = (item.keypoints - 0.5).astype(np.float32)
            group["keypoints"].attrs["uncertainty"] = 1.0
            group["scores"] = np.linspace(1, 0, len(item), dtype=np.float16)
            group["descriptors"] = np.sqrt(shares).T.astype(np.float16)
            group["image_size"] = np.array([item.camera.width_px, item.camera.height_px])
    with h5py.File(folder / "matches-NN-mutual.h5", "w", libver="latest") as file:
        one, other, *_ = sorted(raw)
        group = file.create_group(f"{one.replace('/', '-')}/{other.replace('/', '-')}")
        group["matches0"] = np.full(len(raw[one]), -1, dtype=np.int16)
        group["matching_scores0"] = np.zeros(len(raw[one]), dtype=np.float16)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
