"""Flat objects planted in photographs of a scene: their texture is painted where known cameras would see them.

An object stands before all else; what would hide it is ignored, and no light falls on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.extraction.flat_objects import Gray, corners_of, painted, projected
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity
from veil.scene import Scene

# An object is seen by these images at least, whole and from no further to a side (cosine of the angle).
LEAST_SEEN, LEAST_FACING = 3, 0.5
# Largest tilt of an object against the middle of the cameras that see it, and its distance to the scene's point behind it as a
# share of that to the cameras.
TILT_DEG, BEFORE = 20.0, 0.03
# Widths of objects as shares of the width of the picture in the middle of those that see them.
WIDTHS = (0.15, 0.2, 0.25, 0.3)
TRIES = 300
# Size of an object's texture in pixels, and its least number of features.
WIDE_PX, HIGH_PX, LEAST_FEATURES = 320, 240, 150


@dataclass(frozen=True, kw_only=True, eq=False)
class PlantedObject:
    """An object of a scene: its name, pixels, and where it stands in the world of the scene's cameras.

    `share` is its width as a share of the picture's, in the middle of the images that see it.
    """

    name: str
    gray: Gray
    world_from_object: Similarity
    share: float


def cut_objects(pictures: Iterable[tuple[str, Gray]], count: int, random: np.random.Generator) -> dict[str, Gray]:
    """Objects by name: a part of each gray picture, of those that are large enough and show enough features there.

    Raises InputError if there are fewer than `count`.
    """
    cut: dict[str, Gray] = {}
    for name, gray in pictures:
        top, left = gray.shape[0] - HIGH_PX, gray.shape[1] - WIDE_PX
        if min(top, left) < 0:
            continue
        y, x = int(random.integers(top + 1)), int(random.integers(left + 1))
        part = np.ascontiguousarray(gray[y : y + HIGH_PX, x : x + WIDE_PX])
        try:
            features = extract_sift(Picture.of(np.repeat(part[:, :, None], 3, axis=2)), SiftOptions())
        except InputError:  # it shows nothing
            continue
        if len(features) >= LEAST_FEATURES:
            cut[name] = part
        if len(cut) == count:
            return cut
    raise InputError(f"{len(cut)} of {count} objects could be cut from the photographs; give more, of {WIDE_PX} px or wider")


def planted(
    pictures: Mapping[str, Picture],
    scene: Scene,
    objects: Mapping[str, Gray],
    random: np.random.Generator,
) -> tuple[dict[str, Picture], list[PlantedObject]]:
    """The pictures of a scene with objects in them, and the objects that found room, in the order given.

    No two overlap in any picture. `scene` is a map of the pictures in the world of their cameras; those that it left out are
    missing.
    """
    taken: dict[str, list[Float64[np.ndarray, "2 2"]]] = {name: [] for name in scene.images}
    standing: list[PlantedObject] = []
    for name, gray in objects.items():
        for _ in range(TRIES):
            item = _proposed(name, gray, scene, random)
            boxes = None if item is None else _boxes(item, scene)
            if item is None or boxes is None or any(_overlap(box, other) for at, box in boxes.items() for other in taken[at]):
                continue
            for at, box in boxes.items():
                taken[at].append(box)
            standing.append(item)
            break
    shown = {}
    for name, picture in pictures.items():
        image = scene.images.get(name)
        if image is None:  # its map left it out, and so does the next
            continue
        gray, pose = picture.gray, image.cam_from_world
        for item in standing:
            if _facing(item, pose) > 0 and _before(item, pose):
                gray, _ = painted(gray, picture.camera, item.gray, cam_from_object(item, pose))
        shown[name] = Picture.of(np.repeat(gray[:, :, None], 3, axis=2), camera=picture.camera)
    return shown, standing


def cam_from_object(item: PlantedObject, cam_from_world: Rigid) -> Rigid:
    """Pose of a camera beside an object, in units of the object's width."""
    return item.world_from_object.inverse().moved(cam_from_world)


def seen_whole(item: PlantedObject, scene: Scene) -> list[str]:
    """Names of the images of a scene in which the whole of an object is seen, not too much from a side, sorted."""
    names = []
    for name, image in sorted(scene.images.items()):
        pose, camera = image.cam_from_world, image.camera
        if _facing(item, pose) < LEAST_FACING or not _before(item, pose):
            continue
        corners = projected(camera, cam_from_object(item, pose), corners_of(item.gray))
        if (corners >= 0).all() and (corners <= [camera.width_px, camera.height_px]).all():
            names.append(name)
    return names


def _proposed(name: str, gray: Gray, scene: Scene, random: np.random.Generator) -> PlantedObject | None:
    """An object before a point of the scene, turned towards the images that see it; None where too few do."""
    point_row = int(random.integers(len(scene.points)))
    seeing = [image for image in scene.images.values() if point_row in image.point_rows]
    if len(seeing) < LEAST_SEEN:
        return None
    point, middle = scene.points[point_row], np.mean([image.cam_from_world.center for image in seeing], axis=0)
    away = point - middle
    distance, share = float(np.linalg.norm(away)), float(random.choice(WIDTHS))
    down = np.mean([image.cam_from_world.rotation[1] for image in seeing], axis=0)
    tilt = np.tan(np.radians(TILT_DEG)) * (random.random(2) * 2 - 1)
    forward = away / distance
    right = np.cross(down, forward)
    right /= np.linalg.norm(right)
    forward = forward + tilt[0] * right + tilt[1] * np.cross(forward, right)
    forward /= np.linalg.norm(forward)
    right = np.cross(down, forward)
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward], axis=1)
    camera = seeing[0].camera
    scale = share * camera.width_px / camera.focal_px * distance * (1 - BEFORE)
    place = Similarity(scale=scale, rotation=rotation, translation=point - BEFORE * away)
    return PlantedObject(name=name, gray=gray, world_from_object=place, share=share)


def _facing(item: PlantedObject, cam_from_world: Rigid) -> float:
    """Cosine of the angle between an object's front and the line to a camera; negative where the camera is behind it."""
    towards = item.world_from_object.translation - cam_from_world.center
    return float(item.world_from_object.rotation[:, 2] @ towards / np.linalg.norm(towards))


def _before(item: PlantedObject, cam_from_world: Rigid) -> bool:
    """Whether an object lies before a camera, with some room."""
    corners = cam_from_world.apply(item.world_from_object.apply(corners_of(item.gray)))
    return bool((corners[:, 2] > 0.1 * item.world_from_object.scale).all())


def _boxes(item: PlantedObject, scene: Scene) -> dict[str, Float64[np.ndarray, "2 2"]] | None:
    """Boxes about an object in the pictures that see some of it; None where too few see it whole."""
    boxes = {}
    for name, image in scene.images.items():
        pose, camera = image.cam_from_world, image.camera
        if _facing(item, pose) <= 0 or not _before(item, pose):
            continue
        corners = projected(camera, cam_from_object(item, pose), corners_of(item.gray))
        box = np.stack([corners.min(axis=0), corners.max(axis=0)])
        size = np.array([camera.width_px, camera.height_px])
        if (box[0] < size).all() and (box[1] > 0).all():
            boxes[name] = box
    return boxes if len(seen_whole(item, scene)) >= LEAST_SEEN else None


def _overlap(one: Float64[np.ndarray, "2 2"], other: Float64[np.ndarray, "2 2"]) -> bool:
    return bool((one[0] < other[1]).all() and (other[0] < one[1]).all())
