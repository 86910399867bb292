"""Positions from beliefs about distances: likelihood by quadrature, planted neighbors, what each rule of lines leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.positions.neighbor_field import (
    CLASSES,
    DISTANCES_PX,
    DistanceBeliefs,
    _Rays,
    field_positions,
    told_segments,
)
from veil.attacks.positions.segments import pixels
from veil.errors import InputError
from veil.features import Features
from veil.forms import Lines
from veil.geometry.camera import Camera
from veil_lab.studies.attacks.neighborhoods import lines_by_rule, true_beliefs
from worlds import features, generator

CAMERA = Camera(model="PINHOLE", width_px=640, height_px=480, params=(500.0, 500.0, 320.0, 240.0))
DOWN = np.array([0.0, 1.0, 0.0])


def photograph(name: str, count: int = 400) -> Features:
    """Features at even places of a picture."""
    random = generator(name)
    xy = random.uniform([0, 0], [640, 480], (count, 2)).astype(np.float32)
    return replace(features(random, count), keypoints=xy, camera=CAMERA)


def lines_of(item: Features, rule: str) -> Lines:
    return lines_by_rule(item, rule, gravity=DOWN, name="test", seed=0)


def errors(item: Features, rule: str, beliefs: DistanceBeliefs) -> np.ndarray:
    estimates = field_positions(lines_of(item, rule), beliefs, camera=item.camera)
    return np.linalg.norm(estimates.points - item.keypoints, axis=1)


def blind(item: Features, rule: str) -> np.ndarray:
    """Errors of the middle of the segment that each line tells."""
    where = told_segments(lines_of(item, rule), item.camera)
    return np.linalg.norm(pixels(where.at(where.between(np.full(len(item), 0.5))), item.camera) - item.keypoints, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["uniform", "aligned", "convergent", "parallel"])
def test_the_likelihood_is_the_integral_along_the_line(rule: str) -> None:
    """Second method: Eq. 14 by quadrature along the other line, with the distance to its anchor as weight where it has one."""
    item = photograph("integral", 30)
    lines = lines_of(item, rule)
    where = told_segments(lines, CAMERA)
    rays = _Rays.of(where, lines, CAMERA)
    others, tried = np.arange(1, 30), np.linspace(where.low[0], where.high[0], 5)
    gains = rays._gains(0, others, tried)
    t = np.linspace(0, 1, 20_001)
    for k, scale in enumerate(rays.scales):
        for column, j in enumerate(others):
            along = where.low[j] + t * (where.high[j] - where.low[j])
            weight = np.ones_like(t) if np.isnan(rays.anchor_at[j]) else np.abs(along - rays.anchor_at[j])
            places = where.foot[j] + along[:, None] * where.direction[j]
            for row, s in enumerate(tried):
                gap = places - (where.foot[0] + s * where.direction[0])
                near = np.exp(-(gap**2).sum(axis=1) / (2 * scale**2)) / (2 * np.pi * scale**2)
                expected = np.trapezoid(near * weight, t) / (np.trapezoid(weight, t) / rays.area)
                assert gains[row, k, column] == pytest.approx(expected, rel=1e-2, abs=1e-3)


def test_neighbors_at_one_place_give_it_away() -> None:
    """Planted truth: 100 groups of four keypoints within a pixel. With random neighbors, the null, nothing is learned."""
    item = photograph("groups", 100)
    spread = generator("spread").uniform(-0.5, 0.5, (4, 100, 2))
    grouped = photograph("grouped", 400)
    grouped = replace(grouped, keypoints=(item.keypoints + spread).reshape(-1, 2).astype(np.float32))
    rows = (np.arange(400)[:, None] + [100, 200, 300]) % 400
    certain = np.zeros((400, 3, CLASSES))
    certain[..., 0] = 1
    beliefs = DistanceBeliefs(rows=rows, probabilities=certain)
    assert np.median(errors(grouped, "uniform", beliefs)) < 1
    other = generator("null").permutation(400)
    null = replace(beliefs, rows=other[rows])
    assert np.median(errors(grouped, "uniform", null)) > 0.8 * np.median(blind(grouped, "uniform"))


@pytest.mark.slow
def test_what_true_neighbors_tell_by_rule() -> None:
    """Lines in ascending order of protection. Broken twins: random angles, and anchors that are drawn for each keypoint.

    Convergent lines hide less than blind guesses would say: the angles between neighbors' lines tell the distance to the
    anchor. Lines along gravity alone, all of one direction, tell nothing.
    """
    item = photograph("rules", 800)
    beliefs = true_beliefs(item.keypoints, 10)
    share = {
        rule: float(np.median(errors(item, rule, beliefs)) / np.median(blind(item, rule)))
        for rule in ("uniform", "convergent-drawn", "convergent", "parallel", "aligned")
    }
    assert share["uniform"] < 0.15 and share["convergent-drawn"] < 0.3
    assert share["convergent-drawn"] < 0.8 * share["convergent"] and 0.3 < share["convergent"] < 0.9
    assert share["convergent"] < share["parallel"] < 1.3 and 0.8 < share["aligned"] < 1.3


def test_segments_end_at_the_border_of_a_told_half() -> None:
    """Defining property: the keypoint lies on the segment, and the segment in the keypoint's half."""
    item = photograph("halves")
    for rule in ("convergent", "parallel"):
        where = told_segments(lines_of(item, rule), CAMERA)
        ends = np.stack([where.at(where.low), where.at(where.high)], axis=1)
        side = np.sign(item.keypoints[:, :1] - 320)
        assert (ends[..., 0] * side > -1e-6).all()
        along = ((item.keypoints - [320, 240]) / 500 - where.foot) * where.direction
        assert (along.sum(axis=1) > where.low - 1e-5).all() and (along.sum(axis=1) < where.high + 1e-5).all()


def test_beliefs_that_cannot_be() -> None:
    item = photograph("bad", 20)
    good = true_beliefs(item.keypoints, 3)
    with pytest.raises(InputError, match="as many beliefs"):
        field_positions(lines_of(item, "uniform").take(np.arange(10)), good, camera=CAMERA)
    with pytest.raises(InputError, match="add up to 1"):
        DistanceBeliefs(rows=good.rows, probabilities=good.probabilities * 2)
    with pytest.raises(InputError, match="rows 0"):
        DistanceBeliefs(rows=good.rows + 20, probabilities=good.probabilities)
    with pytest.raises(InputError, match=f"{CLASSES} probabilities"):
        DistanceBeliefs(rows=good.rows, probabilities=good.probabilities[..., : len(DISTANCES_PX)])
