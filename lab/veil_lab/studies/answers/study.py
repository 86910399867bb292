"""Study of attacks through answers: objects that stand in a map are told from others, before and after each defense.

Every place is mapped at known poses with flat objects planted in its photographs, some at a time. The attacker asks with views
of each object alone, and with views of objects that stand nowhere. The same defenses meet honest queries: photographs of the
place that its map does not hold. Photographs that it does hold, and those of other places, show what membership gives away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from veil.attacks.answered_objects import object_place, presence_score
from veil.device.doors import published
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
from veil.places.localization import AnswerGuard, extent_of_points, localize_loaded
from veil.places.maps import NoMap
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions
from veil.places.uploads import loaded
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.randomness import seeded
from veil.scene import Scene
from veil_lab.studies.answers.planting import PlantedObject, planted
from veil_lab.studies.answers.separation import Separation, separated
from veil_lab.studies.attacks.form_releases import FormPools, FormSetting, released_as
from veil_lab.studies.board.split import ranked

QueryForm = Literal["raw", "subspaces"]
SETTINGS: Mapping[QueryForm, FormSetting] = {
    "raw": FormSetting(name="raw", descriptors="raw"),
    "subspaces": FormSetting(name="subspaces", descriptors="subspaces", selection=Selection()),
}
# Centers are rounded to multiples of this share of the map's extent.
ROUNDED_SHARE = 0.02
# The share of honest queries that the strictest limit on shown points may lose.
MOST_LOST = 0.02
FOLDS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class PosedPlace:
    """Photographs of a place with their poses in one world."""

    name: str
    pictures: Mapping[str, Picture]
    cam_from_world: Mapping[str, Rigid]


@dataclass(frozen=True, kw_only=True)
class AnswerStudyOptions:
    """Options of the study.

    - `form`: of photographs in maps and of queries.
    - `placements`, `at_once`: places of each object, and number of objects in one map at most.
    - `views`, `view_px`: number of views of an object that the attacker asks with, and their width in pixels.
    - `max_features`: of a photograph and of a view.
    - `guard`: the defense that is the default of private maps.
    """

    form: QueryForm = "raw"
    placements: int = 3
    at_once: int = 10
    views: int = 3
    view_px: int = 320
    max_features: int = 1500
    guard: AnswerGuard = field(default_factory=AnswerGuard)
    seed: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class WeighedAnswer:
    """An answer with all that defenses and scores of membership look at.

    `pose` is None for a refusal. `stands` tells whether the default guard lets it through. `rounded` is the pose after
    rounding. `shown_share` is the share of inliers among the map's points in the picture, `inlier_share` that among the
    query's features, `deviation` that of the center in units of the map.
    """

    pose: Rigid | None
    rounded: Rigid | None = None
    stands: bool = False
    shown_share: float = 0.0
    inlier_share: float = 0.0
    deviation: float = np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedObject:
    """Answers to the views of an object on one map, their poses beside it, and where it stands; None for one that is absent."""

    name: str
    planted: PlantedObject | None
    cam_from_object: Sequence[Rigid]
    answers: Sequence[WeighedAnswer]
    extent: float


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaceAnswers:
    """All answers of one place's maps: to objects, and to photographs held out of a map, in it, and of other places."""

    objects: Sequence[AskedObject]
    held_out: Mapping[str, WeighedAnswer]
    mapped: Mapping[str, WeighedAnswer]
    elsewhere: Mapping[str, WeighedAnswer]


@dataclass(frozen=True, kw_only=True)
class AnswerDefenseRow:
    """Objects told through answers under one defense, and its cost.

    - `present`, `absent`: number of objects of each kind, over `placements` in all.
    - `separation`: of scores of present ones from absent ones.
    - `told`, `falsely`: share of placements, present and absent ones, with two agreeing views or more.
    - `error_of_width`, `error_of_extent`: median distance between an estimated and the true place, as a share of the object's
      width and of the map's extent; None where none was placed.
    - `honest`, `lost`: honest queries that the map localizes, and those of them that the defense refuses.
    """

    defense: str
    present: int
    absent: int
    placements: int
    separation: Separation
    told: float
    falsely: float
    error_of_width: float | None
    error_of_extent: float | None
    honest: int
    lost: int

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "defense": self.defense,
            "present": self.present,
            "absent": self.absent,
            "placements": self.placements,
            **self.separation.as_json(),
            "told": self.told,
            "falsely": self.falsely,
            "error_of_width": self.error_of_width,
            "error_of_extent": self.error_of_extent,
            "honest": self.honest,
            "lost": self.lost,
        }


@dataclass(frozen=True, kw_only=True)
class MembershipRow:
    """Separation of photographs in the map from others of the same place, and from those of other places, by one score.

    `told` names the score. `other_place` is None where only one place is studied.
    """

    told: str
    same_place: Separation
    other_place: Separation | None

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        other = None if self.other_place is None else self.other_place.as_json()
        return {"told": self.told, "same_place": self.same_place.as_json(), "other_place": other}


class AnswerStudy:
    """The study of some places: `objects` are textures by name, of which the first half of each place's share is planted."""

    def __init__(self, places: Sequence[PosedPlace], pools: FormPools, options: AnswerStudyOptions) -> None:
        self.places, self.pools, self.options = places, pools, options
        self._device, self._user = seeded(f"answers {options.seed}"), seeded(f"queries of answers {options.seed}")

    def run(self, objects: Mapping[str, Gray], *, progress: StepProgress = ignore_steps) -> list[PlaceAnswers]:
        """All answers, of one place after the other. Raises InputError where a place has no map, or objects find no room."""
        count, found = StepCount(progress, len(self.places)), []
        features = {place.name: self._extracted(place.pictures) for place in self.places}
        for number, place in enumerate(self.places):
            count.begin(place.name)
            names = list(objects)[number :: len(self.places)]
            here, nowhere = names[: len(names) // 2], names[len(names) // 2 :]
            others = {
                f"{other.name}/{name}": item
                for other in self.places
                if other is not place
                for name, item in features[other.name].items()
            }
            held_out, mapped = self._honest(place, features[place.name])
            strangers = self._asked_by_strangers(place, features[place.name], others, most=len(held_out))
            asked = list(
                self._objects(place, features[place.name], {n: objects[n] for n in here}, {n: objects[n] for n in nowhere})
            )
            found.append(PlaceAnswers(objects=asked, held_out=held_out, mapped=mapped, elsewhere=strangers))
        return found

    def _extracted(self, pictures: Mapping[str, Picture]) -> dict[str, Features]:
        options = SiftOptions(max_features=self.options.max_features)
        return {name: extract_sift(picture, options) for name, picture in pictures.items()}

    def _image(self, features: Features, randomness: str) -> LoadedImage:
        """An image as the map's holder has it: raw, or released by the device of the map or by another one."""
        if self.options.form == "raw":
            return published(features)
        drawn_by = self._device if randomness == "map" else self._user
        setting = SETTINGS[self.options.form]
        return loaded(released_as(setting, features, self.pools, dictionary=None, randomness=drawn_by, gravity=None))

    def _map(self, place: PosedPlace, features: Mapping[str, Features], *, raw: bool = False) -> Scene:
        images = {name: published(item) if raw else self._image(item, "map") for name, item in features.items()}
        cameras = {name: item.camera for name, item in features.items()}
        built = map_posed(images, cameras, place.cam_from_world, options=MappingOptions(workers=1, seed=self.options.seed))
        if isinstance(built, NoMap):
            raise InputError(f"no map of {place.name}: {built.reason}")
        return built.map.scene

    def _answer(self, scene: Scene, features: Features) -> WeighedAnswer:
        options = LocalizeOptions(workers=1, seed=self.options.seed)
        answer = localize_loaded(self._image(features, "query"), Map(scene=scene), options=options)
        return weighed(answer, scene, len(features), self.options.guard)

    def _honest(
        self, place: PosedPlace, features: Mapping[str, Features]
    ) -> tuple[dict[str, WeighedAnswer], dict[str, WeighedAnswer]]:
        """Answers to each photograph of a map without it, and of one that holds it; names decide the folds."""
        order, held_out, mapped = ranked(features), dict[str, WeighedAnswer](), dict[str, WeighedAnswer]()
        for fold in range(FOLDS):
            out, inside = order[fold::FOLDS], order[(fold + 1) % FOLDS :: FOLDS]
            scene = self._map(place, {name: item for name, item in features.items() if name not in out})
            held_out |= {name: self._answer(scene, features[name]) for name in out}
            mapped |= {name: self._answer(scene, features[name]) for name in inside}
        return held_out, mapped

    def _asked_by_strangers(
        self, place: PosedPlace, features: Mapping[str, Features], others: Mapping[str, Features], *, most: int
    ) -> dict[str, WeighedAnswer]:
        """Answers of the map of all photographs to at most `most` photographs of other places."""
        scene = self._map(place, features)
        return {name: self._answer(scene, others[name]) for name in ranked(others, most)}

    def _objects(
        self, place: PosedPlace, features: Mapping[str, Features], present: Mapping[str, Gray], absent: Mapping[str, Gray]
    ) -> Iterator[AskedObject]:
        """Answers to all objects: to present ones on maps with them, and to as many absent ones on the same maps."""
        base, random = self._map(place, features, raw=True), np.random.default_rng([self.options.seed, *place.name.encode()])
        views = {name: self._views(gray) for name, gray in {**present, **absent}.items()}
        waiting, nowhere = (
            [name for _ in range(self.options.placements) for name in present],
            list(absent) * self.options.placements,
        )
        while waiting:
            chosen = list(dict.fromkeys(waiting))[: self.options.at_once]
            shown, standing = planted(place.pictures, base, {name: present[name] for name in chosen}, random)
            if not standing:
                raise InputError(f"no object finds room in {place.name}: too few photographs show the same")
            scene = self._map(place, self._extracted(shown))
            for item in standing:
                waiting.remove(item.name)
                yield self._asked(scene, item.name, item, views[item.name])
                if nowhere:
                    yield self._asked(scene, nowhere[0], None, views[nowhere.pop(0)])

    def _views(self, gray: Gray) -> list[tuple[Features, Rigid]]:
        options = SiftOptions(max_features=self.options.max_features)
        made = flat_views(gray, width_px=self.options.view_px)[: self.options.views]
        return [(extract_sift(picture, options), pose) for picture, pose in made]

    def _asked(
        self, scene: Scene, name: str, item: PlantedObject | None, views: Sequence[tuple[Features, Rigid]]
    ) -> AskedObject:
        return AskedObject(
            name=name,
            planted=item,
            cam_from_object=[pose for _, pose in views],
            answers=[self._answer(scene, features) for features, _ in views],
            extent=extent_of_points(scene),
        )


def weighed(answer: Localization | NoPose, scene: Scene, features: int, guard: AnswerGuard) -> WeighedAnswer:
    """An answer of the map `scene` to a query of so many features, with all that defenses and scores look at."""
    if isinstance(answer, NoPose):
        return WeighedAnswer(pose=None)
    pose, deviation = answer.cam_from_world, answer.center_deviation
    return WeighedAnswer(
        pose=pose,
        rounded=rounded(pose, ROUNDED_SHARE * extent_of_points(scene)),
        stands=isinstance(guard.told(answer, scene), Localization),
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


Defense = Callable[[WeighedAnswer], Rigid | None]


def defense_rows(places: Sequence[PlaceAnswers], *, seed: int = 0) -> list[AnswerDefenseRow]:
    """A row for each defense: none, rounding, points that the view should show, and the default guard."""
    honest = [answer for place in places for answer in place.held_out.values() if answer.pose is not None]
    limit = float(np.quantile([answer.shown_share for answer in honest], MOST_LOST)) if honest else 0.0
    defenses: Mapping[str, Defense] = {
        "none": lambda answer: answer.pose,
        "rounded poses": lambda answer: answer.rounded,
        "points that the view shows": lambda answer: answer.pose if answer.shown_share >= limit else None,
        "not on one thing (default)": lambda answer: answer.pose if answer.stands else None,
    }
    return [_row(name, defense, places, honest, seed) for name, defense in defenses.items()]


def _row(
    name: str, defense: Defense, places: Sequence[PlaceAnswers], honest: Sequence[WeighedAnswer], seed: int
) -> AnswerDefenseRow:
    present, absent = dict[str, list[float]](), dict[str, list[float]]()
    told, falsely, of_width, of_extent = 0, 0, list[float](), list[float]()
    for asked in (asked for place in places for asked in place.objects):
        poses = [defense(answer) for answer in asked.answers]
        where = object_place(asked.cam_from_object, poses)
        scores = absent if asked.planted is None else present
        scores.setdefault(asked.name, []).append(float(presence_score(poses, where)))
        if asked.planted is None:
            falsely += where is not None
        elif where is not None:
            told += 1
            truth = asked.planted.world_from_object
            error = float(np.linalg.norm(where.map_from_object.translation - truth.translation))
            of_width.append(error / truth.scale)
            of_extent.append(error / asked.extent)
    placements = sum(map(len, present.values()))
    return AnswerDefenseRow(
        defense=name,
        present=len(present),
        absent=len(absent),
        placements=placements,
        separation=separated(list(present.values()), list(absent.values()), seed=seed),
        told=told / placements,
        falsely=falsely / sum(map(len, absent.values())),
        error_of_width=float(np.median(of_width)) if of_width else None,
        error_of_extent=float(np.median(of_extent)) if of_extent else None,
        honest=len(honest),
        lost=sum(defense(answer) is None for answer in honest),
    )


def membership_rows(places: Sequence[PlaceAnswers], *, seed: int = 0) -> list[MembershipRow]:
    """A row for each fact of an answer by which photographs in the map may be told, from the default guard on."""
    scores: Mapping[str, Callable[[WeighedAnswer], float]] = {
        "inliers, as a share of the features": lambda answer: answer.inlier_share,
        "deviation of the center": lambda answer: -answer.deviation,
        "whether there is a pose": lambda answer: float(answer.pose is not None),
        "whether there is a pose, by default": lambda answer: float(answer.stands),
    }

    def of(name: str, kind: Literal["mapped", "held_out", "elsewhere"]) -> list[list[float]]:
        return [[scores[name](answer)] for place in places for answer in getattr(place, kind).values()]

    return [
        MembershipRow(
            told=name,
            same_place=separated(of(name, "mapped"), of(name, "held_out"), seed=seed),
            other_place=separated(of(name, "mapped"), of(name, "elsewhere"), seed=seed) if len(places) > 1 else None,
        )
        for name in scores
    ]
