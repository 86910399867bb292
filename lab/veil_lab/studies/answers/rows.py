"""Rows of the study of answers: objects told under each defense, and what membership and times of answers give away.

Times are compared within a place: they grow with its map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from veil.attacks.answered_objects import object_place, presence_score
from veil.geometry.rigid import Rigid
from veil_lab.studies.answers.asking import WeighedAnswer
from veil_lab.studies.answers.separation import Separation, separated
from veil_lab.studies.answers.study import PlaceAnswers

# The share of honest queries that the strictest limit on shown points may lose.
MOST_LOST = 0.02
# Length in seconds of the steps at whose end a server that hides times would answer.
STEP_S = 2.0


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


@dataclass(frozen=True, kw_only=True)
class TimeRow:
    """Separation of present objects from absent ones by the mean time of the answers to their views: longer ones are present.

    `told` names the clock.
    """

    told: str
    separation: Separation

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {"told": self.told, **self.separation.as_json()}


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


Score = Callable[[WeighedAnswer], float]


def membership_rows(places: Sequence[PlaceAnswers], *, seed: int = 0) -> list[MembershipRow]:
    """A row for each fact of an answer by which photographs in the map may be told, from the default guard on."""
    facts: Mapping[str, Score] = {
        "inliers, as a share of the features": lambda answer: answer.inlier_share,
        "deviation of the center": lambda answer: -answer.deviation,
        "whether there is a pose": lambda answer: float(answer.pose is not None),
        "whether there is a pose, by default": lambda answer: float(answer.stands),
    }

    def row(name: str, scores: Sequence[Score]) -> MembershipRow:
        def of(kind: Literal["mapped", "held_out", "elsewhere"]) -> list[list[float]]:
            return [
                [score(answer)] for place, score in zip(places, scores, strict=True) for answer in getattr(place, kind).values()
            ]

        return MembershipRow(
            told=name,
            same_place=separated(of("mapped"), of("held_out"), seed=seed),
            other_place=separated(of("mapped"), of("elsewhere"), seed=seed) if len(places) > 1 else None,
        )

    honest = [[*place.mapped.values(), *place.held_out.values()] for place in places]
    times = {name: [_shortness(clock, answers) for answers in honest] for name, clock in CLOCKS.items()}
    return [row(name, scores) for name, scores in {**{n: [f] * len(places) for n, f in facts.items()}, **times}.items()]


def time_rows(places: Sequence[PlaceAnswers], *, seed: int = 0) -> list[TimeRow]:
    """A row for each clock by which objects in the map may be told where all answers are refusals."""
    rows = []
    for name, clock in CLOCKS.items():
        present, absent = dict[str, list[float]](), dict[str, list[float]]()
        for place in places:
            score = _shortness(clock, [answer for asked in place.objects for answer in asked.answers])
            for asked in place.objects:
                of_object = (absent if asked.planted is None else present).setdefault(asked.name, [])
                of_object.append(-float(np.mean([score(answer) for answer in asked.answers])))
        rows.append(TimeRow(told=name, separation=separated(list(present.values()), list(absent.values()), seed=seed)))
    return rows


CLOCKS: Mapping[str, Score] = {
    "seconds of the processor": lambda answer: answer.processor_seconds,
    "seconds of the clock": lambda answer: answer.clock_seconds,
    "seconds of the clock, rounded up": lambda answer: STEP_S * math.ceil(answer.clock_seconds / STEP_S),
}
"""Times of an answer: the server's own work, that with other load of its machine, and that of a server that waits on."""


def _shortness(clock: Score, answers: Sequence[WeighedAnswer]) -> Score:
    """How much shorter an answer took than the median of `answers`, as a share of that."""
    usual = float(np.median([clock(answer) for answer in answers])) if answers else 1.0
    return lambda answer: -clock(answer) / usual
