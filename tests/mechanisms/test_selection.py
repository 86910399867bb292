"""Few features leave, none beside another, and the same ones each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.codebooks.decoys import USUAL_REUSE, in_runs, runs_for
from veil.device.protection import HideInSubspaces
from veil.errors import RangeError, ReleaseRefused
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.mechanisms.parameters import Parameters, selected_parameters
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import privatize
from veil.mechanisms.selection import EVERYTHING, Selection, selected_rows, usual_selection
from veil.randomness import Secure, seeded

KEY = seeded("selection")


def greedy(features: Features, selection: Selection) -> list[int]:
    """Slow reference: from the largest scale on, each feature that is far enough from all that were kept."""
    assert features.scales is not None
    kept: list[int] = []
    for row in np.argsort(-features.scales.astype(np.float64), kind="stable"):
        gaps = np.linalg.norm(features.keypoints[kept].astype(np.float64) - features.keypoints[row], axis=1)
        if (gaps >= selection.min_distance_px).all() and len(kept) != selection.features:
            kept.append(int(row))
    return sorted(kept)


@pytest.mark.parametrize("choice", [(100, 10.0), (None, 25.0), (10, 0.0), (5000, 3.0)])
def test_the_largest_apart_leave(door: dict[str, Features], choice: tuple[int | None, float]) -> None:
    selection = Selection(features=choice[0], min_distance_px=choice[1])
    features = next(iter(door.values()))
    assert features.scales is not None
    # Scales that differ: ties are drawn, and the reference knows no draw.
    features = replace(features, scales=features.scales + np.arange(len(features), dtype=np.float32) * 1e-3)
    assert selected_rows(features, selection, KEY).tolist() == greedy(features, selection)


def test_one_feature_of_a_position_leaves(door: dict[str, Features]) -> None:
    """SIFT describes a sixth of its keypoints for several orientations; the broken twin, a distance of 0, sends all."""
    features = next(iter(door.values()))
    rows = selected_rows(features, Selection(features=None, min_distance_px=0.01), KEY)
    assert len(np.unique(features.keypoints[rows], axis=0)) == len(rows) == len(np.unique(features.keypoints, axis=0))
    assert len(selected_rows(features, EVERYTHING, KEY)) == len(features) > len(rows)


def test_without_scales_the_choice_is_drawn_and_repeats(door: dict[str, Features]) -> None:
    features = replace(next(iter(door.values())), scales=None)
    selection = Selection(features=50, min_distance_px=0.0)
    rows = selected_rows(features, selection, KEY)
    assert rows.tolist() == selected_rows(features, selection, KEY).tolist()
    assert rows.tolist() != selected_rows(features, selection, seeded("another")).tolist()
    # Which of the others leave does not depend on a feature that does not.
    rest = np.setdiff1d(np.arange(len(features)), rows)[1:]
    fewer = np.sort(np.concatenate([rows, rest]))
    again = selected_rows(features.take(fewer), selection, KEY)
    assert fewer[again].tolist() == rows.tolist()


def test_scores_choose_where_scales_do_not(door: dict[str, Features]) -> None:
    """Planted order: of features without scales, or of one scale, those of highest score leave; the ledger sees it."""
    features = next(iter(door.values()))
    scores = np.random.default_rng(5).permutation(len(features)).astype(np.float32)
    wanted = np.flatnonzero(scores >= len(features) - 40).tolist()
    selection = Selection(features=40, min_distance_px=0.0)
    for scales in (None, np.ones(len(features), dtype=np.float32)):
        assert selected_rows(replace(features, scales=scales, scores=scores), selection, KEY).tolist() == wanted
    assert selected_rows(replace(features, scores=scores), selection, KEY).tolist() != wanted, "scales come first"
    texts = {selected_parameters(Parameters(b"draws", "subspaces"), selection, scored=scored).text for scored in (True, False)}
    assert len(texts) == 2 and any("selection_rule=1 " in text for text in texts)


def test_an_empty_image_has_no_rows(door: dict[str, Features]) -> None:
    features = next(iter(door.values())).take(np.arange(0))
    assert selected_rows(features, Selection(), KEY).tolist() == []


@pytest.mark.parametrize("bad", [{"features": 0}, {"min_distance_px": -1.0}, {"min_distance_px": float("nan")}])
def test_impossible_choices_are_refused(bad: dict) -> None:
    with pytest.raises(RangeError):
        Selection(**bad)


def test_what_leaves_is_lifted_as_it_would_be_among_all(door: dict[str, Features]) -> None:
    """Draws depend on a feature alone, so a selection changes which subspaces leave and none of them."""
    features = next(iter(door.values()))
    book, pool = bundled_codebook(), bundled_decoys()
    source = Secure(b"the secret of tests of selection"[:32])
    made = [
        privatize(
            features,
            profile=Profile.hardened(quantized=True),
            compression=book.compression,
            decoys=pool,
            randomness=source,
            selection=selection,
        )
        for selection in (EVERYTHING, Selection(features=100))
    ]
    whole = {int(row): place for place, row in enumerate(made[0].order)}
    assert len(made[1].order) == 100 and set(made[1].order) <= set(whole)
    places = [whole[int(row)] for row in made[1].order]
    assert np.array_equal(made[1].upload.form.origin, made[0].upload.form.origin[places])  # type: ignore[union-attr]
    assert places == sorted(places)
    assert made[1].parameters.text != made[0].parameters.text and made[1].parameters.draws == made[0].parameters.draws


def test_the_ledger_sees_another_selection() -> None:
    texts = {
        selected_parameters(Parameters(b"draws", "subspaces"), selection).text
        for selection in (Selection(), Selection(features=999), Selection(min_distance_px=9.5), EVERYTHING)
    }
    assert len(texts) == 4


@pytest.mark.parametrize(
    ("words", "declared", "draws", "runs"),
    [
        (32768, 32, 4000, 1),  # the bundled pool
        (262144, 16, 4000, 6),
        (1_000_000, 32, 4000, 25),
        (1_000_000, 16, 4000, 16),
        (5000, 16, 4000, 1),  # refused then
        (32768, 32, 40, 32),
    ],
)
def test_a_small_pool_is_used_in_fewer_runs(words: int, declared: int, draws: int, runs: int) -> None:
    """Golden values: the reuse of Eq. 8 by hand. A pool that has enough words stays below the usual reuse."""
    assert runs_for(words, declared, draws) == runs
    assert draws <= USUAL_REUSE * (words // runs) or runs == 1


def test_a_pool_too_small_is_refused(door: dict[str, Features]) -> None:
    """Broken twin: with as many decoys as draws the same image is released."""
    features = next(iter(door.values()))
    pool = bundled_decoys()
    few = replace(pool, stored=pool.stored[:1500], slices=1)
    choice = Selection(features=100, min_distance_px=0.0)
    with pytest.raises(ReleaseRefused, match=r"HideInSubspaces\(decoys=1600\)"):
        HideInSubspaces(decoys=few, selection=choice)._make(features, KEY, None)
    enough = replace(pool, stored=pool.stored[:1600], slices=1)
    made = HideInSubspaces(decoys=enough, selection=choice)._make(features, KEY, None)
    assert len(made.upload) == 100 and made.image_features == len(features)


def test_defaults_are_for_real_decoys(door: dict[str, Features]) -> None:
    assert usual_selection(Profile.hardened(quantized=True)) == Selection() == Selection(features=1000, min_distance_px=10.0)
    assert usual_selection(Profile.paper(4)) == EVERYTHING
    features = next(iter(door.values()))
    assert len(HideInSubspaces(profile=Profile.paper(4))._make(features, KEY, None).upload) == len(features)
    assert len(HideInSubspaces()._make(features, KEY, None).upload) < len(features)
    book = bundled_codebook()
    assert in_runs(book, 4000) is book
