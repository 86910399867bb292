"""The study of attacks on positions: its pieces by planted truth and second methods, its claims on a bundled photograph."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil_lab.report.attacks import draw_position_attacks
from veil_lab.studies.attacks.positions import (
    ATTACKS,
    BLIND,
    PositionRow,
    PositionTrial,
    occurrence,
    position_histograms,
    position_rows,
    position_trials,
    true_neighbors,
)
from worlds import features, generator


@cache
def door() -> Features:
    with lund_door() as example:
        picture = read_picture(sorted(example.folder.glob("*.jpg"))[3])
    return extract_sift(picture, SiftOptions(max_features=350))


@pytest.fixture(scope="module")
def trials() -> list[PositionTrial]:
    return position_trials("door", door(), seed=4)


@pytest.mark.slow
def test_each_defense_is_worth_what_it_says(trials: list[PositionTrial], tmp_path: Path) -> None:
    """Lines without a defense lose their positions, veil's lines leave the attacks near chance, and the figure is written."""
    rows = {(row.aligned_share, row.attack): row for row in position_rows(trials)}
    assert {attack for _, attack in rows} == set(ATTACKS) and {share for share, _ in rows} == {0.0, 0.5, 1.0}
    assert rows[0.0, "repeat, fresh"].within["1"] >= 0.99
    assert rows[0.5, "repeat, fresh"].within["1"] == pytest.approx(0.75, abs=0.08)
    for share in (0.0, 0.5):
        chance, diagonal = rows[share, "chance"], np.hypot(*_size())
        assert 0.1 < median(chance) / diagonal < 0.4
        assert rows[share, "repeat"].undecided == rows[share, "repeat"].features
        assert rows[share, "twins, own lines"].within["1"] > chance.within["1"] + 0.05
        assert median(rows[share, "order, sorted"]) < 0.5 * median(chance)
        assert 0.5 < median(rows[share, "order"]) / median(chance) < 2
        assert median(rows[share, "true neighbors"]) < 0.5 * median(chance)
        assert 0.4 < median(rows[share, "density"]) / median(rows[share, "midpoint"]) < 1.3
    for attack in set(ATTACKS) - set(BLIND):
        assert rows[1.0, attack].undecided == rows[1.0, attack].features
    assert rows[1.0, "chance"].median_horizontal_px == pytest.approx(0, abs=0.01)
    assert sum(row.wrongly_certified for row in rows.values()) == 0
    draw_position_attacks(tmp_path / "positions.svg", trials, title="test")
    assert b"</svg>" in (tmp_path / "positions.svg").read_bytes()


def median(row: PositionRow) -> float:
    assert row.median_px is not None
    return row.median_px


def _size() -> tuple[int, int]:
    camera = door().camera
    return camera.width_px, camera.height_px


@pytest.mark.slow
def test_the_study_is_reproducible_and_takes_a_part(trials: list[PositionTrial]) -> None:
    again = position_trials("door", door(), seed=4, shares=(0.5,), attacks=("chance", "true neighbors"))
    for trial in again:
        same = next(t for t in trials if (t.aligned_share, t.attack) == (0.5, trial.attack))
        np.testing.assert_array_equal(trial.offsets, same.offsets)
    other = position_trials("door", door(), seed=5, shares=(0.5,), attacks=("chance",))
    assert (other[0].offsets != again[0].offsets).any()


def test_rows_and_histograms_count_every_feature() -> None:
    """Planted errors: 0.5, 3 and 12 px, one undecided; certified are the first and, wrongly, the third."""
    offsets = np.array([[0.5, 0.0], [0.0, 3.0], [np.nan, np.nan], [-12.0, 0.0]])
    trial = PositionTrial(
        image="a", aligned_share=0.5, attack="twins", offsets=offsets, certified=np.array([True, False, False, True])
    )
    (row,) = position_rows([trial, replace(trial, image="b")])
    assert (row.photographs, row.features, row.undecided, row.certified, row.wrongly_certified) == (2, 8, 2, 4, 2)
    assert (row.median_px, row.mean_px, row.median_horizontal_px) == (3, pytest.approx(15.5 / 3), 0.5)
    assert row.within == {"1": 0.25, "5": 0.5, "10": 0.5, "20": 0.75}
    assert row.as_json()["within"]["20"] == 0.75
    counts = position_histograms([trial], np.array([1.0, 2.0, 4.0, 8.0]))[0.5, "twins"]
    np.testing.assert_array_equal(counts, [0.25, 0.25, 0.25])
    none = replace(trial, offsets=np.full((4, 2), np.nan), certified=np.zeros(4, dtype=bool))
    assert position_rows([none])[0].median_px is None


def test_neighbors_and_occurrences_by_brute_force() -> None:
    random = generator("brute")
    keypoints = np.round(random.random((60, 2)) * 12).astype(np.float32)  # many at one position
    expected = [sum((keypoints[:row] == keypoints[row]).all(axis=1)) for row in range(60)]
    np.testing.assert_array_equal(occurrence(keypoints), expected)
    neighbors = true_neighbors(keypoints, 4)
    gap = np.linalg.norm(keypoints[:, None] - keypoints[None], axis=2)
    for row in range(60):
        distances = [gap[row, other] for other in neighbors.rows[row]]
        places = {tuple(place): gap[row, k] for k, place in enumerate(keypoints) if gap[row, k] > 0}
        np.testing.assert_allclose(distances, sorted(places.values())[:4])


def test_bad_input_is_refused() -> None:
    image = features(generator("small"), 30)
    with pytest.raises(InputError, match="no attack"):
        position_trials("a", image, seed=0, attacks=("magic",))
    with pytest.raises(InputError, match="needs 12"):
        position_trials("a", features(generator("few"), 5), seed=0)
    with pytest.raises(RangeError):
        position_trials("a", image, seed=0, shares=(float("nan"),))
    with pytest.raises(RangeError):
        position_histograms([], np.array([2.0, 1.0]))
