"""The study of neighborhoods on a bundled photograph: its order of rules, its bound and its null, and its rows by hand."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.attack_networks import bundled_pair_network
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil_lab.studies.attacks.neighborhoods import (
    ATTACKS,
    RULES,
    NeighborhoodTrial,
    lines_by_rule,
    neighborhood_rows,
    neighborhood_trials,
    true_beliefs,
)
from worlds import features, generator


@pytest.mark.slow
def test_what_neighbors_tell_of_a_photograph() -> None:
    """The photograph was in no training. Random angles fall to both attacks; lines of halves leave the learned one near chance.

    The null, neighbors of other features, learns nothing from any rule. Broken twin: anchors drawn for each keypoint.
    """
    with lund_door() as example:
        picture = read_picture(sorted(example.folder.glob("*.jpg"))[3])
    item = extract_sift(picture, SiftOptions(max_features=300))
    trials = neighborhood_trials("door", item, network=bundled_pair_network(), seed=0)
    rows = {(row.rule, row.attack): row for row in neighborhood_rows(trials)}
    assert {rule for rule, _ in rows} == set(RULES) and {attack for _, attack in rows} == set(ATTACKS)

    def median(rule: str, attack: str) -> float:
        error_px = rows[rule, attack].median_px
        assert error_px is not None
        return error_px / (rows[rule, "midpoint"].median_px or np.nan)

    for rule in RULES:
        assert median(rule, "random neighbors") > 0.8
    for rule in ("uniform", "mixed", "convergent-drawn"):
        assert median(rule, "true neighbors") < 0.35 and median(rule, "learned neighbors") < 0.9
    for rule in ("convergent", "parallel", "aligned"):
        assert median(rule, "learned neighbors") > 0.8
    assert median("uniform", "true neighbors") < median("convergent", "true neighbors") < median("aligned", "true neighbors")
    assert rows["convergent", "true neighbors, nearest point"].undecided == rows["convergent", "midpoint"].features


def test_rows_are_counted_as_stated() -> None:
    """By hand: four errors, one of them undecided."""
    trial = NeighborhoodTrial(image="a", rule="uniform", attack="midpoint", errors_px=np.array([5.0, 20.0, 100.0, np.nan]))
    (row,) = neighborhood_rows([trial])
    assert (row.features, row.undecided, row.median_px) == (4, 1, 20.0)
    assert row.as_json()["within"] == {"10": 0.25, "25": 0.5, "50": 0.5}
    none = NeighborhoodTrial(image="a", rule="uniform", attack="midpoint", errors_px=np.array([np.nan]))
    assert neighborhood_rows([none])[0].median_px is None


def test_true_beliefs_hold_the_true_class() -> None:
    """By hand: three keypoints 3, 20 and 100 px from the first."""
    keypoints = np.array([[0, 0], [3, 0], [0, 20], [100, 0]], dtype=np.float32)
    beliefs = true_beliefs(keypoints, 3)
    assert beliefs.rows[0].tolist() == [1, 2, 3] and beliefs.probabilities[0].argmax(axis=1).tolist() == [0, 3, 5]


def test_what_is_refused() -> None:
    item = features(generator("study"), 30)
    with pytest.raises(InputError, match="there is no magic"):
        neighborhood_trials("a", item, network=None, seed=0, rules=("magic",))
    with pytest.raises(InputError, match="needs 12"):
        neighborhood_trials("a", item.take(np.arange(5)), network=None, seed=0)
    trials = neighborhood_trials("a", item, network=None, seed=0, rules=("parallel",))
    assert [trial.attack for trial in trials] == [attack for attack in ATTACKS if attack != "learned neighbors"]
    down = np.array([0.0, 1.0, 0.0])
    one, two = (lines_by_rule(item, "convergent", gravity=down, name="a", seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(one.coefficients, two.coefficients)
