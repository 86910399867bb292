"""Public maps from models of other tools, in the models' own coordinates.

What a model lacks is descriptors. They are those of a COLMAP database or of hloc's features, where the model was made of them;
else they are extracted from the photographs: at the model's keypoints where their scale and orientation are known, or anew, and
then triangulated from the model's poses. Files of the other tool are only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from veil.device.doors import published
from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.colmap_databases import StoredImage, features_of, measured_space, stored_images
from veil.files.features import holds_features, read_features, tell_converted
from veil.files.photographs.pictures import read_picture, stored_size, upright_size
from veil.files.photographs.posed_models import ModelImage, PosedModel, read_model
from veil.geometry.camera import Camera, rescaled
from veil.geometry.views import projected
from veil.mechanisms.public import publish
from veil.one_line import one_line
from veil.places.building import map_posed
from veil.places.built_maps import BuiltMap, MappingOptions, readings_of
from veil.places.held_map import Map
from veil.places.maps import NoMap
from veil.places.maps.check import ReadingsCheck
from veil.places.maps.known_poses import LEAST_POINTS
from veil.places.maps.scenes import firm
from veil.progress import Progress, Steps, silent
from veil.scene import MapCheck, MappedImage, Scene, mean_down
from veil.space import Space

# Keypoints of a file are those of a model if half of them lie within `SAME_PX` of the model's.
SAME_PX = 1.0
# A feature that was extracted again is the model's if it lies within this distance, in pixels, with this ratio of scales and
# this difference of orientations.
AGAIN_PX, AGAIN_RATIO, AGAIN_RADIANS = 0.5, 1.1, 0.1
# Features are extracted anew where fewer than this share of a model's observations is extracted again, and triangulated where
# fewer than this share of the images with features keeps the model's points.
MOST_LOST = 0.5
# The median distance of 2D points from the projections of their points, in pixels, above which a model contradicts itself.
MOST_ERROR_PX = 8.0
Origin = Literal["stored", "at keypoints", "extracted"]
_OF_OTHERS = "its features are not those that the model was made of"


@dataclass(frozen=True, kw_only=True, eq=False)
class ImportedMap:
    """Public map of a model of another tool.

    - `map`: the map, in the model's coordinates.
    - `origin`: where its descriptors come from: "stored" in a file, extracted "at keypoints" of the model, or "extracted" anew.
    - `source`: that file, or that of the keypoints; None for photographs alone.
    - `keeps_points`: whether its points are the model's own; otherwise they were triangulated from the model's poses.
    - `check`: numbers for and against a map whose points were triangulated; None where it keeps the model's.
    - `left_out`: why images of the model are not in the map, by name.
    - `readings`: readings of gravity compared with the map; None if it was given none.
    """

    map: Map
    origin: Origin
    source: Path | None
    keeps_points: bool
    check: MapCheck | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    readings: ReadingsCheck | None = None

    __repr__ = one_line


def import_map(
    model: Path | str,
    *,
    features: Path | str | None = None,
    photographs: Path | str | None = None,
    space: Space | None = None,
    gravity: Mapping[str, np.ndarray] | None = None,
    options: MappingOptions | None = None,
    steps: Steps[Progress] = silent,
) -> ImportedMap | NoMap:
    """Make a public map of a model of another tool, in its own coordinates, or say why there is none.

    - `model`: a folder with a COLMAP model, or a `transforms.json`, as `veil.read_model` reads them.
    - `features`: the COLMAP database (.db) or hloc's features (.h5) that the model was made of, or others of its photographs;
      None: the `database.db` in the folder of a COLMAP model or the two above it, if there is one.
    - `photographs`: the folder of the photographs, for what the features lack; None: where the model says, or `images` beside
      it or beside the folder above.
    - `space`: of the features' descriptors, where their file does not say it; SIFT's normalization is measured without it.
    - `gravity`: by image name, float (3,) vectors that point down in the model's cameras (x right, y down, z forward). The map
      needs them to serve queries of words with lines.
    - `options`: seed, workers, pairs and ratio test of a triangulation.
    - `steps`: shows progress, see `Steps`.

    No file of the other tool is changed. Raises FileFormatError or InputError for a model or features that cannot be read, and
    where there is neither a feature nor a photograph of the model's images; VeilError if COLMAP fails.
    """
    posed = read_model(model)
    if gravity is not None and not set(gravity) & set(posed.images):
        raise InputError(f"gravity is of none of the images of {posed.path}, which are {', '.join(sorted(posed.images)[:3])}")
    pictures = _Photographs(posed, None if photographs is None else Path(photographs))
    made = _imported_from(posed, pictures, None if features is None else Path(features), space, options, steps)
    if gravity is None or isinstance(made, NoMap):
        return made
    scene = replace(made.map.scene, measured_down=mean_down(gravity, made.map.scene.images))
    return replace(made, map=Map(scene=scene), readings=readings_of(scene, gravity))


def _imported_from(
    posed: PosedModel,
    pictures: _Photographs,
    given: Path | None,
    space: Space | None,
    options: MappingOptions | None,
    steps: Steps[Progress],
) -> ImportedMap | NoMap:
    """The map of a model by the features that are `given` or beside it, else by its photographs."""
    left_out: dict[str, str] = {}
    file = given or usual_database(posed.path)
    if file is not None:
        stored = _Stored.read(file, posed, space, left_out)
        made = _of_features(posed, stored, pictures, options, steps, left_out)
        if made is not None and (isinstance(made, ImportedMap) or given is not None or not pictures):
            return made
    if not pictures:
        raise InputError(
            f"{posed.path} has no descriptors, and there are neither features nor photographs of its images beside it",
            remedy=(Remedy("give", "import_map.features"), Remedy("give", "import_map.photographs")),
        )
    return _posed_map(posed, pictures.features(steps, left_out), "extracted", None, options, steps, left_out)


def usual_database(model: Path) -> Path | None:
    """The database beside a COLMAP model, in its folder or in one of the two above; None if there is none."""
    if model.is_file():
        return None
    folder = model.resolve()
    places = (place / "database.db" for place in (folder, folder.parent, folder.parent.parent))
    return next((place for place in places if place.is_file()), None)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stored:
    """Features of a file for the images of a model, by name: those with descriptors, with the row of each in the file, and
    the keypoints of those that have none but scale and orientation."""

    path: Path
    described: Mapping[str, tuple[Features, Int64[np.ndarray, "_"]]]
    sizes: Mapping[str, int]
    bare: Mapping[str, StoredImage]

    @classmethod
    def read(cls, path: Path, posed: PosedModel, space: Space | None, left_out: dict[str, str]) -> _Stored:
        """The features of a COLMAP database or an .h5. Why an image has none is added to `left_out`."""
        faults: dict[str, VeilError] = {}
        if holds_features(path):
            stored_features = read_features(path, space=space, cameras=posed.cameras, measured=True, skipped=faults)
            read = {name: item.in_l2() for name, item in stored_features if name in posed.images}
            left_out |= {name: str(error) for name, error in faults.items() if name in posed.images}
            sizes = {name: len(item) for name, item in read.items()}
            described = {name: (item, np.arange(len(item))) for name, item in read.items()}
            return cls(path=path, described=described, sizes=sizes, bare={})
        sift = measured_space(path) if space is None else space
        described, sizes, bare = {}, {}, {}
        for stored in stored_images(path, skipped=faults):
            if stored.name not in posed.images:
                continue
            sizes[stored.name] = len(stored.table)
            if stored.descriptors is None:
                if stored.scales_and_orientations is not None:
                    bare[stored.name] = stored
                continue
            try:
                described[stored.name] = features_of(stored, sift)
            except VeilError as error:
                left_out[stored.name] = str(error)
        left_out |= {name: str(error) for name, error in faults.items() if name in posed.images}
        if sift is not None and described:
            tell_converted(path, sift, next(iter(described.values()))[0])
        return cls(path=path, described=described, sizes=sizes, bare=bare)


def _of_features(
    posed: PosedModel,
    stored: _Stored,
    pictures: _Photographs,
    options: MappingOptions | None,
    steps: Steps[Progress],
    left_out: dict[str, str],
) -> ImportedMap | NoMap | None:
    """The map of stored features, by the model's points or else its poses; None where the file has no descriptors.

    Why images are left out is added to `left_out`.
    """
    if len(stored.described) > 1:
        reasons = dict(left_out)
        if (scene := _adopted(posed, stored, reasons)) is not None:
            left_out |= reasons
            return _imported(posed, scene, "stored", stored.path, left_out)
        features = {name: item for name, (item, _) in stored.described.items()}
        return _posed_map(posed, features, "stored", stored.path, options, steps, left_out)
    if len(stored.bare) > 1 and pictures and len(posed.points):
        again = replace(stored, described=dict(pictures.at_keypoints(stored.bare, steps, left_out)))
        scene = _adopted(posed, again, left_out)
        observed = sum(int((posed.images[name].point_rows >= 0).sum()) for name in stored.bare)
        if scene is not None and scene.observation_count >= (1 - MOST_LOST) * observed:
            return _imported(posed, scene, "at keypoints", stored.path, left_out)
    return None


def _adopted(posed: PosedModel, stored: _Stored, left_out: dict[str, str]) -> Scene | None:
    """The scene of the model's points with the stored descriptors; None where too few of the images have their own.

    Why images are left out is added to `left_out`. Raises FileFormatError for a model that contradicts itself.
    """
    images = {}
    for name, image in posed.images.items():
        if name not in stored.described:
            left_out.setdefault(name, f"{stored.path} has no descriptors of it")
            continue
        features, rows = stored.described[name]
        if (reason := _foreign(image, features, rows, stored.sizes[name])) is not None:
            left_out[name] = reason
            continue
        seen = np.flatnonzero(image.point_rows[rows] >= 0)
        images[name] = MappedImage(
            name=name,
            camera=image.camera,
            cam_from_world=image.cam_from_world,
            keypoints=np.ascontiguousarray(image.keypoints[rows[seen]].astype(np.float32)),
            point_rows=image.point_rows[rows[seen]],
            form=publish(features.take(seen)),
        )
    if len(images) < max(2.0, (1 - MOST_LOST) * len(stored.described)) or not len(posed.points):
        return None
    scene = firm(Scene(images=images, points=posed.points, mean_reprojection_error_px=0.0), LEAST_POINTS)
    if scene is None:
        return None
    for name in set(images) - set(scene.images):
        left_out[name] = f"it observes fewer than {LEAST_POINTS} points of the map"
    errors = _errors_px(scene)
    if not np.median(errors) <= MOST_ERROR_PX:
        raise FileFormatError(
            f"{posed.path} contradicts itself: its 2D points lie {np.median(errors):.3g} px from the projections of its "
            "points, at the median; write the model again"
        )
    return replace(scene, mean_reprojection_error_px=float(errors[np.isfinite(errors)].mean()))


def _foreign(image: ModelImage, features: Features, rows: Int64[np.ndarray, "_"], size: int) -> str | None:
    """Why features are not those of an image of the model; None if they are."""
    own, camera = features.camera, image.camera
    if (own.width_px, own.height_px) != (camera.width_px, camera.height_px):
        sizes = f"{own.width_px}x{own.height_px} px, in the model {camera.width_px}x{camera.height_px} px"
        return f"its features are of {sizes}"
    if size != len(image.keypoints):
        return _OF_OTHERS
    distances = np.linalg.norm(features.keypoints - image.keypoints[rows], axis=1)
    return None if np.median(distances) <= SAME_PX else _OF_OTHERS


def _errors_px(scene: Scene) -> Float64[np.ndarray, "_"]:
    """Distances in pixels of all 2D points of a scene from the projections of their points; infinite behind a camera."""
    errors = []
    for image in scene.images.values():
        seen = projected(image.camera, image.cam_from_world.apply(scene.points[image.point_rows]))
        error = np.linalg.norm(seen - image.keypoints, axis=1)
        errors.append(np.where(np.isnan(error), np.inf, error))
    return np.concatenate(errors)


def _imported(posed: PosedModel, scene: Scene, origin: Origin, source: Path | None, left_out: Mapping[str, str]) -> ImportedMap:
    """The map of a scene that has the model's points."""
    reasons = {name: reason for name, reason in sorted(left_out.items()) if name not in scene.images}
    return ImportedMap(map=Map(scene=scene), origin=origin, source=source, keeps_points=True, left_out=reasons)


def _posed_map(
    posed: PosedModel,
    features: Mapping[str, Features],
    origin: Origin,
    source: Path | None,
    options: MappingOptions | None,
    steps: Steps[Progress],
    left_out: Mapping[str, str],
) -> ImportedMap | NoMap:
    """The map of features that are triangulated from the model's poses, or why there is none."""
    if not features:
        name, reason = next(iter(sorted(left_out.items())), ("", "there are none"))
        raise InputError(f"no image of {posed.path} has features; {name}: {reason}")
    images = {name: published(item) for name, item in features.items()}
    built = map_posed(images, posed.cameras, posed.poses, options=options, steps=steps)
    missing = {name: "it has no features" for name in posed.images if name not in features}
    reasons = {**missing, **left_out, **built.left_out}
    if not isinstance(built, BuiltMap):
        return replace(built, left_out=reasons)
    reasons = {name: reason for name, reason in sorted(reasons.items()) if name not in built.map.scene.images}
    check = built.check if isinstance(built.check, MapCheck) else None
    return ImportedMap(map=built.map, origin=origin, source=source, keeps_points=False, check=check, left_out=reasons)


class _Photographs:
    """The photographs of a model's images, in `folder` or where the model says; false if there is none."""

    def __init__(self, posed: PosedModel, folder: Path | None) -> None:
        self.posed = posed
        self.paths = self._in(folder) if folder is not None else self._usual()
        if folder is not None and not self.paths:
            first = next(iter(posed.images))
            raise InputError(f"{folder} holds no photograph of {posed.path}, whose first image is {first!r}; check the folder")

    def __bool__(self) -> bool:
        return bool(self.paths)

    def _in(self, folder: Path) -> dict[str, Path]:
        """Paths by image name, below a folder: names that lead out of it have none."""
        inside = [name for name in self.posed.images if not name.startswith("/") and ".." not in name.split("/")]
        return {name: folder / name for name in inside if (folder / name).is_file()}

    def _usual(self) -> dict[str, Path]:
        named = {name: image.photograph for name, image in self.posed.images.items()}
        if places := {name: path for name, path in named.items() if path is not None and path.is_file()}:
            return places
        folder = self.posed.path.resolve()
        for place in (folder, folder.parent, folder.parent.parent):
            if (paths := self._in(place / "images")) or (paths := self._in(place)):
                return paths
        return {}

    def pictures(self, steps: Steps[Progress], left_out: dict[str, str]) -> Iterator[tuple[str, Picture]]:
        """Names and decoded photographs with the model's cameras. Why one cannot be used is added to `left_out`."""
        with steps("extracting") as bar:
            for done, (name, path) in enumerate(self.paths.items()):
                bar(done, len(self.paths))
                try:
                    yield name, self._decoded(path, self.posed.images[name])
                except VeilError as error:
                    left_out[name] = str(error)
            bar(len(self.paths), len(self.paths))

    def _decoded(self, path: Path, image: ModelImage) -> Picture:
        """A photograph as it is stored, as COLMAP reads it, or else upright, whichever has the shape of the model's camera.

        Of a smaller or larger photograph the camera is rescaled.
        """
        stored, upright = stored_size(path), upright_size(path)
        as_stored = rescaled(image.camera, *stored) is not None or rescaled(image.camera, *upright) is None
        size = stored if as_stored else upright
        return read_picture(path, camera=rescaled(image.camera, *size) or image.camera, as_stored=as_stored)

    def features(self, steps: Steps[Progress], left_out: dict[str, str]) -> dict[str, Features]:
        """SIFT of all photographs by name. Why one has none is added to `left_out`."""
        made = {}
        for name, picture in self.pictures(steps, left_out):
            try:
                made[name] = extract_sift(picture, SiftOptions(first_octave=None))
            except InputError as error:
                left_out[name] = str(error)
        return made

    def at_keypoints(
        self, bare: Mapping[str, StoredImage], steps: Steps[Progress], left_out: dict[str, str]
    ) -> Iterator[tuple[str, tuple[Features, Int64[np.ndarray, "_"]]]]:
        """SIFT that is extracted again at stored keypoints, and the row of each feature there, by image name."""
        for name, picture in self.pictures(steps, left_out):
            if name in bare:
                scaled = _at_size(picture, self.posed.images[name].camera)
                tries = [_again(scaled, bare[name], octave) for octave in (-1, 0)]
                yield name, max(tries, key=lambda made: len(made[1]))


def _at_size(picture: Picture, camera: Camera) -> Picture:
    """The picture with as many pixels as the camera has, so that its keypoints are in that camera's."""
    from PIL import Image

    size = camera.width_px, camera.height_px
    if picture.gray.shape == size[::-1] or picture.rgb is None:
        return picture
    return Picture.of(np.asarray(Image.fromarray(picture.rgb).resize(size, Image.Resampling.LANCZOS)), camera=camera)


def _again(picture: Picture, stored: StoredImage, first_octave: int) -> tuple[Features, Int64[np.ndarray, "_"]]:
    """SIFT of a picture at stored keypoints: features whose place, scale and orientation are there, and their rows."""
    from scipy.spatial import cKDTree

    features = extract_sift(picture, SiftOptions(first_octave=first_octave))
    shape = stored.scales_and_orientations
    assert shape is not None and features.scales is not None and features.orientations is not None
    near = cKDTree(stored.table[:, :2]).query_ball_point(features.keypoints, AGAIN_PX)
    rows, kept = [], []
    for index, candidates in enumerate(near):
        candidate = np.array(candidates, dtype=np.int64)
        turned = np.abs(np.angle(np.exp(1j * (shape[1][candidate] - features.orientations[index]))))
        ratio = np.abs(np.log(shape[0][candidate] / features.scales[index]))
        fits = (turned < AGAIN_RADIANS) & (ratio < np.log(AGAIN_RATIO))
        if fits.any():
            rows.append(int(candidate[fits][np.argmin(turned[fits])]))
            kept.append(index)
    _, first = np.unique(rows, return_index=True)
    return features.take(np.array(kept, dtype=np.int64)[first]), np.array(rows, dtype=np.int64)[first]
