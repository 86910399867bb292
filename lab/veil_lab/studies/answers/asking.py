"""A map as its server holds it, asked in one form: what it answers, in how much time, and what the default guard lets through.

Words are asked of public maps, lines of private ones with positions. Both bring gravity, off by as much as a sensor's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Float64

from veil.device.doors import published
from veil.device.protection import FEATURES, usual_words
from veil.errors import InputError
from veil.extraction.flat_objects import Gray, flat_views
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.geometry.camera import as_colmap
from veil.geometry.rigid import Rigid
from veil.mechanisms.selection import Selection
from veil.places.building import map_posed
from veil.places.built_maps import MappingOptions
from veil.places.held_map import Map
from veil.places.localization import WORD_SECONDS, AnswerGuard, extent_of_points, localize_loaded
from veil.places.maps import NoMap
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions, WordOptions
from veil.places.uploads import loaded
from veil.randomness import Randomness, seeded
from veil.scene import Scene
from veil.wire.message import Upload
from veil_lab.studies.attacks.form_releases import GRAVITY_SIGMA_DEG, USUAL_WORDS, FormPools, FormSetting, released_as
from veil_lab.studies.localization.upright_localization import tilted

QueryForm = Literal["raw", "subspaces", "lines", "words"]


@dataclass(frozen=True, kw_only=True)
class AskedForm:
    """Form of a map's photographs, form of queries, and the number of features that are extracted of each."""

    mapped: FormSetting
    queries: FormSetting
    max_features: int = 1500


RAW = FormSetting(name="raw", descriptors="raw")
SUBSPACES = FormSetting(name="subspaces", descriptors="subspaces", selection=Selection(), gravity=False)
LINES = FormSetting(name="subspaces, lines", descriptors="subspaces", selection=Selection(), lines=True)
FORMS: Mapping[QueryForm, AskedForm] = {
    "raw": AskedForm(mapped=RAW, queries=replace(RAW, gravity=False)),
    "subspaces": AskedForm(mapped=SUBSPACES, queries=SUBSPACES),
    "lines": AskedForm(mapped=SUBSPACES, queries=LINES),
    "words": AskedForm(mapped=RAW, queries=USUAL_WORDS, max_features=FEATURES),
}
# Centers are rounded to multiples of this share of the map's extent.
ROUNDED_SHARE = 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class PosedPlace:
    """Photographs of a place with their poses in one world, in which gravity points to `down`, float64 (3,) of length 1."""

    name: str
    pictures: Mapping[str, Picture]
    cam_from_world: Mapping[str, Rigid]
    down: Float64[np.ndarray, "3"]


@dataclass(frozen=True, kw_only=True)
class AnswerStudyOptions:
    """Options of the studies of answers.

    - `form`: of photographs in maps and of queries.
    - `placements`, `at_once`: places of each object, and number of objects in one map at most.
    - `views`, `view_px`: number of views of an object that the attacker asks with, and their width in pixels.
    - `max_features`: of a photograph and of a view; None: as many as the form has.
    - `guard`: the defense that is the default of private maps.
    """

    form: QueryForm = "raw"
    placements: int = 3
    at_once: int = 10
    views: int = 3
    view_px: int = 320
    max_features: int | None = None
    guard: AnswerGuard = field(default_factory=AnswerGuard)
    seed: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class WeighedAnswer:
    """An answer with all that defenses and scores look at.

    `pose` is None for a refusal. `stands` tells whether the default guard lets it through. `rounded` is the pose after
    rounding. `inliers` is their number, `shown_share` the share of them among the map's points in the picture, and
    `inlier_share` that among the query's features. `deviation` is that of the center in units of the map. `processor_seconds`
    are those that the search took, of all threads, and `clock_seconds` those that went by.
    """

    pose: Rigid | None
    rounded: Rigid | None = None
    stands: bool = False
    inliers: int = 0
    shown_share: float = 0.0
    inlier_share: float = 0.0
    deviation: float = np.inf
    processor_seconds: float = 0.0
    clock_seconds: float = 0.0


class Asker:
    """Whoever maps places and asks the maps, in one form. Two seeds draw releases: the map's device and the user's."""

    def __init__(self, pools: FormPools, options: AnswerStudyOptions) -> None:
        self.pools, self.options, self.form = pools, options, FORMS[options.form]
        self._device, self._user = seeded(f"answers {options.seed}"), seeded(f"queries of answers {options.seed}")

    def extracted(self, pictures: Mapping[str, Picture]) -> dict[str, Features]:
        """Features of photographs, by name."""
        return {name: self.features(picture) for name, picture in pictures.items()}

    def features(self, picture: Picture) -> Features:
        """Features of one photograph or view."""
        most = self.form.max_features if self.options.max_features is None else self.options.max_features
        return extract_sift(picture, SiftOptions(max_features=most))

    def views(self, gray: Gray) -> list[tuple[Features, Rigid]]:
        """Features of the views of a flat object alone, and the poses of their cameras beside it."""
        made = flat_views(gray, width_px=self.options.view_px)[: self.options.views]
        return [(self.features(picture), pose) for picture, pose in made]

    def scene(self, place: PosedPlace, features: Mapping[str, Features], *, raw: bool = False) -> Scene:
        """Map of photographs of a place at their known poses; `raw` ones whatever the form. Raises InputError without a map."""
        setting = RAW if raw else self.form.mapped
        images = {name: self._image(setting, item, self._device, None) for name, item in features.items()}
        cameras = {name: item.camera for name, item in features.items()}
        options = MappingOptions(workers=1, seed=self.options.seed)
        built = map_posed(images, cameras, place.cam_from_world, options=options)
        if isinstance(built, NoMap):
            raise InputError(f"no map of {place.name}: {built.reason}")
        return replace(built.map.scene, measured_down=place.down)

    def asked_map(self, place: PosedPlace, features: Mapping[str, Features]) -> Map:
        """The map of photographs, as its server holds it after a first query: indexes are made, and code is compiled."""
        where = Map(scene=self.scene(place, features))
        first = min(where.scene.images)
        self.answer(where, features[first], where.scene.images[first].cam_from_world.rotation @ place.down, first)
        return where

    def answer(self, where: Map, features: Features, down: Float64[np.ndarray, "3"], case: str) -> WeighedAnswer:
        """The answer to a query whose gravity points to `down` in the camera frame; `case` draws how far a reading is off."""
        image = self._image(self.form.queries, features, self._user, tilted(down, GRAVITY_SIGMA_DEG, case))
        options = LocalizeOptions(workers=1, seed=self.options.seed)
        words = WordOptions(max_seconds=WORD_SECONDS, threads=1)
        clock, processor = time.perf_counter(), time.process_time()
        answer = localize_loaded(image, where, options=options, word_options=words)
        processor, clock = time.process_time() - processor, time.perf_counter() - clock
        made = weighed(answer, where.scene, len(features), self.options.guard)
        return replace(made, processor_seconds=processor, clock_seconds=clock)

    def _image(
        self, setting: FormSetting, features: Features, drawn_by: Randomness, down: Float64[np.ndarray, "3"] | None
    ) -> LoadedImage:
        """An image as the map's holder has it: raw, or released from a device's randomness, with gravity where it is sent."""
        if setting.descriptors == "raw":
            return published(features)
        dictionary = usual_words(features.space.descriptor).book if setting.descriptors == "words" else None
        sent = down if setting.gravity else None
        made = released_as(setting, features, self.pools, dictionary=dictionary, randomness=drawn_by, gravity=sent)
        return loaded(replace(made, gravity=sent) if isinstance(made, Upload) else made)


def weighed(answer: Localization | NoPose, scene: Scene, features: int, guard: AnswerGuard) -> WeighedAnswer:
    """An answer of the map `scene` to a query with `features` features, and all but its time that defenses and scores need."""
    if isinstance(answer, NoPose):
        return WeighedAnswer(pose=None)
    pose, deviation = answer.cam_from_world, answer.center_deviation
    return WeighedAnswer(
        pose=pose,
        rounded=rounded(pose, ROUNDED_SHARE * extent_of_points(scene)),
        stands=isinstance(guard.told(answer, scene), Localization),
        inliers=answer.inliers,
        shown_share=answer.inliers / max(shown_points(answer, scene), 1),
        inlier_share=answer.inliers / features,
        deviation=np.inf if deviation is None else deviation,
    )


def shown_points(answer: Localization, scene: Scene) -> int:
    """Number of the map's points that lie in the picture of an answered camera."""
    in_camera = answer.cam_from_world.apply(scene.points)
    in_camera = in_camera[in_camera[:, 2] > 1e-9]
    xy = np.asarray(as_colmap(answer.camera).img_from_cam(in_camera), dtype=np.float64).reshape(-1, 2)
    return int(((xy >= 0) & (xy <= [answer.camera.width_px, answer.camera.height_px])).all(axis=1).sum())


def rounded(pose: Rigid, step: float) -> Rigid:
    """The pose with its center rounded to multiples of `step`."""
    center = np.round(pose.center / step) * step
    return Rigid(rotation=pose.rotation, translation=-pose.rotation @ center)
