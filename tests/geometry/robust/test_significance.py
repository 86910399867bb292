"""The NFA's background model of a query's own features, against plain loops and simulations of what it bounds."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from veil.geometry.rigid import Rigid
from veil.geometry.robust import significance
from veil.geometry.robust.resection_lines import LineResection, weighed
from veil.geometry.robust.significance import (
    P3P,
    P6L,
    LineBackground,
    PointBackground,
    apart,
    apart_lines,
    line_agreement,
    point_agreement,
    pose_log10_nfa,
)
from worlds import camera, generator


def crowded(name: str, count: int, side: float) -> np.ndarray:
    """Random keypoints, of which half lie in a square of `side` px, and half all over a picture of 640 x 480."""
    random = generator(name)
    xy = random.uniform([0, 0], [640, 480], (count, 2))
    xy[: count // 2] = random.uniform([300, 200], [300 + side, 200 + side], (count // 2, 2))
    return xy


def lines_through(name: str, xy: np.ndarray) -> np.ndarray:
    """A random line through each place, with a unit normal."""
    theta = generator(name).uniform(0, np.pi, len(xy))
    normals = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    return np.hstack([normals, -(normals * xy).sum(axis=1, keepdims=True)])


def slow_shares(agrees, features: np.ndarray, projected: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Share of all features, the pair's own left out, that agree with each projection, counted one by one."""
    shares = []
    for place, mine in zip(projected, own, strict=True):
        others = [feature for row, feature in enumerate(features) if row != mine]
        seen = not np.isnan(place).any()
        shares.append(sum(bool(seen and agrees(feature, place)) for feature in others) / len(others))
    return np.array(shares)


@pytest.mark.parametrize("part", [1.0, 0.25])
def test_shares_are_those_of_plain_loops(part: float) -> None:
    xy = crowded("loops", 120, 60)
    random = generator("projections")
    own = random.integers(0, len(xy), 90)
    projected = xy[random.permutation(len(xy))[:90]] + random.normal(0, 4, (90, 2))
    projected[::3] = xy[own[::3]] + 1.0  # its own feature agrees, and does not count
    projected[5] = np.nan
    expected = slow_shares(lambda a, b: math.dist(a, b) <= 8 * part, xy, projected, own)
    np.testing.assert_allclose(PointBackground(xy=xy, limit=8.0).shares(projected, own, part), expected)
    lines = lines_through("loops", xy)
    expected = slow_shares(lambda a, b: abs(a[0] * b[0] + a[1] * b[1] + a[2]) <= 4 * part, lines, projected, own)
    np.testing.assert_allclose(LineBackground(lines=lines, limit=4.0).shares(projected, own, part), expected)
    assert expected.max() > 0 and expected[5] == 0


def test_repeats_of_a_place_are_one_place() -> None:
    """Planted repeats: each place sent up to three times, a third of a pixel apart, weighs as the places by themselves do."""
    xy = crowded("places", 90, 60)
    xy = xy[apart(xy, 2.0)]
    copies = np.repeat(np.arange(len(xy)), generator("copies").integers(1, 4, len(xy)))
    sent = xy[copies] + generator("jitter").uniform(-0.15, 0.15, (len(copies), 2))
    first = np.unique(copies, return_index=True)[1]
    projected = xy + generator("near").normal(0, 3, xy.shape)
    expected = PointBackground(xy=sent[first], limit=8.0).shares(projected, np.arange(len(xy)))
    shares = PointBackground(xy=sent, limit=8.0, same=1.0).shares(projected[copies], np.arange(len(copies)))
    np.testing.assert_allclose(shares, expected[copies])
    assert (PointBackground(xy=sent, limit=8.0).shares(projected[copies], np.arange(len(copies))) > shares).any()


def test_many_lines_are_stood_for_by_some() -> None:
    """Second method, all lines: shares of 2,000 are right to five standard errors of 400, and right on average to 5 %."""
    xy = crowded("many", 2000, 100)
    lines, own = lines_through("many", xy), np.arange(300)
    projected = xy[-300:]
    shares = LineBackground(lines=lines, limit=4.0).shares(projected, own)
    distance = np.abs(projected @ lines[:, :2].T + lines[:, 2]) <= 4.0
    expected = (distance.sum(axis=1) - distance[own, own]) / (len(lines) - 1)
    assert np.abs(shares - expected).max() < 5 * math.sqrt(expected.max() * (1 - expected.max()) / 333)
    assert shares.mean() == pytest.approx(expected.mean(), rel=0.05)


@pytest.mark.parametrize("kind", ["points", "lines"])
def test_wrong_matches_agree_as_often_as_the_background_says(kind: str) -> None:
    """Simulation: a pose that sends all points into the crowd, matches at random. The mean is met from both sides, to 3 %;
    keypoints spread over the picture, which the code supposed before, give less than a tenth (points) or half (lines)."""
    xy = crowded("crowd", 200, 60)
    random = generator("shrunken")
    projected = random.uniform([300, 200], [360, 260], (200, 2))
    own = np.arange(200)
    if kind == "points":
        agrees = np.linalg.norm(xy[:, None] - projected[None], axis=2) <= 8
        shares, plain = PointBackground(xy=xy, limit=8.0).shares(projected, own), point_agreement(camera(), 8.0)
    else:
        lines = lines_through("crowd", xy)
        agrees = np.abs(lines[:, :2] @ projected.T + lines[:, 2:]) <= 4
        shares, plain = LineBackground(lines=lines, limit=4.0).shares(projected, own), line_agreement(camera(), 4.0)
    met = [agrees[random.permutation(200), own].mean() for _ in range(2000)]
    assert float(np.mean(met)) == pytest.approx(float(shares.mean()), rel=0.03)
    assert plain < (0.1 if kind == "points" else 0.5) * shares.mean()


@pytest.mark.slow
@pytest.mark.parametrize("side", [20.0, 60.0, 250.0])
def test_the_claim_bounds_what_random_matches_reach_and_not_absurdly(side: float) -> None:
    """Simulation of 100,000 queries of 60 crowded keypoints matched at random, under one pose: the share with k inliers or
    more is at most the claimed C(n, k) p^k, and, where p is not large (the claim leaves (1 - p)^(n - k) out), at least a
    hundredth of it. Keypoints taken to be spread over the picture claim too little in a crowd."""
    xy = crowded("claim", 60, side)
    random = generator(f"claim {side}")
    projected = random.uniform([300, 200], [300 + side, 200 + side], (60, 2))
    agrees = np.linalg.norm(xy[:, None] - projected[None], axis=2) <= 8
    shares = PointBackground(xy=xy, limit=8.0).shares(projected, np.arange(60))
    # What pose_log10_nfa claims but for the number of poses: 10^log / (poses (n - s) C(n, s)) with s = 0.
    p = float(agrees.mean())
    assert float(shares.mean()) == pytest.approx(p, rel=0.25)  # its own feature is left out, in this one draw
    trials = 100_000
    order = random.permuted(np.tile(np.arange(60), (trials, 1)), axis=1)
    reached = agrees[order, np.arange(60)].sum(axis=1)
    measured = 0
    for k in range(1, 61):
        share, claim = float((reached >= k).mean()), math.comb(60, k) * p**k
        if share * trials < 100:
            break
        if claim < 1:
            assert share <= 1.3 * claim
            assert claim <= 100 * share or p > 0.1
            measured += 1
    assert measured >= 1 or p > 0.1
    few = max(k for k in range(1, 61) if (reached >= k).mean() * trials >= 100)
    twin = math.comb(60, few) * point_agreement(camera(), 8.0) ** few
    assert twin < 0.1 * (reached >= few).mean() or side > 100


def test_what_stands_at_one_place_counts_once() -> None:
    """Against a plain greedy loop over random places, some of them repeated, and lines through them."""
    random = generator("apart")
    places = random.uniform(0, 12, (150, 2))
    places[::5] = places[1::5]
    kept: list[int] = []
    for row, place in enumerate(places):
        if all(math.dist(place, places[other]) > 1 for other in kept):
            kept.append(row)
    assert np.flatnonzero(apart(places, 1.0)).tolist() == kept
    assert apart(places[:1], 1.0).tolist() == [True] and len(apart(places[:0], 1.0)) == 0


def test_a_line_counts_once_whichever_way_it_is_written() -> None:
    lines = lines_through("written", generator("written").uniform(0, 600, (40, 2)))
    upright = np.array([[1.0, 0.0, -50.0], [math.cos(3.1415), math.sin(3.1415), 50.0]])
    twice = np.vstack([lines, -lines, lines + np.array([0, 0, 0.2]), upright])
    kept = apart_lines(twice, 400.0, 1.0)
    assert kept[:40].sum() >= 39 and not kept[40:120].any()
    assert kept[120:].sum() == 1


def test_crowds_are_worth_less() -> None:
    assert pose_log10_nfa(40, 200, 0.1, P3P) > 0 > pose_log10_nfa(40, 200, point_agreement(camera(), 8.0), P3P)
    assert pose_log10_nfa(40, 200, 0.3, P6L) > pose_log10_nfa(40, 200, 0.03, P6L)


def test_lines_of_a_map_are_weighed_by_their_own_crowd() -> None:
    """Plain loops over a planted pose: different lines that agree, and the share of the others that pass a projected point."""
    xy = crowded("weighed", 80, 80)
    points = np.hstack([(xy - [320, 240]) / 500, np.ones((80, 1))]) * generator("depth").uniform(3, 6, (80, 1))
    lines = lines_through("weighed", xy) * [1, 1, 1 / 500]
    lines[:, 2] += (lines[:, :2] * [320, 240]).sum(axis=1) / 500
    lines[40] = lines[41]
    problem = LineResection(
        lines=lines, points=points, aligned=np.zeros(80, dtype=bool), focal_px=500.0, half_extent=np.array([0.7, 0.6])
    )
    pose = Rigid(rotation=np.eye(3), translation=np.zeros(3))
    agrees = problem.residuals(pose) < 4
    count, agreement = weighed(problem, pose, agrees, 4.0)
    assert count == len({tuple(line) for line in lines[agrees].round(9).tolist()}) == agrees.sum() - agrees[40]
    places = points[:, :2] / points[:, 2:]
    near = [[abs(line @ [*place, 1.0]) * 500 <= 4 for line in lines] for place in places]
    expected = np.mean([(sum(row) - row[own]) / 79 for own, row in enumerate(near)])
    assert agreement == pytest.approx(expected) and agreement > line_agreement(camera(), 4.0)


@pytest.mark.slow
def test_crowded_places_are_told_apart_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the rule itself in loops. A query may hold all keypoints at one place; lists of near pairs are quadratic."""
    random = generator("crowded")
    for dim in (2, 3):
        places = random.normal(size=(300, dim)) * 2
        kept: list[int] = []
        for row in range(len(places)):
            if all(np.linalg.norm(places[row] - places[other]) > 1.0 for other in kept):
                kept.append(row)
        usual = np.flatnonzero(apart(places, 1.0)).tolist()
        with monkeypatch.context() as few:
            few.setattr(significance, "MOST_PAIRS", 10)
            assert np.flatnonzero(apart(places, 1.0)).tolist() == usual == kept
    tracemalloc.start()
    assert apart(np.full((20_000, 2), 320.0), 1.0).sum() == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
