"""Verification: thresholds and error rates against brute force, and a study of planted people, raw and lifted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from face_worlds.crowd import SPACE, crowd, pairs_of
from veil.errors import InputError, RangeError, SpaceError
from veil.features import unit_length
from veil_faces.collection import Faces
from veil_faces.studies.face_study import FaceStudy
from veil_faces.studies.verification import (
    VerificationRow,
    balanced_rule,
    best_threshold,
    equal_error,
    error_rates,
    folds_of,
    identified,
    verification_study,
    verified,
)
from worlds import generator


def test_the_threshold_is_the_best_there_is() -> None:
    """Oracle: every threshold tried; ties of distances cannot be parted."""
    random = generator("thresholds")
    for trial in range(60):
        same = random.random(14) < 0.5
        distance = np.round(random.normal(size=14) + ~same, 1 if trial % 2 else 6)
        tried = [-99.0, *np.unique(distance), 99.0]
        best = max(((distance <= t) == same).mean() for t in tried)
        threshold = best_threshold(distance, same)
        assert ((distance <= threshold) == same).mean() == best
        assert threshold not in distance


def test_error_rates_count() -> None:
    """Oracle: counting at every distance; the equal error of separable pairs is 0, of shuffled ones near a half."""
    random = generator("rates")
    same = random.random(50) < 0.4
    distance = np.round(random.normal(size=50) + ~same, 1)
    accepts, rejects = error_rates(distance, same)
    tried = [-99.0, *np.unique(distance)]
    assert accepts == pytest.approx([(distance[~same] <= t).mean() for t in tried])
    assert rejects == pytest.approx([(distance[same] > t).mean() for t in tried])
    assert equal_error(np.arange(10.0), np.arange(10) < 4) == 0
    assert equal_error(np.arange(10.0), np.arange(10) >= 4) == pytest.approx(1)
    assert equal_error(random.random(4000), random.random(4000) < 0.5) == pytest.approx(0.5, abs=0.04)


def test_folds_are_the_lists_own_or_balanced() -> None:
    pairs = pairs_of(crowd("folds", 12, 3), 20)
    fold = folds_of(pairs, 5, seed=0)
    for k in range(5):
        assert (fold[pairs.same] == k).sum() == (fold[~pairs.same] == k).sum() == 4
    own = replace(pairs, fold=np.arange(40) % 4 * 10)
    np.testing.assert_array_equal(folds_of(own, 4, seed=0), np.arange(40) % 4)
    with pytest.raises(RangeError, match="two folds"):
        folds_of(pairs, 1, seed=0)
    with pytest.raises(InputError, match="too few for 30 folds"):
        folds_of(pairs, 30, seed=0)


def test_a_threshold_never_sees_the_fold_it_is_tried_on() -> None:
    """Broken twin: fitted on everything, labels drawn at random would be told better than chance."""
    random = generator("blind")
    hits, seen = [], []
    for _ in range(40):
        distance, same = random.random(40), random.random(40) < 0.5
        accuracy, thresholds, right = verified(distance, same, np.arange(40) % 10)
        assert len(accuracy) == len(thresholds) == 10 and right == round(accuracy.mean() * 40)
        hits.append(accuracy.mean())
        seen.append(((distance <= best_threshold(distance, same)) == same).mean())
    assert np.mean(hits) < 0.52 and np.mean(seen) > 0.58


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, int, str], VerificationRow]:
    faces, decoys = crowd("victims", 40, 4), crowd("decoys", 200, 1)
    study = FaceStudy(faces=faces, pairs=pairs_of(faces, 200), decoys=decoys, seed=0, dimensions=(2, 8, 63), centered=True)
    return {(row.lifting, row.m, row.distance): row for row in verification_study(study, balance="sex")}


@pytest.mark.slow
def test_templates_verify(rows: dict[tuple[str, int, str], VerificationRow]) -> None:
    """Planted: raw descriptors part people; so do templates against them. Two templates of m = 63 of 64 always meet: chance."""
    raw = rows["raw", 0, "point"]
    assert raw.accuracy > 0.99 and raw.equal_error < 0.01 and raw.identified == 1
    assert rows["raw, centered", 0, "point"].accuracy > 0.99
    for lifting in ("random", "hybrid", "adversarial", "hybrid+"):
        assert rows[lifting, 2, "p2s"].accuracy > 0.97
        assert rows[lifting, 63, "s2s"].accuracy < 0.62
        assert rows[lifting, 2, "p2s"].threshold < raw.threshold
        assert all(rows[lifting, m, "s2s"].identified is None for m in (2, 8))
    assert rows["random", 8, "s2s"].accuracy > 0.9
    assert len(rows) == 2 + 4 * 3 * 2
    for row in rows.values():
        assert row.low <= row.accuracy + 1e-9 and row.accuracy <= row.high + 1e-9
        assert set(row.as_json()) >= {"lifting", "m", "distance", "accuracy", "equal_error", "false_accepts", "identified"}


def away_from_zero(faces: Faces) -> Faces:
    """Faces that share most of their descriptor; some people are nearer to what all share than others are."""
    people, _ = faces.classes("identity")
    length = generator("lengths").uniform(0.15, 1.5, size=people.max() + 1)[people]
    common = 4 * unit_length(generator("common").normal(size=(1, 64)))
    return replace(faces, vectors=unit_length(common + length[:, None] * faces.vectors).astype(np.float32))


def test_centering_parts_people_near_the_mean_from_all_others() -> None:
    """Planted: seen from zero, those near the mean are near everybody; seen from the mean, all are as far from it."""
    faces, decoys = away_from_zero(crowd("victims", 40, 4, spread=0.7)), away_from_zero(crowd("decoys", 200, 1))
    study = FaceStudy(faces=faces, pairs=pairs_of(faces, 200), decoys=decoys, seed=0, dimensions=(4,), liftings=("hybrid",))
    errors = {}
    for centered in (False, True):
        rows = verification_study(replace(study, centered=centered))
        errors[centered] = {row.distance: row.equal_error for row in rows}
        assert len(rows) == 3 + centered
    assert errors[True]["s2s"] < errors[False]["s2s"] - 0.05


def test_balanced_decoys_are_of_the_others_class() -> None:
    """hybrid+ at m = 2 has one decoy, of the other sex, by label; without labels the nearest decoys vote, mostly rightly."""
    faces, pool = crowd("victims", 30, 1), crowd("decoys", 200, 1)
    own, classes = faces.classes("sex")
    rule = balanced_rule(faces, pool, "sex")
    np.testing.assert_array_equal(rule.own, own)
    voted = balanced_rule(replace(faces, labels={}), pool, "sex")
    assert (voted.own == own).mean() > 0.9
    strange = replace(faces, labels={"sex": ("c",) * 30})
    with pytest.raises(InputError, match="no sex 'c'; they have a, b"):
        balanced_rule(strange, pool, "sex")
    assert classes == ("a", "b")


@pytest.mark.slow
def test_lifting_hides_nobody_from_a_gallery(rows: dict[tuple[str, int, str], VerificationRow]) -> None:
    """A template is nearest to the raw descriptor of its own person, as the documentation states. Null: shuffled people."""
    assert rows["adversarial", 8, "p2s"].identified > 0.9  # type: ignore[operator]
    faces = crowd("victims", 40, 4)
    order = generator("shuffled").permutation(len(faces))
    shuffled = replace(faces, labels={"identity": tuple(faces.label("identity")[k] for k in order)})
    share = identified(shuffled, (faces.vectors, None))
    assert share is not None and share < 0.12
    assert identified(crowd("loners", 5, 1), (crowd("loners", 5, 1).vectors, None)) is None


def test_bad_studies_are_refused() -> None:
    faces = crowd("victims", 10, 2)
    pairs = pairs_of(faces, 10)
    with pytest.raises(InputError, match="a decoy is one of the faces"):
        FaceStudy(faces=faces, pairs=pairs, decoys=faces.take(np.arange(12)), seed=0)
    other = replace(crowd("decoys", 20, 1), space=replace(SPACE, descriptor="another"))
    with pytest.raises(SpaceError, match="one network"):
        FaceStudy(faces=faces, pairs=pairs, decoys=other, seed=0)
