"""Recognition of the original behind each released feature: the release's own order is the planted truth."""

from __future__ import annotations

import numpy as np
import pytest

from veil.audit.ground_truth import find_truth, in_space
from veil.errors import InputError
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from worlds.releases import released, taken


@pytest.mark.slow
@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize(
    "profile", [Profile.paper(4), Profile.hardened(quantized=True), None], ids=["paper", "hardened", "words"]
)
def test_each_feature_is_recognized(door: dict[str, Features], profile: Profile | None, lines: bool) -> None:
    """Planted: all rows are right for subspaces; for words some features at one place are exchanged, with equal positions."""
    name, features = list(door.items())[1]
    message, order = released(features, profile, lines=lines)
    truth = find_truth(message, door, bundled_codebook())
    assert truth.image == name
    assert np.array_equal(truth.keypoints, features.keypoints[order].astype(np.float64))
    assert len(np.unique(truth.rows)) == len(order)
    right = truth.rows == order
    assert right.all() if profile is not None else right.mean() > 0.9
    expected = in_space(features, message.form.space, bundled_codebook())[truth.rows]
    assert np.array_equal(truth.descriptors, expected)


def test_twins_at_one_place_are_told_apart_by_their_subspaces(door: dict[str, Features]) -> None:
    """Planted: features at one place are recognized; by positions alone (the broken twin), half of them would be exchanged."""
    features = next(iter(door.values()))
    _, count = np.unique(features.keypoints, axis=0, return_counts=True)
    assert (count > 1).sum() > 20
    message, order = released(features, Profile.paper(4))
    rows = find_truth(message, {"a": features}, None).rows
    assert np.array_equal(features.descriptors[rows], features.descriptors[order])  # features that are equal in all are one
    assert (rows == order).mean() > 0.99


def test_a_part_of_the_features_is_enough_for_words(door: dict[str, Features]) -> None:
    """A release may send fewer features than there are."""
    features = next(iter(door.values()))
    message, _ = released(taken(features, np.arange(0, len(features), 3)), None)
    truth = find_truth(message, {"a": features}, bundled_codebook())
    assert len(truth.rows) == len(message)
    assert (truth.rows % 3 == 0).mean() > 0.9


def test_other_photographs_are_refused(door: dict[str, Features], elsewhere: Features) -> None:
    names = list(door)
    message, _ = released(door[names[0]], Profile.paper(4))
    with pytest.raises(InputError, match="none of 5 photographs is what this release was made of"):
        find_truth(message, {name: door[name] for name in names[1:]}, None)
    with pytest.raises(InputError, match="none of 1 photographs"):
        find_truth(message, {"elsewhere": elsewhere}, None)


def test_missing_features_are_counted(door: dict[str, Features]) -> None:
    features = next(iter(door.values()))
    message, order = released(features, Profile.paper(4))
    with pytest.raises(InputError, match=r"3 of \d+ released features are not among those of a"):
        find_truth(message, {"a": taken(features, np.sort(order[3:]))}, None)


def test_a_compressed_form_needs_its_codebook(door: dict[str, Features]) -> None:
    features = next(iter(door.values()))
    message, _ = released(features, Profile.hardened(quantized=True))
    with pytest.raises(InputError, match=r"Attacker\(codebook=\.\.\.\)"):
        find_truth(message, {"a": features}, None)
    assert in_space(features, features.space, None).shape == publish(features).vectors.shape
