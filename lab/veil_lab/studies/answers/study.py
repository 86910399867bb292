"""Study of attacks through answers: objects that stand in a map are told from others, before and after each defense.

Every place is mapped at known poses with flat objects planted in its photographs, some at a time. The attacker asks with views
of each object alone, and with views of objects that stand nowhere. The same defenses meet honest queries: photographs of the
place that its map does not hold. Photographs that it does hold, and those of other places, show what membership gives away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.extraction.flat_objects import Gray
from veil.features import Features
from veil.geometry.rigid import Rigid
from veil.places.held_map import Map
from veil.places.localization import extent_of_points
from veil.progress import StepCount, StepProgress, ignore_steps
from veil_lab.studies.answers.asking import AnswerStudyOptions, Asker, PosedPlace, WeighedAnswer
from veil_lab.studies.answers.planting import PlantedObject, planted
from veil_lab.studies.attacks.form_releases import FormPools
from veil_lab.studies.board.split import ranked
from veil_lab.studies.localization.false_acceptance import LEVEL_DOWN

FOLDS = 3


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


class AnswerStudy:
    """The study of some places: `objects` are textures by name, of which the first half of each place's share is planted."""

    def __init__(self, places: Sequence[PosedPlace], pools: FormPools, options: AnswerStudyOptions) -> None:
        self.places, self.options, self.asker = places, options, Asker(pools, options)

    def run(self, objects: Mapping[str, Gray], *, progress: StepProgress = ignore_steps) -> list[PlaceAnswers]:
        """All answers, of one place after the other. Raises InputError where a place has no map, or objects find no room."""
        count, found = StepCount(progress, len(self.places)), []
        features = {place.name: self.asker.extracted(place.pictures) for place in self.places}
        for place, (here, nowhere) in zip(self.places, shares(objects, len(self.places)), strict=True):
            count.begin(place.name)
            others = {
                f"{other.name}/{name}": item
                for other in self.places
                if other is not place
                for name, item in features[other.name].items()
            }
            held_out, mapped = self._honest(place, features[place.name])
            strangers = self._asked_by_strangers(place, features[place.name], others, most=len(held_out))
            asked = list(self._objects(place, features[place.name], here, nowhere))
            found.append(PlaceAnswers(objects=asked, held_out=held_out, mapped=mapped, elsewhere=strangers))
        return found

    def _honest(
        self, place: PosedPlace, features: Mapping[str, Features]
    ) -> tuple[dict[str, WeighedAnswer], dict[str, WeighedAnswer]]:
        """Answers to each photograph of a map without it, and of one that holds it; names decide the folds.

        Both kinds are asked in turn, so that neither has another time of the machine.
        """
        order, held_out, mapped = ranked(features), dict[str, WeighedAnswer](), dict[str, WeighedAnswer]()
        for fold in range(FOLDS):
            out, inside = order[fold::FOLDS], order[(fold + 1) % FOLDS :: FOLDS]
            where = self.asker.asked_map(place, {name: item for name, item in features.items() if name not in out})
            for name in order:
                if name in out or name in inside:
                    down = place.cam_from_world[name].rotation @ place.down
                    answer = self.asker.answer(where, features[name], down, f"{place.name}/{name}")
                    (held_out if name in out else mapped)[name] = answer
        return held_out, mapped

    def _asked_by_strangers(
        self, place: PosedPlace, features: Mapping[str, Features], others: Mapping[str, Features], *, most: int
    ) -> dict[str, WeighedAnswer]:
        """Answers of the map of all photographs to at most `most` photographs of other places, from level cameras."""
        where = self.asker.asked_map(place, features)
        return {name: self.asker.answer(where, others[name], LEVEL_DOWN, name) for name in ranked(others, most)}

    def _objects(
        self, place: PosedPlace, features: Mapping[str, Features], present: Mapping[str, Gray], absent: Mapping[str, Gray]
    ) -> Iterator[AskedObject]:
        """Answers to all objects: to present ones on maps with them, and to as many absent ones on the same maps.

        The attacker knows how a present object is tilted against gravity. An absent one is asked as if it stood there.
        """
        base = self.asker.scene(place, features, raw=True)
        random = np.random.default_rng([self.options.seed, *place.name.encode()])
        views = {name: self.asker.views(gray) for name, gray in {**present, **absent}.items()}
        waiting, nowhere = (
            [name for _ in range(self.options.placements) for name in present],
            list(absent) * self.options.placements,
        )
        while waiting:
            chosen = list(dict.fromkeys(waiting))[: self.options.at_once]
            shown, standing = planted(place.pictures, base, {name: present[name] for name in chosen}, random)
            if not standing:
                raise InputError(f"no object finds room in {place.name}: too few photographs show the same")
            where = self.asker.asked_map(place, self.asker.extracted(shown))
            for item in standing:
                waiting.remove(item.name)
                down = item.world_from_object.rotation.T @ place.down
                yield self._asked(where, item.name, item, views[item.name], down)
                if nowhere:
                    yield self._asked(where, nowhere[0], None, views[nowhere.pop(0)], down)

    def _asked(
        self,
        where: Map,
        name: str,
        item: PlantedObject | None,
        views: Sequence[tuple[Features, Rigid]],
        down: Float64[np.ndarray, "3"],
    ) -> AskedObject:
        """Answers to the views of one object, in whose coordinates gravity points to `down`."""
        return AskedObject(
            name=name,
            planted=item,
            cam_from_object=[pose for _, pose in views],
            answers=[
                self.asker.answer(where, features, pose.rotation @ down, f"{name} {row}")
                for row, (features, pose) in enumerate(views)
            ],
            extent=extent_of_points(where.scene),
        )


def shares(objects: Mapping[str, Gray], places: int) -> list[tuple[dict[str, Gray], dict[str, Gray]]]:
    """Objects of each of some places: those that are planted there, and as many that are not, by name."""
    found = []
    for number in range(places):
        names = list(objects)[number::places]
        here, nowhere = names[: len(names) // 2], names[len(names) // 2 :]
        found.append(({name: objects[name] for name in here}, {name: objects[name] for name in nowhere}))
    return found
