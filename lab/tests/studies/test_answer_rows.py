"""Answers of known times, inliers and deviations: rows of the studies of answers, on answers that are planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity
from veil_lab.studies.answers.asking import WeighedAnswer
from veil_lab.studies.answers.in_photographs import PaintedQuery, painted_rows
from veil_lab.studies.answers.planting import PlantedObject
from veil_lab.studies.answers.rows import defense_rows, membership_rows, time_rows
from veil_lab.studies.answers.study import AskedObject, PlaceAnswers

POSE = Rigid(rotation=np.eye(3), translation=np.zeros(3))


def took(seconds: float) -> WeighedAnswer:
    """A refusal that took so long on the processor, and always as long by the clock."""
    return WeighedAnswer(pose=None, processor_seconds=seconds, clock_seconds=1.0)


def asked(name: str, seconds: float, *, present: bool) -> AskedObject:
    """An object whose two views were refused, each after the seconds given."""
    place = Similarity(scale=1.0, rotation=np.eye(3), translation=np.zeros(3))
    item = PlantedObject(name=name, gray=np.zeros((2, 2), np.uint8), world_from_object=place, share=0.2)
    answers = [took(seconds), took(seconds)]
    return AskedObject(name=name, planted=item if present else None, cam_from_object=[POSE, POSE], answers=answers, extent=1.0)


def place_of(pace: float) -> PlaceAnswers:
    """A place whose answers take `pace` times as long; mapped photographs and absent objects are the quicker ones."""
    objects = [asked(f"{pace} present {row}", pace * (1.2 + row / 100), present=True) for row in range(4)]
    objects += [asked(f"{pace} absent {row}", pace * (1 + row / 100), present=False) for row in range(4)]
    mapped = {str(row): took(pace * (1 + row / 100)) for row in range(4)}
    held_out = {str(row): took(pace * (1.2 + row / 100)) for row in range(4)}
    return PlaceAnswers(objects=objects, mapped=mapped, held_out=held_out, elsewhere=held_out)


def test_time_tells_objects_whose_answers_are_all_refusals() -> None:
    """Oracle: construction. Poses tell nothing, and each place's own times tell all. Broken twin: times as they are, of a slow
    and a fast place together, would give 0.75.
    """
    places = [place_of(1.0), place_of(10.0)]
    assert all(row.separation.auc == 0.5 for row in defense_rows(places))
    processor, *clocks = time_rows(places)
    assert processor.separation.auc == 1.0 and all(row.separation.auc == 0.5 for row in clocks)
    raw = [
        [asked.answers[0].processor_seconds for place in places for asked in place.objects if bool(asked.planted) == kind]
        for kind in (True, False)
    ]
    assert np.mean(np.subtract.outer(raw[0], raw[1]) > 0) == 0.75


def test_time_tells_photographs_in_the_map() -> None:
    """Oracle: construction, shorter times of mapped photographs in each place."""
    rows = {row.told: row for row in membership_rows([place_of(1.0), place_of(10.0)])}
    assert rows["seconds of the processor"].same_place.auc == 1.0
    assert rows["seconds of the clock"].same_place.auc == rows["whether there is a pose"].same_place.auc == 0.5


def test_rounding_hides_times_within_a_step() -> None:
    """Oracle: construction, times of the clock of 0.1 to 2 s in a step of two, and of 0.1 and 2.1 s."""

    def rounded_rows(mapped: float, held_out: float) -> list[float]:
        slow, quick = (WeighedAnswer(pose=None, processor_seconds=1.0, clock_seconds=time) for time in (held_out, mapped))
        place = PlaceAnswers(objects=[], mapped={"a": quick}, held_out={"b": slow}, elsewhere={})
        return [row.same_place.auc for row in membership_rows([place])][-2:]

    assert rounded_rows(0.1, 2.0) == [1.0, 0.5] and rounded_rows(0.1, 2.1) == [1.0, 1.0]


def painted_answers(more: int) -> list[PaintedQuery]:
    """Photographs of 50 to 53 inliers with a patch; a present object adds `more` of them and halves the deviation."""
    queries = []
    for row in range(4):
        patched = WeighedAnswer(pose=POSE, stands=True, inliers=50 + row, deviation=0.1 * (1 + row))
        better = replace(patched, inliers=patched.inliers + more, deviation=patched.deviation / 2)
        queries.append(PaintedQuery(name=f"present {row}", present=True, answer=better, patched=patched))
        queries.append(PaintedQuery(name=f"absent {row}", present=False, answer=patched, patched=patched))
    return queries


def test_inliers_beyond_a_patch_tell_a_painted_object() -> None:
    """Oracle: construction. Broken twin: inliers as they are, without the patched photograph, separate by 13/16 at most."""
    queries = painted_answers(2)
    inliers, deviation, pose = painted_rows(queries)
    assert inliers.separation.auc == deviation.separation.auc == 1.0 and pose.separation.auc == 0.5
    assert (inliers.present, inliers.absent, inliers.queries, inliers.told) == (4, 4, 8, 1.0)
    alone = np.subtract.outer(*([q.answer.inliers for q in queries if q.present == kind] for kind in (True, False)))
    assert np.mean((alone > 0) + (alone == 0) / 2) < 0.9


def test_withheld_answers_tell_nothing_beside_that() -> None:
    """Oracle: the guard's words, all refusals are alike: whatever the poses behind them were, no fact separates."""
    hidden = [
        replace(query, answer=replace(query.answer, stands=False), patched=replace(query.patched, stands=False))
        for query in painted_answers(100)
    ]
    rows = painted_rows(hidden)
    assert [row.separation.auc for row in rows] == pytest.approx([0.5, 0.5, 0.5]) and rows[0].told == 0.0
