"""The audit of a map's answers: are objects in it, and where, by poses alone (docs/theory/answers.md)?

The auditor holds the map, and plays an attacker who may ask it with objects of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from jaxtyping import Float64

from veil.attacks.answered_objects import ObjectPlace, object_place
from veil.device.doors import map_images, published
from veil.device.protection import HideInSubspaces, Protection, make
from veil.errors import InputError
from veil.extraction.flat_objects import flat_views
from veil.extraction.picture import Picture
from veil.extraction.sift import extract_sift
from veil.features import Features
from veil.forms import Points, Subspaces
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity
from veil.one_line import one_line
from veil.places.built_maps import MappingOptions
from veil.places.held_map import Map
from veil.places.localization import AnswerGuard, localize_loaded
from veil.places.maps import NoMap
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions
from veil.places.uploads import loaded
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.randomness import Randomness, seeded

# Widths in pixels of the views of a flat object: a map compares features of about the size at which it saw them.
VIEW_WIDTHS_PX = (320, 640)
LEAST_PHOTOGRAPHS = 3


class AnsweredJson(TypedDict):
    """Answers to the views of one object: how many had a pose, and how many of these agree on one place."""

    answered: int
    agreeing: int
    present: bool


class AnsweredObjectJson(AnsweredJson):
    """An object that a map was asked about, as it answers, and with the guard of a private map."""

    object: str
    views: int
    center: list[float] | None
    size: float | None
    guarded: AnsweredJson


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectViews:
    """Features of an object's views with their poses `cam_from_object`; the object is about 1 wide, around the origin."""

    features: Sequence[Features]
    cam_from_object: Sequence[Rigid]

    __repr__ = one_line

    @staticmethod
    def of_flat(picture: Picture) -> ObjectViews:
        """Views of something flat that fills a photograph, from five sides in every size."""
        made = [view for width_px in VIEW_WIDTHS_PX for view in flat_views(picture.gray, width_px=width_px)]
        return ObjectViews(features=[extract_sift(view) for view, _ in made], cam_from_object=[pose for _, pose in made])

    @staticmethod
    def of_photographs(pictures: Mapping[str, Picture]) -> ObjectViews | NoMap:
        """Photographs of one object with their poses in a map of them; or why there is no map.

        Raises InputError for fewer than three photographs.
        """
        if len(pictures) < LEAST_PHOTOGRAPHS:
            raise InputError(
                f"an object needs {LEAST_PHOTOGRAPHS} photographs or more from several sides, got {len(pictures)}; "
                "give more, or one photograph alone that something flat fills"
            )
        features = {name: extract_sift(picture) for name, picture in pictures.items()}
        built = map_images(features, options=MappingOptions(workers=1))
        if isinstance(built, NoMap):
            return built
        scene = built.map.scene
        low, high = np.percentile(scene.points, [5, 95], axis=0)
        size, middle = float(np.max(high - low)), np.median(scene.points, axis=0)
        object_from_scene = Similarity(scale=1 / size, rotation=np.eye(3), translation=-middle / size)
        return ObjectViews(
            features=[features[name] for name in scene.images],
            cam_from_object=[object_from_scene.moved(image.cam_from_world) for image in scene.images.values()],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class AnsweredObject:
    """An object that a map was asked about: `name`, number of `views`, poses in answer, and the place that they agree on.

    `guarded` and `guarded_place` are those that are left with the guard. A place is None where no two answers agree.
    """

    name: str
    views: int
    answered: int
    place: ObjectPlace | None
    guarded: int
    guarded_place: ObjectPlace | None

    __repr__ = one_line

    @property
    def center(self) -> Float64[np.ndarray, "3"] | None:
        """The object's middle in the map, float64 (3,), in units of the map; None without a place."""
        return None if self.place is None else self.place.map_from_object.translation

    def as_json(self) -> AnsweredObjectJson:
        """The stable record of docs/reference/json.md."""
        center = self.center
        return {
            "object": self.name,
            "views": self.views,
            **_answered_json(self.answered, self.place),
            "center": None if center is None else center.tolist(),
            "size": None if self.place is None else self.place.map_from_object.scale,
            "guarded": _answered_json(self.guarded, self.guarded_place),
        }


def _answered_json(answered: int, place: ObjectPlace | None) -> AnsweredJson:
    return {"answered": answered, "agreeing": 0 if place is None else len(place.views), "present": place is not None}


def audit_answers(
    where: Map,
    objects: Mapping[str, ObjectViews],
    *,
    guard: AnswerGuard | None = None,
    seed: int = 0,
    progress: StepProgress = ignore_steps,
) -> list[AnsweredObject]:
    """Ask a map with all views of objects, and see which of them its poses give away, without the guard and with it.

    A public map is asked with raw features. A private one is asked with subspaces, as a client sends them.

    - `where`: the map.
    - `objects`: views of each by name.
    - `guard`: the default one of private maps if None.
    - `seed`: of the releases, which are for this audit alone.
    - `progress`: told of each object.

    Raises InputError for a map of words, SpaceError for one of other descriptors than SIFT.
    """
    guard, count, found = guard or AnswerGuard(), StepCount(progress, len(objects)), []
    randomness = seeded(f"audit of answers {seed}")
    for name, views in objects.items():
        count.begin(name)
        options = LocalizeOptions(workers=1, seed=seed)
        answers = [localize_loaded(_query(item, where, randomness), where, options=options) for item in views.features]
        poses, guarded = _poses(answers), _poses([guard.told(answer, where.scene) for answer in answers])
        found.append(
            AnsweredObject(
                name=name,
                views=len(poses),
                answered=len(poses) - poses.count(None),
                place=object_place(views.cam_from_object, poses),
                guarded=len(guarded) - guarded.count(None),
                guarded_place=object_place(views.cam_from_object, guarded),
            )
        )
    return found


def _poses(answers: Sequence[Localization | NoPose]) -> list[Rigid | None]:
    return [answer.cam_from_world if isinstance(answer, Localization) else None for answer in answers]


def _query(features: Features, where: Map, randomness: Randomness) -> LoadedImage:
    """A query as the map takes it: raw, or released as a client does."""
    form = next(iter(where.scene.images.values())).form
    if isinstance(form, Points):
        return published(features)
    if not isinstance(form, Subspaces):
        raise InputError("the map holds words; objects are asked for in maps of raw features and of subspaces")
    return loaded(make(Protection(descriptors=HideInSubspaces()), features, randomness).upload)
