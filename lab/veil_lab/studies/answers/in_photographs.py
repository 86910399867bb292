"""Study of an attacker with photographs of the place: he paints his object into one where he supposes it, and asks with that.

Most inliers are of the place, so that the default guard lets the pose through. What it tells beside the pose is compared with
that of the same photograph with a gray patch there. He guesses pose and size of the object rightly: an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from veil.errors import InputError
from veil.extraction.flat_objects import EMPTY, Gray, painted
from veil.extraction.picture import Picture
from veil.places.held_map import Map
from veil.progress import StepCount, StepProgress, ignore_steps
from veil_lab.studies.answers.asking import AnswerStudyOptions, Asker, PosedPlace, WeighedAnswer
from veil_lab.studies.answers.planting import LEAST_SEEN, PlantedObject, cam_from_object, planted, seen_whole
from veil_lab.studies.answers.separation import Separation, separated
from veil_lab.studies.answers.study import shares
from veil_lab.studies.attacks.form_releases import FormPools
from veil_lab.studies.board.split import ranked

# One photograph of EVERY is the attacker's, and in no map. Objects that none of his photographs shows are placed anew, in at
# most MOST_MAPS maps of a place for each placement.
EVERY, MOST_MAPS = 3, 6


@dataclass(frozen=True, kw_only=True, eq=False)
class PaintedQuery:
    """Answers to a photograph with an object painted in, and with a gray patch in its place; the map may hold the object."""

    name: str
    present: bool
    answer: WeighedAnswer
    patched: WeighedAnswer


@dataclass(frozen=True, kw_only=True)
class PaintedRow:
    """Separation of present objects from absent ones by one fact of the answers that the default guard lets through.

    `present`, `absent` are numbers of objects, `queries` that of photographs with one, `told` the share of them with a pose.
    """

    fact: str
    present: int
    absent: int
    queries: int
    told: float
    separation: Separation

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        counts = {"present": self.present, "absent": self.absent, "queries": self.queries, "told": self.told}
        return {"fact": self.fact, **counts, **self.separation.as_json()}


class PaintedStudy:
    """The study of some places, in which the first half of each place's share of the objects is planted."""

    def __init__(self, places: Sequence[PosedPlace], pools: FormPools, options: AnswerStudyOptions) -> None:
        self.places, self.options, self.asker = places, options, Asker(pools, options)

    def run(self, objects: Mapping[str, Gray], *, progress: StepProgress = ignore_steps) -> list[PaintedQuery]:
        """All answers. Raises InputError where a place has no map, or its photographs show no object."""
        count, found = StepCount(progress, len(self.places)), list[PaintedQuery]()
        for place, (here, nowhere) in zip(self.places, shares(objects, len(self.places)), strict=True):
            count.begin(place.name)
            asked = list(self._asked(place, here, nowhere))
            if not asked:
                raise InputError(f"no photograph of {place.name} that its map does not hold shows an object; give more of them")
            found += asked
        return found

    def _asked(self, place: PosedPlace, present: Mapping[str, Gray], absent: Mapping[str, Gray]) -> Iterator[PaintedQuery]:
        """Answers to each present object where it stands, and on the same map to an absent one painted at the same spot."""
        base = self.asker.scene(place, self.asker.extracted(place.pictures), raw=True)
        random = np.random.default_rng([self.options.seed, *place.name.encode()])
        order, waiting = ranked(base.images), [name for _ in range(self.options.placements) for name in present]
        nowhere = list(absent) * self.options.placements
        for fold in range(MOST_MAPS * self.options.placements):
            chosen = list(dict.fromkeys(waiting))[: self.options.at_once]
            if not chosen or not nowhere:
                return
            held_out = order[fold % EVERY :: EVERY]
            shown, standing = planted(place.pictures, base, {name: present[name] for name in chosen}, random)
            where = self.asker.asked_map(
                place, self.asker.extracted({name: picture for name, picture in shown.items() if name not in held_out})
            )
            for item in standing:
                seeing = seen_whole(item, base)
                own = [name for name in seeing if name in held_out]
                if not own or len(seeing) - len(own) < LEAST_SEEN or not nowhere:
                    continue
                waiting.remove(item.name)
                asked = partial(self._answer, place, where, own[0], item)
                patched, other = asked(np.full_like(item.gray, EMPTY)), nowhere.pop(0)
                yield PaintedQuery(name=item.name, present=True, answer=asked(item.gray), patched=patched)
                yield PaintedQuery(name=other, present=False, answer=asked(absent[other]), patched=patched)

    def _answer(self, place: PosedPlace, where: Map, photograph: str, item: PlantedObject, gray: Gray) -> WeighedAnswer:
        """The answer to a photograph into which `gray` is painted where an object stands."""
        picture, pose = place.pictures[photograph], place.cam_from_world[photograph]
        drawn, _ = painted(picture.gray, picture.camera, gray, cam_from_object(item, pose))
        features = self.asker.features(Picture.of(np.repeat(drawn[:, :, None], 3, axis=2), camera=picture.camera))
        return self.asker.answer(where, features, pose.rotation @ place.down, f"{place.name}/{photograph}")


def painted_rows(queries: Sequence[PaintedQuery], *, seed: int = 0) -> list[PaintedRow]:
    """A row for each fact that an answer tells beside the pose, compared with the answer to the patched photograph.

    Where the guard withholds a pose, there are no inliers, and the deviation is infinite.
    """
    facts: Mapping[str, Callable[[PaintedQuery], float]] = {
        "inliers, more than without": lambda query: _inliers(query.answer) - _inliers(query.patched),
        "deviation of the center, less than without": lambda query: _precision(query.answer) - _precision(query.patched),
        "whether there is a pose": lambda query: float(query.answer.stands),
    }
    return [_row(name, fact, queries, seed) for name, fact in facts.items()]


def _row(name: str, fact: Callable[[PaintedQuery], float], queries: Sequence[PaintedQuery], seed: int) -> PaintedRow:
    present, absent = dict[str, list[float]](), dict[str, list[float]]()
    for query in queries:
        (present if query.present else absent).setdefault(query.name, []).append(fact(query))
    return PaintedRow(
        fact=name,
        present=len(present),
        absent=len(absent),
        queries=len(queries),
        told=sum(query.answer.stands for query in queries) / len(queries),
        separation=separated(list(present.values()), list(absent.values()), seed=seed),
    )


def _inliers(answer: WeighedAnswer) -> float:
    return float(answer.inliers if answer.stands else 0)


def _precision(answer: WeighedAnswer) -> float:
    """Negative logarithm of the center's deviation; a large negative number where the pose is withheld."""
    return -math.log(answer.deviation) if answer.stands and 0 < answer.deviation < math.inf else -1e3
