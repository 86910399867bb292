"""Matches of subspaces by log odds: candidates and signs by their definition, and more right matches than by a ratio."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Points, Subspaces
from veil.matching import match
from veil.matching.neighbors import decoy_distance
from veil.matching.ratio import calibrated
from veil.matching.rescoring import CANDIDATES, SIGNS, Scoring, candidates, matches_by_odds, scoring_for
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import privatize
from veil.mechanisms.selection import ChosenFeatures
from veil.randomness import seeded


def lifted(features: Features, rows: np.ndarray, name: str) -> tuple[Subspaces, np.ndarray]:
    """The hardened release of rows of features, and the row of each that was released."""
    release = privatize(
        features,
        profile=Profile.hardened(quantized=True),
        compression=bundled_codebook().compression,
        decoys=bundled_decoys(),
        randomness=seeded(name),
        selection=ChosenFeatures(rows=np.sort(rows)),
    )
    form = release.upload.form
    assert isinstance(form, Subspaces)
    return form, release.order


@pytest.fixture(scope="module")
def pair(door: dict[str, Features]) -> tuple[Subspaces, Subspaces, set[tuple[int, int]]]:
    """Releases of a hundred features of two photographs, of which sixty are the hardest raw matches, and those matches."""
    left, right = list(door.values())[:2]
    raw = match(publish(left), publish(right), None)
    sure = raw.indices[np.argsort(np.where(raw.ratios < 0.8, -raw.ratios, 0.0), kind="stable")[:60]]
    rest = [np.setdiff1d(np.arange(len(item)), raw.indices[:, side])[:40] for side, item in enumerate((left, right))]
    one, order = lifted(left, np.concatenate([sure[:, 0], rest[0]]), "rescoring left")
    other, other_order = lifted(right, np.concatenate([sure[:, 1], rest[1]]), "rescoring right")
    place = {int(row): number for number, row in enumerate(order)}
    other_place = {int(row): number for number, row in enumerate(other_order)}
    return one, other, {(place[int(a)], other_place[int(b)]) for a, b in sure}


def slow_signs(left: Subspaces, right: Subspaces, scoring: Scoring) -> dict[tuple[int, int], np.ndarray]:
    """Eq. 18 by its definition: each pair by least squares, each neighbor by sorting."""
    meets = decoy_distance(left, right)
    distance, middle = np.zeros((len(left), len(right))), {}
    for i, j in product(range(len(left)), range(len(right))):
        both = np.concatenate([left.basis[i], -right.basis[j]]).astype(np.float64).T
        between = right.origin[j].astype(np.float64) - left.origin[i]
        steps = np.linalg.lstsq(both, between, rcond=None)[0]
        a = left.origin[i] + left.basis[i].astype(np.float64).T @ steps[: left.m]
        b = right.origin[j] + right.basis[j].astype(np.float64).T @ steps[left.m :]
        distance[i, j], middle[i, j] = np.linalg.norm(a - b), (a + b) / 2
    distance[distance <= meets] = np.inf
    signs = {}
    for i, j in product(range(len(left)), range(len(right))):
        lists = [np.sort(distance[i]), np.sort(distance[:, j])]
        ranks = [int((row < distance[i, j]).sum()) for row in lists]
        if min(ranks) >= CANDIDATES or not np.isfinite(distance[i, j]):
            continue
        rivals = [row[1] if rank == 0 else row[0] for row, rank in zip(lists, ranks, strict=True)]
        x = middle[i, j]
        length = np.linalg.norm(x)
        signs[i, j] = np.array(
            [
                np.log(distance[i, j]),
                sum(np.log(distance[i, j] / rival) for rival in rivals),
                sum(np.log(distance[i, j] / row[CANDIDATES]) for row in lists),
                sum(min(rank, CANDIDATES) for rank in ranks),
                length,
                abs(length - scoring.length),
                np.sqrt(((x - scoring.mean) ** 2 / scoring.variance).mean()),
                np.log(len(left) * len(right)) / 2,
            ]
        )
    return signs


def test_candidates_and_signs_are_those_of_the_slow_reference(pair: tuple[Subspaces, Subspaces, set[tuple[int, int]]]) -> None:
    left, right = pair[0].take(np.arange(20)), pair[1].take(np.arange(25))
    scoring = scoring_for(left, right)
    assert scoring is not None and len(scoring.weights) == len(SIGNS)
    listed = candidates(left, right, scoring)
    expected = slow_signs(left, right, scoring)
    pairs = list(zip(listed.left.tolist(), listed.right.tolist(), strict=True))
    assert sorted(pairs) == sorted(expected)
    np.testing.assert_allclose(listed.signs, [expected[key] for key in pairs], atol=2e-3)


def test_more_matches_are_right_than_by_the_ratio(pair: tuple[Subspaces, Subspaces, set[tuple[int, int]]]) -> None:
    """Oracle: raw matches. Broken twin: without what the midpoints say, hardly more are right than by the ratio."""
    left, right, truth = pair
    scoring = scoring_for(left, right)
    assert scoring is not None
    likely = matches_by_odds(left, right, scoring, least_log_odds=-1.0)
    correct = len(truth & set(map(tuple, likely.indices.tolist())))
    by_ratio = match(left, right)
    passed = by_ratio.indices[by_ratio.ratios <= calibrated(left, right)]
    assert correct > 1.1 * len(truth & set(map(tuple, passed.tolist()))) and correct > 0.7 * len(likely)
    assert len(set(likely.indices[:, 0].tolist())) == len(set(likely.indices[:, 1].tolist())) == len(likely)


def test_a_match_is_the_same_from_either_side(pair: tuple[Subspaces, Subspaces, set[tuple[int, int]]]) -> None:
    left, right, _ = pair
    scoring = scoring_for(left, right)
    assert scoring is not None
    one, other = (matches_by_odds(*sides, scoring, least_log_odds=-1.0) for sides in ((left, right), (right, left)))
    assert set(map(tuple, one.indices.tolist())) == set(map(tuple, other.indices[:, ::-1].tolist()))


def test_other_spaces_and_few_features_have_no_log_odds(pair: tuple[Subspaces, Subspaces, set[tuple[int, int]]]) -> None:
    left, right, _ = pair
    scoring = scoring_for(left, right)
    assert scoring is not None
    few = matches_by_odds(left.take(np.arange(5)), right, scoring, least_log_odds=-np.inf)
    assert len(few) == 0
    public = Points(space=left.space, vectors=left.origin)
    assert scoring_for(public, right) is None and scoring_for(left, public) is None
    elsewhere = replace(left, space=replace(left.space, codebook="0" * 64))
    assert scoring_for(elsewhere, elsewhere) is None


def test_a_draw_that_left_twice_matches_itself(pair: tuple[Subspaces, Subspaces, set[tuple[int, int]]]) -> None:
    """Planted: ten subspaces of the right message are those of the left one. No candidate takes their features."""
    left, right, _ = pair
    origin, basis = right.origin.copy(), right.basis.copy()
    rows, others = np.arange(10), np.arange(29, 19, -1)
    origin[others], basis[others] = left.origin[rows], left.basis[rows]
    scoring = scoring_for(left, right)
    assert scoring is not None
    matches = matches_by_odds(left, replace(right, origin=origin, basis=basis), scoring, least_log_odds=-20.0)
    of = dict(map(tuple, matches.indices.tolist()))
    assert [of[row] for row in rows] == others.tolist()
    assert len(set(of.values())) == len(of) == len(matches) > 40
