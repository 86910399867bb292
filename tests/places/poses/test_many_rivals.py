"""Lines on maps of many images: each has a dozen rivals, of which one agrees with any pose by chance as often as not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2

from veil.forms import Lines
from veil.geometry.camera import UNDISCLOSED
from veil.geometry.rigid import center_covariance
from veil.places.poses import joint
from veil.places.poses.answer import Localization
from veil.places.poses.by_distance import localize_matches
from veil.places.poses.evidence import open_way, weigh
from veil.places.poses.joint import beyond_accident, settled
from veil.places.poses.matches import Estimate, MatchedLines
from veil.places.poses.options import LocalizeOptions
from veil.places.poses.search import features_of
from worlds import World, generator, project, world
from worlds.word_worlds import lines_of

SHOWN = 250  # features of the query
RIGHT, RIVALS = 0.35, 24  # share of them that match rightly, and wrong pairs of each


def wide_facade() -> World:
    """A facade whose relief is a tenth, of which the query's focal length is known to 5 %."""
    place = world("rivals", points=4000)
    points = place.points * [1, 1, 0.1] + [0, 0, 5.4]
    lens = replace(place.camera, focal=UNDISCLOSED)
    xy = project(place.poses["02"], points, lens)
    seen = np.flatnonzero(((xy > 0) & (xy < [640, 480])).all(axis=1))
    return replace(place, points=points, camera=lens, visible={"02": seen})


WORLD = wide_facade()
TRUTH = WORLD.poses["02"]


def query(run: int) -> tuple[World, np.ndarray, np.ndarray]:
    """The world as image 02 sees it in a run, and its pairs: the right ones first, then all rivals."""
    random = generator(f"many rivals {run}")
    rows = np.sort(random.choice(len(WORLD.visible["02"]), SHOWN, replace=False))
    xy = project(TRUTH, WORLD.points[WORLD.visible["02"][rows]], WORLD.camera) + 0.7 * random.normal(size=(SHOWN, 2))
    right = np.flatnonzero(random.random(SHOWN) < RIGHT)
    keypoint_rows = np.concatenate([right, np.tile(np.arange(SHOWN), RIVALS)])
    point_rows = np.concatenate([WORLD.visible["02"][rows][right], random.integers(len(WORLD.points), size=SHOWN * RIVALS)])
    place = replace(WORLD, keypoints={**WORLD.keypoints, "02": xy.astype(np.float32)}, visible={"02": rows})
    return place, keypoint_rows, point_rows


def hidden(place: World) -> Lines:
    """The query's lines, of which every second one follows gravity."""
    lines = lines_of(place, "02")
    assert lines.gravity is not None
    fx, fy, cx, cy = place.camera.params
    xy = (place.keypoints["02"].astype(np.float64) - [cx, cy]) / [fx, fy]
    along = np.cross(np.hstack([xy, np.ones((len(xy), 1))]), lines.gravity)
    along /= np.linalg.norm(along[:, :2], axis=1, keepdims=True)
    aligned = np.arange(len(xy)) % 2 == 0
    coefficients = np.where(aligned[:, None], along, lines.coefficients).astype(np.float32)
    return replace(lines, coefficients=coefficients, aligned=aligned)


def matched(run: int) -> MatchedLines:
    place, keypoint_rows, point_rows = query(run)
    options = LocalizeOptions()
    pairs = features_of(WORLD.camera, hidden(place), keypoint_rows, point_rows, WORLD.points, options)
    assert isinstance(pairs, MatchedLines)
    return pairs


def test_less_trusted_pairs_are_left_out_where_they_agree_by_chance() -> None:
    pairs = matched(0)
    kept = beyond_accident(pairs, Estimate(pose=TRUTH, camera=WORLD.camera))
    # Features without a right pair have a rival in the first place.
    _, first = np.unique(pairs.keypoint_rows, return_index=True)
    assert np.array_equal(kept, np.sort(first))


def test_less_trusted_pairs_stay_where_they_are_right() -> None:
    """A map that holds each point twice: the second pairs of features are right as well."""
    place, keypoint_rows, point_rows = query(0)
    right = len(keypoint_rows) - SHOWN * RIVALS
    twice = np.vstack([WORLD.points, WORLD.points])
    pairs = features_of(
        WORLD.camera,
        hidden(place),
        np.tile(keypoint_rows[:right], 2),
        np.concatenate([point_rows[:right], point_rows[:right] + len(WORLD.points)]),
        twice,
        LocalizeOptions(),
    )
    assert len(beyond_accident(pairs, Estimate(pose=TRUTH, camera=WORLD.camera))) == 2 * right


@pytest.mark.slow
def test_regions_hold_true_centers_though_rivals_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted truth in 120 runs; with all rivals in the fits (broken twin) the regions hold far fewer."""
    runs = 120

    def covered() -> int:
        count = 0
        for run in range(runs):
            found = settled(matched(run), Estimate(pose=TRUTH, camera=WORLD.camera))
            assert found.fit is not None
            off = TRUTH.center - found.pose.center
            region = center_covariance(found.pose, found.fit.pose_covariance)
            count += bool(off @ np.linalg.solve(region, off) <= chi2.ppf(0.95, 3))
        return count

    own = covered()
    monkeypatch.setattr(joint, "BY_CHANCE", 1e9)
    twin = covered()
    assert binom.cdf(own, runs, 0.95) > 0.01 > binom.cdf(twin, runs, 0.95)


def test_a_pose_among_many_rivals_is_found_and_no_way_is_open() -> None:
    """Second method: the lines beside those along gravity, counted feature by feature, as lines.md, Eq. 29 has it."""
    place, keypoint_rows, point_rows = query(0)
    answer = localize_matches(WORLD.camera, hidden(place), keypoint_rows, point_rows, WORLD.points)
    assert isinstance(answer, Localization), answer
    assert answer.center_deviation is not None and answer.center_deviation < 0.4
    assert np.linalg.norm(answer.center - TRUTH.center) < 2 * answer.center_deviation
    pairs, truth = matched(0), Estimate(pose=TRUTH, camera=WORLD.camera)
    rows = weigh(pairs, truth, None).rows
    assert open_way(pairs, truth, rows) < -10
    assert open_way(pairs, truth, rows[pairs.observations.aligned[pairs.keypoint_rows[rows]]]) > 0
