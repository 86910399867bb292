"""The study of near repeats, on planted repeats of a bundled photograph's features and on frames of the photograph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from veil.errors import InputError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.attack_networks import bundled_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.examples import other_place
from veil.files.photographs.pictures import read_rgb
from veil_lab.studies.attacks.form_releases import FormPools
from veil_lab.studies.attacks.pooled_shares import paired_gain, pooled_shares
from veil_lab.studies.attacks.repeats import SETTINGS, UPLOADS, RepeatRow, RepeatSet, repeats_study
from veil_lab.training.altered import near_repeats
from worlds import generator

IN_SUBSPACES = tuple(setting for setting in SETTINGS if setting.descriptors == "subspaces")


@pytest.fixture(scope="module")
def pools() -> FormPools:
    return FormPools.split(bundled_codebook(), bundled_decoys())


@pytest.mark.slow
def test_networks_join_the_attacks_of_repeats(door: dict[str, Features], pools: FormPools) -> None:
    """Special case: no best attack gets worse."""
    frames = [repeats(a_step_apart(next(iter(door.values())).take(np.arange(30)), 5))]
    without = by_kind(repeats_study(frames, pools, IN_SUBSPACES[-1:]))
    learned = by_kind(repeats_study(frames, replace(pools, learned=bundled_learned_model()), IN_SUBSPACES[-1:]))
    assert learned.keys() == without.keys()
    assert all(row.shares >= without[key].shares for key, row in learned.items())


def test_descriptors_of_some_features_are_attacked_and_counted_alone(door: dict[str, Features], pools: FormPools) -> None:
    """Oracle: equal uploads tell every descriptor that their comparison finds, of few features as of all."""
    frames = [repeats(a_step_apart(next(iter(door.values())).take(np.arange(80)), 5))]
    some, every = (by_kind(repeats_study(frames, pools, IN_SUBSPACES[-1:], most=most)) for most in (20, 80))
    for key, row in some.items():
        assert row.features == (20 if key[2] == "descriptor" else every[key].features)
        assert every[key].features > 60
        assert np.abs(np.subtract(row.shares, every[key].shares)).max() < 0.35
        assert max(row.shares) <= 1
    assert {key[2] for key in some} == {"descriptor", "px"}


def repeats(features: Sequence[Features]) -> RepeatSet:
    """Near repeats with these features, none of which has moved."""
    return RepeatSet(photograph="a", kind="frame", features=features, to_photograph=[np.eye(2, 3)] * len(features))


def by_kind(rows: Sequence[RepeatRow]) -> dict[tuple[str, int, str], RepeatRow]:
    return {(row.form, row.uploads, row.unit): row for row in rows}


def a_step_apart(item: Features, count: int) -> list[Features]:
    """Copies whose descriptors differ in one number by one step, and so are lifted anew, with digests of their own."""
    copies = []
    for place in range(count):
        descriptors = item.descriptors.copy()
        descriptors[:, place] = np.where(descriptors[:, place] < 255, descriptors[:, place] + 1, 254)
        copies.append(replace(item, descriptors=descriptors, image_digest=bytes([place]) * 32))
    return copies


@pytest.mark.slow
def test_frames_that_differ_by_nothing_but_a_step_are_recovered(door: dict[str, Features], pools: FormPools) -> None:
    """Planted: descriptors a step apart are lifted anew, and meet in the descriptor. Nine of ten are
    recovered; where both lifts drew a decoy of a small pool, one direction stays open.
    """
    item = next(iter(door.values())).take(np.arange(200))
    rows = by_kind(repeats_study([repeats(a_step_apart(item, 5))], pools, IN_SUBSPACES))
    for uploads in UPLOADS:
        assert rows["subspaces", uploads, "descriptor"].shares[0] > 0.85
        assert rows["subspaces, lines", uploads, "descriptor"].shares[0] > 0.8
        assert rows["subspaces, lines", uploads, "px"].shares[0] > 0.5


@pytest.mark.slow
def test_the_same_frame_again_gives_nothing(door: dict[str, Features], pools: FormPools) -> None:
    """Definition of memoized draws: identical frames give identical releases, which an attacker has once."""
    item = next(iter(door.values())).take(np.arange(200))
    rows = by_kind(repeats_study([repeats([item] * 5)], pools, IN_SUBSPACES))
    for uploads in UPLOADS:
        assert rows["subspaces", uploads, "descriptor"].shares[0] < 0.1
        assert rows["subspaces, lines", uploads, "px"].shares[0] < 0.1


@pytest.mark.slow
def test_photographs_of_another_place_give_nothing(door: dict[str, Features], elsewhere: Features, pools: FormPools) -> None:
    """Control: what is uploaded as near repeats shows something else."""
    item = next(iter(door.values())).take(np.arange(200))
    others = a_step_apart(elsewhere.take(np.arange(200)), 4)
    rows = repeats_study([repeats([item, *others])], pools, IN_SUBSPACES)
    for row in rows:
        assert row.shares[0] < 0.1, row


@pytest.mark.slow
def test_more_frames_give_no_less_and_lines_hide_no_descriptors(pools: FormPools) -> None:
    """Law: five uploads contain two of them. The best attack may lose three standard deviations by chance. Rows are counted."""
    with other_place() as path:
        picture = Picture.of(np.ascontiguousarray(read_rgb(path)[:480, :640]))
    sets = []
    for kind in ("frame", "shot"):
        made = near_repeats(picture, kind, 5, seed=0)
        features = [extract_sift(item.picture, SiftOptions(max_features=400)) for item in made]
        to_photograph = [item.to_photograph for item in made]
        sets.append(RepeatSet(photograph="a", kind=kind, features=features, to_photograph=to_photograph))
    rows = repeats_study(sets, pools)
    assert len(rows) == len(sets) * len(UPLOADS) * (len(SETTINGS) + 1)  # lines have a row for positions, too
    known = {(row.form, row.kind, row.uploads, row.unit): row for row in rows}
    for (form, kind, uploads, unit), two in known.items():
        if uploads == 2:
            five = known[form, kind, 5, unit]
            assert five.features == two.features and five.photographs == 1
            least = two.shares[0] * (1 - two.shares[0]) / two.features
            assert five.shares[0] >= two.shares[0] - 3 * np.sqrt(2 * least), (form, kind, unit)
    assert known["subspaces", "frame", 5, "descriptor"].shares[0] > 0.8
    assert known["subspaces, lines", "frame", 5, "descriptor"].shares[0] > 0.5
    assert known["words, epsilon 5", "frame", 5, "word"].shares[0] < 0.3
    assert known["positions alone", "frame", 5, "word"].shares[0] < 0.05


def test_shares_are_pooled_over_photographs() -> None:
    """By hand: 1 of 2 and 3 of 6 features. Equal photographs have an interval of no width, unequal ones their own ends."""
    pooled = pooled_shares(np.array([[1], [3]]), np.array([2, 6]), seed=0)
    assert pooled.shares == pooled.low == pooled.high == (0.5,)
    pooled = pooled_shares(np.array([[0], [6]]), np.array([2, 6]), seed=0)
    assert (pooled.shares, pooled.low, pooled.high) == ((0.75,), (0.0,), (1.0,))


def test_gains_are_paired_by_photograph() -> None:
    """Planted: one attack recovers a tenth more of each photograph, though photographs differ by much more."""
    base = generator("gain").uniform(0, 0.8, (12, 3))
    gain = paired_gain(base + 0.1, base, seed=0)
    np.testing.assert_allclose([gain.shares, gain.low, gain.high], 0.1)
    shuffled = paired_gain(base[::-1] + 0.1, base, seed=0)  # broken twin: of another photograph
    np.testing.assert_allclose(shuffled.shares, 0.1)
    assert max(shuffled.high) - min(shuffled.low) > 0.2


def test_what_is_refused(door: dict[str, Features], pools: FormPools) -> None:
    item = next(iter(door.values()))
    for sets in ([], [repeats([item] * 4)]):
        with pytest.raises(InputError, match="5 near repeats"):
            repeats_study(sets, pools)
