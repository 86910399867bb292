"""Neighbors that go together choose the right one of several candidates; strangers do not."""

from __future__ import annotations

import numpy as np
import pytest

from veil.attacks.distribution.context import ContextOptions, context_beliefs, neighbor_rows
from veil.attacks.distribution.modes import Modes
from veil.attacks.positions.neighbor_field import CLASSES
from veil.attacks.positions.pair_network import PairNetwork
from veil.errors import InputError, RangeError
from veil.files.attack_networks import bundled_pair_network
from worlds import generator


class Alike(PairNetwork):
    """A network that knows the planted world: features of one photograph share their first entry."""

    def codes(self, vectors: np.ndarray) -> np.ndarray:
        return vectors

    def log_likelihoods(self, code: np.ndarray, others: np.ndarray) -> np.ndarray:
        logs = np.zeros((len(others), CLASSES), dtype=np.float32)
        logs[:, :-1] = np.where(np.abs(code[0] - others[:, :1]) < 0.5, 1.5, -1.5)
        return logs


def alike() -> Alike:
    net = bundled_pair_network()
    return Alike(space=net.space, layers=net.layers, crowding=net.crowding, source="planted")


def world(name: str, *, together: bool) -> tuple[Modes, np.ndarray, np.ndarray]:
    """Five candidates of 60 features of which one, in a random place, is of the photograph; positions; the right places."""
    random = generator(name)
    points = np.zeros((60, 5, 128))
    points[..., 0] = random.integers(10, 1000, (60, 5))
    right = random.integers(0, 5, 60)
    if together:
        points[np.arange(60), right, 0] = 1.0
    modes = Modes(points=points, log_ratios=np.zeros((60, 5)))
    return modes, random.uniform(0, 200, (60, 2)), right


def test_the_true_candidates_are_chosen() -> None:
    """Planted: they alone go together. Null: where none do, the choice is chance."""
    modes, keypoints, right = world("together", together=True)
    beliefs = context_beliefs(modes, keypoints, alike())
    assert beliefs.sum(axis=1) == pytest.approx(np.ones(60)) and (beliefs.argmax(axis=1) == right).mean() > 0.95
    modes, keypoints, right = world("strangers", together=False)
    beliefs = context_beliefs(modes, keypoints, alike())
    assert 0.05 < (beliefs.argmax(axis=1) == right).mean() < 0.4 and np.abs(beliefs - 0.2).mean() < 0.05


def test_without_strength_the_modes_alone_decide() -> None:
    modes, keypoints, _ = world("alone", together=True)
    ratios = generator("ratios").normal(size=(60, 5))
    ratios[:, 0] = 3.0
    ratios[5, 3:] = -np.inf
    modes = Modes(points=modes.points, log_ratios=ratios)
    beliefs = context_beliefs(modes, keypoints, alike(), options=ContextOptions(strength=0.0))
    assert beliefs == pytest.approx(modes.beliefs(ContextOptions().sharpness), abs=1e-3) and (beliefs[5, 3:] == 0).all()


def test_far_features_say_nothing() -> None:
    """A distance beyond the last class says no more than any two features of photographs."""
    modes, keypoints, _ = world("far", together=True)
    beliefs = context_beliefs(modes, 1000 * keypoints, alike())
    assert np.abs(beliefs - 0.2).max() < 1e-6


def test_neighbors_are_the_nearest_others() -> None:
    """Slow reference: all distances; and keypoints at one place have each other."""
    keypoints = generator("neighbors").uniform(0, 100, (30, 2))
    gaps = np.linalg.norm(keypoints[:, None] - keypoints, axis=2) + np.diag(np.full(30, np.inf))
    assert np.array_equal(np.sort(neighbor_rows(keypoints, 4)), np.sort(np.argsort(gaps, axis=1)[:, :4]))
    same = neighbor_rows(np.zeros((6, 2)), 3)
    assert same.shape == (6, 3) and (same != np.arange(6)[:, None]).all()
    assert neighbor_rows(np.zeros((1, 2)), 3).shape == (1, 0)


def test_one_feature_has_its_modes_alone() -> None:
    modes, keypoints, _ = world("one", together=True)
    single = Modes(points=modes.points[:1], log_ratios=modes.log_ratios[:1])
    assert context_beliefs(single, keypoints[:1], alike()) == pytest.approx(np.full((1, 5), 0.2))


def test_what_does_not_fit_is_refused() -> None:
    modes, keypoints, _ = world("refused", together=True)
    with pytest.raises(InputError):
        context_beliefs(modes, keypoints[:-1], alike())
    for bad in ({"neighbors": 0}, {"damping": 0.0}, {"mistaken": 1.0}, {"sharpness": float("nan")}):
        with pytest.raises(RangeError):
            ContextOptions(**bad)
